//! The policies of `guard/external/` (pure): they restrict what the accounts of an external provider may change once
//! its pods run.
//!
//! The rules for manifests end where the pods start, and roles cannot distinguish fields. So the operator adds policies
//! to the objects of an external provider, for every ServiceAccount of its folder. They belong to its manifests: every
//! plan, role and report includes them.

use std::{collections::BTreeSet, ptr};

use serde_json::Value;

use crate::{
    object::Object,
    provider::{
        DescriptorFields, Error, Origin, ProviderFlavor,
        kubernetes::{INSTANCE_LABEL, workload},
    },
    text::yaml,
};

/// The policies by the suffix of their names, with their files.
const POLICIES: [(&str, &str, &str); 3] = [
    (SERVICES, "guard/external/services.yaml", include_str!("../../../../guard/external/services.yaml")),
    ("-external-nodes", "guard/external/nodes.yaml", include_str!("../../../../guard/external/nodes.yaml")),
    (OWN_NODE, "guard/external/own-node.yaml", include_str!("../../../../guard/external/own-node.yaml")),
];

/// The suffix of the name of the policy about Services.
const SERVICES: &str = "-external-services";

/// The suffix of the name of the policy for accounts whose pods run on every node.
const OWN_NODE: &str = "-external-own-node";

/// The JSON pointer to the users of a policy.
const USERS: &str = "/spec/matchConditions/0/expression";

/// The account in the files, which the provider's account replaces.
pub(crate) const ACCOUNT: &str = "cloud-controller-manager";

/// The domains of the labels and annotations that control Kubernetes and this program. The policies refuse them even if an administrator
/// allows a provider to declare them.
pub(super) const KUBERNETES: [&str; 5] = ["kubernetes.io", "k8s.io", "x-k8s.io", "openshift.io", "ccm-operator.dev"];

/// The domains of programs that control networks and machines. The policies refuse their annotations unless the provider declares them.
pub(super) const SHARED: [&str; 10] = [
    "cattle.io",
    "cilium.io",
    "cilium.network",
    "coreos.com",
    "k3s.io",
    "ovn.org",
    "projectcalico.org",
    "rke2.io",
    "tigera.io",
    "weave.works",
];

/// A ServiceAccount: its namespace and its name.
pub type Account = (String, String);

/// Returns the suffixes of the policies' names.
pub fn reserved() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(end, ..)| *end)
}

/// Whether an object is one of these policies, or the binding of one.
pub fn is_restriction(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy")) && end(object).is_some()
}

/// Returns the suffix that identifies an object as one of these policies, or `None` for other objects. The name of a
/// `CloudControllerManager` may follow it.
fn end(object: &Value) -> Option<&'static str> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let instance = object["metadata"]["labels"][INSTANCE_LABEL].as_str().unwrap_or_default();
    let name = name.strip_suffix(&format!("-{instance}")).unwrap_or(name);
    reserved().find(|end| name.ends_with(end))
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    /// The account of the cloud-controller-manager, or else the first one.
    main: Option<Account>,
    /// All accounts of the folder.
    all: BTreeSet<Account>,
    /// The accounts of the workloads that run on every node ([`is_on_every_node`]): root on a node can read their tokens.
    pub(super) on_every_node: BTreeSet<Account>,
    /// The accounts of the other workloads.
    pub(super) central: BTreeSet<Account>,
}

impl Accounts {
    pub(super) fn of<'a>(manifests: impl IntoIterator<Item = &'a Object>) -> Self {
        let manifests: Vec<_> = manifests.into_iter().collect();
        let all = manifests.iter().filter(|object| object.kind().kind == "ServiceAccount");
        let all: BTreeSet<_> = all.map(|object| (object.namespace().to_owned(), object.name().to_owned())).collect();
        let mut accounts = Self { main: all.first().cloned(), all, ..Self::default() };
        let ccm = workload(manifests.iter().copied()).map(|(ccm, _)| ccm);
        accounts.main = ccm.and_then(account).or(accounts.main);
        for workload in manifests {
            let is_on_every_node = is_on_every_node(workload, ccm);
            let users = if is_on_every_node { &mut accounts.on_every_node } else { &mut accounts.central };
            users.extend(account(workload));
        }
        accounts
    }

    /// Returns the accounts that a policy applies to, by the suffix of its name.
    fn of_policy(&self, end: &str) -> BTreeSet<&Account> {
        let is_meant = |account: &&Account| {
            end != OWN_NODE || (self.on_every_node.contains(*account) && !self.central.contains(*account))
        };
        self.all.iter().filter(is_meant).collect()
    }
}

/// Returns the account of a workload's pods; without a `serviceAccountName`, the default account of the namespace.
pub(super) fn account(workload: &Object) -> Option<Account> {
    let pod = workload.pod_spec()?;
    let mut given = ["serviceAccountName", "serviceAccount"].into_iter().filter_map(|field| pod[field].as_str());
    let name = given.find(|name| !name.is_empty()).unwrap_or("default");
    Some((workload.namespace().to_owned(), name.to_owned()))
}

/// Whether the pods of a workload may run on every node. This applies to each DaemonSet except the cloud-controller-manager itself,
/// whatever the names of the containers.
pub(super) fn is_on_every_node(workload: &Object, ccm: Option<&Object>) -> bool {
    workload.kind().kind == "DaemonSet" && !ccm.is_some_and(|ccm| ptr::eq(ccm, workload))
}

impl<D: DescriptorFields> ProviderFlavor<D> {
    /// Adds the policies that restrict the accounts of an external provider. An error is a defect of this build, which the tests
    /// exclude.
    pub fn restricted(mut self, origin: &Origin) -> Result<Self, Error> {
        let said = self.descriptor.common();
        let mut manifests = policies(&self.manifests, said.node_prefixes, said.service_prefixes)?;
        manifests.append(&mut self.manifests);
        // In the order of applying: the policies are the first of the first wave.
        manifests.sort_by_key(|object| object.kind().wave);
        self.manifests = manifests;
        self.origin = Some(origin.clone());
        Ok(self)
    }
}

/// Returns the policies and their bindings; none if there is no account to restrict. The prefixes are those of the labels and
/// annotations that the provider writes on Nodes and on Services.
fn policies(manifests: &[Object], node_prefixes: &[String], service_prefixes: &[String]) -> Result<Vec<Object>, Error> {
    let accounts = Accounts::of(manifests);
    let Some((_, main)) = &accounts.main else { return Ok(Vec::new()) };
    let mut objects = Vec::new();
    for (end, file, text) in POLICIES.iter().filter(|(end, ..)| !accounts.of_policy(end).is_empty()) {
        let defect = |problem: String| Error::new(file, None, problem);
        let prefixes = if *end == SERVICES { service_prefixes } else { node_prefixes };
        for value in yaml::documents(text).map_err(|error| defect(error.to_string()))? {
            let mut object = Object::new(value).map_err(|error| defect(error.to_string()))?;
            let value = object.value_mut();
            for pointer in ["/metadata/name", "/metadata/labels/app.kubernetes.io~1name", "/spec/policyName"] {
                if let Some(Value::String(name)) = value.pointer_mut(pointer) {
                    *name = name.replacen(ACCOUNT, main, 1);
                }
            }
            set_variables(value, prefixes);
            set_users(&mut object, accounts.of_policy(end).into_iter().cloned());
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Sets the variables that the files leave empty.
fn set_variables(policy: &mut Value, prefixes: &[String]) {
    let variables = policy.pointer_mut("/spec/variables").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten() {
        let texts = match variable["name"].as_str() {
            Some("prefixes") => list(prefixes.iter().map(String::as_str)),
            Some("kubernetes") => list(KUBERNETES.into_iter()),
            Some("shared") => list(SHARED.into_iter()),
            _ => continue,
        };
        variable["expression"] = texts.into();
    }
}

/// Replaces the accounts in a policy of a plan with their names in the plan.
pub fn rename(object: &mut Object, manifests: &[Object], name: impl Fn(&Account) -> Account) {
    if is_restriction(object.value())
        && let Some(end) = end(object.value())
    {
        let accounts = Accounts::of(manifests);
        set_users(object, accounts.of_policy(end).into_iter().map(name));
    }
}

/// Keeps a policy in force for those of these accounts that the live policy includes and the planned one does not.
pub fn keep(object: &mut Object, live: &Value, left: &BTreeSet<Account>) {
    let expression = |value: &Value| value.pointer(USERS).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (before, planned) = (expression(live), expression(object.value()));
    let is_dropped = |account: &&Account| {
        let user = literal(&user(account));
        before.contains(&user) && !planned.contains(&user)
    };
    let dropped: Vec<_> = left.iter().filter(is_dropped).map(|account| literal(&user(account))).collect();
    if let (false, Some(all)) = (dropped.is_empty(), planned.strip_suffix(']'))
        && let Some(condition) = object.value_mut().pointer_mut(USERS)
    {
        *condition = format!("{all}, {}]", dropped.join(", ")).into();
    }
}

/// Sets the users that a policy applies to. A binding has none.
fn set_users(object: &mut Object, accounts: impl Iterator<Item = Account>) {
    let users = accounts.map(|account| user(&account));
    if let Some(condition) = object.value_mut().pointer_mut(USERS) {
        *condition = format!("request.userInfo.username in {}", list(users)).into();
    }
}

/// Returns the user name of a ServiceAccount.
fn user((namespace, name): &Account) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Formats a text in CEL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Formats a list of texts in CEL.
fn list(texts: impl Iterator<Item = impl AsRef<str>>) -> String {
    format!("[{}]", texts.map(|text| literal(text.as_ref())).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
