//! The status of the ClusterOperator (pure).
//!
//! Computes the next status from an outcome and the previous status. The same state always results in the same text, and a transition
//! time changes only with its status, so that a write never causes another write.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    error,
    object::{self, Key, Kind, NAMESPACE, Object},
    status::outcome::{Outcome, names},
};

/// The kind of the object that holds the status.
pub static KIND: Kind = object::kind("config.openshift.io", "v1", "ClusterOperator", "clusteroperators", false, 0);

/// The ClusterOperator's name.
pub const NAME: &str = "cloud-controller-manager";

/// A condition of old versions that is never read.
const OBSOLETE_CONDITION: &str = "CloudControllerOwner";

/// The only operand whose version is reported.
const OPERAND: &str = "operator";

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const UPGRADEABLE: &str = "Upgradeable";

/// Every reported condition, in display order.
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

/// A config-sync controller, with its own two conditions in the ClusterOperator.
#[derive(Debug, PartialEq, Eq)]
pub struct SyncController {
    /// The display name.
    pub name: &'static str,
    /// The name in metrics.
    pub word: &'static str,
    available: &'static str,
    degraded: &'static str,
}

/// The controller that syncs the cloud's configuration.
pub static CLOUD_CONFIG: SyncController = SyncController {
    name: "Cloud Config Controller",
    word: "cloud_config",
    available: "CloudConfigControllerAvailable",
    degraded: "CloudConfigControllerDegraded",
};

/// The controller that merges the certificates that cloud-controller-managers trust.
pub static TRUSTED_CA: SyncController = SyncController {
    name: "Trusted CA Bundle Controller",
    word: "trusted_ca",
    // The Go operator repeats the word `Controller`, and other programs read these names.
    available: "TrustedCABundleControllerControllerAvailable",
    degraded: "TrustedCABundleControllerControllerDegraded",
};

/// The result of a pass of a config-sync controller: success, or the error to report.
pub type SyncResult = Result<(), String>;

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

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
struct OperandVersion {
    name: String,
    version: String,
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

/// The fields of a ClusterOperator's status that the operator reads and writes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The conditions of the operator, and two per config-sync controller.
    pub(super) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<OperandVersion>,
    /// The objects that must-gather collects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<ObjectReference>,
}

/// The inputs of the next status other than the outcome.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The version of this operator.
    pub version: &'a str,
    /// The objects that must-gather collects.
    pub related_objects: Vec<ObjectReference>,
    /// Additions to the success message, such as objects that an administrator has excluded.
    pub remarks: String,
    /// The current time in RFC 3339.
    pub now: &'a str,
}

impl Status {
    /// Reads the status of a live ClusterOperator. A malformed status counts as empty.
    pub fn of(cluster_operator: &Value) -> Self {
        Self::deserialize(&cluster_operator["status"]).unwrap_or_default()
    }

    /// Adds missing parts from the previous status, because the writers recreate a deleted ClusterOperator one after the other.
    #[must_use]
    pub fn completed(mut self, previous: &Self) -> Self {
        let missing = previous.conditions.iter().filter(|condition| self.find(&condition.type_).is_none());
        self.conditions.extend(missing.cloned().collect::<Vec<_>>());
        if self.versions.is_empty() {
            self.versions.clone_from(&previous.versions);
        }
        if self.related_objects.is_empty() {
            self.related_objects.clone_from(&previous.related_objects);
        }
        self
    }

    /// Whether the status reports this version.
    pub fn is_at(&self, version: &str) -> bool {
        self.version() == Some(version)
    }

    pub(super) fn version(&self) -> Option<&str> {
        Some(&self.versions.iter().find(|reached| reached.name == OPERAND)?.version)
    }

    /// Returns the operator's own part of the next status.
    #[must_use]
    pub fn next(&self, outcome: &Outcome, context: &Context) -> Self {
        let Context { version, related_objects, remarks, now } = context;
        let condition = |type_, status, reason, message: &str| self.condition(now, type_, status, reason, message);
        let expected = |type_, status| condition(type_, status, AS_EXPECTED, "");
        let available_at = |version: &str, remarks: &str| {
            let message = format!("Cluster Cloud Controller Manager Operator is available at {version}{remarks}");
            condition(AVAILABLE, "True", AS_EXPECTED, &message)
        };
        // The previous message is about an earlier plan and may be outdated.
        let kept_available = || match self.version().filter(|_| self.find_true(AVAILABLE).is_some()) {
            Some(reached) => available_at(reached, remarks),
            None => self.kept(condition(AVAILABLE, "False", SYNCING, "Nothing has been rolled out yet")),
        };
        let (available, progressing, error) = match outcome {
            Outcome::Nothing(why) => {
                (available_at(version, &format!("; nothing is applied: {why}")), expected(PROGRESSING, "False"), None)
            }
            Outcome::RollingOut { rollouts, nodes, .. } => {
                let (reason, message) = if self.is_at(version) {
                    (AS_EXPECTED, format!("Waiting for the rollout of {}{nodes}", names(rollouts)))
                } else {
                    (SYNCING, format!("Progressing towards operator: {version}{nodes}"))
                };
                (kept_available(), condition(PROGRESSING, "True", reason, &message), None)
            }
            Outcome::Applied(_) => (available_at(version, remarks), expected(PROGRESSING, "False"), None),
            other => (kept_available(), self.kept(expected(PROGRESSING, "False")), other.problem()),
        };
        let (degraded, upgradeable) = match error {
            None => (expected(DEGRADED, "False"), expected(UPGRADEABLE, "True")),
            Some(error) => {
                let why = "The operator is degraded; its condition Degraded says why";
                let upgradeable = condition(UPGRADEABLE, "False", SYNCING_FAILED, why);
                (condition(DEGRADED, "True", SYNCING_FAILED, &error), upgradeable)
            }
        };
        let reached = OperandVersion { name: OPERAND.into(), version: (*version).to_owned() };
        let versions = if outcome.is_well() { vec![reached] } else { self.versions.clone() };
        let conditions = vec![available, progressing, degraded, upgradeable];
        Self { conditions, versions, related_objects: related_objects.clone() }
    }

    /// Returns the part of the next status that these controllers report. A controller without a result keeps its conditions, because an
    /// apply removes omitted conditions.
    #[must_use]
    pub fn next_of(&self, results: &[(&SyncController, Option<&SyncResult>)], now: &str) -> Self {
        let conditions = results.iter().flat_map(|(controller, result)| match result {
            Some(result) => self.conditions_of(controller, result, now),
            None => [controller.available, controller.degraded].map(|type_| self.find(type_).cloned()),
        });
        Self { conditions: conditions.flatten().collect(), ..Self::default() }
    }

    fn conditions_of(&self, controller: &SyncController, result: &SyncResult, now: &str) -> [Option<Condition>; 2] {
        let SyncController { name, available, degraded, .. } = *controller;
        let condition = |type_, status, reason, message: &str| self.condition(now, type_, status, reason, message);
        let conditions = if let Err(error) = result {
            let nothing_yet = format!("{name} has synced nothing yet");
            // Objects that were synced before still exist: the controller is available with the last valid input.
            let available = self.kept(condition(available, "False", SYNCING_FAILED, &nothing_yet));
            [available, condition(degraded, "True", SYNCING_FAILED, error)]
        } else {
            let works = format!("{name} works as expected");
            let available = condition(available, "True", AS_EXPECTED, &works);
            [available, condition(degraded, "False", AS_EXPECTED, &works)]
        };
        conditions.map(Some)
    }

    /// Returns each condition with its status.
    pub fn states(&self) -> impl Iterator<Item = (&str, &str)> {
        self.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str()))
    }

    /// Whether a controller has ever synced successfully.
    pub fn is_available(&self, controller: &SyncController) -> bool {
        self.find_true(controller.available).is_some()
    }

    /// Whether the cluster's cloud-controller-manager is available and not degraded.
    pub(super) fn is_healthy(&self) -> bool {
        self.find_true(AVAILABLE).is_some() && self.find_true(DEGRADED).is_none()
    }

    /// Returns the error that a controller reports.
    pub fn problem_of(&self, controller: &SyncController) -> Option<&str> {
        Some(&self.find_true(controller.degraded)?.message)
    }

    /// Whether this live status contains a writer's own part.
    pub fn has(&self, own: &Self) -> bool {
        own.conditions.iter().all(|condition| self.conditions.contains(condition))
            // The operator owns the versions and the related objects, and always reports both.
            && (own.related_objects.is_empty()
                || (self.versions == own.versions && self.related_objects == own.related_objects))
    }

    fn find(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    fn find_true(&self, type_: &str) -> Option<&Condition> {
        self.find(type_).filter(|condition| condition.status == "True")
    }

    /// Returns the previous condition of the same type, or `otherwise` if there is none.
    fn kept(&self, otherwise: Condition) -> Condition {
        self.find(&otherwise.type_).cloned().unwrap_or(otherwise)
    }

    fn condition(&self, now: &str, type_: &str, status: &str, reason: &str, message: &str) -> Condition {
        let previous = self.find(type_).filter(|previous| previous.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: error::message(message).into_owned(),
            last_transition_time: previous.map_or(now, |previous| &previous.last_transition_time).to_owned(),
        }
    }
}

/// Returns the status merge patch that removes the obsolete condition, guarded by the resource version; `None` if there
/// is no such condition. A patch is needed because an apply removes only conditions that its manager owns.
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

/// Returns the objects that must-gather collects: both namespaces, the ClusterOperator, every applied object, and the kept objects of
/// an earlier plan.
pub fn related_objects<'a>(
    own_namespace: &str,
    managed_namespace: &str,
    objects: &[Object],
    kept: impl Iterator<Item = (&'static Kind, &'a Key)>,
) -> Vec<ObjectReference> {
    let own = [(&NAMESPACE, "", own_namespace), (&NAMESPACE, "", managed_namespace), (&KIND, "", NAME)];
    let applied = objects.iter().map(|object| (object.kind(), object.namespace(), object.name()));
    let kept = kept.map(|(kind, key)| (kind, key.namespace.as_str(), key.name.as_str()));
    let reference = |(kind, namespace, name): (&Kind, &str, &str)| ObjectReference {
        group: kind.group.into(),
        resource: kind.plural.into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    own.into_iter().chain(applied).chain(kept).map(reference).collect()
}

#[cfg(test)]
mod tests;
