//! The result of a diagnosis (pure).

use serde::Serialize;

use crate::nodes::reason::Reason;

/// The diagnosis of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Its name; of a node that was deleted, the name that it had.
    pub node: String,
    /// Its unique id.
    pub uid: String,
    /// The state of the node for the cloud-controller-managers.
    pub state: State,
    /// The provider of the cloud-controller-manager that the node belongs to, or would belong to; empty if there is none.
    pub provider: String,
    /// `spec.providerID`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Since when it is in this state, RFC 3339, if that is known.
    pub since: Option<String>,
    /// The problems of the node, in the order of fixing.
    pub findings: Vec<Finding>,
    /// Every observation, in the order of looking.
    pub observations: Vec<Observation>,
}

/// The state of a node for the cloud-controller-managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The node is initialized.
    Initialized,
    /// It waits for its initialization.
    Uninitialized,
    /// It waits for nothing, and no cloud-controller-manager will initialize it.
    NotManaged,
    /// It waits for nothing, and its annotation says that it is of no cloud.
    NoCloud,
    /// It was deleted, or is being deleted.
    Deleted,
}

/// Something that is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The id of the reason.
    #[serde(rename = "id", serialize_with = "id")]
    pub reason: Reason,
    /// The evidence, with texts of other programs, masked. Only for the user of a command, never for Events or the status.
    pub evidence: String,
    /// The recognized cause, without texts of other programs: for Events and the status.
    pub cause: String,
    /// The fix.
    pub fix: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn id<S: serde::Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.id())
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The source, such as `the lease kube-system/cloud-controller-manager`.
    pub what: String,
    /// The result. If the source could not be read: why, and the command that would show it.
    pub showed: String,
    /// Whether the source could be read.
    pub was_seen: bool,
}
