//! Rules about pods: where they run, as whom, and on which nodes (pure).

use serde_json::Value;

use crate::provider::verify::Violation;
use crate::provider::{
    Phase,
    folder::{Bundle, Manifest, Payload},
};

/// The taints of a control-plane node that is being made, as (key, value), all with the effect `NoSchedule`.
const TAINTS: [(&str, &str); 5] = [
    ("node.cloudprovider.kubernetes.io/uninitialized", "true"),
    ("node.cluster.x-k8s.io/uninitialized", ""),
    ("node.kubernetes.io/not-ready", ""),
    ("node-role.kubernetes.io/control-plane", ""),
    ("node-role.kubernetes.io/master", ""),
];

/// Folders that the installer prepares on the bootstrap VM. On the nodes of a cluster there is none that a CCM needs.
const BOOTSTRAP_HOST_PATHS: [&str; 2] = [super::bootstrap::SECRETS, "/etc/kubernetes/bootstrap-configs"];

/// The pods that a manifest is or makes.
#[derive(Clone, Copy)]
pub(super) struct Pods<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) spec: &'a Value,
    pointer: &'static str,
}

impl Pods<'_> {
    /// What is wrong at a JSON pointer of the pod's specification.
    pub(super) fn violation(&self, pointer: &str, what: impl Into<String>) -> Violation {
        self.manifest.violation(&format!("{}{pointer}", self.pointer), what)
    }

    fn kind(&self) -> &'static str {
        self.manifest.object.kind().kind
    }
}

/// All pods of a provider.
pub(super) fn all(bundle: &Bundle) -> impl Iterator<Item = Pods<'_>> {
    bundle.manifests.iter().filter_map(|manifest| {
        let pointer = manifest.object.pod_spec_pointer()?;
        Some(Pods { manifest, spec: manifest.object.pod_spec()?, pointer })
    })
}

/// Those that run in the cluster.
pub(super) fn of_cluster(bundle: &Bundle) -> impl Iterator<Item = Pods<'_>> {
    all(bundle).filter(|pods| pods.manifest.phase == Phase::Cluster)
}

/// Those of the bootstrap VM.
pub(super) fn of_bootstrap(bundle: &Bundle) -> impl Iterator<Item = Pods<'_>> {
    all(bundle).filter(|pods| pods.manifest.phase == Phase::Bootstrap)
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn deployments(bundle: &Bundle) -> impl Iterator<Item = Pods<'_>> {
    of_cluster(bundle).filter(|pods| pods.kind() == "Deployment")
}

pub(super) fn replicas(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let few = deployments(bundle).filter_map(|pods| {
        // Kubernetes' default is one.
        let replicas = pods.manifest.object.value().pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        (replicas < 2)
            .then(|| pods.manifest.violation("/spec/replicas", format!("replicas is {replicas}, not 2 or more")))
    });
    few.collect()
}

pub(super) fn anti_affinity(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let together = deployments(bundle).filter(|pods| {
        let labels = &pods.manifest.object.value()["spec"]["template"]["metadata"]["labels"];
        let rules = &pods.spec["affinity"]["podAntiAffinity"];
        let required = items(&rules["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = items(&rules["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        !required.chain(preferred.map(|term| &term["podAffinityTerm"])).any(|term| spreads(term, labels))
    });
    let what = "no podAntiAffinity over kubernetes.io/hostname matches the pod's own labels";
    together.map(|pods| pods.violation("/affinity/podAntiAffinity", what)).collect()
}

/// Whether a term of an anti-affinity keeps pods with these labels on different nodes.
fn spreads(term: &Value, labels: &Value) -> bool {
    let selected = term["labelSelector"]["matchLabels"].as_object();
    term["topologyKey"] == "kubernetes.io/hostname"
        && selected.is_some_and(|selected| selected.iter().all(|(key, value)| labels[key] == *value))
}

pub(super) fn priority_class(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let low = all(bundle).filter_map(|pods| {
        let class = pods.spec["priorityClassName"].as_str().unwrap_or("missing");
        let allowed: &[&str] = match pods.kind() {
            "Deployment" => &["system-cluster-critical", "system-node-critical"],
            _ => &["system-node-critical"],
        };
        let what = || format!("priorityClassName is {class}, not {}", allowed.join(" or "));
        (!allowed.contains(&class)).then(|| pods.violation("/priorityClassName", what()))
    });
    low.collect()
}

pub(super) fn host_network(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let without = all(bundle).filter(|pods| pods.spec["hostNetwork"] != true);
    without.map(|pods| pods.violation("/hostNetwork", "the pod is not on the host's network")).collect()
}

pub(super) fn service_account(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let without = of_cluster(bundle)
        .filter(|pods| matches!(pods.spec["serviceAccountName"].as_str(), None | Some("" | "default")));
    without.map(|pods| pods.violation("/serviceAccountName", "the pod runs as the default ServiceAccount")).collect()
}

pub(super) fn tolerations(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let missing = |pods: Pods<'_>| {
        let tolerations = items(&pods.spec["tolerations"]);
        let kept_away = TAINTS.into_iter().filter(|taint| !tolerations.iter().any(|one| tolerates(one, *taint)));
        let what = |(key, _)| pods.violation("/tolerations", format!("the taint {key} is not tolerated"));
        kept_away.map(what).collect::<Vec<_>>()
    };
    of_cluster(bundle).flat_map(missing).collect()
}

/// What the scheduler says of a toleration and a taint with the effect `NoSchedule`.
fn tolerates(toleration: &Value, (key, value): (&str, &str)) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key_matches = text("key") == key || (text("key").is_empty() && text("operator") == "Exists");
    key_matches
        && matches!(text("effect"), "" | "NoSchedule")
        && (text("operator") == "Exists" || text("value") == value)
}

pub(super) fn host_paths(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let foreign = |pods: Pods<'_>| {
        let allowed: &[&str] = match pods.manifest.phase {
            Phase::Bootstrap => &BOOTSTRAP_HOST_PATHS,
            Phase::Cluster => &[],
        };
        let volumes = items(&pods.spec["volumes"]).iter().enumerate();
        let paths = volumes.filter_map(|(index, volume)| Some((index, volume["hostPath"]["path"].as_str()?)));
        let foreign = paths.filter(|(_, path)| !allowed.contains(path));
        let what =
            |(index, path)| pods.violation(&format!("/volumes/{index}/hostPath/path"), format!("hostPath {path}"));
        foreign.map(what).collect::<Vec<_>>()
    };
    all(bundle).flat_map(foreign).collect()
}
