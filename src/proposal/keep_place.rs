//! The image, the placement and the volumes of an existing cloud-controller-manager (pure).

use serde_json::{Value, json};

use super::{
    existing::{Existing, text},
    proposed::{Handling, ProposedCcm},
};
use crate::{
    object::{Object, items},
    provider::{
        CCM,
        kubernetes::{CONTROL_PLANE_LABEL, KubernetesProvider},
    },
};

/// The label of the control plane before Kubernetes 1.20.
const OLD_CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/master";

/// Reports the change of the image, and keeps its registry.
pub(super) fn image(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    let Some(ours) = provider.descriptor.images.get(CCM) else { return };
    let given = existing.image.split('@').next().unwrap_or_default();
    let repository = given.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(given, |(path, _)| path);
    let path = ours.repository.split_once('/').map_or(ours.repository.as_str(), |(_, path)| path);
    let is_ours = repository == ours.repository || ours.repository == format!("docker.io/{repository}");
    let mut how = "the tag for this version of Kubernetes; spec.image.version names another one".to_owned();
    if let Some(mirror) = repository.strip_suffix(&format!("/{path}")).filter(|_| !is_ours) {
        proposed.set("image.registryMirror", mirror);
        how = format!("spec.image.registryMirror, and {how}");
    } else if !is_ours {
        how = format!("{}, and {how}; for a copy of your own set spec.image.repository", ours.repository);
    }
    proposed.note(Handling::Changed, format!("image {}", existing.image), how);
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

/// Keeps the placement of the pods.
pub(super) fn placement(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    let is_control_plane = |key: &str| [CONTROL_PLANE_LABEL, OLD_CONTROL_PLANE_LABEL].contains(&key);
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

/// Reports host files that are no longer mounted, and additional containers.
pub(super) fn volumes(proposed: &mut ProposedCcm, existing: &Existing) {
    for volume in items(&existing.pod["volumes"]) {
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let is_of_certificates = path.contains("/ssl") || path.contains("/pki") || path.contains("ca-certificates");
            let how = if is_of_certificates {
                "the certificates of the image are used; others go into a ConfigMap, named in spec.trustBundle"
            } else {
                "no file of the machine is mounted"
            };
            proposed.note(Handling::NotKept, format!("hostPath {path}"), how);
        }
    }
    let ccm = existing.container();
    for other in items(&existing.pod["containers"]).iter().filter(|other| other["name"] != ccm["name"]) {
        proposed.note(Handling::NotKept, format!("container {}", text(&other["name"])), "the pods have one container");
    }
}
