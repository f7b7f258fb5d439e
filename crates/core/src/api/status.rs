//! The status of a `CloudControllerManager` (pure).

use serde::{Deserialize, Serialize};

/// Declares types of the status. Unknown fields are ignored: another version of the operator may have written them.
macro_rules! status_types {
    ($($(#[$attribute:meta])* pub struct $name:ident { $($body:tt)* })+) => {$(
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "camelCase", default)]
        $(#[$attribute])*
        pub struct $name { $($body)* }
    )+};
}

status_types! {
    /// The state of the cloud-controller-manager.
    pub struct Status {
        /// The generation of this object that the status describes.
        pub observed_generation: i64,
        /// `Ready`, `Reconciling` and `Stalled` as kstatus reads them; `ConfigurationValid`, `CredentialsFound`,
        /// `VersionSupported`, `PreflightPassed`, `NodesInitialized` and `NodeDeletionSafe`.
        #[cfg_attr(test, schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
        pub conditions: Vec<Condition>,
        /// The chosen version and image.
        pub provider: Provider,
        /// The detected properties of the cluster.
        pub cluster: Cluster,
        /// Its pods.
        pub workload: Workload,
        /// The nodes of the cluster.
        pub nodes: Nodes,
        /// The deletion of nodes whose machines are gone.
        pub node_deletion: Deletion,
    }

    /// A node that waits for its initialization.
    pub struct WaitingNode {
        /// Its name.
        pub node: String,
        /// The id of the reason, such as `N07`; `ccm-operator explain` prints its page.
        pub reason: String,
        /// The start of the wait.
        pub since: String,
        /// The cause.
        pub message: String,
    }

    /// The deletion of nodes.
    pub struct Deletion {
        /// `Disabled`, `Rehearsal` or `Enabled`; `Removed` for a cloud-controller-manager that is being removed; empty while the
        /// spec cannot be read.
        pub phase: String,
        /// The nodes that the cloud-controller-manager would delete but may not, each with the reason. At most 32.
        pub waiting: Vec<Candidate>,
        /// The nodes that it may delete, each as `NAME/UID`.
        pub confirmed: Vec<String>,
        /// The nodes that it was allowed to delete within the last hour.
        pub deleted: Vec<Deleted>,
    }

    /// A node that was deleted.
    pub struct Deleted {
        /// Its name.
        pub node: String,
        /// Its unique id.
        pub uid: String,
        /// The time at which the deletion was seen.
        pub at: String,
    }

    /// A node that the cloud-controller-manager would delete.
    pub struct Candidate {
        /// Its name.
        pub node: String,
        /// Its unique id.
        pub uid: String,
        /// The time since which it has not been ready.
        pub since: String,
        /// The reason why it is kept, as one word for programs.
        pub reason: String,
        /// The reason, for people.
        pub message: String,
    }

    /// The chosen version and image.
    pub struct Provider {
        /// The version of the cloud-controller-manager.
        pub version: String,
        /// The image.
        pub image: String,
        /// The reason for this version.
        pub reason: String,
        /// The digest of an external provider's package, `sha256:HEX`. Absent if the provider came with the operator.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub digest: String,
        /// The exceptions to the rules for external providers that the installation's policy allows this provider.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub policy_exceptions: Vec<String>,
    }

    /// The cluster.
    pub struct Cluster {
        /// The effective version of Kubernetes, such as `1.35`: the lowest of the control plane.
        pub kubernetes: String,
        /// The distribution of Kubernetes.
        pub distribution: String,
        /// The number of control-plane nodes.
        pub control_plane_nodes: u32,
    }

    /// The nodes.
    pub struct Nodes {
        /// The number of nodes.
        pub total: u32,
        /// The number of nodes that wait for their initialization.
        pub uninitialized: u32,
        /// The nodes that have waited for long, the longest wait first. At most 32.
        pub waiting: Vec<WaitingNode>,
        /// The nodes whose machines are gone, according to the Events of the cloud-controller-manager: it has tried to delete them in the
        /// last ten minutes, without the permission. At most a hundred.
        pub gone: Vec<String>,
    }

    /// The pods.
    pub struct Workload {
        /// `Deployment` or `DaemonSet`.
        pub kind: String,
        /// The desired number of pods.
        pub desired: u32,
        /// The number of ready pods.
        pub ready: u32,
    }
}

/// A condition, as Kubernetes writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the object that the condition describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// The time of the last change of the status.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub last_transition_time: String,
    /// One word for programs.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}
