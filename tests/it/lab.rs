//! The set-up of the tests that run the operator: an OpenShift cluster on a real control plane, with the operator as a
//! process that acts as its own `ServiceAccount` with the RBAC of `manifests/` and no more.

use std::{fs, ops::Deref, path::Path, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_operator::apply::inventory;
use ccm_operator::cluster::request;
use ccm_operator::{
    object::{KINDS, Object},
    provider::embedded,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::MutexGuard, task::JoinHandle};

use crate::support::{
    audit::{self, Mark, Request},
    control_plane::{self, ControlPlane, Options},
    eventually, kubelet, objects,
    objects::Workloads,
    openshift::{self, Cluster},
    operator::Operator,
    pki,
};

/// Where the operator runs.
pub(crate) const OWN_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";
/// What it manages.
pub(crate) const NAMESPACE: &str = "openshift-cloud-controller-manager";
/// The `ServiceAccount` that it runs as.
pub(crate) const SERVICE_ACCOUNT: &str = "cluster-cloud-controller-manager";
/// The version that it brings.
pub(crate) const VERSION: &str = "4.99.0-lab";
/// The ConfigMap that says where its objects are.
pub(crate) const INVENTORY: &str = "ccm-operator-inventory";
/// Its lease.
pub(crate) const LEASE: &str = "cluster-cloud-controller-manager-leader";
/// The lease of its config-sync controllers.
pub(crate) const CONFIG_SYNC_LEASE: &str = "cluster-cloud-config-sync-leader";
/// The field manager that the Go operator's requests have.
pub(crate) const PREDECESSOR: &str = "cluster-controller-manager-operator";
/// The image that the cluster's images file gives for AWS.
pub(crate) const IMAGE: &str = "registry.example/ocp/aws-ccm:lab";
/// How long anything may take before a test gives up: long, because machines are slow at times.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Where a test's cluster is.
pub(crate) enum Plane {
    /// On the control plane of all tests, while nobody else uses it.
    Shared(&'static ControlPlane),
    /// On one of its own.
    Own(ControlPlane),
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        match self {
            Self::Shared(plane) => plane,
            Self::Own(plane) => plane,
        }
    }
}

/// A cluster that one test has for itself.
pub(crate) struct Lab {
    pub(crate) plane: Plane,
    pub(crate) client: Client,
    pub(crate) dir: TempDir,
    kubeconfig: PathBuf,
    workloads: Option<JoinHandle<Result<()>>>,
    _exclusive: Option<MutexGuard<'static, ()>>,
}

impl Lab {
    /// A cluster without anything of the operator's, whose workloads are rolled out at once.
    pub(crate) async fn new(cluster: &Cluster) -> Result<Self> {
        let mut lab = Self::without_workloads(cluster).await?;
        lab.finish_workloads();
        Ok(lab)
    }

    /// The same, but nothing is rolled out until [`Self::finish_workloads`].
    pub(crate) async fn without_workloads(cluster: &Cluster) -> Result<Self> {
        Self::with_payload(cluster, &repository().join("manifests")).await
    }

    /// The same, installed from another folder than `manifests/`.
    pub(crate) async fn with_payload(cluster: &Cluster, manifests: &Path) -> Result<Self> {
        let plane = Plane::Shared(control_plane::shared().await?);
        let exclusive = control_plane::exclusive().await;
        Self::on(plane, Some(exclusive), cluster, manifests).await
    }

    /// As [`Self::new`], on a control plane of its own: for a test that takes long, so that the others go on beside it.
    pub(crate) async fn alone(cluster: &Cluster) -> Result<Self> {
        let plane = Plane::Own(ControlPlane::start(Options::default()).await?);
        let mut lab = Self::on(plane, None, cluster, &repository().join("manifests")).await?;
        lab.finish_workloads();
        Ok(lab)
    }

    async fn on(
        plane: Plane,
        exclusive: Option<MutexGuard<'static, ()>>,
        cluster: &Cluster,
        manifests: &Path,
    ) -> Result<Self> {
        let client = plane.client()?;
        openshift::install_crds(&client).await?;
        openshift::reset(&client).await?;
        openshift::seed(&client, cluster).await?;
        objects::install_manifests(&client, manifests, Workloads::Skip).await?;
        delete_all(&client).await?;
        for lease in [LEASE, CONFIG_SYNC_LEASE] {
            ignore_absent(leases(&client).delete(lease, &DeleteParams::default()).await)?;
        }
        let kubeconfig = plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        let lab = Self { plane, client, dir: TempDir::new()?, kubeconfig, workloads: None, _exclusive: exclusive };
        lab.write_system_bundle(&pki::authority("system")?)?;
        lab.write_images(&json!({"cloudControllerManagerAWS": IMAGE}).to_string())?;
        // RBAC reaches the authorizer a moment after it is written; a cluster's operator starts long after.
        let own = client_of(&lab.kubeconfig).await?;
        eventually("the operator's RBAC", LIMIT, async || {
            let policies = request::api(&own, aws_manifest("ValidatingAdmissionPolicy").kind(), "");
            policies.list(&ListParams::default()).await?;
            Ok(Some(()))
        })
        .await?;
        Ok(lab)
    }

    /// From now on every workload is rolled out at once.
    pub(crate) fn finish_workloads(&mut self) {
        self.workloads = Some(tokio::spawn(kubelet::finish_workloads(self.client.clone())));
    }

    /// The images file of the operators of this cluster.
    pub(crate) fn images_file(&self) -> PathBuf {
        self.dir.path().join("images.json")
    }

    /// Replaces the images file as a kubelet does: by a rename.
    pub(crate) fn write_images(&self, text: &str) -> Result<()> {
        self.replace_file(&self.images_file(), text)
    }

    /// The file of the certificates that the system trusts.
    pub(crate) fn system_bundle(&self) -> PathBuf {
        self.dir.path().join("tls-ca-bundle.pem")
    }

    /// Replaces it.
    pub(crate) fn write_system_bundle(&self, text: &str) -> Result<()> {
        self.replace_file(&self.system_bundle(), text)
    }

    fn replace_file(&self, path: &Path, text: &str) -> Result<()> {
        let new = self.dir.path().join("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, path)?)
    }

    /// Starts the operator.
    pub(crate) fn start(&self) -> Result<Operator> {
        self.start_as("5a1ec0de-0000-4000-8000-000000000001", &[])
    }

    /// Starts the operator in a Pod of this UID, with more arguments.
    pub(crate) fn start_as(&self, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        let images = format!("--images-json={}", self.images_file().display());
        self.run("operator", pod_uid, &[&[images.as_str()], arguments].concat())
    }

    /// Starts the config-sync controllers alone, in a Pod of this UID.
    pub(crate) fn start_config_sync(&self, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        self.run("config-sync", pod_uid, arguments)
    }

    fn run(&self, command: &str, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        self.run_with(&self.kubeconfig, command, pod_uid, arguments)
    }

    fn run_with(&self, kubeconfig: &Path, command: &str, pod_uid: &str, arguments: &[&str]) -> Result<Operator> {
        let system_bundle = format!("--system-trust-bundle={}", self.system_bundle().display());
        let mut all = vec![command, &system_bundle];
        if !arguments.iter().any(|argument| argument.starts_with("--health-addr")) {
            all.push("--health-addr=127.0.0.1:0");
        }
        all.extend(arguments);
        Operator::start(binary(), kubeconfig, &all, &[("RELEASE_VERSION", VERSION), ("POD_UID", pod_uid)])
    }

    /// Starts the operator with another kubeconfig, a [`crate::support::faults::Faults`]'s.
    pub(crate) fn start_through(&self, kubeconfig: &Path) -> Result<Operator> {
        let images = format!("--images-json={}", self.images_file().display());
        self.run_with(kubeconfig, "operator", "5a1ec0de-0000-4000-8000-000000000001", &[&images])
    }

    /// The operator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A point in the audit log, after everything that has been answered by now.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        // The line of a request may come a moment after its answer.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.plane.audit().mark()
    }

    /// What the operator has asked since.
    pub(crate) fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        let user = format!("system:serviceaccount:{OWN_NAMESPACE}:{SERVICE_ACCOUNT}");
        Ok(audit::by_user(self.plane.audit().since(since)?, &user))
    }

    /// The operator's writes since, those of its lease and its Events left out.
    pub(crate) fn writes(&self, since: Mark) -> Result<Vec<String>> {
        let counts = |request: &Request| request.is_write() && !request.is_lease() && !request.is_event();
        let writes = self.requests(since)?.into_iter().filter(counts);
        // A write that lost a race has written nothing.
        let writes = writes.filter(|request| request.code < 400);
        Ok(writes.map(|request| describe(&request)).collect())
    }

    /// The live `ClusterOperator`.
    pub(crate) async fn cluster_operator(&self) -> Result<Value> {
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusteroperators");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        Ok(serde_json::to_value(api.get("cloud-controller-manager").await?)?)
    }

    /// Waits until the conditions are these, as `Type=Status`; answers the `ClusterOperator`.
    pub(crate) async fn conditions(&self, operator: &Operator, expected: &[&str]) -> Result<Value> {
        let waited = eventually("the conditions", LIMIT, async || {
            let cluster_operator = self.cluster_operator().await?;
            let found = conditions(&cluster_operator);
            ensure!(expected.iter().all(|one| found.iter().any(|other| other == one)), "{found:?}");
            Ok(Some(cluster_operator))
        })
        .await;
        waited.with_context(|| format!("the operator said:\n{}", operator.log()))
    }

    /// Waits until all is well.
    pub(crate) async fn converged(&self, operator: &Operator) -> Result<Value> {
        self.conditions(operator, &["Available=True", "Progressing=False", "Degraded=False", "Upgradeable=True"]).await
    }

    /// A live object of AWS, by its kind; `None` when it is not there.
    pub(crate) async fn live(&self, kind: &str) -> Result<Option<Value>> {
        let object = aws_manifest(kind);
        let live = request::api(&self.client, object.kind(), object.namespace()).get_opt(object.name()).await?;
        Ok(live.map(serde_json::to_value).transpose()?)
    }

    /// Changes a live object of AWS as an administrator's client does: a patch that counts as an update.
    pub(crate) async fn update(&self, kind: &str, patch: &Value) -> Result<Value> {
        let object = aws_manifest(kind);
        let api = request::api(&self.client, object.kind(), object.namespace());
        let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        Ok(serde_json::to_value(api.patch(object.name(), &params, &Patch::Merge(patch)).await?)?)
    }

    /// Deletes whatever any provider brings.
    pub(crate) async fn delete_all(&self) -> Result<()> {
        delete_all(&self.client).await
    }

    /// Deletes a live object of AWS.
    pub(crate) async fn delete(&self, kind: &str) -> Result<()> {
        let object = aws_manifest(kind);
        let api = request::api(&self.client, object.kind(), object.namespace());
        api.delete(object.name(), &DeleteParams::default()).await?;
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(workloads) = &self.workloads {
            workloads.abort();
        }
    }
}

/// The operator's binary.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ccm-operator"))
}

/// The repository's root.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The manifests of the provider AWS, as they stand.
pub(crate) fn aws_manifests() -> Vec<Object> {
    let catalog = embedded::catalog().expect("the embedded catalog");
    catalog.providers().find(|provider| provider.name() == "aws").expect("aws").manifests.clone()
}

/// The one of a kind.
pub(crate) fn aws_manifest(kind: &str) -> Object {
    aws_manifests().into_iter().find(|object| object.kind().kind == kind).expect("a manifest of this kind")
}

/// A client that acts as a kubeconfig says.
async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    // The machine's proxy does not lead to the loopback.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// The leases of the operator's namespace.
pub(crate) fn leases(client: &Client) -> Api<k8s_openapi::api::coordination::v1::Lease> {
    Api::namespaced(client.clone(), OWN_NAMESPACE)
}

/// The conditions of a `ClusterOperator`, as `Type=Status`.
pub(crate) fn conditions(cluster_operator: &Value) -> Vec<String> {
    let conditions = cluster_operator["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|condition| format!("{}={}", text(&condition["type"]), text(&condition["status"]))).collect()
}

/// The message of a condition.
pub(crate) fn message<'a>(cluster_operator: &'a Value, type_: &str) -> &'a str {
    let conditions = cluster_operator["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let condition = conditions.iter().find(|condition| condition["type"] == type_);
    condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

/// A request in one line, for comparing and for reading.
pub(crate) fn describe(request: &Request) -> String {
    let Request { verb, resource, subresource, name, .. } = request;
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{slash}{subresource} {name}")
}

/// Deletes whatever any provider brings, and the inventory.
async fn delete_all(client: &Client) -> Result<()> {
    ignore_absent(config_maps(client, OWN_NAMESPACE).delete(INVENTORY, &DeleteParams::default()).await)?;
    let catalog = embedded::catalog()?;
    for object in catalog.providers().flat_map(|provider| &provider.manifests) {
        let api = request::api(client, object.kind(), object.namespace());
        ignore_absent(api.delete(object.name(), &DeleteParams::default()).await)?;
    }
    // What a test before this one has left in another namespace.
    let label =
        ListParams::default().labels(&format!("{}={}", inventory::PART_OF_LABEL, inventory::set_id(OWN_NAMESPACE)));
    for kind in KINDS {
        let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), &request::resource(kind));
        for object in everywhere.list(&label).await? {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let name = object.metadata.name.as_deref().unwrap_or_default();
            ignore_absent(request::api(client, kind, namespace).delete(name, &DeleteParams::default()).await)?;
        }
    }
    for name in ["cloud-conf", "ccm-trusted-ca"] {
        ignore_absent(config_maps(client, NAMESPACE).delete(name, &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// The `ConfigMap`s of a namespace.
pub(crate) fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// An object that is not there is as good as one that was deleted.
pub(crate) fn ignore_absent<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
