//! Reasons why nodes wait that only real kubelets show, found by the command `nodes`.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{api::CLOUD_CONTROLLER_MANAGER, cluster::request};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    cloud,
    docker::{operator, owns_the_engine},
    installation::{ccm_log, install, load_images},
    kubeadm::{Blueprint, Kubeadm},
    support::{
        eventually,
        moto::{CLUSTER, Instance, Subnet},
    },
};

/// The worker's kubelet was started without `--cloud-provider=external`.
const BLUEPRINT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-reasons", addresses: "172.30.206.0/24", workers_wait: false };
/// The wait limit: what may settle by itself counts only after minutes.
const LIMIT: Duration = Duration::from_secs(300);

#[tokio::test]
#[ignore = "minutes: make e2e-all"]
async fn why_nodes_wait_on_kubelets() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let cloud = cloud::get().await?;
    let subnet = cloud.subnet(BLUEPRINT.addresses).await?;
    let [first, second] = ["172.30.206.10", "172.30.206.11"].map(|address| cloud.run_instance(&subnet, address));
    let instances: [Instance; 2] = tokio::try_join!(first, second)?.into();
    let cluster = Box::pin(Kubeadm::start(&BLUEPRINT, &instances, load_images)).await?;
    match Box::pin(find_all(&cluster, &subnet, &instances)).await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(ccm_log(&cluster.machines[0]).await)),
    }
}

async fn find_all(cluster: &Kubeadm, subnet: &Subnet, instances: &[Instance; 2]) -> Result<()> {
    let [plane, worker] = instances.each_ref().map(|instance| instance.name.as_str());
    finds(cluster, plane, "N00", "a kubelet with --cloud-provider=external, and nothing installed").await?;

    let configuration = subnet.configuration();
    let unnamed = configuration.replace(&format!("KubernetesClusterID={CLUSTER}\n"), "");
    install(cluster, &unnamed).await?;
    finds(cluster, plane, "N01", "a configuration without the cluster's id: CrashLoopBackOff").await?;

    let (host, port) = &cluster.api_server;
    let nobody = json!({"apiServer": {"host": host, "port": port + 1}});
    patch(cluster, json!({"cloudConfig": {"inline": configuration}, "placement": nobody})).await?;
    finds(cluster, plane, "N05", "an API server that is not where placement.apiServer says").await?;

    patch(cluster, json!({"placement": {"apiServer": {"host": host, "port": port}}})).await?;
    finds(cluster, plane, "N14", "an initialized node without a pod network").await?;
    finds(cluster, worker, "N15", "a kubelet without --cloud-provider=external").await?;

    cluster.install_pod_network().await?;
    eventually("nothing to be found", LIMIT, async || {
        let findings = findings(cluster, plane).await?;
        ensure!(findings == json!([]), "{findings:#}");
        Ok(Some(()))
    })
    .await
}

async fn patch(cluster: &Kubeadm, spec: Value) -> Result<()> {
    let ccms = request::api(&cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
    ccms.patch("cluster", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
    Ok(())
}

/// Waits until this is the first reason of a node, and shows what was printed.
async fn finds(cluster: &Kubeadm, node: &str, reason: &str, how: &str) -> Result<()> {
    let started = Instant::now();
    let first = eventually(reason, LIMIT, async || {
        let findings = findings(cluster, node).await?;
        ensure!(findings[0]["id"] == reason, "{findings:#}");
        Ok(Some(findings[0].clone()))
    })
    .await?;
    // Past the capture of the test's output.
    writeln!(io::stderr(), "{reason} by {how}, after {} ms: {}", started.elapsed().as_millis(), first["cause"])?;
    Ok(())
}

/// The findings of the command `nodes` about a node.
async fn findings(cluster: &Kubeadm, node: &str) -> Result<Value> {
    let mut command = Command::new(operator()?);
    command.args(["nodes", node, "--output=json"]).env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))?;
    Ok(report["nodes"][0]["findings"].clone())
}
