//! The result of a diagnosis (pure).

use serde::Serialize;

use crate::nodes::reason::Reason;

/// What was found about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Its name; of a node that was deleted, the name that it had.
    pub node: String,
    /// Its unique id.
    pub uid: String,
    /// What it is to the cloud-controller-managers.
    pub state: State,
    /// The provider of the cloud-controller-manager whose node it is, or would be; empty if no one's.
    pub provider: String,
    /// `spec.providerID`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Since when it is in this state, RFC 3339, if that is known.
    pub since: Option<String>,
    /// What is wrong with it, in the order of fixing.
    pub findings: Vec<Finding>,
    /// Everything that was looked at, in the order of asking.
    pub observations: Vec<Observation>,
}

/// What a node is to the cloud-controller-managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// It is initialized.
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
    /// What shows it, with the texts of others, masked. For the caller of a command only: never for Events or the status.
    pub evidence: String,
    /// The recognized cause, without texts of others: for Events and the status.
    pub cause: String,
    /// What to do.
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
    /// What, such as `the lease kube-system/cloud-controller-manager`.
    pub what: String,
    /// What it showed; for what could not be looked at, why, and the command that would show it.
    pub showed: String,
    /// Whether it could be looked at.
    pub was_seen: bool,
}
