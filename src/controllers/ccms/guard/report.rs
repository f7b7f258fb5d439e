//! The reports of the guard of nodes (IO): the status, and an Event, a log line and a metric for each node that stays or may be deleted.

use std::collections::BTreeSet;

use tracing::info;

use super::{guard_of, others_grant, phase, withdraw};
use crate::{
    api::{
        spec::Lifecycle,
        status::{Candidate, Deletion, Status},
    },
    controllers::{ccms::Member, events::Events, observer::Observer, view::View},
    facts::ccm::Ccm,
    nodes::guard::{Decision, Entry},
    plan::kubernetes::guard::Guard,
    status::ccm::{self, GUARD_NOT_IN_FORCE, NODE_DELETION_SAFE},
};

/// The reason of `NodeDeletionSafe` if the policy is missing. Nodes are kept only because the permission is not granted, or because the
/// controller is off.
const NOT_ENFORCED: &str = "NotEnforced";

/// The fix for an operator that may not write the policies.
const HOW_TO_GRANT: &str = "install the operator again with this provider in --providers, and the name of this \
                            CloudControllerManager in --names";

const PAUSED: &str = "Paused";

const MOST_WAITING: usize = 32;

/// Records the node changes of a new status, once for each node and reason.
pub(in super::super) fn record_deletions(
    events: &Events,
    name: &str,
    (before, now): (&Deletion, &Deletion),
    asked_for: &BTreeSet<String>,
) {
    for one in now.waiting.iter().filter(|one| !is_reported(&before.waiting, one)) {
        let what = if asked_for.contains(&one.node) { "would" } else { "is allowed to" };
        let message =
            format!("CloudControllerManager {name} {what} delete this node; the operator keeps it: {}", one.message);
        info!("Node {}: {message}", one.node);
        events.of_node((&one.node, &one.uid), "DeletionHeld", true, message);
    }
    for (node, uid) in without(&now.confirmed, &before.confirmed) {
        let why = if asked_for.contains(node) {
            "whose machine it takes for gone"
        } else {
            "as spec.nodeDeletion.allow says, if it takes its machine for gone"
        };
        let message = format!("CloudControllerManager {name} may delete this node, {why}");
        info!("Node {node}: {message}");
        events.of_node((node, uid), "DeletionConfirmed", false, message);
        events.metrics.deletions.inc();
    }
    for (node, uid) in without(&before.confirmed, &now.confirmed) {
        if now.deleted.iter().all(|one| one.uid != uid) {
            let message = format!("CloudControllerManager {name} may not delete this node any more");
            info!("Node {node}: {message}");
            events.of_node((node, uid), "DeletionWithdrawn", false, message);
        }
    }
}

/// Returns the status, reason and message of the condition if the policy is missing. `kept` is the reason why nodes are kept nevertheless.
fn not_enforced(kept: &str, guard: &Guard, withheld: Option<&str>) -> (&'static str, &'static str, String) {
    let why = withheld.unwrap_or("it or its binding is missing or changed");
    let how_to_grant = withheld.map(|_| format!("; {HOW_TO_GRANT}")).unwrap_or_default();
    let message = format!(
        "{kept}, but ValidatingAdmissionPolicy {} does not keep the cloud-controller-manager from using a permission to delete nodes that \
         somebody grants: {why}{how_to_grant}",
        guard.name
    );
    ("Unknown", NOT_ENFORCED, message)
}

/// Whether the previous status has reported that a node stays, for the same reason. The message may differ, because it contains counts of
/// other nodes.
fn is_reported(before: &[Candidate], now: &Candidate) -> bool {
    before.iter().any(|one| (&one.uid, &one.reason) == (&now.uid, &now.reason))
}

/// Returns the names and uids of the nodes that are not in `others`.
fn without<'a>(all: &'a [String], others: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
    all.iter().filter(|one| !others.contains(one)).filter_map(|one| one.split_once('/'))
}

impl Member {
    pub(in super::super) fn guard_report(
        &self,
        view: &View,
        previous: &Status,
        withheld: Option<&str>,
    ) -> ccm::GuardStatus {
        let live = withdraw::granted_to(&view.target.observer, &self.name);
        let decided = self.guard.decision.as_ref().zip(self.ccm());
        let decided = decided.and_then(|(decision, ccm)| Some((decision, ccm, guard_of(view, ccm)?)));
        let mut report = match decided {
            Some((decision, ccm, guard)) => self.decided(view, previous, decision, (ccm, &guard), withheld),
            None => self.undecided(view, previous),
        };
        let confirmed = &mut report.deletion.confirmed;
        let before = previous.node_deletion.confirmed.iter();
        let stays = before.filter(|one| self.is_still_confirmed(one, live.as_ref())).cloned();
        let stays: Vec<_> = stays.filter(|one| !confirmed.contains(one)).collect();
        confirmed.extend(stays);
        let deleted = self.guard.deleted.as_ref().unwrap_or(&previous.node_deletion.deleted);
        report.deletion.deleted.clone_from(deleted);
        let left: Vec<_> = live.iter().flatten().filter(|one| !self.guard.deletable.granted.contains(*one)).collect();
        if let Some(first) = left.first() {
            let nodes = match left.len() {
                1 => format!("the node {first}"),
                count => format!("{count} nodes, such as {first}"),
            };
            let message = format!(
                "the cloud-controller-manager may still delete {nodes}: the permission of its ClusterRole could not be withdrawn; see the \
                 operator's log"
            );
            report.is_safe = Some(("False", "NotWithdrawn", message));
        }
        report
    }

    /// Whether a node that the previous status confirms may still be deleted: it exists, as far as known, and the live role names it.
    fn is_still_confirmed(&self, confirmed: &str, live: Option<&BTreeSet<String>>) -> bool {
        let (Some(deleted), Some(live)) = (&self.guard.deleted, live) else { return true };
        let Some((node, uid)) = confirmed.split_once('/') else { return false };
        live.contains(node) && deleted.iter().all(|one| one.uid != uid)
    }

    /// Returns the report without a decision. While a decision is expected soon, for example after a start, the previous report remains.
    fn undecided(&self, view: &View, previous: &Status) -> ccm::GuardStatus {
        let before = Deletion { confirmed: Vec::new(), ..previous.node_deletion.clone() };
        let Some(is_safe) = self.why_undecided(view, &before.phase) else {
            return ccm::GuardStatus { is_safe: None, deletion: before };
        };
        let phase = match self.ccm() {
            _ if self.is_removed() => "Removed",
            Some(ccm) => phase(ccm.spec.controllers.cloud_node_lifecycle),
            None if self.is_read() => "",
            None => &before.phase,
        };
        let deletion = Deletion { phase: phase.to_owned(), ..Deletion::default() };
        ccm::GuardStatus { is_safe: Some(is_safe), deletion }
    }

    /// Returns the status, reason and message of the condition without a decision, or `None` if a decision is expected soon. `before` is
    /// the phase in the previous status.
    fn why_undecided(&self, view: &View, before: &str) -> Option<(&'static str, &'static str, String)> {
        if self.is_removed() {
            let message =
                "the cloud-controller-manager is removed, or is being removed: its permissions are not checked";
            return Some(("Unknown", "Removed", message.to_owned()));
        }
        let lifecycle = self.ccm().map(|ccm| ccm.spec.controllers.cloud_node_lifecycle);
        let is_off = match lifecycle {
            Some(lifecycle) => lifecycle == Lifecycle::Disabled,
            None => !self.is_read() && before == phase(Lifecycle::Disabled),
        };
        if is_off {
            return None;
        }
        let why = |reason, why: &str| Some(("Unknown", reason, format!("nothing is confirmed, because {why}")));
        if let Some(error) = &self.guard.blind {
            return why("ClusterUnseen", error);
        }
        if self.is_read() && self.ccm().and_then(|ccm| guard_of(view, ccm)).is_none() {
            return why("BadInput", self.why_unusable().unwrap_or("its provider is not known"));
        }
        let error = view.target.observer.refusals_problem()?;
        why("EventsUnseen", &format!("Events of nodes are not seen: {error}"))
    }

    fn decided(
        &self,
        view: &View,
        previous: &Status,
        decision: &Decision,
        (ccm, guard): (&Ccm, &Guard),
        withheld: Option<&str>,
    ) -> ccm::GuardStatus {
        let lifecycle = ccm.spec.controllers.cloud_node_lifecycle;
        let is_enabled = lifecycle == Lifecycle::Enabled;
        let rehearsed = |entry: &Entry| Candidate {
            node: entry.name.clone(),
            uid: entry.uid.clone(),
            since: entry.since.clone(),
            reason: "Rehearsal".to_owned(),
            message: "spec.controllers.cloudNodeLifecycle is Rehearsal: with Enabled it would be deleted".to_owned(),
        };
        let waiting = decision.waiting.iter().map(|one| Candidate {
            node: one.node.clone(),
            uid: one.uid.clone(),
            since: one.since.clone(),
            reason: one.why.reason().to_owned(),
            message: one.why.to_string(),
        });
        let rehearsed = decision.confirmed.iter().filter(|_| !is_enabled).map(rehearsed);
        let deletion = Deletion {
            phase: phase(lifecycle).to_owned(),
            waiting: rehearsed.chain(waiting).take(MOST_WAITING).collect(),
            confirmed: decision.confirmed.iter().filter(|_| is_enabled).map(Entry::node).collect(),
            deleted: Vec::new(),
        };
        let is_safe = self.is_safe(&view.target.observer, guard, (decision, lifecycle), withheld);
        let is_safe = is_safe.or_else(|| {
            let mut before = previous.conditions.iter().filter(|one| one.type_ == NODE_DELETION_SAFE);
            let is_past = before.any(|one| one.status == "Unknown" || (one.reason == PAUSED) != self.is_paused());
            let is_other = previous.node_deletion.phase != deletion.phase || !deletion.waiting.is_empty();
            (is_past || is_other).then(|| {
                ("Unknown", "NotChecked", "the permissions of the cloud-controller-manager are not known".to_owned())
            })
        });
        ccm::GuardStatus { deletion, is_safe }
    }

    /// Returns the status, reason and message of the condition, or `None` if the permissions are unknown.
    fn is_safe(
        &self,
        observer: &Observer,
        guard: &Guard,
        (decision, lifecycle): (&Decision, Lifecycle),
        withheld: Option<&str>,
    ) -> Option<(&'static str, &'static str, String)> {
        if lifecycle == Lifecycle::Disabled {
            let is_off = "spec.controllers.cloudNodeLifecycle is Disabled";
            // Permissions that the operator has not granted are not checked: only the policy keeps the cloud-controller-manager from using
            // them.
            let lacks_policy = withheld.is_some() && self.live_policy(observer).is_none();
            return Some(if lacks_policy {
                not_enforced(is_off, guard, withheld)
            } else {
                ("True", "Disabled", is_off.to_owned())
            });
        }
        // The role is empty during a pause.
        let needs_guard = lifecycle == Lifecycle::Enabled && !self.is_paused();
        if needs_guard && self.live_policy(observer).is_none() {
            let why = match self.planned_of_guard("ValidatingAdmissionPolicy") {
                Some(_) => format!("ValidatingAdmissionPolicy {} or its binding is missing or changed", guard.name),
                None => "an input of the cloud-controller-manager is bad, so nothing is planned".to_owned(),
            };
            return Some(("False", GUARD_NOT_IN_FORCE, format!("{why}: nothing is granted meanwhile")));
        }
        let is_enforced = self.live_policy(observer).is_some();
        if self.deletes_unguarded()? {
            let meanwhile = if is_enforced {
                format!("; until then only ValidatingAdmissionPolicy {} keeps it from deleting any", guard.name)
            } else {
                String::new()
            };
            return Some(("False", GUARD_NOT_IN_FORCE, others_grant(guard) + &meanwhile));
        }
        if !is_enforced {
            return Some(not_enforced("nobody has granted it the permission to delete nodes", guard, withheld));
        }
        if let Some(alarm) = decision.waiting.iter().map(|one| &one.why).find(|why| why.is_alarm()) {
            return Some(("False", alarm.reason(), alarm.to_string()));
        }
        let (confirmed, waiting) = (decision.confirmed.len(), decision.waiting.len());
        if self.is_paused() {
            let message = match waiting {
                0 => String::new(),
                _ => format!("no node may be deleted meanwhile, {waiting} wait: see status.nodeDeletion"),
            };
            return Some(("True", PAUSED, message));
        }
        Some(if lifecycle == Lifecycle::Enabled {
            let message = match (confirmed, waiting) {
                (0, 0) => String::new(),
                (1, _) => format!("1 node may be deleted, {waiting} wait: see status.nodeDeletion"),
                _ => format!("{confirmed} nodes may be deleted, {waiting} wait: see status.nodeDeletion"),
            };
            ("True", "Guarded", message)
        } else {
            let message = match confirmed + waiting {
                0 => String::new(),
                1 => "1 node would be deleted: see status.nodeDeletion".to_owned(),
                all => format!("{all} nodes would be deleted: see status.nodeDeletion"),
            };
            ("True", "Rehearsal", message)
        })
    }

    /// Returns the names of the nodes that the cloud-controller-manager would delete, or the previous names if a decision is expected soon.
    pub(in super::super) fn gone_nodes(&self, view: &View, previous: &Status) -> BTreeSet<String> {
        match &self.guard.decision {
            Some(decision) => decision.asked_for.iter().cloned().collect(),
            None if self.why_undecided(view, &previous.node_deletion.phase).is_some() => BTreeSet::new(),
            None => previous.nodes.gone.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;
    use serde_json::json;

    use super::*;
    use crate::{
        api::placement::Distribution,
        controllers::view,
        facts::{Documents, cluster::Cluster, version::Minor},
    };

    /// An unobserved cluster, and a member that asks for a mode in it.
    fn asking_for(lifecycle: &str) -> (View, Member) {
        let view = view::tests::view(Client::new(Router::new(), "own"), Documents::default(), None);
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 1 };
        let spec = json!({"provider": "aws", "controllers": {"cloudNodeLifecycle": lifecycle}});
        let mut member = Member::new("cluster");
        member.read(&json!({"metadata": {"name": "cluster"}, "spec": spec}), cluster, &view.settings, &view.catalog);
        (view, member)
    }

    #[tokio::test]
    async fn a_policy_that_is_withheld_is_missed_where_the_controller_is_off_as_well() {
        let (view, member) = asking_for("Disabled");
        let guard = guard_of(&view, member.ccm().unwrap()).unwrap();
        let decided = (&Decision::default(), Lifecycle::Disabled);
        let is_safe = |withheld| member.is_safe(&view.target.observer, &guard, decided, withheld).unwrap();
        let (status, reason, message) = is_safe(Some("policies are forbidden"));
        assert_eq!((status, reason), ("Unknown", NOT_ENFORCED));
        let start = "spec.controllers.cloudNodeLifecycle is Disabled, but ValidatingAdmissionPolicy aws-";
        assert!(message.starts_with(start) && message.contains("policies are forbidden; install"), "{message}");
        let (status, reason, _) = is_safe(None);
        assert_eq!((status, reason), ("True", "Disabled"));
    }

    #[tokio::test]
    async fn what_the_installation_does_not_allow_is_named_where_nothing_is_decided() {
        let (view, member) = asking_for("Enabled");
        let (status, reason, message) = member.why_undecided(&view, "Enabled").unwrap();
        assert_eq!((status, reason), ("Unknown", "BadInput"));
        let start = "nothing is confirmed, because spec.controllers.cloudNodeLifecycle: ";
        assert!(message.starts_with(start) && message.contains("--node-deletion"), "{message}");
    }
}
