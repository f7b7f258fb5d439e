//! The part of the flavor kubernetes's descriptor that describes nodes (pure).

use serde::Deserialize;

use crate::provider::owns;

/// What a cloud knows about nodes, and what its cloud-controller-manager does with those that it does not know.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeRules {
    /// The prefixes of the providerIDs that it writes, the one that it writes today first, such as `aws:///`.
    #[serde(rename = "providerIDs")]
    pub provider_ids: Vec<String>,
    /// Whether nodes get labels with their region and zone.
    pub zones: bool,
    /// The answer for a node without a providerID whose name the cloud does not know.
    #[serde(rename = "withoutProviderID")]
    pub without_provider_id: Answer,
    /// The answer for a node with the providerID of another cloud.
    #[serde(rename = "otherCloudProviderID")]
    pub other_cloud_provider_id: Answer,
    /// The required names of nodes.
    pub names: Names,
    /// What a private address that a kubelet asks for (`--node-ip`) requires at the cloud; absent: nothing.
    pub private_addresses: Option<String>,
    /// What the machines need at the cloud, which the API server does not show, and the command that shows it; absent: nothing.
    pub at_cloud: Option<String>,
    /// How the labels and annotations of nodes begin that its own code writes, such as `example.com/`. The operator lets an external
    /// provider change no others, besides the labels that every cloud sets.
    #[serde(default)]
    pub metadata_prefixes: Vec<String>,
}

/// The names of nodes by which the cloud-controller-manager finds their instances.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Names {
    /// In words, such as `the name of the server`.
    pub are: String,
    /// How they begin; without one they can only be compared with those of the cloud.
    #[serde(default)]
    pub prefixes: Vec<String>,
}

impl NodeRules {
    /// Whether a providerID is of this cloud.
    pub fn owns(&self, provider_id: &str) -> bool {
        owns(&self.provider_ids, provider_id)
    }
}

/// What a cloud-controller-manager answers when k8s.io/cloud-provider asks whether the instance of a node
/// that is not ready exists.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Answer {
    /// An error: the node stays.
    Error,
    /// The instance exists: the node stays.
    Exists,
    /// The instance does not exist: the node is deleted.
    Gone,
}
