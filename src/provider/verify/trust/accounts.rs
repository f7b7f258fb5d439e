//! Rules about accounts (pure): the accounts that have a ClusterRole, and the nodes on which their pods may be. The
//! operator removes the permissions of disabled controllers from an account, and limits pods to their node by a policy. Both
//! need an account that is known and not shared.

use std::collections::BTreeSet;

use serde_json::Value;

use super::never::WRITES;
use crate::{
    error::brief,
    object::{Object, permissions},
    provider::{
        Error, Flavor, Phase,
        folder::Manifest,
        kubernetes::{CONTROL_PLANE_LABEL, Descriptor, NeededPermission, workload},
        restriction::{Accounts, account, is_on_every_node},
        verify::{
            Values,
            parts::{Input, Part, items},
        },
    },
};

/// What the pods of a node manager need in the cluster.
const OF_NODES: [(&str, &str); 4] = [("", "events"), ("", "nodes"), ("", "nodes/status"), ("events.k8s.io", "events")];

/// What the account of a cloud-controller-manager writes of others, all of the core group.
const OF_OTHERS: [&str; 4] = ["nodes", "nodes/status", "services", "services/status"];

/// The labels of the control plane's nodes on OpenShift, where both are empty.
const OF_OPENSHIFT: [&str; 2] = [CONTROL_PLANE_LABEL, "node-role.kubernetes.io/master"];

/// On OpenShift nothing is narrowed: its administrators choose no controllers.
pub(super) fn roles(input: Input) -> Vec<Error> {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return Vec::new() };
    let bindings = bindings(input, descriptor);
    bindings.into_iter().chain(permissions(input, descriptor)).collect()
}

/// What bindings give beyond what the operator narrows.
fn bindings(input: Input, descriptor: &Descriptor) -> Vec<Error> {
    let manifests = input.parsed.of_phase(Phase::Cluster);
    let ccm = workload(manifests.iter().map(|one| &one.object));
    let of_ccm = ccm.and_then(|(_, pod)| pod["serviceAccountName"].as_str());
    let of_nodes =
        manifests.iter().find(|one| one.object.pod_spec().is_some() && descriptor.is_of_node_manager(&one.object));
    let of_nodes = of_nodes.and_then(|one| one.object.pod_spec()?["serviceAccountName"].as_str());
    let named = |kind: &str| -> BTreeSet<&str> {
        manifests.iter().filter(|one| one.object.kind().kind == kind).map(|one| one.object.name()).collect()
    };
    let (own_accounts, own_roles) = (named("ServiceAccount"), named("ClusterRole"));
    // A rule of its own refuses accounts and roles that are not of the folder.
    if of_ccm.is_none_or(|account| !own_accounts.contains(account)) {
        return Vec::new();
    }
    let narrowed: BTreeSet<&str> = of_ccm.into_iter().chain(of_nodes).collect();
    let is_kept = |role: &str, account: &str| {
        let is_narrowed = role == account && narrowed.contains(account);
        own_roles.contains(role) && own_accounts.contains(account) && !is_narrowed
    };
    let bindings = manifests.iter().flat_map(|manifest| bound(manifest, is_kept));
    let beyond = manifests.iter().filter(|one| of_nodes != of_ccm && Some(one.object.name()) == of_nodes);
    bindings.chain(beyond.flat_map(|manifest| beyond_nodes(manifest, descriptor))).collect()
}

/// The permissions of the descriptor by which the account writes objects of others whichever controllers are on. They become a part of its
/// ClusterRole.
fn permissions(input: Input, descriptor: &Descriptor) -> Vec<Error> {
    let writes = |permission: &NeededPermission| {
        let is_of_others = permission.api_group.is_empty() && OF_OTHERS.contains(&permission.resource.as_str());
        is_of_others && permission.verbs.iter().any(|verb| WRITES.contains(&verb.as_str()))
    };
    let open = descriptor
        .permissions
        .iter()
        .enumerate()
        .filter(|(_, permission)| permission.controllers.is_empty() && writes(permission));
    let defect = |(index, permission): (usize, &NeededPermission)| {
        let problem = format!("writes {} whichever controllers are on: no controllers are given", permission.resource);
        input.parsed.descriptor_error(&format!("/permissions/{index}"), problem)
    };
    open.map(defect).collect()
}

/// What a binding gives by a ClusterRole that the operator keeps as it is.
fn bound(manifest: &Manifest, is_kept: impl Fn(&str, &str) -> bool) -> Vec<Error> {
    let value = manifest.object.value();
    let role = value["roleRef"]["name"].as_str().unwrap_or_default();
    if value["roleRef"]["kind"] != "ClusterRole" {
        return Vec::new();
    }
    let defect = |(index, input): (usize, &Value)| {
        let account = input["name"].as_str().unwrap_or_default();
        let problem = || format!("binds ClusterRole {role} to {account}");
        is_kept(role, account).then(|| manifest.defect(&format!("/subjects/{index}"), problem()))
    };
    items(&value["subjects"]).iter().enumerate().filter_map(defect).collect()
}

/// What the ClusterRole of the node manager grants besides nodes. It goes with the controller of nodes, if it is the node manager's.
fn beyond_nodes(manifest: &Manifest, descriptor: &Descriptor) -> Vec<Error> {
    if manifest.object.kind().kind != "ClusterRole" {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !descriptor.is_of_node_manager(&manifest.object) {
        let problem = "the ClusterRole of the node manager's account has not its label app.kubernetes.io/name";
        found.push(manifest.defect("/metadata/labels", problem));
    }
    let rules = permissions::rules(manifest.object.value()).unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let pairs = rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (*group, *resource)));
        if let Some((_, resource)) = pairs.into_iter().find(|pair| !OF_NODES.contains(pair)) {
            found.push(manifest.defect(&format!("/rules/{index}"), format!("grants {resource} to the node manager")));
        }
    }
    found
}

/// The accounts of the cloud-controller-manager that pods on every node have, too: a policy keeps other accounts to their own node.
pub(super) fn shared(input: Input) -> Values {
    let workloads = Workloads::of(input);
    let of_pod = |pod: Part| {
        let (namespace, name) = account(&pod.manifest.object)?;
        let value = format!("ServiceAccount {namespace}/{name}");
        let is_shared = workloads.accounts.central.contains(&(namespace, name));
        let problem = format!(
            "{} is that of the cloud-controller-manager or of another workload that is not on every node",
            brief(&value)
        );
        let is_reported = is_shared && is_on_every_node(&pod.manifest.object, workloads.ccm);
        is_reported.then(|| (pod.defect("/serviceAccountName", problem), value))
    };
    input.pods_of(Phase::Cluster).filter_map(of_pod).collect()
}

/// The workloads whose pods may run on any node with the token of an account that no policy keeps to the node of its pod.
pub(super) fn placement(input: Input) -> Values {
    let workloads = Workloads::of(input);
    let of_pod = |pod: Part| {
        let object = &pod.manifest.object;
        let is_kept = is_on_every_node(object, workloads.ccm)
            && account(object).is_some_and(|account| !workloads.accounts.central.contains(&account));
        if is_kept || is_on_control_plane(pod.value, input.parsed.flavor) {
            return None;
        }
        let value = pod.manifest.title();
        let problem = format!("{}: its pods may run on nodes that are not of the control plane", brief(&value));
        Some((pod.defect("/affinity", problem), value))
    };
    input.pods_of(Phase::Cluster).filter_map(of_pod).collect()
}

/// The accounts of a provider, and the workload of the cloud-controller-manager.
struct Workloads<'a> {
    accounts: Accounts,
    ccm: Option<&'a Object>,
}

impl<'a> Workloads<'a> {
    fn of(input: Input<'a>) -> Self {
        let manifests = input.parsed.of_phase(Phase::Cluster);
        let objects = || manifests.iter().map(|one| &one.object);
        Self { accounts: Accounts::of(objects()), ccm: workload(objects()).map(|(ccm, _)| ccm) }
    }
}

/// Whether a pod runs on nodes of the control plane only. Elsewhere than on OpenShift the value of the label differs, and the plan
/// replaces `nodeSelector`.
fn is_on_control_plane(pod: &Value, flavor: Flavor) -> bool {
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = items(pod.pointer(required).unwrap_or(&Value::Null));
    let is_label = |wanted: &Value| wanted["key"] == CONTROL_PLANE_LABEL && wanted["operator"] == "Exists";
    // A node has to fit one of them.
    let by_affinity =
        !terms.is_empty() && terms.iter().all(|term| items(&term["matchExpressions"]).iter().any(is_label));
    let is_selected = || OF_OPENSHIFT.iter().any(|label| pod["nodeSelector"][*label].is_string());
    by_affinity || (flavor == Flavor::OpenShift && is_selected())
}
