//! The rules for deleting nodes in the spec of a `CloudControllerManager` (pure).

use std::collections::BTreeMap;

use super::api_types;
#[cfg(test)]
use super::pattern::{LABEL_NAME, LABEL_VALUE};

api_types! {
    /// The rules for deleting nodes. A node in `allow` passes all limits except the rules of the policy: the providerID, the
    /// selector, the annotations, Ready, the taint of uninitialized nodes, and the control plane.
    #[serde(rename_all = "camelCase", default)]
    pub struct NodeDeletion {
        /// Selects the nodes that may be deleted, among the nodes with the cloud's providerIDs. Defaults to all of them. For a
        /// cluster with nodes of two accounts of one cloud.
        pub selector: NodeLabels,
        /// The minimum time for which a node has not been ready, in seconds.
        #[cfg_attr(test, schemars(range(min = 60, max = 604_800)))]
        pub min_not_ready_seconds: u32,
        /// The maximum number of deleted nodes per hour.
        #[cfg_attr(test, schemars(range(min = 1, max = 1000)))]
        pub max_per_hour: u32,
        /// The maximum percentage of the cloud's nodes that may wait for their deletion at the same time; one node always may.
        #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
        pub max_percent: u8,
        /// Nodes that a user has confirmed, each in one state, as `NAME/UID/TIME` with the time at which its condition `Ready` last
        /// changed; `ccm-operator nodes allow-delete` adds them. An entry is void if the node has been ready since.
        #[cfg_attr(test, schemars(length(max = 100), inner(length(max = 320)), extend("x-kubernetes-validations" = [{
            "rule": "self.all(node, node.matches('^[^/]+/[^/]+/[^/]+$'))",
            "message": "each is NAME/UID/TIME: see ccm-operator nodes allow-delete",
        }])))]
        pub allow: Vec<String>,
    }

    /// The nodes with these labels.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct NodeLabels {
        /// Labels, each with its value, that a node must have.
        #[cfg_attr(test, schemars(extend(
            "maxProperties" = 8,
            "additionalProperties" = {"type": "string", "maxLength": LABEL_VALUE.longest, "pattern": LABEL_VALUE.regex},
            "x-kubernetes-validations" = [{
                "rule": format!("self.all(key, key.matches('{}'))", LABEL_NAME.regex),
                "message": "each must be the name of a label",
            }]
        )))]
        pub match_labels: BTreeMap<String, String>,
    }
}

impl Default for NodeDeletion {
    fn default() -> Self {
        let (selector, allow) = (NodeLabels::default(), Vec::new());
        Self { selector, min_not_ready_seconds: 600, max_per_hour: 5, max_percent: 20, allow }
    }
}
