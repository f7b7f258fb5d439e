//! The cluster checks, and the checks that only a user can perform (pure).

use std::collections::BTreeSet;

use super::{
    check::{Check, Row, names},
    check_input::CheckInput,
    nodes::named,
    permissions::Bound,
};
use crate::{
    api::spec::Lifecycle,
    facts::ccm::{Controller, ONLY},
    nodes::{evidence::ReadResult, node::Node},
    plan::kubernetes::guard::is_policy,
    provider::Origin,
    text::shell::quoted,
};

pub(super) fn network(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let lacks = |node: &&Node| node.ready.as_ref().is_some_and(|ready| ready.lacks_network);
    let Some(waiting) = named(input.nodes.clone()?.iter().filter(lacks)) else { return Ok(check.passed("")) };
    let message = format!("no network plugin yet: {waiting}; the pods run on the network of the host");
    // The API server is reachable through its Service only with kube-proxy.
    Ok(match input.ccm.api_server() {
        Some(_) => check.passed(message),
        _ if input.snapshot.has_kube_proxy => {
            check.passed(format!("{message}, and reach the API server by its Service: kube-proxy runs"))
        }
        _ => check.warned(
            format!("{message}, and reach the API server by its Service"),
            format!(
                "nothing where kube-proxy runs; where the network plugin replaces it, give spec.placement.apiServer, and the same \
                 address to the operator (--api-server): {}",
                input.ccm.cluster.distribution.properties().without_proxy
            ),
        ),
    })
}

pub(super) fn pod_cidrs(input: &CheckInput, check: Check) -> ReadResult<Row> {
    if input.ccm.controllers().all(|one| one != Controller::Route) {
        return Ok(check.passed("routes are off"));
    }
    let asked = input.ccm.spec.network.iter().flat_map(|network| &network.pod_cidrs);
    let allocators: Vec<_> = input.snapshot.pods.iter().filter_map(|pod| pod.subnets.as_ref()).collect();
    let given: Vec<_> = allocators.iter().copied().flatten().collect();
    let differing: Vec<_> = asked.filter(|subnet| !given.is_empty() && !given.contains(subnet)).collect();
    if !differing.is_empty() {
        let message = format!(
            "kube-controller-manager gives nodes subnets of {}, not of {}: routes in the latter would be deleted",
            names(given),
            names(differing)
        );
        let fix = "set spec.network.podCIDRs to those of kube-controller-manager (--cluster-cidr)";
        return Ok(check.refused(message, fix));
    }
    let bare = named(input.nodes.clone()?.iter().filter(|node| !node.has_pod_cidr));
    let Some(bare) = bare else { return Ok(check.passed("")) };
    let message = format!("no spec.podCIDR, and so no route: {bare}");
    let fix = if allocators.is_empty() {
        "see that kube-controller-manager runs with --allocate-node-cidrs and --cluster-cidr"
    } else if given.is_empty() {
        "start kube-controller-manager with --allocate-node-cidrs and --cluster-cidr"
    } else {
        return Ok(check.passed(format!("{message} yet; kube-controller-manager gives them one")));
    };
    Ok(check.warned(message, fix))
}

pub(super) fn pod_security(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let name = &input.ccm.spec.namespace;
    let Some(namespace) = input.snapshot.namespaces.get(name) else {
        return Ok(check.not_checked("it was not read", format!("kubectl get namespace {name} --show-labels")));
    };
    let namespace = namespace.as_ref().map_err(Clone::clone)?;
    if namespace.is_null() {
        return Ok(check.refused(format!("there is no namespace {name}"), "create it"));
    }
    Ok(match namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str() {
        None | Some("privileged") => check.passed(""),
        Some(level) => check.warned(
            format!("the namespace {name} enforces the level {level}, which refuses pods on the network of the host"),
            format!("kubectl label --overwrite namespace {name} pod-security.kubernetes.io/enforce=privileged"),
        ),
    })
}

pub(super) fn permissions(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let missing = input.missing_permissions.as_ref().map_err(Clone::clone)?;
    if missing.is_empty() {
        return Ok(check.passed(""));
    }
    let message = format!("the operator may not {}", names(missing));
    let again = || format!("install the operator again with {}", flags(input, missing));
    // Everything else is installed even without the policies.
    if missing.iter().all(|need| is_of_policies(need)) && !needs_policies(input) {
        let nothing = "nothing keeps the cloud-controller-manager from using a permission to delete nodes that somebody \
                       grants it";
        return Ok(check.warned(format!("{message}: {nothing}"), again()));
    }
    let by_itself = |origin: &Origin| format!("apply what `ccm-operator provider rbac {}` prints", origin.path);
    Ok(check.refused(message, input.provider.origin.as_ref().map_or_else(again, by_itself)))
}

pub(super) fn deletion_permission(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let Some(bindings) = input.deletion_permission.as_ref().map_err(Clone::clone)? else {
        return Ok(check.passed(""));
    };
    let account = input.identity(input.ccm).map(|identity| identity.user()).unwrap_or_default();
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
    Ok(check.refused(message, format!("{fix}; the operator grants it what it needs")))
}

/// Returns the command that deletes bindings, and the other affected users. The names are untrusted: a name may be `--all`.
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

/// Returns the installation flags that grant the missing permissions.
fn flags(input: &CheckInput, missing: &[String]) -> String {
    let is_of_deletion = |need: &&String| need.starts_with("delete nodes");
    let is_of_secrets = |need: &&String| need.contains(" secrets");
    let (of_deletion, rest): (Vec<_>, Vec<_>) = missing.iter().partition(is_of_deletion);
    let (of_secrets, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_of_secrets);
    let has = |part: &str| others.iter().any(|need| need.contains(part));
    let mut flags = Vec::new();
    if !others.is_empty() {
        flags.push(format!("{} in --providers", input.provider.descriptor.name));
    }
    if has(" in namespace ") {
        flags.push(format!("{} in --namespaces", input.ccm.spec.namespace));
    }
    // Permissions for cluster-scoped objects are limited to their names.
    if input.ccm.name != ONLY && has(&format!("-{}", input.ccm.name)) {
        flags.push(format!("{} in --names", input.ccm.name));
    }
    if !of_secrets.is_empty() {
        flags.push("its Secret in --secrets, besides those that are there".to_owned());
    }
    if !of_deletion.is_empty() {
        flags.push("--node-deletion".to_owned());
    }
    flags.join(", with ")
}

fn is_of_policies(need: &str) -> bool {
    need.contains("validatingadmissionpolic")
}

/// Whether this `CloudControllerManager` depends on admission policies.
fn needs_policies(input: &CheckInput) -> bool {
    input.ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled
        || input.provider.manifests.iter().any(is_policy)
}

pub(super) fn at_cloud(input: &CheckInput, check: Check) -> Row {
    match &input.provider.descriptor.nodes.at_cloud {
        None => check.passed("nothing is known to be needed"),
        Some(need) => check.not_checked("the API server does not show it", need),
    }
}

pub(super) fn image_pull(input: &CheckInput, check: Check) -> Row {
    let image = input.validation.version.as_ref().map_or("IMAGE", |(_, image)| image);
    check.not_checked(
        "only the nodes can tell",
        format!("on a node of the control plane: crictl pull {}", quoted(image)),
    )
}
