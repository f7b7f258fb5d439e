//! Reads what a proposal is made from (IO). Writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    existing::{Existing, cleaned, items, text},
    steps::Rights,
};
use crate::{
    apply::inventory::PART_OF_LABEL,
    cluster::read::{self, Error},
    facts::manager::Manager,
    object::{
        KINDS, Kind,
        reference::{CONFIG_MAP, Reference, SECRET},
    },
    provider::{catalog::Catalog, upstream::Upstream},
};

/// How many objects are read at once.
const PAGE: u32 = 250;

/// The label of the rights that the API server makes itself.
const BOOTSTRAP: &str = "kubernetes.io/bootstrapping";

/// The kinds of the rights that an account may have: a binding, and its roles.
const BINDINGS: [&str; 2] = ["ClusterRoleBinding", "RoleBinding"];

/// The cloud-controller-managers of others. Static pods of the same name are one.
pub async fn existing(client: &Client, catalog: &Catalog) -> Result<Vec<Existing>, Error> {
    let descriptors: Vec<_> = catalog.upstream().map(|one| &one.descriptor).collect();
    let mut found: Vec<Existing> = Vec::new();
    for kind in ["DaemonSet", "Deployment", "Pod"] {
        let take = |live: Value| {
            let Some(one) = Existing::of(&live, &descriptors) else { return };
            let is_same = |other: &&mut Existing| !other.static_on.is_empty() && other.key() == one.key();
            match found.iter_mut().find(is_same) {
                Some(other) => other.static_on.extend(one.static_on),
                None => found.push(one),
            }
        };
        read::each(client, kind_of(kind), "", &ListParams::default().limit(PAGE), take).await?;
    }
    Ok(found)
}

fn kind_of(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.kind == name).unwrap_or(&CONFIG_MAP)
}

/// The ConfigMaps and Secrets that a cloud-controller-manager refers to and that exist; those, too, whose names stand in them.
pub async fn referenced(client: &Client, existing: &Existing) -> Result<BTreeMap<Reference, Value>, Error> {
    let mut found = BTreeMap::new();
    for reference in existing.references() {
        let kind = reference.kind;
        if let Some(live) = read::get(client, kind, &reference.namespace, &reference.name).await? {
            found.insert(reference, typed(live, kind));
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
            found
                .insert(Reference { kind: &SECRET, namespace: existing.namespace.clone(), name }, typed(live, &SECRET));
        }
    }
    Ok(found)
}

/// With its kind, which says whether the values are in base64.
fn typed(mut live: Value, kind: &Kind) -> Value {
    live["apiVersion"] = kind.api_version().into();
    live["kind"] = kind.kind.into();
    live
}

/// Whether a Secret exists, as it is.
pub async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
    read::get(client, &SECRET, namespace, name).await
}

/// Whether one of the objects that a `CloudControllerManager` would have exists and is not the operator's.
pub async fn is_in_the_way(client: &Client, provider: &Upstream, manager: &Manager) -> Result<bool, Error> {
    for object in &provider.manifests {
        let namespace = if object.namespace().is_empty() { "" } else { &manager.spec.namespace };
        let live = read::get(client, object.kind(), namespace, &manager.named(object.name())).await?;
        if live.is_some_and(|live| live["metadata"]["labels"][PART_OF_LABEL].is_null()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The account and the rights of a cloud-controller-manager that nobody else has.
pub async fn rights(client: &Client, existing: &Existing) -> Result<Rights, Error> {
    let mut bindings = Vec::new();
    for kind in BINDINGS {
        bindings.extend(read::list(client, kind_of(kind), "", &ListParams::default()).await?);
    }
    let is_it = |subject: &Value| {
        subject["kind"] == "ServiceAccount"
            && subject["name"] == existing.account.as_str()
            && subject["namespace"] == existing.namespace.as_str()
    };
    let is_other = |subject: &Value| subject["kind"] == "ServiceAccount" && !is_it(subject);
    let of_account = |binding: &Value| items(&binding["subjects"]).any(is_it);
    let is_alone = |binding: &Value| of_account(binding) && !items(&binding["subjects"]).any(is_other);
    let is_made = |object: &Value| object["metadata"]["labels"][BOOTSTRAP].is_null();
    let mut rights = Rights::default();
    for binding in bindings.iter().filter(|binding| is_alone(binding) && is_made(binding)) {
        rights.objects.push(cleaned(binding));
        let role = |binding: &Value| {
            let namespace = if binding["roleRef"]["kind"] == "Role" {
                text(&binding["metadata"]["namespace"])
            } else {
                String::new()
            };
            (text(&binding["roleRef"]["kind"]), namespace, text(&binding["roleRef"]["name"]))
        };
        let (kind, namespace, name) = role(binding);
        let is_shared = bindings.iter().any(|other| role(other) == role(binding) && !is_alone(other));
        let is_listed = rights
            .objects
            .iter()
            .any(|object| object["kind"] == kind.as_str() && object["metadata"]["name"] == name.as_str());
        if !is_shared
            && !is_listed
            && let Some(live) = read::get(client, kind_of(&kind), &namespace, &name).await?
            && is_made(&live)
        {
            rights.objects.push(cleaned(&typed(live, kind_of(&kind))));
        }
    }
    rights.shared = bindings
        .iter()
        .filter(|one| of_account(one) && !is_alone(one))
        .map(|one| format!("{} {}", text(&one["kind"]), text(&one["metadata"]["name"])))
        .collect();
    let account = kind_of("ServiceAccount");
    if existing.account != "default"
        && let Some(live) = read::get(client, account, &existing.namespace, &existing.account).await?
    {
        rights.objects.push(cleaned(&typed(live, account)));
    }
    Ok(rights)
}
