//! Why a cloud-controller-manager has its rights.

use ccm_operator::{facts::manager::Controller, plan::rights::NEEDS, provider::upstream::Right};

/// A resource with its API group, such as `deployments.apps`.
pub(crate) fn full_name(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// What these controllers need, and the cloud's own code, as `resource.group`, verbs, for whom, and what for.
pub(crate) fn reasons(controllers: &[Controller], own: &[Right]) -> Vec<[String; 4]> {
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
    let own = own.iter().filter(|right| is_on(&right.controllers)).map(|right| {
        let users = names(&right.controllers);
        let part = if users.is_empty() { String::new() } else { format!(" for {}", users.join(", ")) };
        [
            full_name(&right.api_group, &right.resource),
            right.verbs.join(", "),
            format!("the cloud's code{part}"),
            right.reason.clone(),
        ]
    });
    common.chain(own).collect()
}

#[test]
fn what_the_cloud_needs_is_for_those_controllers_that_are_on() {
    let right = |resource: &str, controllers: &[Controller]| Right {
        reason: "a test".into(),
        api_group: String::new(),
        resource: resource.into(),
        verbs: vec!["update".into()],
        controllers: controllers.to_vec(),
    };
    let own = [
        right("services", &[Controller::Service]),
        right("nodes", &[Controller::CloudNode, Controller::Route]),
        right("leases", &[Controller::CloudNodeLifecycle]),
    ];
    let reasons = reasons(&[Controller::Service, Controller::Route], &own);
    let whom: Vec<_> = reasons[reasons.len() - 2..].iter().map(|[_, _, whom, _]| whom.as_str()).collect();
    assert_eq!(whom, ["the cloud's code for `service`", "the cloud's code for `route`"]);
}
