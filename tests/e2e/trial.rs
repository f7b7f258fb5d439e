//! `provider test` with real kubelets: the pod of a provider's folder runs, and nothing stays behind.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cluster::request,
    object::{KINDS, NAMESPACE},
    plan::kubernetes::trial::LABEL,
    text::yaml,
};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::{
    kubeadm::Kubeadm,
    story::Story,
    support::{lab::repository, process},
};

/// Tries out the manifests of AWS under another name.
pub(crate) async fn of_a_folder(story: &Story, cluster: &Kubeadm, configuration: &str) -> Result<()> {
    let dir = process::temp_dir()?;
    let (folder, file) = (dir.path().join("acme"), dir.path().join("cloud.conf"));
    let own = folder.join("assets/kubernetes");
    fs::create_dir_all(&own)?;
    for entry in repository().join("assets/aws/kubernetes").read_dir()? {
        let entry = entry?;
        let text =
            fs::read_to_string(entry.path())?.replace("name: aws", "name: acme").replace("aws-cloud-", "acme-cloud-");
        // The image is still that of AWS.
        fs::write(own.join(entry.file_name()), text.replace("/bin/acme-", "/bin/aws-"))?;
    }
    fs::write(&file, configuration)?;
    // The image is made here, so nobody knows its digest.
    let policy = dir.path().join("policy.yaml");
    fs::write(&policy, format!("acme: {{external-image-digest: {}}}\n", json!(images(&own)?)))?;
    let (host, port) = &cluster.api_server;
    let arguments = [
        "provider",
        "test",
        &folder.to_string_lossy(),
        &format!("--cloud-config={}", file.display()),
        &format!("--api-server={host}:{port}"),
        &format!("--provider-policy={}", policy.display()),
        "--output=json",
    ];
    let tried = Instant::now();
    let report = story.step("its pod is ready", cluster.administer("ccm-operator", &arguments)).await?;
    story.command(
        "ccm-operator provider test ./acme --cloud-config=cloud.conf --api-server=HOST:PORT --provider-policy=policy.yaml",
    )?;
    story.figure(tried.elapsed(), "until its pod was ready, and all of it removed")?;
    let report: Value = serde_json::from_str(&report)?;
    ensure!(report["ready"] == true && report["left"].as_array().is_none_or(Vec::is_empty), "{report:#}");
    for kind in KINDS.iter().chain([&NAMESPACE]) {
        let all: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &request::resource(kind));
        let left = all.list(&ListParams::default().labels(LABEL)).await?.items;
        ensure!(left.is_empty(), "a {} is left: {}", kind.kind, json!(left));
    }
    Ok(())
}

/// The images of a folder for any Kubernetes, each as `REPOSITORY:TAG`.
fn images(folder: &Path) -> Result<Vec<String>> {
    let descriptor: Value = yaml::from_str(&fs::read_to_string(folder.join("provider.yaml"))?)?;
    let image = &descriptor["images"]["cloud-controller-manager"];
    let tags = image["versions"]["tags"].as_object().context("no tags")?;
    let name = |tag: &Value| Some(format!("{}:{}", image["repository"].as_str()?, tag.as_str()?));
    tags.values().map(|tag| name(tag).context("a tag with a digest")).collect()
}
