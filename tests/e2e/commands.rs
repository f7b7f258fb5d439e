//! Every command that a manifest starts in the operator's image, in a container with the permissions that the manifest gives it:
//! it has to do its work.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::provider::embedded;
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::{
    docker::{Container, http_get, image},
    pod,
    support::{
        control_plane::ControlPlane,
        eventually,
        go_operator::{self, api_server_env},
        lab::{LIMIT, Lab, NAMESPACE, VERSION, config_maps, repository},
        objects::read_yaml,
        openshift::Cluster,
    },
};

/// The reference of the operator's image in manifests.
const REFERENCE: &str = "quay.io/openshift/origin-cluster-cloud-controller-manager-operator";
/// Where a Pod finds its ServiceAccount.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The ports of the operator's manifests are the host's: one at a time.
static HOST_PORTS: Mutex<()> = Mutex::const_new(());

/// The containers with the operator's image in `manifests/`, `assets/` and `bootstrap/`, with where they are.
fn containers() -> Result<Vec<(String, PodSpec, Spec)>> {
    let mut objects = Vec::new();
    for entry in repository().join("manifests").read_dir()? {
        objects.extend(read_yaml(&entry?.path())?.into_iter().map(|object| ("manifests".to_owned(), object)));
    }
    for provider in embedded::catalog()?.providers() {
        let all = provider.manifests.iter().chain(&provider.bootstrap_manifests);
        objects.extend(all.map(|object| (provider.name().to_owned(), object.value().clone())));
    }
    let mut found = Vec::new();
    for (place, object) in objects {
        let pod = if object["kind"] == "Pod" { object.pointer("/spec") } else { object.pointer("/spec/template/spec") };
        let Some(pod) = pod else { continue };
        let spec: PodSpec = serde_json::from_value(pod.clone())?;
        let of_pod = spec.init_containers.iter().flatten().chain(&spec.containers);
        for container in of_pod.filter(|container| container.image.as_deref() == Some(REFERENCE)) {
            let name = format!("{place}: {} {}", object["kind"], container.name);
            found.push((name, spec.clone(), container.clone()));
        }
    }
    Ok(found)
}

#[tokio::test]
async fn every_command_of_the_manifests_does_its_work() -> Result<()> {
    let containers = containers()?;
    for (name, spec, container) in &containers {
        let command = container.command.clone().unwrap_or_default();
        match command.first().map(String::as_str) {
            Some("ccm-operator") => operator_converges(spec, container).await,
            Some("/azure-config-credentials-injector") => credentials_are_injected(spec, container).await,
            _ => bail!("{name}: {command:?}: nothing tests this command"),
        }
        .with_context(|| name.clone())?;
    }
    // The Deployment of the operator; a Deployment and a DaemonSet each of Azure and Azure Stack Hub.
    ensure!(containers.len() >= 5, "{} commands", containers.len());
    Ok(())
}

/// The folders of a Pod on this host.
struct Volumes(TempDir);

impl Volumes {
    fn new() -> Result<Self> {
        let volumes = Self(TempDir::new()?);
        for folder in ["empty", "tmp"] {
            fs::create_dir(volumes.path(folder))?;
            fs::set_permissions(volumes.path(folder), Permissions::from_mode(0o777))?;
        }
        Ok(volumes)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A folder with files, as of a ConfigMap.
    fn folder(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        fs::create_dir(self.path(name))?;
        for (file, text) in files {
            fs::write(self.path(name).join(file), text)?;
        }
        Ok(self.path(name))
    }
}

/// What the cluster gives to each Pod of the operator: its ServiceAccount, and the address of the API server, which answers
/// only once there is a pod network. Returns the folder of `/etc/kubernetes` and the arguments of `docker run`.
fn cluster(lab: &Lab, volumes: &Volumes) -> Result<(PathBuf, Vec<String>)> {
    let kubeconfig: Value = serde_json::from_slice(&fs::read(lab.kubeconfig())?)?;
    let token = kubeconfig["users"][0]["user"]["token"].as_str().context("the kubeconfig has no token")?;
    let plane: &ControlPlane = &lab.plane;
    let ca = fs::read_to_string(plane.dir().join("ca.crt"))?;
    let files = [("token", token), ("ca.crt", &ca), ("namespace", crate::support::lab::OWN_NAMESPACE)];
    let account = volumes.folder("account", &files)?;
    let kubernetes = volumes.folder("kubernetes", &[("apiserver-url.env", &api_server_env(plane.port()))])?;
    let arguments = vec![
        format!("--volume={}:{SERVICE_ACCOUNT}:ro", account.display()),
        "--env=KUBERNETES_SERVICE_HOST=10.0.0.1".into(),
        "--env=KUBERNETES_SERVICE_PORT=443".into(),
    ];
    Ok((kubernetes, arguments))
}

/// The images file of the cluster, as a folder.
fn images(lab: &Lab, volumes: &Volumes) -> Result<PathBuf> {
    volumes.folder("images", &[("images.json", &fs::read_to_string(lab.images_file())?)])
}

/// The operator's Deployment installs the cloud-controller-manager, is alive and ready, and ends when it is asked to.
async fn operator_converges(spec: &PodSpec, container: &Spec) -> Result<()> {
    let _ports = HOST_PORTS.lock().await;
    let lab = Lab::new(&Cluster::default()).await?;
    let volumes = Volumes::new()?;
    let (kubernetes, mut arguments) = cluster(&lab, &volumes)?;
    let images = images(&lab, &volumes)?;
    let api_server = kubernetes.join("apiserver-url.env");
    let mut container = container.clone();
    // As release tooling does.
    for variable in container.env.iter_mut().flatten().filter(|variable| variable.name == "RELEASE_VERSION") {
        variable.value = Some(VERSION.into());
    }
    let of_pod = [
        ("images", images.as_path()),
        ("api-server", &api_server),
        ("tmp", &volumes.path("tmp")),
        ("metrics-certificate", &volumes.path("empty")),
    ];
    arguments.extend(pod::arguments(image().await?, spec, &container, &of_pod)?);
    let operator = Container::run(&arguments)?;
    lab.converged(&operator.client).await?;
    let age = operator.age().await?.as_millis();
    writeln!(io::stderr(), "start to converged in a container: {age} ms")?;
    http_get(9259, "/healthz").await?;
    eventually("ready", LIMIT, async || http_get(9259, "/readyz").await.map(Some)).await?;
    has_synced_the_images_certificates(&lab).await?;
    operator.client.terminate()?;
    operator.succeeded().await
}

/// The certificates that the image trusts are the cluster's, too.
async fn has_synced_the_images_certificates(lab: &Lab) -> Result<()> {
    eventually("the trusted certificates", LIMIT, async || {
        let synced = config_maps(&lab.client, NAMESPACE).get("ccm-trusted-ca").await?.data.unwrap_or_default();
        let bundle = synced.get("ca-bundle.crt").context("no ca-bundle.crt")?;
        let certificates = bundle.matches("-----BEGIN CERTIFICATE-----").count();
        ensure!(certificates > 50, "{certificates} certificates");
        Ok(Some(()))
    })
    .await
}

/// The init container writes the configuration with the credentials, readable by the Pod's other containers.
async fn credentials_are_injected(spec: &PodSpec, container: &Spec) -> Result<()> {
    let volumes = Volumes::new()?;
    let config = json!({"cloud": "AzurePublicCloud", "useManagedIdentityExtension": true}).to_string();
    let config = volumes.folder("config", &[("cloud.conf", &config)])?;
    let secret = [("azure_client_id", "the-id"), ("azure_client_secret", "the-secret")];
    let credentials = volumes.folder("credentials", &secret)?;
    let merged = volumes.path("empty");
    let of_pod = [
        ("cloud-config", config.as_path()),
        ("cloud-credentials", &credentials),
        ("merged-cloud-config", &merged),
        ("tmp", &volumes.path("tmp")),
    ];
    Container::run(&pod::arguments(image().await?, spec, container, &of_pod)?)?.succeeded().await?;
    let written: Value = serde_json::from_slice(&fs::read(merged.join("cloud.conf"))?)?;
    assert_eq!(written["aadClientId"], "the-id");
    assert_eq!(written["aadClientSecret"], "the-secret");
    let metadata = fs::metadata(merged.join("cloud.conf"))?;
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (65532, 0o640));
    Ok(())
}

#[tokio::test]
async fn the_go_operators_deployment_converges() -> Result<()> {
    let _ports = HOST_PORTS.lock().await;
    let lab = Lab::new(&Cluster::default()).await?;
    let volumes = Volumes::new()?;
    let (kubernetes, in_cluster) = cluster(&lab, &volumes)?;
    let images = images(&lab, &volumes)?;
    let mount = |from: &Path, to: &str| format!("--volume={}:{to}:ro", from.display());
    let of_operator = [
        mount(&images, "/etc/cloud-controller-manager-config/"),
        mount(&volumes.path("empty"), "/tmp/k8s-metrics-server/serving-certs"),
        mount(&volumes.path("empty"), "/tmp/k8s-webhook-server/serving-certs"),
    ];
    let image = image().await?;
    let start = |container: &go_operator::Container, mounts: &[String]| {
        let mut arguments = in_cluster.clone();
        arguments.extend_from_slice(mounts);
        arguments.extend([
            "--network=host".into(),
            format!("--env=RELEASE_VERSION={VERSION}"),
            mount(&kubernetes, "/etc/kubernetes"),
            "--entrypoint=/bin/bash".into(),
            image.to_owned(),
            "-c".into(),
            container.script("", &[]),
        ]);
        Container::run(&arguments)
    };
    let config_sync = start(&go_operator::CONFIG_SYNC, &[])?;
    let operator = start(&go_operator::OPERATOR, &of_operator)?;
    lab.converged(&operator.client).await.with_context(|| config_sync.client.log())?;
    for port in [9259, 9260] {
        http_get(port, "/healthz").await?;
    }
    has_synced_the_images_certificates(&lab).await?;
    for container in [operator, config_sync] {
        container.client.terminate()?;
        let status = container.client.wait(Duration::from_secs(30)).await?;
        ensure!(status.success(), "{status}: {}", container.client.log());
    }
    Ok(())
}
