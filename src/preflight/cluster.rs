//! The checks of the cluster, and the checks that a user has to make (pure).

use std::collections::BTreeSet;

use super::{
    check::{Check, Row, names},
    evidence::Evidence,
    permissions::Bound,
};
use crate::{
    api::spec::Lifecycle,
    facts::ccm::{Controller, ONLY},
    nodes::node::Node,
    plan::kubernetes::guard::is_policy,
    text::shell::quoted,
};

pub(super) fn rows(evidence: &Evidence) -> [Row; 8] {
    [
        network(evidence),
        pod_cidrs(evidence),
        pod_security(evidence),
        permissions(evidence),
        deletion_permission(evidence),
        at_cloud(evidence),
        image_pull(evidence),
        Check::CredentialsAccepted.not_checked(
            "only the cloud knows",
            "install with cloudNodeLifecycle: Rehearsal, in which nothing can be deleted; `ccm-operator nodes` shows what comes of it",
        ),
    ]
}

fn network(evidence: &Evidence) -> Row {
    let check = Check::Network;
    let nodes = match evidence.nodes {
        Ok(nodes) => nodes,
        Err(ref unseen) => return check.not_checked(&unseen.why, &unseen.command),
    };
    let lacks = |node: &&Node| node.ready.as_ref().is_some_and(|ready| ready.lacks_network);
    let waiting: Vec<_> = nodes.iter().filter(lacks).map(|node| node.name.as_str()).collect();
    if waiting.is_empty() {
        return check.passed("");
    }
    let message = format!("no network plugin yet: {}; the pods run on the network of the host", names(waiting));
    // By its Service it is reached only where kube-proxy runs.
    match evidence.ccm.clone().facts().api_server {
        Ok(Some(_)) => check.passed(message),
        _ if evidence.snapshot.has_kube_proxy => {
            check.passed(format!("{message}, and reach the API server by its Service: kube-proxy runs"))
        }
        _ => check.warned(
            format!("{message}, and reach the API server by its Service"),
            format!(
                "nothing where kube-proxy runs; where the network plugin replaces it, give spec.placement.apiServer, and the same \
                 address to the operator (--api-server): {}",
                evidence.ccm.cluster.distribution.known().without_proxy
            ),
        ),
    }
}

fn pod_cidrs(evidence: &Evidence) -> Row {
    let check = Check::PodCidrs;
    if evidence.ccm.controllers().all(|one| one != Controller::Route) {
        return check.passed("routes are off");
    }
    let asked = evidence.ccm.spec.network.iter().flat_map(|network| &network.pod_cidrs);
    let allocators: Vec<_> = evidence.snapshot.pods.iter().filter_map(|pod| pod.subnets.as_ref()).collect();
    let given: Vec<_> = allocators.iter().copied().flatten().collect();
    let differing: Vec<_> =
        asked.filter(|subnet| !given.is_empty() && !given.contains(subnet)).map(String::as_str).collect();
    if !differing.is_empty() {
        let given: Vec<_> = given.iter().map(|subnet| subnet.as_str()).collect();
        let message = format!(
            "kube-controller-manager gives nodes subnets of {}, not of {}: routes in the latter would be deleted",
            names(given),
            names(differing)
        );
        return check
            .refused(message, "set spec.network.podCIDRs to those of kube-controller-manager (--cluster-cidr)");
    }
    let nodes = match evidence.nodes {
        Ok(nodes) => nodes,
        Err(ref unseen) => return check.not_checked(&unseen.why, &unseen.command),
    };
    let bare: Vec<_> = nodes.iter().filter(|node| !node.has_pod_cidr).map(|node| node.name.as_str()).collect();
    if bare.is_empty() {
        return check.passed("");
    }
    let message = format!("no spec.podCIDR, and so no route: {}", names(bare));
    if allocators.is_empty() {
        return check
            .warned(message, "see that kube-controller-manager runs with --allocate-node-cidrs and --cluster-cidr");
    }
    if given.is_empty() {
        return check.warned(message, "start kube-controller-manager with --allocate-node-cidrs and --cluster-cidr");
    }
    check.passed(format!("{message} yet; kube-controller-manager gives them one"))
}

fn pod_security(evidence: &Evidence) -> Row {
    let check = Check::PodSecurity;
    let name = &evidence.ccm.spec.namespace;
    let namespace = match evidence.snapshot.namespaces.get(name) {
        Some(Ok(namespace)) => namespace,
        Some(Err(unseen)) => return check.not_checked(&unseen.why, &unseen.command),
        None => return check.not_checked("it was not read", format!("kubectl get namespace {name} --show-labels")),
    };
    if namespace.is_null() {
        return check.refused(format!("there is no namespace {name}"), "create it");
    }
    match namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str() {
        None | Some("privileged") => check.passed(""),
        Some(level) => check.warned(
            format!("the namespace {name} enforces the level {level}, which refuses pods on the network of the host"),
            format!("kubectl label --overwrite namespace {name} pod-security.kubernetes.io/enforce=privileged"),
        ),
    }
}

fn permissions(evidence: &Evidence) -> Row {
    let check = Check::Permissions;
    match &evidence.missing_permissions {
        Err(unseen) => check.not_checked(&unseen.why, &unseen.command),
        Ok(missing) if missing.is_empty() => check.passed(""),
        // Everything else is installed all the same.
        Ok(missing) if missing.iter().all(|need| is_of_policies(need)) && !needs_policies(evidence) => check.warned(
            format!(
                "the operator may not {}: nothing keeps the cloud-controller-manager from using a permission to delete nodes that \
                 somebody grants it",
                names(missing.iter().map(String::as_str))
            ),
            format!("install the operator again with {}", flags(evidence, missing)),
        ),
        Ok(missing) => {
            let cure = match &evidence.provider.origin {
                Some(origin) => format!("apply what `ccm-operator provider rbac {}` prints", origin.path),
                None => format!("install the operator again with {}", flags(evidence, missing)),
            };
            check.refused(format!("the operator may not {}", names(missing.iter().map(String::as_str))), cure)
        }
    }
}

fn deletion_permission(evidence: &Evidence) -> Row {
    let check = Check::DeletionPermission;
    let bindings = match &evidence.deletion_permission {
        Err(unseen) => return check.not_checked(&unseen.why, &unseen.command),
        Ok(None) => return check.passed(""),
        Ok(Some(bindings)) => bindings,
    };
    let account = evidence.identity(evidence.ccm).map(|identity| identity.user()).unwrap_or_default();
    let (by, fix) = if bindings.is_empty() {
        let find =
            format!("find out who grants it (`kubectl auth can-i delete nodes --as={account}` asks whether it has it)");
        (String::new(), find)
    } else {
        let bound: Vec<_> = bindings.iter().map(|text| Bound::parse(text)).collect();
        (format!(", by {}", names(bound.iter().map(|one| one.name))), unbind(&bound))
    };
    let message = format!(
        "{account} may delete nodes already{by}: with wrong credentials it would delete nodes whose machines live"
    );
    check.refused(message, format!("{fix}; the operator grants it what it needs"))
}

/// The command that deletes bindings, and whom else it takes the permission from. Their names are of others, who may call one `--all`.
fn unbind(bound: &[Bound]) -> String {
    let mut words: Vec<_> = bound.iter().map(|one| quoted(one.name)).collect();
    if bound.iter().any(|one| one.name.starts_with('-')) {
        words.insert(0, "--".to_owned());
    }
    let command = format!("kubectl delete clusterrolebinding {}", words.join(" "));
    let groups: BTreeSet<_> = bound.iter().filter_map(|one| one.group).collect();
    if groups.is_empty() {
        return command;
    }
    format!("{command}, which takes the permission from everyone in the group {}", names(groups))
}

/// The flags of the installation that give the permissions that are missing.
fn flags(evidence: &Evidence, missing: &[String]) -> String {
    let is_of_deletion = |need: &&String| need.starts_with("delete nodes");
    let (of_deletion, others): (Vec<_>, Vec<_>) = missing.iter().partition(is_of_deletion);
    let has = |part: &str| others.iter().any(|need| need.contains(part));
    let mut flags = Vec::new();
    if !others.is_empty() {
        flags.push(format!("{} in --providers", evidence.provider.descriptor.name));
    }
    if has(" in namespace ") {
        flags.push(format!("{} in --namespaces", evidence.ccm.spec.namespace));
    }
    // Objects without a namespace are kept by name.
    if evidence.ccm.name != ONLY && has(&format!("-{}", evidence.ccm.name)) {
        flags.push(format!("{} in --names", evidence.ccm.name));
    }
    if has(" secrets") {
        flags.push("its Secret in --secrets".to_owned());
    }
    if !of_deletion.is_empty() {
        flags.push("--node-deletion".to_owned());
    }
    flags.join(", with ")
}

fn is_of_policies(need: &str) -> bool {
    need.contains("validatingadmissionpolic")
}

/// Whether the policies are more than a second lock.
fn needs_policies(evidence: &Evidence) -> bool {
    evidence.ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled
        || evidence.provider.manifests.iter().any(is_policy)
}

fn at_cloud(evidence: &Evidence) -> Row {
    let check = Check::AtCloud;
    match &evidence.provider.descriptor.nodes.at_cloud {
        None => check.passed("nothing is known to be needed"),
        Some(need) => check.not_checked("the API server does not show it", need),
    }
}

fn image_pull(evidence: &Evidence) -> Row {
    let image = evidence.validation.version.as_ref().map_or("IMAGE", |(_, image)| image);
    Check::ImagePull.not_checked(
        "only the nodes can tell",
        format!("on a node of the control plane: crictl pull {}", quoted(image)),
    )
}
