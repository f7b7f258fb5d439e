//! A cluster that is not OpenShift with the operator in it: a control plane, what `render install` prints, and the operator
//! as a process that acts as its own `ServiceAccount` with those permissions and no others.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    api::CLOUD_CONTROLLER_MANAGER,
    apply::inventory,
    cluster::request,
    config::Transform,
    object::{KINDS, PART_OF_LABEL},
    provider::kubernetes::{ConfigFile, Descriptor},
    text::yaml,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    audit::{Mark, Request},
    control_plane::{ControlPlane, Options},
    eventually, kubelet,
    lab::{LIMIT, POD_UID, binary, conditions},
    objects,
    operator::Operator,
    pool::Lease as Plane,
};

/// The namespace in which the operator runs.
pub const OWN_NAMESPACE: &str = "ccm-operator";
/// The operator's `ServiceAccount`.
pub const SERVICE_ACCOUNT: &str = "ccm-operator";
/// Where cloud-controller-managers are that may not be in kube-system.
pub const ELSEWHERE: &str = "clouds";
/// The label that names the `CloudControllerManager` of an object.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// The limits of the tests' installations, unless a test has its own: they allow any `CloudControllerManager` of a test.
pub const LIMITS: [&str; 2] = [
    "--names=cluster,second,third,other,other-cloud,first,foreign,inline,broken,a-second,bad,unknown,secret,elsewhere,place,\
     old,plain,good,lease,main,same-cloud,service",
    "--leases=own",
];

/// A cluster for one test.
pub struct Kubernetes {
    pub plane: Plane,
    pub client: Client,
    pub kubeconfig: PathBuf,
    /// Stopped with the cluster.
    stand_ins: JoinSet<()>,
}

impl Kubernetes {
    /// A cluster with one control-plane node and an installation for these providers; without kube-controller-manager workloads are
    /// rolled out at once.
    pub async fn new(providers: &str) -> Result<Self> {
        Self::with(Options::default(), providers).await
    }

    /// A cluster on a control plane with these options.
    pub async fn with(options: Options, providers: &str) -> Result<Self> {
        let plane: Plane = ControlPlane::start(options).await?.into();
        let client = plane.client()?;
        let (own, mut stand_ins) = (client.clone(), JoinSet::new());
        if !options.controllers {
            stand_ins.spawn(kubelet::finish_workloads(own));
        }
        kubelet::add_node(&client, "control-plane", &[("node-role.kubernetes.io/control-plane", "")]).await?;
        set_version(&client, "control-plane", &client.apiserver_version().await?.git_version).await?;
        let mut cluster = Self { plane, client, kubeconfig: PathBuf::new(), stand_ins };
        cluster.install(providers).await?;
        cluster.kubeconfig = cluster.plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        Ok(cluster)
    }

    /// Applies the printed objects of an installation, except the operator's own pods.
    pub async fn install(&self, providers: &str) -> Result<()> {
        self.install_with(&["--providers", providers]).await
    }

    /// Installs the operator with these arguments.
    pub async fn install_with(&self, arguments: &[&str]) -> Result<()> {
        for object in installation(&with_limits(arguments))? {
            if !matches!(object["kind"].as_str(), Some("Deployment" | "PodDisruptionBudget")) {
                // A kind that has just been defined is served a moment later.
                let applied = eventually("the installation", LIMIT, async || {
                    objects::apply(&self.client, object.clone()).await.map(Some)
                });
                applied.await?;
            }
        }
        Ok(())
    }

    /// Installs the operator for a `CloudControllerManager` of each of these providers (separated by commas), which has its name and may be
    /// in [`ELSEWHERE`], which exists then. Returns the operator's arguments.
    pub async fn install_clouds(&self, names: &str) -> Result<Vec<String>> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
        objects::apply(&self.client, namespace).await?;
        let arguments = vec![format!("--namespaces=kube-system,{ELSEWHERE}"), format!("--names={names}")];
        let providers = format!("--providers={names}");
        self.install_with(&[&providers, &arguments[0], &arguments[1]]).await?;
        Ok(arguments)
    }

    /// Starts the operator.
    pub fn start(&self) -> Result<Operator> {
        self.start_with(&["--namespaces=kube-system"])
    }

    /// Starts the operator with these arguments, of which it needs the namespaces.
    pub fn start_with(&self, arguments: &[&str]) -> Result<Operator> {
        let own = format!("--operator-namespace={OWN_NAMESPACE}");
        let all = ["operator", "--controllers=operator", &own, "--health-addr=127.0.0.1:0", "--metrics-bind-address=0"];
        let env = [("POD_UID", POD_UID), ("CONTAINER_NAME", "operator")];
        Operator::start(&binary()?, &self.kubeconfig, &[&all[..], &with_limits(arguments)].concat(), &env)
    }

    /// The `CloudControllerManager`s.
    pub fn ccms(&self) -> Api<DynamicObject> {
        request::api(&self.client, &CLOUD_CONTROLLER_MANAGER, "")
    }

    /// Creates a `CloudControllerManager`.
    pub async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": CLOUD_CONTROLLER_MANAGER.api_version(),
            "kind": CLOUD_CONTROLLER_MANAGER.kind,
            "metadata": {"name": name},
            "spec": spec,
        });
        let created = eventually("the CustomResourceDefinition", LIMIT, async || {
            let object: DynamicObject = serde_json::from_value(object.clone())?;
            Ok(Some(self.ccms().create(&PostParams::default(), &object).await?))
        });
        created.await.map(drop)
    }

    /// Changes a `CloudControllerManager`.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.ccms().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes a `CloudControllerManager`.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.ccms().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates or replaces a Secret in kube-system.
    pub async fn put_secret(&self, name: &str, data: Value) -> Result<()> {
        self.put_secret_in("kube-system", name, data).await
    }

    /// Creates or replaces a Secret.
    pub async fn put_secret_in(&self, namespace: &str, name: &str, data: Value) -> Result<()> {
        let metadata = json!({"name": name, "namespace": namespace});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        objects::apply(&self.client, secret).await.map(drop)
    }

    /// Creates the ConfigMap and the Secret that [`asking_for`] this provider names, with this text as each value but an address, which is
    /// no secret.
    pub async fn put_inputs(&self, descriptor: &Descriptor, value: &str) -> Result<()> {
        let (name, namespace) = (descriptor.name.as_str(), namespace_of(descriptor));
        let mut secret = json!({});
        for key in descriptor.credentials.iter().flat_map(|credentials| &credentials.keys) {
            let is_address = key == "host";
            secret[key.replace('*', "vcenter.lab")] = json!(if is_address { "tcp://192.0.2.1:2376" } else { value });
        }
        if let Some(config) = &descriptor.cloud_config {
            let text = configuration(config, value);
            if config.holds_credentials {
                secret[&config.file] = json!(text);
            } else {
                let metadata = json!({"name": name, "namespace": namespace});
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {&config.file: text}});
                objects::apply(&self.client, map).await?;
            }
        }
        if secret != json!({}) {
            self.put_secret_in(namespace, name, secret).await?;
        }
        Ok(())
    }

    /// Waits for these conditions of a `CloudControllerManager`, as `Type=Status`, of its current generation.
    pub async fn conditions(&self, operator: &Operator, name: &str, expected: &[&str]) -> Result<Value> {
        let waited = eventually("the conditions", LIMIT, async || {
            let live = serde_json::to_value(self.ccms().get(name).await?)?;
            let found = conditions(&live);
            ensure!(live["status"]["observedGeneration"] == live["metadata"]["generation"], "{live:#}");
            ensure!(expected.iter().all(|one| found.iter().any(|other| other == one)), "{:#}", live["status"]);
            Ok(Some(live))
        })
        .await;
        waited.with_context(|| format!("the operator's log:\n{}", operator.log()))
    }

    /// Waits until a `CloudControllerManager` is ready.
    pub async fn ready(&self, operator: &Operator, name: &str) -> Result<Value> {
        self.conditions(operator, name, &["Ready=True", "Reconciling=False", "Stalled=False"]).await
    }

    /// The kinds and names of the operator's objects, or of those for one `CloudControllerManager` if it is named.
    pub async fn objects(&self, of: Option<&str>) -> Result<Vec<String>> {
        let set = format!("{}={}", PART_OF_LABEL, inventory::set_id(OWN_NAMESPACE));
        let label = of.map_or(set.clone(), |name| format!("{set},{INSTANCE}={name}"));
        let mut found = Vec::new();
        for kind in KINDS {
            let everywhere: Api<DynamicObject> = Api::all_with(self.client.clone(), &request::resource(kind));
            let list = everywhere.list(&ListParams::default().labels(&label)).await?.items;
            found.extend(list.into_iter().map(|it| format!("{} {}", kind.kind, it.metadata.name.unwrap_or_default())));
        }
        found.sort();
        Ok(found)
    }

    /// Waits until the operator's objects are as a predicate wants them.
    pub async fn objects_are(
        &self,
        operator: &Operator,
        of: Option<&str>,
        is_so: impl Fn(&[String]) -> bool,
    ) -> Result<Vec<String>> {
        let waited = eventually("the objects", LIMIT, async || {
            let objects = self.objects(of).await?;
            ensure!(is_so(&objects), "{objects:?}");
            Ok(Some(objects))
        });
        waited.await.with_context(|| format!("the operator's log:\n{}", operator.log()))
    }

    /// The end of the audit log, after every request that has been answered.
    pub async fn mark(&self) -> Result<Mark> {
        self.plane.audit().mark_after(&self.client).await
    }

    /// The operator's requests since the mark.
    pub async fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        self.plane.audit().of_account(&self.client, since, (OWN_NAMESPACE, SERVICE_ACCOUNT)).await
    }
}

/// Sets the version of a node's kubelet.
pub async fn set_version(client: &Client, node: &str, version: &str) -> Result<()> {
    let nodes: Api<DynamicObject> = request::api(client, &ccm_operator::object::NODE, "");
    let info = json!({
        "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "Debian GNU/Linux",
        "containerRuntimeVersion": "", "kubeletVersion": version, "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": "amd64",
    });
    let patch = Patch::Merge(json!({"status": {"nodeInfo": info}}));
    nodes.patch_status(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn with_limits<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let has_names = arguments.iter().any(|argument| argument.starts_with("--names="));
    let limits = if has_names { &[][..] } else { &LIMITS[..] };
    arguments.iter().chain(limits).copied().collect()
}

/// The objects that `render install` prints.
pub fn installation(arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(binary()?).args(["render", "install"]).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(yaml::documents(&String::from_utf8(output.stdout)?)?)
}

/// The namespace of the cloud-controller-manager of a provider.
pub fn namespace_of(descriptor: &Descriptor) -> &'static str {
    if descriptor.namespaces.include("kube-system") { "kube-system" } else { ELSEWHERE }
}

/// A specification with every controller that a provider has, and with what it needs: the configuration and the credentials are in a
/// Secret of the provider's name, or the configuration in the ConfigMap of that name.
pub fn asking_for(descriptor: &Descriptor) -> Value {
    let name = &descriptor.name;
    let state = |is_on: bool| if is_on { "Enabled" } else { "Disabled" };
    let mut spec = json!({
        "provider": name,
        "network": {"podCIDRs": ["10.244.0.0/16"]},
        "controllers": {"service": state(descriptor.load_balancers), "route": state(descriptor.routes.is_some())},
    });
    if let Some(config) = &descriptor.cloud_config {
        let source = if config.holds_credentials { "secretRef" } else { "configMapRef" };
        spec["cloudConfig"][source] = json!({"name": name, "key": config.file});
    }
    if descriptor.credentials.is_some() {
        spec["credentials"] = json!({"secretRef": {"name": name}});
    }
    if namespace_of(descriptor) == ELSEWHERE {
        spec["namespace"] = json!(ELSEWHERE);
    }
    if let Some(flag) = descriptor.routes.as_ref().and_then(|routes| routes.needs_one_of.first()) {
        spec["arguments"][flag] = json!("1");
    }
    spec
}

/// A configuration that is accepted, with this value in every field that it needs.
pub fn configuration(config: &ConfigFile, value: &str) -> String {
    match config.format {
        Some(Transform::VSphere) => {
            let vcenter = json!({"lab": {"server": "vcenter.lab", "datacenters": ["dc"]}});
            json!({"global": {"secretName": "a", "secretNamespace": "kube-system"}, "vcenter": vcenter}).to_string()
        }
        Some(Transform::Aws | Transform::OpenStack) => "[Global]\n".to_owned(),
        Some(Transform::Azure | Transform::AzureStack) | None => {
            let mut document = json!({});
            for pointer in &config.needs {
                let names = pointer.split('/').skip(1);
                let place = names.fold(&mut document, |place, name| match name.parse::<usize>() {
                    Ok(_) => {
                        if !place.is_array() {
                            *place = json!([{}]);
                        }
                        &mut place[0]
                    }
                    Err(_) => &mut place[name],
                });
                *place = value.into();
            }
            document.to_string()
        }
    }
}
