//! Reads the input of a proposal (IO). Writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    existing::{Existing, cleaned, release, text},
    steps::Permissions,
};
use crate::{
    cluster::read::{self, Error},
    facts::ccm::Ccm,
    object::{
        KUBE_SYSTEM, Kind, PART_OF_LABEL, POD, SERVICE_ACCOUNT, items,
        reference::{Reference, SECRET},
    },
    provider::{catalog::Catalog, kubernetes::KubernetesProvider},
};

/// The number of objects in one request.
const PAGE: u32 = 250;

/// The label of the default RBAC objects of the API server.
const BOOTSTRAP: &str = "kubernetes.io/bootstrapping";

/// The account in kube-system that a cloud-controller-manager may have for its node controller. Manifests bind it with and without
/// `--use-service-account-credentials`. kube-controller-manager uses the accounts of the other controllers, too.
const OF_NODE_CONTROLLER: &str = "cloud-node-controller";

/// The kinds of objects that may run a cloud-controller-manager.
const WORKLOADS: [&str; 3] = ["DaemonSet", "Deployment", "Pod"];

/// The kinds of objects that grant an account permissions.
const BINDINGS: [&str; 2] = ["ClusterRoleBinding", "RoleBinding"];

/// Reads the cloud-controller-managers that the operator has not installed. Static pods with the same name count as one.
pub(crate) async fn existing(client: &Client, catalog: &Catalog) -> Result<Vec<Existing>, Error> {
    let descriptors: Vec<_> = catalog.kubernetes_descriptors().collect();
    let (mut found, mut released): (Vec<Existing>, Vec<_>) = Default::default();
    for kind in WORKLOADS.into_iter().filter_map(Kind::named) {
        let take = |live: Value| {
            if let Some(release) = release(&live).filter(|_| kind != &POD) {
                released.push((release, key(&live)));
            }
            let Some(one) = Existing::of(&live, &descriptors) else { return };
            let is_same = |other: &&mut Existing| !other.static_on.is_empty() && other.key() == one.key();
            match found.iter_mut().find(is_same) {
                Some(other) => other.static_on.extend(one.static_on),
                None => found.push(one),
            }
        };
        read::each(client, kind, "", &ListParams::default().limit(PAGE), take).await?;
    }
    for one in &mut found {
        let is_of_it = |(release, key): &(_, String)| (one.helm.as_ref() == Some(release)).then(|| key.clone());
        one.of_release = released.iter().filter_map(is_of_it).collect();
    }
    Ok(found)
}

/// Returns the human-readable kind, namespace and name of a live object.
fn key(live: &Value) -> String {
    let metadata = &live["metadata"];
    format!("{} {}/{}", text(&live["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// Reads the existing ConfigMaps and Secrets that a cloud-controller-manager references, and the Secrets named in their data.
pub(crate) async fn referenced(client: &Client, existing: &Existing) -> Result<BTreeMap<Reference, Value>, Error> {
    let mut found = BTreeMap::new();
    for reference in existing.references() {
        if let Some(live) = read::get(client, reference.kind, &reference.namespace, &reference.name).await? {
            found.insert(reference, live);
        }
    }
    let texts: String = found
        .values()
        .filter_map(|object| object["data"].as_object())
        .flatten()
        .map(|(_, value)| text(value) + "\n")
        .collect();
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let words: BTreeSet<_> = texts.split(is_separator).collect();
    for live in read::list(client, &SECRET, &existing.namespace, &ListParams::default()).await? {
        let name = text(&live["metadata"]["name"]);
        if words.contains(name.as_str()) {
            found.insert(Reference::secret(&existing.namespace, &name), live);
        }
    }
    Ok(found)
}

/// Whether an object of a planned `CloudControllerManager` already exists and was not created by the operator.
pub(crate) async fn is_in_the_way(client: &Client, provider: &KubernetesProvider, ccm: &Ccm) -> Result<bool, Error> {
    for object in &provider.manifests {
        let namespace = if object.namespace().is_empty() { "" } else { &ccm.spec.namespace };
        let live = read::get(client, object.kind(), namespace, &ccm.named(object.name())).await?;
        if live.is_some_and(|live| live["metadata"]["labels"][PART_OF_LABEL].is_null()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the account and the permissions that only the first migrated cloud-controller-manager uses.
pub(crate) async fn permissions(client: &Client, migrated: &[Existing]) -> Result<Permissions, Error> {
    let Some(existing) = migrated.first() else { return Ok(Permissions::default()) };
    let mut workloads = Vec::new();
    for kind in WORKLOADS.into_iter().filter_map(Kind::named) {
        workloads.extend(read::list(client, kind, &existing.namespace, &ListParams::default().limit(PAGE)).await?);
    }
    let account = read::get(client, &SERVICE_ACCOUNT, &existing.namespace, &existing.account).await?;
    let account = account.as_ref().map(cleaned);
    let users = users(&workloads, migrated);
    if !users.is_empty() {
        return Ok(Permissions { account, users, ..Permissions::default() });
    }
    let mut bindings = Vec::new();
    for kind in BINDINGS.into_iter().filter_map(Kind::named) {
        bindings.extend(read::list(client, kind, "", &ListParams::default()).await?);
    }
    let (own, shared) = of_account(&bindings, existing);
    let mut permissions = Permissions { account, shared, ..Permissions::default() };
    for object in own {
        match object {
            Own::Binding(binding) => permissions.objects.push(cleaned(binding)),
            Own::Role(kind, namespace, name) => {
                if let Some(kind) = Kind::named(&kind)
                    && let Some(live) = read::get(client, kind, &namespace, &name).await?
                    && is_made(&live)
                {
                    permissions.objects.push(cleaned(&live));
                }
            }
        }
    }
    permissions.objects.extend(permissions.account.clone());
    Ok(permissions)
}

/// Returns the other users of the account of the first entry: Deployments, `DaemonSets` and pods in its namespace that are neither in
/// `migrated` nor owned by an entry. All pods without an explicit account use the account `default`.
fn users(workloads: &[Value], migrated: &[Existing]) -> Vec<String> {
    let Some(existing) = migrated.first() else { return Vec::new() };
    if existing.account == "default" {
        return vec!["all pods that name no account".to_owned()];
    }
    let is_owner = |one: &Existing, owner: &Value| {
        let name = text(&owner["name"]);
        let of_replicas = || name.rsplit_once('-').is_some_and(|(deployment, _)| deployment == one.name);
        (owner["kind"] == one.kind.as_str() && name == one.name)
            || (owner["kind"] == "ReplicaSet" && one.kind == "Deployment" && of_replicas())
    };
    let is_it = |live: &Value| {
        migrated.iter().filter(|one| one.namespace == existing.namespace).any(|one| {
            let name = text(&live["metadata"]["name"]);
            let of_nodes = one.static_on.iter().any(|node| name == format!("{}-{node}", one.name));
            (live["kind"] == one.kind.as_str() && (name == one.name || of_nodes))
                || items(&live["metadata"]["ownerReferences"]).iter().any(|owner| is_owner(one, owner))
        })
    };
    let has_account = |live: &&Value| {
        let pod = if live["kind"] == "Pod" { &live["spec"] } else { &live["spec"]["template"]["spec"] };
        pod["serviceAccountName"] == existing.account.as_str()
    };
    workloads.iter().filter(has_account).filter(|live| !is_it(live)).map(key).collect()
}

/// An object that grants permissions to only one account.
#[derive(Debug, PartialEq)]
enum Own<'a> {
    /// A binding.
    Binding(&'a Value),
    /// The kind, the namespace and the name of a role.
    Role(String, String, String),
}

/// Whether a user created the object. The API server labels its default objects.
fn is_made(object: &Value) -> bool {
    object["metadata"]["labels"][BOOTSTRAP].is_null()
}

/// Returns the bindings whose only subjects are the account of a cloud-controller-manager and that of its node controller, each with its
/// role unless another binding shares the role, and the bindings with additional subjects.
fn of_account<'a>(bindings: &'a [Value], existing: &Existing) -> (Vec<Own<'a>>, Vec<String>) {
    let is_account = |subject: &Value, namespace: &str, name: &str| {
        subject["kind"] == "ServiceAccount" && subject["name"] == name && subject["namespace"] == namespace
    };
    let is_it = |subject: &Value| {
        is_account(subject, &existing.namespace, &existing.account)
            || is_account(subject, KUBE_SYSTEM, OF_NODE_CONTROLLER)
    };
    let has_it = |binding: &Value| items(&binding["subjects"]).iter().any(is_it);
    // Any other subject counts as another user, including users and groups.
    let is_alone = |binding: &Value| has_it(binding) && items(&binding["subjects"]).iter().all(is_it);
    let role = |binding: &Value| {
        let of_namespace = binding["roleRef"]["kind"] == "Role";
        let namespace = if of_namespace { text(&binding["metadata"]["namespace"]) } else { String::new() };
        Own::Role(text(&binding["roleRef"]["kind"]), namespace, text(&binding["roleRef"]["name"]))
    };
    let mut own = Vec::new();
    for binding in bindings.iter().filter(|binding| is_alone(binding) && is_made(binding)) {
        own.push(Own::Binding(binding));
        let role_of_it = role(binding);
        let is_shared = bindings.iter().any(|other| role(other) == role_of_it && !is_alone(other));
        if !is_shared && !own.contains(&role_of_it) {
            own.push(role_of_it);
        }
    }
    let shared = bindings.iter().filter(|one| has_it(one) && !is_alone(one));
    (own, shared.map(|one| format!("{} {}", text(&one["kind"]), text(&one["metadata"]["name"]))).collect())
}

#[cfg(test)]
mod tests;
