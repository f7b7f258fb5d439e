//! What a pass has done to one object, and which of its fields that has changed (pure).
//!
//! Paths only, never values: what stands in a field may be a secret, and goes into logs and Events.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::object::Key;

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It was not there.
    Created,
    /// It was not as planned.
    Configured,
    /// It was as planned.
    Unchanged,
    /// A field that cannot be changed was another one, so that it was deleted and created.
    Recreated,
    /// It is no longer planned, and was deleted.
    Pruned,
    /// It is annotated to be left alone.
    Skipped,
    /// It is no longer planned, and annotated to be kept, or not ours to delete.
    Kept,
    /// It could not be brought to what it should be.
    Failed,
}

impl Action {
    /// The word for logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Recreated => "recreated",
            Self::Pruned => "pruned",
            Self::Skipped => "skipped",
            Self::Kept => "kept",
            Self::Failed => "failed",
        }
    }
}

/// What was done to an object, with the fields that this has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub object: Key,
    /// What was done.
    pub action: Action,
    /// The paths of what is different; empty where the state before was not seen.
    pub fields: Vec<String>,
}

/// How many fields are told of one change.
const TOLD_FIELDS: usize = 10;

impl Change {
    /// The change from one live state to the next.
    pub fn between(object: Key, before: &Value, after: &Value) -> Self {
        let mut fields = fields(before, after);
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let action = if version(before) == version(after) { Action::Unchanged } else { Action::Configured };
        if action == Action::Configured && fields.is_empty() {
            fields.push("metadata.managedFields".to_owned());
        }
        Self { object, action, fields }
    }

    /// A change whose fields need no telling.
    pub fn plain(object: Key, action: Action) -> Self {
        Self { object, action, fields: Vec::new() }
    }

    /// The fields, the first of them when there are many.
    pub fn told_fields(&self) -> String {
        let mut text = self.fields.iter().take(TOLD_FIELDS).map(String::as_str).collect::<Vec<_>>().join(", ");
        if self.fields.len() > TOLD_FIELDS {
            text = format!("{text} and {} more", self.fields.len() - TOLD_FIELDS);
        }
        text
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.word(), self.object)?;
        if self.fields.is_empty() { Ok(()) } else { write!(f, ": {}", self.told_fields()) }
    }
}

/// What the server counts and notes.
const NOTED: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "deletionGracePeriodSeconds"];

/// By which of these fields the items of a list are told apart, if each has it.
const ITEM_KEYS: [&str; 4] = ["name", "mountPath", "containerPort", "port"];

/// The paths of what is different in two states of an object, its status and what the server notes left out.
pub fn fields(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let none = serde_json::Map::new();
    let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (before, after) = (before.get(name), after.get(name));
        match (name.as_str(), before, after) {
            ("status", ..) => {}
            ("metadata", Some(before), Some(after)) => {
                compare("metadata", &without_noted(before), &without_noted(after), &mut found);
            }
            (name, Some(before), Some(after)) => compare(name, before, after, &mut found),
            (name, ..) => found.push(name.to_owned()),
        }
    }
    found
}

fn without_noted(metadata: &Value) -> Value {
    let members = metadata.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| !NOTED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(first), Value::Object(second)) => {
            for name in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
                let simple = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
                let path = if simple { format!("{path}.{name}") } else { format!("{path}[{name}]") };
                match (first.get(name), second.get(name)) {
                    (Some(before), Some(after)) => compare(&path, before, after, found),
                    _ => found.push(path),
                }
            }
        }
        (Value::Array(first), Value::Array(second)) => {
            if let Some((key, first, second)) = keyed(first, second) {
                for name in first.iter().chain(&second).map(|(name, _)| name).collect::<BTreeSet<_>>() {
                    let path = format!("{path}[{key}={name}]");
                    let of = |items: &[(String, &Value)]| {
                        items.iter().position(|(other, _)| other == name).map(|index| items[index].1.clone())
                    };
                    match (of(&first), of(&second)) {
                        (Some(before), Some(after)) => compare(&path, &before, &after, found),
                        _ => found.push(path),
                    }
                }
                // Nothing but the order.
                if before != after && !found.iter().any(|other| other.starts_with(&format!("{path}["))) {
                    found.push(path.to_owned());
                }
            } else if first.len() == second.len() {
                for (index, (before, after)) in first.iter().zip(second).enumerate() {
                    compare(&format!("{path}[{index}]"), before, after, found);
                }
            } else {
                found.push(path.to_owned());
            }
        }
        (before, after) if before != after => found.push(path.to_owned()),
        _ => {}
    }
}

/// Items with what each is told apart by.
type Items<'a> = Vec<(String, &'a Value)>;

fn keyed<'a>(first: &'a [Value], second: &'a [Value]) -> Option<(&'static str, Items<'a>, Items<'a>)> {
    let items = |list: &'a [Value], key: &str| -> Option<Items<'a>> {
        let name = |item: &Value| match &item[key] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let items: Items = list.iter().map(|item| Some((name(item)?, item))).collect::<Option<_>>()?;
        let names: BTreeSet<_> = items.iter().map(|(name, _)| name).collect();
        (names.len() == items.len()).then_some(items)
    };
    ITEM_KEYS.into_iter().find_map(|key| Some((key, items(first, key)?, items(second, key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_told_by_their_paths_and_never_by_their_values() {
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
    fn an_order_that_changes_is_a_change() {
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
        assert_eq!(Change::plain(key.clone(), Action::Pruned).to_string(), "pruned Deployment ns/x");
        let many =
            Change { fields: (0..12).map(|i| i.to_string()).collect(), ..Change::plain(key, Action::Configured) };
        assert!(many.to_string().ends_with("8, 9 and 2 more"), "{many}");
    }
}
