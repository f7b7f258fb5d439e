//! What the ClusterOperator says (pure).
//!
//! Turns an outcome and what was said before into the next status. The same state always gives the same text, and the
//! time of a transition moves only with its status: nothing that is written here can be a reason to write again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::object::{Key, Kind, Object};

/// The ClusterOperator's name.
pub const NAME: &str = "cloud-controller-manager";

/// How long a transient error may last before it is reported (the same as upstream's).
pub const TRANSIENT_ERROR_PATIENCE: Duration = Duration::from_secs(150);

/// A condition that old versions wrote and that nobody reads any more.
const OBSOLETE_CONDITION: &str = "CloudControllerOwner";

/// The one operand whose version is reported.
const OPERAND: &str = "operator";

const AS_EXPECTED: &str = "AsExpected";
const SYNCING: &str = "SyncingResources";
const SYNCING_FAILED: &str = "SyncingFailed";

/// What came of one pass over the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is applied and runs.
    Done,
    /// No provider serves this cluster.
    Nothing {
        /// Why, for people.
        why: String,
    },
    /// Everything is applied; this is on its way.
    Progressing {
        /// The workloads that are being rolled out.
        rollouts: Vec<Key>,
    },
    /// Something is wrong, and is to be reported.
    Failed {
        /// The whole chain of causes, in one line.
        error: String,
    },
}

/// A controller that has two conditions of its own in the ClusterOperator.
#[derive(Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its name for people.
    pub name: &'static str,
    /// Its field manager.
    pub manager: &'static str,
    /// The condition that says whether it works.
    available: &'static str,
    /// The condition that says what is wrong.
    degraded: &'static str,
    /// For how long a transient error may last before it is reported (the same as upstream's).
    pub patience: Duration,
}

/// Syncs the cloud's configuration.
pub static CLOUD_CONFIG: Controller = Controller {
    name: "Cloud Config Controller",
    manager: "ccm-operator-cloud-config",
    available: "CloudConfigControllerAvailable",
    degraded: "CloudConfigControllerDegraded",
    patience: Duration::from_secs(120),
};

/// Merges the certificates that cloud-controller-managers trust.
pub static TRUSTED_CA: Controller = Controller {
    name: "Trusted CA Bundle Controller",
    manager: "ccm-operator-trusted-ca",
    // The doubled word is the Go operator's, and others read it.
    available: "TrustedCABundleControllerControllerAvailable",
    degraded: "TrustedCABundleControllerControllerDegraded",
    patience: Duration::from_secs(120),
};

/// A condition as it stands in the status.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: String,
}

/// An operand's version.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct OperandVersion {
    /// The operand.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// An object that must-gather collects.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(default)]
pub struct ObjectReference {
    /// API group, empty for the core group.
    pub group: String,
    /// The resource's plural name.
    pub resource: String,
    /// Namespace, empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The status of a ClusterOperator, as far as it is read and written.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Conditions, of which four are the operator's and two each of the controllers beside it.
    pub conditions: Vec<Condition>,
    /// The versions that are reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
    /// What must-gather collects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<ObjectReference>,
}

/// What the next status depends on beside the outcome.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The version that the operator brings.
    pub version: &'a str,
    /// What must-gather is to collect.
    pub related_objects: Vec<ObjectReference>,
    /// What is added to the good news: what an administrator has taken out of the operator's hands.
    pub remarks: String,
    /// Now, RFC 3339.
    pub now: &'a str,
}

impl Status {
    /// Reads the status of a live ClusterOperator; whatever is not understood is as if it were not there.
    pub fn of(cluster_operator: &Value) -> Self {
        Self::deserialize(&cluster_operator["status"]).unwrap_or_default()
    }

    /// This, and of what it does not say what was said before: one that was deleted is made again by its writers one after
    /// the other.
    #[must_use]
    pub fn completed(mut self, before: &Self) -> Self {
        let lost = before.conditions.iter().filter(|condition| self.find(&condition.type_).is_none());
        let lost: Vec<_> = lost.cloned().collect();
        self.conditions.extend(lost);
        if self.versions.is_empty() {
            self.versions.clone_from(&before.versions);
        }
        if self.related_objects.is_empty() {
            self.related_objects.clone_from(&before.related_objects);
        }
        self
    }

    /// Whether a version has been reached.
    pub fn is_at(&self, version: &str) -> bool {
        self.versions.iter().any(|reached| reached.name == OPERAND && reached.version == version)
    }

    /// The operator's own part of the next status.
    #[must_use]
    pub fn next(&self, outcome: &Outcome, context: &Context) -> Self {
        let version = OperandVersion { name: OPERAND.into(), version: context.version.to_owned() };
        let available = format!("Cluster Cloud Controller Manager Operator is available at {}", context.version);
        let towards = || format!("Progressing towards operator: {}", context.version);
        let (available, progressing, degraded, upgradeable) = match outcome {
            Outcome::Done => (Some(available + &context.remarks), None, None, true),
            Outcome::Nothing { why } => (Some(format!("{available}; nothing is applied: {why}")), None, None, true),
            Outcome::Progressing { rollouts } => {
                let waits = rollouts.iter().map(Key::to_string).collect::<Vec<_>>().join(", ");
                let progressing = if self.is_at(context.version) {
                    (AS_EXPECTED, format!("Waiting for the rollout of {waits}"))
                } else {
                    (SYNCING, towards())
                };
                (None, Some(progressing), None, true)
            }
            Outcome::Failed { error } => (None, None, Some(error.clone()), false),
        };
        let reached = available.is_some();
        let expected = |type_: &str, status: &str| self.condition(context.now, type_, status, AS_EXPECTED, "");
        let conditions = vec![
            match available {
                Some(message) => self.condition(context.now, "Available", "True", AS_EXPECTED, &message),
                None => self.kept("Available", || {
                    self.condition(context.now, "Available", "False", SYNCING, "Nothing has been rolled out yet")
                }),
            },
            match (progressing, &degraded) {
                (Some((reason, message)), _) => self.condition(context.now, "Progressing", "True", reason, &message),
                (None, None) => expected("Progressing", "False"),
                (None, Some(_)) => self.kept("Progressing", || expected("Progressing", "False")),
            },
            match &degraded {
                Some(error) => self.condition(context.now, "Degraded", "True", SYNCING_FAILED, error),
                None => expected("Degraded", "False"),
            },
            if upgradeable {
                expected("Upgradeable", "True")
            } else {
                let message = "The operator is degraded; its condition Degraded says why";
                self.condition(context.now, "Upgradeable", "False", SYNCING_FAILED, message)
            },
        ];
        let versions = if reached { vec![version] } else { self.versions.clone() };
        Self { conditions, versions, related_objects: context.related_objects.clone() }
    }

    /// A controller's own part of the next status; `error` is what is to be reported.
    #[must_use]
    pub fn next_of(&self, controller: &Controller, error: Option<&str>, now: &str) -> Self {
        let as_expected = format!("{} works as expected", controller.name);
        let Controller { available, degraded, .. } = *controller;
        let conditions = match error {
            None => vec![
                self.condition(now, available, "True", AS_EXPECTED, &as_expected),
                self.condition(now, degraded, "False", AS_EXPECTED, &as_expected),
            ],
            // What was synced once is still there: it works, with the last good input.
            Some(error) => vec![
                self.kept(available, || {
                    let message = format!("{} has synced nothing yet", controller.name);
                    self.condition(now, available, "False", SYNCING_FAILED, &message)
                }),
                self.condition(now, degraded, "True", SYNCING_FAILED, error),
            ],
        };
        Self { conditions, ..Self::default() }
    }

    /// Whether a controller has ever synced what it is there for.
    pub fn is_available(&self, controller: &Controller) -> bool {
        self.find(controller.available).is_some_and(|condition| condition.status == "True")
    }

    /// What a controller says is wrong.
    pub fn trouble_of(&self, controller: &Controller) -> Option<&str> {
        let degraded = self.find(controller.degraded).filter(|condition| condition.status == "True")?;
        Some(&degraded.message)
    }

    /// Whether this, as the live status, says already what another one, a writer's own part, is to say.
    pub fn says(&self, own: &Self) -> bool {
        own.conditions.iter().all(|condition| self.conditions.contains(condition))
            // Versions and related objects are the operator's, which always has some of these.
            && (own.related_objects.is_empty()
                || (self.versions == own.versions && self.related_objects == own.related_objects))
    }

    fn find(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    fn kept(&self, type_: &str, otherwise: impl FnOnce() -> Condition) -> Condition {
        self.find(type_).cloned().unwrap_or_else(otherwise)
    }

    fn condition(&self, now: &str, type_: &str, status: &str, reason: &str, message: &str) -> Condition {
        let previous = self.find(type_).filter(|previous| previous.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: previous.map_or(now, |previous| &previous.last_transition_time).to_owned(),
        }
    }
}

/// The merge patch of the status that takes the obsolete condition away, guarded by the resource version; `None` when the
/// condition is not there. An apply cannot do it: it removes only what it owns.
pub fn without_obsolete_condition(cluster_operator: &Value) -> Option<Value> {
    let conditions = cluster_operator["status"]["conditions"].as_array()?;
    let (obsolete, kept): (Vec<_>, Vec<_>) =
        conditions.iter().partition(|condition| condition["type"] == OBSOLETE_CONDITION);
    (!obsolete.is_empty()).then(|| {
        json!({
            "metadata": {"resourceVersion": cluster_operator["metadata"]["resourceVersion"]},
            "status": {"conditions": kept},
        })
    })
}

/// What must-gather is to collect: both namespaces, the ClusterOperator, every object that was applied, and those of an
/// earlier plan that are kept.
pub fn related_objects<'a>(
    own_namespace: &str,
    managed_namespace: &str,
    objects: &[Object],
    kept: impl Iterator<Item = (&'static Kind, &'a Key)>,
) -> Vec<ObjectReference> {
    let reference = |group: &str, resource: &str, namespace: &str, name: &str| ObjectReference {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    let mut references = vec![
        reference("", "namespaces", "", own_namespace),
        reference("", "namespaces", "", managed_namespace),
        reference("config.openshift.io", "clusteroperators", "", NAME),
    ];
    references.extend(objects.iter().map(|object| {
        let kind = object.kind();
        reference(kind.group, kind.plural, object.namespace(), object.name())
    }));
    references.extend(kept.map(|(kind, key)| reference(kind.group, kind.plural, &key.namespace, &key.name)));
    references
}

#[cfg(test)]
mod tests;
