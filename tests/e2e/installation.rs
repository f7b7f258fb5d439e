//! The operator on a cluster of real kubelets, installed as docs/installing-with-helm.md does, and the cloud-controller-manager of AWS.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    docker::{docker_at_length, image, operator, run},
    kubeadm::Kubeadm,
    machine::Machine,
    support::{moto::CLUSTER, process},
};

/// Gives the machine of the control plane the images that the plan asks for, under their names: the test's image of the real CCM,
/// and the operator's own.
pub(crate) async fn load_images(plane: &Machine, version: &str) -> Result<()> {
    plane.load("aws", &[&ccm_image("aws", version)?]).await?;
    give(plane, image().await?, &[]).await
}

/// Gives a machine an image of the engine, under these further names.
pub(crate) async fn give(machine: &Machine, image: &str, names: &[&str]) -> Result<()> {
    let dir = process::temp_dir()?;
    let file = dir.path().join("image.tar");
    docker_at_length(&["save", "--output", &file.to_string_lossy(), image]).await?;
    machine.copy(&file, "/root/image.tar").await?;
    machine.import("/root/image.tar", image, names).await
}

/// The image of a provider's CCM that the plan asks for with this version of Kubernetes.
pub(crate) fn ccm_image(provider: &str, version: &str) -> Result<String> {
    let (minor, provider) = (version.trim_start_matches('v'), format!("--provider={provider}"));
    let listed = run(Command::new(operator()?).args(["images", "--kubernetes", minor, &provider, "--output=json"]))?;
    let listed: Value = serde_json::from_str(&listed)?;
    Ok(listed[0]["image"].as_str().context("no image is listed")?.to_owned())
}

/// Installs the operator, and asks it for the CCM of AWS. Returns the commands.
pub(crate) async fn install(cluster: &Kubeadm, configuration: &str) -> Result<Vec<String>> {
    let mut commands = create_namespace(cluster).await?;
    commands.push(helm_install(cluster, &["--set", "providers={aws}"]).await?);
    ask_for(cluster, json!({"provider": "aws", "cloudConfig": {"inline": configuration}})).await?;
    commands.push("kubectl apply --server-side -f ccm.yaml".into());
    Ok(commands)
}

/// Creates the operator's namespace. Returns the commands.
pub(crate) async fn create_namespace(cluster: &Kubeadm) -> Result<Vec<String>> {
    let mut commands = Vec::new();
    let privileged = "pod-security.kubernetes.io/enforce=privileged";
    for arguments in [&["create", "namespace", "ccm-operator"][..], &["label", "namespace", "ccm-operator", privileged]]
    {
        cluster.administer("kubectl", arguments).await?;
        commands.push(format!("kubectl {}", arguments.join(" ")));
    }
    Ok(commands)
}

/// Installs the operator with these further arguments of Helm. Returns the command.
pub(crate) async fn helm_install(cluster: &Kubeadm, further: &[&str]) -> Result<String> {
    let (repository, tag) = image().await?.rsplit_once(':').context("a tag")?;
    // No kube-proxy leads from the Service to the API server.
    let (host, port) = &cluster.api_server;
    let values = format!(
        "distribution=kubeadm,controlPlaneNodes=1,apiServer.host={host},apiServer.port={port},\
         image.repository={repository},image.tag={tag}"
    );
    let own =
        ["install", "ccm-operator", "charts/ccm-operator", "--namespace=ccm-operator", "--wait", "--set", &values];
    let arguments = [&own, further].concat();
    cluster.administer("helm", &arguments).await?;
    Ok(format!("helm {}", arguments.join(" ")))
}

/// Creates a `CloudControllerManager` that has these fields besides the names of the cluster and of its API server.
pub(crate) async fn ask_for(cluster: &Kubeadm, spec: Value) -> Result<()> {
    let (host, port) = &cluster.api_server;
    let mut ccm = json!({
        "apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager", "metadata": {"name": "cluster"},
        "spec": spec,
    });
    ccm["spec"]["clusterName"] = CLUSTER.into();
    ccm["spec"]["placement"] = json!({"apiServer": {"host": host, "port": port}});
    cluster.apply(&ccm.to_string()).await
}

/// The last lines of the operator and of the CCM, as the kubelet keeps them.
pub(crate) async fn ccm_log(plane: &Machine) -> String {
    let tail = "tail -n 30 /var/log/pods/*ccm-operator*/*/*.log /var/log/pods/*cloud-controller-manager*/*/*.log";
    let tail = plane.exec(&["sh", "-c", tail]).await;
    tail.unwrap_or_else(|error| format!("no log of the CCM: {error:#}; the kubelet's:\n{}", plane.log()))
}
