//! The reasons why a node waits, or is about to be deleted (pure). Each has a page in docs/nodes.md, which `explain`
//! prints.

use std::fmt;

/// Declares the reasons: id, name, title.
macro_rules! reasons {
    ($($id:ident $name:ident $title:literal)+) => {
        /// A reason. Its id is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $(
                #[doc = $title]
                $name,
            )+
        }

        impl Reason {
            /// Every reason, in the order of the ids.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The id, such as `N07`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($id),)+
                }
            }

            /// The name, as the reason of a condition or an Event: one word.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// The name for people.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }
        }
    };
}

reasons! {
    N00 NotInstalled "no cloud-controller-manager is installed"
    N01 CrashLoop "the cloud-controller-manager does not start, or crashes"
    N02 NoLeader "no pod of the cloud-controller-manager leads"
    N03 ControllerOff "the controller that initializes nodes is off"
    N04 Unschedulable "the cloud-controller-manager cannot be scheduled"
    N05 ApiServerUnreachable "the cloud-controller-manager cannot reach the API server"
    N06 CloudUnreachable "the cloud-controller-manager cannot reach the cloud"
    N07 CredentialsRefused "the cloud refuses the credentials"
    N08 InstanceNotFound "the cloud has no instance for the node"
    N09 WrongScope "the cloud has no instance for any node"
    N10 NodeIPNotFound "the cloud does not know the address of the node"
    N11 NoProviderID "the cloud has answered without an id"
    N12 OtherCloudProviderID "the providerID is of another cloud"
    N13 Forbidden "the cloud-controller-manager lacks a permission in the cluster"
    N14 NetworkNotReady "the network plugin is not ready"
    N15 KubeletNotExternal "the kubelet runs without --cloud-provider=external"
    N16 TwoCCMs "two cloud-controller-managers act on the same nodes"
    N17 AdmissionDenied "an admission webhook or policy denies the update of the node"
    N18 Throttled "the cloud limits the rate of requests"
    N19 OtherTaint "the taint is of another program"
    N20 ExistenceUnknown "the cloud does not say whether the instance exists"
    N21 NodeDeleted "the cloud-controller-manager has deleted the node"
    N22 DeletionRefused "the cloud-controller-manager may not delete the node"
    N23 InstanceStopped "the instance is shut down"
    N24 NoRoute "there is no route to the pods of the node"
    N25 NoPodCIDR "the node has no subnet for pods"
    N26 NoZone "the node has no zone or region"
    N27 NodeManagerNotReady "the node manager on the node does not run"
    N28 CauseUnknown "the cause is not known"
    N29 PodStuckTerminating "the pod of the cloud-controller-manager is stuck in Terminating"
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.name())
    }
}
