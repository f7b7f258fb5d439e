//! Evidence from the fields of a node.

use super::{ClusterContext, NodeResult, Owners, age, found};
use crate::{
    facts::distribution::writer_of_provider_id,
    grace::{ATTEMPT_GRACE, NODE_FIELDS_GRACE},
    nodes::{
        node::{Node, SHUTDOWN, UNINITIALIZED},
        reason::Reason,
    },
};

/// Parts of the taints that other programs use to keep pods away until these programs are ready.
const OTHER_TAINTS: [&str; 4] = [
    "node.cluster.x-k8s.io/uninitialized",
    "/agent-not-ready",
    "karpenter.sh/unregistered",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
];

/// Whether a distribution or Harvester has set the providerID, instead of a cloud that the operator knows.
pub(super) fn is_of_distribution(provider_id: &str) -> bool {
    writer_of_provider_id(provider_id).is_some() || provider_id.starts_with("harvester://")
}

pub(super) fn check(cluster: &ClusterContext, node: &Node, owners: &Owners, result: &mut NodeResult) {
    result.observe("the Node", description(node));
    let age = age(&node.created, cluster.evidence.now);
    let is_settled = age.is_none_or(|age| age >= NODE_FIELDS_GRACE);
    let name = &node.name;
    if is_settled && is_not_external(cluster, node) {
        // Only a kubelet that runs with the flag and with --node-ip sets the annotation.
        let (shown, cause) = if node.provided_ip.is_empty() {
            let cause = format!(
                "{name} has neither the taint nor a providerID: its kubelet runs without --cloud-provider=external, or the taint \
                 was removed"
            );
            ("no taint, no providerID, no provided-node-ip annotation", cause)
        } else {
            let cause = format!(
                "the taint was removed from {name} before it was initialized: its kubelet runs with --cloud-provider=external; \
                 put the taint back"
            );
            ("no taint, no providerID, and a provided-node-ip annotation", cause)
        };
        result.find(found(Reason::KubeletNotExternal, shown, cause));
    }
    let may_be_known = cluster.evidence.may_have_more_ccms;
    if owners.is_of_other_cloud && (is_of_distribution(&node.provider_id) || (node.is_uninitialized() && !may_be_known))
    {
        let known: Vec<&str> =
            cluster.ccms.iter().flat_map(|diagnosed| &diagnosed.identity().provider_ids).map(String::as_str).collect();
        let cause = format!("the providerID of {name} begins with none of {}", known.join(", "));
        result.find(found(Reason::OtherCloudProviderID, &node.provider_id, cause));
    }
    if node.has_taint(SHUTDOWN) {
        let cause = format!("the cloud reports that the instance of {name} is shut down");
        result.find(found(Reason::InstanceStopped, SHUTDOWN, cause));
    }
    let is_initialized = !node.is_uninitialized() && !node.is_terminating;
    if !is_initialized || !is_settled {
        return;
    }
    let is_other = |taint: &&String| *taint != UNINITIALIZED && OTHER_TAINTS.iter().any(|other| taint.contains(other));
    for taint in node.taints.iter().filter(is_other) {
        let cause = format!("{name} is initialized, and waits for the program that has put a taint of its own on it");
        result.find(found(Reason::OtherTaint, taint, cause));
    }
    // Network plugins that allocate addresses themselves need no podCIDR.
    if !node.has_pod_cidr && !node.is_ready() && (cluster.has_pod_cidrs || node.network_unavailable == "NoRouteCreated")
    {
        let cause = format!("{name} has no spec.podCIDR, unlike what else is in this cluster");
        result.find(found(Reason::NoPodCIDR, "spec.podCIDR is empty", cause));
    }
    check_network(cluster, node, result);
    check_zone(cluster, node, owners, result);
}

/// Finds network problems in the conditions of the node.
fn check_network(cluster: &ClusterContext, node: &Node, result: &mut NodeResult) {
    let name = &node.name;
    if node.network_unavailable == "NoRouteCreated" && node.has_pod_cidr {
        let cause = format!("the cloud-controller-manager has created no route to the pods of {name}");
        result.find(found(Reason::NoRoute, "NetworkUnavailable: NoRouteCreated", cause));
    }
    let ready = node.ready.as_ref().filter(|ready| ready.status == "False" && ready.lacks_network);
    if ready.is_some_and(|ready| age(&ready.since, cluster.evidence.now).is_none_or(|since| since >= ATTEMPT_GRACE)) {
        let cause = format!("{name} is initialized, and its network plugin is not ready");
        result.find(found(Reason::NetworkNotReady, "Ready is False: NetworkPluginNotReady", cause));
    }
}

/// Checks whether the node lacks a zone or a region although other nodes of its cloud have one.
fn check_zone(cluster: &ClusterContext, node: &Node, owners: &Owners, result: &mut NodeResult) {
    let [owner] = owners.ccms.as_slice() else { return };
    let Some(diagnosed) = cluster.ccms.get(*owner).filter(|diagnosed| diagnosed.identity().has_zones) else { return };
    let lacks = [
        ("zone", node.zone.is_empty() && diagnosed.has_zone),
        ("region", node.region.is_empty() && !diagnosed.regions.is_empty()),
    ];
    let missing: Vec<&str> = lacks.iter().filter(|(_, lacks)| *lacks).map(|(what, _)| *what).collect();
    if !missing.is_empty() && !node.provider_id.is_empty() {
        let missing = missing.join(" and ");
        let cause = format!("{} was initialized without a {missing}, which other nodes of its cloud have", node.name);
        result.find(found(Reason::NoZone, &format!("no label with a {missing}"), cause));
    }
}

/// Whether the node does not wait for a cloud-controller-manager although one would initialize it.
fn is_not_external(cluster: &ClusterContext, node: &Node) -> bool {
    let is_bare = !node.is_uninitialized() && node.provider_id.is_empty();
    is_bare && !node.is_terminating && cluster.ccms.iter().any(|ccm| ccm.initializes)
}

fn description(node: &Node) -> String {
    let or_none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    let taints: Vec<&str> = node.taints.iter().map(String::as_str).collect();
    let ready = node.ready.as_ref().map_or("unknown", |ready| ready.status.as_str());
    format!(
        "created {}; providerID {}; taints {}; addresses {}; provided address {}; Ready {ready}",
        or_none(&node.created),
        or_none(&node.provider_id),
        or_none(&taints.join(", ")),
        or_none(&node.addresses.join(", ")),
        or_none(&node.provided_ip),
    )
}
