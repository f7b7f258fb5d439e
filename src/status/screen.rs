//! The report of `status` (pure): objects compared with the plan, rollouts and the pods that block them, conditions and
//! last changes.
//!
//! The same input always results in the same report. It contains the cluster's timestamps; only [`mod@text`] converts them to ages.

pub(super) mod pods;
pub(crate) mod text;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::{
    apply::{
        inventory::{self, PruneDecision},
        ownership::{RequiredWrites, required_writes},
    },
    object::{self, Object},
    plan::Plan,
    status::{
        cluster_operator::{CONDITIONS, Condition, Status},
        rollout::{self, Rollout},
    },
    text::mask,
};

/// The state of a workload that has no ready pod although its rollout was done.
const UNAVAILABLE: &str = "unavailable";

const LAST_CHANGES: usize = 5;

/// The live state of an object; `None` if it does not exist.
type LiveObject = Option<Value>;

/// The input of the report. Unreadable documents are `None` and listed in `unread`.
#[derive(Debug, Default)]
pub(crate) struct StatusInput {
    pub platform: Option<String>,
    /// The plan, or the reason why there is none.
    pub plan: Option<Result<Plan, String>>,
    /// Whether the plan has the digests of the mounted configuration. Without them the planned workloads are incomplete.
    pub knows_digests: bool,
    /// The live state of each planned object.
    pub live: Vec<Option<LiveObject>>,
    /// Our objects that are no longer planned, each with its decision.
    pub left_over: Vec<(Value, PruneDecision)>,
    pub pods: Vec<Value>,
    pub events: Vec<Value>,
    pub cluster_operator: Option<LiveObject>,
    pub lease: Option<LiveObject>,
    pub now: Timestamp,
    pub unread: Vec<String>,
}

/// The report, serialized for programs.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusReport {
    /// Whether the ClusterOperator is available and not degraded, an operator is active, and each workload has a ready pod; `None` if the
    /// ClusterOperator cannot be read.
    pub healthy: Option<bool>,
    operator: OperatorState,
    platform: Option<String>,
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    version: Option<String>,
    namespace: String,
    /// The planned objects in order, then the left-over objects.
    objects: Vec<ObjectState>,
    rollouts: Vec<RolloutState>,
    conditions: Vec<ConditionState>,
    /// The last changes, newest first.
    changes: Vec<LastChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

/// The holder of the operator's lease.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct OperatorState {
    /// `leading`, `expired` if the holder has not renewed its lease, `absent` if the lease has no holder, `unknown` if it could not be
    /// read.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// The last renewal of an expired lease. A valid lease is renewed continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<String>,
}

impl OperatorState {
    fn of(lease: Option<&Option<Value>>, now: Timestamp) -> Self {
        let Some(lease) = lease else { return Self { state: "unknown", ..Self::default() } };
        let spec = |field: &str| lease.as_ref().map_or(&Value::Null, |lease| &lease["spec"][field]);
        let holder = spec("holderIdentity").as_str().filter(|holder| !holder.is_empty()).map(str::to_owned);
        if holder.is_none() {
            return Self { state: "absent", ..Self::default() };
        }
        let renewed = spec("renewTime").as_str();
        let duration = SignedDuration::from_secs(spec("leaseDurationSeconds").as_i64().unwrap_or_default());
        let is_expired = |renewed: Timestamp| now.duration_since(renewed) > duration;
        if renewed.and_then(|time| time.parse().ok()).is_some_and(is_expired) {
            return Self { state: "expired", holder, renewed: renewed.map(str::to_owned) };
        }
        Self { state: "leading", holder, renewed: None }
    }

    /// Whether no operator is active.
    fn is_gone(&self) -> bool {
        matches!(self.state, "expired" | "absent")
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct ObjectState {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    /// `as-planned`, `differs`, `missing`, `unknown` if it could not be read, `kept` if an annotation excludes it from
    /// changes or deletion, `left-over` if it is ours and no longer planned.
    state: &'static str,
    created: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RolloutState {
    kind: String,
    name: String,
    /// `done`, `progressing`, `stuck`, or `unavailable` if no pod is ready although the rollout was done.
    state: &'static str,
    ready: i64,
    desired: i64,
    waits_for: Vec<String>,
}

/// A condition, without a status if it has not been reported.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct ConditionState {
    #[serde(rename = "type")]
    type_: String,
    status: Option<String>,
    reason: String,
    message: String,
    since: Option<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct LastChange {
    at: String,
    object: String,
    /// The manager and its action, or the text of an event.
    what: String,
}

impl StatusReport {
    /// Creates the report on a cluster with this managed namespace.
    pub(crate) fn new(input: &StatusInput, namespace: &str) -> Self {
        let (provider, planned, why) = match &input.plan {
            Some(Ok(Plan::Objects { provider, objects })) => (Some(provider.clone()), &objects[..], None),
            Some(Ok(Plan::Nothing { why })) => (None, &[][..], Some(format!("nothing to apply: {why}"))),
            Some(Err(error)) => (None, &[][..], Some(format!("there is no plan: {error}"))),
            None => (None, &[][..], None),
        };
        let live_status = input.cluster_operator.as_ref();
        let status = live_status.and_then(Option::as_ref).map(Status::of).unwrap_or_default();
        let operator = OperatorState::of(input.lease.as_ref(), input.now);
        let compared = planned.iter().zip(&input.live);
        let compared = compared.map(|(object, live)| planned_state(object, live.as_ref(), input));
        let left_over = input.left_over.iter().map(|(live, decision)| {
            let is_kept = matches!(decision, PruneDecision::Keep(_));
            object_state(live, Some(live), if is_kept { "kept" } else { "left-over" })
        });
        let live = || input.live.iter().flatten().flatten();
        let rollouts: Vec<_> = live().filter_map(|live| rollout_state(live, input)).collect();
        // As in the Go operator, the conditions cover rollouts, but not pods that fail later.
        let is_served = rollouts.iter().all(|rollout| rollout.state != UNAVAILABLE);
        Self {
            healthy: live_status.map(|_| status.is_healthy() && !operator.is_gone() && is_served),
            operator,
            platform: input.platform.clone(),
            provider,
            why,
            version: status.version().map(str::to_owned),
            namespace: namespace.to_owned(),
            objects: compared.chain(left_over).collect(),
            rollouts,
            conditions: live_status.map(|_| conditions(&status.conditions)).unwrap_or_default(),
            changes: last_changes(live(), &input.events),
            unread: input.unread.clone(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn planned_state(object: &Object, live: Option<&Option<Value>>, input: &StatusInput) -> ObjectState {
    let state = match live {
        None => "unknown",
        Some(None) => "missing",
        Some(Some(live)) if inventory::is_left_alone(live) => "kept",
        Some(Some(live)) if required_writes(object.value(), live) == RequiredWrites::Nothing => "as-planned",
        Some(Some(_)) if object.pod_spec_pointer().is_some() && !input.knows_digests => "unknown",
        Some(Some(_)) => "differs",
    };
    object_state(object.value(), live.and_then(Option::as_ref), state)
}

fn object_state(object: &Value, live: Option<&Value>, state: &'static str) -> ObjectState {
    let metadata = &object["metadata"];
    let created = live.and_then(|live| live["metadata"]["creationTimestamp"].as_str());
    ObjectState {
        kind: text(&object["kind"]),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        state,
        created: created.map(str::to_owned),
    }
}

/// Returns the rollout of a workload; `None` for other kinds.
fn rollout_state(live: &Value, input: &StatusInput) -> Option<RolloutState> {
    let status = |name: &str| live["status"][name].as_i64().unwrap_or_default();
    let (ready, desired) = match live["kind"].as_str()? {
        "Deployment" => (status("readyReplicas"), live["spec"]["replicas"].as_i64().unwrap_or(1)),
        "DaemonSet" => (status("numberReady"), status("desiredNumberScheduled")),
        _ => return None,
    };
    let (state, mut waits_for) = match rollout::of(live) {
        Rollout::Done if ready == 0 && desired > 0 => (UNAVAILABLE, Vec::new()),
        Rollout::Done => ("done", Vec::new()),
        Rollout::Progressing => ("progressing", Vec::new()),
        Rollout::Stuck { why } => ("stuck", vec![why]),
    };
    let failure = object::condition(live, "ReplicaFailure");
    if failure["status"] == "True" {
        waits_for.push(format!("no pod can be created: {}", text(&failure["message"])));
    }
    let pods = input.pods.iter().filter(|pod| pods::is_selected(live, pod));
    waits_for.extend(pods.filter_map(|pod| pods::waits_for(pod, &input.events)));
    Some(RolloutState {
        kind: text(&live["kind"]),
        name: text(&live["metadata"]["name"]),
        state,
        ready,
        desired,
        waits_for,
    })
}

/// Returns the known conditions in order, including unreported ones, then all other conditions.
fn conditions(reported: &[Condition]) -> Vec<ConditionState> {
    let state = |one: &Condition| ConditionState {
        type_: one.type_.clone(),
        status: Some(one.status.clone()),
        reason: one.reason.clone(),
        // Another client may have written the condition.
        message: mask::message(&one.message),
        since: Some(one.last_transition_time.clone()).filter(|time| !time.is_empty()),
    };
    let known = CONDITIONS.map(|type_| match reported.iter().find(|one| one.type_ == type_) {
        Some(one) => state(one),
        None => ConditionState { type_: type_.into(), message: "not reported".into(), ..ConditionState::default() },
    });
    let others = reported.iter().filter(|one| !CONDITIONS.contains(&one.type_.as_str()));
    known.into_iter().chain(others.map(state)).collect()
}

/// Returns the last changes according to each object's managed fields and the events.
fn last_changes<'a>(live: impl Iterator<Item = &'a Value>, events: &[Value]) -> Vec<LastChange> {
    let mut changes = Vec::new();
    for object in live {
        let metadata = &object["metadata"];
        let name = format!("{} {}", text(&object["kind"]), text(&metadata["name"]));
        for entry in metadata["managedFields"].as_array().into_iter().flatten() {
            // The status of a workload changes with every pod.
            if entry["subresource"].as_str().is_none_or(str::is_empty) {
                let action = if entry["operation"] == "Apply" { "applied" } else { "updated" };
                let what = format!("{action} by {}", text(&entry["manager"]));
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
    changes.truncate(LAST_CHANGES);
    changes
}

/// Returns the first line of a message, without secrets.
fn first_line(message: &Value) -> String {
    let first = message.as_str().and_then(|text| text.lines().find(|line| !line.trim().is_empty()));
    mask::message(first.unwrap_or_default())
}

#[cfg(test)]
mod tests;
