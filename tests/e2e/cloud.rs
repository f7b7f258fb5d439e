//! AWS, as moto plays it: a subnet, instances, and what becomes of them, by the commands of AWS's own client.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpStream, sync::OnceCell};

use crate::{
    docker::run,
    support::{
        artifacts, eventually,
        lab::LIMIT,
        process::{self, Process},
    },
};

/// Where moto listens: the address that `hack/e2e/inside.sh` makes, and that the test image of the CCM names.
const ADDRESS: (&str, u16) = ("192.0.2.1", 5000);
const REGION: &str = "us-east-1";
/// The zone of all instances.
pub(crate) const ZONE: &str = "us-east-1a";
/// The type of all instances.
pub(crate) const TYPE: &str = "t3.medium";
/// The name of the cluster, by which its instances are tagged.
pub(crate) const CLUSTER: &str = "life";
/// An image that moto knows.
const IMAGE: &str = "ami-12c6146b";

/// The cloud of this test process.
pub(crate) struct Cloud {
    python: PathBuf,
    /// Ends with the namespaces: a static is never dropped.
    _moto: Process,
    _dir: TempDir,
}

/// A subnet, and the virtual private cloud around it.
pub(crate) struct Subnet {
    id: String,
    vpc: String,
}

/// An instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: String,
    /// Its private DNS name: nodes are found by it.
    pub(crate) name: String,
    pub(crate) address: String,
}

impl Cloud {
    /// The cloud, started by the first call.
    pub(crate) async fn get() -> Result<&'static Self> {
        static CLOUD: OnceCell<Cloud> = OnceCell::const_new();
        CLOUD.get_or_try_init(Self::start).await
    }

    async fn start() -> Result<Self> {
        let (python, dir) = (artifacts::moto().await?, process::temp_dir()?);
        let mut command = Command::new(&python);
        command.args(["-m", "moto.server", "--host", ADDRESS.0, "--port", &ADDRESS.1.to_string()]);
        let moto = Process::spawn("moto", command, &dir.path().join("moto.log"))?;
        let listens = async || Ok(Some(TcpStream::connect(ADDRESS).await.map(drop)?));
        eventually("moto listens", LIMIT, listens).await.with_context(|| moto.log())?;
        Ok(Self { python, _moto: moto, _dir: dir })
    }

    /// The answer to `aws ec2 …`.
    async fn ec2(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.python);
        command.args(["-m", "awscli", "--output=json", "ec2"]).args(arguments);
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}:{}", ADDRESS.0, ADDRESS.1))
            .env("AWS_DEFAULT_REGION", REGION);
        command.env("AWS_ACCESS_KEY_ID", "none").env("AWS_SECRET_ACCESS_KEY", "none");
        let answer = tokio::task::spawn_blocking(move || run(&mut command)).await??;
        if answer.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&answer)?) }
    }

    /// A new subnet with these addresses.
    pub(crate) async fn subnet(&self, addresses: &str) -> Result<Subnet> {
        let created = self.ec2(&["create-vpc", "--cidr-block", addresses]).await?;
        let vpc = text(&created["Vpc"]["VpcId"])?;
        let of_vpc = ["--vpc-id", &vpc, "--cidr-block", addresses, "--availability-zone", ZONE];
        let created = self.ec2(&[&["create-subnet"], &of_vpc[..]].concat()).await?;
        Ok(Subnet { id: text(&created["Subnet"]["SubnetId"])?, vpc })
    }

    /// A new instance of the cluster, with this address.
    pub(crate) async fn run_instance(&self, subnet: &Subnet, address: &str) -> Result<Instance> {
        let tag = format!("ResourceType=instance,Tags=[{{Key=kubernetes.io/cluster/{CLUSTER},Value=owned}}]");
        let of_machine = ["--image-id", IMAGE, "--instance-type", TYPE, "--tag-specifications", &tag];
        let of_network = ["--subnet-id", &subnet.id, "--private-ip-address", address];
        let answer = self.ec2(&[&["run-instances"], &of_machine[..], &of_network[..]].concat()).await?;
        let instance = &answer["Instances"][0];
        let address = text(&instance["PrivateIpAddress"])?;
        Ok(Instance { id: text(&instance["InstanceId"])?, name: text(&instance["PrivateDnsName"])?, address })
    }

    pub(crate) async fn stop(&self, instance: &Instance) -> Result<()> {
        self.ec2(&["stop-instances", "--instance-ids", &instance.id]).await.map(drop)
    }

    pub(crate) async fn terminate(&self, instance: &Instance) -> Result<()> {
        self.ec2(&["terminate-instances", "--instance-ids", &instance.id]).await.map(drop)
    }
}

impl Subnet {
    /// The configuration of a CCM here: what it would otherwise ask the metadata service of its machine.
    pub(crate) fn configuration(&self) -> String {
        let Self { id, vpc } = self;
        format!("[Global]\nZone={ZONE}\nVPC={vpc}\nSubnetID={id}\nKubernetesClusterID={CLUSTER}\n")
    }
}

impl Instance {
    /// What the CCM has to write into its node.
    pub(crate) fn provider_id(&self) -> String {
        format!("aws:///{ZONE}/{}", self.id)
    }

    /// The labels that it has to set, with their values.
    pub(crate) fn labels() -> [(&'static str, &'static str); 3] {
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
