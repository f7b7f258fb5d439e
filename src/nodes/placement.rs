//! Which nodes pods may be placed on, by labels (pure). Taints come and go, and are not asked for.

use serde_json::Value;

use crate::nodes::node::Node;

/// Whether a node has the labels that the pods of a workload ask for: `nodeSelector`, and the required node affinity with the operators
/// that need no number.
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
    let mut expressions = term["matchExpressions"].as_array().into_iter().flatten();
    expressions.all(|expression| {
        let label = node.labels.get(expression["key"].as_str().unwrap_or_default());
        let is_in = || {
            let values = expression["values"].as_array().into_iter().flatten();
            label.is_some_and(|label| values.filter_map(Value::as_str).any(|value| value == label))
        };
        match expression["operator"].as_str() {
            Some("Exists") => label.is_some(),
            Some("DoesNotExist") => label.is_none(),
            Some("In") => is_in(),
            Some("NotIn") => !is_in(),
            // What is not understood rules nothing out.
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
