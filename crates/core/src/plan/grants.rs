//! The permissions that the operator needs for providers (pure).
//!
//! The API server lets the operator grant only permissions that it holds. So these are computed from the permissions of the
//! cloud-controller-managers, in the descriptors and manifests of their providers. An installation grants them for the
//! chosen providers. For other providers, an administrator grants them with `provider rbac`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{kubernetes::guard, needs};
use crate::{
    facts::ccm::{LEASE, named},
    object::{
        KINDS, Kind, Object, TEMPORARY,
        permissions::{self, Permission},
    },
    provider::kubernetes::{KubernetesProvider, NAMESPACE},
    text::yaml,
};

/// The verbs for the kinds of objects that the operator applies. A server-side apply that creates an object also needs `create`,
/// and `get` checks whether another client has an object with that name.
pub(super) const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Rules of a role, with a comment.
pub(super) type Commented = (String, Value);

/// The permissions of the operator for providers of the flavor kubernetes.
pub(super) struct GrantedRules<'a> {
    pub(super) providers: &'a [&'a KubernetesProvider],
    /// The Secrets in the managed namespaces that cloud-controller-managers may use.
    pub(super) secrets: &'a [String],
    /// The names that `CloudControllerManager`s may have.
    pub(super) names: &'a [String],
    /// The leases that they may name, besides the default ones.
    pub(super) leases: &'a [String],
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub(super) node_deletion: bool,
}

impl GrantedRules<'_> {
    /// The permissions that the `ClusterRole`s of the providers may grant.
    pub(super) fn of_cluster(&self) -> Result<Vec<Commented>, yaml::Error> {
        let computed = self.providers.iter().map(|one| &one.descriptor);
        let computed = computed.flat_map(|one| needs::grants(&one.controllers(), &one.permissions).collect::<Vec<_>>());
        // The ClusterRole of the account is computed for each CloudControllerManager; other ClusterRoles are unchanged.
        let others = self.manifests().filter(|object| object.kind().kind == "ClusterRole").filter(|role| {
            let mut accounts = self.providers.iter().filter_map(|one| one.account());
            accounts.all(|account| account != role.name())
        });
        let others = granted_by(others)?;
        let granted = format!("What the ClusterRoles of {} grant.", self.names());
        let mut rules = vec![(granted, needs::merged(computed.chain(others)))];
        rules.extend(self.names.iter().map(|name| self.of_cluster_for(name)));
        if self.node_deletion {
            let comment =
                "With --node-deletion: what the roles of the guard grant by name. The operator itself deletes no node.";
            let delete = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]});
            rules.push((comment.to_owned(), json!([delete])));
        }
        Ok(rules)
    }

    /// Returns the permissions for the cluster-scoped objects of one `CloudControllerManager`, limited to names: the operator cannot
    /// change or delete other objects. RBAC cannot limit `list` and `watch` to names, so these verbs are in `install/`.
    fn of_cluster_for(&self, ccm: &str) -> Commented {
        let mut names: BTreeMap<&Kind, BTreeSet<String>> = BTreeMap::new();
        for (kind, name) in self.cluster_scoped() {
            let of_kind = names.entry(kind).or_default();
            let name = named(&name, ccm);
            of_kind.extend(kind.may_be_recreated().then(|| format!("{name}{TEMPORARY}")));
            of_kind.insert(name);
        }
        let rule = |(kind, names): (&Kind, BTreeSet<String>)| {
            let verbs = ["get", "create", "patch", "delete"];
            json!({"apiGroups": [kind.group], "resources": [kind.plural], "resourceNames": names, "verbs": verbs})
        };
        let comment =
            format!("The objects without a namespace that the CloudControllerManager {ccm} has of {}.", self.names());
        (comment, names.into_iter().map(rule).collect())
    }

    /// Returns the cluster-scoped objects of the providers and of the guard of nodes, as (kind, name in the manifests).
    fn cluster_scoped(&self) -> impl Iterator<Item = (&'static Kind, String)> {
        let own = self.manifests().map(|object| (object.kind(), object.name().to_owned()));
        let of_guard = self.providers.iter().filter_map(|one| guard::name(one)).flat_map(|name| {
            let kinds = KINDS.iter().filter(|kind| kind.is_policy() || kind.kind.starts_with("ClusterRole"));
            kinds.map(move |kind| (kind, name.clone()))
        });
        own.filter(|(kind, _)| !kind.namespaced).chain(of_guard)
    }

    /// The permissions of the operator in a managed namespace.
    pub(super) fn of_managed(&self, namespace: &str) -> Result<Vec<Commented>, yaml::Error> {
        let may_be = |one: &&&KubernetesProvider| one.descriptor.namespaces.include(namespace);
        let providers: Vec<_> = self.providers.iter().filter(may_be).copied().collect();
        let mut rules = GrantedRules { providers: &providers, ..*self }.of_namespace(NAMESPACE)?;
        // A rule without names would apply to all Secrets.
        if !self.secrets.is_empty() {
            let comment = "Credentials, whose keys are checked, and whose change restarts the pods.".to_owned();
            let secrets = json!({
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": self.secrets, "verbs": ["list", "watch"],
            });
            rules.push((comment, json!([secrets])));
        }
        if !self.leases.is_empty() {
            let comment = "What Roles may grant for the leases that a CloudControllerManager names.".to_owned();
            let leases = json!({
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": self.leases, "verbs": ["get", "update"],
            });
            rules.push((comment, json!([leases])));
        }
        Ok(rules)
    }

    /// The permissions of the operator in the namespace that the manifests name.
    pub(super) fn of_namespace(&self, namespace: &str) -> Result<Vec<Commented>, yaml::Error> {
        let here = || self.manifests().filter(|object| object.namespace() == namespace);
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for kind in here().map(Object::kind) {
            kinds.entry(kind.group).or_default().insert(kind.plural);
        }
        // An inline configuration of a CloudControllerManager becomes a ConfigMap.
        if namespace == NAMESPACE && self.providers.iter().any(|one| one.descriptor.cloud_config.is_some()) {
            kinds.entry("").or_default().insert("configmaps");
        }
        let of_group = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS});
        let kinds: Value = kinds.into_iter().map(of_group).collect();

        let grants = granted_by(here().filter(|object| object.kind().kind == "Role"))?;
        // The only lease in the manifests whose name differs for each CloudControllerManager.
        let is_lease = |grant: &Permission<'_>| grant.resource == "leases" && grant.names == [LEASE];
        let (of_lease, others): (Vec<_>, Vec<_>) = grants.into_iter().partition(is_lease);
        let objects = format!(
            "The objects of {}. No names: those of a further CloudControllerManager end with its name.",
            self.names()
        );
        let mut rules = vec![
            (objects, kinds),
            (format!("What the Roles of {} grant.", self.names()), needs::merged(others.into_iter())),
        ];
        rules.extend(self.names.iter().map(|ccm| {
            let lease = named(LEASE, ccm);
            let of_this = of_lease.iter().map(|grant| Permission { names: vec![&lease], ..grant.clone() });
            (format!("What they grant for the lease of the CloudControllerManager {ccm}."), needs::merged(of_this))
        }));
        Ok(rules)
    }

    fn manifests(&self) -> impl Iterator<Item = &Object> {
        self.providers.iter().flat_map(|provider| &provider.manifests)
    }

    fn names(&self) -> String {
        self.providers.iter().map(|provider| provider.descriptor.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns every permission of these roles. Fails if a role cannot be read, because its permissions are unknown.
pub(super) fn granted_by<'a>(roles: impl Iterator<Item = &'a Object>) -> Result<Vec<Permission<'a>>, yaml::Error> {
    let mut granted = Vec::new();
    for role in roles {
        let of_role = permissions::of_role(role.value());
        granted
            .extend(of_role.map_err(|error| yaml::Error::new(format!("{}: {}: {error}", role.key(), error.pointer)))?);
    }
    Ok(granted)
}

/// Formats rules with their comments, in the style of the files. Entries without rules are left out.
pub(super) fn written(computed: &[Commented]) -> Result<String, yaml::Error> {
    let mut text = String::new();
    for (comment, rules) in computed.iter().filter(|(_, rules)| rules != &json!([])) {
        text.push_str(&["# ", comment, "\n", &rules_of(rules)?].concat());
    }
    Ok(text)
}

/// Formats an item of a list on one line. A name from a provider's role may be any text.
fn scalar(item: &Value) -> Result<String, yaml::Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-./_*".contains(&byte);
    match item.as_str() {
        Some(text) if !text.bytes().all(is_plain) => Ok(yaml::quoted(text)),
        _ => Ok(yaml::to_string(item)?.trim().to_owned()),
    }
}

fn rules_of(rules: &Value) -> Result<String, yaml::Error> {
    let scalars = |list: &Value| {
        let items = list.as_array().into_iter().flatten();
        items.map(scalar).collect::<Result<Vec<_>, yaml::Error>>()
    };
    let mut lines = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        let mut before = "-";
        for field in ["apiGroups", "resources", "resourceNames", "verbs"] {
            if let Some(list) = rule.get(field) {
                lines.push(format!("{before} {field}: [{}]\n", scalars(list)?.join(", ")));
                before = " ";
            }
        }
    }
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_name() {
        for text in ["a, b", "x]", "x]\n- apiGroups: ['*']", "true", "1", "*", "", "nodes/status", "#", "a: b"] {
            let rules = rules_of(&json!([{"apiGroups": [""], "resourceNames": [text], "verbs": ["get"]}])).unwrap();
            let read: Value = yaml::from_str(&rules).unwrap();
            assert_eq!(read[0]["resourceNames"], json!([text]), "{rules}");
            assert_eq!(rules.lines().count(), 3, "{rules}");
        }
    }
}
