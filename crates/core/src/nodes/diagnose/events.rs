//! Evidence from the Events about a node.

use super::{ClusterContext, NodeResult, found};
use crate::nodes::{
    diagnosis::Finding,
    evidence::NodeEvent,
    guard::{ATTEMPT, COMPONENT, REFUSED},
    node::Node,
    reason::Reason,
};

/// The time for which the newest repetition of an Event counts, in seconds: a component repeats an Event at least every five minutes.
const FRESH: i64 = 360;

/// Whether an Event announces the deletion of a node. It precedes the attempt, so it does not prove that the node is gone.
pub(super) fn is_deletion(event: &NodeEvent) -> bool {
    event.reason == ATTEMPT && event.component == COMPONENT
}

/// Whether an Event reports that this announced deletion was refused. If the node is gone anyway, another client has deleted it.
pub(super) fn undoes(event: &NodeEvent, deletion: &NodeEvent) -> bool {
    let is_same = event.node == deletion.node && event.uid == deletion.uid;
    event.reason == REFUSED && is_same && event.last >= deletion.last
}

/// Returns the finding for a deleted node.
pub(super) fn deletion(shown: &str) -> Finding {
    let cause = "the cloud-controller-manager deleted the node, because its cloud has no such instance";
    found(Reason::NodeDeleted, shown, cause.into())
}

/// Returns the finding for a node that a cloud-controller-manager may not delete.
pub(super) fn refusal(node: &Node, shown: &str) -> Finding {
    let name = &node.name;
    let cause =
        format!("the cloud has no instance for {name}, and the cloud-controller-manager may not delete the node");
    found(Reason::DeletionRefused, shown, cause)
}

pub(super) fn check(cluster: &ClusterContext, node: &Node, result: &mut NodeResult) {
    if cluster.evidence.events.is_none() {
        return;
    }
    let about = |event: &&&NodeEvent| event.uid == node.uid || event.uid.is_empty() || event.uid == node.name;
    let is_fresh = |event: &&&NodeEvent| {
        event.last.is_some_and(|last| cluster.evidence.now.duration_since(last).as_secs() <= FRESH)
    };
    let events: Vec<&NodeEvent> =
        cluster.events.get(node.name.as_str()).into_iter().flatten().filter(about).filter(is_fresh).copied().collect();
    let mut reasons: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let showed = if reasons.is_empty() { "none lately".to_owned() } else { super::clean(&reasons.join(", ")) };
    result.observe("the Events about the node", showed);
    let newest = |reason: &str| events.iter().filter(|event| event.reason == reason).max_by_key(|event| event.last);
    if node.is_terminating {
        if let Some(event) = events.iter().find(|event| is_deletion(event)) {
            result.find(deletion(&event.message));
        }
        return;
    }
    if let Some(event) = newest(REFUSED).filter(|_| !node.is_ready()) {
        // The shutdown taint stays on a node whose instance was first stopped and then deleted.
        result.findings.retain(|finding| finding.reason != Reason::InstanceStopped);
        result.find(refusal(node, &event.message));
    }
    if let Some(event) = newest("PossibleNodeDeletion") {
        let cause =
            format!("the name of {} is not the name of its server in the cloud: the node may be deleted", node.name);
        result.find(found(Reason::InstanceNotFound, &event.message, cause));
    }
    if let Some(event) = newest("FailedToCreateRoute").filter(|_| !node.network_unavailable.is_empty()) {
        result.findings.retain(|finding| finding.reason != Reason::NoRoute);
        let cause = format!("the cloud has refused to create the route to the pods of {}", node.name);
        result.find(found(Reason::NoRoute, &event.message, cause));
    }
    if let Some(event) = newest("CIDRNotAvailable").or(newest("CIDRAssignmentFailed")).filter(|_| !node.has_pod_cidr) {
        result.findings.retain(|finding| finding.reason != Reason::NoPodCIDR);
        let cause = format!("{} gets no subnet for its pods: none is left, or none could be assigned", node.name);
        result.find(found(Reason::NoPodCIDR, &event.message, cause));
    }
}
