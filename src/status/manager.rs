//! The status of a `CloudControllerManager` (pure).
//!
//! The same state always gives the same text, and the time of a transition changes only with its status: a write is never
//! a reason to write again. `Ready`, `Reconciling` and `Stalled` are as kstatus reads them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::status::{Cluster, Condition, Nodes, Provider, Status, Workload},
    facts::cluster,
    plan::upstream::{judgement::Judgement, sources::Trouble},
};

const READY: &str = "Ready";
const RECONCILING: &str = "Reconciling";
const STALLED: &str = "Stalled";
const CONFIGURATION_VALID: &str = "ConfigurationValid";
const CREDENTIALS_FOUND: &str = "CredentialsFound";
const VERSION_SUPPORTED: &str = "VersionSupported";

/// Every condition, in the order in which they are written.
pub const CONDITIONS: [&str; 6] =
    [READY, RECONCILING, STALLED, CONFIGURATION_VALID, CREDENTIALS_FOUND, VERSION_SUPPORTED];

/// Every status of a condition.
pub const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// Whether a live object has a condition in this status.
pub fn has(live: &Value, condition: &str, status: &str) -> bool {
    let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == status)
}

/// The most nodes that are named.
const MOST_NODES: usize = 100;

/// What a pass has come to for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An input is bad: nothing is changed until it is another one.
    BadInput,
    /// The administrator wants nothing changed.
    Paused,
    /// It is being removed; what is left.
    Removing(Vec<String>),
    /// Nothing of it is left.
    Removed,
    /// Applying has failed: the error, and whether it can only be cured by somebody.
    Failed {
        /// The error with its causes, in one line.
        error: String,
        /// Whether trying again is of no use.
        is_terminal: bool,
    },
    /// Workloads are being rolled out.
    RollingOut(Vec<String>),
    /// Workloads do not come up: why.
    Stuck(String),
    /// Everything is applied.
    Applied,
}

/// What the status is computed from.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The generation of the object.
    pub generation: i64,
    /// What was found about its inputs.
    pub judgement: &'a Judgement,
    /// What was found about the cluster.
    pub cluster: Option<&'a cluster::Cluster>,
    /// What the pass has come to.
    pub outcome: &'a Outcome,
    /// Its pods.
    pub workload: Workload,
    /// The nodes that it would delete.
    pub gone_nodes: &'a BTreeSet<String>,
    /// Additions to the message of success.
    pub remarks: &'a str,
    /// Now, RFC 3339.
    pub now: &'a str,
}

/// The pods of a live workload, by its kind.
pub fn workload(kind: &str, live: &Value) -> Workload {
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

/// The status that a live object has, as far as the operator writes it.
pub fn of(live: &Value) -> Status {
    let mut status = Status::deserialize(&live["status"]).unwrap_or_default();
    status.conditions.retain(|one| CONDITIONS.contains(&one.type_.as_str()));
    status
}

/// The three conditions of kstatus, and the message of `Ready`.
fn summary(input: &Input) -> (&'static str, &'static str, String, bool, bool) {
    let Workload { kind, desired, ready } = &input.workload;
    let trouble = || input.judgement.trouble().map(|trouble| trouble.message.clone()).unwrap_or_default();
    match input.outcome {
        Outcome::BadInput => ("False", "BadInput", trouble(), false, true),
        Outcome::Paused => {
            let message = "spec.management is Paused: nothing is changed, and nothing repaired".to_owned();
            ("Unknown", "Paused", message, false, false)
        }
        Outcome::Removing(left) => ("False", "Removing", format!("still there: {}", left.join(", ")), true, false),
        Outcome::Removed => {
            let message = format!("spec.management is Removed: all its objects are deleted{}", input.remarks);
            ("False", "Removed", message, false, false)
        }
        Outcome::Failed { error, is_terminal } => ("False", "ApplyFailed", error.clone(), !is_terminal, *is_terminal),
        Outcome::RollingOut(rollouts) => {
            ("False", "RollingOut", format!("waiting for the rollout of {}", rollouts.join(", ")), true, false)
        }
        Outcome::Stuck(why) => ("False", "RolloutStuck", why.clone(), false, true),
        Outcome::Applied if *desired == 0 => {
            ("False", "NoPods", format!("the {kind} runs no pods: no node fits"), false, false)
        }
        Outcome::Applied if *ready == 0 => {
            ("False", "NoPodReady", format!("none of {desired} pods is ready"), false, false)
        }
        Outcome::Applied => {
            let gone = match input.gone_nodes.len() {
                0 => String::new(),
                count => format!("; the machines of {count} nodes are gone, see status.nodes.gone"),
            };
            ("True", "Running", format!("{ready} of {desired} pods are ready{gone}{}", input.remarks), false, false)
        }
    }
}

/// The next status after a previous one.
pub fn next(previous: &Status, input: &Input) -> Status {
    let Input { generation, judgement, cluster, workload, gone_nodes, now, .. } = input;
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let before = previous.conditions.iter().find(|one| one.type_ == type_ && one.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: *generation,
            last_transition_time: before.map_or(*now, |before| &before.last_transition_time).to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    };
    let (ready, reason, message, is_reconciling, is_stalled) = summary(input);
    let abnormal = |type_: &str, is_so: bool| {
        let (status, why) = if is_so { ("True", (reason, message.as_str())) } else { ("False", ("AsExpected", "")) };
        condition(type_, status, why.0, why.1)
    };
    let of_input = |type_: &str, known: Option<Result<(&str, String), &Trouble>>| match known {
        Some(Ok((reason, message))) => condition(type_, "True", reason, &message),
        Some(Err(Trouble { reason, message })) => condition(type_, "False", reason, message),
        None => condition(type_, "Unknown", "NotChecked", "another problem comes first"),
    };
    let configuration = judgement.configuration.as_ref().map(|result| {
        let ignored = |ignored: &Vec<String>| {
            if ignored.is_empty() { String::new() } else { format!("ignored: {}", ignored.join("; ")) }
        };
        result.as_ref().map(|all| ("Valid", ignored(all)))
    });
    let credentials = judgement.credentials.as_ref().map(|result| {
        result
            .as_ref()
            .map(|is_needed| if *is_needed { ("Found", String::new()) } else { ("NotNeeded", String::new()) })
    });
    let version = judgement.version.as_ref();
    let supported = match version.map(|(choice, _)| choice) {
        Some(choice) => match &choice.problem {
            Some((reason, problem)) => condition(VERSION_SUPPORTED, "False", reason, problem),
            None => condition(VERSION_SUPPORTED, "True", "Supported", &choice.because),
        },
        None => of_input(VERSION_SUPPORTED, None),
    };
    Status {
        observed_generation: *generation,
        conditions: vec![
            condition(READY, ready, reason, &message),
            abnormal(RECONCILING, is_reconciling),
            abnormal(STALLED, is_stalled),
            of_input(CONFIGURATION_VALID, configuration),
            of_input(CREDENTIALS_FOUND, credentials),
            supported,
        ],
        provider: version
            .map(|(choice, image)| Provider {
                version: choice.tag.clone(),
                image: image.clone(),
                because: choice.because.clone(),
            })
            .unwrap_or_default(),
        cluster: cluster
            .map(|cluster| Cluster {
                kubernetes: cluster.minor.to_string(),
                distribution: cluster.distribution.name().to_owned(),
                control_plane_nodes: u32::try_from(cluster.control_plane_nodes).unwrap_or(u32::MAX),
            })
            .unwrap_or_default(),
        workload: workload.clone(),
        nodes: Nodes { gone: gone_nodes.iter().take(MOST_NODES).cloned().collect() },
    }
}

#[cfg(test)]
mod tests;
