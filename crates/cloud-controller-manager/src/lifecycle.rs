//! What happens to a node whose kubelet does not report that it is ready (pure).

use ccm_base::object::{condition, items};
use ccm_core::nodes::node::SHUTDOWN;
use ccm_drivers::contract::{Instance, State};
use serde_json::{Value, json};

/// What has to be done for a node in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing. The cloud is not asked.
    Nothing,
    /// It is ready: its shutdown taint goes.
    RemoveTaint,
    /// It is not ready: the cloud is asked for its instance.
    Ask,
}

/// Whether the kubelet reports that a node is ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    condition(node, "Ready")["status"] == "True"
}

/// Returns what has to be done for a node. One that is being deleted needs nothing.
pub(crate) fn step(node: &Value) -> Step {
    if is_ready(node) {
        return if has_taint(node) { Step::RemoveTaint } else { Step::Nothing };
    }
    if node["metadata"]["deletionTimestamp"].is_string() { Step::Nothing } else { Step::Ask }
}

/// Whether an instance is shut down. One that stops or starts is not.
pub(crate) fn is_shut_down(instance: &Instance) -> bool {
    instance.state == State::Stopped
}

/// Returns the patch that adds the shutdown taint; `None` if the node has it, or is ready.
pub(crate) fn taint(node: &Value) -> Option<Value> {
    let added = json!({"key": SHUTDOWN, "effect": "NoSchedule"});
    let taints: Vec<_> = items(&node["spec"]["taints"]).iter().cloned().chain([added]).collect();
    (!has_taint(node) && !is_ready(node)).then(|| json!({"spec": {"taints": taints}}))
}

/// Returns the patch that removes the shutdown taint; `None` if the node does not have it, or is not ready.
pub(crate) fn untaint(node: &Value) -> Option<Value> {
    let stays: Vec<_> = items(&node["spec"]["taints"]).iter().filter(|taint| !is_shutdown(taint)).collect();
    (has_taint(node) && is_ready(node)).then(|| json!({"spec": {"taints": stays}}))
}

fn has_taint(node: &Value) -> bool {
    items(&node["spec"]["taints"]).iter().any(is_shutdown)
}

fn is_shutdown(taint: &Value) -> bool {
    taint["key"] == SHUTDOWN && taint["effect"] == "NoSchedule"
}

/// What the list of all instances of the account says about an instance that the cloud does not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The list has no instance at all. An account without instances is more often the wrong one.
    Empty,
    /// The list has the instance, of this id: the driver contradicts itself.
    Has(String),
    /// The list has others, and not this one.
    Lacks,
}

/// Looks in the list of all instances of the account for the instance of a node: by its providerID, or by its name if it has none.
pub(crate) fn listed(instances: &[Instance], provider_id: &str, name: &str) -> Listed {
    let is_it =
        |one: &&Instance| if provider_id.is_empty() { one.name == name } else { one.provider_id == provider_id };
    match instances.iter().find(is_it) {
        Some(one) => Listed::Has(one.id.clone()),
        None if instances.is_empty() => Listed::Empty,
        None => Listed::Lacks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: Option<&str>, taints: &Value) -> Value {
        let conditions: Vec<_> = ready.map(|status| json!({"type": "Ready", "status": status})).into_iter().collect();
        json!({"metadata": {"name": "a"}, "spec": {"taints": taints}, "status": {"conditions": conditions}})
    }

    fn shutdown() -> Value {
        json!({"key": SHUTDOWN, "effect": "NoSchedule"})
    }

    #[test]
    fn only_nodes_that_are_not_ready_ask_the_cloud() {
        for (ready, taints, wanted) in [
            (Some("True"), json!(null), Step::Nothing),
            (Some("True"), json!([shutdown()]), Step::RemoveTaint),
            (Some("True"), json!([{"key": SHUTDOWN, "effect": "NoExecute"}]), Step::Nothing),
            (Some("False"), json!(null), Step::Ask),
            (Some("False"), json!([shutdown()]), Step::Ask),
            (Some("Unknown"), json!([]), Step::Ask),
            (None, json!([]), Step::Ask),
        ] {
            assert_eq!(step(&node(ready, &taints)), wanted, "{ready:?} {taints}");
        }
        let mut going = node(Some("Unknown"), &json!([]));
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(step(&going), Step::Nothing);
    }

    #[test]
    fn the_taint_comes_once_and_goes_alone() {
        let other = json!({"key": "x", "effect": "NoSchedule"});
        let (bare, tainted) = (node(None, &json!(null)), node(None, &json!([other, shutdown()])));
        assert_eq!(taint(&bare), Some(json!({"spec": {"taints": [shutdown()]}})));
        assert_eq!(taint(&node(None, &json!([other]))), Some(json!({"spec": {"taints": [other, shutdown()]}})));
        assert_eq!(taint(&tainted), None);
        let (ready, no_longer) =
            (node(Some("True"), &json!([other, shutdown()])), node(Some("Unknown"), &json!([shutdown()])));
        assert_eq!(untaint(&ready), Some(json!({"spec": {"taints": [other]}})));
        assert_eq!(untaint(&node(Some("True"), &json!([other]))), None);
        // The state may have changed since the step was chosen.
        assert_eq!((untaint(&no_longer), taint(&node(Some("True"), &json!(null)))), (None, None));
    }

    fn instance(id: &str, state: &str) -> Instance {
        serde_json::from_value(json!({
            "id": id, "providerID": format!("fake:///{id}"), "name": format!("name-{id}"), "region": "", "zone": "",
            "state": state, "image": "", "instanceType": "", "labels": {}, "created": "", "addresses": [],
        }))
        .unwrap()
    }

    #[test]
    fn only_a_stopped_instance_is_shut_down() {
        let shut_down: Vec<_> = ["pending", "running", "stopping", "stopped", "deleting", "unknown"]
            .into_iter()
            .filter(|state| is_shut_down(&instance("a", state)))
            .collect();
        assert_eq!(shut_down, ["stopped"]);
    }

    #[test]
    fn an_instance_is_gone_only_if_the_list_has_others() {
        let all = [instance("a", "running"), instance("b", "stopped")];
        for (instances, provider_id, name, wanted) in [
            (&all[..], "fake:///a", "name-x", Listed::Has("a".to_owned())),
            (&all[..], "fake:///b", "", Listed::Has("b".to_owned())),
            (&all[..], "fake:///c", "name-a", Listed::Lacks),
            (&all[..], "", "name-a", Listed::Has("a".to_owned())),
            (&all[..], "", "name-c", Listed::Lacks),
            (&all[..], "fake:///", "", Listed::Lacks),
            (&[], "fake:///a", "", Listed::Empty),
        ] {
            assert_eq!(listed(instances, provider_id, name), wanted, "{provider_id} {name}");
        }
    }
}
