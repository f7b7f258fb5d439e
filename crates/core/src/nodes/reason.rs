//! The reasons why a node waits or is about to be deleted, each with a one-sentence fix (pure). Each reason has a page in docs/nodes.md
//! with the details, which `explain` prints.

use std::fmt;

/// Declares the reasons. Each entry has the id number, the name, the title and the fix. Optional are a fix for OpenShift, which has no
/// `CloudControllerManager` to change, and a fix for servers, whose Nodes must not be deleted like worker Nodes.
macro_rules! reasons {
    ($(
        $number:literal $name:ident $title:literal
            fix: $fix:literal $(openshift: $openshift:literal)? $(server: $server:literal)?
    )+) => {
        /// A reason. Its id is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(clippy::zero_prefixed_literal, reason = "the ids have two digits")]
        pub enum Reason {
            $(
                #[doc = $title]
                $name = $number,
            )+
        }

        impl Reason {
            /// Every reason, in the order of fixing: until a reason is fixed, later ones cannot be fixed or come back.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the id, such as `N07`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("N", stringify!($number)),)+
                }
            }

            /// Returns the name as one word, for the reason of a condition or an Event.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Returns the name for people.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }

            /// Returns the fix.
            pub fn fix(self) -> &'static str {
                match self {
                    $(Self::$name => $fix,)+
                }
            }

            /// Returns the fix on OpenShift, if it differs.
            pub fn fix_on_openshift(self) -> Option<&'static str> {
                let fix: &[_] = match self {
                    $(Self::$name => &[$($openshift)?],)+
                };
                fix.first().copied()
            }

            /// Returns the fix for a k3s or RKE2 server, if it differs.
            pub fn fix_of_server(self) -> Option<&'static str> {
                let fix: &[_] = match self {
                    $(Self::$name => &[$($server)?],)+
                };
                fix.first().copied()
            }
        }
    };
}

// In the order of fixing.
reasons! {
    21 NodeDeleted "the cloud-controller-manager has deleted the node"
        fix: "If its instance exists, correct the configuration or the credentials first, then restart its kubelet"
    15 KubeletNotExternal "the kubelet runs without --cloud-provider=external"
        fix: "Start its kubelet with --cloud-provider=external and let it register again; if it runs so, put the taint \
              back"
        server: "Start its kubelet with --cloud-provider=external and put the taint on its Node; do not delete the \
                 Node of this server: a k3s or RKE2 server would leave etcd"
    12 OtherCloudProviderID "the providerID is of another cloud"
        fix: "Delete the Node and restart its kubelet without the other cloud, or leave the node as it is"
        server: "Leave this server as it is, or let it register again, one server at a time: a k3s or RKE2 server \
                 whose Node is deleted is removed from etcd"
    00 NotInstalled "no cloud-controller-manager is installed"
        fix: "Create a CloudControllerManager object for the cloud; if there is one, see its status, or what keeps its \
              pods from being created"
        openshift: "Read why in `kubectl describe clusteroperator cloud-controller-manager`, or fix what keeps its \
                    pods from being created"
    29 PodStuckTerminating "the pod of the cloud-controller-manager is stuck in Terminating"
        fix: "Delete the pod by force (`kubectl delete pod --force --grace-period=0`), or its Node if the machine is \
              gone for good: a k3s or RKE2 server is removed from etcd with its Node"
    04 Unschedulable "the cloud-controller-manager cannot be scheduled"
        fix: "Let its pods tolerate the taints of a node that fits, by spec.placement"
        openshift: "Make a node of the control plane fit: remove the taint, or free the port or the resources that the \
                    scheduler names"
    14 NetworkNotReady "the network plugin is not ready"
        fix: "Fix the network plugin; a cloud-controller-manager that waits for it belongs on the network of the host"
    05 ApiServerUnreachable "the cloud-controller-manager cannot reach the API server"
        fix: "Give it an address of the API server that its node reaches, by spec.placement.apiServer"
        openshift: "Let its node reach status.apiServerInternalURI of Infrastructure/cluster: DNS, load balancer, \
                    firewall"
    13 Forbidden "the cloud-controller-manager lacks a permission in the cluster"
        fix: "Restore the role of its ServiceAccount"
    01 CrashLoop "the cloud-controller-manager does not start, or crashes"
        fix: "Fix what the last words of its log name: configuration, credentials or a flag"
    02 NoLeader "no pod of the cloud-controller-manager leads"
        fix: "Remove the other cloud-controller-manager, or give this one a lease of its own"
        openshift: "Remove the other cloud-controller-manager, or give that one a lease of its own"
    03 ControllerOff "the controller that initializes nodes is off"
        fix: "Set spec.controllers.cloudNode to Enabled"
        openshift: "Let the operator restore its arguments (`ccm-operator status` shows why it has not), or correct \
                    the external provider"
    27 NodeManagerNotReady "the node manager on the node does not run"
        fix: "Fix the pod of the node manager on this node"
    16 TwoCCMs "two cloud-controller-managers act on the same nodes"
        fix: "Remove one of the two, or turn its controller cloud-node off"
        openshift: "Remove the other one, or turn its controller cloud-node off"
    06 CloudUnreachable "the cloud-controller-manager cannot reach the cloud"
        fix: "Let its node resolve and reach the API of the cloud: DNS, proxy, certificates, firewall"
    07 CredentialsRefused "the cloud refuses the credentials"
        fix: "Correct the Secret with the credentials, or give their account the permissions that are missing"
    18 Throttled "the cloud limits the rate of requests"
        fix: "Wait; find who else uses up the rate limit of the account"
    09 WrongScope "the cloud has no instance for any node"
        fix: "Correct the region, project, account or datacenter in the configuration of the cloud"
    08 InstanceNotFound "the cloud has no instance for the node"
        fix: "Make the name of the node and of its instance equal, or start its kubelet with --provider-id"
    11 NoProviderID "the cloud has answered without an id"
        fix: "Check that the configuration of the cloud selects the instance and that it exists under this name"
    10 NodeIPNotFound "the cloud does not know the address of the node"
        fix: "Correct --node-ip of its kubelet, or the networks in the configuration of the cloud"
    17 AdmissionDenied "an admission webhook or policy denies the update of the node"
        fix: "Exempt the ServiceAccount of the cloud-controller-manager from the webhook or policy"
    28 CauseUnknown "the cause is not known"
        fix: "Read the log of the cloud-controller-manager, or retry with `ccm-operator nodes retry NODE`"
    20 ExistenceUnknown "the cloud does not say whether the instance exists"
        fix: "Fix the error of the cloud: until then the node is neither deleted nor marked as stopped"
    23 InstanceStopped "the instance is shut down"
        fix: "Start the instance, or delete the Node"
        server: "Start the instance of this server; delete its Node only if it never comes back: a k3s or RKE2 server \
                 is removed from etcd with it"
    22 DeletionRefused "the cloud-controller-manager may not delete the node"
        fix: "If its instance is gone, delete the Node; otherwise correct the configuration or the credentials"
        server: "Correct the configuration or the credentials; delete the Node of this server only if its instance is \
                 gone: a k3s or RKE2 server is removed from etcd with it"
    25 NoPodCIDR "the node has no subnet for pods"
        fix: "Let exactly one controller allocate subnets for pods, with enough of them"
    24 NoRoute "there is no route to the pods of the node"
        fix: "Fix what the Event names: the route table, a quota, or the permissions of the credentials"
    26 NoZone "the node has no zone or region"
        fix: "Fix the zone or its tags in the cloud, then put the taint on the node again"
    19 OtherTaint "the taint belongs to another program"
        fix: "Ask the program that has put the taint there"
}

impl Reason {
    /// Returns the position in the order of fixing.
    pub fn rank(self) -> usize {
        Self::ALL.iter().position(|reason| *reason == self).unwrap_or(Self::ALL.len())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.name())
    }
}
