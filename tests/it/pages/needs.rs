//! Why a cloud-controller-manager has its permissions.

use ccm_operator::{facts::ccm::Controller, plan::needs::NEEDS, provider::kubernetes::NeededPermission};

/// A resource with its API group, such as `deployments.apps`.
pub(crate) fn full_name(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The permissions of these controllers and of the cloud's own code, as `resource.group`, verbs, user and reason.
pub(crate) fn reasons(controllers: &[Controller], own: &[NeededPermission]) -> Vec<[String; 4]> {
    let is_on = |users: &[Controller]| users.is_empty() || users.iter().any(|user| controllers.contains(user));
    let names = |users: &[Controller]| -> Vec<_> {
        let users = users.iter().filter(|user| controllers.contains(user));
        users.map(|user| format!("`{}`", user.field())).collect()
    };
    let common = NEEDS.iter().filter(|(.., users, _)| is_on(users)).map(|(group, name, verbs, users, why)| {
        let users = names(users);
        let whom = if users.is_empty() { "the process".to_owned() } else { users.join(", ") };
        [full_name(group, name), verbs.join(", "), whom, (*why).to_owned()]
    });
    let own = own.iter().filter(|permission| is_on(&permission.controllers)).map(|permission| {
        let users = names(&permission.controllers);
        let part = if users.is_empty() { String::new() } else { format!(" for {}", users.join(", ")) };
        [
            full_name(&permission.api_group, &permission.resource),
            permission.verbs.join(", "),
            format!("the cloud's code{part}"),
            permission.reason.clone(),
        ]
    });
    common.chain(own).collect()
}

#[test]
fn permissions_of_the_cloud_are_for_enabled_controllers_only() {
    let permission = |resource: &str, controllers: &[Controller]| NeededPermission {
        reason: "a test".into(),
        api_group: String::new(),
        resource: resource.into(),
        verbs: vec!["update".into()],
        controllers: controllers.to_vec(),
    };
    let own = [
        permission("services", &[Controller::Service]),
        permission("nodes", &[Controller::CloudNode, Controller::Route]),
        permission("leases", &[Controller::CloudNodeLifecycle]),
    ];
    let reasons = reasons(&[Controller::Service, Controller::Route], &own);
    let whom: Vec<_> = reasons[reasons.len() - 2..].iter().map(|[_, _, whom, _]| whom.as_str()).collect();
    assert_eq!(whom, ["the cloud's code for `service`", "the cloud's code for `route`"]);
}
