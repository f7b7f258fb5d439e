//! Rules about pods: their nodes, volumes and priority (pure).

use serde_json::Value;

use crate::provider::{
    Phase,
    verify::{
        Violation,
        parts::{BOOTSTRAP_SECRETS, Part, Subject, items},
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

/// Folders that the installer prepares on the bootstrap VM. A CCM needs none of a cluster's nodes.
const BOOTSTRAP_HOST_PATHS: [&str; 2] = [BOOTSTRAP_SECRETS, "/etc/kubernetes/bootstrap-configs"];

pub(super) fn replicas(subject: Subject) -> Vec<Violation> {
    let few = subject.deployments().filter_map(|pod| {
        // Kubernetes' default is one.
        let replicas = pod.manifest.object.value().pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let what = || format!("replicas is {replicas}, not 2 or more");
        (replicas < 2).then(|| pod.manifest.violation("/spec/replicas", what()))
    });
    few.collect()
}

pub(super) fn anti_affinity(subject: Subject) -> Vec<Violation> {
    let together = subject.deployments().filter(|pod| {
        let labels = &pod.manifest.object.value()["spec"]["template"]["metadata"]["labels"];
        let rules = &pod.value["affinity"]["podAntiAffinity"];
        let required = items(&rules["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = items(&rules["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        !required.chain(preferred.map(|term| &term["podAffinityTerm"])).any(|term| spreads(term, labels))
    });
    let what = "no podAntiAffinity over kubernetes.io/hostname matches the pod's own labels";
    together.map(|pod| pod.violation("/affinity/podAntiAffinity", what)).collect()
}

/// Whether an anti-affinity term keeps pods with these labels on different nodes.
fn spreads(term: &Value, labels: &Value) -> bool {
    let selected = term["labelSelector"]["matchLabels"].as_object();
    term["topologyKey"] == "kubernetes.io/hostname"
        && selected.is_some_and(|selected| selected.iter().all(|(key, value)| labels[key] == *value))
}

pub(super) fn priority_class(subject: Subject) -> Vec<Violation> {
    let low = subject.pods().filter_map(|pod| {
        let class = pod.value["priorityClassName"].as_str().unwrap_or("missing");
        let allowed: &[&str] = match pod.kind() {
            "Deployment" => &["system-cluster-critical", "system-node-critical"],
            _ => &["system-node-critical"],
        };
        let what = || format!("priorityClassName is {class}, not {}", allowed.join(" or "));
        (!allowed.contains(&class)).then(|| pod.violation("/priorityClassName", what()))
    });
    low.collect()
}

pub(super) fn tolerations(subject: Subject) -> Vec<Violation> {
    let missing = |pod: Part<'_>| {
        let tolerations = items(&pod.value["tolerations"]);
        let repelling = TAINTS.into_iter().filter(|taint| !tolerations.iter().any(|one| tolerates(one, *taint)));
        let what = |(key, _)| pod.violation("/tolerations", format!("no toleration of the taint {key}"));
        repelling.map(what).collect::<Vec<_>>()
    };
    subject.pods_of(Phase::Cluster).flat_map(missing).collect()
}

/// Whether the scheduler accepts a toleration for a taint with the effect `NoSchedule`.
fn tolerates(toleration: &Value, (key, value): (&str, &str)) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key_matches = text("key") == key || (text("key").is_empty() && text("operator") == "Exists");
    key_matches
        && matches!(text("effect"), "" | "NoSchedule")
        && (text("operator") == "Exists" || text("value") == value)
}

pub(super) fn host_paths(subject: Subject) -> Vec<Violation> {
    let disallowed = |pod: Part<'_>| {
        let is_allowed = |path: &str| pod.manifest.phase == Phase::Bootstrap && BOOTSTRAP_HOST_PATHS.contains(&path);
        let volumes = items(&pod.value["volumes"]).iter().enumerate();
        let paths = volumes.filter_map(|(index, volume)| Some((index, volume["hostPath"]["path"].as_str()?)));
        let what =
            |(index, path)| pod.violation(&format!("/volumes/{index}/hostPath/path"), format!("hostPath {path}"));
        paths.filter(|(_, path)| !is_allowed(path)).map(what).collect::<Vec<_>>()
    };
    subject.pods().flat_map(disallowed).collect()
}
