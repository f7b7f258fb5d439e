//! A cloud-controller-manager that the operator has not installed, read from its objects (pure).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    apply::change::essence,
    facts::ccm::{Controller, LEASE},
    nodes::observed::{Program, flags, program_container},
    object::{self, KUBE_SYSTEM, PART_OF_LABEL, is_name, items, reference::Reference},
    preflight::pods::DEFAULT_PORT,
    provider::{
        CCM,
        kubernetes::{Descriptor, KubernetesProvider},
    },
    text::boolean,
};

/// The default namespace and name of the lease.
const DEFAULT_LEASE: (&str, &str) = (KUBE_SYSTEM, LEASE);

/// The annotation of the mirror pod of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotations for the name and the namespace of the Helm release of an object.
const HELM: [&str; 2] = ["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"];

/// The label and annotation prefixes of tools that would recreate a deleted object.
const KEEPERS: [(&str, &str); 6] = [
    ("addon.kops.k8s.io/", "kOps"),
    ("argocd.argoproj.io/", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/", "Flux"),
    ("helm.toolkit.fluxcd.io/", "Flux"),
    ("addonmanager.kubernetes.io/", "the addon manager"),
    ("objectset.rio.cattle.io/", "k3s, RKE2 or Rancher"),
];

/// The annotations that the workload controllers write.
const OF_CONTROLLERS: [&str; 2] = ["deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision"];

/// The source of an environment variable's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VariableSource {
    /// A value in the manifest.
    Literal(String),
    /// A key of a ConfigMap or a Secret, and whether both may be absent.
    Key(Reference, String, bool),
    /// A field of the pod itself.
    Field,
}

/// A workload of a cloud-controller-manager or a node manager.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Existing {
    /// `Deployment`, `DaemonSet` or `Pod`.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The nodes of a static pod. Each node has the manifest as a file.
    pub(crate) static_on: Vec<String>,
    /// The ServiceAccount.
    pub(crate) account: String,
    pub(crate) image: String,
    /// Whether more than its name identifies it. The check `other-ccm` then refuses a second one.
    pub(crate) is_certain: bool,
    /// Whether it is a node manager.
    pub(crate) is_node_manager: bool,
    /// The flags without hyphens, with variables expanded in the values; the last occurrence of a flag counts.
    pub(crate) flags: Vec<(String, Option<String>)>,
    pub(crate) environment: BTreeMap<String, VariableSource>,
    /// The objects whose keys all become environment variables (`envFrom`), each with the prefix of their names.
    pub(crate) environment_from: Vec<(Reference, String)>,
    /// Whether it is a DaemonSet with no pod, because no node fits.
    pub(crate) fits_no_node: bool,
    /// The pod specification.
    pub(crate) pod: Value,
    /// The container of the program.
    pub(crate) container: Value,
    /// The name and the namespace of the Helm release.
    pub(crate) helm: Option<(String, String)>,
    /// The workloads found in that release, including this one.
    pub(crate) of_release: Vec<String>,
    /// The tool that would recreate the workload.
    pub(crate) keeper: Option<&'static str>,
    /// The manifest that recreates the object.
    pub(crate) manifest: Value,
}

impl Existing {
    /// Reads a live Deployment, DaemonSet or Pod. Returns `None` for an owned Pod, another program, or an object of the operator.
    pub(crate) fn of(live: &Value, descriptors: &[&Descriptor]) -> Option<Self> {
        let (metadata, kind) = (&live["metadata"], text(&live["kind"]));
        let pod = if kind == "Pod" { &live["spec"] } else { &live["spec"]["template"]["spec"] };
        let is_owned = items(&metadata["ownerReferences"]).iter().any(|owner| kind == "Pod" && owner["kind"] != "Node");
        let as_pod = json!({
            "metadata": {"name": metadata["name"]}, "spec": {"containers": pod["containers"], "nodeName": pod["nodeName"]},
        });
        let program = Program::of(&as_pod, || descriptors.iter().copied())?;
        if is_owned || !metadata["labels"][PART_OF_LABEL].is_null() {
            return None;
        }
        let ccm = program_container(pod, || descriptors.iter().copied());
        let namespace = text(&metadata["namespace"]);
        let environment = environment(ccm, &namespace);
        let fill = |value: String| filled(&value, &environment);
        let is_static = !metadata["annotations"][MIRROR].is_null();
        let (node, name) = (text(&pod["nodeName"]), text(&metadata["name"]));
        let of_node = name.strip_suffix(&format!("-{node}")).filter(|_| is_static);
        let marks = |what: &str| metadata[what].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        let keeper = |mark: &str| KEEPERS.iter().find(|(prefix, _)| mark.starts_with(prefix)).map(|(_, who)| *who);
        Some(Self {
            kind,
            name: of_node.map_or_else(|| name.clone(), str::to_owned),
            static_on: is_static.then_some(node).into_iter().collect(),
            account: pod["serviceAccountName"].as_str().unwrap_or("default").to_owned(),
            image: text(&ccm["image"]),
            is_certain: program.is_certain,
            is_node_manager: program.is_node_manager,
            flags: flags(ccm).into_iter().map(|(flag, value)| (flag, value.map(fill))).collect(),
            environment_from: items(&ccm["envFrom"])
                .iter()
                .filter_map(|source| {
                    Some((reference(source, "configMapRef", "secretRef", &namespace)?, text(&source["prefix"])))
                })
                .collect(),
            fits_no_node: live["kind"] == "DaemonSet" && live["status"]["desiredNumberScheduled"] == 0,
            environment,
            pod: pod.clone(),
            container: ccm.clone(),
            helm: release(live),
            of_release: Vec::new(),
            keeper: marks("labels").chain(marks("annotations")).find_map(keeper),
            manifest: cleaned(live),
            namespace,
        })
    }

    /// Checks that the lease flags are valid object names.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (namespace, name) = self.lease().unwrap_or(DEFAULT_LEASE);
        if is_name(namespace) && is_name(name) {
            return Ok(());
        }
        Err(format!("{} is told the lease {namespace:?}/{name:?}, which can be the name of no object", self.key()))
    }

    /// Returns the human-readable kind, namespace and name.
    pub(crate) fn key(&self) -> String {
        let kind = if self.static_on.is_empty() { self.kind.clone() } else { "static pod".to_owned() };
        format!("{kind} {}/{}", self.namespace, self.name)
    }

    /// Returns the value of a flag; `true` for a flag without a value.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.as_deref().unwrap_or("true"))
    }

    /// Whether a boolean flag is true, which is its default.
    fn is_on(&self, name: &str) -> bool {
        self.flag(name).and_then(boolean) != Some(false)
    }

    /// Returns the namespace and the name of the leader election lease; `None` without leader election, with another resource, or if the
    /// flags refer to variables that the API does not show.
    pub(crate) fn lease(&self) -> Option<(&str, &str)> {
        const REFERENCE: &str = "$(";
        let is_open = |flag: &str| self.flag(flag).is_some_and(|value| value.contains(REFERENCE));
        if ["leader-elect", "leader-elect-resource-lock", "leader-elect-resource-name"].iter().any(|flag| is_open(flag))
        {
            return None;
        }
        // Old versions use a lease together with another resource.
        let is_lease = self.flag("leader-elect-resource-lock").is_none_or(|lock| lock.ends_with("leases"));
        let is_on = self.is_on("leader-elect") && is_lease;
        let namespace = match self.flag("leader-elect-resource-namespace") {
            None => DEFAULT_LEASE.0,
            Some(value) if value.contains(REFERENCE) => {
                let variable = value.strip_prefix(REFERENCE)?.strip_suffix(')')?;
                // The only field of a pod that is the name of a namespace.
                self.environment.get(variable).filter(|source| **source == VariableSource::Field)?;
                &self.namespace
            }
            Some(value) => value,
        };
        is_on.then(|| (namespace, self.flag("leader-elect-resource-name").unwrap_or(DEFAULT_LEASE.1)))
    }

    /// Returns the health port.
    pub(crate) fn port(&self) -> u16 {
        self.flag("secure-port").and_then(|port| port.parse().ok()).unwrap_or(DEFAULT_PORT)
    }

    /// Whether the pods use the host network.
    pub(crate) fn is_on_host(&self) -> bool {
        self.pod["hostNetwork"] == true
    }

    /// Returns the enabled controllers. The route controller needs pod subnets; clouds may have their own switches for it.
    pub(crate) fn controllers(&self) -> Vec<Controller> {
        let mut on = Controller::of_argument(self.flag("controllers"));
        let has_routes = self.is_on("configure-cloud-routes") && self.flag("cluster-cidr").is_some();
        on.retain(|one| *one != Controller::Route || has_routes);
        on
    }

    /// Whether its image belongs to another program of a provider, such as a node manager.
    pub(crate) fn is_beside(&self, provider: &KubernetesProvider) -> bool {
        provider.descriptor.container_of(&self.image).is_some_and(|container| container != CCM)
    }

    /// Whether its pods run on nodes with Windows only.
    pub(crate) fn is_for_windows(&self) -> bool {
        self.pod["nodeSelector"]["kubernetes.io/os"] == "windows"
    }

    /// Returns the source of each variable. Those of `environment` take precedence, then those of the last object.
    pub(crate) fn variables(&self, found: &BTreeMap<Reference, Value>) -> BTreeMap<String, VariableSource> {
        let mut variables = BTreeMap::new();
        for (reference, prefix) in &self.environment_from {
            let data = found.get(reference).and_then(|object| object["data"].as_object());
            for (key, _) in data.into_iter().flatten() {
                let source = VariableSource::Key(reference.clone(), key.clone(), true);
                variables.insert(format!("{prefix}{key}"), source);
            }
        }
        variables.extend(self.environment.clone());
        variables
    }

    /// Returns a value with its references to other variables expanded as the kubelet does; `None` if one remains.
    pub(crate) fn expanded(&self, value: &str) -> Option<String> {
        Some(filled(value, &self.environment)).filter(|text| !text.contains("$("))
    }

    /// Returns the ConfigMaps and Secrets that the pods reference, and the configuration Secret, which only flags reference.
    pub(crate) fn references(&self) -> Vec<Reference> {
        object::reference::references(&self.pod, &self.namespace).into_iter().chain(self.config_secret()).collect()
    }

    /// Returns the configuration Secret, named by flags.
    pub(crate) fn config_secret(&self) -> Option<Reference> {
        let namespace = self.flag("cloud-config-secret-namespace").unwrap_or(KUBE_SYSTEM);
        Some(Reference::secret(namespace, self.flag("cloud-config-secret-name")?))
    }
}

/// Returns the name and the namespace of an object's Helm release; `None` if they are not valid names.
pub(super) fn release(live: &Value) -> Option<(String, String)> {
    let annotation = |name: &str| live["metadata"]["annotations"][name].as_str().filter(|text| is_name(text));
    Some((annotation(HELM[0])?.to_owned(), annotation(HELM[1])?.to_owned()))
}

fn environment(container: &Value, namespace: &str) -> BTreeMap<String, VariableSource> {
    let origin = |variable: &Value| {
        let from = &variable["valueFrom"];
        let (of_key, is_map) = (&from["secretKeyRef"], from["configMapKeyRef"].is_object());
        let of_key = if is_map { &from["configMapKeyRef"] } else { of_key };
        match reference(from, "configMapKeyRef", "secretKeyRef", namespace) {
            Some(reference) => VariableSource::Key(reference, text(&of_key["key"]), of_key["optional"] == true),
            None if from.is_object() => VariableSource::Field,
            None => VariableSource::Literal(text(&variable["value"])),
        }
    };
    items(&container["env"]).iter().map(|variable| (text(&variable["name"]), origin(variable))).collect()
}

fn reference(source: &Value, config_map: &str, secret: &str, namespace: &str) -> Option<Reference> {
    if let Some(name) = source[config_map]["name"].as_str() {
        return Some(Reference::config_map(namespace, name));
    }
    Some(Reference::secret(namespace, source[secret]["name"].as_str()?))
}

/// Expands each `$(NAME)` in a text as the kubelet does: `$$` is one `$` and begins no reference.
fn filled(value: &str, environment: &BTreeMap<String, VariableSource>) -> String {
    let (mut filled, mut rest) = (String::new(), value);
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        filled += before;
        let name = from.strip_prefix("$(").and_then(|name| name.split_once(')'));
        if let Some(after) = from.strip_prefix("$$") {
            filled.push('$');
            rest = after;
        } else if let Some((VariableSource::Literal(text), after)) =
            name.and_then(|(name, after)| Some((environment.get(name)?, after)))
        {
            filled += text;
            rest = after;
        } else {
            filled.push('$');
            rest = &from[1..];
        }
    }
    filled + rest
}

/// Returns the manifest that recreates an object.
pub(super) fn cleaned(live: &Value) -> Value {
    let mut manifest = essence(live);
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !OF_CONTROLLERS.contains(&name.as_str()));
        }
    }
    manifest
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
