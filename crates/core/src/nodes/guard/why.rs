//! The reasons not to delete a node, as text for people (pure).

use k8s_openapi::jiff::Timestamp;

use super::{MIN_LEADING_TIME, MOST};
use crate::nodes::node::{ALLOW_CONTROL_PLANE, KEEP};

/// The reason why a node stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepReason {
    /// The node belongs to another cloud, or to none.
    #[error("its providerID is not of this cloud ({})", .0.join(", "))]
    OtherCloudProviderID(Vec<String>),
    /// The labels of the node do not match the selector.
    #[error("its labels do not match spec.nodeDeletion.selector")]
    NotSelected,
    /// An annotation keeps the node.
    #[error("it has the annotation {KEEP}")]
    Kept,
    /// The node waits for its initialization: the cloud may not know its machine yet.
    #[error("it is not initialized")]
    Uninitialized,
    /// The node is ready.
    #[error("it is ready")]
    Ready,
    /// The kubelet has not reported.
    #[error("its kubelet has never reported")]
    NeverReported,
    /// The node belongs to the control plane or etcd, and no annotation allows its deletion.
    #[error("it belongs to the control plane or etcd, and lacks the annotation {ALLOW_CONTROL_PLANE}")]
    ControlPlane,
    /// No other node of the control plane is ready.
    #[error("no other node of the control plane is ready")]
    LastControlPlane,
    /// The name, uid or time has an invalid format.
    #[error("its name, uid or the time of its condition Ready cannot be read")]
    Unreadable,
    /// The node has not been unready for long enough.
    #[error("it must not have been ready for {0} s (nodeDeletion.minNotReadySeconds): {1}")]
    Young(u32, Timestamp),
    /// The time of the Event is in the future.
    #[error("the Event about it is in the future: the clocks of the cluster's machines differ")]
    ClocksDiffer,
    /// The cloud-controller-manager has not tried to delete the node since it has been unready for long enough.
    #[error("the cloud-controller-manager has not tried to delete it since it exceeded minNotReadySeconds")]
    NotAskedFor,
    /// Nothing may be confirmed now.
    #[error("{0}")]
    Obstacle(String),
    /// The leader is unknown, or is not a pod of the current rollout. Holds the reason.
    #[error("since when the cloud-controller-manager has led is not known: {0}")]
    NoLeader(String),
    /// The leader has not led for long enough.
    #[error(
        "the cloud-controller-manager must have led for {minutes} minutes without a change: {0}",
        minutes = MIN_LEADING_TIME.as_mins()
    )]
    Unsettled(Timestamp),
    /// No node of the cloud is ready and initialized.
    #[error("no node of this cloud is ready and initialized: the cause may be the configuration or the network")]
    NoReadyNode,
    /// Too many of the cloud's nodes would be deleted.
    #[error(
        "{would} of {of} nodes would be deleted, and {may} may (nodeDeletion.maxPercent){}: check the account, the region \
         and the credentials",
        others(*kept)
    )]
    TooMany {
        /// The number of nodes that would be deleted.
        would: usize,
        /// The number of all nodes.
        of: usize,
        /// The number of nodes that may be deleted.
        may: usize,
        /// The number of further nodes that the cloud-controller-manager would delete but other rules keep.
        kept: usize,
    },
    /// The hourly limit is reached.
    #[error("nodeDeletion.maxPerHour allows {0} in an hour (at most {MOST})")]
    PerHour(usize),
    /// The list of the policy has its maximum length.
    #[error("too many nodes are confirmed at once: it follows when others are gone")]
    ListFull,
}

fn others(kept: usize) -> String {
    if kept == 0 { String::new() } else { format!("; {kept} more that it takes for gone are kept by other rules") }
}

impl KeepReason {
    /// Returns the reason as one word for programs, without the numbers in the message.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OtherCloudProviderID(_) => "OtherCloud",
            Self::NotSelected => "NotSelected",
            Self::Kept => "Kept",
            Self::Uninitialized => "Uninitialized",
            Self::Ready => "Ready",
            Self::NeverReported => "NeverReported",
            Self::ControlPlane => "ControlPlane",
            Self::LastControlPlane => "LastControlPlane",
            Self::Unreadable => "Unreadable",
            Self::Young(..) => "NotReadyTooShort",
            Self::ClocksDiffer => "ClocksDiffer",
            Self::NotAskedFor => "NotAskedFor",
            Self::Obstacle(_) => "Blocked",
            Self::NoLeader(_) => "NoLeader",
            Self::Unsettled(_) => "LeaderTooNew",
            Self::NoReadyNode => "NoReadyNode",
            Self::TooMany { .. } => "TooManyNodes",
            Self::PerHour(_) => "MaxPerHour",
            Self::ListFull => "ListFull",
        }
    }

    /// Whether the cause affects all nodes and not only this one.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::NoReadyNode | Self::TooMany { .. } | Self::ClocksDiffer)
    }
}
