//! AWS, as moto plays it: a subnet, instances, and what becomes of them, by the commands of AWS's own client.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::{
    artifacts, eventually,
    lab::LIMIT,
    process::{self, Process},
};

/// The region of all instances.
pub const REGION: &str = "us-east-1";
/// The zone of all instances.
pub const ZONE: &str = "us-east-1a";
/// The type of all instances.
pub const TYPE: &str = "t3.medium";
/// The name of the cluster, by which its instances are tagged.
pub const CLUSTER: &str = "life";
/// An image that moto knows.
const IMAGE: &str = "ami-12c6146b";

/// A cloud. Dropping it ends it.
pub struct Cloud {
    python: PathBuf,
    address: (String, u16),
    _moto: Process,
    _dir: TempDir,
}

/// A subnet, and the virtual private cloud around it.
pub struct Subnet {
    pub id: String,
    pub vpc: String,
}

/// An instance.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    /// The private DNS name, by which the CCM finds the instance of a node.
    pub name: String,
    pub address: String,
}

impl Cloud {
    /// A cloud that serves at this address.
    pub async fn start(host: &str, port: u16) -> Result<Self> {
        let (python, dir) = (artifacts::moto().await?, process::temp_dir()?);
        let mut command = Command::new(&python);
        command.args(["-m", "moto.server", "--host", host, "--port", &port.to_string()]);
        // Otherwise it makes instances of any image and type.
        command.env("MOTO_ENABLE_AMI_VALIDATION", "true").env("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true");
        let moto = Process::spawn("moto", command, &dir.path().join("moto.log"))?;
        let listens = async || Ok(Some(TcpStream::connect((host, port)).await.map(drop)?));
        eventually("moto listens", LIMIT, listens).await.with_context(|| moto.log())?;
        Ok(Self { python, address: (host.to_owned(), port), _moto: moto, _dir: dir })
    }

    /// The answer to `aws …`, such as `ec2 describe-instances`.
    pub async fn aws(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.python);
        command.args(["-m", "awscli", "--output=json"]).args(arguments).stdin(Stdio::null());
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}:{}", self.address.0, self.address.1))
            .env("AWS_DEFAULT_REGION", REGION);
        command.env("AWS_ACCESS_KEY_ID", "none").env("AWS_SECRET_ACCESS_KEY", "none");
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        if output.stdout.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&output.stdout)?) }
    }

    async fn ec2(&self, arguments: &[&str]) -> Result<Value> {
        self.aws(&[&["ec2"], arguments].concat()).await
    }

    /// A new subnet with these addresses.
    pub async fn subnet(&self, addresses: &str) -> Result<Subnet> {
        let created = self.ec2(&["create-vpc", "--cidr-block", addresses]).await?;
        let vpc = text(&created["Vpc"]["VpcId"])?;
        let of_vpc = ["--vpc-id", &vpc, "--cidr-block", addresses, "--availability-zone", ZONE];
        let created = self.ec2(&[&["create-subnet"], &of_vpc[..]].concat()).await?;
        Ok(Subnet { id: text(&created["Subnet"]["SubnetId"])?, vpc })
    }

    /// A new instance of the cluster, with this address.
    pub async fn run_instance(&self, subnet: &Subnet, address: &str) -> Result<Instance> {
        let of_network = ["--private-ip-address", address];
        Ok(self.run_instances(subnet, &of_network).await?.remove(0))
    }

    /// New instances of the cluster, with these further arguments.
    pub async fn run_instances(&self, subnet: &Subnet, arguments: &[&str]) -> Result<Vec<Instance>> {
        let tag = format!("ResourceType=instance,Tags=[{{Key=kubernetes.io/cluster/{CLUSTER},Value=owned}}]");
        let of_machine = ["--image-id", IMAGE, "--instance-type", TYPE, "--tag-specifications", &tag];
        let of_network = ["--subnet-id", &subnet.id];
        let answer = self.ec2(&[&["run-instances"], &of_machine[..], &of_network, arguments].concat()).await?;
        let instance = |instance: &Value| {
            let address = text(&instance["PrivateIpAddress"])?;
            Ok(Instance { id: text(&instance["InstanceId"])?, name: text(&instance["PrivateDnsName"])?, address })
        };
        answer["Instances"].as_array().context("no instances")?.iter().map(instance).collect()
    }

    /// Stops an instance.
    pub async fn stop(&self, instance: &Instance) -> Result<()> {
        self.ec2(&["stop-instances", "--instance-ids", &instance.id]).await.map(drop)
    }

    /// Terminates an instance.
    pub async fn terminate(&self, instance: &Instance) -> Result<()> {
        self.ec2(&["terminate-instances", "--instance-ids", &instance.id]).await.map(drop)
    }
}

impl Subnet {
    /// The configuration of a CCM here: what it would otherwise ask the metadata service of its machine.
    pub fn configuration(&self) -> String {
        let Self { id, vpc } = self;
        format!("[Global]\nZone={ZONE}\nVPC={vpc}\nSubnetID={id}\nKubernetesClusterID={CLUSTER}\n")
    }
}

impl Instance {
    /// The providerID that the CCM has to write to the instance's node.
    pub fn provider_id(&self) -> String {
        format!("aws:///{ZONE}/{}", self.id)
    }

    /// The labels that it has to set, with their values.
    pub fn labels() -> [(&'static str, &'static str); 3] {
        [
            ("node.kubernetes.io/instance-type", TYPE),
            ("topology.kubernetes.io/region", REGION),
            ("topology.kubernetes.io/zone", ZONE),
        ]
    }
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(ToOwned::to_owned).with_context(|| format!("{value} in the cloud's answer"))
}
