//! The part of the flavor kubernetes's descriptor that describes nodes (pure).

use serde::Deserialize;

use crate::provider::owns;

/// The information of a cloud about nodes, and the effects of its cloud-controller-manager on unknown nodes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeRules {
    /// The prefixes of the providerIDs that it writes, the current one first, such as `aws:///`.
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
    /// The requirements in the cloud for a private address that a kubelet requests (`--node-ip`); absent means none.
    pub private_addresses: Option<String>,
    /// The needs of the machines in the cloud that the API server does not show, and the command that shows them; absent means none.
    pub at_cloud: Option<String>,
    /// The prefixes of the labels and annotations that its own code writes on nodes, such as `example.com/`. An external provider can
    /// change no others, except the labels that every cloud sets.
    #[serde(default)]
    pub metadata_prefixes: Vec<String>,
}

/// The names of nodes by which the cloud-controller-manager finds their instances.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Names {
    /// A description, such as `the name of the server`.
    pub are: String,
    /// Their prefixes. Without a prefix, they can only be compared with those of the cloud.
    #[serde(default)]
    pub prefixes: Vec<String>,
}

impl NodeRules {
    /// Whether a providerID belongs to this cloud.
    pub fn owns(&self, provider_id: &str) -> bool {
        owns(&self.provider_ids, provider_id)
    }
}

/// The answer of a cloud-controller-manager when k8s.io/cloud-provider asks whether the instance of a node
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
