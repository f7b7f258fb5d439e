//! AWS, as moto plays it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    LONG,
    fixture::{Fixture, node},
    front::{Front, Refusal},
};
use crate::{
    lab::can,
    pod,
    support::{
        eventually,
        moto::{self, Instance, Subnet},
        scrape::free_port,
    },
};

/// In the words of AWS.
const THROTTLED: Refusal =
    Refusal { action: "", status: 503, code: "RequestLimitExceeded", message: "Request limit exceeded." };
const NO_MORE_ROUTES: Refusal = Refusal {
    action: "CreateRoute",
    status: 400,
    code: "RouteLimitExceeded",
    message: "The maximum number of routes has been reached.",
};
const NOT_AUTHORIZED: Refusal = Refusal {
    action: "",
    status: 403,
    code: "UnauthorizedOperation",
    message: "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/nodes/i-0 is not \
              authorized to perform: ec2:DescribeInstances because no identity-based policy allows the ec2:DescribeInstances \
              action",
};

/// The variable with the address of AWS.
const ENDPOINT: &str = "AWS_ENDPOINT_URL";

/// A cluster whose nodes are instances.
pub(super) struct Cloud {
    pub(super) fixture: Fixture,
    pub(super) moto: moto::Cloud,
    /// The port of moto itself.
    port: u16,
    front: Front,
    subnet: Subnet,
    pub(super) instances: Vec<Instance>,
}

impl Cloud {
    /// The cloud of this cluster, with so many instances.
    pub(super) async fn new(mut fixture: Fixture, instances: usize) -> Result<Self> {
        let port = free_port()?;
        let moto = moto::Cloud::start("127.0.0.1", port).await?;
        let (front, subnet) = tokio::try_join!(Front::start(port), moto.subnet("10.0.0.0/16"))?;
        let instances = moto.run_instances(&subnet, &["--count", &instances.to_string()]).await?;
        // What the metadata service of the machine would tell.
        fixture.image.set("AWS_REGION", moto::REGION);
        fixture.image.set("AWS_EC2_METADATA_DISABLED", "true");
        fixture.image.set("AWS_ACCESS_KEY_ID", "none");
        fixture.image.set("AWS_SECRET_ACCESS_KEY", "none");
        fixture.image.set(ENDPOINT, &format!("http://127.0.0.1:{}", front.port));
        Ok(Self { fixture, moto, port, front, subnet, instances })
    }

    /// Creates the `CloudControllerManager`.
    pub(super) async fn create(&self) -> Result<()> {
        self.create_as("aws").await
    }

    /// Creates it for the provider of this name.
    pub(super) async fn create_as(&self, provider: &str) -> Result<()> {
        let config = json!({"inline": self.subnet.configuration()});
        self.fixture.create(json!({"provider": provider, "clusterName": moto::CLUSTER, "cloudConfig": config})).await
    }

    /// Lets the route controller find its route table.
    pub(super) async fn tag_route_table(&self) -> Result<()> {
        let of_vpc = format!("Name=vpc-id,Values={}", self.subnet.vpc);
        let tables = self.moto.aws(&["ec2", "describe-route-tables", "--filters", &of_vpc]).await?;
        let table = tables["RouteTables"][0]["RouteTableId"].as_str().context("a route table")?;
        let tag = format!("Key=kubernetes.io/cluster/{},Value=owned", moto::CLUSTER);
        self.moto.aws(&["ec2", "create-tags", "--resources", table, "--tags", &tag]).await.map(drop)
    }

    /// Gives the machine of the control plane a role in another account.
    pub(super) async fn use_other_account(&mut self) -> Result<()> {
        let role = ["--role-arn=arn:aws:iam::222222222222:role/nodes", "--role-session-name=control-plane"];
        let answer = self.moto.aws(&[&["sts", "assume-role"], &role[..]].concat()).await?;
        for (name, field) in [
            ("AWS_ACCESS_KEY_ID", "AccessKeyId"),
            ("AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
            ("AWS_SESSION_TOKEN", "SessionToken"),
        ] {
            self.fixture.image.set(name, answer["Credentials"][field].as_str().context(field)?);
        }
        Ok(())
    }

    /// Gives it back the role in the account of the instances.
    pub(super) fn use_own_account(&mut self) {
        self.fixture.image.set("AWS_ACCESS_KEY_ID", "none");
        self.fixture.image.set("AWS_SECRET_ACCESS_KEY", "none");
        self.fixture.image.set("AWS_SESSION_TOKEN", "");
    }

    /// Lets moto check who asks, or no longer.
    async fn check_credentials(&self, is_on: bool) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let unchecked = if is_on { "0" } else { "inf" };
        let request = format!(
            "POST /moto-api/reset-auth HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{unchecked}",
            unchecked.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.contains(" 200 "), "{answer}");
        Ok(())
    }

    /// The node of an instance, which waits.
    pub(super) fn node(&self, number: usize) -> Value {
        node(&self.instances[number].name)
    }

    /// Registers it.
    pub(super) async fn register(&self, number: usize) -> Result<String> {
        self.fixture.register(&self.node(number)).await?;
        Ok(self.instances[number].name.clone())
    }
}

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn why_nodes_wait_at_aws() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let mut cloud = Cloud::new(Fixture::new("aws").await?, 6).await?;
    no_node_is_found(&mut cloud).await.context("no node")?;
    one_node_is_not_found(&cloud).await.context("one node")?;
    aws_refuses(&cloud).await.context("AWS refuses")?;
    aws_is_not_reached(&mut cloud).await.context("AWS is not reached")?;
    instances_go(&cloud).await.context("instances go")?;
    there_is_no_route(&mut cloud).await.context("routes")?;
    it_does_not_start(&mut cloud).await.context("it does not start")
}

async fn no_node_is_found(cloud: &mut Cloud) -> Result<()> {
    cloud.create().await?;
    cloud.use_other_account().await?;
    cloud.fixture.roll_out().await?;
    let (first, second) = (cloud.register(0).await?, cloud.register(1).await?);
    cloud.fixture.finds(&first, "N09", "instance not found", "credentials of another account").await?;
    cloud.use_own_account();
    cloud.fixture.restart().await?;
    cloud.fixture.is_cured(&first).await?;
    cloud.fixture.is_cured(&second).await
}

/// The reasons that concern one node, while others are initialized.
async fn one_node_is_not_found(cloud: &Cloud) -> Result<()> {
    let fixture = &cloud.fixture;
    fixture.register(&node("worker-7")).await?;
    fixture.finds("worker-7", "N08", "instance not found", "a node whose name is no private DNS name").await?;
    fixture.remove("worker-7").await?;

    let name = &cloud.instances[2].name;
    let mut other = cloud.node(2);
    other["spec"]["providerID"] = json!("aws:///us-east-1a/i-0123456789abcdef0");
    fixture.register(&other).await?;
    fixture.finds(name, "N08", "", "a providerID of no instance").await?;
    fixture.remove(name).await?;

    other["spec"]["providerID"] = json!("vsphere://42000000-1111-2222-3333-444455556666");
    fixture.register(&other).await?;
    fixture.finds(name, "N12", "vsphere://", "a providerID of another cloud").await?;
    fixture.remove(name).await?;

    let mut node = cloud.node(2);
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "192.0.2.99"});
    fixture.register(&node).await?;
    fixture.finds(name, "N10", "192.0.2.99", "--node-ip with an address that the instance has not").await?;
    fixture.annotate(name, json!({"alpha.kubernetes.io/provided-node-ip": cloud.instances[2].address})).await?;
    fixture.is_cured(name).await
}

async fn aws_refuses(cloud: &Cloud) -> Result<()> {
    let (fixture, known) = (&cloud.fixture, &cloud.instances[2].name);
    cloud.check_credentials(true).await?;
    let name = cloud.register(3).await?;
    fixture.finds(&name, "N07", "AuthFailure", "an access key that AWS does not know").await?;
    fixture.set_ready(known, "Unknown", 120).await?;
    fixture.finds(known, "N20", "AuthFailure", "the same, and a node that is not ready").await?;
    cloud.check_credentials(false).await?;
    fixture.set_ready(known, "True", 0).await?;
    fixture.is_cured(&name).await?;

    for (refusal, reason, how) in [
        (NOT_AUTHORIZED, "N07", "a role without the permission ec2:DescribeInstances"),
        (THROTTLED, "N18", "AWS limits the rate of requests"),
    ] {
        fixture.remove(&name).await?;
        cloud.front.refuse(Some(refusal));
        cloud.register(3).await?;
        fixture.finds(&name, reason, refusal.code, how).await?;
        cloud.front.refuse(None);
        fixture.is_cured(&name).await?;
    }
    Ok(())
}

async fn aws_is_not_reached(cloud: &mut Cloud) -> Result<()> {
    let working = format!("http://127.0.0.1:{}", cloud.front.port);
    let other_server = format!("https://127.0.0.1:{}", cloud.fixture.cluster.plane.port());
    let name = cloud.instances[3].name.clone();
    for (endpoint, evidence, how) in [
        (format!("http://127.0.0.1:{}", free_port()?), "connection refused", "a firewall that refuses"),
        ("http://ec2.us-east-1.invalid".to_owned(), "lookup ec2.us-east-1.invalid", "a name that DNS does not know"),
        (other_server, "x509: certificate signed by unknown authority", "a proxy with a certificate of its own"),
    ] {
        cloud.fixture.remove(&name).await?;
        cloud.fixture.image.set(ENDPOINT, &endpoint);
        cloud.fixture.restart().await?;
        cloud.register(3).await?;
        cloud.fixture.finds(&name, "N06", evidence, how).await?;
    }
    cloud.fixture.image.set(ENDPOINT, &working);
    cloud.fixture.restart().await?;
    cloud.fixture.is_cured(&name).await
}

/// The reasons that concern initialized nodes.
async fn instances_go(cloud: &Cloud) -> Result<()> {
    let (fixture, instance) = (&cloud.fixture, &cloud.instances[3]);
    cloud.moto.stop(instance).await?;
    fixture.set_ready(&instance.name, "Unknown", 120).await?;
    fixture.finds(&instance.name, "N23", "", "the instance is stopped").await?;
    cloud.moto.terminate(instance).await?;
    let how = "the instance is terminated, and nodes may not be deleted";
    fixture.finds(&instance.name, "N22", "is forbidden", how).await?;
    fixture.remove(&instance.name).await
}

async fn there_is_no_route(cloud: &mut Cloud) -> Result<()> {
    cloud.tag_route_table().await?;
    let routes = json!({"controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16"]}});
    cloud.fixture.patch(routes).await?;
    cloud.fixture.roll_out().await?;

    cloud.front.refuse(Some(NO_MORE_ROUTES));
    let mut node = cloud.node(4);
    node["spec"]["podCIDR"] = json!("10.244.4.0/24");
    node["spec"]["podCIDRs"] = json!(["10.244.4.0/24"]);
    cloud.fixture.register(&node).await?;
    let name = cloud.instances[4].name.clone();
    cloud.fixture.finds(&name, "N24", "RouteLimitExceeded", "the route table is full").await?;
    cloud.front.refuse(None);
    eventually("the route", LONG, async || {
        let findings = cloud.fixture.diagnosis(&name).await?["findings"].clone();
        ensure!(findings == json!([]), "{findings:#}");
        Ok(Some(()))
    })
    .await
}

async fn it_does_not_start(cloud: &mut Cloud) -> Result<()> {
    let unnamed = cloud.subnet.configuration().replace(&format!("KubernetesClusterID={}\n", moto::CLUSTER), "");
    cloud.fixture.patch(json!({"cloudConfig": {"inline": unnamed}})).await?;
    cloud.fixture.roll_out_and_crash().await?;
    let name = cloud.register(5).await?;
    let evidence = "Cloud provider could not be initialized";
    cloud.fixture.finds(&name, "N01", evidence, "a configuration without the cluster's id").await?;
    cloud.fixture.patch(json!({"cloudConfig": {"inline": cloud.subnet.configuration()}})).await?;
    cloud.fixture.roll_out().await?;
    cloud.fixture.is_cured(&name).await
}
