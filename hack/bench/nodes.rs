//! Measures what nodes cost: five thousand of them, as large as real ones, whose kubelets report every five minutes.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use crate::{
    measure::LIMIT,
    progress,
    support::{eventually, kubernetes::Kubernetes, lab::binary},
};

/// How many nodes there are.
pub const COUNT: usize = 5000;
/// How many are created at once.
const CONCURRENCY: usize = 16;
/// How often a kubelet reports that nothing has changed.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// How many nodes of these wait for their initialization at the end.
const WAITING: usize = 100;
/// How long the operator runs before its memory counts.
const SETTLE: Duration = Duration::from_secs(3);

/// The figures.
pub struct Nodes {
    /// Resident memory of the operator without these nodes.
    pub rss_without_kib: u64,
    /// The same with them, after a start.
    pub rss_with_kib: u64,
    /// The same after the heartbeats.
    pub rss_idle_kib: u64,
    /// Processor time of the start with them.
    pub start_cpu_seconds: f64,
    /// Processor time for each minute of heartbeats, and the requests of it.
    pub idle_cpu_seconds: f64,
    pub idle_requests: f64,
    /// How long `ccm-operator nodes` takes, of which 100 wait, and its largest resident memory.
    pub diagnosis: Duration,
    pub diagnosis_rss_kib: u64,
    /// Resident memory of the operator after its own diagnosis.
    pub rss_diagnosed_kib: u64,
}

/// Measures an operator without and with the nodes, for so many seconds of heartbeats.
pub async fn measure(idle_seconds: u32) -> Result<Nodes> {
    progress("starting a control plane for nodes");
    let cluster = Kubernetes::new("aws").await?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let initialized = Patch::Merge(json!({"spec": {"providerID": "aws:///eu-west-1a/i-0"}}));
    nodes.patch("control-plane", &PatchParams::default(), &initialized).await?;
    let start = async |total: usize| {
        let operator = cluster.start()?;
        eventually("the count of the nodes", LIMIT, async || {
            let live = cluster.ccms().get("cluster").await?;
            let counted = &live.data["status"]["nodes"]["total"];
            ensure!(*counted == total, "{counted} of {total}:\n{}", operator.log());
            Ok(Some(()))
        })
        .await?;
        sleep(SETTLE).await;
        anyhow::Ok(operator)
    };
    let operator = start(1).await?;
    let rss_without_kib = operator.rss_kib();
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    progress(&format!("creating {COUNT} nodes"));
    let create = |number: usize| {
        let nodes = nodes.clone();
        async move {
            let node = serde_json::from_value(node(number))?;
            nodes.create(&PostParams::default(), &node).await?;
            nodes.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(status(number))).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..COUNT).map(create).buffer_unordered(CONCURRENCY).try_collect::<Vec<_>>().await?;

    progress(&format!("{COUNT} nodes, {idle_seconds} s of heartbeats"));
    let operator = start(COUNT + 1).await?;
    let (rss_with_kib, start_cpu_seconds) = (operator.rss_kib(), operator.cpu_seconds());
    let mark = cluster.mark().await?;
    let (began, mut number) = (Instant::now(), 0);
    let mut ticks = interval(HEARTBEAT / u32::try_from(COUNT)?);
    while began.elapsed() < Duration::from_secs(idle_seconds.into()) {
        ticks.tick().await;
        nodes.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(heartbeat())).await?;
        number = (number + 1) % COUNT;
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let idle_cpu_seconds = (operator.cpu_seconds() - start_cpu_seconds) / minutes;
    let rss_idle_kib = operator.rss_kib();
    let requests = cluster.requests(mark).await?.into_iter().filter(|request| !request.is_lease()).count();
    let idle_requests = f64::from(u32::try_from(requests)?) / minutes;

    progress(&format!("{COUNT} nodes, of which {WAITING} wait"));
    for number in 0..WAITING {
        nodes.delete(&name(number), &DeleteParams::default()).await?;
        let mut node = node(number);
        node["spec"] =
            json!({"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        nodes.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(status(number))).await?;
    }
    let (diagnosis, diagnosis_rss_kib) = diagnose(&cluster).await?;
    eventually("the operator's diagnosis", Duration::from_secs(180), async || {
        let live = cluster.ccms().get("cluster").await?;
        let stuck = live.data["status"]["nodes"]["waiting"].as_array().map_or(0, Vec::len);
        Ok((stuck > 0).then_some(()))
    })
    .await?;
    let rss_diagnosed_kib = operator.rss_kib();
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    Ok(Nodes {
        rss_without_kib,
        rss_with_kib,
        rss_idle_kib,
        start_cpu_seconds,
        idle_cpu_seconds,
        idle_requests,
        diagnosis,
        diagnosis_rss_kib,
        rss_diagnosed_kib,
    })
}

/// The time that the command takes, and its largest resident memory.
async fn diagnose(cluster: &Kubernetes) -> Result<(Duration, u64)> {
    let started = Instant::now();
    let mut command = Command::new(binary()?);
    command.args(["nodes", "--kubeconfig"]).arg(cluster.plane.kubeconfig_admin()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut largest = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        largest = peak.unwrap_or(largest);
        sleep(Duration::from_millis(2)).await;
    };
    ensure!(ended.code() == Some(1), "ccm-operator nodes: {ended}");
    Ok((started.elapsed(), largest))
}

fn name(number: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", number / 62_500, number / 250 % 250, number % 250)
}

/// A node as the kubelet and the cloud-controller-manager leave it.
fn node(number: usize) -> Value {
    let labels: Value = [
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "m5.xlarge"),
        ("topology.kubernetes.io/region", "eu-west-1"),
        ("topology.kubernetes.io/zone", "eu-west-1a"),
        ("example.com/pool", "workers"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), Value::from(value)))
    .collect::<serde_json::Map<_, _>>()
    .into();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name(number), "labels": labels,
            "annotations": {"alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"providerID": format!("aws:///eu-west-1a/i-{number:017x}"), "podCIDR": format!("10.{}.{}.0/24", number / 250, number % 250)},
    })
}

/// What its kubelet reports: conditions, the machine, and the images.
fn status(number: usize) -> Value {
    let image = |image: usize| {
        let name = format!("registry.example.com/team-{}/application-{image}", image % 7);
        json!({"names": [format!("{name}@sha256:{image:064x}"), format!("{name}:v1.{image}.0")], "sizeBytes": 1_000_000 * image})
    };
    let mut status = heartbeat();
    status["status"]["images"] = (0..50).map(image).collect();
    status["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": format!("10.{}.{}.{}", number / 62_500, number / 250 % 250, number % 250)},
        {"type": "Hostname", "address": name(number)},
        {"type": "InternalDNS", "address": name(number)},
    ]);
    status["status"]["nodeInfo"] = json!({
        "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"), "bootID": format!("{number:032x}"),
        "kernelVersion": "6.1.0", "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": "v1.35.4", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
    });
    status
}

/// What changes with each report.
fn heartbeat() -> Value {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet reports {reason}"),
            "lastHeartbeatTime": Timestamp::now().to_string(), "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"status": {"conditions": [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
    ]}})
}
