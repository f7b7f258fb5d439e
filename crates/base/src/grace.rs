//! Grace periods: how long a transient problem has to last before it is reported (pure). Each has its reason and its
//! source.

use std::time::Duration;

/// A transient error of a reconcile or of a watch; then the ClusterOperator is Degraded. The Go operator uses the same period.
pub const TRANSIENT_ERROR_GRACE: Duration = Duration::from_secs(150);

/// A transient error of a controller that has its own conditions in the ClusterOperator. The Go operator uses the same period.
pub const SYNC_GRACE: Duration = Duration::from_secs(120);

/// A request that is refused for a missing permission: an API server that has just started denies every permission that it
/// has not read yet. Our own choice; the refusals at a real restart ended earlier.
pub const PERMISSION_GRACE: Duration = Duration::from_secs(5);

/// A watch that is refused for a missing permission, for the same reason. Our own choice: a watch waits several
/// seconds between retries.
pub const DENIED_GRACE: Duration = Duration::from_secs(30);

/// An attempt to initialize a node, or the start of a pod, until it counts as failed. Our own choice.
pub const ATTEMPT_GRACE: Duration = Duration::from_secs(30);

/// The start of a pod whose image may have to be pulled, until its node is reported to wait for an unknown cause, or a
/// `CloudControllerManager` without a ready pod to be stalled. Our own choice.
pub const IMAGE_PULL_GRACE: Duration = Duration::from_secs(300);

/// A node field that another component sets (the taint of the kubelet, the addresses), until it counts as missing. Our own choice.
pub const NODE_FIELDS_GRACE: Duration = Duration::from_secs(120);

/// The cluster's topology, until an operator competes for its lease without knowing it. Our own choice: as long as other errors.
pub const TOPOLOGY_GRACE: Duration = TRANSIENT_ERROR_GRACE;

/// A node that waits for its cloud-controller-manager, until it is diagnosed: the image may have to be pulled. Our own choice.
pub const NODE_GRACE: Duration = Duration::from_secs(60);

/// A rollout without a version change: a changed annotation alone looks like a short rollout. Our own choice.
pub const ROLLOUT_GRACE: Duration = Duration::from_secs(1);
