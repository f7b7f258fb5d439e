//! Who owns which fields of an object, read from `metadata.managedFields` (pure).
//!
//! Answers the two questions of the apply engine without asking the API server: does a live object still hold what we
//! applied, all of it and nothing of ours besides; and which fields of others have to become ours, because a forced
//! apply alone does not take away what somebody else's update has added.
//!
//! A field set is what the API server calls `FieldsV1`: a tree of `f:<field>`, `k:<key fields of a list item>`,
//! `v:<value of a set>` and `.` for the node itself.

use serde_json::{Map, Value, json};

pub mod preview;

/// Our field manager.
pub const FIELD_MANAGER: &str = "ccm-operator";

/// The roots that are ours whole: what anybody else has put there by update goes.
const OWNED_ROOTS: [&str; 5] = ["f:spec", "f:data", "f:binaryData", "f:rules", "f:subjects"];

/// The field managers of the Go operator; what they left anywhere is ours to keep or to drop.
const PREDECESSORS: [&str; 2] = ["cluster-controller-manager-operator", "config-sync-controllers"];

/// What a live object needs, to be what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it holds what was applied.
    Nothing,
    /// One apply.
    Apply,
    /// Others' fields have to become ours first, then one apply removes them.
    FoldThenApply,
}

/// What a live object needs. Both are whole objects; the live one with its managed fields.
pub fn need(desired: &Value, live: &Value) -> Need {
    if is_wiped(live) {
        return Need::FoldThenApply;
    }
    if foreign_entries(live).any(|entry| owns_more(&foldable(entry), desired)) {
        return Need::FoldThenApply;
    }
    match managed_fields(live).iter().find(|entry| is_ours(entry)) {
        Some(ours) if holds(&ours["fieldsV1"], &without_identity(desired), live) => Need::Nothing,
        _ => Need::Apply,
    }
}

/// The managed fields with everything that we take over moved into our entry; guarded by the caller.
pub fn fold(live: &Value) -> Value {
    let (mut ours, mut others) = (Map::new(), Vec::new());
    let mut entry_of_ours = None;
    for entry in managed_fields(live) {
        if is_ours(entry) {
            merge(&mut ours, &entry["fieldsV1"]);
            entry_of_ours = Some(entry);
            continue;
        }
        let taken = if is_foreign_update(entry) { foldable(entry) } else { Map::new() };
        merge(&mut ours, &Value::Object(taken.clone()));
        let mut rest = entry.clone();
        if let Some(fields) = rest["fieldsV1"].as_object_mut() {
            taken.keys().for_each(|root| drop(fields.remove(root)));
        }
        if rest["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()) {
            others.push(rest);
        }
    }
    let entry = entry_of_ours.cloned().unwrap_or_else(|| {
        json!({
            "manager": FIELD_MANAGER,
            "operation": "Apply",
            "apiVersion": live["apiVersion"],
            "fieldsType": "FieldsV1",
        })
    });
    let mut entry = entry;
    entry["fieldsV1"] = Value::Object(ours);
    others.insert(0, entry);
    Value::Array(others)
}

/// Whether nobody's fields are noted any more: somebody has wiped the managed fields. The next apply would note everything
/// that is there as `before-first-apply`'s.
pub fn is_wiped(live: &Value) -> bool {
    managed_fields(live).is_empty()
}

/// What an apply holds that changes nothing: as a dry run it makes the server note whose the fields of a wiped object are,
/// also when an apply of the whole would be refused for what somebody has added.
pub fn bare(desired: &Value) -> Value {
    let metadata = ["name", "namespace"].into_iter().filter_map(|field| {
        let value = desired["metadata"].get(field)?;
        Some((field.to_owned(), value.clone()))
    });
    let metadata: Map<_, _> = metadata.collect();
    json!({"apiVersion": desired["apiVersion"], "kind": desired["kind"], "metadata": metadata})
}

/// Whether we have applied an object.
pub fn is_applied_by_us(live: &Value) -> bool {
    managed_fields(live).iter().any(is_ours)
}

/// Whether the answer to an apply is that of an object which this apply has made: nobody else has ever written it, and
/// we only at the time of its creation.
pub fn is_new(applied: &Value) -> bool {
    let [entry] = managed_fields(applied) else { return false };
    is_ours(entry) && entry["time"] == applied["metadata"]["creationTimestamp"]
}

/// Who has last changed an object, other than we and other than by its status.
pub fn last_foreign_manager(live: &Value) -> Option<&str> {
    let others = managed_fields(live).iter().filter(|entry| !is_ours(entry) && has_no_subresource(entry));
    others.max_by_key(|entry| entry["time"].as_str())?["manager"].as_str()
}

fn managed_fields(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" && has_no_subresource(entry)
}

fn is_foreign_update(entry: &Value) -> bool {
    entry["operation"] == "Update" && has_no_subresource(entry)
}

fn has_no_subresource(entry: &Value) -> bool {
    entry["subresource"].as_str().is_none_or(str::is_empty)
}

fn foreign_entries(object: &Value) -> impl Iterator<Item = &Value> {
    managed_fields(object).iter().filter(|entry| is_foreign_update(entry))
}

/// The part of a foreign entry that we take over.
fn foldable(entry: &Value) -> Map<String, Value> {
    let predecessor = entry["manager"].as_str().is_some_and(|manager| PREDECESSORS.contains(&manager));
    let fields = entry["fieldsV1"].as_object().into_iter().flatten();
    fields
        .filter(|(root, _)| predecessor || OWNED_ROOTS.contains(&root.as_str()))
        .map(|(root, fields)| (root.clone(), fields.clone()))
        .collect()
}

/// Whether a field set has a field that the desired object has not.
fn owns_more(fields: &Map<String, Value>, desired: &Value) -> bool {
    fields.iter().any(|(path, children)| match child(desired, path) {
        Child::Node => false,
        Child::Absent => true,
        Child::Value(value) => children.as_object().is_some_and(|children| owns_more(children, value)),
    })
}

/// Whether our field set and the live values are exactly those of the desired object, or of a part of it.
fn holds(fields: &Value, desired: &Value, live: &Value) -> bool {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        // A leaf, or a list or map that is owned as one: defaults inside it are the server's.
        return covers(desired, live);
    };
    if fields.iter().any(|(path, _)| matches!(child(desired, path), Child::Absent)) {
        return false;
    }
    match desired {
        Value::Object(members) => members.iter().all(|(name, value)| {
            fields
                .get(&format!("f:{name}"))
                .zip(live.get(name))
                .is_some_and(|(fields, live)| holds(fields, value, live))
        }),
        Value::Array(items) => items.iter().all(|item| {
            let owned = fields.iter().find(|(path, _)| path_matches(path, item));
            let live = owned.and_then(|(path, _)| live.as_array()?.iter().find(|live| path_matches(path, live)));
            owned.zip(live).is_some_and(|((_, fields), live)| holds(fields, item, live))
        }),
        scalar => scalar == live,
    }
}

/// Whether a live value holds all that is desired; it may hold more in maps.
fn covers(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            desired.iter().all(|(name, value)| live.get(name).is_some_and(|live| covers(value, live)))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| covers(desired, live))
        }
        _ => desired == live,
    }
}

/// What a path element of a field set leads to.
enum Child<'a> {
    /// `.`, the node itself.
    Node,
    /// Nothing.
    Absent,
    /// This value.
    Value(&'a Value),
}

fn child<'a>(value: &'a Value, path: &str) -> Child<'a> {
    if path == "." {
        return Child::Node;
    }
    let found = match path.strip_prefix("f:") {
        Some(field) => value.get(field),
        None => value.as_array().and_then(|items| items.iter().find(|item| path_matches(path, item))),
    };
    found.map_or(Child::Absent, Child::Value)
}

/// Whether a list item is the one that `k:{…}` or `v:…` names. A key field that the item leaves out is one that the
/// server has filled in, such as a port's protocol.
fn path_matches(path: &str, item: &Value) -> bool {
    let parse = |json| serde_json::from_str::<Value>(json).ok();
    if let Some(keys) = path.strip_prefix("k:").and_then(parse) {
        return keys.as_object().is_some_and(|keys| {
            keys.iter().all(|(name, key)| item.get(name).is_none_or(|value| value == key))
                && keys.keys().any(|name| item.get(name).is_some())
        });
    }
    path.strip_prefix("v:").and_then(parse).is_some_and(|value| value == *item)
}

/// Adds a field set to another.
fn merge(into: &mut Map<String, Value>, from: &Value) {
    for (path, children) in from.as_object().into_iter().flatten() {
        match into.get_mut(path).and_then(Value::as_object_mut) {
            Some(existing) => merge(existing, children),
            None => drop(into.insert(path.clone(), children.clone())),
        }
    }
}

/// An object without what field sets leave out: its kind and its name.
fn without_identity(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
            metadata.remove("namespace");
            if metadata.is_empty() {
                members.remove("metadata");
            }
        }
    }
    object
}

#[cfg(test)]
mod tests;
