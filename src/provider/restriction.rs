//! What the accounts of an external provider may change once their pods run (pure): the policies of `guard/external/`.
//!
//! The rules for manifests end where the pods start, and roles cannot tell fields. So the operator adds policies to the objects of an
//! external provider, for every ServiceAccount of its folder. They belong to its manifests: every plan, role and report has them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    object::Object,
    provider::{
        Error, Provider,
        upstream::{INSTANCE_LABEL, Upstream, is_manager},
    },
    text::yaml,
};

/// The policies by the end of their names, with their files.
const POLICIES: [(&str, &str, &str); 3] = [
    ("-external-services", "guard/external/services.yaml", include_str!("../../guard/external/services.yaml")),
    ("-external-nodes", "guard/external/nodes.yaml", include_str!("../../guard/external/nodes.yaml")),
    (OWN_NODE, "guard/external/own-node.yaml", include_str!("../../guard/external/own-node.yaml")),
];

/// The end of the name of the policy for accounts whose pods run on every node.
const OWN_NODE: &str = "-external-own-node";

/// The account in the files, which another one replaces.
const ACCOUNT: &str = "cloud-controller-manager";

/// The variable with the prefixes of the labels and annotations that a provider writes on nodes.
const PREFIXES: &str = "prefixes";

/// A ServiceAccount: its namespace and its name.
pub type Account = (String, String);

/// How the names of the policies end.
pub fn reserved() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(end, ..)| *end)
}

/// Whether an object is one of these policies, or the binding of one.
pub fn is_restriction(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy")) && end(object).is_some()
}

/// How the name of an object ends, if as that of one of these policies. That of a `CloudControllerManager` may follow.
fn end(object: &Value) -> Option<&'static str> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let instance = object["metadata"]["labels"][INSTANCE_LABEL].as_str().unwrap_or_default();
    let name = name.strip_suffix(&format!("-{instance}")).unwrap_or(name);
    reserved().find(|end| name.ends_with(end))
}

/// The accounts of a provider.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    /// That of the cloud-controller-manager, or else the first one.
    main: Option<Account>,
    /// All of the folder.
    all: BTreeSet<Account>,
    /// Those of `DaemonSet`s besides the cloud-controller-manager: whoever owns a node can read their tokens.
    pub(super) on_every_node: BTreeSet<Account>,
    /// Those of the other workloads.
    pub(super) central: BTreeSet<Account>,
}

impl Accounts {
    /// Those of these manifests.
    pub(super) fn of<'a>(manifests: impl IntoIterator<Item = &'a Object>) -> Self {
        let manifests: Vec<_> = manifests.into_iter().collect();
        let all = manifests.iter().filter(|object| object.kind().kind == "ServiceAccount");
        let all: BTreeSet<_> = all.map(|object| (object.namespace().to_owned(), object.name().to_owned())).collect();
        let mut accounts = Self { main: all.first().cloned(), all, ..Self::default() };
        for workload in manifests {
            let Some(pod) = workload.pod_spec() else { continue };
            let name = pod["serviceAccountName"].as_str().unwrap_or("default").to_owned();
            let account = (workload.namespace().to_owned(), name);
            if is_manager(pod) {
                accounts.main = Some(account.clone());
            }
            let is_on_every_node = workload.kind().kind == "DaemonSet" && !is_manager(pod);
            let users = if is_on_every_node { &mut accounts.on_every_node } else { &mut accounts.central };
            users.insert(account);
        }
        accounts
    }

    /// Those that the policy whose name ends so is for.
    fn of_policy(&self, end: &str) -> BTreeSet<&Account> {
        let is_meant = |account: &&Account| {
            end != OWN_NODE || (self.on_every_node.contains(*account) && !self.central.contains(*account))
        };
        self.all.iter().filter(is_meant).collect()
    }
}

impl Upstream {
    /// The provider as an external one: with the policies that restrict its accounts. An error is a defect of this build, which the
    /// tests exclude.
    pub fn restricted(mut self) -> Result<Self, Error> {
        let policies = policies(&self.manifests, &self.descriptor.nodes.metadata_prefixes)?;
        self.manifests = with(policies, self.manifests);
        Ok(self)
    }
}

impl Provider {
    /// The provider as an external one: with the policies that restrict its accounts. An error is a defect of this build, which the
    /// tests exclude.
    pub fn restricted(mut self) -> Result<Self, Error> {
        let prefixes = self.descriptor.nodes.as_ref().map(|nodes| nodes.metadata_prefixes.as_slice());
        let policies = policies(&self.manifests, prefixes.unwrap_or_default())?;
        self.manifests = with(policies, self.manifests);
        Ok(self)
    }
}

/// Objects in the order of applying: these first, which are of the first wave.
fn with(mut policies: Vec<Object>, manifests: Vec<Object>) -> Vec<Object> {
    policies.extend(manifests);
    policies.sort_by_key(|object| object.kind().wave);
    policies
}

/// The policies and their bindings; none where there is no account that they would be for.
fn policies(manifests: &[Object], prefixes: &[String]) -> Result<Vec<Object>, Error> {
    let accounts = Accounts::of(manifests);
    let Some((_, main)) = &accounts.main else { return Ok(Vec::new()) };
    let mut objects = Vec::new();
    for (end, file, text) in POLICIES.iter().filter(|(end, ..)| !accounts.of_policy(end).is_empty()) {
        let defect = |problem: String| Error::new(file, None, problem);
        for value in yaml::documents(text).map_err(|error| defect(error.to_string()))? {
            let mut object = Object::new(value).map_err(|error| defect(error.to_string()))?;
            let value = object.value_mut();
            for pointer in ["/metadata/name", "/metadata/labels/app.kubernetes.io~1name", "/spec/policyName"] {
                if let Some(Value::String(name)) = value.pointer_mut(pointer) {
                    *name = name.replacen(ACCOUNT, main, 1);
                }
            }
            let variables = value.pointer_mut("/spec/variables").and_then(Value::as_array_mut);
            let variable = variables.into_iter().flatten().find(|one| one["name"] == PREFIXES);
            if let Some(variable) = variable {
                variable["expression"] = list(prefixes.iter().cloned()).into();
            }
            set_users(&mut object, accounts.of_policy(end).into_iter().cloned());
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Makes a policy of a plan one for the accounts under the names that they have there.
pub fn rename(object: &mut Object, manifests: &[Object], name: impl Fn(&Account) -> Account) {
    if is_restriction(object.value())
        && let Some(end) = end(object.value())
    {
        let accounts = Accounts::of(manifests);
        set_users(object, accounts.of_policy(end).into_iter().map(name));
    }
}

/// Sets the users that a policy is for; a binding has none.
fn set_users(object: &mut Object, accounts: impl Iterator<Item = Account>) {
    let users = accounts.map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"));
    if let Some(condition) = object.value_mut().pointer_mut("/spec/matchConditions/0/expression") {
        *condition = format!("request.userInfo.username in {}", list(users)).into();
    }
}

/// A list of texts in CEL.
fn list(texts: impl Iterator<Item = String>) -> String {
    let literal = |text: String| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    format!("[{}]", texts.map(literal).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
