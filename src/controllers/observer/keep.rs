//! What is kept of watched objects (pure): no data of Secrets, and of nodes and Events two fields.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::Id;
use crate::{
    object::reference::{self, Reference, SECRET},
    plan::upstream::sources::{Checks, Source},
};

/// Removes from an object what is not read, before anything else sees it.
pub(super) fn only_what_is_read(id: &Id, object: &mut DynamicObject, checks: &BTreeMap<Reference, Checks>) {
    match id {
        Id::Named(reference) => match checks.get(reference) {
            Some(checks) => source(object, reference, checks),
            None if reference.kind == &SECRET => digest(object),
            None => {}
        },
        Id::Nodes => node_info(object),
        Id::Deletions => node_of_event(object),
        _ => {}
    }
}

/// Replaces the data of a ConfigMap or Secret that a `CloudControllerManager` names.
fn source(object: &mut DynamicObject, reference: &Reference, checks: &Checks) {
    let source = Source::of(&object.data, reference, checks);
    object.data = serde_json::to_value(source).unwrap_or_default();
    object.metadata.annotations = None;
}

/// Keeps of a node what is read of it.
fn node_info(node: &mut DynamicObject) {
    let info = &node.data["status"]["nodeInfo"];
    node.data = json!({"status": {"nodeInfo": {"kubeletVersion": info["kubeletVersion"], "osImage": info["osImage"]}}});
    (node.metadata.annotations, node.metadata.managed_fields) = (None, None);
}

/// The field that replaces the data of a Secret.
pub(super) const DIGEST: &str = "digest";

/// Replaces the data of a Secret by its digest.
fn digest(secret: &mut DynamicObject) {
    secret.data = json!({DIGEST: reference::digest(&secret.data)});
    // Annotations may repeat the data.
    secret.metadata.annotations = None;
}

/// The longest name of a node.
const LONGEST_NAME: usize = 253;

/// Keeps of an Event what is read of it.
fn node_of_event(event: &mut DynamicObject) {
    let (node, last) = (&event.data["involvedObject"]["name"], &event.data["lastTimestamp"]);
    // Nobody checks what an Event is about.
    let is_name = node.as_str().is_some_and(|name| name.len() <= LONGEST_NAME);
    let node = if is_name { node } else { &Value::Null };
    event.data = json!({"node": node, "lastTimestamp": last});
    (event.metadata.annotations, event.metadata.managed_fields) = (None, None);
}
