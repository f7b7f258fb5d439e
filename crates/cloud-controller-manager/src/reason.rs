//! The reasons of the Events besides `DeletingNode` and `DeletingNodeFailed`.

pub(crate) const SYNCED: &str = "Synced";
pub(crate) const INSTANCE_NOT_FOUND: &str = "InstanceNotFound";
pub(crate) const OTHER_CLOUD: &str = "ProviderIDOfOtherCloud";
pub(crate) const NODE_IP: &str = "ProvidedNodeIPNotFound";
pub(crate) const UNAVAILABLE: &str = "CloudUnavailable";
pub(crate) const CREDENTIALS: &str = "CredentialsRejected";
pub(crate) const ACCOUNT: &str = "AccountChanged";
pub(crate) const FORBIDDEN: &str = "CloudRequestForbidden";
pub(crate) const FAILED: &str = "CloudRequestFailed";
pub(crate) const UPDATE: &str = "NodeUpdateRefused";
pub(crate) const CONTRADICTION: &str = "DriverContradictsItself";
pub(crate) const EMPTY: &str = "AccountIsEmpty";
pub(crate) const KEPT: &str = "NodeKept";
pub(crate) const UNGUARDED: &str = "DeletionsUnguarded";
