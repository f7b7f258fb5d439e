//! Rules about accounts (pure): the accounts that have a ClusterRole, and the nodes on which their pods may run. The
//! operator removes the permissions of disabled controllers from an account, and limits pods to their node by a policy. Both
//! need an account that is known and not shared.

use std::collections::BTreeSet;

use super::never::WRITES;
use crate::{
    error::brief,
    object::Object,
    provider::{
        Flavor, Phase,
        folder::Manifest,
        kubernetes::{CONTROL_PLANE_LABEL, Descriptor, NeededPermission, workload},
        restriction::{Account, Accounts, account, is_on_every_node},
        verify::{
            kubernetes::requires_control_plane,
            parts::{Defects, Part, RuleInput},
        },
    },
};

/// The permissions that a node manager needs in the cluster.
const OF_NODES: [(&str, &str); 4] = [("", "events"), ("", "nodes"), ("", "nodes/status"), ("events.k8s.io", "events")];

/// The resources of other owners that a cloud-controller-manager writes, all in the core group.
const OF_OTHERS: [&str; 4] = ["nodes", "nodes/status", "services", "services/status"];

/// The labels of control-plane nodes on OpenShift, where the values of both are empty.
const OF_OPENSHIFT: [&str; 2] = [CONTROL_PLANE_LABEL, "node-role.kubernetes.io/master"];

/// Skips OpenShift, where nothing is narrowed because administrators choose no controllers.
pub(super) fn roles(input: RuleInput, defects: &mut Defects) {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return };
    bindings(input, descriptor, defects);
    permissions(input, descriptor, defects);
}

/// Reports bindings whose permissions the operator does not narrow.
fn bindings(input: RuleInput, descriptor: &Descriptor, defects: &mut Defects) {
    let manifests = input.parsed.of_phase(Phase::Cluster);
    let ccm = workload(manifests.iter().map(|one| &one.object));
    let of_ccm = ccm.and_then(|(_, pod)| pod["serviceAccountName"].as_str());
    let of_nodes =
        manifests.iter().find(|one| one.object.pod_spec().is_some() && descriptor.is_of_node_manager(&one.object));
    let of_nodes = of_nodes.and_then(|one| one.object.pod_spec()?["serviceAccountName"].as_str());
    let named = |kind: &str| -> BTreeSet<&str> {
        manifests.iter().filter(|one| one.is(kind)).map(|one| one.object.name()).collect()
    };
    let (own_accounts, own_roles) = (named("ServiceAccount"), named("ClusterRole"));
    // Another rule refuses accounts and roles outside the folder.
    if of_ccm.is_none_or(|account| !own_accounts.contains(account)) {
        return;
    }
    let narrowed: BTreeSet<&str> = of_ccm.into_iter().chain(of_nodes).collect();
    let is_kept = |role: &str, account: &str| {
        let is_narrowed = role == account && narrowed.contains(account);
        own_roles.contains(role) && own_accounts.contains(account) && !is_narrowed
    };
    for manifest in &manifests {
        let role = manifest.text("/roleRef/name");
        for (pointer, subject) in manifest.subjects().filter(|_| manifest.text("/roleRef/kind") == "ClusterRole") {
            let account = subject["name"].as_str().unwrap_or_default();
            if is_kept(role, account) {
                defects.add(manifest.defect(&pointer, format!("binds ClusterRole {role} to {account}")));
            }
        }
    }
    for manifest in manifests.iter().filter(|one| of_nodes != of_ccm && Some(one.object.name()) == of_nodes) {
        beyond_nodes(manifest, descriptor, defects);
    }
}

/// Reports permissions of the descriptor that let the account write objects of other owners with any enabled controllers. They become
/// part of its ClusterRole.
fn permissions(input: RuleInput, descriptor: &Descriptor, defects: &mut Defects) {
    for (index, permission) in descriptor.permissions.iter().enumerate() {
        let NeededPermission { api_group, resource, verbs, controllers, .. } = permission;
        let is_of_others = api_group.is_empty() && OF_OTHERS.contains(&resource.as_str());
        if controllers.is_empty() && is_of_others && verbs.iter().any(|verb| WRITES.contains(&verb.as_str())) {
            let problem = format!("writes {resource} whichever controllers are on: no controllers are given");
            defects.add(input.parsed.descriptor_error(&format!("/permissions/{index}"), problem));
        }
    }
}

/// Reports permissions other than those on nodes in the node manager's ClusterRole. This role is removed with the node controller if its
/// label is the node manager's.
fn beyond_nodes(manifest: &Manifest, descriptor: &Descriptor, defects: &mut Defects) {
    if !manifest.is("ClusterRole") {
        return;
    }
    if !descriptor.is_of_node_manager(&manifest.object) {
        let problem = "the ClusterRole of the node manager's account has not its label app.kubernetes.io/name";
        defects.add(manifest.defect("/metadata/labels", problem));
    }
    for (pointer, rule) in manifest.rules() {
        let mut pairs = rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |one| (*group, *one)));
        if let Some((_, resource)) = pairs.find(|pair| !OF_NODES.contains(pair)) {
            defects.add(manifest.defect(&pointer, format!("grants {resource} to the node manager")));
        }
    }
}

/// Reports accounts of the cloud-controller-manager that pods on every node also use. A policy limits other accounts to their own node.
pub(super) fn shared(input: RuleInput, defects: &mut Defects) {
    let workloads = Workloads::of(input);
    for pod in input.pods_of(Phase::Cluster).filter(|pod| is_on_every_node(&pod.manifest.object, workloads.ccm)) {
        let Some((namespace, name)) = workloads.central_account(&pod) else { continue };
        let value = format!("ServiceAccount {namespace}/{name}");
        let problem = format!(
            "{} is that of the cloud-controller-manager or of another workload that is not on every node",
            brief(&value)
        );
        defects.add_unless(value, pod.defect("/serviceAccountName", problem));
    }
}

/// Reports workloads whose pods may run on any node with the token of an account that no policy limits to the node of its pod.
pub(super) fn placement(input: RuleInput, defects: &mut Defects) {
    let workloads = Workloads::of(input);
    for pod in input.pods_of(Phase::Cluster) {
        let is_kept =
            is_on_every_node(&pod.manifest.object, workloads.ccm) && workloads.central_account(&pod).is_none();
        if !is_kept && !is_on_control_plane(&pod) {
            let value = pod.manifest.title();
            let problem = format!("{}: its pods may run on nodes that are not of the control plane", brief(&value));
            defects.add_unless(value, pod.defect("/affinity", problem));
        }
    }
}

/// The accounts of a provider, and the workload of the cloud-controller-manager.
struct Workloads<'a> {
    accounts: Accounts,
    ccm: Option<&'a Object>,
}

impl<'a> Workloads<'a> {
    fn of(input: RuleInput<'a>) -> Self {
        let manifests = input.parsed.of_phase(Phase::Cluster);
        let objects = || manifests.iter().map(|one| &one.object);
        Self { accounts: Accounts::of(objects()), ccm: workload(objects()).map(|(ccm, _)| ccm) }
    }

    /// Returns the account of a pod if the cloud-controller-manager, or another workload that is not on every node, has it.
    fn central_account(&self, pod: &Part) -> Option<Account> {
        account(&pod.manifest.object).filter(|account| self.accounts.central.contains(account))
    }
}

/// Whether a pod runs only on control-plane nodes. `nodeSelector` counts only on OpenShift: elsewhere, the value of the label differs,
/// and the plan replaces `nodeSelector`.
fn is_on_control_plane(pod: &Part) -> bool {
    let terms = pod.affinity_terms();
    let is_selected = || OF_OPENSHIFT.iter().any(|label| pod.value["nodeSelector"][*label].is_string());
    let by_affinity = !terms.is_empty() && terms.iter().all(requires_control_plane);
    by_affinity || (pod.input.parsed.flavor == Flavor::OpenShift && is_selected())
}
