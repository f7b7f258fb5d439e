//! The bootstrap VM of OpenShift: what `render` writes for AWS runs in the manifest folder of a real kubelet, which belongs to no
//! cluster yet, and sets up the first node.

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cloud,
    docker::{http_get, operator, owns_the_engine, run},
    life::is_initialized,
    machine::Machine,
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        lab::LIMIT,
        moto::Subnet,
        objects, pki,
        process::temp_dir,
    },
};

/// The image of the CCM in the release that is being installed.
const IMAGE: &str = "registry.example/release/aws-cloud-controller-manager:4.99";
/// Where the kubelet lists its pods.
const KUBELET_PORT: u16 = 10255;

#[tokio::test]
async fn the_static_pod_runs_and_sets_a_node_up() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let cloud = cloud::get().await?;
    let subnet = cloud.subnet("172.30.205.0/24").await?;
    let (instance, plane) =
        tokio::try_join!(cloud.run_instance(&subnet, "172.30.205.10"), ControlPlane::start(Options::default()))?;
    let client = plane.client()?;
    let taint =
        json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
    objects::apply(
        &client,
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": instance.name}, "spec": {"taints": [taint]},
        }),
    )
    .await?;

    // On the network of the control plane, as is the bootstrap VM.
    let machine = Machine::start("bootstrap", &["--network=host"]).await?;
    machine.load("aws", &[IMAGE]).await?;
    let rendered = render(&subnet)?;
    install(&machine, &plane, &rendered).await?;
    let nodes: Api<Node> = Api::all(client);
    let set_up = eventually("the node is set up", LIMIT, async || {
        is_initialized(&nodes.get(&instance.name).await?, &instance).map(Some)
    });
    set_up.await.with_context(|| machine.log())?;
    eventually("the static pod is ready", LIMIT, async || is_ready().await.map(Some)).await
}

/// Renders the files of the bootstrap VM.
fn render(subnet: &Subnet) -> Result<TempDir> {
    let dir = temp_dir()?;
    let images = json!({"cloudControllerManagerAWS": IMAGE}).to_string();
    let files = [
        (
            "cluster-infrastructure",
            json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
                "spec": {"cloudConfig": {"name": "cloud-provider-config", "key": "config"}},
                "status": {"infrastructureName": "lab", "platformStatus": {"type": "AWS", "aws": {"region": "us-east-1"}}},
            }),
        ),
        ("images", config_map("cloud-controller-manager-images", "images.json", &images)),
        ("cloud-config", config_map("cloud-provider-config", "config", &subnet.configuration())),
    ];
    let mut command = Command::new(operator()?);
    command.args(["render", "--dest-dir"]).arg(dir.path().join("rendered"));
    for (name, object) in files {
        let file = dir.path().join(name);
        fs::write(&file, object.to_string())?;
        command.arg(format!("--{name}-file")).arg(file);
    }
    run(&mut command)?;
    Ok(dir)
}

fn config_map(name: &str, key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: value}})
}

/// Does what the installer's script does with it: the pod to the kubelet, its files to where it looks for them.
async fn install(machine: &Machine, plane: &ControlPlane, rendered: &TempDir) -> Result<()> {
    let dir = rendered.path().join("rendered");
    let secrets = "/etc/kubernetes/bootstrap-secrets";
    let ca = fs::read_to_string(plane.dir().join(pki::CA_CERT))?;
    machine.write(&format!("{secrets}/{}", pki::CA_CERT), &ca).await?;
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(plane.kubeconfig_admin())?)?;
    // Relative to the kubeconfig.
    kubeconfig["clusters"][0]["cluster"]["certificate-authority"] = json!(pki::CA_CERT);
    machine.write(&format!("{secrets}/kubeconfig"), &kubeconfig.to_string()).await?;
    for (from, to) in [("config", "/etc/kubernetes/bootstrap-configs"), ("bootstrap", "/etc/kubernetes/manifests")] {
        for entry in dir.join(from).read_dir().with_context(|| format!("nothing was rendered to {from}"))? {
            let entry = entry?;
            let name = entry.file_name();
            machine.write(&format!("{to}/{}", name.to_string_lossy()), &fs::read_to_string(entry.path())?).await?;
        }
    }
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "staticPodPath": "/etc/kubernetes/manifests",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": "127.0.0.1", "readOnlyPort": KUBELET_PORT,
    });
    machine.write("/var/lib/kubelet/config.yaml", &kubelet.to_string()).await?;
    machine.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\n").await
}

/// Succeeds if the kubelet has a single pod, the CCM, whose probes have succeeded without a restart.
async fn is_ready() -> Result<()> {
    let answer = http_get(KUBELET_PORT, "/pods").await?;
    let pods: Value = serde_json::from_str(&answer)?;
    let pods = pods["items"].as_array().context("no pods")?;
    ensure!(pods.len() == 1, "{} pods", pods.len());
    let status = &pods[0]["status"]["containerStatuses"][0];
    ensure!(status["ready"] == true && status["restartCount"] == 0, "{status}");
    Ok(())
}
