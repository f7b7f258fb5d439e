//! The permissions of an existing cloud-controller-manager that its successor does not get (pure).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    proposed::{Handling, ProposedCcm},
    steps::Permissions,
};
use crate::object::{Object, permissions};

/// The largest number of resources in a note.
const MOST: usize = 12;

/// Verbs by resource, with its API group.
type Granted<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>;

/// Reports the permissions of the roles that the planned objects do not grant.
pub(crate) fn note(proposed: &mut ProposedCcm, permissions: &Permissions, planned: &[Object]) {
    let Permissions { objects: roles, shared, users, .. } = permissions;
    if !shared.is_empty() || !users.is_empty() {
        let how = "others use its account or its bindings, so that its permissions were not compared with those that the operator grants";
        proposed.note(Handling::Changed, "permissions", how);
    }
    let ours = granted(planned.iter().map(Object::value));
    let mut lost = granted(roles.iter());
    for (resource, verbs) in &mut lost {
        let still = ours.get(resource);
        verbs.retain(|verb| still.is_none_or(|still| !still.contains(verb)));
    }
    lost.retain(|_, verbs| !verbs.is_empty());
    if lost.is_empty() {
        return;
    }
    let word = |((group, resource), verbs): (&(&str, &str), &BTreeSet<&str>)| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group} {}", verbs.iter().copied().collect::<Vec<_>>().join(","))
    };
    let mut words: Vec<_> = lost.iter().take(MOST).map(word).collect();
    if lost.len() > MOST {
        words.push(format!("and of {} more resources", lost.len() - MOST));
    }
    let certificates = lost.get(&("", "secrets")).map(|verbs| {
        let verbs = verbs.iter().copied().collect::<Vec<_>>().join(",");
        format!(
            ". If load balancers have certificates in Secrets, the new ServiceAccount needs a role with {verbs} on them, of all namespaces if \
             it watches them: without it they are not used, or not renewed"
        )
    });
    let how = format!("the operator does not grant them{}", certificates.unwrap_or_default());
    proposed.note(Handling::Changed, format!("permissions: {}", words.join("; ")), how);
}

/// Returns what roles grant. A malformed role grants nothing.
fn granted<'a>(roles: impl Iterator<Item = &'a Value>) -> Granted<'a> {
    let mut granted = Granted::new();
    for rule in roles.filter_map(|role| permissions::rules(role).ok()).flatten() {
        for (group, resource) in
            rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |one| (*group, *one)))
        {
            granted.entry((group, resource)).or_default().extend(&rule.verbs);
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_granted_any_more_is_named_by_resource() {
        let role = |rules: Value| json!({"kind": "ClusterRole", "metadata": {"name": "a"}, "rules": rules});
        let grant = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let before = role(json!([
            grant("", "nodes", &["get", "list", "delete", "*"]),
            grant("", "secrets", &["get"]),
            grant("coordination.k8s.io", "leases", &["get"]),
        ]));
        let mut planned = role(json!([grant("", "nodes", &["get"]), grant("", "nodes", &["list"])]));
        planned["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        let mut proposed = ProposedCcm::default();
        let of = |objects: &[Value]| Permissions { objects: objects.to_vec(), ..Permissions::default() };
        note(&mut proposed, &of(&[before, json!({"rules": 1})]), &[Object::new(planned.clone()).unwrap()]);
        let [one] = &proposed.migration_results[..] else { panic!("{proposed:?}") };
        assert_eq!(one.what, "permissions: nodes *,delete; secrets get; leases.coordination.k8s.io get");
        assert!(
            one.how.contains("certificates in Secrets, the new ServiceAccount needs a role with get on"),
            "{}",
            one.how
        );
        let mut same = ProposedCcm::default();
        note(&mut same, &of(std::slice::from_ref(&planned)), &[Object::new(planned).unwrap()]);
        assert!(same.migration_results.is_empty());
        let users = vec!["Deployment other".to_owned()];
        note(&mut same, &Permissions { users, ..Permissions::default() }, &[]);
        assert!(same.migration_results[0].how.contains("not compared"));
    }
}
