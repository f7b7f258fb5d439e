//! The rule about who has a ClusterRole (pure): the operator takes from an account what only controllers need that are off, and can do so
//! only where it knows the role and the account.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    object::{Object, permissions},
    provider::{
        Error, Phase,
        folder::Manifest,
        upstream::{Descriptor, is_manager},
        verify::parts::{Subject, items},
    },
};

/// What the pods of a node manager need in the cluster.
const OF_NODES: [(&str, &str); 4] = [("", "events"), ("", "nodes"), ("", "nodes/status"), ("events.k8s.io", "events")];

/// On OpenShift nothing is narrowed: its administrators choose no controllers.
pub(super) fn roles(subject: Subject) -> Vec<Error> {
    let Some(descriptor) = &subject.bundle.upstream else { return Vec::new() };
    let manifests = subject.bundle.of_phase(Phase::Cluster);
    let of_manager = account(&manifests, |one| one.pod_spec().is_some_and(is_manager));
    let of_nodes = account(&manifests, |one| descriptor.is_of_node_manager(one));
    let named = |kind: &str| -> BTreeSet<&str> {
        manifests.iter().filter(|one| one.object.kind().kind == kind).map(|one| one.object.name()).collect()
    };
    let (own_accounts, own_roles) = (named("ServiceAccount"), named("ClusterRole"));
    // A rule of its own refuses accounts and roles that are not of the folder.
    if of_manager.is_none_or(|account| !own_accounts.contains(account)) {
        return Vec::new();
    }
    let narrowed: BTreeSet<&str> = of_manager.into_iter().chain(of_nodes).collect();
    let is_kept = |role: &str, account: &str| {
        let is_narrowed = role == account && narrowed.contains(account);
        own_roles.contains(role) && own_accounts.contains(account) && !is_narrowed
    };
    let bindings = manifests.iter().flat_map(|manifest| bound(manifest, is_kept));
    let beyond = manifests.iter().filter(|one| of_nodes != of_manager && Some(one.object.name()) == of_nodes);
    bindings.chain(beyond.flat_map(|manifest| beyond_nodes(manifest, descriptor))).collect()
}

/// The account of the first workload of this kind, which is the one that the operator takes.
fn account<'a>(manifests: &[&'a Manifest], is_it: impl Fn(&Object) -> bool) -> Option<&'a str> {
    let workload = manifests.iter().find(|one| one.object.pod_spec().is_some() && is_it(&one.object))?;
    workload.object.pod_spec()?["serviceAccountName"].as_str()
}

/// What a binding gives by a ClusterRole that the operator keeps as it is.
fn bound(manifest: &Manifest, is_kept: impl Fn(&str, &str) -> bool) -> Vec<Error> {
    let value = manifest.object.value();
    let role = value["roleRef"]["name"].as_str().unwrap_or_default();
    if value["roleRef"]["kind"] != "ClusterRole" {
        return Vec::new();
    }
    let defect = |(index, subject): (usize, &Value)| {
        let account = subject["name"].as_str().unwrap_or_default();
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
