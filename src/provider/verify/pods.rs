//! Rules about pods: their nodes, volumes and priority (pure).

use serde_json::Value;

use crate::{
    error::brief,
    provider::{
        Error, Phase,
        verify::parts::{BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG, BOOTSTRAP_SECRETS, Input, items, report},
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

/// Folders that the installer prepares on the bootstrap VM, and files in them. A CCM needs none of a cluster's nodes.
const BOOTSTRAP_HOST_PATHS: [&str; 4] =
    [BOOTSTRAP_SECRETS, BOOTSTRAP_KUBECONFIG, "/etc/kubernetes/bootstrap-configs", BOOTSTRAP_CONFIG];

pub(super) fn replicas(input: Input) -> Vec<Error> {
    let few = input.deployments().filter_map(|pod| {
        // Kubernetes' default is one.
        let replicas = pod.manifest.object.value().pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let what = || format!("replicas is {replicas}, not 2 or more");
        (replicas < 2).then(|| pod.manifest.defect("/spec/replicas", what()))
    });
    few.collect()
}

pub(super) fn anti_affinity(input: Input) -> Vec<Error> {
    report(input.deployments(), |pod| {
        let labels = &pod.manifest.object.value()["spec"]["template"]["metadata"]["labels"];
        let rules = &pod.value["affinity"]["podAntiAffinity"];
        let required = items(&rules["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = items(&rules["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        let mut terms = required.chain(preferred.map(|term| &term["podAffinityTerm"]));
        let what = "no podAntiAffinity over kubernetes.io/hostname matches the pod's own labels";
        (!terms.any(|term| spreads(term, labels))).then_some(("/affinity/podAntiAffinity", what))
    })
}

/// Whether an anti-affinity term keeps pods with these labels on different nodes.
fn spreads(term: &Value, labels: &Value) -> bool {
    let selected = term["labelSelector"]["matchLabels"].as_object();
    term["topologyKey"] == "kubernetes.io/hostname"
        && selected.is_some_and(|selected| selected.iter().all(|(key, value)| labels[key] == *value))
}

pub(super) fn priority_class(input: Input) -> Vec<Error> {
    report(input.pods(), |pod| {
        let class = pod.value["priorityClassName"].as_str().unwrap_or("missing");
        let allowed: &[&str] = match pod.kind() {
            "Deployment" => &["system-cluster-critical", "system-node-critical"],
            _ => &["system-node-critical"],
        };
        let what = || format!("priorityClassName is {}, not {}", brief(class), allowed.join(" or "));
        (!allowed.contains(&class)).then(|| ("/priorityClassName", what()))
    })
}

pub(super) fn tolerations(input: Input) -> Vec<Error> {
    report(input.pods_of(Phase::Cluster), |pod| {
        let tolerations = items(&pod.value["tolerations"]);
        let repelling = TAINTS.into_iter().filter(|taint| !tolerations.iter().any(|one| tolerates(one, *taint)));
        repelling.map(|(key, _)| ("/tolerations", format!("no toleration of the taint {key}")))
    })
}

/// Whether the scheduler accepts a toleration for a taint with the effect `NoSchedule`.
fn tolerates(toleration: &Value, (key, value): (&str, &str)) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key_matches = text("key") == key || (text("key").is_empty() && text("operator") == "Exists");
    key_matches
        && matches!(text("effect"), "" | "NoSchedule")
        && (text("operator") == "Exists" || text("value") == value)
}

pub(super) fn host_paths(input: Input) -> Vec<Error> {
    report(input.pods(), |pod| {
        let is_bootstrap = pod.manifest.phase == Phase::Bootstrap;
        let is_allowed = move |path: &str| is_bootstrap && BOOTSTRAP_HOST_PATHS.contains(&path);
        let volumes = items(&pod.value["volumes"]).iter().enumerate();
        let paths = volumes.filter_map(|(index, volume)| Some((index, volume["hostPath"]["path"].as_str()?)));
        let disallowed = paths.filter(move |(_, path)| !is_allowed(path));
        disallowed.map(|(index, path)| (format!("/volumes/{index}/hostPath/path"), format!("hostPath {}", brief(path))))
    })
}

pub(super) fn static_pods(input: Input) -> Vec<Error> {
    let others = input.manifests(Phase::Bootstrap).filter_map(|manifest| {
        let (kind, namespace) = (manifest.object.kind().kind, manifest.object.namespace());
        if kind != "Pod" {
            return Some(manifest.defect("/kind", format!("a {kind} in bootstrap/")));
        }
        let what = || format!("the static Pod is in namespace {namespace}, not in kube-system");
        (namespace != "kube-system").then(|| manifest.defect("/metadata/namespace", what()))
    });
    others.collect()
}
