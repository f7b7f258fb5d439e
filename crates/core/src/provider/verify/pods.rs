//! Rules about pods: their nodes, volumes and priority (pure).

use serde_json::Value;

use crate::{
    error::brief,
    object::KUBE_SYSTEM,
    provider::{
        Phase,
        folder::Manifest,
        verify::parts::{BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG, BOOTSTRAP_SECRETS, Defects, Part, RuleInput, items},
    },
};

/// The taints of a new control-plane node, as (key, value), all with the effect `NoSchedule`.
const TAINTS: [(&str, &str); 5] = [
    ("node.cloudprovider.kubernetes.io/uninitialized", "true"),
    ("node.cluster.x-k8s.io/uninitialized", ""),
    ("node.kubernetes.io/not-ready", ""),
    ("node-role.kubernetes.io/control-plane", ""),
    ("node-role.kubernetes.io/master", ""),
];

/// Folders that the installer prepares on the bootstrap VM, and files in them. On a cluster's nodes, a CCM needs no folder.
const BOOTSTRAP_HOST_PATHS: [&str; 4] =
    [BOOTSTRAP_SECRETS, BOOTSTRAP_KUBECONFIG, "/etc/kubernetes/bootstrap-configs", BOOTSTRAP_CONFIG];

pub(super) fn replicas(pod: &Part, defects: &mut Defects) {
    // Kubernetes' default is one.
    let replicas = pod.manifest.object.value().pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    if pod.is_deployment() && replicas < 2 {
        defects.add(pod.manifest.defect("/spec/replicas", format!("replicas is {replicas}, not 2 or more")));
    }
}

pub(super) fn anti_affinity(pod: &Part, defects: &mut Defects) {
    let labels = &pod.manifest.object.value()["spec"]["template"]["metadata"]["labels"];
    let rules = &pod.value["affinity"]["podAntiAffinity"];
    let required = items(&rules["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
    let preferred = items(&rules["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
    let mut terms = required.chain(preferred.map(|term| &term["podAffinityTerm"]));
    if pod.is_deployment() && !terms.any(|term| spreads(term, labels)) {
        let what = "no podAntiAffinity over kubernetes.io/hostname matches the pod's own labels";
        defects.add(pod.defect("/affinity/podAntiAffinity", what));
    }
}

/// Whether an anti-affinity term keeps pods with these labels on different nodes.
fn spreads(term: &Value, labels: &Value) -> bool {
    let selected = term["labelSelector"]["matchLabels"].as_object();
    term["topologyKey"] == "kubernetes.io/hostname"
        && selected.is_some_and(|selected| selected.iter().all(|(key, value)| labels[key] == *value))
}

pub(super) fn priority_class(pod: &Part, defects: &mut Defects) {
    let class = pod.value["priorityClassName"].as_str().unwrap_or("missing");
    let allowed: &[&str] = match pod.kind() {
        "Deployment" => &["system-cluster-critical", "system-node-critical"],
        _ => &["system-node-critical"],
    };
    if !allowed.contains(&class) {
        let what = format!("priorityClassName is {}, not {}", brief(class), allowed.join(" or "));
        defects.add(pod.defect("/priorityClassName", what));
    }
}

pub(super) fn tolerations(pod: &Part, defects: &mut Defects) {
    let tolerations = items(&pod.value["tolerations"]);
    for taint in TAINTS.into_iter().filter(|_| pod.manifest.phase == Phase::Cluster) {
        if !tolerations.iter().any(|one| tolerates(one, taint)) {
            defects.add(pod.defect("/tolerations", format!("no toleration of the taint {}", taint.0)));
        }
    }
}

/// Whether the scheduler accepts a toleration for a taint with the effect `NoSchedule`.
fn tolerates(toleration: &Value, (key, value): (&str, &str)) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key_matches = text("key") == key || (text("key").is_empty() && text("operator") == "Exists");
    key_matches
        && matches!(text("effect"), "" | "NoSchedule")
        && (text("operator") == "Exists" || text("value") == value)
}

pub(super) fn host_paths(pod: &Part, defects: &mut Defects) {
    let is_allowed = |path: &str| pod.manifest.phase == Phase::Bootstrap && BOOTSTRAP_HOST_PATHS.contains(&path);
    for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
        if let Some(path) = volume["hostPath"]["path"].as_str().filter(|path| !is_allowed(path)) {
            defects.add(pod.defect(&format!("/volumes/{index}/hostPath/path"), format!("hostPath {}", brief(path))));
        }
    }
}

pub(super) fn static_pods(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let (kind, namespace) = (manifest.object.kind().kind, manifest.object.namespace());
    if manifest.phase == Phase::Bootstrap && kind != "Pod" {
        defects.add(manifest.defect("/kind", format!("a {kind} in bootstrap/")));
    } else if manifest.phase == Phase::Bootstrap && namespace != KUBE_SYSTEM {
        let what = format!("the static Pod is in namespace {namespace}, not in kube-system");
        defects.add(manifest.defect("/metadata/namespace", what));
    }
}
