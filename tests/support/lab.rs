//! An OpenShift cluster with the operator in it, for tests, demo and benchmark: a control plane, the objects that an
//! installer leaves, `manifests/`, and the operator as a process that acts as its own `ServiceAccount` with the RBAC of
//! `manifests/` and no other permissions.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    apply::inventory,
    cluster::request,
    object::{KINDS, Kind, PART_OF_LABEL},
    provider::embedded,
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{
    audit::{Mark, Request},
    eventually, kubelet,
    objects::{self, Workloads},
    openshift::{self, Cluster},
    operator::Operator,
    pki,
    pool::{self, Lease as Plane},
};

/// The namespace in which the operator runs.
pub const OWN_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";
/// The namespace that it manages.
pub const NAMESPACE: &str = "openshift-cloud-controller-manager";
/// The operator's `ServiceAccount`.
pub const SERVICE_ACCOUNT: &str = "cluster-cloud-controller-manager";
/// The version of the lab's release.
pub const VERSION: &str = "4.99.0-lab";
/// The ConfigMap that lists where its objects are.
pub const INVENTORY: &str = "ccm-operator-inventory";
/// The operator's Lease.
pub const LEASE: &str = "cluster-cloud-controller-manager-leader";
/// The Lease of its config-sync controllers.
pub const CONFIG_SYNC_LEASE: &str = "cluster-cloud-config-sync-leader";
/// The image for AWS in the images file of a new cluster.
pub const IMAGE: &str = "registry.example/ocp/aws-ccm:lab";
/// The UID of the operator's Pod where a test names no other.
pub const POD_UID: &str = "5a1ec0de-0000-4000-8000-000000000001";
/// The name of its container.
pub const CONTAINER: &str = "operator";
/// The wait limit of everything. No test expects to reach it, so it can be long enough for a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The number of requests of a clean-up that run at once.
const CONCURRENCY: usize = 8;
/// The reason of the condition with which [`Lab::settle`] marks its place.
const SENTINEL: &str = "Sentinel";

/// A cluster for one test.
pub struct Lab {
    pub plane: Plane,
    pub client: Client,
    pub dir: TempDir,
    kubeconfig: PathBuf,
    /// More variables for the operator, such as of a library that is loaded before others.
    pub env: Vec<(String, String)>,
    /// Stopped with the cluster.
    stand_ins: JoinSet<()>,
}

impl Lab {
    /// A cluster without objects of the operator, in which workloads are rolled out at once.
    pub async fn new(cluster: &Cluster) -> Result<Self> {
        let mut lab = Self::without_workloads(cluster).await?;
        lab.finish_workloads();
        Ok(lab)
    }

    /// A lab in which no rollout ends before [`Self::finish_workloads`].
    pub async fn without_workloads(cluster: &Cluster) -> Result<Self> {
        Self::with_payload(cluster, &repository().join("manifests")).await
    }

    /// A lab that is installed from another folder than `manifests/`.
    pub async fn with_payload(cluster: &Cluster, manifests: &Path) -> Result<Self> {
        Self::on(pool::lease().await?, cluster, manifests).await
    }

    /// A lab on this control plane.
    pub async fn on(plane: Plane, cluster: &Cluster, manifests: &Path) -> Result<Self> {
        let client = plane.client()?;
        openshift::install_crds(&client).await?;
        openshift::reset(&client).await?;
        openshift::seed(&client, cluster).await?;
        objects::install_manifests(&client, manifests, Workloads::Skip).await?;
        delete_all(&client).await?;
        let kubeconfig = plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        let lab = Self { plane, client, dir: TempDir::new()?, kubeconfig, env: Vec::new(), stand_ins: JoinSet::new() };
        lab.write_system_bundle(&pki::authority("system")?)?;
        lab.write_images(&json!({"cloudControllerManagerAWS": IMAGE}).to_string())?;
        // The authorizer learns of RBAC a moment after it is written, in a cluster long before the operator starts.
        let own = client_of(&lab.kubeconfig).await?;
        eventually("the operator's RBAC", LIMIT, async || {
            let policies = request::api(&own, kind("ValidatingAdmissionPolicy")?, "");
            policies.list(&ListParams::default()).await.map(drop)?;
            Ok(Some(()))
        })
        .await?;
        Ok(lab)
    }

    /// From now on workloads are rolled out at once.
    pub fn finish_workloads(&mut self) {
        self.stand_in(kubelet::finish_workloads(self.client.clone()));
    }

    /// Runs a stand-in for a part of the cluster until the cluster is dropped.
    pub fn stand_in(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.stand_ins.spawn(work);
    }

    /// The images file of the operators of this cluster.
    pub fn images_file(&self) -> PathBuf {
        self.dir.path().join("images.json")
    }

    /// Replaces the images file as a kubelet does, by a rename.
    pub fn write_images(&self, text: &str) -> Result<()> {
        self.replace_file(&self.images_file(), text)
    }

    /// The file of the certificates that the system trusts.
    pub fn system_bundle(&self) -> PathBuf {
        self.dir.path().join("tls-ca-bundle.pem")
    }

    /// Replaces that file.
    pub fn write_system_bundle(&self, text: &str) -> Result<()> {
        self.replace_file(&self.system_bundle(), text)
    }

    fn replace_file(&self, path: &Path, text: &str) -> Result<()> {
        let new = self.dir.path().join("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, path)?)
    }

    /// The operator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Starts the operator.
    pub fn start(&self) -> Result<Operator> {
        self.start_as(POD_UID, &[])
    }

    /// Starts the operator in a Pod with this UID, with additional arguments.
    pub fn start_as(&self, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        self.start_with(&self.kubeconfig, pod_uid, arguments)
    }

    /// Starts the operator with another kubeconfig, such as that of a [`super::faults::Faults`].
    pub fn start_through(&self, kubeconfig: &Path) -> Result<Operator> {
        self.start_with(kubeconfig, POD_UID, &[])
    }

    /// Starts the operator with all of these.
    pub fn start_with(&self, kubeconfig: &Path, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        let images = format!("--images-json={}", self.images_file().display());
        self.run(kubeconfig, "operator", (pod_uid, CONTAINER), &[&[images.as_str()], arguments].concat())
    }

    /// Starts only the config-sync controllers, in a Pod with this UID.
    pub fn start_config_sync(&self, pod_uid: &str) -> Result<Operator> {
        self.start_config_sync_in(pod_uid, CONTAINER)
    }

    /// Starts config-sync in a container of this name.
    pub fn start_config_sync_in(&self, pod_uid: &str, container: &str) -> Result<Operator> {
        self.run(&self.kubeconfig, "config-sync", (pod_uid, container), &[])
    }

    fn run(
        &self,
        kubeconfig: &Path,
        command: &str,
        (pod_uid, container): (&str, &str),
        arguments: &[&str],
    ) -> Result<Operator> {
        let system_bundle = format!("--system-trust-bundle={}", self.system_bundle().display());
        let mut all = vec![command, &system_bundle];
        if !arguments.iter().any(|argument| argument.starts_with("--health-addr")) {
            all.push("--health-addr=127.0.0.1:0");
        }
        // All operators of the tests are on one host.
        if command == "operator" && !arguments.iter().any(|argument| argument.starts_with("--metrics-bind-address")) {
            all.push("--metrics-bind-address=0");
        }
        all.extend(arguments);
        let mut env = vec![("RELEASE_VERSION", VERSION), ("POD_UID", pod_uid), ("CONTAINER_NAME", container)];
        env.extend(self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        Operator::start(&binary()?, kubeconfig, &all, &env)
    }

    /// The end of the audit log, after every request that has been answered.
    pub async fn mark(&self) -> Result<Mark> {
        self.plane.audit().mark_after(&self.client).await
    }

    /// The operator's requests since the mark.
    pub async fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        self.plane.audit().of_account(&self.client, since, (OWN_NAMESPACE, SERVICE_ACCOUNT)).await
    }

    /// The operator's successful writes since the mark, except writes of its Lease and its Events.
    pub async fn writes(&self, since: Mark) -> Result<Vec<String>> {
        let requests = self.requests(since).await?;
        Ok(requests.iter().filter(|request| request.counts_as_write()).map(describe).collect())
    }

    /// Waits until the operator has handled everything that has happened so far, and returns its requests since the
    /// mark: changes a condition of the `ClusterOperator`, which the operator reports at the end of a pass, and waits
    /// until the operator has changed it back. That write is left out. An operator that reports nothing cannot settle.
    pub async fn settle(&self, operator: &Operator, since: Mark) -> Result<Vec<Request>> {
        // The pass that repairs the first change may have begun before the latest event arrived.
        for _ in 0..2 {
            let mark = self.mark().await?;
            openshift::set_condition(&self.client, "Upgradeable", SENTINEL).await?;
            let repaired = eventually("the operator to repair the ClusterOperator", LIMIT, async || {
                let text = self.cluster_operator().await?["status"].to_string();
                ensure!(!text.contains(SENTINEL), "{text}");
                // The change is visible before its line is in the audit log.
                ensure!(self.requests(mark).await?.iter().any(is_report), "the repair is not in the audit log");
                Ok(Some(()))
            });
            repaired.await.with_context(|| format!("the operator's log:\n{}", operator.log()))?;
        }
        let mut requests = self.requests(since).await?;
        for _ in 0..2 {
            requests.remove(requests.iter().rposition(is_report).context("no repair of the ClusterOperator")?);
        }
        Ok(requests)
    }

    /// Waits like [`Self::settle`], and returns the requests of [`Self::writes`].
    pub async fn settled_writes(&self, operator: &Operator, since: Mark) -> Result<Vec<String>> {
        let requests = self.settle(operator, since).await?;
        Ok(requests.iter().filter(|request| request.counts_as_write()).map(describe).collect())
    }

    /// The live `ClusterOperator`.
    pub async fn cluster_operator(&self) -> Result<Value> {
        let api = cluster_operators(&self.client);
        Ok(serde_json::to_value(api.get("cloud-controller-manager").await?)?)
    }

    /// Waits for these conditions, as `Type=Status`; returns the `ClusterOperator`.
    pub async fn conditions(&self, operator: &Operator, expected: &[&str]) -> Result<Value> {
        let waited = eventually("the conditions", LIMIT, async || {
            let cluster_operator = self.cluster_operator().await?;
            let found = conditions(&cluster_operator);
            ensure!(expected.iter().all(|one| found.iter().any(|other| other == one)), "{found:?}");
            Ok(Some(cluster_operator))
        })
        .await;
        waited.with_context(|| format!("the operator's log:\n{}", operator.log()))
    }

    /// Waits until the operator reports success.
    pub async fn converged(&self, operator: &Operator) -> Result<Value> {
        self.conditions(operator, &["Available=True", "Progressing=False", "Degraded=False", "Upgradeable=True"]).await
    }

    /// Deletes what the operator has created, on any platform, and its Leases and `ClusterOperator`.
    pub async fn delete_all(&self) -> Result<()> {
        openshift::delete_cluster_operator(&self.client).await?;
        delete_all(&self.client).await
    }
}

/// The operator's binary: in tests the one that cargo has built. Demo and benchmark use the release binary, or the one
/// that the variable `OPERATOR` names.
pub fn binary() -> Result<PathBuf> {
    if let Some(built) = option_env!("CARGO_BIN_EXE_ccm-operator") {
        return Ok(built.into());
    }
    let named = std::env::var_os("OPERATOR").map(PathBuf::from);
    let binary = named.unwrap_or_else(|| repository().join("target/release/ccm-operator"));
    ensure!(
        binary.is_file(),
        "the operator's binary {} does not exist: run `cargo build --release`, or set OPERATOR to another binary",
        binary.display()
    );
    Ok(binary)
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The demo is a package of its own.
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).unwrap_or(package)
}

/// A client with the credentials of a kubeconfig.
async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    // The machine's proxy does not lead to the loopback.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

fn kind(name: &str) -> Result<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name).with_context(|| format!("unknown kind {name}"))
}

/// The `ClusterOperator`s.
pub fn cluster_operators(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "clusteroperators"))
}

/// The Leases of the operator's namespace.
pub fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), OWN_NAMESPACE)
}

/// The `ConfigMap`s of a namespace.
pub fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// The conditions of a `ClusterOperator`, as `Type=Status`.
pub fn conditions(cluster_operator: &Value) -> Vec<String> {
    let conditions = cluster_operator["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|condition| format!("{}={}", text(&condition["type"]), text(&condition["status"]))).collect()
}

/// The message of a condition.
pub fn message<'a>(cluster_operator: &'a Value, type_: &str) -> &'a str {
    let conditions = cluster_operator["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let condition = conditions.iter().find(|condition| condition["type"] == type_);
    condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

/// Whether a request writes the status of a `ClusterOperator`.
fn is_report(request: &Request) -> bool {
    request.counts_as_write() && request.resource == "clusteroperators" && request.subresource == "status"
}

/// A request in one line.
pub fn describe(request: &Request) -> String {
    let Request { verb, resource, subresource, name, .. } = request;
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{slash}{subresource} {name}")
}

/// Deletes the objects of every provider, the inventory, the copies of the configuration and the Leases.
async fn delete_all(client: &Client) -> Result<()> {
    for lease in [LEASE, CONFIG_SYNC_LEASE] {
        ignore_absent(leases(client).delete(lease, &DeleteParams::default()).await)?;
    }
    for (namespace, name) in [(OWN_NAMESPACE, INVENTORY), (NAMESPACE, "cloud-conf"), (NAMESPACE, "ccm-trusted-ca")] {
        ignore_absent(config_maps(client, namespace).delete(name, &DeleteParams::default()).await)?;
    }
    let catalog = embedded::catalog()?;
    let of_providers = catalog.providers().flat_map(|provider| &provider.manifests);
    let mut all: Vec<_> =
        of_providers.map(|object| (object.kind(), object.namespace().to_owned(), object.name().to_owned())).collect();
    // An earlier test may have left objects in other namespaces.
    let label = ListParams::default().labels(&format!("{}={}", PART_OF_LABEL, inventory::set_id(OWN_NAMESPACE)));
    for kind in KINDS {
        let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), &request::resource(kind));
        let found = everywhere.list(&label).await?.items.into_iter().map(|object| object.metadata);
        all.extend(found.map(|it| (kind, it.namespace.unwrap_or_default(), it.name.unwrap_or_default())));
    }
    all.sort_by(|one, other| (one.0.kind, &one.1, &one.2).cmp(&(other.0.kind, &other.1, &other.2)));
    all.dedup();
    let deleted = stream::iter(all).map(async |(kind, namespace, name)| {
        ignore_absent(request::api(client, kind, &namespace).delete(&name, &DeleteParams::default()).await)
    });
    deleted.buffer_unordered(CONCURRENCY).try_collect().await
}

/// Accepts that an object does not exist.
pub fn ignore_absent<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
