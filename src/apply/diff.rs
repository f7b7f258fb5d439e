//! What would change in a cluster, as people and programs read it (pure).
//!
//! Compares an object as it is with what it would be, leaves out what the server counts and notes, and masks secrets
//! before anything is written. It decides nothing: what an object would be, [`cluster`] asks the API server.

mod secrets;

use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use crate::{apply::change, object::Key, text::yaml};

/// How many unchanged lines stand around a changed one.
const CONTEXT_LINES: usize = 3;

/// What the server counts and notes in the metadata of every object.
const NOTES: [&str; 6] = ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// A copy of the whole object that `kubectl apply` leaves.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What would be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is not there, and would be made.
    Create,
    /// It would be changed.
    Configure,
    /// A field that cannot be changed is another one, so that it would be deleted and made anew.
    Recreate,
    /// It is as planned.
    Unchanged,
    /// It is ours and no longer planned, and would be removed.
    Prune,
    /// It is annotated to be left as it is, or to be kept.
    Skip,
    /// The API server refuses what would be done.
    Refuse,
}

/// What would become of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub object: Key,
    /// What would be done.
    pub action: Action,
    /// The fields that would differ, such as `spec.replicas`.
    pub fields: Vec<String>,
    /// Why it is skipped or refused.
    pub why: Option<String>,
    /// The object as it is and as it would be, as YAML, secrets masked; empty where there is none.
    texts: (String, String),
}

/// A [`Change`] as programs read it.
#[derive(Serialize)]
struct Entry<'a> {
    group: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    action: Action,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    fields: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl Serialize for Change {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Key { group, kind, namespace, name } = &self.object;
        let (action, fields, why) = (self.action, self.fields.as_slice(), self.why.as_deref());
        Entry { group, kind, namespace, name, action, fields, why }.serialize(serializer)
    }
}

impl Change {
    /// An object that is `before`, and would be `after`; `None` is one that is not there.
    pub fn between(object: Key, before: Option<&Value>, after: Option<&Value>) -> Result<Self, yaml::Error> {
        let (before, after) = (before.map(essence), after.map(essence));
        let mut fields = Vec::new();
        let action = match (&before, &after) {
            (None, _) => Action::Create,
            (Some(_), None) => Action::Prune,
            (Some(before), Some(after)) => {
                fields = change::fields(before, after);
                if fields.is_empty() { Action::Unchanged } else { Action::Configure }
            }
        };
        let (before, after) = secrets::masked(before, after);
        let text = |value: Option<Value>| value.map_or(Ok(String::new()), |value| yaml::to_string(&value));
        let texts = (text(before)?, text(after)?);
        Ok(Self { object, action, fields, why: None, texts })
    }

    /// The same object, but it would be deleted and made anew.
    #[must_use]
    pub fn recreated(self) -> Self {
        Self { action: Action::Recreate, ..self }
    }

    /// An object with which nothing would be done, or can be done.
    pub fn without(object: Key, action: Action, why: Option<String>) -> Self {
        Self { object, action, fields: Vec::new(), why, texts: (String::new(), String::new()) }
    }

    /// Whether the cluster would be another one.
    pub fn is_difference(&self) -> bool {
        matches!(self.action, Action::Create | Action::Configure | Action::Recreate | Action::Prune)
    }

    /// In one line, for logs.
    pub fn line(&self) -> String {
        let object = &self.object;
        match (self.action, self.why.as_deref().unwrap_or_default()) {
            (Action::Create, _) => format!("would create {object}"),
            (Action::Configure, _) => format!("would change {object}: {}", self.fields.join(", ")),
            (Action::Recreate, _) => format!("would delete {object} and make it anew: {}", self.fields.join(", ")),
            (Action::Unchanged, _) => format!("{object} is as planned"),
            (Action::Prune, _) => format!("would remove {object}: it is not planned any more"),
            (Action::Skip, why) => format!("would leave {object} alone: {why}"),
            (Action::Refuse, why) => format!("could not write {object}: {why}"),
        }
    }

    /// As a unified diff; what has no lines of its own is a remark. Empty when the object is as planned.
    fn unified(&self, colors: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colors { format!("\x1b[{code}m{text}\x1b[0m\n") } else { format!("{text}\n") }
        };
        match self.action {
            Action::Unchanged => return String::new(),
            Action::Skip | Action::Refuse => return paint("33", &format!("# {}", self.line())),
            Action::Create | Action::Configure | Action::Recreate | Action::Prune => {}
        }
        let remark = match self.action {
            Action::Recreate => paint("33", &format!("# {}", self.line())),
            _ => String::new(),
        };
        let (before, after) = &self.texts;
        let title = |text: &str, when| if text.is_empty() { "/dev/null".to_owned() } else { when };
        let live = title(before, format!("{} (live)", self.object));
        let planned = title(after, format!("{} (planned)", self.object));
        let text = TextDiff::from_lines(before, after);
        let text = text.unified_diff().context_radius(CONTEXT_LINES).header(&live, &planned).to_string();
        let lines = text.lines().map(|line| match line.get(..1) {
            _ if line.starts_with("--- ") || line.starts_with("+++ ") => paint("1", line),
            Some("-") => paint("31", line),
            Some("+") => paint("32", line),
            Some("@") => paint("36", line),
            _ => format!("{line}\n"),
        });
        std::iter::once(remark).chain(lines).collect()
    }
}

/// All changes as unified diffs.
pub fn unified(changes: &[Change], colors: bool) -> String {
    changes.iter().map(|change| change.unified(colors)).collect()
}

/// How many objects would be what, in one line.
pub fn summary(changes: &[Change]) -> String {
    let count = |action| changes.iter().filter(|change| change.action == action).count();
    let optional = [(Action::Recreate, "to make anew"), (Action::Skip, "left alone"), (Action::Refuse, "refused")];
    let optional = optional.into_iter().map(|(action, word)| (count(action), word)).filter(|(count, _)| *count > 0);
    let mut text = format!(
        "{} to create, {} to change, {} to remove, {} as planned",
        count(Action::Create),
        count(Action::Configure),
        count(Action::Prune),
        count(Action::Unchanged),
    );
    text.extend(optional.map(|(count, word)| format!(", {count} {word}")));
    text
}

/// An object without what the server counts and notes.
pub fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for note in NOTES {
            metadata.remove(note);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|members| !members.is_empty()));
    }
    object
}

#[cfg(test)]
mod tests;
