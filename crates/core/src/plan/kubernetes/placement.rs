//! The placement and the number of the pods of a `CloudControllerManager` (pure).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::pod_mut;
use crate::{
    api::placement::Toleration,
    facts::ccm::Ccm,
    object::{self, Object},
    plan::Error,
    provider::kubernetes::{CONTROL_PLANE_LABEL, ProviderImage},
};

/// The node architectures that Kubernetes supports and clouds offer.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Returns the replicas of a Deployment: as requested, or else two, or one if there is only one node.
pub(super) fn replicas(ccm: &Ccm) -> u8 {
    ccm.spec.placement.replicas.unwrap_or(if ccm.cluster.control_plane_nodes == 1 { 1 } else { 2 })
}

/// Sets where the pods run.
pub(super) fn place<'a>(
    object: &mut Object,
    ccm: &Ccm,
    images: impl Iterator<Item = &'a ProviderImage>,
) -> Result<(), Error> {
    if object.kind().kind == "Deployment" {
        let shape = Error::Shape { object: object.key().to_string(), field: "spec" };
        *object::place(object.value_mut(), &["spec", "replicas"]).ok_or(shape)? = replicas(ccm).into();
    }
    let Some(pod) = pod_mut(object) else { return Ok(()) };
    let placement = &ccm.spec.placement;
    if ccm.cluster.control_plane_nodes == 0
        && let Some(Value::Object(affinity)) = pod.get_mut("affinity")
    {
        let requires_control_plane =
            affinity.get("nodeAffinity").is_some_and(|node| node.to_string().contains(CONTROL_PLANE_LABEL));
        if requires_control_plane {
            affinity.remove("nodeAffinity");
        }
        if affinity.is_empty() {
            pod.remove("affinity");
        }
    }
    let tolerations = placement.tolerations.iter().map(toleration);
    if let Some(list) = pod.get_mut("tolerations").and_then(Value::as_array_mut) {
        list.extend(tolerations);
    }
    let mut selector = placement.node_selector.clone();
    if let Some(only) = only_architecture(images) {
        selector.entry("kubernetes.io/arch".to_owned()).or_insert(only);
    }
    if !selector.is_empty() {
        pod.insert("nodeSelector".into(), json!(selector));
    }
    Ok(())
}

/// Returns the common architecture of all images if there is only one: on other nodes, the pods would not start.
fn only_architecture<'a>(images: impl Iterator<Item = &'a ProviderImage>) -> Option<String> {
    let mut common: BTreeSet<&str> = ARCHITECTURES.into_iter().collect();
    for image in images {
        common.retain(|one| image.architectures.iter().any(|built| built == one));
    }
    let mut common = common.into_iter();
    common.next().filter(|_| common.next().is_none()).map(str::to_owned)
}

/// Returns a toleration without empty fields.
fn toleration(given: &Toleration) -> Value {
    let mut toleration = json!(given);
    if let Some(fields) = toleration.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && value != "");
    }
    toleration
}
