//! Why a node is not deleted, as text for people (pure).

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use super::{MOST, SETTLED};
use crate::nodes::node::{ALLOW_CONTROL_PLANE, KEEP};

/// Why a node stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is of another cloud, or of none.
    OtherCloudProviderID(Vec<String>),
    /// Its labels do not match the selector.
    NotSelected,
    /// Somebody keeps it.
    Kept,
    /// It waits for its initialization: the cloud may not know its machine yet.
    Uninitialized,
    /// It is ready.
    Ready,
    /// Its kubelet has not reported.
    NeverReported,
    /// It is of the control plane, and nobody has allowed that.
    ControlPlane,
    /// No other node of the control plane is ready.
    LastControlPlane,
    /// Its name, uid or time is not as Kubernetes writes it.
    Unreadable,
    /// It has not been unready for long enough.
    Young(u32, Timestamp),
    /// The Event is in the future.
    ClocksDiffer,
    /// The cloud-controller-manager has not asked for it since it has been unready for long enough.
    NotAskedFor,
    /// Nothing may be confirmed now.
    Obstacle(String),
    /// Nothing is known of the pod that leads, or it is not of the current rollout: why.
    NoLeader(String),
    /// The pod that leads has not led for long.
    Unsettled(Timestamp),
    /// No node of the cloud is ready and initialized.
    NoReadyNode,
    /// Too many of the cloud's nodes would go.
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
    PerHour(usize),
    /// The list of the policy is as long as it may be.
    ListFull,
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

    /// Whether the cause threatens all nodes and not only this one.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::NoReadyNode | Self::TooMany { .. } | Self::ClocksDiffer)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCloudProviderID(prefixes) => {
                write!(f, "its providerID is not of this cloud ({})", prefixes.join(", "))
            }
            Self::NotSelected => f.write_str("its labels do not match spec.nodeDeletion.selector"),
            Self::Kept => write!(f, "it has the annotation {KEEP}"),
            Self::Uninitialized => f.write_str("it is not initialized"),
            Self::Ready => f.write_str("it is ready"),
            Self::NeverReported => f.write_str("its kubelet has never reported"),
            Self::ControlPlane => {
                write!(f, "it is of the control plane or etcd, and lacks the annotation {ALLOW_CONTROL_PLANE}")
            }
            Self::LastControlPlane => f.write_str("no other node of the control plane is ready"),
            Self::Unreadable => f.write_str("its name, uid or the time of its condition Ready cannot be read"),
            Self::Young(seconds, until) => {
                write!(f, "it must not have been ready for {seconds} s (nodeDeletion.minNotReadySeconds): {until}")
            }
            Self::ClocksDiffer => {
                f.write_str("the Event about it is in the future: the clocks of the cluster's machines differ")
            }
            Self::NotAskedFor => f.write_str(
                "the cloud-controller-manager has not asked for it since it has not been ready for long enough",
            ),
            Self::Obstacle(why) => f.write_str(why),
            Self::NoLeader(why) => {
                write!(f, "since when the cloud-controller-manager has led is not known: {why}")
            }
            Self::Unsettled(until) => write!(
                f,
                "the cloud-controller-manager must have led for {} minutes without a change: {until}",
                SETTLED.as_mins()
            ),
            Self::NoReadyNode => f.write_str(
                "no node of this cloud is ready and initialized: the cause may be the configuration or the network",
            ),
            Self::TooMany { would, of, may, kept } => {
                write!(f, "{would} of {of} nodes would be deleted, and {may} may (nodeDeletion.maxPercent)")?;
                if *kept > 0 {
                    write!(f, "; {kept} more that it takes for gone are kept by other rules")?;
                }
                f.write_str(": check the account, the region and the credentials")
            }
            Self::PerHour(most) => {
                write!(f, "{most} nodes may be deleted in an hour (nodeDeletion.maxPerHour, at most {MOST})")
            }
            Self::ListFull => f.write_str("too many nodes are confirmed at once: it follows when others are gone"),
        }
    }
}
