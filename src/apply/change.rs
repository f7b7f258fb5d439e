//! Changes to objects, made or planned, with the paths of the changed fields (pure).
//!
//! Values are never included: a field may hold a secret, and changes are written to logs and Events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;
use serde_json::Value;

use crate::{object::Key, text::list::first};

/// The action on an object. Serialized for the output of `diff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The object does not exist and is created.
    Create,
    /// The object differs from the plan and is changed.
    Configure,
    /// The object is as planned.
    Unchanged,
    /// An immutable field differs, so the object is deleted and recreated.
    Recreate,
    /// The object is no longer planned and is deleted.
    Prune,
    /// An annotation excludes the object from changes.
    Skip,
    /// The object is no longer planned, but an annotation keeps it, or it is not ours to delete.
    #[serde(rename = "skip")]
    Keep,
    /// The API server refuses the object.
    Refuse,
}

impl Action {
    /// Returns the past participle of the action, for logs and metrics.
    pub fn done(self) -> &'static str {
        match self {
            Self::Create => "created",
            Self::Configure => "configured",
            Self::Unchanged => "unchanged",
            Self::Recreate => "recreated",
            Self::Prune => "pruned",
            Self::Skip => "skipped",
            Self::Keep => "kept",
            Self::Refuse => "failed",
        }
    }
}

/// An action on an object, with the fields that it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The object.
    #[serde(flatten)]
    pub object: Key,
    /// The action.
    pub action: Action,
    /// The paths of the fields that differ, such as `spec.replicas`; empty if the previous state is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The reason for leaving the object alone, keeping it or refusing it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

const REPORTED_FIELDS: usize = 10;

impl Change {
    /// Returns the change between two live states.
    pub fn between(object: Key, before: &Value, after: &Value) -> Self {
        let mut fields = fields(before, after);
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let action = if version(before) == version(after) { Action::Unchanged } else { Action::Configure };
        if action == Action::Configure && fields.is_empty() {
            fields.push("metadata.managedFields".to_owned());
        }
        Self { fields, ..Self::plain(object, action) }
    }

    /// Returns the change that a write would make; `before` is `None` if the object does not exist.
    pub fn planned(object: Key, before: Option<&Value>, after: &Value) -> Self {
        let Some(before) = before else { return Self::plain(object, Action::Create) };
        let fields = fields(before, after);
        let action = if fields.is_empty() { Action::Unchanged } else { Action::Configure };
        Self { fields, ..Self::plain(object, action) }
    }

    /// Returns a change that deletes and recreates the object.
    pub fn recreated(object: Key, before: &Value, after: &Value) -> Self {
        Self { fields: fields(before, after), ..Self::plain(object, Action::Recreate) }
    }

    /// Returns a change without fields.
    pub fn plain(object: Key, action: Action) -> Self {
        Self { object, action, fields: Vec::new(), why: None }
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }

    /// Whether the action changes the cluster.
    pub fn is_difference(&self) -> bool {
        matches!(self.action, Action::Create | Action::Configure | Action::Recreate | Action::Prune)
    }

    /// Returns the reason or, without one, the first fields.
    pub fn details(&self) -> String {
        if let Some(why) = &self.why {
            return why.clone();
        }
        first(REPORTED_FIELDS, &self.fields)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.done(), self.object)?;
        let details = self.details();
        if details.is_empty() { Ok(()) } else { write!(f, ": {details}") }
    }
}

const SERVER_FIELDS: [&str; 7] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// The annotation in which `kubectl apply` stores a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that can identify list items.
const ITEM_KEYS: [&str; 4] = ["name", "mountPath", "containerPort", "port"];

/// Returns an object without its status and without the metadata that the API server sets.
pub fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !SERVER_FIELDS.contains(&name.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|members| !members.is_empty()));
    }
    object
}

/// Returns the paths of the fields that differ between two states of an object.
pub fn fields(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", &essence(before), &essence(after), false, &mut found);
    found
}

/// Returns the paths of the planned fields whose live values differ. Absent and empty values are equal.
pub fn unmet(planned: &Value, live: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", planned, live, true, &mut found);
    found
}

/// Compares two values. If the first is a plan, compares only its fields.
fn compare(path: &str, first: &Value, second: &Value, is_plan: bool, found: &mut Vec<String>) {
    let mut compare_members = |path: String, one: Option<&Value>, other: Option<&Value>| match (one, other) {
        (Some(one), other) if is_plan => compare(&path, one, other.unwrap_or(&Value::Null), is_plan, found),
        (Some(one), Some(other)) => compare(&path, one, other, is_plan, found),
        _ => found.push(path),
    };
    match (first, second) {
        (first, Value::Null) if is_plan && is_empty(first) => {}
        (Value::Object(one), Value::Object(other)) => {
            let added = other.keys().filter(|_| !is_plan);
            for name in one.keys().chain(added).collect::<BTreeSet<_>>() {
                compare_members(join(path, name), one.get(name), other.get(name));
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            if let Some((key, one, other)) = keyed(items, others) {
                let added = other.keys().filter(|_| !is_plan);
                for name in one.keys().chain(added).collect::<BTreeSet<_>>() {
                    let path = format!("{path}[{key}={name}]");
                    compare_members(path, one.get(name).copied(), other.get(name).copied());
                }
                let is_known = |other: &String| other.starts_with(&format!("{path}["));
                // Only the order differs.
                if !is_plan && first != second && !found.iter().any(is_known) {
                    found.push(path.to_owned());
                }
            } else if items.len() == others.len() {
                for (index, (one, other)) in items.iter().zip(others).enumerate() {
                    compare_members(format!("{path}[{index}]"), Some(one), Some(other));
                }
            } else {
                found.push(path.to_owned());
            }
        }
        (first, second) if first != second => found.push(path.to_owned()),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
    }
}

fn join(path: &str, name: &str) -> String {
    let is_simple = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match (is_simple, path) {
        (true, "") => name.to_owned(),
        (true, path) => format!("{path}.{name}"),
        (false, path) => format!("{path}[{name}]"),
    }
}

/// List items by the value of their key field.
type Items<'a> = BTreeMap<String, &'a Value>;

fn keyed<'a>(first: &'a [Value], second: &'a [Value]) -> Option<(&'static str, Items<'a>, Items<'a>)> {
    let items = |list: &'a [Value], key: &str| -> Option<Items<'a>> {
        let name = |item: &Value| match &item[key] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let items: Items = list.iter().map(|item| Some((name(item)?, item))).collect::<Option<_>>()?;
        (items.len() == list.len()).then_some(items)
    };
    ITEM_KEYS.into_iter().find_map(|key| Some((key, items(first, key)?, items(second, key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_name_the_paths_of_fields_and_never_their_values() {
        let before = json!({
            "metadata": {"name": "x", "resourceVersion": "1", "generation": 1, "managedFields": [], "labels": {"a.b/c": "1"}},
            "spec": {
                "replicas": 5,
                "template": {"spec": {
                    "containers": [{"name": "x", "image": "old", "args": ["a", "b"]}, {"name": "sidecar"}],
                    "tolerations": [{"key": "a"}],
                }},
            },
            "status": {"replicas": 1},
        });
        let after = json!({
            "metadata": {"name": "x", "resourceVersion": "2", "generation": 2, "labels": {"a.b/c": "2"}},
            "spec": {
                "replicas": 2,
                "template": {"spec": {
                    "containers": [{"name": "x", "image": "new", "args": ["a", "c"]}],
                    "tolerations": [{"key": "a"}, {"key": "b"}],
                }},
            },
            "status": {"replicas": 2},
        });
        assert_eq!(
            fields(&before, &after),
            [
                "metadata.labels[a.b/c]",
                "spec.replicas",
                "spec.template.spec.containers[name=sidecar]",
                "spec.template.spec.containers[name=x].args[1]",
                "spec.template.spec.containers[name=x].image",
                "spec.template.spec.tolerations",
            ]
        );
        assert_eq!(fields(&before, &before), Vec::<String>::new());
    }

    #[test]
    fn another_order_is_a_change() {
        let list = |names: [&str; 2]| json!({"spec": {"env": names.map(|name| json!({"name": name}))}});
        assert_eq!(fields(&list(["a", "b"]), &list(["b", "a"])), ["spec.env"]);
    }

    #[test]
    fn a_change_reads_as_one_line() {
        let key = Key { group: "apps".into(), kind: "Deployment".into(), namespace: "ns".into(), name: "x".into() };
        let object =
            |version: &str, replicas| json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
        let text = |before: Value, after: Value| Change::between(key.clone(), &before, &after).to_string();
        assert_eq!(text(object("1", 5), object("2", 2)), "configured Deployment ns/x: spec.replicas");
        assert_eq!(text(object("1", 2), object("2", 2)), "configured Deployment ns/x: metadata.managedFields");
        assert_eq!(text(object("1", 2), object("1", 2)), "unchanged Deployment ns/x");
        assert_eq!(Change::plain(key.clone(), Action::Prune).to_string(), "pruned Deployment ns/x");
        let recreated = Change::recreated(key.clone(), &object("1", 5), &object("2", 2));
        assert_eq!(recreated.to_string(), "recreated Deployment ns/x: spec.replicas");
        let with = |number: usize| Change {
            fields: (0..number).map(|i| i.to_string()).collect(),
            ..Change::plain(key.clone(), Action::Configure)
        };
        assert!(with(12).to_string().ends_with("8, 9 and 2 more"), "{}", with(12));
        assert!(with(10).to_string().ends_with("8, 9"), "{}", with(10));
    }

    #[test]
    fn only_what_changes_the_cluster_is_a_difference() {
        let key = Key { group: String::new(), kind: "Service".into(), namespace: "ns".into(), name: "x".into() };
        let is_difference = |action| Change::plain(key.clone(), action).is_difference();
        assert!([Action::Create, Action::Configure, Action::Recreate, Action::Prune].into_iter().all(is_difference));
        assert!(![Action::Unchanged, Action::Keep].into_iter().any(is_difference));
    }

    #[test]
    fn planned_fields_are_met_by_empty_ones_and_by_additions() {
        let planned = json!({
            "metadata": {"name": "x", "annotations": {}, "creationTimestamp": null},
            "spec": {
                "paused": false, "minReadySeconds": 0,
                "containers": [
                    {"name": "a", "image": "ours", "args": [], "resources": {"requests": {"cpu": 1}}},
                    {"name": "b", "env": [{"name": "X", "value": ""}]},
                ],
            },
        });
        let mut live = json!({
            "metadata": {"name": "x", "uid": "1"},
            "spec": {
                "replicas": 1,
                "containers": [
                    {"name": "added"},
                    {"name": "b", "env": [{"name": "X"}, {"name": "Y"}], "terminationMessagePath": "/dev/null"},
                    {"name": "a", "image": "ours", "resources": {"requests": {"cpu": 1}}},
                ],
            },
        });
        assert_eq!(unmet(&planned, &live), Vec::<String>::new());
        live["spec"]["containers"][2]["image"] = "theirs".into();
        live["spec"]["containers"][2]["resources"]["requests"]["cpu"] = "1".into();
        live["spec"]["paused"] = true.into();
        let expected =
            ["spec.containers[name=a].image", "spec.containers[name=a].resources.requests.cpu", "spec.paused"];
        assert_eq!(unmet(&planned, &live), expected);
    }

    #[test]
    fn an_absent_field_and_a_list_of_another_length_are_unmet() {
        let planned = json!({"args": ["a", "b"], "image": "x"});
        assert_eq!(unmet(&planned, &json!({"args": ["a", "b"]})), ["image"]);
        assert_eq!(unmet(&planned, &json!({"args": ["a", "c"], "image": "x"})), ["args[1]"]);
        assert_eq!(unmet(&planned, &json!({"args": ["a", "b", "c"], "image": "x"})), ["args"]);
    }

    #[test]
    fn names_and_numbers_tell_the_items_of_a_list_apart() {
        let list = |port| json!({"ports": [{"containerPort": 1}, {"containerPort": port}]});
        assert_eq!(fields(&list(2), &list(3)), ["ports[containerPort=2]", "ports[containerPort=3]"]);
        assert_eq!(fields(&json!({"a_b-c": 1}), &json!({"a_b-c": 2})), ["a_b-c"]);
    }
}
