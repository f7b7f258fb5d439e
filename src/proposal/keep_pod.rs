//! The fields of the pods, their account and further containers of an existing cloud-controller-manager (pure).

use serde_json::Value;

use super::{
    existing::{Existing, text},
    keep_arguments::loss,
    keep_place::is_control_plane,
    proposed::{Handling, ProposedCcm},
};
use crate::{object::items, provider::kubernetes::KubernetesProvider};

/// Fields that the operator's pods do not have, each with the effect of losing it.
const FIELDS: [(&str, Handling, &str); 4] = [
    (
        "hostAliases",
        Handling::NotKept,
        "the pods ask only the DNS servers of their machine, which have to know these names, such as that of the cloud's API",
    ),
    (
        "dnsConfig",
        Handling::NotKept,
        "the pods ask only the DNS servers of their machine, which have to know the cloud's API",
    ),
    ("topologySpreadConstraints", Handling::Changed, "the pods run on different nodes"),
    ("runtimeClassName", Handling::Changed, "the pods use the default runtime of their node"),
];

/// The beginnings of annotations that give a ServiceAccount an identity in a cloud.
const IDENTITIES: [&str; 3] = ["azure.workload.identity/", "eks.amazonaws.com/", "iam.gke.io/"];

/// The beginning of annotations of an installation.
const OF_HELM: &str = "meta.helm.sh/";

/// Reports the fields of the pods.
pub(super) fn fields(proposed: &mut ProposedCcm, existing: &Existing) {
    let pod = &existing.pod;
    common_fields(proposed, pod, "");
    // On the network of the host, ClusterFirst is Default.
    let is_default = match text(&pod["dnsPolicy"]).as_str() {
        // With None, dnsConfig is reported.
        "" | "Default" | "None" => true,
        "ClusterFirst" => existing.is_on_host(),
        _ => false,
    };
    if !is_default {
        let how = "the pods ask the DNS servers of their machine: before nodes are initialized, the cluster has no DNS";
        proposed.note(Handling::Changed, format!("dnsPolicy {}", text(&pod["dnsPolicy"])), how);
    }
    if !is_usual(&pod["affinity"]) {
        let how = "the pods run on the control plane; spec.placement.nodeSelector chooses among its nodes";
        proposed.note(Handling::Changed, "affinity", how);
    }
}

/// Reports the fields of a pod that do not depend on its program. `of` ends what is reported.
pub(super) fn common_fields(proposed: &mut ProposedCcm, pod: &Value, of: &str) {
    let is_given = |value: &Value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        other => !other.is_null(),
    };
    for (field, result, how) in FIELDS.into_iter().filter(|(field, ..)| is_given(&pod[*field])) {
        proposed.note(result, format!("{field}{of}"), how);
    }
}

/// Whether an affinity only selects the control plane or spreads the pods, as that of the operator's pods does.
fn is_usual(affinity: &Value) -> bool {
    let node = &affinity["nodeAffinity"];
    let required = items(&node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]).iter();
    let preferred = items(&node["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
    let terms = required.chain(preferred.map(|one| &one["preference"]));
    let mut rules = terms.flat_map(|term| items(&term["matchExpressions"]).iter().chain(items(&term["matchFields"])));
    let selects = |operator: &Value| ["Exists", "In"].iter().any(|one| operator == one);
    affinity["podAffinity"].is_null()
        && rules.all(|rule| rule["key"].as_str().is_some_and(is_control_plane) && selects(&rule["operator"]))
}

/// Reports the containers beside that of the program. `of` ends what is reported.
pub(super) fn containers(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider, of: &str) {
    for other in items(&existing.pod["initContainers"]) {
        let name = text(&other["name"]);
        let how = format!("the pods have none, and lack what it prepares{}", loss(provider, &name));
        proposed.note(Handling::NotKept, format!("init container {name}{of}"), how);
    }
    for other in items(&existing.pod["containers"]).iter().filter(|other| other["name"] != existing.container["name"]) {
        let name = text(&other["name"]);
        let how = format!("the pods have one container{}", loss(provider, &name));
        proposed.note(Handling::NotKept, format!("container {name}{of}"), how);
    }
}

/// Reports the annotations of the account.
pub(crate) fn account(proposed: &mut ProposedCcm, account: &Value) {
    let metadata = &account["metadata"];
    let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    let annotations = metadata["annotations"].as_object().into_iter().flatten().map(|(key, _)| key);
    for annotation in annotations.filter(|annotation| !annotation.starts_with(OF_HELM)) {
        let (result, how) = if IDENTITIES.iter().any(|begin| annotation.starts_with(begin)) {
            let how = "the new pods do not have this identity in the cloud: their machines, or credentials, need its permissions there";
            (Handling::NotKept, how)
        } else {
            (Handling::Changed, "the new ServiceAccount does not have it")
        };
        proposed.note(result, format!("annotation {annotation} of ServiceAccount {name}"), how);
    }
}
