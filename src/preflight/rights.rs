//! The rights that the operator needs to install a cloud-controller-manager (pure): to create its objects, and to hold what their
//! roles grant, because the API server lets nobody grant more.

use std::collections::BTreeSet;

use crate::{nodes::subject::Need, object::Object, plan::rights};

/// What is needed to apply these objects for the first time.
pub fn needs(objects: &[Object]) -> BTreeSet<Need> {
    needs_to(&["create", "patch"], objects)
}

/// What is needed to do this to the objects, of which one is to create them.
pub fn needs_to(verbs: &[&str], objects: &[Object]) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for object in objects {
        let (kind, namespace) = (object.kind(), object.namespace().to_owned());
        let need = |verb: &str| Need {
            namespace: namespace.clone(),
            group: kind.group.to_owned(),
            resource: kind.plural.to_owned(),
            name: String::new(),
            verb: verb.to_owned(),
        };
        needs.extend(verbs.iter().map(|verb| need(verb)));
        if !matches!(kind.kind, "Role" | "ClusterRole") {
            continue;
        }
        for grant in rights::of_role(object.value()) {
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
}
