//! The permissions that the operator needs to install a cloud-controller-manager (pure): to create its objects, and all
//! permissions of their roles, because the API server lets a client grant only permissions that it has.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::{
    nodes::identity::Need,
    object::{
        Object,
        permissions::{self, Permission},
        reference::Reference,
    },
};

/// Returns the permissions for the first apply of these objects.
pub fn needs(objects: &[Object]) -> BTreeSet<Need> {
    needs_to(&["create", "patch"], objects)
}

/// Returns the permissions for watching one ConfigMap or Secret.
pub fn to_watch(reference: &Reference) -> [Need; 2] {
    ["list", "watch"].map(|verb| Need {
        verb: verb.to_owned(),
        resource: reference.kind.plural.to_owned(),
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        ..Need::default()
    })
}

/// Returns the permissions for these verbs on the objects. The verbs include `create`.
pub fn needs_to(verbs: &[&str], objects: &[Object]) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for object in objects {
        let (kind, namespace) = (object.kind(), object.namespace().to_owned());
        // An installation limits the permissions for cluster-scoped objects to their names.
        let name = if namespace.is_empty() { object.name() } else { "" };
        let need = |group: &str, resource: &str, name: &str, verb: &str| {
            let [group, resource, name, verb] = [group, resource, name, verb].map(str::to_owned);
            Need { verb, group, resource, namespace: namespace.clone(), name }
        };
        needs.extend(verbs.iter().map(|verb| need(kind.group, kind.plural, name, verb)));
        if !matches!(kind.kind, "Role" | "ClusterRole") {
            continue;
        }
        // Planned roles come from a provider, whose roles are already validated.
        for grant in permissions::of_role(object.value()).unwrap_or_default() {
            let names = if grant.names.is_empty() { vec![""] } else { grant.names };
            needs.extend(names.into_iter().map(|name| need(grant.group, grant.resource, name, grant.verb)));
        }
    }
    needs
}

/// A `ClusterRoleBinding` that grants a ServiceAccount a permission. Its text format is `NAME` or `NAME/GROUP`: no name contains a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// The name of the binding.
    pub name: &'a str,
    /// The bound group, if the account is a member of it: deleting the binding affects the whole group.
    pub group: Option<&'a str>,
}

impl<'a> Bound<'a> {
    /// Returns a live binding if it applies to a ServiceAccount, by its name or by one of its groups.
    pub(super) fn of(binding: &'a Value, user: &str, groups: &[String]) -> Option<Self> {
        let subjects = binding["subjects"].as_array()?;
        let is_group = |subject: &&Value| {
            text(subject, "kind") == "Group" && groups.iter().any(|group| group == text(subject, "name"))
        };
        let is_user = |subject: &Value| match text(subject, "kind") {
            "ServiceAccount" => {
                user == format!("system:serviceaccount:{}:{}", text(subject, "namespace"), text(subject, "name"))
            }
            "Group" => false,
            _ => user == text(subject, "name"),
        };
        let group = subjects.iter().find(is_group).map(|subject| text(subject, "name"));
        let is_bound = group.is_some() || subjects.iter().any(is_user);
        is_bound.then(|| Self { name: text(&binding["metadata"], "name"), group })
    }

    pub(super) fn parse(text: &'a str) -> Self {
        let (name, group) = text.split_once('/').map_or((text, None), |(name, group)| (name, Some(group)));
        Self { name, group }
    }
}

impl fmt::Display for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.group.map_or(Ok(()), |group| write!(f, "/{group}"))
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Whether a live ClusterRole allows deleting every node.
pub(super) fn lets_delete_any_node(role: &Value) -> bool {
    let is = |text: &str, wanted: &str| text == wanted || text == "*";
    let deletes = |grants: Vec<Permission>| {
        grants.iter().any(|grant| {
            grant.names.is_empty() && is(grant.verb, "delete") && is(grant.group, "") && is(grant.resource, "nodes")
        })
    };
    // A role that cannot be parsed may grant the permission.
    permissions::of_role(role).map_or(true, deletes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_role_grants_has_to_be_held() {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a", "namespace": "n"},
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["d"], "verbs": ["get"]}],
        });
        let needs = needs(&[Object::new(role).unwrap()]);
        let mut texts: Vec<_> = needs.iter().map(Need::words).collect();
        texts.sort();
        let roles = "roles.rbac.authorization.k8s.io in namespace n";
        let scale = "get deployments/scale.apps d in namespace n".to_owned();
        assert_eq!(texts, [format!("create {roles}"), scale, format!("patch {roles}")]);
        let attributes = needs.iter().find(|need| need.verb == "get").unwrap().attributes();
        assert_eq!(
            (attributes.resource.as_deref(), attributes.subresource.as_deref()),
            (Some("deployments"), Some("scale"))
        );
    }

    #[test]
    fn a_binding_counts_by_the_name_or_a_group_of_the_account() {
        let user = "system:serviceaccount:kube-system:ccm";
        let groups = ["system:serviceaccounts:kube-system".to_owned()];
        let bound = |subject: Value| {
            let subjects = json!([{"kind": "User", "name": "a"}, subject]);
            let binding = json!({"metadata": {"name": "b"}, "subjects": subjects});
            Bound::of(&binding, user, &groups).map(|bound| bound.to_string())
        };
        let of_account = Some("b".to_owned());
        assert_eq!(bound(json!({"kind": "ServiceAccount", "name": "ccm", "namespace": "kube-system"})), of_account);
        assert_eq!(bound(json!({"kind": "ServiceAccount", "name": "ccm", "namespace": "default"})), None);
        let of_group = bound(json!({"kind": "Group", "name": "system:serviceaccounts:kube-system"})).unwrap();
        assert_eq!(of_group, "b/system:serviceaccounts:kube-system");
        assert_eq!(Bound::parse(&of_group), Bound { name: "b", group: Some("system:serviceaccounts:kube-system") });
        assert_eq!(Bound::parse("b"), Bound { name: "b", group: None });
        assert_eq!(bound(json!({"kind": "Group", "name": "system:serviceaccounts:default"})), None);
        assert_eq!(bound(json!({"kind": "User", "name": user})), of_account);
        assert_eq!(Bound::of(&json!({}), user, &groups), None);
    }

    #[test]
    fn a_role_that_names_nodes_lets_not_every_node_be_deleted() {
        let lets = |rule: Value| lets_delete_any_node(&json!({"rules": [rule]}));
        assert!(lets(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})));
        assert!(lets(json!({"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "delete"]})));
        assert!(!lets(json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": ["a"]})));
        assert!(!lets(json!({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["delete"]})));
        assert!(!lets(json!({"apiGroups": ["apps"], "resources": ["nodes"], "verbs": ["delete"]})));
    }
}
