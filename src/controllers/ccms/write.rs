//! Writes the status of each `CloudControllerManager` (IO), only if it differs, and less often if only node counts differ.

use std::time::{Duration, Instant};

use kube::{
    api::{DynamicObject, Patch, PatchParams, ValidationDirective},
    client::Client,
};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    Member,
    guard::record_deletions,
    live_of,
    missing_fields::MissingStatusFields,
    report::{Reporter, is_object_of},
};
use crate::{
    api::{
        CLOUD_CONTROLLER_MANAGER,
        status::{Condition, Status, Workload},
    },
    apply::{inventory::Location, ownership::FIELD_MANAGER},
    cluster::{
        request::{self, Cause},
        seen::Seen,
    },
    controllers::{
        Pass, now_in_seconds,
        observer::{Id, InputKind, Observer},
        target::Target,
        view::View,
    },
    nodes::identity::CcmIdentity,
    provider::kubernetes::is_ccm,
    status::{
        ccm::{self, Initialization, Input, NODE_DELETION_SAFE, NODES_INITIALIZED, READY, problems, starting},
        write,
    },
};

/// The shortest time between two writes of a status that differ only in names and counts of nodes.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

impl Reporter<'_> {
    /// Writes the status of a member, unless it has not changed. Returns whether it was written.
    pub(super) async fn write(&self, member: &mut Member, view: &mut View, pass: &mut Pass) -> Result<bool, String> {
        let Some(outcome) = &member.progress.last else { return Ok(false) };
        if self.executor.is_dry_run() {
            return Ok(false);
        }
        let Some(live) = view.target.observer.watches.get(&Id::Ccms, &member.name) else { return Ok(false) };
        let previous = ccm::of(live);
        let annotations = live["metadata"]["annotations"].clone();
        let withheld = self.withheld.why(member, &view.target.observer);
        let guard = member.guard_report(view, &previous, withheld.as_deref());
        let gone_nodes = member.gone_nodes(view, &previous);
        let time = now_in_seconds().to_string();
        let is_seen = view.target.observer.watches.seen(&Id::Nodes).is_some_and(Seen::is_synced);
        let initialization = (is_seen && member.is_read()).then(|| member.initialization(&view.target));
        let input = Input {
            generation: member.generation,
            validation: member.validation(),
            cluster: self.cluster,
            outcome,
            preflight: member.gate.rows.as_deref(),
            workload: workload(member, &view.target.observer),
            nodes: initialization.as_ref(),
            gone_nodes: &gone_nodes,
            guard: Some(&guard),
            remarks: &(self.executor.remarks(is_object_of(member, view))
                + &self.may_be_left(member, &view.target.observer)),
            now: &time,
        };
        let whole = ccm::next(&previous, &input);
        let now = Instant::now();
        pass.due.extend(starting::late_in(&whole, &time).map(|left| now + left));
        let Member { name, missing_fields, progress, written, .. } = member;
        let next = missing_fields.fit(&whole, now);
        if *next == previous {
            progress.writer.succeeded();
            pass.due.extend(missing_fields.due());
            return Ok(false);
        }
        // Hundreds of nodes may come and go, and other clients watch the status, too.
        let free = written.as_ref().map(|(written, _)| *written + COUNT_PERIOD).filter(|free| *free > now);
        if let Some(free) = free.filter(|_| is_count_change(&previous, &next)) {
            pass.due.push(free);
            return Ok(false);
        }
        let held_back = if written.as_ref().is_some_and(|(_, written)| *written != previous) {
            format!("another writer keeps changing the status of CloudControllerManager {name}")
        } else {
            format!("the status of CloudControllerManager {name} changes often: it is written less often")
        };
        let failure = |cause: &Cause| format!("failed to write the status of CloudControllerManager {name}: {cause}");
        let write = self.apply_known((&view.target.client, name), missing_fields, (&previous, &whole), now);
        let answer = progress.writer.send(&held_back, failure, write).await;
        pass.due.extend(missing_fields.due());
        let Some((written, next)) = answer? else { return Ok(false) };
        // The response may contain another client's change, which the watch no longer reports.
        let metadata = &written["metadata"];
        let is_same =
            metadata["generation"].as_i64() == Some(member.generation) && metadata["annotations"] == annotations;
        if !is_same {
            view.target.observer.mark_changed(InputKind::Ccms);
            pass.due.push(Instant::now());
        }
        member.written = Some((Instant::now(), ccm::of(&written)));
        let uid = metadata["uid"].as_str().unwrap_or_default();
        for problem in problems::new(&previous, &next) {
            view.target.events.of_ccm((&member.name, uid), &problem.reason, problem.message.clone());
        }
        view.target.observer.put(&Id::Ccms, &member.name, written);
        let deletions = (&previous.node_deletion, &next.node_deletion);
        record_deletions(&view.target.events, &member.name, deletions, &gone_nodes);
        Ok(true)
    }

    /// Applies a status without the fields that the definition lacks. Returns the live object and what was written, or `None` if nothing
    /// differs without these fields or if the `CloudControllerManager` has just been deleted.
    async fn apply_known(
        &self,
        (client, name): (&Client, &str),
        missing_fields: &mut MissingStatusFields,
        (previous, whole): (&Status, &Status),
        now: Instant,
    ) -> Result<Option<(Value, Status)>, Cause> {
        let mut next = missing_fields.fit(whole, now);
        let mut answer = self.apply_status(client, name, &missing_fields.value(&next, now)).await;
        // The API server may refuse a field that the definition lacks. Only the text of its error shows that.
        if answer.as_ref().is_err_and(|cause| matches!(cause.code(), 422 | 500)) {
            let is_known = missing_fields.due().is_some();
            let sent = missing_fields.value(&next, now);
            let kept = self.kept_status(client, name, &sent).await;
            if kept.is_ok_and(|kept| missing_fields.refused(&sent, &kept.data["status"], now)) {
                if !is_known {
                    warn!("CloudControllerManager {name}: {}", missing_fields.problem());
                }
                next = missing_fields.fit(whole, now);
                if *next == *previous {
                    return Ok(None);
                }
                answer = self.apply_status(client, name, &missing_fields.value(&next, now)).await;
            }
        }
        match answer {
            Ok(written) => {
                if missing_fields.accepted(now) {
                    info!("CloudControllerManager {name}: its CustomResourceDefinition is of this version now");
                }
                Ok(Some((written, next.into_owned())))
            }
            Err(cause) if cause.is_absent() => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    async fn apply_status(&self, client: &Client, name: &str, status: &Value) -> Result<Value, Cause> {
        let budget = self.authority.write_budget();
        write::apply(client, (&CLOUD_CONTROLLER_MANAGER, name), FIELD_MANAGER, status, budget).await
    }

    /// Returns the status that the API server would store.
    async fn kept_status(&self, client: &Client, name: &str, status: &Value) -> Result<DynamicObject, Cause> {
        let params = PatchParams {
            dry_run: true,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Ignore),
            ..PatchParams::default()
        };
        let (api, patch) =
            (request::api(client, &CLOUD_CONTROLLER_MANAGER, ""), Patch::Merge(json!({"status": status})));
        request::send(self.authority.write_budget(), api.patch_status(name, &params, &patch)).await
    }
}

impl Member {
    /// Returns the initialization of the nodes by this member.
    fn initialization(&self, target: &Target) -> Initialization {
        let Target { node_counts, diagnoser, .. } = target;
        let waiting = |identity: &CcmIdentity| diagnoser.waiting(&identity.provider).cloned().collect();
        Initialization {
            total: node_counts.total,
            uninitialized: node_counts.uninitialized,
            is_diagnosed: self.initializes().map_or(true, |identity| diagnoser.has_diagnosed(identity, node_counts)),
            waiting: self.initializes().map(waiting),
        }
    }
}

/// Whether two statuses differ only in the names and the counts of nodes.
fn is_count_change(previous: &Status, next: &Status) -> bool {
    let mut same = next.clone();
    same.nodes.clone_from(&previous.nodes);
    same.node_deletion.waiting.clone_from(&previous.node_deletion.waiting);
    for condition in same.conditions.iter_mut().filter(|one| has_counts(one)) {
        let is_it = |one: &&Condition| (&one.type_, &one.reason) == (&condition.type_, &condition.reason);
        if let Some(before) = previous.conditions.iter().find(is_it) {
            condition.message.clone_from(&before.message);
        }
    }
    same == *previous
}

/// Whether the message of a condition has counts of nodes. The message of `Ready` has no other counts while the pods stay the same.
fn has_counts(condition: &Condition) -> bool {
    match condition.type_.as_str() {
        NODES_INITIALIZED | NODE_DELETION_SAFE => true,
        READY => condition.status == "True",
        _ => false,
    }
}

/// Returns the pods of the planned workload of a member, or else of a live one. `None` while the workload has not been seen.
fn workload(member: &Member, observer: &Observer) -> Option<Workload> {
    if let Some(planned) = member.planned().iter().find(|object| object.pod_spec().is_some_and(is_ccm)) {
        observer.watches.seen(&Id::Ours(Location::of(planned))).filter(|seen| seen.is_synced())?;
        return Some(ccm::workload(planned.kind().kind, observer.live(planned).unwrap_or(&Value::Null)));
    }
    let mut live = live_of(observer, &member.name);
    let live = live.find(|(_, live)| is_ccm(&live["spec"]["template"]["spec"]));
    let none = || (member.validation().is_some() && !observer.is_awaiting_leftovers()).then(Workload::default);
    live.map(|(location, live)| ccm::workload(location.kind.kind, live)).or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::Candidate;

    #[test]
    fn a_change_of_more_than_nodes_is_written_at_once() {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| Condition {
            type_: type_.into(),
            status: status.into(),
            observed_generation: 1,
            last_transition_time: "1".into(),
            reason: reason.into(),
            message: message.into(),
        };
        let of = |safe: [&str; 3], gone: &[&str]| {
            let conditions = vec![
                condition(READY, "True", "Running", &format!("2 of 2 pods are ready; {} are gone", gone.len())),
                condition(NODES_INITIALIZED, "False", "CrashLoop", &format!("{} of 9", gone.len())),
                condition(NODE_DELETION_SAFE, safe[0], safe[1], safe[2]),
            ];
            let mut one = Status { conditions, ..Status::default() };
            one.nodes.gone = gone.iter().map(|node| (*node).to_owned()).collect();
            let waiting =
                |node: &&str| Candidate { node: (*node).into(), message: safe[2].into(), ..Candidate::default() };
            one.node_deletion.waiting = gone.iter().map(waiting).collect();
            one
        };
        let before = of(["False", "TooManyNodes", "3 of 9"], &["a", "b", "c"]);
        assert!(is_count_change(&before, &of(["False", "TooManyNodes", "4 of 9"], &["a", "b", "c", "d"])));
        assert!(!is_count_change(&before, &of(["False", "NoReadyNode", "why"], &["a", "b", "c"])), "another reason");
        assert!(!is_count_change(&before, &of(["True", "Guarded", ""], &[])));
        let mut confirmed = before.clone();
        confirmed.node_deletion.confirmed = vec!["a/u".into()];
        assert!(!is_count_change(&before, &confirmed), "a node may go as soon as that is written");
        let mut pods = before.clone();
        pods.workload.ready = 1;
        assert!(!is_count_change(&before, &pods));
        let mut failed = before.clone();
        failed.conditions[0] = condition(READY, "False", "ApplyFailed", "why");
        let mut otherwise = failed.clone();
        otherwise.conditions[0].message = "another error".into();
        assert!(!is_count_change(&failed, &otherwise));
    }
}
