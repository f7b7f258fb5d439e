//! The permissions of a cloud-controller-manager, computed from the enabled controllers (pure).
//!
//! The needs of each controller come from k8s.io/cloud-provider v0.36.2 (`app/`, `controllers/`, `node/helpers`,
//! `service/helpers`) and k8s.io/controller-manager v0.36.3. No role gets `nodes delete` here: only the guard of nodes
//! grants it, by name (`kubernetes/guard.rs`).

use serde_json::{Value, json};

use crate::{
    facts::ccm::Controller::{self, CloudNode, CloudNodeLifecycle, Route, Service},
    object::permissions::Permission,
    provider::kubernetes::NeededPermission,
};

/// A resource with its verbs, the controllers that need them (none: the process itself), and the reason.
pub type ControllerNeed = (&'static str, &'static str, &'static [&'static str], &'static [Controller], &'static str);

/// Every need.
pub const NEEDS: &[ControllerNeed] = &[
    ("authentication.k8s.io", "tokenreviews", &["create"], &[], "authenticates all requests but those for its health"),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"], &[], "authorizes these requests"),
    ("", "events", &["create", "patch"], &[], "writes Events"),
    ("", "nodes", &["list", "watch"], &[CloudNode, CloudNodeLifecycle, Service, Route], "watches the nodes"),
    (
        "",
        "nodes",
        &["get", "patch"],
        &[CloudNode, CloudNodeLifecycle],
        "corrects labels, taints nodes that are shut down",
    ),
    ("", "nodes", &["update"], &[CloudNode], "initializes a node"),
    ("", "nodes/status", &["patch"], &[CloudNode, Route], "writes addresses, and the condition NetworkUnavailable"),
    ("", "services", &["list", "watch"], &[Service], "watches the Services"),
    ("", "services/status", &["patch"], &[Service], "writes the address of a load balancer, and a finalizer"),
];

/// The order of verbs in a rule.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Returns the rules of the ClusterRole for these controllers and for the cloud's own code with them, one for each resource.
pub fn rules(controllers: &[Controller], own: &[NeededPermission]) -> Value {
    merged(grants(controllers, own))
}

/// Returns the permissions of these controllers, and of the cloud's own code with them.
pub(super) fn grants<'a>(
    controllers: &[Controller],
    own: &'a [NeededPermission],
) -> impl Iterator<Item = Permission<'a>> {
    let is_on = |users: &[Controller]| users.is_empty() || users.iter().any(|user| controllers.contains(user));
    let common = NEEDS.iter().filter(move |(.., users, _)| is_on(users));
    let common = common.flat_map(|(group, resource, verbs, ..)| verbs.iter().map(|verb| (*group, *resource, *verb)));
    let own = own.iter().filter(move |permission| is_on(&permission.controllers));
    let own = own.flat_map(|NeededPermission { api_group, resource, verbs, .. }| {
        verbs.iter().map(|verb| (api_group.as_str(), resource.as_str(), verb.as_str()))
    });
    common.chain(own).map(|(group, resource, verb)| Permission { group, resource, names: Vec::new(), verb })
}

/// Merges permissions into rules, one for each resource with the same names.
pub(super) fn merged<'a>(grants: impl Iterator<Item = Permission<'a>>) -> Value {
    let mut rules: Vec<(Permission<'_>, Vec<&str>)> = Vec::new();
    for grant in grants {
        let Permission { group, resource, names, verb } = &grant;
        match rules.iter_mut().find(|(of, _)| (of.group, of.resource, &of.names) == (group, resource, names)) {
            Some((_, verbs)) if verbs.contains(verb) => {}
            Some((_, verbs)) => verbs.push(verb),
            None => rules.push((grant.clone(), vec![verb])),
        }
    }
    let place = |verb: &str| VERBS.iter().position(|known| *known == verb).unwrap_or(VERBS.len());
    let rule = |(Permission { group, resource, names, .. }, mut verbs): (Permission<'_>, Vec<&str>)| {
        verbs.sort_by_key(|verb| place(verb));
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    rules.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(controllers: &[Controller], own: &[NeededPermission]) -> Vec<String> {
        let rules = rules(controllers, own);
        let text = |value: &Value| value[0].as_str().unwrap().to_owned();
        let verbs = |rule: &Value| {
            rule["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let line = |rule: &Value| format!("{} {}", text(&rule["resources"]), verbs(rule).join(","));
        rules.as_array().unwrap().iter().map(line).collect()
    }

    #[test]
    fn each_controller_gets_what_it_needs() {
        let process = ["tokenreviews create", "subjectaccessreviews create", "events create,patch"];
        let with = |more: &[&'static str]| [&process[..], more].concat();
        assert_eq!(granted(&[], &[]), process);
        assert_eq!(granted(&[CloudNode], &[]), with(&["nodes get,list,watch,update,patch", "nodes/status patch"]));
        assert_eq!(granted(&[CloudNodeLifecycle], &[]), with(&["nodes get,list,watch,patch"]));
        assert_eq!(
            granted(&[Service], &[]),
            with(&["nodes list,watch", "services list,watch", "services/status patch"])
        );
        assert_eq!(granted(&[Route], &[]), with(&["nodes list,watch", "nodes/status patch"]));
    }

    #[test]
    fn no_controller_may_delete_a_node() {
        assert!(granted(&Controller::ALL, &[]).iter().all(|rule| !rule.contains("delete")));
    }

    fn permission(resource: &str, verbs: &[&str], controllers: &[Controller]) -> NeededPermission {
        NeededPermission {
            reason: "a test".into(),
            api_group: String::new(),
            resource: resource.into(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            controllers: controllers.to_vec(),
        }
    }

    #[test]
    fn what_the_cloud_needs_joins_the_rule_of_its_resource() {
        let own = [permission("services", &["patch", "get", "list"], &[]), permission("configmaps", &["get"], &[])];
        let granted = granted(&[Service], &own);
        assert!(granted.contains(&"services get,list,watch,patch".to_owned()), "{granted:?}");
        assert_eq!(granted.last().unwrap(), "configmaps get");
    }

    #[test]
    fn what_the_cloud_needs_for_a_controller_goes_with_it() {
        let own =
            [permission("services", &["patch"], &[Service]), permission("nodes", &["update"], &[CloudNode, Route])];
        for (on, expected) in [
            (&[][..], [false, false]),
            (&[CloudNodeLifecycle], [false, false]),
            (&[Service], [true, false]),
            (&[Route], [false, true]),
            (&[Service, CloudNode], [true, true]),
        ] {
            let granted = granted(on, &own);
            let has = |resource: &str, verb: &str| {
                granted.iter().any(|rule| rule.starts_with(&format!("{resource} ")) && rule.contains(verb))
            };
            assert_eq!([has("services", "patch"), has("nodes", "update")], expected, "{on:?}: {granted:?}");
        }
    }
}
