//! Previews the result of an adoption (pure).
//!
//! An adoption needs two writes, and the API server can dry-run the second one only after the first. So this module
//! computes the result of both from the same field sets, and a dry run checks whether the API server accepts the result.

use serde_json::{Map, Value, json};

use crate::apply::ownership::{find, is_ours, migrate, path_matches};

/// Returns the merge patch with the result of an adoption and an apply, guarded by the resource version.
pub fn patch(desired: &Value, live: &Value) -> Value {
    let mut after = live.clone();
    let migrated = migrate(live);
    let entries = migrated.as_array().into_iter().flatten();
    let (ours, others): (Vec<_>, Vec<_>) = entries.partition(|entry| is_ours(entry));
    let ours = ours.first().map_or(&Value::Null, |entry| &entry["fieldsV1"]);
    let others: Vec<_> = others.iter().map(|entry| &entry["fieldsV1"]).collect();
    remove_unwanted(&mut after, ours, Some(desired), &others);
    overlay(&mut after, desired, ours);
    let mut patch = merge_patch(live, &after).unwrap_or_else(|| json!({}));
    patch["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    patch
}

/// Returns the merge patch (RFC 7386) from the first value to the second; `None` if they are equal.
fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        if let Some(value) = merge_patch(before.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), value);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Removes the fields that we own but do not want, unless another manager also owns them.
fn remove_unwanted(live: &mut Value, fields: &Value, desired: Option<&Value>, others: &[&Value]) {
    for (path, children) in fields.as_object().into_iter().flatten().filter(|(path, _)| *path != ".") {
        let wanted = desired.and_then(|desired| find(desired, path));
        let others: Vec<_> = others.iter().filter_map(|other| other.get(path)).collect();
        if wanted.is_none() && others.is_empty() {
            remove(live, path);
            continue;
        }
        if let Some(child) = find_mut(live, path) {
            remove_unwanted(child, children, wanted, &others);
            let is_empty = child.as_object().is_some_and(Map::is_empty);
            if wanted.is_none() && is_empty && children.as_object().is_some_and(|children| !children.is_empty()) {
                remove(live, path);
            }
        }
    }
}

/// Overwrites the remaining fields with the desired ones. Lists whose items have owners are merged by key; other lists are replaced.
fn overlay(live: &mut Value, desired: &Value, fields: &Value) {
    // The value, such as a selector, is owned as a whole.
    let is_whole = fields.as_object().is_some_and(Map::is_empty);
    let is_item = |path: &String| path.starts_with("k:") || path.starts_with("v:");
    let has_items = || fields.as_object().is_some_and(|fields| fields.keys().any(is_item));
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) if !is_whole => {
            for (name, value) in desired {
                let fields = fields.get(format!("f:{name}")).unwrap_or(&Value::Null);
                overlay(live.entry(name.clone()).or_insert(Value::Null), value, fields);
            }
        }
        (Value::Array(live), Value::Array(desired)) if has_items() => {
            let mut merged = Vec::new();
            for item in desired {
                let path = fields.as_object().into_iter().flatten().find(|(path, _)| path_matches(path, item));
                let position = path.and_then(|(path, _)| live.iter().position(|live| path_matches(path, live)));
                let mut found = position.map_or(Value::Null, |position| live.remove(position));
                overlay(&mut found, item, path.map_or(&Value::Null, |(_, children)| children));
                merged.push(found);
            }
            merged.append(live);
            *live = merged;
        }
        (live, desired) => *live = desired.clone(),
    }
}

fn find_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    match path.strip_prefix("f:") {
        Some(field) => value.get_mut(field),
        None => value.as_array_mut()?.iter_mut().find(|item| path_matches(path, item)),
    }
}

fn remove(value: &mut Value, path: &str) {
    match path.strip_prefix("f:") {
        Some(field) => drop(value.as_object_mut().and_then(|members| members.remove(field))),
        None => {
            if let Some(items) = value.as_array_mut() {
                items.retain(|item| !path_matches(path, item));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adoption_removes_updates_of_other_managers_and_writes_the_desired_fields() {
        let desired = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"l": "1"}},
            "spec": {"strategy": {"type": "Recreate"}, "containers": [{"name": "ccm", "args": ["--new"]}]},
        });
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "resourceVersion": "7", "labels": {"l": "0", "theirs": "x"},
                "managedFields": [
                    {"manager": "edit", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:theirs": {}}},
                        "f:spec": {
                            "f:strategy": {"f:type": {}, "f:rollingUpdate": {"f:maxSurge": {}}},
                            "f:containers": {
                                "k:{\"name\":\"ccm\"}": {".": {}, "f:name": {}, "f:args": {}, "f:command": {}},
                                "k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}},
                            },
                        },
                    }},
                    {"manager": "scaler", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {
                        "f:spec": {"f:paused": {}},
                    }},
                ],
            },
            "spec": {
                "paused": true,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
                "containers": [
                    {"name": "ccm", "args": ["--old"], "command": ["bash"], "defaulted": "yes"},
                    {"name": "sidecar"},
                ],
            },
        });
        assert_eq!(
            patch(&desired, &live),
            json!({
                "metadata": {"resourceVersion": "7", "labels": {"l": "1"}},
                "spec": {
                    "strategy": {"type": "Recreate", "rollingUpdate": null},
                    "containers": [{"name": "ccm", "args": ["--new"], "defaulted": "yes"}],
                },
            })
        );
    }
}
