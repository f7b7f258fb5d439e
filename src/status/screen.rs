//! What `status` says about a cluster (pure): the objects against the plan, the rollouts and what they wait for, the
//! conditions, what changed last.
//!
//! Made of what [`read`] found; the same findings always give the same report. Times are those of the cluster: how long
//! ago they are, only [`mod@text`] says.

mod pods;
pub mod text;

use serde::Serialize;
use serde_json::Value;

use crate::{
    apply::{
        inventory::{self, Verdict},
        ownership::{Need, need},
    },
    object::Object,
    plan::Plan,
    status::{
        cluster_operator::{CONDITIONS, Condition, Status},
        rollout::{self, Rollout},
    },
    text::mask,
};

/// How many of the last changes are told.
const TOLD_CHANGES: usize = 5;

/// What was read of a cluster; what could not be read is `None`, and told in `unread`.
#[derive(Debug, Default)]
pub struct Findings {
    /// The platform type, `None` without an Infrastructure.
    pub platform: Option<String>,
    /// The plan, or why there is none.
    pub plan: Option<Result<Plan, String>>,
    /// Whether the plan holds what the pods' configuration is: without it what a workload should be is not known whole.
    pub knows_digests: bool,
    /// The planned objects as they are: `None` where it could not be read, `Some(None)` where it is not there.
    pub live: Vec<Option<Option<Value>>>,
    /// What is ours and not planned any more, with what becomes of it.
    pub left_over: Vec<(Value, Verdict)>,
    /// The pods of the managed namespace.
    pub pods: Vec<Value>,
    /// Its events.
    pub events: Vec<Value>,
    /// The ClusterOperator.
    pub cluster_operator: Option<Value>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// What `status` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Available and not degraded.
    pub healthy: bool,
    /// The platform type.
    pub platform: Option<String>,
    /// The provider that serves it.
    pub provider: Option<String>,
    /// Why nothing is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The version that is reached.
    pub version: Option<String>,
    /// The namespace that is managed.
    pub namespace: String,
    /// The objects, as they are planned and then what is left over.
    pub objects: Vec<ObjectState>,
    /// The workloads.
    pub rollouts: Vec<RolloutState>,
    /// What the ClusterOperator says.
    pub conditions: Vec<ConditionState>,
    /// What changed last, the newest first.
    pub changes: Vec<LastChange>,
    /// What could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// How an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is what the plan says.
    AsPlanned,
    /// It is another one.
    Differs,
    /// It is not there.
    Missing,
    /// It is annotated to be left as it is, or where it is.
    Kept,
    /// It is ours and not planned any more.
    LeftOver,
    /// It could not be read.
    Unknown,
}

impl State {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::AsPlanned => "as planned",
            Self::Differs => "differs",
            Self::Missing => "missing",
            Self::Kept => "kept",
            Self::LeftOver => "left over",
            Self::Unknown => "unknown",
        }
    }
}

/// An object with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectState {
    /// Its kind.
    pub kind: String,
    /// Its namespace, empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: State,
    /// When it was made.
    pub created: Option<String>,
}

/// How far a workload is, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutState {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `done`, `progressing` or `stuck`.
    pub state: &'static str,
    /// How many of its pods are ready.
    pub ready: i64,
    /// How many there should be.
    pub desired: i64,
    /// What it waits for, in the words of the pods.
    pub waits_for: Vec<String>,
}

/// A condition; one that nobody has reported has no status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionState {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: Option<String>,
    /// A word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when.
    pub since: Option<String>,
}

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LastChange {
    /// When.
    pub at: String,
    /// Of which object.
    pub object: String,
    /// Who did what, or the words of an event.
    pub what: String,
}

impl Report {
    /// The report of these findings.
    pub fn new(findings: &Findings, namespace: &str) -> Self {
        let plan = findings.plan.as_ref();
        let planned = plan.and_then(|plan| plan.as_ref().ok()).map_or(&[][..], Plan::objects);
        let (provider, why) = match plan {
            Some(Ok(Plan::Objects { provider, .. })) => (Some(provider.clone()), None),
            Some(Ok(Plan::Nothing { why })) => (None, Some(format!("nothing is to be applied: {why}"))),
            Some(Err(error)) => (None, Some(format!("there is no plan: {error}"))),
            None => (None, None),
        };
        let said = findings.cluster_operator.as_ref().map(Status::of).unwrap_or_default();
        let is = |type_, status| said.conditions.iter().any(|one| one.type_ == type_ && one.status == status);
        let states =
            planned.iter().zip(&findings.live).map(|(object, live)| object_state(object, live.as_ref(), findings));
        let live = || findings.live.iter().flatten().flatten();
        Self {
            healthy: is("Available", "True") && !is("Degraded", "True"),
            platform: findings.platform.clone(),
            provider,
            why,
            version: said.versions.iter().find(|one| one.name == "operator").map(|one| one.version.clone()),
            namespace: namespace.to_owned(),
            objects: states.chain(findings.left_over.iter().map(left_over)).collect(),
            rollouts: live().filter_map(|live| rollout_state(live, findings)).collect(),
            conditions: conditions(&said.conditions),
            changes: last_changes(live(), &findings.events),
            unread: findings.unread.clone(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn object_state(object: &Object, live: Option<&Option<Value>>, findings: &Findings) -> ObjectState {
    let state = match live {
        None => State::Unknown,
        Some(None) => State::Missing,
        Some(Some(live)) if inventory::is_left_alone(live) => State::Kept,
        Some(Some(live)) if need(object.value(), live) == Need::Nothing => State::AsPlanned,
        Some(Some(_)) if object.pod_spec_pointer().is_some() && !findings.knows_digests => State::Unknown,
        Some(Some(_)) => State::Differs,
    };
    let live = live.and_then(Option::as_ref);
    ObjectState {
        kind: object.kind().kind.to_owned(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        state,
        created: live.and_then(|live| live["metadata"]["creationTimestamp"].as_str()).map(str::to_owned),
    }
}

fn left_over((live, verdict): &(Value, Verdict)) -> ObjectState {
    let metadata = &live["metadata"];
    ObjectState {
        kind: text(&live["kind"]),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        state: if matches!(verdict, Verdict::Keep(_)) { State::Kept } else { State::LeftOver },
        created: metadata["creationTimestamp"].as_str().map(str::to_owned),
    }
}

/// How far a workload is; nothing else rolls out.
fn rollout_state(live: &Value, findings: &Findings) -> Option<RolloutState> {
    let status = |name: &str| live["status"][name].as_i64().unwrap_or_default();
    let (ready, desired) = match live["kind"].as_str()? {
        "Deployment" => (status("readyReplicas"), live["spec"]["replicas"].as_i64().unwrap_or(1)),
        "DaemonSet" => (status("numberReady"), status("desiredNumberScheduled")),
        _ => return None,
    };
    let rollout = rollout::of(live);
    let state = match &rollout {
        Rollout::Done => "done",
        Rollout::Progressing => "progressing",
        Rollout::Stuck { .. } => "stuck",
    };
    let mut waits_for = Vec::new();
    if let Rollout::Stuck { why } = rollout {
        waits_for.push(why);
    }
    let conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    let failures = conditions.filter(|one| one["type"] == "ReplicaFailure" && one["status"] == "True");
    waits_for.extend(failures.map(|one| format!("no pod can be made: {}", text(&one["message"]))));
    let pods = findings.pods.iter().filter(|pod| pods::is_selected(live, pod));
    waits_for.extend(pods.filter_map(|pod| pods::waits_for(pod, &findings.events)));
    Some(RolloutState {
        kind: text(&live["kind"]),
        name: text(&live["metadata"]["name"]),
        state,
        ready,
        desired,
        waits_for,
    })
}

/// The known conditions in their order, also those that nobody has reported, and then the others.
fn conditions(said: &[Condition]) -> Vec<ConditionState> {
    let reported = |one: &Condition| ConditionState {
        type_: one.type_.clone(),
        status: Some(one.status.clone()),
        reason: one.reason.clone(),
        message: one.message.clone(),
        since: Some(one.last_transition_time.clone()).filter(|time| !time.is_empty()),
    };
    let known = CONDITIONS.iter().map(|type_| match said.iter().find(|one| one.type_ == *type_) {
        Some(one) => reported(one),
        None => ConditionState {
            type_: (*type_).to_owned(),
            status: None,
            reason: String::new(),
            message: "not reported".to_owned(),
            since: None,
        },
    });
    let others = said.iter().filter(|one| !CONDITIONS.contains(&one.type_.as_str()));
    known.chain(others.map(reported)).collect()
}

/// Who changed what last: from the notes of the API server on each object, and from events.
fn last_changes<'a>(live: impl Iterator<Item = &'a Value>, events: &[Value]) -> Vec<LastChange> {
    let mut changes = Vec::new();
    for object in live {
        let metadata = &object["metadata"];
        let name = format!("{} {}", text(&object["kind"]), text(&metadata["name"]));
        for entry in metadata["managedFields"].as_array().into_iter().flatten() {
            // The status of a workload changes with every pod.
            if entry["subresource"].as_str().is_none_or(str::is_empty) {
                let what = match entry["operation"].as_str() {
                    Some("Apply") => format!("applied by {}", text(&entry["manager"])),
                    _ => format!("updated by {}", text(&entry["manager"])),
                };
                changes.push(LastChange { at: text(&entry["time"]), object: name.clone(), what });
            }
        }
    }
    for event in events {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
        let at = times.iter().find_map(|time| event[time].as_str()).unwrap_or_default().to_owned();
        let about = &event["involvedObject"];
        let object = format!("{} {}", text(&about["kind"]), text(&about["name"]));
        let count = event["count"].as_i64().filter(|count| *count > 1).map(|count| format!(" ({count} times)"));
        let what =
            format!("{}: {}{}", text(&event["reason"]), first_line(&event["message"]), count.unwrap_or_default());
        changes.push(LastChange { at, object, what });
    }
    changes.retain(|change| !change.at.is_empty());
    changes.sort_by(|first, second| second.cmp(first));
    changes.truncate(TOLD_CHANGES);
    changes
}

/// The first line of a message, without secrets: the rest is for logs.
fn first_line(message: &Value) -> String {
    let first = message.as_str().and_then(|text| text.lines().find(|line| !line.trim().is_empty()));
    shown(first.unwrap_or_default())
}

/// A line of somebody else's with what looks like a secret masked, also where it stands between other words.
fn shown(line: &str) -> String {
    let line = mask::line(line);
    line.split(' ').map(mask::line).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
