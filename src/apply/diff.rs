//! The planned changes to a cluster, for people and programs, with masked secrets (pure).

mod secrets;

pub(super) use secrets::redacted;

use serde::Serialize;
use serde_json::Value;

use crate::{
    apply::change::{Action, Change, essence},
    text::{diff, yaml},
};

const CONTEXT_LINES: usize = 3;

/// A planned change, with both states of the object. Only the change is serialized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diff {
    /// The change.
    pub change: Change,
    /// The states before and after as YAML, with masked secrets; empty if there is none.
    #[serde(skip)]
    texts: (String, String),
}

impl Diff {
    /// Returns a change between two states of an object; a state is `None` if the object does not exist, or is not changed.
    pub fn new(change: Change, before: Option<&Value>, after: Option<&Value>) -> Self {
        let (before, after) = secrets::masked(before.map(essence), after.map(essence));
        // The value was parsed from JSON, so this cannot fail.
        let text = |value: Option<Value>| value.and_then(|value| yaml::to_string(&value).ok()).unwrap_or_default();
        Self { change, texts: (text(before), text(after)) }
    }

    /// Describes the change on one line, for logs.
    pub fn line(&self) -> String {
        let Change { object, action, fields, why } = &self.change;
        let why = why.as_deref().unwrap_or_default();
        match action {
            Action::Create => format!("would create {object}"),
            Action::Configure => format!("would change {object}: {}", fields.join(", ")),
            Action::Recreate => format!("would delete and recreate {object}: {}", fields.join(", ")),
            Action::Unchanged => format!("{object} is as planned"),
            Action::Prune => format!("would delete {object}: it is no longer planned"),
            Action::Skip | Action::Keep => format!("would leave {object} alone: {why}"),
            Action::Refuse => format!("could not apply {object}: {why}"),
        }
    }

    /// Returns a unified diff, or a remark if there is no diff. Empty if the object is as planned.
    fn unified(&self, colors: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colors { format!("\x1b[{code}m{text}\x1b[0m\n") } else { format!("{text}\n") }
        };
        let remark = || paint("33", &format!("# {}", self.line()));
        let remark = match self.change.action {
            Action::Unchanged => return String::new(),
            Action::Skip | Action::Keep | Action::Refuse => return remark(),
            Action::Recreate => remark(),
            Action::Create | Action::Configure | Action::Prune => String::new(),
        };
        let (before, after) = &self.texts;
        let title = |text: &str, when: &str| {
            if text.is_empty() { "/dev/null".to_owned() } else { format!("{} ({when})", self.change.object) }
        };
        let (from, to) = (title(before, "live"), title(after, "planned"));
        let text = diff::unified((&from, before), (&to, after), CONTEXT_LINES);
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

/// Returns all changes as unified diffs.
pub fn unified(diffs: &[Diff], colors: bool) -> String {
    diffs.iter().map(|diff| diff.unified(colors)).collect()
}

/// Counts the objects by action, on one line.
pub fn summary(diffs: &[Diff]) -> String {
    let count = |actions: &[Action]| diffs.iter().filter(|diff| actions.contains(&diff.change.action)).count();
    let always = [
        (count(&[Action::Create]), "to create"),
        (count(&[Action::Configure]), "to change"),
        (count(&[Action::Prune]), "to remove"),
        (count(&[Action::Unchanged]), "as planned"),
    ];
    let optional = [
        (count(&[Action::Recreate]), "to recreate"),
        (count(&[Action::Skip, Action::Keep]), "left alone"),
        (count(&[Action::Refuse]), "refused"),
    ];
    let counts = always.into_iter().chain(optional.into_iter().filter(|(count, _)| *count > 0));
    counts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
