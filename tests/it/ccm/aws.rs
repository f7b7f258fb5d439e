//! Our cloud-controller-manager with the Python driver for AWS, beside AWS's own one: two clusters, and the same instances.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    cases::{SHUTDOWN, UNINITIALIZED, ready},
    cluster::{Cluster, Shown},
    program::{Running, digest, ours},
};
use crate::{
    support::lab::repository,
    support::{
        artifacts,
        moto::{self, Cloud, Instance, Subnet},
        process,
        scrape::free_port,
    },
};

/// The Nodes, by the numbers of their instances.
const RUNNING: usize = 0;
const PUBLIC: usize = 1;
const STOPPED: usize = 2;
const TERMINATED: usize = 3;

/// The label that AWS's own program adds, and that is not in the contract of drivers: the id of the zone.
const ZONE_ID: &str = "topology.k8s.aws/zone-id";

#[tokio::test]
#[ignore = "a minute, with moto: make e2e-all"]
async fn nodes_are_initialized_as_by_the_program_of_aws() -> Result<()> {
    let port = free_port()?;
    let cloud = Cloud::start("127.0.0.1", port).await?;
    let subnet = cloud.subnet("10.0.0.0/16").await?;
    let mut instances = cloud.run_instances(&subnet, &["--count", "4"]).await?;
    instances[PUBLIC] = cloud.run_instances(&subnet, &["--associate-public-ip-address"]).await?.remove(0);
    let (theirs, own) = tokio::try_join!(cluster(&instances), cluster(&instances))?;
    let dir = process::temp_dir()?;
    let theirs_running = start_theirs(&theirs, &subnet, port, dir.path()).await?;
    let own_running = start_ours(&own, port, dir.path()).await?;
    let logs = || format!("{}\n{}", theirs_running.process.log_tail(), own_running.process.log_tail());

    for cluster in [&theirs, &own] {
        for number in [RUNNING, PUBLIC, STOPPED, TERMINATED] {
            let is_initialized = |shown: Option<&Shown>| {
                shown.is_some_and(|shown| !shown.has_taint(UNINITIALIZED) && shown.addresses.len() > 1)
            };
            cluster.until(&instances[number].name, "is initialized", is_initialized).await.with_context(logs)?;
        }
    }
    for number in [RUNNING, PUBLIC, STOPPED, TERMINATED] {
        let name = &instances[number].name;
        let shown = |shown: Option<Shown>| shown.context("the Node");
        let (mut theirs, ours) = (shown(theirs.shown(name).await?)?, shown(own.shown(name).await?)?);
        ensure!(theirs.labels.remove(ZONE_ID).is_some(), "AWS's program no longer adds {ZONE_ID}: {theirs:?}");
        ensure!(theirs == ours, "{name}\n  theirs: {theirs:?}\n  ours:   {ours:?}");
        ensure!(ours.provider_id == instances[number].provider_id(), "{ours:?}");
    }

    cloud.stop(&instances[STOPPED]).await?;
    cloud.terminate(&instances[TERMINATED]).await?;
    for cluster in [&theirs, &own] {
        for number in [STOPPED, TERMINATED] {
            cluster.report(&instances[number].name, 1, Some("Unknown")).await?;
        }
        let is_tainted = |shown: Option<&Shown>| shown.is_some_and(|shown| shown.has_taint(SHUTDOWN));
        cluster.until(&instances[STOPPED].name, "is tainted", is_tainted).await.with_context(logs)?;
        let is_deleted = |shown: Option<&Shown>| shown.is_none();
        cluster.until(&instances[TERMINATED].name, "is deleted", is_deleted).await.with_context(logs)?;
        ensure!(cluster.shown(&instances[RUNNING].name).await?.is_some(), "the Node of a running instance was deleted");
    }
    Ok(())
}

/// A cluster with a Node for each instance, whose kubelet knows its providerID as on AWS's images.
async fn cluster(instances: &[Instance]) -> Result<Cluster> {
    let cluster = Cluster::new().await?;
    for instance in instances {
        cluster.register(&node(instance)).await?;
    }
    Ok(cluster)
}

fn node(instance: &Instance) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": instance.name, "labels": {"kubernetes.io/hostname": instance.name}},
        "spec": {
            "providerID": instance.provider_id(),
            "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [{"type": "Hostname", "address": instance.name}],
            "conditions": [ready("True")],
        },
    })
}

/// The variables of both programs.
fn on_moto(command: &mut Command, port: u16) {
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_REGION", moto::REGION)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ACCESS_KEY_ID", "none")
        .env("AWS_SECRET_ACCESS_KEY", "none");
}

async fn start_theirs(cluster: &Cluster, subnet: &Subnet, port: u16, dir: &Path) -> Result<Running> {
    let config = dir.join("aws.conf");
    fs::write(&config, subnet.configuration())?;
    let mut command = Command::new(artifacts::cloud_controller_managers().await?.join("aws-cloud-controller-manager"));
    command.arg("--cloud-provider=aws").arg(format!("--cloud-config={}", config.display()));
    command.arg("--configure-cloud-routes=false").arg("--webhook-secure-port=0");
    on_moto(&mut command, port);
    Running::start("AWS's", command, &cluster.account("ccm").await?, &dir.join("theirs.log"))
}

async fn start_ours(cluster: &Cluster, port: u16, dir: &Path) -> Result<Running> {
    // The Python of moto has boto3.
    let source = fs::read_to_string(repository().join("examples/drivers/aws/aws.py"))?;
    let (_, rest) = source.split_once('\n').context("no lines")?;
    let driver = dir.join("aws.py");
    fs::write(&driver, format!("#!{} -I\n{rest}", artifacts::moto().await?.display()))?;
    fs::set_permissions(&driver, Permissions::from_mode(0o755))?;
    let mut command = Command::new(ours()?);
    command.arg("--cloud-provider=aws").arg("--node-deletion-guard=false");
    command.arg(format!("--driver={}@sha256:{}", driver.display(), digest(&driver)?));
    command.arg(format!("--driver-folder={}", dir.display()));
    on_moto(&mut command, port);
    Running::start("ours", command, &cluster.account("ccm").await?, &dir.join("ours.log"))
}
