//! The fix of each reason, in one sentence (pure). Its page in docs/nodes.md has the details.

use crate::nodes::reason::Reason;

/// The order of fixing: without the first, the others cannot be fixed, or come back.
const ORDER: [Reason; 30] = [
    Reason::NodeDeleted,
    Reason::KubeletNotExternal,
    Reason::OtherCloudProviderID,
    Reason::NotInstalled,
    Reason::PodStuckTerminating,
    Reason::Unschedulable,
    Reason::NetworkNotReady,
    Reason::ApiServerUnreachable,
    Reason::Forbidden,
    Reason::CrashLoop,
    Reason::NoLeader,
    Reason::ControllerOff,
    Reason::NodeManagerNotReady,
    Reason::TwoCCMs,
    Reason::CloudUnreachable,
    Reason::CredentialsRefused,
    Reason::Throttled,
    Reason::WrongScope,
    Reason::InstanceNotFound,
    Reason::NoProviderID,
    Reason::NodeIPNotFound,
    Reason::AdmissionDenied,
    Reason::CauseUnknown,
    Reason::ExistenceUnknown,
    Reason::InstanceStopped,
    Reason::DeletionRefused,
    Reason::NoPodCIDR,
    Reason::NoRoute,
    Reason::NoZone,
    Reason::OtherTaint,
];

impl Reason {
    /// Its place in the order of fixing.
    pub fn rank(self) -> usize {
        ORDER.iter().position(|reason| *reason == self).unwrap_or(ORDER.len())
    }

    /// What to do.
    pub fn fix(self) -> &'static str {
        match self {
            Self::NotInstalled => {
                "Create a CloudControllerManager object for the cloud, or fix what keeps its pods from being created"
            }
            Self::CrashLoop => "Fix what the last words of its log name: configuration, credentials or a flag",
            Self::NoLeader => "Remove the other cloud-controller-manager, or give this one a lease of its own",
            Self::ControllerOff => "Set spec.controllers.cloudNode to Enabled",
            Self::Unschedulable => "Let its pods tolerate the taints of a node that fits, by spec.placement",
            Self::ApiServerUnreachable => {
                "Give it an address of the API server that its node reaches, by spec.placement.apiServer"
            }
            Self::CloudUnreachable => {
                "Let its node resolve and reach the API of the cloud: DNS, proxy, certificates, firewall"
            }
            Self::CredentialsRefused => {
                "Correct the Secret with the credentials, or give their account the permissions that are missing"
            }
            Self::InstanceNotFound => {
                "Make the name of the node and of its instance equal, or start its kubelet with --provider-id"
            }
            Self::WrongScope => "Correct the region, project, account or datacenter in the configuration of the cloud",
            Self::NodeIPNotFound => {
                "Correct --node-ip of its kubelet, or the networks in the configuration of the cloud"
            }
            Self::NoProviderID => {
                "Check that the configuration of the cloud selects the instance and that it exists under this name"
            }
            Self::OtherCloudProviderID => {
                "Delete the Node and restart its kubelet without the other cloud, or leave the node as it is"
            }
            Self::Forbidden => "Restore the role of its ServiceAccount",
            Self::NetworkNotReady => {
                "Fix the network plugin; a cloud-controller-manager that waits for it belongs on the network of the host"
            }
            Self::KubeletNotExternal => {
                "Start its kubelet with --cloud-provider=external and let it register again; if it runs so, put the taint back"
            }
            Self::TwoCCMs => "Remove one of the two, or turn its controller cloud-node off",
            Self::AdmissionDenied => {
                "Exempt the ServiceAccount of the cloud-controller-manager from the webhook or policy"
            }
            Self::Throttled => "Wait; find who else uses up the rate limit of the account",
            Self::OtherTaint => "Ask the program that has put the taint there",
            Self::ExistenceUnknown => {
                "Fix the error of the cloud: until then the node is neither deleted nor marked as stopped"
            }
            Self::NodeDeleted => {
                "If its instance exists, correct the configuration or the credentials first, then restart its kubelet"
            }
            Self::DeletionRefused => {
                "If its instance is gone, delete the Node; otherwise correct the configuration or the credentials"
            }
            Self::InstanceStopped => "Start the instance, or delete the Node",
            Self::NoRoute => {
                "Fix what the Event names: the route table, a quota, or the permissions of the credentials"
            }
            Self::NoPodCIDR => "Let exactly one controller allocate subnets for pods, with enough of them",
            Self::NoZone => "Fix the zone or its tags in the cloud, then put the taint on the node again",
            Self::NodeManagerNotReady => "Fix the pod of the node manager on this node",
            Self::CauseUnknown => {
                "Read the log of the cloud-controller-manager, or retry with `ccm-operator nodes retry NODE`"
            }
            Self::PodStuckTerminating => {
                "Delete the pod by force (`kubectl delete pod --force --grace-period=0`), or its Node if the machine is gone for good: a k3s \
                 or RKE2 server leaves etcd with its Node"
            }
        }
    }

    /// What to do on OpenShift, where there is no `CloudControllerManager` to change.
    pub fn fix_on_openshift(self) -> Option<&'static str> {
        let fix = match self {
            Self::NotInstalled => {
                "Read why in `kubectl describe clusteroperator cloud-controller-manager`, or fix what keeps its pods from being created"
            }
            Self::NoLeader => "Remove the other cloud-controller-manager, or give that one a lease of its own",
            Self::ControllerOff => {
                "Let the operator restore its arguments (`ccm-operator status` shows why it has not), or correct the external provider"
            }
            Self::Unschedulable => {
                "Make a node of the control plane fit: remove the taint, or free the port or the resources that the scheduler names"
            }
            Self::ApiServerUnreachable => {
                "Let its node reach status.apiServerInternalURI of Infrastructure/cluster: DNS, load balancer, firewall"
            }
            Self::TwoCCMs => "Remove the other one, or turn its controller cloud-node off",
            _ => return None,
        };
        Some(fix)
    }

    /// What to do about a server, a node of the control plane or of etcd, where the advice for other nodes would cost it its
    /// membership of etcd, or its labels.
    pub fn fix_of_server(self) -> Option<&'static str> {
        let fix = match self {
            Self::OtherCloudProviderID => {
                "Leave this server as it is, or let it register again, one server at a time: a k3s or RKE2 server whose Node is deleted \
                 leaves etcd"
            }
            Self::KubeletNotExternal => {
                "Start its kubelet with --cloud-provider=external and put the taint on its Node; do not delete the Node of this server: a \
                 k3s or RKE2 server would leave etcd"
            }
            Self::InstanceStopped => {
                "Start the instance of this server; delete its Node only if it never comes back: a k3s or RKE2 server leaves etcd with it"
            }
            Self::DeletionRefused => {
                "Correct the configuration or the credentials; delete the Node of this server only if its instance is gone: a k3s or RKE2 \
                 server leaves etcd with it"
            }
            _ => return None,
        };
        Some(fix)
    }
}
