//! A cluster in which the operator runs as the manifests say: a control plane with its controllers, nodes, and a kubelet that
//! starts this program for the Pods of its Deployment. The Go operator is its objects and its lease.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    lab::{LEASE, LIMIT, OWN_NAMESPACE, SERVICE_ACCOUNT, binary, config_maps},
    support::{
        control_plane::{ControlPlane, Options},
        eventually, kubelet, objects,
        openshift::{self, Cluster},
        operator::Operator,
        pki,
        scrape::free_port,
    },
};

/// The image of the Go operator.
pub(super) const GO_IMAGE: &str = "registry.example.com/go-operator";
/// The holder of its lease.
pub(super) const GO_HOLDER: &str = "go-operator";
/// The container of the operator in both Deployments.
const CONTAINER: &str = "cluster-cloud-controller-manager";
/// The label of the operator's Pods.
const SELECTOR: &str = "k8s-app=cloud-manager-operator";
const PERIOD: Duration = Duration::from_millis(100);

/// The cluster; dropping it stops everything.
pub(super) struct Fixture {
    pub(super) client: Client,
    pub(super) plane: Arc<ControlPlane>,
    /// The port of the operator's metrics.
    pub(super) metrics_port: u16,
    stand_ins: JoinSet<()>,
}

impl Fixture {
    /// A cluster on AWS with OpenShift's API and the kinds of these groups, and nothing of an operator.
    pub(super) async fn new(other_kinds: &[(&str, &str, &str)]) -> Result<Self> {
        let plane = Arc::new(ControlPlane::start(Options { controllers: true, ..Options::default() }).await?);
        let client = plane.client()?;
        openshift::install_crds(&client).await?;
        openshift::seed(&client, &Cluster { version: "5.0.0".into(), ..Cluster::default() }).await?;
        for (group, kind, plural) in other_kinds {
            install_crd(&client, group, kind, plural).await?;
        }
        for node in ["master-0", "master-1", "master-2"] {
            kubelet::add_master(&client, node).await?;
        }
        // kube-controller-manager begins its work a while after its start.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        eventually("kube-controller-manager", LIMIT, async || Ok(accounts.get_opt("default").await?.map(drop))).await?;
        let metrics_port = free_port()?;
        let mut fixture = Self { client, plane, metrics_port, stand_ins: JoinSet::new() };
        let kubelet = Kubelet::new(&fixture)?;
        fixture.stand_in(kubelet.run());
        Ok(fixture)
    }

    /// Runs a part of the cluster until the cluster is dropped.
    pub(super) fn stand_in(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.stand_ins.spawn(work);
    }

    /// The holder of the operator's lease.
    pub(super) async fn holder(&self) -> Result<String> {
        let lease = leases(&self.client).get_opt(LEASE).await?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default())
    }
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), OWN_NAMESPACE)
}

/// Installs a kind of another operator, of which only the existence matters here.
async fn install_crd(client: &Client, group: &str, kind: &str, plural: &str) -> Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
        },
    });
    objects::apply(client, crd).await?;
    let path = format!("/apis/{group}/v1/{plural}");
    eventually("the kind is served", LIMIT, async || {
        Ok(Some(client.request_text(http::Request::get(&path).body(Vec::new())?).await.map(drop)?))
    })
    .await
}

/// The kubelet of all nodes, which runs this program in the Pods of its Deployment.
struct Kubelet {
    client: Client,
    plane: Arc<ControlPlane>,
    metrics_port: u16,
    /// The files of the Pods' volumes.
    dir: TempDir,
    /// By the UID of the Pod.
    running: BTreeMap<String, Option<Operator>>,
}

impl Kubelet {
    fn new(fixture: &Fixture) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join("tls-ca-bundle.pem"), pki::authority("system")?)?;
        let (client, plane) = (fixture.client.clone(), Arc::clone(&fixture.plane));
        Ok(Self { client, plane, metrics_port: fixture.metrics_port, dir, running: BTreeMap::new() })
    }

    async fn run(mut self) {
        loop {
            // An error is a conflict, or a namespace that does not exist yet; the next attempt shows which.
            let _ = self.look().await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let everywhere: Api<Pod> = Api::all(self.client.clone());
        for pod in everywhere.list(&ListParams::default()).await? {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            if pod.metadata.deletion_timestamp.is_some() {
                self.stop(&uid).await?;
                api.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            } else if kubelet::is_startable(&pod) {
                if is_operator(&pod) {
                    self.start(&pod, uid).await?;
                }
                let status = json!({"status": kubelet::running(&pod)});
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
            }
        }
        Ok(())
    }

    async fn start(&mut self, pod: &Pod, uid: String) -> Result<()> {
        let containers = &pod.spec.as_ref().context("a specification")?.containers;
        let container = containers.iter().find(|it| it.name == CONTAINER).context("the operator's container")?;
        if container.image.as_deref() == Some(GO_IMAGE) {
            self.hold_lease(GO_HOLDER).await?;
            self.running.insert(uid, None);
            return Ok(());
        }
        ensure!(container.command == Some(vec!["ccm-operator".to_owned()]), "{:?}", container.command);
        let images = config_maps(&self.client, OWN_NAMESPACE).get("cloud-controller-manager-images").await?;
        fs::write(self.dir.path().join("images.json"), &images.data.context("images")?["images.json"])?;
        let arguments = container.args.iter().flatten().filter_map(|argument| self.argument(argument));
        let mut arguments: Vec<_> = arguments.collect();
        arguments.push(format!("--system-trust-bundle={}", self.dir.path().join("tls-ca-bundle.pem").display()));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let variables = container.env.iter().flatten();
        let mut variables: Vec<_> = variables.filter_map(|it| Some((it.name.as_str(), it.value.as_deref()?))).collect();
        variables.extend([("POD_UID", uid.as_str()), ("CONTAINER_NAME", CONTAINER)]);
        let kubeconfig = self.plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        let operator = Operator::start(binary(), &kubeconfig, &arguments, &variables)?;
        self.running.insert(uid, Some(operator));
        Ok(())
    }

    /// An argument with the paths and ports that there are here.
    fn argument(&self, argument: &str) -> Option<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        Some(match argument.split_once('=').unwrap_or((argument, "")) {
            ("--images-json", _) => format!("--images-json={}", file("images.json")),
            ("--api-server-env-file", _) => return None,
            ("--health-addr", _) => "--health-addr=127.0.0.1:0".into(),
            ("--metrics-bind-address", _) => format!("--metrics-bind-address=127.0.0.1:{}", self.metrics_port),
            _ => argument.to_owned(),
        })
    }

    async fn stop(&mut self, uid: &str) -> Result<()> {
        match self.running.remove(uid) {
            Some(Some(operator)) => {
                operator.terminate()?;
                operator.wait(LIMIT).await.map(drop)
            }
            Some(None) => self.hold_lease("").await,
            None => Ok(()),
        }
    }

    /// Writes the lease as the Go operator does: after its end nobody holds it.
    async fn hold_lease(&self, holder: &str) -> Result<()> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": OWN_NAMESPACE},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 137},
        });
        objects::apply(&self.client, lease).await.map(drop)
    }
}

fn is_operator(pod: &Pod) -> bool {
    let (name, value) = SELECTOR.split_once('=').unwrap_or_default();
    pod.labels().get(name).is_some_and(|label| label == value)
}

/// The objects of the manifests of a folder whose names begin so, in their order.
pub(super) fn manifests(folder: &Path, prefix: &str) -> Result<Vec<serde_json::Value>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix));
        if is_named && path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files.iter().map(|file| objects::read_yaml(file)).collect::<Result<Vec<_>>>()?.concat())
}
