//! The image, the ports and the placement of an existing cloud-controller-manager (pure).

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{
    existing::Existing,
    proposed::{Handling, ProposedCcm},
};
use crate::{
    facts::version::Minor,
    object::{Object, items},
    provider::{
        CCM,
        kubernetes::{CONTROL_PLANE_LABEL, KubernetesProvider},
        repository_and_tag,
        versions::numbers,
    },
};

/// The label of the control plane before Kubernetes 1.20.
const OLD_CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/master";

/// Reports the change of the image, and keeps its registry.
pub(super) fn image(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider, minor: Minor) {
    let Some(ours) = provider.descriptor.images.get(CCM) else { return };
    let (repository, tag) = repository_and_tag(&existing.image);
    let tag = tag.unwrap_or("latest");
    let path = ours.repository.split_once('/').map_or(ours.repository.as_str(), |(_, path)| path);
    let is_ours = repository == ours.repository || ours.repository == format!("docker.io/{repository}");
    let chosen = ours.versions.choose(minor).map(|choice| choice.tag);
    let mut how = match &chosen {
        Some(chosen) if chosen == tag => format!("{chosen}, the tag for Kubernetes {minor}"),
        Some(chosen) => {
            let order = order(tag, chosen).map(|order| format!(", {order} version")).unwrap_or_default();
            format!("{chosen}{order}, the tag for Kubernetes {minor}; spec.image.version names another one")
        }
        None => "a tag that you name in spec.image.version".to_owned(),
    };
    if let Some(mirror) = repository.strip_suffix(&format!("/{path}")).filter(|_| !is_ours) {
        proposed.set("image.registryMirror", mirror);
        how = format!("spec.image.registryMirror, and {how}");
    } else if !is_ours {
        how = format!("{}, and {how}; for a copy of your own set spec.image.repository", ours.repository);
    }
    let result = if is_ours && chosen.as_deref() == Some(tag) { Handling::Kept } else { Handling::Changed };
    proposed.note(result, format!("image {}", existing.image), how);
    let secrets: Vec<_> =
        items(&existing.pod["imagePullSecrets"]).iter().map(|one| json!({"name": one["name"]})).collect();
    let namespace = proposed.namespace();
    if !secrets.is_empty() && namespace != existing.namespace {
        let how = format!("create them in the namespace {namespace}, and name them in spec.image.pullSecrets");
        proposed.note(Handling::ToDo, "imagePullSecrets", how);
    } else if !secrets.is_empty() {
        proposed.set("image.pullSecrets", secrets);
    }
}

/// Returns how the second of two versions compares to the first: `a lower` or `a higher`, if both are numbers with dots.
fn order(before: &str, after: &str) -> Option<&'static str> {
    match numbers(after)?.cmp(&numbers(before)?) {
        Ordering::Less => Some("a lower"),
        Ordering::Greater => Some("a higher"),
        Ordering::Equal => None,
    }
}

/// Reports further ports of the host, such as one for metrics.
pub(super) fn ports(proposed: &mut ProposedCcm, existing: &Existing) {
    let ports = items(&existing.container["ports"]);
    for port in ports.iter().filter(|port| port["containerPort"] != existing.port()) {
        let name = port["name"].as_str().map(|name| format!(" ({name})")).unwrap_or_default();
        let how = "nothing listens there: spec.ports.secure serves health and metrics, over HTTPS and to accounts that may read them";
        proposed.note(Handling::Changed, format!("port {}{name}", port["containerPort"]), how);
    }
}

/// Reports the node manager of nodes with Windows. Only Helm deletes it, with the rest of the release.
pub(crate) fn windows(proposed: &mut ProposedCcm, manager: &Existing) {
    let what = format!("{}, the node manager of nodes with Windows", manager.key());
    if manager.fits_no_node {
        proposed.note(Handling::Unused, what, "there is no such node");
    } else if manager.helm.is_some() {
        let how = "helm uninstall deletes it, and nothing initializes new nodes with Windows: write its manifest to a file before, and \
                   apply it again afterwards, with its ServiceAccount and permissions";
        proposed.note(Handling::NotKept, what, how);
    } else {
        proposed.note(
            Handling::Kept,
            what,
            "it stays, because the operator has none: it acts on the nodes of its own pods only",
        );
    }
}

/// Whether a label is that of the control plane.
pub(super) fn is_control_plane(label: &str) -> bool {
    [CONTROL_PLANE_LABEL, OLD_CONTROL_PLANE_LABEL].contains(&label)
}

/// Keeps the placement of the pods.
pub(super) fn placement(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    let mut selector = existing.pod["nodeSelector"].as_object().cloned().unwrap_or_default();
    selector.retain(|key, _| !is_control_plane(key) && key != "kubernetes.io/os");
    if !selector.is_empty() {
        let how = "spec.placement.nodeSelector, besides the label of the control plane";
        proposed.note(Handling::Kept, "nodeSelector", how);
        proposed.set("placement.nodeSelector", selector);
    }
    let pods = || provider.manifests.iter().filter_map(Object::pod_spec);
    let is_covered = |one: &Value| pods().flat_map(|pod| items(&pod["tolerations"])).any(|other| covers(other, one));
    let given = items(&existing.pod["tolerations"]).iter().filter(|one| one["tolerationSeconds"].is_null());
    let further: Vec<Value> = given.filter(|one| !is_covered(one)).map(toleration).collect();
    if !further.is_empty() {
        proposed.note(Handling::Kept, format!("{} tolerations", further.len()), "spec.placement.tolerations");
        proposed.set("placement.tolerations", further);
    }
    if !existing.is_on_host() {
        let how = "the network of the host, which needs no network plugin";
        proposed.note(Handling::Changed, "pods with a network of their own", how);
    }
}

/// Whether a toleration covers another one.
fn covers(one: &Value, other: &Value) -> bool {
    let same = |field: &str| one[field] == other[field];
    same("key")
        && (one["operator"] == "Exists" || (same("operator") && same("value")))
        && (one["effect"].is_null() || same("effect"))
}

/// Returns a toleration with only the fields of the specification.
fn toleration(given: &Value) -> Value {
    let is_given = |field: &&str| given[*field].as_str().is_some_and(|text| !text.is_empty());
    let fields = ["key", "operator", "value", "effect"].into_iter().filter(is_given);
    fields.map(|field| (field, given[field].clone())).collect()
}
