//! Ownership of an object's fields, read from `metadata.managedFields` (pure).
//!
//! It answers two questions without a request. Does a live object still have exactly the fields that we applied? Which
//! other managers' fields must become ours, because even a forced apply keeps the fields that another manager added by
//! update?
//!
//! A field set (`FieldsV1` in the API) is a tree of `f:<field>`, `k:<key fields of a list item>`,
//! `v:<value of a set>` and `.` for the node itself.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

pub mod preview;

/// Our field manager.
pub const FIELD_MANAGER: &str = "ccm-operator";

/// The roots that we own entirely: other managers' updates to them are removed.
const OWNED_ROOTS: [&str; 5] = ["f:spec", "f:data", "f:binaryData", "f:rules", "f:subjects"];

/// The field managers of the Go operator. We take over all their fields.
const PREDECESSORS: [&str; 2] = ["cluster-controller-manager-operator", "config-sync-controllers"];

/// The writes that turn a live object into the planned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredWrites {
    /// No write: the object is as applied.
    Nothing,
    /// One apply.
    Apply,
    /// A migration that makes other managers' fields ours, so that the apply removes them.
    MigrateThenApply,
}

/// Returns the writes that turn a live object into the desired one. Both are complete; the live one includes its managed fields.
pub fn required_writes(desired: &Value, live: &Value) -> RequiredWrites {
    let entries = managed_fields(live);
    let adds = |entry: &Value| is_update_of_others(entry) && owns_more(&migratable(entry), desired);
    if is_wiped(live) || entries.iter().any(adds) {
        return RequiredWrites::MigrateThenApply;
    }
    match entries.iter().find(|entry| is_ours(entry)) {
        Some(ours) if holds(&fields(ours), &without_identity(desired), live) => RequiredWrites::Nothing,
        _ => RequiredWrites::Apply,
    }
}

/// Moves the fields that we take over into our entry, and returns all managed fields. The caller guards against conflicts.
pub fn migrate(live: &Value) -> Value {
    let (mut ours, mut others) = (Map::new(), Vec::new());
    let mut our_entry = json!({
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": live["apiVersion"],
        "fieldsType": "FieldsV1",
    });
    for entry in managed_fields(live) {
        if is_ours(entry) {
            merge(&mut ours, &fields(entry));
            our_entry.clone_from(entry);
            continue;
        }
        let taken = if is_update_of_others(entry) { migratable(entry) } else { Map::new() };
        merge(&mut ours, &Value::Object(taken.clone()));
        let mut rest = fields(entry).into_owned();
        if let Some(fields) = rest.as_object_mut() {
            taken.keys().for_each(|root| drop(fields.remove(root)));
        }
        if rest.as_object().is_some_and(|fields| !fields.is_empty()) {
            let mut entry = entry.clone();
            entry["fieldsV1"] = rest;
            others.push(entry);
        }
    }
    our_entry["fieldsV1"] = Value::Object(ours);
    others.insert(0, our_entry);
    Value::Array(others)
}

/// Whether the managed fields were wiped. The next apply would assign all existing fields to `before-first-apply`.
pub fn is_wiped(live: &Value) -> bool {
    managed_fields(live).is_empty()
}

/// Returns an apply that changes nothing. Its dry run makes the API server assign the fields of a wiped object to managers,
/// even if other managers' fields would make it refuse the whole object.
pub fn bare(desired: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace"] {
        metadata.extend(desired["metadata"].get(field).map(|value| (field.to_owned(), value.clone())));
    }
    json!({"apiVersion": desired["apiVersion"], "kind": desired["kind"], "metadata": metadata})
}

/// Whether another manager owns this label of an object.
pub fn is_label_of_others(live: &Value, label: &str) -> bool {
    let field = format!("f:{label}");
    let owns = |entry: &&Value| !fields(entry)["f:metadata"]["f:labels"][&field].is_null();
    managed_fields(live).iter().filter(owns).any(|entry| !is_ours(entry))
}

/// Whether we have applied an object.
pub fn is_applied_by_us(live: &Value) -> bool {
    managed_fields(live).iter().any(is_ours)
}

/// Whether the apply created the object: only we have written it, and not after its creation. The API server records the
/// time of the write first, so the creation may be a second later.
pub fn is_new(applied: &Value) -> bool {
    let [entry] = managed_fields(applied) else { return false };
    let (written, created) = (entry["time"].as_str(), applied["metadata"]["creationTimestamp"].as_str());
    is_ours(entry) && written.zip(created).is_some_and(|(written, created)| written <= created)
}

/// Returns the last other manager that changed an object. Ignores changes to its status.
pub fn last_other_manager(live: &Value) -> Option<&str> {
    let others = managed_fields(live).iter().filter(|entry| !is_ours(entry) && has_no_subresource(entry));
    others.max_by_key(|entry| entry["time"].as_str())?["manager"].as_str()
}

/// Replaces a field set by its text, which takes a twentieth of its memory. Everything in this module reads both.
pub fn compact(fields: &mut Value) {
    if fields.is_object() {
        *fields = Value::String(fields.to_string());
    }
}

/// Returns the field set of an entry.
fn fields(entry: &Value) -> Cow<'_, Value> {
    match &entry["fieldsV1"] {
        Value::String(text) => Cow::Owned(serde_json::from_str(text).unwrap_or_default()),
        fields => Cow::Borrowed(fields),
    }
}

fn managed_fields(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map_or(&[], Vec::as_slice)
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" && has_no_subresource(entry)
}

fn is_update_of_others(entry: &Value) -> bool {
    entry["operation"] == "Update" && has_no_subresource(entry)
}

fn has_no_subresource(entry: &Value) -> bool {
    entry["subresource"].as_str().is_none_or(str::is_empty)
}

/// Returns the part of another manager's entry that we take over.
fn migratable(entry: &Value) -> Map<String, Value> {
    let predecessor = entry["manager"].as_str().is_some_and(|manager| PREDECESSORS.contains(&manager));
    let fields = fields(entry);
    let roots = fields.as_object().into_iter().flatten();
    roots
        .filter(|(root, _)| predecessor || OWNED_ROOTS.contains(&root.as_str()))
        .map(|(root, fields)| (root.clone(), fields.clone()))
        .collect()
}

/// Whether a field set has a field that the desired object lacks.
fn owns_more(fields: &Map<String, Value>, desired: &Value) -> bool {
    fields.iter().filter(|(path, _)| *path != ".").any(|(path, children)| match find(desired, path) {
        Some(value) => children.as_object().is_some_and(|children| owns_more(children, value)),
        None => true,
    })
}

/// Whether our field set and the live values exactly match the desired object, or a part of it.
fn holds(fields: &Value, desired: &Value, live: &Value) -> bool {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        // A leaf, or a list or map owned as a whole, in which the API server has set defaults.
        return covers(desired, live);
    };
    if fields.keys().any(|path| path != "." && find(desired, path).is_none()) {
        return false;
    }
    match desired {
        Value::Object(members) => members.iter().all(|(name, value)| {
            fields
                .get(&format!("f:{name}"))
                .zip(live.get(name))
                .is_some_and(|(fields, live)| holds(fields, value, live))
        }),
        // An owned item that is not desired must be removed, even if its keys resemble a desired item's keys.
        Value::Array(items) if fields.keys().filter(|path| *path != ".").count() != items.len() => false,
        Value::Array(items) => items.iter().all(|item| {
            let owned = fields.iter().find(|(path, _)| path_matches(path, item));
            let live = owned.and_then(|(path, _)| live.as_array()?.iter().find(|live| path_matches(path, live)));
            owned.zip(live).is_some_and(|((_, fields), live)| holds(fields, item, live))
        }),
        scalar => scalar == live,
    }
}

/// Whether a live value contains all desired values; maps may contain more.
pub(super) fn covers(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            desired.iter().all(|(name, value)| live.get(name).is_some_and(|live| covers(value, live)))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| covers(desired, live))
        }
        // The API server does not store empty lists.
        (Value::Array(desired), Value::Null) => desired.is_empty(),
        _ => desired == live,
    }
}

/// Returns the value at a path element of a field set.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    match path.strip_prefix("f:") {
        Some(field) => value.get(field),
        None => value.as_array()?.iter().find(|item| path_matches(path, item)),
    }
}

/// Whether `k:{…}` or `v:…` identifies a list item. The API server adds key fields that the item lacks: a missing protocol is
/// TCP; other missing keys match any value.
fn path_matches(path: &str, item: &Value) -> bool {
    let parse = |json| serde_json::from_str::<Value>(json).ok();
    if let Some(keys) = path.strip_prefix("k:").and_then(parse) {
        return keys.as_object().is_some_and(|keys| {
            let is_default = |name: &str, key: &Value| name != "protocol" || key == "TCP";
            keys.iter().all(|(name, key)| item.get(name).map_or(is_default(name, key), |value| value == key))
                && keys.keys().any(|name| item.get(name).is_some())
        });
    }
    path.strip_prefix("v:").and_then(parse).is_some_and(|value| value == *item)
}

fn merge(into: &mut Map<String, Value>, from: &Value) {
    for (path, children) in from.as_object().into_iter().flatten() {
        match into.get_mut(path).and_then(Value::as_object_mut) {
            Some(existing) => merge(existing, children),
            None => drop(into.insert(path.clone(), children.clone())),
        }
    }
}

/// Returns an object without its kind and name, which field sets omit.
fn without_identity(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.retain(|name, _| name != "apiVersion" && name != "kind");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| name != "name" && name != "namespace");
            if metadata.is_empty() {
                members.remove("metadata");
            }
        }
    }
    object
}

#[cfg(test)]
mod tests;
