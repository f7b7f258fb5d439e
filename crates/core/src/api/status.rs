//! What the operator says about a `CloudControllerManager` (pure).

use serde::{Deserialize, Serialize};

/// Declares types of the status. Unknown fields are kept out: another version of the operator may have written them.
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
        /// The generation of this object that the status is about.
        pub observed_generation: i64,
        /// `Ready`, `Reconciling` and `Stalled` as kstatus reads them; `ConfigurationValid`, `CredentialsFound`,
        /// `VersionSupported`, `PreflightPassed`, `NodesInitialized` and `NodeDeletionSafe`.
        #[cfg_attr(test, schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
        pub conditions: Vec<Condition>,
        /// What was chosen for it.
        pub provider: Provider,
        /// What was found out about the cluster.
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
        /// Since when it waits.
        pub since: String,
        /// The cause.
        pub message: String,
    }

    /// The deletion of nodes.
    pub struct Deletion {
        /// `Disabled`, `Rehearsal` or `Enabled`; `Removed` for a cloud-controller-manager that is to go; empty while the
        /// specification cannot be read.
        pub phase: String,
        /// The nodes that the cloud-controller-manager would delete and may not, with the reason. At most 32.
        pub waiting: Vec<Candidate>,
        /// The nodes that it may delete, each as `NAME/UID`.
        pub confirmed: Vec<String>,
        /// The nodes that it was let delete within the last hour.
        pub deleted: Vec<Deleted>,
    }

    /// A node that was deleted.
    pub struct Deleted {
        /// Its name.
        pub node: String,
        /// Its unique id.
        pub uid: String,
        /// When that was seen.
        pub at: String,
    }

    /// A node that the cloud-controller-manager would delete.
    pub struct Candidate {
        /// Its name.
        pub node: String,
        /// Its unique id.
        pub uid: String,
        /// Since when it is not ready.
        pub since: String,
        /// Why it stays, one word for programs.
        pub reason: String,
        /// The same for people.
        pub message: String,
    }

    /// What was chosen.
    pub struct Provider {
        /// The version of the cloud-controller-manager.
        pub version: String,
        /// The image.
        pub image: String,
        /// Why this version.
        pub reason: String,
        /// The digest of the provider's package, `sha256:HEX`, if it is external; absent: it came with the operator.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub digest: String,
        /// What the installation's policy lets an external provider have beyond the rules for external providers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub policy_exceptions: Vec<String>,
    }

    /// The cluster.
    pub struct Cluster {
        /// The version of Kubernetes that decides, such as `1.35`: the lowest of the control plane.
        pub kubernetes: String,
        /// The distribution of Kubernetes.
        pub distribution: String,
        /// The number of control-plane nodes.
        pub control_plane_nodes: u32,
    }

    /// The nodes.
    pub struct Nodes {
        /// How many there are.
        pub total: u32,
        /// How many of them wait for their initialization.
        pub uninitialized: u32,
        /// Those that have waited for long, the longest first. At most 32.
        pub waiting: Vec<WaitingNode>,
        /// The nodes whose machines are gone, as the cloud-controller-manager says in its Events: it has tried to delete them in the
        /// last ten minutes, and has no permission to. At most a hundred.
        pub gone: Vec<String>,
    }

    /// The pods.
    pub struct Workload {
        /// `Deployment` or `DaemonSet`.
        pub kind: String,
        /// How many pods are wanted.
        pub desired: u32,
        /// How many are ready.
        pub ready: u32,
    }
}

/// A condition, as Kubernetes writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the object that it is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// When the status last changed.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub last_transition_time: String,
    /// One word for programs.
    pub reason: String,
    /// For people.
    pub message: String,
}
