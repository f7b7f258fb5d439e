//! The nodes on which pods may be placed (pure).

use serde_json::Value;

use crate::{nodes::node::Node, object::items};

/// The reason why a node takes no pod of a workload, the largest obstacle first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The node lacks required labels.
    Labels,
    /// The node is not ready, is cordoned or is being deleted.
    Closed,
    /// A taint, as `KEY=VALUE:EFFECT`.
    Taint(String),
}

/// Returns the obstacle that keeps host-network pods of a workload off a node, if any. Kubernetes' own taints follow the state of a node,
/// so the state is checked instead.
pub fn obstacle(workload: &Value, node: &Node) -> Option<Obstacle> {
    let pod = &workload["spec"]["template"]["spec"];
    if !fits(pod, node) {
        return Some(Obstacle::Labels);
    }
    // The DaemonSet controller makes its pods tolerate cordoned nodes.
    let is_closed = node.is_cordoned && workload["kind"] != "DaemonSet";
    if is_closed || node.is_terminating || !node.runs_pods_of_host() {
        return Some(Obstacle::Closed);
    }
    node.own_taints.iter().find(|taint| !tolerates(pod, taint)).cloned().map(Obstacle::Taint)
}

/// Whether a pod tolerates a taint, given as `KEY=VALUE:EFFECT`.
pub fn tolerates(pod: &Value, taint: &str) -> bool {
    let (rest, effect) = taint.rsplit_once(':').unwrap_or((taint, ""));
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let matches = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        let is_any = text("operator") == "Exists";
        (text("effect").is_empty() || text("effect") == effect)
            && ((is_any && text("key").is_empty()) || (text("key") == key && (is_any || text("value") == value)))
    };
    items(&pod["tolerations"]).iter().any(matches)
}

/// Whether a node has the labels that the pods of a workload require: `nodeSelector` and the required node affinity, except for numeric
/// operators.
pub fn fits(pod: &Value, node: &Node) -> bool {
    let selector = pod["nodeSelector"].as_object();
    let is_selected = selector.is_none_or(|selector| {
        selector.iter().all(|(key, value)| node.labels.get(key).map(String::as_str) == value.as_str())
    });
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array();
    is_selected && terms.is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
}

fn matches(term: &Value, node: &Node) -> bool {
    items(&term["matchExpressions"]).iter().all(|expression| {
        let label = node.labels.get(expression["key"].as_str().unwrap_or_default());
        let is_in = || {
            let mut values = items(&expression["values"]).iter().filter_map(Value::as_str);
            label.is_some_and(|label| values.any(|value| value == label))
        };
        match expression["operator"].as_str() {
            Some("Exists") => label.is_some(),
            Some("DoesNotExist") => label.is_none(),
            Some("In") => is_in(),
            Some("NotIn") => !is_in(),
            // An unknown operator excludes no node.
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_takes_pods_that_it_fits_while_it_is_open_and_its_taints_are_tolerated() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let open = json!({"metadata": {"labels": {"role": "server"}}, "status": {"conditions": ready}});
        let with = |pointer: &str, value: Value| {
            let mut node = open.clone();
            node[pointer] = value;
            Node::of(&node)
        };
        let why = |kind: &str, node: &Node| {
            let pod =
                json!({"nodeSelector": {"role": "server"}, "tolerations": [{"key": "known", "operator": "Exists"}]});
            obstacle(&json!({"kind": kind, "spec": {"template": {"spec": pod}}}), node)
        };
        let deployment = |node: &Node| why("Deployment", node);
        assert_eq!(deployment(&Node::of(&open)), None);
        assert_eq!(deployment(&with("metadata", json!({}))), Some(Obstacle::Labels));
        let cordoned = with("spec", json!({"unschedulable": true}));
        assert_eq!((deployment(&cordoned), why("DaemonSet", &cordoned)), (Some(Obstacle::Closed), None));
        for status in ["Unknown", "False"] {
            let conditions = json!({"conditions": [{"type": "Ready", "status": status, "message": "no disk"}]});
            assert_eq!(deployment(&with("status", conditions)), Some(Obstacle::Closed), "{status}");
        }
        assert_eq!(deployment(&with("status", json!({}))), Some(Obstacle::Closed), "no kubelet has reported");
        let no_network = json!([{"type": "Ready", "status": "False", "message": "reason:NetworkPluginNotReady"}]);
        assert_eq!(deployment(&with("status", json!({"conditions": no_network}))), None, "the host has one");
        let taint = |key: &str, effect: &str| {
            deployment(&with("spec", json!({"taints": [{"key": key, "value": "v", "effect": effect}]})))
        };
        assert_eq!(taint("other", "NoExecute"), Some(Obstacle::Taint("other=v:NoExecute".into())));
        assert_eq!((taint("known", "NoExecute"), taint("other", "PreferNoSchedule")), (None, None));
        assert!(Obstacle::Labels < Obstacle::Closed && Obstacle::Closed < Obstacle::Taint(String::new()));
    }

    #[test]
    fn a_node_fits_by_its_labels() {
        let node = Node::of(&json!({"metadata": {"labels": {"role": "server", "zone": "a"}}}));
        let selects = |selector: Value| fits(&json!({"nodeSelector": selector}), &node);
        assert!(selects(json!({})) && selects(json!({"role": "server"})));
        assert!(!selects(json!({"role": "server", "zone": "b"})) && !selects(json!({"other": ""})));
        let term = |expressions: Value| json!({"matchExpressions": expressions});
        let requires = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            fits(
                &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
                &node,
            )
        };
        let has = |key: &str| term(json!([{"key": key, "operator": "Exists"}]));
        assert!(requires(json!([has("role")])) && !requires(json!([has("other")])));
        assert!(requires(json!([has("other"), has("zone")])), "one of the terms is enough");
        let zone = |operator: &str, zones: Value| {
            requires(json!([term(json!([{"key": "zone", "operator": operator, "values": zones}]))]))
        };
        assert!(zone("In", json!(["a", "b"])) && !zone("In", json!(["b"])));
        assert!(zone("NotIn", json!(["b"])) && !zone("NotIn", json!(["a"])));
        assert!(!zone("DoesNotExist", json!([])) && zone("Gt", json!(["1"])));
    }
}
