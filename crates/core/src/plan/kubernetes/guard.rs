//! The objects that keep a cloud-controller-manager from deleting unconfirmed nodes (pure): the manifests of `guard/`.
//!
//! The policy exists in every mode, so that a permission from another client lets the ServiceAccount delete nothing.
//! The permission itself, by name, exists only if nodes may be deleted. A plan lists no nodes and grants nothing:
//! [`confirm`] adds the confirmed nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::names;
use crate::{
    api::spec::Lifecycle,
    facts::ccm::{Ccm, Deletable},
    object::{Object, items},
    plan::Error,
    provider::{
        embedded,
        kubernetes::{INSTANCE_LABEL, KubernetesProvider},
        restriction::ACCOUNT,
    },
};

/// The suffix of the names of the objects, after the name of the account.
const SUFFIX: &str = "-delete-nodes";

/// The variable of the policy with the list.
const CONFIRMED: &str = "confirmed";

/// The guard of a cloud-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The user name of the cloud-controller-manager.
    pub user: String,
    /// The name of each of its objects.
    pub name: String,
    /// The prefixes of the providerIDs of its cloud.
    pub provider_ids: Vec<String>,
}

impl Guard {
    /// Returns the guard of a `CloudControllerManager`, or `None` if its pods have no account.
    pub fn of(provider: &KubernetesProvider, ccm: &Ccm) -> Option<Self> {
        let account = provider.account()?;
        let user = format!("system:serviceaccount:{}:{}", ccm.spec.namespace, ccm.named(account));
        let provider_ids = provider.descriptor.nodes.provider_ids.clone();
        Some(Self { user, name: ccm.named(&name(provider)?), provider_ids })
    }
}

/// Returns the name of a guard's objects if the cluster has one `CloudControllerManager`, or `None` if its pods have no account.
pub fn name(provider: &KubernetesProvider) -> Option<String> {
    provider.account().map(|account| format!("{account}{SUFFIX}"))
}

/// Plans the policy and its binding and, if nodes may be deleted, the permission by name.
pub(super) fn objects(provider: &KubernetesProvider, ccm: &Ccm) -> Result<Vec<Object>, Error> {
    let (Some(account), Some(role), Some(guard)) = (provider.account(), name(provider), Guard::of(provider, ccm))
    else {
        return Ok(Vec::new());
    };
    let own = [("ServiceAccount", account), ("ClusterRole", role.as_str())];
    let mut objects = embedded::guard()?;
    let may_delete = ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled;
    objects.retain(|object| may_delete || is_policy(object));
    for object in &mut objects {
        let value = object.value_mut();
        for pointer in
            ["/metadata/name", "/metadata/labels/app.kubernetes.io~1name", "/roleRef/name", "/subjects/0/name"]
        {
            if let Some(Value::String(name)) = value.pointer_mut(pointer) {
                *name = name.replacen(ACCOUNT, account, 1);
            }
        }
        names(object, &own, ccm);
        let value = object.value_mut();
        if let Some(name) = value.pointer_mut("/spec/policyName") {
            *name = guard.name.as_str().into();
        }
        if let Some(user) = value.pointer_mut("/spec/matchConditions/0/expression") {
            *user = format!("request.userInfo.username == {}", literal(&guard.user)).into();
        }
        set(value, "providerIDs", list(guard.provider_ids.iter()));
        set(value, "selector", map(&ccm.spec.node_deletion.selector.match_labels));
    }
    Ok(objects)
}

/// Adds the confirmed nodes to a planned object, if it belongs to the guard.
pub fn confirm(object: &mut Object, deletable: &Deletable) {
    if !is_of_guard(object.value()) {
        return;
    }
    match object.kind().kind {
        "ValidatingAdmissionPolicy" => set(object.value_mut(), CONFIRMED, list(deletable.listed.iter())),
        "ClusterRole" => object.value_mut()["rules"] = rules(&deletable.granted),
        _ => {}
    }
}

/// Whether an object is a policy or its binding, which deny requests and grant nothing.
pub fn is_policy(object: &Object) -> bool {
    object.kind().is_policy()
}

/// Whether an object belongs to a guard, by its name: the name of an account, followed by the suffix.
pub fn is_of_guard(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let instance = object["metadata"]["labels"][INSTANCE_LABEL].as_str().unwrap_or_default();
    name.strip_suffix(&format!("-{instance}")).unwrap_or(name).ends_with(SUFFIX)
}

/// Returns the list of a live policy, or `None` if the rest of the policy differs from the plan.
pub fn listed(planned: &Object, live: &Value) -> Option<BTreeSet<String>> {
    let expression = variable(live, CONFIRMED)?.as_str()?;
    let items = expression.strip_prefix('[')?.strip_suffix(']')?;
    let item = |text: &str| Some(text.strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    let listed: BTreeSet<_> =
        if items.is_empty() { BTreeSet::new() } else { items.split(", ").map(item).collect::<Option<_>>()? };
    let mut planned = planned.clone();
    confirm(&mut planned, &Deletable { listed: listed.clone(), ..Deletable::default() });
    (planned.value()["spec"] == live["spec"] && live["metadata"]["deletionTimestamp"].is_null()).then_some(listed)
}

/// Returns the node names in the rules of a live role.
pub fn granted(live: &Value) -> BTreeSet<String> {
    let names = items(&live["rules"]).iter().flat_map(|rule| items(&rule["resourceNames"]));
    names.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// Returns no rule if there are no names: it would apply to every node.
fn rules(granted: &BTreeSet<String>) -> Value {
    if granted.is_empty() {
        return json!([]);
    }
    json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": granted}])
}

fn variable<'a>(policy: &'a Value, name: &str) -> Option<&'a Value> {
    policy["spec"]["variables"].as_array()?.iter().find(|one| one["name"] == name)?.get("expression")
}

fn set(policy: &mut Value, name: &str, expression: String) {
    let variables = policy.pointer_mut("/spec/variables").and_then(Value::as_array_mut);
    if let Some(variable) = variables.into_iter().flatten().find(|one| one["name"] == name) {
        variable["expression"] = expression.into();
    }
}

/// Formats a list of texts in CEL.
fn list<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    format!("[{}]", texts.map(|text| literal(text)).collect::<Vec<_>>().join(", "))
}

/// Formats a map of texts in CEL.
fn map(texts: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = texts.iter().map(|(key, value)| format!("{}: {}", literal(key), literal(value))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Formats a text in CEL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests;
