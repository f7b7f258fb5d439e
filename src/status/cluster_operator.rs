//! The status of the ClusterOperator (pure).
//!
//! Computes the next status from an outcome and the previous status. The same state always gives the same text, and the
//! time of a transition changes only with its status: a write is never a reason to write again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::object::{Key, Kind, Object};

/// The ClusterOperator's name.
pub const NAME: &str = "cloud-controller-manager";

/// How long a transient error may last before it is reported (the same as upstream's).
pub const TRANSIENT_ERROR_PATIENCE: Duration = Duration::from_secs(150);

/// A condition that old versions wrote and that nobody reads.
const OBSOLETE_CONDITION: &str = "CloudControllerOwner";

/// The one operand whose version is reported.
const OPERAND: &str = "operator";

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const UPGRADEABLE: &str = "Upgradeable";

/// Every reported condition, in the order of the screen.
pub static CONDITIONS: [&str; 8] = [
    AVAILABLE,
    PROGRESSING,
    DEGRADED,
    UPGRADEABLE,
    CLOUD_CONFIG.available,
    CLOUD_CONFIG.degraded,
    TRUSTED_CA.available,
    TRUSTED_CA.degraded,
];

const AS_EXPECTED: &str = "AsExpected";
const SYNCING: &str = "SyncingResources";
const SYNCING_FAILED: &str = "SyncingFailed";

/// The result of one pass over the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is applied and runs.
    Done,
    /// No provider serves this cluster.
    Nothing {
        /// The reason, for people.
        why: String,
    },
    /// Everything is applied, and some workloads are being rolled out.
    Progressing {
        /// These workloads.
        rollouts: Vec<Key>,
    },
    /// An error has to be reported.
    Failed {
        /// The error with its causes, in one line.
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
    available: &'static str,
    degraded: &'static str,
    /// How long a transient error may last before it is reported (the same as upstream's).
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
    // The Go operator doubles the word, and other programs read it.
    available: "TrustedCABundleControllerControllerAvailable",
    degraded: "TrustedCABundleControllerControllerDegraded",
    patience: Duration::from_secs(120),
};

/// A condition in the status.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// RFC 3339.
    pub(super) last_transition_time: String,
}

/// The version of an operand.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub(super) struct OperandVersion {
    pub(super) name: String,
    pub(super) version: String,
}

/// An object that must-gather collects.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct ObjectReference {
    group: String,
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
}

/// The status of a ClusterOperator, as far as it is read and written.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Four conditions of the operator, and two of each controller beside it.
    pub(super) conditions: Vec<Condition>,
    /// The versions that have been reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) versions: Vec<OperandVersion>,
    /// The objects that must-gather collects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<ObjectReference>,
}

/// The input of the next status beside the outcome.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The version of this operator.
    pub version: &'a str,
    /// The objects that must-gather collects.
    pub related_objects: Vec<ObjectReference>,
    /// Additions to the message of success, such as objects that an administrator has excluded.
    pub remarks: String,
    /// Now, RFC 3339.
    pub now: &'a str,
}

impl Status {
    /// Reads the status of a live ClusterOperator; a malformed one counts as empty.
    pub fn of(cluster_operator: &Value) -> Self {
        Self::deserialize(&cluster_operator["status"]).unwrap_or_default()
    }

    /// Fills in what is missing from the previous status; a deleted ClusterOperator is recreated by its writers one at
    /// a time.
    #[must_use]
    pub fn completed(mut self, previous: &Self) -> Self {
        for condition in &previous.conditions {
            if self.find(&condition.type_).is_none() {
                self.conditions.push(condition.clone());
            }
        }
        if self.versions.is_empty() {
            self.versions.clone_from(&previous.versions);
        }
        if self.related_objects.is_empty() {
            self.related_objects.clone_from(&previous.related_objects);
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
        let (available, progressing, degraded) = match outcome {
            Outcome::Done => (Some(available + &context.remarks), None, None),
            Outcome::Nothing { why } => (Some(format!("{available}; nothing is applied: {why}")), None, None),
            Outcome::Progressing { rollouts } => {
                let waits = rollouts.iter().map(Key::to_string).collect::<Vec<_>>().join(", ");
                let progressing = if self.is_at(context.version) {
                    (AS_EXPECTED, format!("Waiting for the rollout of {waits}"))
                } else {
                    (SYNCING, format!("Progressing towards operator: {}", context.version))
                };
                (None, Some(progressing), None)
            }
            Outcome::Failed { error } => (None, None, Some(error.clone())),
        };
        let versions = if available.is_some() { vec![version] } else { self.versions.clone() };
        let condition =
            |type_, status, reason, message: &str| self.condition(context.now, type_, status, reason, message);
        let expected = |type_, status| condition(type_, status, AS_EXPECTED, "");
        let conditions = vec![
            match available {
                Some(message) => condition(AVAILABLE, "True", AS_EXPECTED, &message),
                None => {
                    self.kept(AVAILABLE, || condition(AVAILABLE, "False", SYNCING, "Nothing has been rolled out yet"))
                }
            },
            match (progressing, &degraded) {
                (Some((reason, message)), _) => condition(PROGRESSING, "True", reason, &message),
                (None, None) => expected(PROGRESSING, "False"),
                (None, Some(_)) => self.kept(PROGRESSING, || expected(PROGRESSING, "False")),
            },
            match &degraded {
                Some(error) => condition(DEGRADED, "True", SYNCING_FAILED, error),
                None => expected(DEGRADED, "False"),
            },
            match &degraded {
                Some(_) => {
                    let message = "The operator is degraded; its condition Degraded says why";
                    condition(UPGRADEABLE, "False", SYNCING_FAILED, message)
                }
                None => expected(UPGRADEABLE, "True"),
            },
        ];
        Self { conditions, versions, related_objects: context.related_objects.clone() }
    }

    /// A controller's own part of the next status; `error` is the error to report.
    #[must_use]
    pub fn next_of(&self, controller: &Controller, error: Option<&str>, now: &str) -> Self {
        let as_expected = format!("{} works as expected", controller.name);
        let Controller { available, degraded, .. } = *controller;
        let conditions = match error {
            None => vec![
                self.condition(now, available, "True", AS_EXPECTED, &as_expected),
                self.condition(now, degraded, "False", AS_EXPECTED, &as_expected),
            ],
            // Objects that were synced once still exist: the controller is available with the last good input.
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

    /// Whether a controller has ever synced successfully.
    pub fn is_available(&self, controller: &Controller) -> bool {
        self.find(controller.available).is_some_and(|condition| condition.status == "True")
    }

    /// The error that a controller reports.
    pub fn trouble_of(&self, controller: &Controller) -> Option<&str> {
        let degraded = self.find(controller.degraded).filter(|condition| condition.status == "True")?;
        Some(&degraded.message)
    }

    /// Whether this live status contains a writer's own part.
    pub fn has(&self, own: &Self) -> bool {
        own.conditions.iter().all(|condition| self.conditions.contains(condition))
            // Versions and related objects are the operator's, which always has related objects.
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

/// The merge patch of the status that removes the obsolete condition, guarded by the resource version; `None` if there
/// is no such condition. An apply removes only conditions that it owns.
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

/// The objects that must-gather collects: both namespaces, the ClusterOperator, every applied object, and the kept
/// objects of an earlier plan.
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
