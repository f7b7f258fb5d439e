//! The result of a diagnosis (pure).

use serde::Serialize;

use crate::nodes::reason::Reason;

/// The diagnosis of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The name of the node, or its former name if the node was deleted.
    pub node: String,
    /// The unique id.
    pub uid: String,
    /// The state of the node with regard to cloud-controller-managers.
    pub state: State,
    /// The provider of the cloud-controller-manager that the node belongs to, or would belong to; empty if there is none.
    pub provider: String,
    /// `spec.providerID`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The time when this state began, RFC 3339, if known.
    pub since: Option<String>,
    /// The problems of the node, in the order of fixing.
    pub findings: Vec<Finding>,
    /// Every observation, in the order of the checks.
    pub observations: Vec<Observation>,
}

/// The state of a node with regard to cloud-controller-managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The node is initialized.
    Initialized,
    /// The node waits for its initialization.
    Uninitialized,
    /// The node waits for nothing, and no cloud-controller-manager will initialize it.
    NotManaged,
    /// The node waits for nothing, and its annotation says that it belongs to no cloud.
    NoCloud,
    /// The node was deleted, or is being deleted.
    Deleted,
}

/// A problem of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The id of the reason.
    #[serde(rename = "id", serialize_with = "id")]
    pub reason: Reason,
    /// The evidence, with masked untrusted text. Only for the user of a command, never for Events or the status.
    pub evidence: String,
    /// The recognized cause without untrusted text, for Events and the status.
    pub cause: String,
    /// The fix.
    pub fix: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn id<S: serde::Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.id())
}

/// The result of reading one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The source, such as `the lease kube-system/cloud-controller-manager`.
    pub what: String,
    /// The result. For an unreadable source, the reason and the command that shows it.
    pub showed: String,
    /// Whether the source could be read.
    pub was_seen: bool,
}
