//! The checks of the nodes (pure).

use super::{
    check::{Check, Row, names},
    check_input::CheckInput,
};
use crate::{
    api::{placement::Distribution, spec::Lifecycle},
    facts::distribution::writer_of_provider_id,
    nodes::{
        node::{NO_CLOUD, Node, UNINITIALIZED},
        placement::tolerates,
    },
    object::Object,
    plan::Plan,
    provider::{CCM, kubernetes::Answer},
};

/// The fix if nodes could be deleted: a rehearsal deletes no node.
const REHEARSE: &str =
    "install with spec.controllers.cloudNodeLifecycle: Rehearsal, and see in status.nodeDeletion what would be deleted";

/// Returns the fix for nodes that no cloud-controller-manager would initialize.
fn initialize<'a>(input: &CheckInput, nodes: impl IntoIterator<Item = &'a Node>) -> String {
    let how = input.ccm.cluster.distribution.properties().external_kubelets;
    let keep = if nodes.into_iter().any(Node::is_server) {
        format!("; keep the Nodes of the control plane and of etcd, and put the taint {UNINITIALIZED} on them instead")
    } else {
        String::new()
    };
    format!(
        "start their kubelets with --cloud-provider=external ({how}): drain the node, delete its Node, and start the kubelet \
         again{keep}; a node that is meant to be of no cloud gets the annotation {NO_CLOUD}"
    )
}

/// Returns the names of nodes; `None` if there are none.
pub(super) fn named<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Option<String> {
    let all: Vec<_> = nodes.into_iter().map(|node| &node.name).collect();
    (!all.is_empty()).then(|| names(all))
}

pub(super) fn kubelets(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let bare = || nodes.iter().filter(|node| !node.is_uninitialized() && node.may_wait());
    match named(bare()) {
        None => check.passed(""),
        Some(nodes) => check.warned(
            format!("neither a providerID nor the taint of an uninitialized node: {nodes}; no cloud-controller-manager initializes them"),
            initialize(input, bare()),
        ),
    }
}

pub(super) fn provider_ids(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let cloud = &input.provider.descriptor.nodes;
    let of_other_clouds = || nodes.iter().filter(|node| !node.provider_id.is_empty() && !cloud.owns(&node.provider_id));
    let may_delete = input.ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled;
    let Some(all) = named(of_other_clouds()) else {
        // Waiting nodes are never deleted.
        let bare = || nodes.iter().filter(|node| node.provider_id.is_empty() && !node.is_uninitialized());
        let Some(all) = named(bare()).filter(|_| cloud.without_provider_id == Answer::Gone) else {
            return check.passed("");
        };
        let message = format!(
            "without a providerID: {all}; this cloud-controller-manager takes such a node for gone if it does not know its name"
        );
        return if may_delete {
            check.refused(message, REHEARSE)
        } else {
            check.warned(message, initialize(input, bare()))
        };
    };
    let mut schemes: Vec<_> = of_other_clouds().map(|node| scheme(&node.provider_id)).collect();
    schemes.sort_unstable();
    schemes.dedup();
    let message = format!("of another cloud ({}): {all}", names(&schemes));
    if may_delete && cloud.other_cloud_provider_id == Answer::Gone {
        return check.refused(format!("{message}; this cloud-controller-manager takes such nodes for gone"), REHEARSE);
    }
    let again = "drain the node, delete its Node, and start its kubelet again";
    let authors: Vec<_> = schemes.into_iter().filter_map(writer_of_provider_id).collect();
    if authors.is_empty() {
        let servers =
            if of_other_clouds().any(Node::is_server) { ", of servers one at a time: they may leave etcd" } else { "" };
        let fix = format!("a providerID cannot be changed: if the machine is of this cloud, {again}{servers}");
        return check.warned(message, fix);
    }
    let (who, off) = (names(authors.iter().map(|one| one.name)), names(authors.iter().map(|one| one.off)));
    check.warned(
        format!("{message}; written by {who}, and read by no cloud"),
        format!("a providerID cannot be changed: {off}; then {again}, of servers of k3s and RKE2 one at a time: they leave etcd"),
    )
}

/// Returns the scheme of a providerID, such as `aws://`.
fn scheme(provider_id: &str) -> &str {
    provider_id.find("://").map_or(provider_id, |end| &provider_id[..end + 3])
}

pub(super) fn region(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let Some(region) = input.identity(input.ccm).and_then(|identity| identity.region) else {
        return check.passed("no region is configured");
    };
    let cloud = &input.provider.descriptor.nodes;
    let is_elsewhere = |node: &&Node| cloud.owns(&node.provider_id) && !node.region.is_empty() && node.region != region;
    match named(nodes.iter().filter(is_elsewhere)) {
        None => check.passed(""),
        Some(all) => check.refused(
            format!("the configuration names the region {region}, and these nodes are in another one: {all}"),
            "correct the region in the configuration: the instances of another one count as gone",
        ),
    }
}

pub(super) fn node_names(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let rule = &input.provider.descriptor.nodes.names;
    // The cloud has already found the initialized nodes.
    let waiting = || nodes.iter().filter(|node| node.provider_id.is_empty() && node.may_wait());
    if waiting().next().is_none() {
        return check.passed("no node waits for its initialization");
    }
    let is_wrong = |node: &&Node| !rule.prefixes.iter().any(|prefix| node.name.starts_with(prefix.as_str()));
    let must = format!("the name of a node must be {}", rule.are);
    match named(waiting().filter(is_wrong)) {
        _ if rule.prefixes.is_empty() => {
            check.not_checked(must, "compare `kubectl get nodes` with the machines in the cloud")
        }
        None => check.passed(""),
        Some(nodes) => {
            check.warned(format!("{must}: {nodes}"), "register these nodes with kubelet --hostname-override")
        }
    }
}

pub(super) fn node_ips(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let Some(need) = &input.provider.descriptor.nodes.private_addresses else {
        return check.passed("nothing is known to be needed for them");
    };
    match named(nodes.iter().filter(|node| is_private(&node.provided_ip))) {
        None => check.passed(""),
        Some(nodes) => check.warned(
            format!("kubelets ask for a private address (--node-ip), which {need}: {nodes}"),
            "see to that, or start these kubelets without --node-ip",
        ),
    }
}

fn is_private(address: &str) -> bool {
    match address.parse() {
        Ok(std::net::IpAddr::V4(address)) => address.is_private(),
        Ok(std::net::IpAddr::V6(address)) => address.is_unique_local(),
        Err(_) => false,
    }
}

pub(super) fn not_ready_nodes(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    // A node that waits for initialization is never deleted.
    let at_stake = nodes.iter().filter(|node| !node.is_ready() && !node.is_uninitialized());
    let Some(all) = named(at_stake) else {
        let waiting = named(nodes.iter().filter(|node| !node.is_ready()));
        let said = |all| format!("not ready, but not deleted while they wait for their initialization: {all}");
        return check.passed(waiting.map(said).unwrap_or_default());
    };
    let message = format!(
        "not ready: {all}; with wrong credentials, or of another account or region, a cloud-controller-manager would delete these first"
    );
    match input.ccm.spec.controllers.cloud_node_lifecycle {
        Lifecycle::Disabled => check.passed(format!("not ready: {all}; cloudNodeLifecycle is off")),
        Lifecycle::Rehearsal => {
            check.warned(message, "nothing is deleted in a rehearsal; repair these nodes before you enable deletion")
        }
        Lifecycle::Enabled => check.refused(message, REHEARSE),
    }
}

pub(super) fn distribution(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let (asked, found) = (input.ccm.spec.distribution, input.ccm.cluster.distribution);
    let shown = input.hosts(nodes).into_iter().find_map(|node| Some((node, node.distribution?)));
    if let Some((node, shown)) = shown.filter(|(_, shown)| asked != Distribution::Auto && asked != *shown) {
        let (asked, shown) = (asked.properties().name, shown.properties().name);
        return check.warned(
            format!("spec.distribution is {asked}, and the node {} shows {shown}", node.name),
            "leave spec.distribution out, or see that the pods reach the API server",
        );
    }
    let how = match input.ccm.api_server() {
        Some((host, port)) => format!("at {host}, port {port}"),
        _ => "by its Service".to_owned(),
    };
    check.passed(format!("{}; the pods reach the API server {how}", found.properties().title))
}

pub(super) fn control_plane(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let selector = &input.ccm.spec.placement.node_selector;
    if !selector.is_empty() && !nodes.is_empty() && input.hosts(nodes).is_empty() {
        let labels = names(selector.iter().map(|(key, value)| format!("{key}={value}")));
        let which = if input.ccm.cluster.control_plane_nodes == 0 { "node" } else { "node of the control plane" };
        let message = format!(
            "no {which} has the labels of spec.placement.nodeSelector, {labels}: the pods wait until one has them"
        );
        return check.warned(message, "correct spec.placement.nodeSelector, or label the nodes");
    }
    if nodes.iter().any(|node| node.is_control_plane) {
        return check.passed("");
    }
    if !selector.is_empty() {
        return check
            .passed("no node has the label of the control plane: the pods run where spec.placement.nodeSelector says");
    }
    check.warned(
        "no node has the label of the control plane: the pods run on any node",
        "if there are such nodes label them with node-role.kubernetes.io/control-plane, else say where with spec.placement.nodeSelector",
    )
}

/// Returns the row of a check of the nodes that the pods would run on, if no node has the labels that the pods need.
fn without_hosts(check: Check, hosts: &[&Node], nodes: &[Node]) -> Option<Row> {
    let is_nowhere = hosts.is_empty() && !nodes.is_empty();
    is_nowhere.then(|| check.not_checked("no node has the labels that the pods need", "see the check control-plane"))
}

pub(super) fn taints(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    let plan = Plan::of_ccm(input.catalog, input.ccm);
    let objects = plan.as_ref().map(Plan::objects).unwrap_or_default();
    let pods: Vec<_> = objects.iter().filter_map(Object::pod_spec).collect();
    let is_tolerated = |taint: &&String| pods.iter().all(|pod| tolerates(pod, taint));
    let first = |node: &Node| node.own_taints.iter().find(|taint| !is_tolerated(taint)).cloned();
    let hosts = input.hosts(nodes);
    if let Some(row) = without_hosts(check, &hosts, nodes) {
        return row;
    }
    let closed: Vec<_> = hosts.iter().filter_map(|node| Some(format!("{} ({})", node.name, first(node)?))).collect();
    if closed.len() < hosts.len() || closed.is_empty() {
        return check.passed("");
    }
    check.warned(
        format!("no node takes the pods, because of a taint: {}", names(closed)),
        "add spec.placement.tolerations",
    )
}

pub(super) fn architecture(input: &CheckInput, check: Check, nodes: &[Node]) -> Row {
    if let Some(own) = &input.ccm.spec.image.repository {
        return check.not_checked(
            format!("what {own} is built for is not known"),
            "compare its platforms with `kubectl get nodes -L kubernetes.io/arch`; spec.placement.nodeSelector selects nodes",
        );
    }
    let image = input.provider.descriptor.images.get(CCM);
    let built = image.map(|image| image.architectures.as_slice()).unwrap_or_default();
    let hosts = input.hosts(nodes);
    if let Some(row) = without_hosts(check, &hosts, nodes) {
        return row;
    }
    let is_other = |node: &&&Node| !node.architecture.is_empty() && !built.contains(&node.architecture);
    let others: Vec<_> = hosts.iter().filter(is_other).copied().collect();
    let Some(all) = named(others.iter().copied()) else { return check.passed("") };
    let message = format!("the image is built for {}, and not for {all}", built.join(", "));
    if others.len() == hosts.len() {
        return check.refused(
            message,
            "select other nodes with spec.placement.nodeSelector, or give an image in spec.image.repository",
        );
    }
    if built.len() == 1 {
        // The plan selects this architecture.
        return check.passed(format!("{message}; the pods run on the other nodes"));
    }
    check.warned(message, "select the other nodes with spec.placement.nodeSelector: {kubernetes.io/arch: ...}")
}
