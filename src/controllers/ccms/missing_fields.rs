//! The fields of the status that the installed CustomResourceDefinition lacks, if it is older than the operator (pure).
//!
//! Server-side apply refuses a status with an unknown field, and does not reliably name all such fields. A merge patch
//! is accepted, and its response lacks these fields.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::Value;

use crate::{api::status::Status, status::ccm::READY};

/// The time after which the whole status is sent again, in case the definition is newer by then.
const PERIOD: Duration = Duration::from_secs(30);

/// The path of a field of the status, name by name; `[]` stands for each item of a list.
type Field = Vec<String>;

/// The fields of the status of a `CloudControllerManager` that the definition is known to lack.
#[derive(Debug, Default)]
pub(super) struct MissingStatusFields {
    lacks: BTreeSet<Field>,
    refused: Option<Instant>,
}

impl MissingStatusFields {
    /// Whether no field is known to be missing, or all fields are sent again.
    pub(super) fn takes_all(&self, now: Instant) -> bool {
        self.due().is_none_or(|due| due <= now)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.refused.map(|refused| refused + PERIOD)
    }

    /// Returns the part of a status that the definition accepts. Its condition `Ready` names the omitted fields.
    pub(super) fn fit<'a>(&self, status: &'a Status, now: Instant) -> Cow<'a, Status> {
        if self.takes_all(now) {
            return Cow::Borrowed(status);
        }
        let mut fitting = Status::deserialize(self.value(status, now)).unwrap_or_default();
        for ready in fitting.conditions.iter_mut().filter(|one| one.type_ == READY) {
            let separator = if ready.message.is_empty() { "" } else { "; " };
            ready.message = format!("{}{separator}{}", ready.message, self.problem());
        }
        Cow::Owned(fitting)
    }

    /// Returns the same part as the JSON to send.
    pub(super) fn value(&self, status: &Status, now: Instant) -> Value {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        for field in self.lacks.iter().filter(|_| !self.takes_all(now)) {
            remove(&mut value, field);
        }
        value
    }

    /// Describes the problem and its fix, for people.
    pub(super) fn problem(&self) -> String {
        let fields = self.lacks.iter().map(|field| format!("status.{}", field.join(".").replace(".[]", "[]")));
        format!(
            "the installed CustomResourceDefinition is older than the operator and lacks {}: apply the one that \
             `ccm-operator render install` or `helm show crds` prints",
            fields.collect::<Vec<_>>().join(", ")
        )
    }

    /// Finds the missing fields in the response to a refused status, `kept`. Returns whether there is one.
    pub(super) fn refused(&mut self, sent: &Value, kept: &Value, now: Instant) -> bool {
        let mut lacks = BTreeSet::new();
        compare(sent, kept, &mut Vec::new(), &mut lacks);
        let is_cause = !lacks.is_empty();
        if is_cause {
            if self.takes_all(now) {
                self.lacks = BTreeSet::new();
            }
            self.lacks.append(&mut lacks);
            self.refused = Some(now);
        }
        is_cause
    }

    /// Records that a status was accepted. Returns whether the definition has just become as new as the operator.
    pub(super) fn accepted(&mut self, now: Instant) -> bool {
        let is_news = self.refused.is_some() && self.takes_all(now);
        if is_news {
            *self = Self::default();
        }
        is_news
    }
}

/// Finds the fields that were sent but not stored.
fn compare(sent: &Value, kept: &Value, at: &mut Field, lacks: &mut BTreeSet<Field>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (name, value) in sent {
                at.push(name.clone());
                match kept.get(name) {
                    Some(kept) => compare(value, kept, at, lacks),
                    None => drop(lacks.insert(at.clone())),
                }
                at.pop();
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            at.push("[]".to_owned());
            sent.iter().zip(kept).for_each(|(sent, kept)| compare(sent, kept, at, lacks));
            at.pop();
        }
        _ => {}
    }
}

fn remove(value: &mut Value, field: &[String]) {
    match (value, field) {
        (Value::Object(fields), [name]) => drop(fields.remove(name)),
        (Value::Object(fields), [name, rest @ ..]) => {
            fields.get_mut(name).into_iter().for_each(|value| remove(value, rest));
        }
        (Value::Array(items), [_, rest @ ..]) => items.iter_mut().for_each(|item| remove(item, rest)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::status::{Candidate, Condition, Deletion, Provider};

    fn status() -> Status {
        let candidate = |node: &str| Candidate {
            node: node.into(),
            uid: "u".into(),
            since: "s".into(),
            reason: "Kept".into(),
            message: "m".into(),
        };
        let ready = Condition {
            type_: READY.into(),
            status: "True".into(),
            observed_generation: 1,
            last_transition_time: "t".into(),
            reason: "Running".into(),
            message: "2 of 2".into(),
        };
        Status {
            conditions: vec![ready],
            provider: Provider { reason: "why".into(), ..Provider::default() },
            node_deletion: Deletion { waiting: vec![candidate("a"), candidate("b")], ..Deletion::default() },
            ..Status::default()
        }
    }

    /// The part of a status that a definition without these fields stores.
    fn kept(without: &[&[&str]]) -> Value {
        let mut value = serde_json::to_value(status()).unwrap();
        for field in without {
            remove(&mut value, &field.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        }
        value
    }

    #[test]
    fn what_is_lacking_is_left_out_named_and_tried_again_later() {
        let (status, start) = (status(), Instant::now());
        let whole = serde_json::to_value(&status).unwrap();
        let mut definition = MissingStatusFields::default();
        assert!(matches!(definition.fit(&status, start), Cow::Borrowed(_)));
        assert!(!definition.accepted(start), "it always was");
        assert!(!definition.refused(&whole, &whole, start), "something else is wrong");
        assert_eq!(definition.due(), None);

        let old = kept(&[&["nodes", "waiting"], &["provider", "reason"], &["nodeDeletion", "waiting", "[]", "reason"]]);
        assert!(definition.refused(&whole, &old, start));
        let fitting = definition.fit(&status, start).into_owned();
        let mut written = definition.value(&fitting, start);
        let message = written["conditions"][0]["message"].take();
        let message = message.as_str().unwrap();
        assert!(message.starts_with("2 of 2; the installed CustomResourceDefinition is older"), "{message}");
        assert!(
            message.contains(
                "lacks status.nodeDeletion.waiting[].reason, status.nodes.waiting, status.provider.reason: apply"
            ),
            "{message}"
        );
        let mut expected = old;
        expected["conditions"][0]["message"] = Value::Null;
        assert_eq!(written, expected);
        // As the status will be read, so that nothing is written again.
        assert_eq!(Status::deserialize(definition.value(&fitting, start)).unwrap(), fitting);
        assert!(!definition.accepted(start), "a part of it");

        // A field of an item that the previous status did not have.
        let now = start + PERIOD / 2;
        let sent = definition.value(&fitting, now);
        let mut less = sent.clone();
        less.as_object_mut().unwrap().remove("nodes");
        assert!(definition.refused(&sent, &less, now));
        assert!(
            definition.problem().contains("status.nodes, status.nodes.waiting, status.provider.reason"),
            "{}",
            definition.problem()
        );

        let now = definition.due().unwrap();
        assert!(matches!(definition.fit(&status, now), Cow::Borrowed(_)));
        assert_eq!(definition.value(&status, now), whole);
        assert!(definition.refused(&whole, &kept(&[&["nodes", "waiting"]]), now), "a newer one, and not new enough");
        assert!(definition.problem().contains("lacks status.nodes.waiting:"), "{}", definition.problem());
        assert!(definition.accepted(definition.due().unwrap()));
        assert_eq!((definition.due(), definition.value(&status, start)), (None, whole));
    }

    #[test]
    fn what_the_definition_keeps_otherwise_is_not_lacking() {
        let mut definition = MissingStatusFields::default();
        let (sent, kept) = (json!({"a": [], "b": {"c": 1}}), json!({"a": [], "b": {"c": 2}, "d": true}));
        assert!(!definition.refused(&sent, &kept, Instant::now()));
    }
}
