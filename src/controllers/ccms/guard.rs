//! The guard of nodes (IO): decides in each pass which nodes may be deleted, and writes the decision in two steps.
//!
//! The decision is pure (`nodes/guard.rs`), and the objects belong to the plan. A confirmation that no longer holds is withdrawn before
//! any request is sent. The API server is asked only while nodes are about to be deleted or permissions have changed.

mod proof;
mod report;
mod withdraw;
mod withheld;

pub(super) use report::record_deletions;
pub(super) use withdraw::{Grants, location};
pub(super) use withheld::{Withheld, denied};

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{KubernetesFleet, Member, owner};
use crate::{
    api::{
        spec::Lifecycle,
        status::{Deleted, Deletion, Status},
    },
    cluster::seen,
    controllers::{
        Pass,
        applier::Applier,
        now_in_seconds,
        observer::{Id, Observer},
        view::View,
    },
    facts::ccm::{Ccm, Deletable},
    nodes::{
        evidence::{NodeEvent, ReadResult},
        guard::{self, Attempts, Decision, Entry, GuardInput, lists},
        node::Node,
    },
    object::Object,
    plan::kubernetes::guard::{Guard, confirm, is_of_guard, listed},
    provider::kubernetes::is_ccm,
    status::{ccm, outcome::Outcome, rollout},
};

/// The reason why the leader is not known before its lease has been read.
const NOT_ASKED: &str = "its lease has not been read yet";

/// The guard of one `CloudControllerManager`.
#[derive(Default)]
pub(super) struct Guarded {
    /// The nodes that the policy should list and the role should grant.
    pub(super) deletable: Deletable,
    /// The time since which each entry of the policy has been seen.
    seen: BTreeMap<String, Instant>,
    /// The uids of the policy and of the binding in which the entries were seen. A recreated object has another uid.
    seen_in: Option<[String; 2]>,
    /// Whether the cloud-controller-manager may delete any node by permissions that the operator has not granted (`None` without an
    /// answer), and the time of the question.
    deletes_unguarded: Option<(Option<bool>, Instant)>,
    /// The state of the live permissions at that time.
    permissions: Option<BTreeSet<String>>,
    /// The time since which the leading pod of the current rollout has led, or the reason why it is unknown, and the time of the question.
    leads_since: Option<(Result<Timestamp, String>, Instant)>,
    decision: Option<Decision>,
    /// The entries that the previous decision confirmed.
    before: Vec<Entry>,
    /// The nodes whose deletions count for the limit per hour; `None` while the nodes cannot be seen.
    deleted: Option<Vec<Deleted>>,
    /// The time until which each deletion counts, by uid. It is computed once, so that a jump of the clock does not change it.
    counted: BTreeMap<String, Instant>,
    /// The lasting problem of the watches that the decision depends on.
    pub(super) blind: Option<String>,
}

impl Guarded {
    /// Drops the decision, because the nodes or Events that it depends on cannot be seen.
    fn forget(&mut self) {
        (self.deletable, self.decision, self.deleted) = (Deletable::default(), None, None);
        self.before.clear();
    }

    /// Stores the answer about permissions from the checks before the first installation.
    pub(super) fn set_deletion_permission(&mut self, deletion_permission: ReadResult<Option<Vec<String>>>) {
        self.deletes_unguarded = deletion_permission.ok().map(|held| (Some(held.is_some()), Instant::now()));
    }

    /// Counts the deletions that a status reports. `clock` is the monotonic clock, which cannot be set. It determines how long each
    /// deletion counts.
    fn count(&mut self, before: &Deletion, nodes: &[Node], now: Timestamp, clock: Instant) {
        let counted = &mut self.counted;
        let deleted = guard::deleted(before, nodes, now, |one| {
            *counted.entry(one.uid.clone()).or_insert_with(|| clock + guard::counts_for(one, now)) > clock
        });
        self.counted.retain(|uid, _| before.deleted.iter().any(|one| one.uid == *uid));
        self.deleted = Some(deleted);
    }
}

#[derive(Clone, Copy)]
struct Known<'a> {
    nodes: &'a [Node],
    events: &'a [NodeEvent],
    now: Timestamp,
    /// The reason why only nodes that an administrator has allowed may be confirmed now.
    unsettled: Option<&'a str>,
    /// The reason why the observed nodes may be out of date.
    stale: Option<&'a str>,
}

impl KubernetesFleet {
    /// Decides for each `CloudControllerManager` which nodes may be deleted. The first decision uses only the known state, so that a
    /// withdrawal does not wait for a response. The second decision uses the responses of the API server.
    pub(super) async fn guard_nodes(&mut self, view: &mut View, pass: &mut Pass) {
        let now = now_in_seconds();
        let events = view.target.observer.refusals();
        let nodes: Vec<Node> = if self.may_confirm_nodes(&view.target.observer, events.as_deref()) {
            view.target.observer.nodes().collect()
        } else {
            Vec::new()
        };
        let problem = view.target.observer.watches.seen(&Id::Nodes).and_then(seen::Seen::problem);
        let stale = problem.map(|problem| format!("the nodes may have changed, unseen: {}", problem.error));
        let mut unsettled = BTreeMap::new();
        for member in self.members.values() {
            let Some(applier) = self.executor.applier() else { return };
            unsettled.insert(member.name.clone(), member.unsettled(applier, &nodes, &view.target.observer));
        }
        let known = |name: &str| {
            Some(Known {
                nodes: &nodes,
                events: events.as_deref()?,
                now,
                unsettled: unsettled.get(name).and_then(Option::as_deref),
                stale: stale.as_deref(),
            })
        };
        for member in self.members.values_mut() {
            let deletion = status(&view.target.observer, &member.name).node_deletion;
            member.guard.count(&deletion, &nodes, now, Instant::now());
            member.decide_deletions(view, known(&member.name), pass);
        }
        self.withdraw_grants(view).await;
        let (mut limit, mut asked) = (self.work_limit(), 0);
        for member in self.members.values_mut() {
            if asked >= limit {
                // The next pass asks for this member. Until then, no further name is granted.
                pass.due.push(Instant::now());
                member.grant_nothing_new(&view.target.observer);
            } else if let Some(known) = known(&member.name) {
                asked += usize::from(member.prove(view, &known, pass).await);
                // The answers for one member may grant the first name.
                limit = limit.min(member.work_limit());
            }
        }
    }

    /// Whether a node can be confirmed now, or is already confirmed.
    fn may_confirm_nodes(&self, observer: &Observer, events: Option<&[NodeEvent]>) -> bool {
        let is_busy = |member: &Member| {
            let allows = member.ccm().is_some_and(|ccm| !ccm.spec.node_deletion.allow.is_empty());
            allows || !status(observer, &member.name).node_deletion.confirmed.is_empty()
        };
        events.is_some_and(|events| !events.is_empty()) || self.members.values().any(is_busy)
    }

    /// Returns the objects in force, with the confirmed nodes.
    pub(super) fn confirmed_objects(&self) -> Vec<Object> {
        let own = |member: &Member| -> Vec<Object> {
            member.objects_in_force().iter().map(|object| confirmed(object.clone(), &member.guard.deletable)).collect()
        };
        self.members.values().flat_map(own).collect()
    }
}

fn confirmed(mut object: Object, deletable: &Deletable) -> Object {
    confirm(&mut object, deletable);
    object
}

fn status(observer: &Observer, name: &str) -> Status {
    observer.watches.get(&Id::Ccms, name).map(ccm::of).unwrap_or_default()
}

impl Member {
    /// Decides which nodes may be deleted, and the entries of the policy and of the role, from the known state. Without the Events, nothing
    /// is decided or granted.
    fn decide_deletions(&mut self, view: &View, known: Option<Known<'_>>, pass: &mut Pass) {
        self.guard.before = self.guard.decision.take().map(|decision| decision.confirmed).unwrap_or_default();
        (self.guard.deletable, self.guard.blind) = (Deletable::default(), None);
        if self.is_removed() {
            return;
        }
        if !self.is_paused() {
            // The names that the role grants stay in the policy until they are withdrawn.
            self.guard.deletable = lists::next(&[], &BTreeSet::new(), &self.live(&view.target.observer)).0;
        }
        let Some(ccm) = self.ccm().cloned() else { return };
        if ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Disabled {
            self.guard.decision = Some(Decision::default());
            return;
        }
        let Some((known, guard)) = known.zip(guard_of(view, &ccm)) else { return };
        let decision = self.decide(&ccm, &guard, &known);
        self.settle((view, &ccm), decision, known.now, pass);
    }

    fn settle(&mut self, (view, ccm): (&View, &Ccm), decision: Decision, now: Timestamp, pass: &mut Pass) {
        if ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled && !self.is_paused() {
            let previous = status(&view.target.observer, &self.name).node_deletion.confirmed;
            let recorded: BTreeSet<_> = previous.iter().map(String::as_str).collect();
            let live = self.live(&view.target.observer);
            let (deletable, due) = lists::next(&decision.confirmed, &recorded, &live);
            self.guard.deletable = deletable;
            pass.due.extend(due.map(|due| Instant::now() + due));
        }
        let due = decision.due.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        pass.due.extend(due.map(|due| Instant::now() + due));
        self.guard.decision = Some(decision);
    }

    fn decide(&self, ccm: &Ccm, guard: &Guard, known: &Known) -> Decision {
        let leads_since = self.guard.leads_since.as_ref();
        let leads_since =
            leads_since.map_or(Err(NOT_ASKED), |(since, _)| since.as_ref().copied().map_err(String::as_str));
        let obstacle = known.stale.map(ToOwned::to_owned).or_else(|| self.obstacle(guard));
        guard::decide(&GuardInput {
            now: known.now,
            nodes: known.nodes,
            attempts: Attempts::Refused { events: known.events, user: &guard.user, policy: &guard.name },
            provider_ids: &guard.provider_ids,
            settings: &ccm.spec.node_deletion,
            leads_since,
            obstacle: obstacle.as_deref(),
            unsettled: known.unsettled,
            deleted: self.guard.deleted.as_deref().unwrap_or_default(),
        })
    }

    /// Whether nodes wait to be deleted.
    pub(super) fn has_waiting_nodes(&self) -> bool {
        self.guard.decision.as_ref().is_some_and(|decision| !decision.waiting.is_empty())
    }

    fn deletes_unguarded(&self) -> Option<bool> {
        self.guard.deletes_unguarded.and_then(|(deletes_unguarded, _)| deletes_unguarded)
    }

    /// Returns the reason why no node may be confirmed now.
    fn obstacle(&self, guard: &Guard) -> Option<String> {
        if self.is_paused() {
            return Some("spec.management is Paused: nothing is confirmed meanwhile".to_owned());
        }
        if let Some(problem) = self.validation().and_then(|validation| validation.problem()) {
            return Some(format!("an input of the cloud-controller-manager is bad: {}", problem.reason));
        }
        match self.deletes_unguarded() {
            None => Some("whether others grant the permission to delete nodes is not known".to_owned()),
            Some(true) => Some(others_grant(guard)),
            Some(false) => None,
        }
    }

    /// Returns the reason why the cloud-controller-manager may not run as planned yet. Only nodes that an administrator has allowed are
    /// confirmed then.
    fn unsettled(&self, applier: &Applier, nodes: &[Node], observer: &Observer) -> Option<String> {
        let rolled_out = match &self.progress.last {
            Some(Outcome::Applied(_)) => true,
            Some(outcome) if outcome.is_rollout() => self.runs_on_ready_nodes(nodes, observer),
            _ => false,
        };
        if !rolled_out {
            return Some("the cloud-controller-manager is not rolled out as planned".to_owned());
        }
        let mut own = self.planned().iter().filter(|object| !is_of_guard(object.value()));
        own.find_map(|object| {
            let key = object.key();
            let is_skipped = object.pod_spec().is_some() && applier.is_skipped(&key);
            if is_skipped {
                return Some(format!("{key} is annotated to be left alone: what it runs is not known"));
            }
            applier.is_unsettled(&key).then(|| format!("{key} is not as planned"))
        })
    }

    /// Whether only the pods on unready nodes of the control plane are missing. The missing pod of a deleted machine must not block the
    /// deletion of its own Node.
    fn runs_on_ready_nodes(&self, nodes: &[Node], observer: &Observer) -> bool {
        let unready = nodes.iter().filter(|node| node.is_control_plane && !node.is_ready()).count();
        let mut workloads = self.planned().iter().filter(|object| object.pod_spec().is_some_and(is_ccm));
        workloads.all(|object| observer.live(object).is_some_and(|live| rollout::is_done_without(live, unready)))
    }

    /// Returns the resource versions of the live roles and bindings, once all of them exist.
    fn live_permissions(&self, observer: &Observer) -> Option<BTreeSet<String>> {
        let permissions = self.planned().iter().filter(|object| object.kind().is_prerequisite_of_pods());
        let version = |live: &Value| live["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        permissions.map(|object| observer.live(object).map(version)).collect()
    }

    fn planned_of_guard(&self, kind: &str) -> Option<&Object> {
        self.planned().iter().find(|object| object.kind().kind == kind && is_of_guard(object.value()))
    }

    /// Returns the entries of the policy, and the uids of the policy and its binding, if both are live as planned.
    fn live_policy(&self, observer: &Observer) -> Option<(BTreeSet<String>, [String; 2])> {
        let policy = self.planned_of_guard("ValidatingAdmissionPolicy")?;
        let binding = self.planned_of_guard("ValidatingAdmissionPolicyBinding")?;
        let (live_policy, live_binding) = (observer.live(policy)?, observer.live(binding)?);
        let is_bound =
            live_binding["spec"] == binding.value()["spec"] && live_binding["metadata"]["deletionTimestamp"].is_null();
        let uid = |live: &Value| live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Some((listed(policy, live_policy).filter(|_| is_bound)?, [uid(live_policy), uid(live_binding)]))
    }

    /// Updates the times of the entries from the live policy. Returns whether the permissions have changed and must be checked again.
    pub(super) fn see_guard(&mut self, observer: &Observer) -> bool {
        self.live(observer);
        let permissions = self.live_permissions(observer);
        let is_on = self.ccm().is_some_and(|ccm| ccm.spec.controllers.cloud_node_lifecycle != Lifecycle::Disabled);
        is_on && self.guard.decision.is_some() && permissions.is_some() && permissions != self.guard.permissions
    }

    /// Returns the live entries of the policy with their ages, and the live grants.
    fn live(&mut self, observer: &Observer) -> lists::Live {
        let granted = self.live_grants(observer);
        let Some((entries, identities)) = self.live_policy(observer) else {
            (self.guard.seen, self.guard.seen_in) = (BTreeMap::new(), None);
            return lists::Live { listed: None, granted };
        };
        if self.guard.seen_in.as_ref() != Some(&identities) {
            (self.guard.seen, self.guard.seen_in) = (BTreeMap::new(), Some(identities));
        }
        let now = Instant::now();
        self.guard.seen.retain(|entry, _| entries.contains(entry));
        for entry in entries {
            self.guard.seen.entry(entry).or_insert(now);
        }
        let listed = self.guard.seen.iter().map(|(entry, since)| (entry.clone(), now.duration_since(*since)));
        lists::Live { listed: Some(listed.collect()), granted }
    }
}

fn guard_of(view: &View, ccm: &Ccm) -> Option<Guard> {
    Guard::of(view.catalog.kubernetes_of(&ccm.spec.provider).ok()?, ccm)
}

fn others_grant(guard: &Guard) -> String {
    format!(
        "{user} may delete nodes by a permission that the operator has not granted: take it away; `kubectl auth can-i delete nodes \
         --as={user}` tells whether it has it",
        user = guard.user
    )
}

fn phase(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Disabled => "Disabled",
        Lifecycle::Rehearsal => "Rehearsal",
        Lifecycle::Enabled => "Enabled",
    }
}

#[cfg(test)]
mod tests;
