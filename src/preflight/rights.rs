//! The rights that the operator needs to install a cloud-controller-manager (pure): to create its objects, and to hold what their
//! roles grant, because the API server lets nobody grant more.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    nodes::subject::Need,
    object::{
        Object,
        permissions::{self, Permission},
    },
};

/// What is needed to apply these objects for the first time.
pub fn needs(objects: &[Object]) -> BTreeSet<Need> {
    needs_to(&["create", "patch"], objects)
}

/// What is needed to do this to the objects, of which one is to create them.
pub fn needs_to(verbs: &[&str], objects: &[Object]) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for object in objects {
        let (kind, namespace) = (object.kind(), object.namespace().to_owned());
        // An installation lets it keep objects without a namespace by name alone.
        let name = if namespace.is_empty() { object.name() } else { "" };
        let need = |verb: &str| Need {
            namespace: namespace.clone(),
            group: kind.group.to_owned(),
            resource: kind.plural.to_owned(),
            name: name.to_owned(),
            verb: verb.to_owned(),
        };
        needs.extend(verbs.iter().map(|verb| need(verb)));
        if !matches!(kind.kind, "Role" | "ClusterRole") {
            continue;
        }
        // What is planned is of a provider, whose roles were read already.
        for grant in permissions::of_role(object.value()).unwrap_or_default() {
            let names = if grant.names.is_empty() { vec![""] } else { grant.names };
            needs.extend(names.into_iter().map(|name| Need {
                namespace: namespace.clone(),
                group: grant.group.to_owned(),
                resource: grant.resource.to_owned(),
                name: name.to_owned(),
                verb: grant.verb.to_owned(),
            }));
        }
    }
    needs
}

/// Whether a live binding is for a ServiceAccount: by its name, or by a group that it is in.
pub(super) fn is_bound(binding: &Value, user: &str, groups: &[String]) -> bool {
    let is_it = |subject: &Value| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match text("kind") {
            "ServiceAccount" => user == format!("system:serviceaccount:{}:{}", text("namespace"), text("name")),
            "Group" => groups.iter().any(|group| group == text("name")),
            _ => user == text("name"),
        }
    };
    binding["subjects"].as_array().is_some_and(|subjects| subjects.iter().any(is_it))
}

/// Whether a live ClusterRole lets every node be deleted.
pub(super) fn lets_delete_any_node(role: &Value) -> bool {
    let is = |text: &str, wanted: &str| text == wanted || text == "*";
    let deletes = |grants: Vec<Permission>| {
        grants.iter().any(|grant| {
            grant.names.is_empty() && is(grant.verb, "delete") && is(grant.group, "") && is(grant.resource, "nodes")
        })
    };
    // What cannot be read may grant it.
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
        let bound =
            |subject: Value| is_bound(&json!({"subjects": [{"kind": "User", "name": "a"}, subject]}), user, &groups);
        assert!(bound(json!({"kind": "ServiceAccount", "name": "ccm", "namespace": "kube-system"})));
        assert!(!bound(json!({"kind": "ServiceAccount", "name": "ccm", "namespace": "default"})));
        assert!(bound(json!({"kind": "Group", "name": "system:serviceaccounts:kube-system"})));
        assert!(!bound(json!({"kind": "Group", "name": "system:serviceaccounts:default"})));
        assert!(bound(json!({"kind": "User", "name": user})));
        assert!(!is_bound(&json!({}), user, &groups));
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
