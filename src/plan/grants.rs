//! The rights that the operator needs for providers (pure).
//!
//! The API server lets it grant only what it holds. So its rights follow from those of the cloud-controller-managers: they are
//! computed from the providers' descriptors and manifests. An installation has them for the providers that are chosen; for others
//! an administrator grants them with `provider rbac`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{rights, upstream::guard};
use crate::{
    object::{
        KINDS, Object,
        permissions::{self, Permission},
    },
    provider::{
        restriction,
        upstream::{NAMESPACE, Upstream},
    },
    text::yaml,
};

/// The verbs for the kinds of objects that the operator applies. A server-side apply that creates needs `create` as well, and
/// `get` looks whether somebody else has an object of that name.
pub(super) const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Rules of a role, with a comment.
pub(super) type Commented = (String, Value);

/// What the operator needs for providers of the flavour upstream.
pub(super) struct Grants<'a> {
    pub(super) providers: &'a [&'a Upstream],
    /// The Secrets in the managed namespaces that cloud-controller-managers may use.
    pub(super) secrets: &'a [String],
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub(super) node_deletion: bool,
}

impl Grants<'_> {
    /// What the providers' roles of the cluster may grant.
    pub(super) fn of_cluster(&self) -> Result<Vec<Commented>, yaml::Error> {
        let computed = self.providers.iter().map(|one| &one.descriptor);
        let computed = computed.flat_map(|one| rights::grants(&one.controllers(), &one.rights).collect::<Vec<_>>());
        // The ClusterRole of the account is computed for each CloudControllerManager; others stay as they are.
        let others = self.manifests().filter(|object| object.kind().kind == "ClusterRole").filter(|role| {
            let mut accounts = self.providers.iter().filter_map(|one| one.account());
            accounts.all(|account| account != role.name())
        });
        let others = granted_by(others)?;
        let granted = format!("What the ClusterRoles of {} grant.", self.names());
        let mut rules = vec![(granted, rights::merged(computed.chain(others)))];
        rules.extend(self.of_policies());
        Ok(rules)
    }

    /// What the operator needs for policies: those that keep nodes from being deleted, and those of the providers. Without names it
    /// could take away anybody's, so it has names where they are known.
    fn of_policies(&self) -> Vec<Commented> {
        let policies: Vec<_> = KINDS.iter().filter(|kind| kind.is_policy()).collect();
        let group = policies.first().map_or("", |kind| kind.group);
        let plurals: Vec<_> = policies.iter().map(|kind| kind.plural).collect();
        let of_any = json!({"apiGroups": [group], "resources": plurals, "verbs": VERBS});
        let names: Vec<_> = self.providers.iter().filter_map(|one| guard::name(one)).collect();
        let mut rules = Vec::new();
        // Without a name the rule would be for all.
        if !names.is_empty() {
            let comment = "The policies that keep nodes from being deleted. Only those of the CloudControllerManager named cluster are known \
                           by name; for others it needs --node-deletion.";
            let by_name = json!([
                {"apiGroups": [group], "resources": plurals, "verbs": ["list", "watch", "create"]},
                {"apiGroups": [group], "resources": plurals, "resourceNames": names, "verbs": ["get", "patch", "delete"]},
            ]);
            rules.push((comment.to_owned(), by_name));
        }
        let restrictions = self.manifests().filter(|object| restriction::is_restriction(object.value()));
        let names: BTreeSet<_> = restrictions.map(Object::name).collect();
        if !names.is_empty() {
            let comment = "The policies that restrict what the accounts of an external provider change. Only those of the \
                           CloudControllerManager named cluster are known by name; for others it needs --node-deletion.";
            let by_name = json!([
                {"apiGroups": [group], "resources": plurals, "verbs": ["list", "watch", "create"]},
                {"apiGroups": [group], "resources": plurals, "resourceNames": names, "verbs": ["get", "patch", "delete"]},
            ]);
            rules.push((comment.to_owned(), by_name));
        }
        if self.manifests().any(|object| guard::is_policy(object) && !restriction::is_restriction(object.value())) {
            let comment = "The policies that restrict each pod of a node manager to its own node.";
            rules.push((comment.to_owned(), json!([of_any])));
        }
        if self.node_deletion {
            let comment = "With --node-deletion: the policies that restrict which nodes are deleted, whatever their CloudControllerManager is \
                           called, and the right that the roles of the guard grant by name. The operator itself deletes no node.";
            let delete = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]});
            rules.push((comment.to_owned(), json!([of_any, delete])));
        }
        rules
    }

    /// What the operator needs in a managed namespace.
    pub(super) fn of_managed(&self, namespace: &str) -> Result<Vec<Commented>, yaml::Error> {
        let may_be = |one: &&&Upstream| one.descriptor.namespaces.include(namespace);
        let providers: Vec<_> = self.providers.iter().filter(may_be).copied().collect();
        let mut rules = Grants { providers: &providers, ..*self }.of_namespace(NAMESPACE)?;
        // Without a name the rule would be for all.
        if !self.secrets.is_empty() {
            let comment = "Credentials, whose keys are checked, and whose change restarts the pods.".to_owned();
            let secrets = json!({
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": self.secrets, "verbs": ["list", "watch"],
            });
            rules.push((comment, json!([secrets])));
        }
        Ok(rules)
    }

    /// What the operator needs in the namespace that the manifests name.
    pub(super) fn of_namespace(&self, namespace: &str) -> Result<Vec<Commented>, yaml::Error> {
        let here = || self.manifests().filter(|object| object.namespace() == namespace);
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for kind in here().map(Object::kind) {
            kinds.entry(kind.group).or_default().insert(kind.plural);
        }
        // A configuration that stands in a CloudControllerManager becomes a ConfigMap.
        if namespace == NAMESPACE && self.providers.iter().any(|one| one.descriptor.cloud_config.is_some()) {
            kinds.entry("").or_default().insert("configmaps");
        }
        let rule = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS});
        let kinds: Value = kinds.into_iter().map(rule).collect();

        let roles = here().filter(|object| object.kind().kind == "Role");
        let grants = granted_by(roles)?.into_iter();
        // A CloudControllerManager may name its lease.
        let grants = grants.map(|grant| if grant.resource == "leases" { grant.of_any_name() } else { grant });

        Ok(vec![
            (
                format!(
                    "The objects of {}. No names: those of a further CloudControllerManager end with its name.",
                    self.names()
                ),
                kinds,
            ),
            (format!("What the Roles of {} grant, with any name of a lease.", self.names()), rights::merged(grants)),
        ])
    }

    fn manifests(&self) -> impl Iterator<Item = &Object> {
        self.providers.iter().flat_map(|provider| &provider.manifests)
    }

    fn names(&self) -> String {
        self.providers.iter().map(|provider| provider.descriptor.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Every permission of these roles. Who reads a provider refuses a role that cannot be read; nobody grants what they cannot read either.
pub(super) fn granted_by<'a>(roles: impl Iterator<Item = &'a Object>) -> Result<Vec<Permission<'a>>, yaml::Error> {
    let mut granted = Vec::new();
    for role in roles {
        let of_role = permissions::of_role(role.value());
        granted
            .extend(of_role.map_err(|error| yaml::Error::new(format!("{}: {}: {error}", role.key(), error.pointer)))?);
    }
    Ok(granted)
}

/// Rules with their comments, in the style of the files; what has no rules is left out.
pub(super) fn written(computed: &[Commented]) -> Result<String, yaml::Error> {
    let mut text = String::new();
    for (comment, rules) in computed.iter().filter(|(_, rules)| rules != &json!([])) {
        text.push_str(&["# ", comment, "\n", &rules_of(rules)?].concat());
    }
    Ok(text)
}

/// An item of a list in one line. A name may hold whatever a provider's role names.
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
