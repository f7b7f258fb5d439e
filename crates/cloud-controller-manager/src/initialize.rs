//! What a node gets from its instance (pure): the providerID, labels, and the removal of the taint.

use ccm_base::{error::brief, object::items};
use ccm_core::nodes::node::UNINITIALIZED;
use ccm_drivers::contract::Instance;
use serde_json::{Map, Value, json};

use crate::addresses::{self, NodeIpError};

/// A label under its deprecated name and under its present one.
struct Twins {
    deprecated: &'static str,
    present: &'static str,
}

const ZONE: Twins =
    Twins { deprecated: "failure-domain.beta.kubernetes.io/zone", present: "topology.kubernetes.io/zone" };

const REGION: Twins =
    Twins { deprecated: "failure-domain.beta.kubernetes.io/region", present: "topology.kubernetes.io/region" };

const INSTANCE_TYPE: Twins =
    Twins { deprecated: "beta.kubernetes.io/instance-type", present: "node.kubernetes.io/instance-type" };

/// Why a node cannot be initialized with its instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The kubelet asks for an address that the cloud does not have. The words are those of k8s.io/cloud-provider.
    #[error(
        "failed to get node modifiers from cloud provider: provided node ip for node {node:?} is not valid: {problem}"
    )]
    NodeIp {
        /// The name of the node.
        node: String,
        /// The problem.
        problem: NodeIpError,
    },
    /// The driver gives no providerID.
    #[error("failed to get instance metadata for node {0}: cloud provider does not set node provider ID for node {0}")]
    NoProviderId(String),
    /// The driver gives a providerID that no Node should have.
    #[error(
        "failed to get instance metadata for node {node}: the providerID {:?} is not <cloud>://<id> of printable ASCII characters without \
         spaces and of at most {LONGEST_PROVIDER_ID} bytes",
        brief(provider_id)
    )]
    BadProviderId {
        /// The name of the node.
        node: String,
        /// The providerID.
        provider_id: String,
    },
}

/// The longest providerID in bytes. Those of clouds have up to 300.
const LONGEST_PROVIDER_ID: usize = 1024;

/// Whether a node waits for its initialization.
pub(crate) fn is_uninitialized(node: &Value) -> bool {
    items(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == UNINITIALIZED)
}

/// Returns the patch that initializes a node; `None` if it does not wait for that any more.
pub(crate) fn patch(node: &Value, instance: &Instance) -> Result<Option<Value>, Problem> {
    if !is_uninitialized(node) {
        return Ok(None);
    }
    let name = || node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let has_provider_id = node["spec"]["providerID"].as_str().is_some_and(|id| !id.is_empty());
    // It cannot be changed once it is set.
    match instance.provider_id.as_str() {
        _ if has_provider_id => {}
        "" => return Err(Problem::NoProviderId(name())),
        id if is_provider_id(id) => {}
        id => return Err(Problem::BadProviderId { node: name(), provider_id: id.to_owned() }),
    }
    addresses::selected(node, &instance.addresses).map_err(|problem| Problem::NodeIp { node: name(), problem })?;
    let stays = items(&node["spec"]["taints"]).iter().filter(|taint| taint["key"] != UNINITIALIZED);
    let mut spec = json!({"taints": stays.collect::<Vec<_>>()});
    if !has_provider_id {
        spec["providerID"] = instance.provider_id.as_str().into();
    }
    let mut labels = Map::new();
    for (twins, value) in [(INSTANCE_TYPE, &instance.instance_type), (ZONE, &instance.zone), (REGION, &instance.region)]
    {
        if !value.is_empty() {
            labels.extend([twins.deprecated, twins.present].map(|label| (label.to_owned(), value.as_str().into())));
        }
    }
    Ok(Some(json!({"metadata": {"labels": labels}, "spec": spec})))
}

fn is_provider_id(text: &str) -> bool {
    let is_whole = text.split_once("://").is_some_and(|(cloud, id)| !cloud.is_empty() && !id.is_empty());
    is_whole && text.len() <= LONGEST_PROVIDER_ID && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the patch that gives the labels of an initialized node the values of their deprecated twins, as k8s.io/cloud-provider does;
/// `None` if they have them.
pub(crate) fn repair(node: &Value) -> Option<Value> {
    let has = &node["metadata"]["labels"];
    let differs = |twins: &Twins| {
        let deprecated = has[twins.deprecated].as_str()?;
        (has[twins.present] != deprecated).then(|| (twins.present.to_owned(), deprecated.into()))
    };
    let labels: Map<String, Value> = [ZONE, REGION, INSTANCE_TYPE].iter().filter_map(differs).collect();
    (!labels.is_empty() && !is_uninitialized(node)).then(|| json!({"metadata": {"labels": labels}}))
}

#[cfg(test)]
mod tests {
    use ccm_core::nodes::node::{PROVIDED_IP, SHUTDOWN};

    use super::*;

    fn instance(change: impl FnOnce(&mut Value)) -> Instance {
        let mut instance = json!({
            "id": "i-1", "providerID": "fake:///north-1/i-1", "name": "a", "region": "north", "zone": "north-1",
            "state": "running", "image": "debian", "instanceType": "small", "labels": {"team": "x"}, "created": "",
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        });
        change(&mut instance);
        serde_json::from_value(instance).unwrap()
    }

    fn node(change: impl FnOnce(&mut Value)) -> Value {
        let mut node = json!({
            "metadata": {"name": "a", "labels": {"own": "1"}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        change(&mut node);
        node
    }

    type Change = fn(&mut Value);

    #[test]
    fn a_node_gets_what_its_instance_has() {
        let all = json!({
            "beta.kubernetes.io/instance-type": "small", "node.kubernetes.io/instance-type": "small",
            "failure-domain.beta.kubernetes.io/zone": "north-1", "topology.kubernetes.io/zone": "north-1",
            "failure-domain.beta.kubernetes.io/region": "north", "topology.kubernetes.io/region": "north",
        });
        let new = json!({"taints": [], "providerID": "fake:///north-1/i-1"});
        let other = json!({"key": "x", "effect": "NoSchedule"});
        let cases: [(&str, Change, Change, Value); 7] = [
            ("plain", |_| {}, |_| {}, json!({"metadata": {"labels": all}, "spec": new})),
            (
                "it has a providerID",
                |node| node["spec"]["providerID"] = "fake:///kept".into(),
                |_| {},
                json!({"metadata": {"labels": all}, "spec": {"taints": []}}),
            ),
            (
                "its providerID is empty",
                |node| node["spec"]["providerID"] = "".into(),
                |_| {},
                json!({"metadata": {"labels": all}, "spec": new}),
            ),
            (
                "it has a providerID, and the driver gives none",
                |node| node["spec"]["providerID"] = "fake:///kept".into(),
                |instance| instance["providerID"] = "".into(),
                json!({"metadata": {"labels": all}, "spec": {"taints": []}}),
            ),
            (
                "all taints with the key go, and no other",
                |node| {
                    node["spec"]["taints"] = json!([
                        {"key": UNINITIALIZED, "effect": "NoSchedule", "value": "true"},
                        {"key": "x", "effect": "NoSchedule"},
                        {"key": UNINITIALIZED, "effect": "NoExecute"},
                    ]);
                },
                |_| {},
                json!({"metadata": {"labels": all}, "spec": {"taints": [other], "providerID": "fake:///north-1/i-1"}}),
            ),
            (
                "what is empty gives no label",
                |_| {},
                |instance| {
                    for field in ["zone", "region", "instanceType"] {
                        instance[field] = "".into();
                    }
                },
                json!({"metadata": {"labels": {}}, "spec": new}),
            ),
            (
                "the kubelet asks for the address of the cloud",
                |node| node["metadata"]["annotations"] = json!({PROVIDED_IP: "10.0.0.1"}),
                |_| {},
                json!({"metadata": {"labels": all}, "spec": new}),
            ),
        ];
        for (what, of_node, of_instance, wanted) in cases {
            assert_eq!(patch(&node(of_node), &instance(of_instance)), Ok(Some(wanted)), "{what}");
        }
    }

    #[test]
    fn a_node_that_cannot_be_initialized_keeps_its_taint() {
        let without_id = instance(|instance| instance["providerID"] = "".into());
        let failed = patch(&node(|_| {}), &without_id).unwrap_err().to_string();
        assert!(failed.ends_with("cloud provider does not set node provider ID for node a"), "{failed}");
        let long = format!("fake:///{}", "x".repeat(1024));
        for id in
            ["i-1", "://i-1", "fake://", "fake:///a\u{1b}[2J", "fake:///a b", "fake:///a\nb", "fake:///\u{e4}", &long]
        {
            let odd = instance(|instance| instance["providerID"] = id.into());
            let failed = patch(&node(|_| {}), &odd).unwrap_err().to_string();
            assert!(failed.contains("is not <cloud>://<id>") && failed.len() < 600, "{failed}");
            assert!(patch(&node(|node| node["spec"]["providerID"] = "fake:///kept".into()), &odd).is_ok(), "{id}");
        }
        let asks = node(|node| node["metadata"]["annotations"] = json!({PROVIDED_IP: "10.0.0.2"}));
        let failed = patch(&asks, &instance(|_| {})).unwrap_err().to_string();
        assert!(
            failed.ends_with("failed to get node address from cloud provider that matches ip: 10.0.0.2"),
            "{failed}"
        );
        let stopped = instance(|instance| instance["addresses"] = json!([]));
        assert!(patch(&asks, &stopped).is_err() && patch(&node(|_| {}), &stopped).is_ok());
    }

    #[test]
    fn an_initialized_node_stays_as_it_is() {
        for taints in [json!(null), json!([]), json!([{"key": SHUTDOWN, "effect": "NoSchedule"}])] {
            assert_eq!(patch(&node(|node| node["spec"]["taints"] = taints), &instance(|_| {})), Ok(None));
        }
    }

    #[test]
    fn the_deprecated_label_is_the_source_of_truth() {
        let repaired = |labels: Value| repair(&json!({"metadata": {"labels": labels}}));
        let zone = |deprecated: &str, present: &str| json!({ZONE.deprecated: deprecated, ZONE.present: present});
        for (labels, wanted) in [
            (zone("a", "a"), None),
            (zone("a", "b"), Some(json!({ZONE.present: "a"}))),
            (json!({ZONE.deprecated: "a"}), Some(json!({ZONE.present: "a"}))),
            (json!({ZONE.present: "a"}), None),
            (json!(null), None),
            (
                json!({REGION.deprecated: "r", INSTANCE_TYPE.deprecated: "t", INSTANCE_TYPE.present: "u"}),
                Some(json!({REGION.present: "r", INSTANCE_TYPE.present: "t"})),
            ),
        ] {
            assert_eq!(
                repaired(labels.clone()),
                wanted.map(|labels| json!({"metadata": {"labels": labels}})),
                "{labels}"
            );
        }
        assert_eq!(
            repair(&node(|node| node["metadata"]["labels"] = zone("a", "b"))),
            None,
            "not before the initialization"
        );
    }
}
