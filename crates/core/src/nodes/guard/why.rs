//! Why a node is not deleted, as text for people (pure).

use k8s_openapi::jiff::Timestamp;

use super::{MOST, SETTLED};
use crate::nodes::node::{ALLOW_CONTROL_PLANE, KEEP};

/// Why a node stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is of another cloud, or of none.
    #[error("its providerID is not of this cloud ({})", .0.join(", "))]
    OtherCloudProviderID(Vec<String>),
    /// Its labels do not match the selector.
    #[error("its labels do not match spec.nodeDeletion.selector")]
    NotSelected,
    /// Somebody keeps it.
    #[error("it has the annotation {KEEP}")]
    Kept,
    /// It waits for its initialization: the cloud may not know its machine yet.
    #[error("it is not initialized")]
    Uninitialized,
    /// It is ready.
    #[error("it is ready")]
    Ready,
    /// Its kubelet has not reported.
    #[error("its kubelet has never reported")]
    NeverReported,
    /// It is of the control plane, and nobody has allowed that.
    #[error("it is of the control plane or etcd, and lacks the annotation {ALLOW_CONTROL_PLANE}")]
    ControlPlane,
    /// No other node of the control plane is ready.
    #[error("no other node of the control plane is ready")]
    LastControlPlane,
    /// Its name, uid or time is not as Kubernetes writes it.
    #[error("its name, uid or the time of its condition Ready cannot be read")]
    Unreadable,
    /// It has not been unready for long enough.
    #[error("it must not have been ready for {0} s (nodeDeletion.minNotReadySeconds): {1}")]
    Young(u32, Timestamp),
    /// The Event is in the future.
    #[error("the Event about it is in the future: the clocks of the cluster's machines differ")]
    ClocksDiffer,
    /// The cloud-controller-manager has not asked for it since it has been unready for long enough.
    #[error("the cloud-controller-manager has not asked for it since it has not been ready for long enough")]
    NotAskedFor,
    /// Nothing may be confirmed now.
    #[error("{0}")]
    Obstacle(String),
    /// Nothing is known of the pod that leads, or it is not of the current rollout: why.
    #[error("since when the cloud-controller-manager has led is not known: {0}")]
    NoLeader(String),
    /// The pod that leads has not led for long.
    #[error(
        "the cloud-controller-manager must have led for {minutes} minutes without a change: {0}",
        minutes = SETTLED.as_mins()
    )]
    Unsettled(Timestamp),
    /// No node of the cloud is ready and initialized.
    #[error("no node of this cloud is ready and initialized: the cause may be the configuration or the network")]
    NoReadyNode,
    /// Too many of the cloud's nodes would go.
    #[error(
        "{would} of {of} nodes would be deleted, and {may} may (nodeDeletion.maxPercent){}: check the account, the region \
         and the credentials",
        others(*kept)
    )]
    TooMany {
        /// How many would.
        would: usize,
        /// How many there are.
        of: usize,
        /// How many may.
        may: usize,
        /// How many more it asks for, which other rules keep.
        kept: usize,
    },
    /// Enough were deleted lately.
    #[error("{0} nodes may be deleted in an hour (nodeDeletion.maxPerHour, at most {MOST})")]
    PerHour(usize),
    /// The list of the policy is as long as it may be.
    #[error("too many nodes are confirmed at once: it follows when others are gone")]
    ListFull,
}

fn others(kept: usize) -> String {
    if kept == 0 { String::new() } else { format!("; {kept} more that it takes for gone are kept by other rules") }
}

impl Why {
    /// One word for programs. The same cause has the same word, whatever its numbers are.
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
