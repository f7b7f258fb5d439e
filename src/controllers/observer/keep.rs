//! The kept fields of watched objects (pure): no data of Secrets, and only those fields of nodes and Events that are read.

use std::collections::BTreeMap;

use kube::api::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};

use super::Id;
use crate::{
    apply::ownership,
    cluster::request,
    nodes::{evidence::NodeEvent, guard, node::Node},
    object::reference::{self, Reference, SECRET},
    plan::kubernetes::sources::{Checkers, Source},
};

/// Removes the fields of an object that are not read, before anything else sees it.
pub(super) fn only_what_is_read(id: &Id, object: &mut DynamicObject, checks: &BTreeMap<Reference, Checkers>) {
    match id {
        Id::Named(reference) => match checks.get(reference) {
            Some(checks) => source(object, reference, checks),
            None if reference.kind == &SECRET => digest(object),
            None => {}
        },
        Id::Nodes => node(object),
        Id::RefusedDeletions => refusal(object),
        _ => {}
    }
    let entries = object.metadata.managed_fields.iter_mut().flatten();
    entries.filter_map(|entry| entry.fields_v1.as_mut()).for_each(|fields| ownership::compact(&mut fields.0));
}

/// The response to a write, as the same object arrives by its watch.
pub(super) fn response(mut live: Value) -> Value {
    let entries = live.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    let fields = entries.into_iter().flatten().filter_map(|entry| entry.get_mut("fieldsV1"));
    fields.for_each(ownership::compact);
    live
}

/// Replaces the data of a ConfigMap or Secret that a `CloudControllerManager` names.
fn source(object: &mut DynamicObject, reference: &Reference, checks: &Checkers) {
    let source = Source::of(&request::to_value(object), reference, checks);
    object.data = serde_json::to_value(source).unwrap_or_default();
    object.metadata.annotations = None;
}

const NODE_TEXT: &str = "node";

pub(super) fn kept_node(kept: &Value) -> Option<Node> {
    serde_json::from_str(kept[NODE_TEXT].as_str()?).ok()
}

/// Keeps only the fields of a node that are read. They exclude the resource version and the fields that change with each heartbeat.
fn node(node: &mut DynamicObject) {
    let kept = Node::of(&request::to_value(node));
    let name = node.metadata.name.take();
    node.types = None;
    node.metadata = ObjectMeta { name, ..ObjectMeta::default() };
    // Stored as text, because there may be thousands of nodes, and a JSON object takes more memory than its text.
    node.data = json!({NODE_TEXT: serde_json::to_string(&kept).unwrap_or_default()});
}

pub(super) const DIGEST: &str = "digest";

/// Replaces the data of a Secret with its digest.
fn digest(secret: &mut DynamicObject) {
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    secret.data = json!({DIGEST: reference::secret_digest(&secret.data, uid)});
    // Annotations may repeat the data.
    secret.metadata.annotations = None;
}

/// The longest text of an Event that is kept: names of nodes and refusals are shorter.
const LONGEST_TEXT: usize = 1024;

/// Keeps only the fields of an Event that the guard reads, and no content of other Events. The content of an Event is untrusted.
fn refusal(event: &mut DynamicObject) {
    let kept = NodeEvent::of(&request::to_value(event));
    let is_short = [&kept.node, &kept.uid, &kept.message].iter().all(|text| text.len() <= LONGEST_TEXT);
    let is_read = kept.reason == guard::REFUSED && kept.component == guard::COMPONENT && is_short;
    let (name, resource_version) = (event.metadata.name.take(), event.metadata.resource_version.take());
    event.types = None;
    event.metadata = ObjectMeta { name, resource_version, ..ObjectMeta::default() };
    event.data = if is_read { serde_json::to_value(kept).unwrap_or_default() } else { json!({}) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_secret_a_digest_is_kept_that_only_its_readers_can_check() {
        let reference = Reference { kind: &SECRET, namespace: "a".into(), name: "s".into() };
        let checks = BTreeMap::from([(reference.clone(), Checkers::new())]);
        let id = Id::Named(reference);
        let kept = |uid: &str, checks: &BTreeMap<Reference, Checkers>| {
            let mut secret: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "namespace": "a", "uid": uid}, "data": {"password": "cGFzcw=="},
            }))
            .unwrap();
            only_what_is_read(&id, &mut secret, checks);
            assert!(!secret.data.to_string().contains("cGFzcw=="));
            secret.data[DIGEST].as_str().unwrap().to_owned()
        };
        for checks in [&checks, &BTreeMap::new()] {
            assert_ne!(kept("1", checks), kept("2", checks));
            assert_eq!(kept("1", checks), kept("1", checks));
        }
    }

    #[test]
    fn of_an_event_only_what_is_read_is_kept_whatever_stands_in_it() {
        let long = "x".repeat(LONGEST_TEXT + 1);
        let event = |reason: &str, uid: &str| {
            let mut event: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": "a.1", "namespace": "default", "resourceVersion": "7", "labels": {"x": long},
                    "annotations": {"x": long}, "finalizers": [long], "generateName": long,
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": long, "uid": "u"}]},
                "involvedObject": {"kind": "Node", "name": "a", "uid": uid}, "reason": reason, "message": "m",
                "source": {"component": guard::COMPONENT}, "note": long,
            }))
            .unwrap();
            refusal(&mut event);
            request::to_value(&event)
        };
        let good = event(guard::REFUSED, "u");
        assert_eq!(good["metadata"], json!({"name": "a.1", "resourceVersion": "7"}));
        assert_eq!(good["uid"], "u");
        assert!(good.to_string().len() < 300, "{good}");
        for other in [event(&long, "u"), event(guard::REFUSED, &long)] {
            assert_eq!(other, json!({"metadata": {"name": "a.1", "resourceVersion": "7"}}));
        }
    }
}
