//! The status of a `CloudControllerManager` (pure).
//!
//! The same state always results in the same text, and a transition time changes only with its status, so that a write never causes
//! another write. `Ready`, `Reconciling` and `Stalled` have the meaning of kstatus.

pub(crate) mod problems;
pub(crate) mod starting;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::status::{Cluster, Condition, Deletion, Nodes, Provider, Status, WaitingNode, Workload},
    error,
    facts::cluster,
    nodes::waiting::{Waiting, by_reason},
    object,
    plan::kubernetes::validation::Validation,
    preflight::{
        check::{self, Check, CheckResult, Row},
        check_input::Reader,
        inputs,
    },
    provider::{Origin, versions::VERSION_BROKEN},
    status::outcome::{Outcome, names},
};
use starting::NO_POD_READY;

/// The condition that a `CloudControllerManager` is applied and runs.
pub(crate) const READY: &str = "Ready";
const RECONCILING: &str = "Reconciling";
/// The condition that an object waits for its administrator.
pub(crate) const STALLED: &str = "Stalled";
const CONFIGURATION_VALID: &str = "ConfigurationValid";
const CREDENTIALS_FOUND: &str = "CredentialsFound";
const VERSION_SUPPORTED: &str = "VersionSupported";
const PREFLIGHT_PASSED: &str = "PreflightPassed";
pub(crate) const NODES_INITIALIZED: &str = "NodesInitialized";
pub(crate) const NODE_DELETION_SAFE: &str = "NodeDeletionSafe";

/// Every condition, in the order of the status.
pub(crate) const CONDITIONS: [&str; 9] = [
    READY,
    RECONCILING,
    STALLED,
    CONFIGURATION_VALID,
    CREDENTIALS_FOUND,
    VERSION_SUPPORTED,
    PREFLIGHT_PASSED,
    NODES_INITIALIZED,
    NODE_DELETION_SAFE,
];

pub(crate) const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// Whether a live object has this condition with this status.
pub(crate) fn has(live: &Value, condition: &str, status: &str) -> bool {
    object::condition(live, condition)["status"] == status
}

/// Whether a live object has a version that must not run.
pub(crate) fn is_broken(live: &Value) -> bool {
    object::condition(live, VERSION_SUPPORTED)["reason"] == VERSION_BROKEN
}

/// The reason of `NodeDeletionSafe` if the guard is not in force.
pub(crate) const GUARD_NOT_IN_FORCE: &str = "GuardNotInForce";

/// Whether the condition `NodeDeletionSafe` is known, so that a start does not need to check the permissions.
pub(crate) fn is_guard_known(status: &Status) -> bool {
    let known = status.conditions.iter().find(|one| one.type_ == NODE_DELETION_SAFE);
    known.is_some_and(|one| one.status != "Unknown" && one.reason != GUARD_NOT_IN_FORCE)
}

/// Whether the status of a live object shows that its cloud-controller-manager was installed, and has not been removed since.
pub(crate) fn was_installed(live: &Value) -> bool {
    let version = live["status"]["provider"]["version"].as_str().unwrap_or_default();
    !version.is_empty() && has(live, PREFLIGHT_PASSED, "True")
}

const MOST_NODES: usize = 100;

const MOST_WAITING: usize = 32;

/// The node initialization of one `CloudControllerManager`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Initialization {
    pub total: usize,
    /// The number of nodes with the taint of uninitialized nodes.
    pub uninitialized: usize,
    /// Whether the long-waiting nodes are known.
    pub is_diagnosed: bool,
    /// The long-waiting nodes, longest wait first, or the reason why it is not known to initialize nodes.
    pub waiting: Result<Vec<Waiting>, NotInitializing>,
}

/// The reason why a `CloudControllerManager` is not known to initialize nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotInitializing {
    ControllerOff,
    Removed,
    /// The spec cannot be read, or the provider is unknown.
    BadInput,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardStatus {
    /// The nodes that may be deleted, and the waiting nodes.
    pub deletion: Deletion,
    /// Status, reason and message of `NodeDeletionSafe`; `None` if the condition does not change.
    pub is_safe: Option<(&'static str, &'static str, String)>,
}

/// The input of the next status.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    pub generation: i64,
    /// The result of validating its inputs; `None` before the inputs have been read.
    pub validation: Option<&'a Validation>,
    /// The cluster's version and distribution; `None` while they are unknown.
    pub cluster: Option<&'a cluster::Cluster>,
    pub outcome: &'a Outcome,
    /// The checks before its first installation; `None` if this process has not run them.
    pub preflight: Option<&'a [Row]>,
    /// The pods of its workload; `None` until they have been seen.
    pub workload: Option<Workload>,
    /// The node initialization; `None` until the nodes have been seen.
    pub nodes: Option<&'a Initialization>,
    pub gone_nodes: &'a BTreeSet<String>,
    /// The decision of its node guard; `None` before the first decision.
    pub guard: Option<&'a GuardStatus>,
    pub remarks: &'a str,
    pub now: &'a str,
}

/// Counts the pods of a live workload of this kind.
pub(crate) fn workload(kind: &str, live: &Value) -> Workload {
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let (desired, ready) = if kind == "DaemonSet" {
        ("/status/desiredNumberScheduled", "/status/numberReady")
    } else {
        ("/spec/replicas", "/status/readyReplicas")
    };
    Workload {
        kind: kind.to_owned(),
        desired: number(desired).unwrap_or_default(),
        ready: number(ready).unwrap_or_default(),
    }
}

/// Reads the operator's own fields from a live object's status.
pub(crate) fn of(live: &Value) -> Status {
    let mut status = Status::deserialize(&live["status"]).unwrap_or_default();
    status.conditions.retain(|one| CONDITIONS.contains(&one.type_.as_str()));
    status
}

/// The kstatus conditions, which share a reason and a message.
struct Summary {
    ready: &'static str,
    reason: &'static str,
    message: String,
    /// The other true condition, `Reconciling` or `Stalled`.
    abnormal: Option<&'static str>,
}

impl Summary {
    fn new(ready: &'static str, reason: &'static str, message: String) -> Self {
        Self { ready, reason, message, abnormal: None }
    }

    fn reconciling(reason: &'static str, message: String) -> Self {
        Self { abnormal: Some(RECONCILING), ..Self::new("False", reason, message) }
    }

    fn stalled(reason: &'static str, message: String) -> Self {
        Self { abnormal: Some(STALLED), ..Self::new("False", reason, message) }
    }

    /// `is_late` is true if pods that are not ready have had enough time to start.
    fn of(input: &Input, workload: &Workload, is_late: bool) -> Self {
        match input.outcome {
            Outcome::BadInput => {
                let problem = input.validation.and_then(Validation::problem);
                Self::stalled("BadInput", problem.map(|problem| problem.message.clone()).unwrap_or_default())
            }
            Outcome::PreflightRefused(why) => Self::stalled("PreflightRefused", why.clone()),
            Outcome::Paused => {
                let message = "spec.management is Paused: nothing is changed, and nothing repaired";
                Self::new("Unknown", "Paused", message.to_owned())
            }
            Outcome::Removing(left) => Self::reconciling("Removing", format!("still there: {}", left.join(", "))),
            Outcome::Removed => {
                let message = format!("spec.management is Removed: all its objects are deleted{}", input.remarks);
                Self::new("False", "Removed", message)
            }
            Outcome::Failed { error, is_terminal: true } => Self::stalled("ApplyFailed", error.clone()),
            Outcome::Failed { error, is_terminal: false } => Self::reconciling("ApplyFailed", error.clone()),
            Outcome::RollingOut { rollouts, nodes, .. } if nodes.is_empty() => {
                Self::reconciling("RollingOut", format!("waiting for the rollout of {}", names(rollouts)))
            }
            stuck @ (Outcome::RollingOut { .. } | Outcome::Stuck(..)) => {
                Self::stalled("RolloutStuck", stuck.problem().unwrap_or_default())
            }
            Outcome::Nothing(_) | Outcome::Applied(_) => Self::of_pods(input, workload, is_late),
        }
    }

    /// Returns the summary once all objects are as planned.
    fn of_pods(input: &Input, Workload { kind, desired, ready }: &Workload, is_late: bool) -> Self {
        if *desired == 0 {
            return Self::stalled("NoPods", format!("the {kind} runs no pods: no node fits"));
        }
        if *ready == 0 {
            let summary = if is_late { Self::stalled } else { Self::reconciling };
            return summary(NO_POD_READY, format!("none of {desired} pods is ready"));
        }
        let gone = match input.gone_nodes.len() {
            0 => String::new(),
            1 => "; the machine of 1 node is gone, see status.nodes.gone".to_owned(),
            count => format!("; the machines of {count} nodes are gone, see status.nodes.gone"),
        };
        Self::new("True", "Running", format!("{ready} of {desired} pods are ready{gone}{}", input.remarks))
    }
}

/// Returns the next status. A field with an unknown value keeps its previous value, so that it does not change back and forth when
/// the operator starts.
pub(crate) fn next(previous: &Status, input: &Input) -> Status {
    let Input { generation, validation, cluster, nodes, gone_nodes, guard, now, .. } = input;
    let workload = input.workload.as_ref().unwrap_or(&previous.workload);
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        // The time of the pods to start begins when they are all that is missing.
        let is_other = |one: &Condition| type_ == RECONCILING && reason == NO_POD_READY && one.reason != reason;
        let same = |one: &&Condition| one.type_ == type_ && one.status == status && !is_other(one);
        let before = previous.conditions.iter().find(same);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: *generation,
            last_transition_time: before.map_or(*now, |before| &before.last_transition_time).to_owned(),
            reason: reason.to_owned(),
            message: error::message(message).into_owned(),
        }
    };
    let before = |type_: &str| previous.conditions.iter().find(|one| one.type_ == type_);
    // The previous condition still holds for this generation.
    let still = |before: &Condition| Condition { observed_generation: *generation, ..before.clone() };
    let Summary { ready, reason, message, abnormal } = Summary::of(input, workload, starting::is_late(previous, now));
    let abnormal = |type_: &str| match abnormal {
        Some(abnormal) if abnormal == type_ => condition(type_, "True", reason, &message),
        _ => condition(type_, "False", "AsExpected", ""),
    };
    let is_going = matches!(input.outcome, Outcome::Removing(_) | Outcome::Removed);
    let of_input = |type_: &str, row: Option<&Row>| {
        // A removed cloud-controller-manager needs no input, and none is read.
        let Some(row) = row.filter(|_| !is_going) else {
            // The previous condition keeps its observed generation.
            let unread = || condition(type_, "Unknown", "NotChecked", "the inputs have not been read yet");
            return before(type_).cloned().unwrap_or_else(unread);
        };
        let status = match row.result {
            CheckResult::Passed => "True",
            // An ignored field is harmless, and so may be a line break. A version without its own image may not be.
            CheckResult::Warned if row.check != Check::Version => "True",
            CheckResult::Warned | CheckResult::Refused => "False",
            CheckResult::NotChecked => "Unknown",
        };
        condition(type_, status, row.reason, &row.message)
    };
    let rows = validation.map(|validation| inputs::rows(validation, Reader::Operator));
    let [configuration, credentials, supported] = rows.as_ref().map_or([None; 3], |rows| rows.each_ref().map(Some));
    let passed = before(PREFLIGHT_PASSED).filter(|one| one.status == "True");
    let preflight = match (input.preflight, passed.filter(|_| !is_going)) {
        (Some(rows), _) => {
            let (status, reason, message) = check::summary(rows);
            condition(PREFLIGHT_PASSED, status, reason, &message)
        }
        // Only a first installation is checked.
        (None, Some(passed)) => still(passed),
        (None, None) => condition(PREFLIGHT_PASSED, "Unknown", "NotChecked", "only a first installation is checked"),
    };
    // The reasons why the initialization is Unknown are about the spec, which has changed since if nodes are to be diagnosed.
    let is_outdated = |one: &&Condition| one.type_ == NODES_INITIALIZED && one.status == "Unknown" && nodes.is_some();
    let kept = |type_: &str| before(type_).filter(|one| !is_outdated(one));
    let of_nodes = |type_: &str, known: Option<(&str, &str, String)>, not_known: &str| match (known, kept(type_)) {
        (Some((status, reason, message)), _) => condition(type_, status, reason, &message),
        (None, Some(before)) => still(before),
        (None, None) => condition(type_, "Unknown", "NotChecked", not_known),
    };
    let diagnosed = nodes.filter(|nodes| nodes.is_diagnosed);
    let is_safe = guard.and_then(|guard| guard.is_safe.clone());
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let of_cluster = |cluster: &cluster::Cluster| Cluster {
        kubernetes: cluster.minor.to_string(),
        distribution: cluster.distribution.properties().name.to_owned(),
        control_plane_nodes: count(cluster.control_plane_nodes),
    };
    Status {
        observed_generation: *generation,
        conditions: vec![
            condition(READY, ready, reason, &message),
            abnormal(RECONCILING),
            abnormal(STALLED),
            of_input(CONFIGURATION_VALID, configuration),
            of_input(CREDENTIALS_FOUND, credentials),
            of_input(VERSION_SUPPORTED, supported),
            preflight,
            of_nodes(NODES_INITIALIZED, diagnosed.map(initialization), "the nodes are not checked yet"),
            of_nodes(NODE_DELETION_SAFE, is_safe, "there was nothing to delete yet"),
        ],
        provider: provider(previous, input),
        cluster: cluster.map_or_else(|| previous.cluster.clone(), of_cluster),
        workload: workload.clone(),
        nodes: Nodes {
            total: nodes.map_or(previous.nodes.total, |nodes| count(nodes.total)),
            uninitialized: nodes.map_or(previous.nodes.uninitialized, |nodes| count(nodes.uninitialized)),
            waiting: diagnosed.map_or_else(|| previous.nodes.waiting.clone(), waiting_longest),
            gone: gone_nodes.iter().take(MOST_NODES).cloned().collect(),
        },
        node_deletion: guard.map_or(&previous.node_deletion, |guard| &guard.deletion).clone(),
    }
}

/// Returns the provider. Keeps its origin while objects may remain, so that no other provider with the same name takes them over.
fn provider(previous: &Status, input: &Input) -> Provider {
    let Some(validation) = input.validation else { return previous.provider.clone() };
    let origin = match (&validation.origin, input.outcome) {
        (_, Outcome::Removed) => Origin::default(),
        (Some(origin), _) => origin.clone(),
        (None, _) if validation.version.is_some() => Origin::default(),
        (None, _) => Origin { digest: previous.provider.digest.clone(), ..Origin::default() },
    };
    let is_removed = matches!(input.outcome, Outcome::Removed);
    let Some((choice, image)) = validation.version.clone() else {
        // A wrong input changes nothing that runs.
        let before = if is_removed { Provider::default() } else { previous.provider.clone() };
        return Provider { digest: origin.digest, policy_exceptions: origin.policy_exceptions, ..before };
    };
    Provider {
        version: choice.tag,
        image,
        reason: choice.reason,
        digest: origin.digest,
        policy_exceptions: origin.policy_exceptions,
    }
}

/// Returns the status, reason and message of `NodesInitialized`.
fn initialization(nodes: &Initialization) -> (&'static str, &'static str, String) {
    match nodes.waiting.as_deref() {
        Err(NotInitializing::ControllerOff) => {
            ("Unknown", "ControllerOff", "spec.controllers.cloudNode is Disabled".to_owned())
        }
        Err(NotInitializing::Removed) => {
            ("Unknown", "Removed", "the cloud-controller-manager is removed, or is being removed".to_owned())
        }
        Err(NotInitializing::BadInput) => {
            let message = "the cloud-controller-manager cannot be identified, see ConfigurationValid";
            ("Unknown", "BadInput", message.to_owned())
        }
        Ok([]) => ("True", "Initialized", String::new()),
        Ok(waiting) => {
            let counts = by_reason(waiting);
            let most = counts.first().map_or("", |(reason, _)| reason.name());
            let counts =
                counts.iter().map(|(reason, count)| format!("{reason} ({count})")).collect::<Vec<_>>().join(", ");
            let message = format!("{} of {} nodes wait for their initialization: {counts}", waiting.len(), nodes.total);
            ("False", most, message)
        }
    }
}

fn waiting_longest(nodes: &Initialization) -> Vec<WaitingNode> {
    let first = nodes.waiting.iter().flatten().take(MOST_WAITING);
    let of = |one: &Waiting| WaitingNode {
        node: one.node.clone(),
        reason: one.reason.id().to_owned(),
        since: one.since.clone(),
        message: one.cause.clone(),
    };
    first.map(of).collect()
}

#[cfg(test)]
mod tests;
