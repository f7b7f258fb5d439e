//! The input of a diagnosis (pure): the nodes of a cluster, and the state of its cloud-controller-managers.
//!
//! Everything that could not be read is `None`, and is listed in [`Evidence::unseen`]. Texts of others (logs, messages
//! of the API server and of kubelets) are masked and free of control characters as soon as they are here.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::status::Deleted,
    facts::ccm::Controller,
    nodes::{identity::CcmIdentity, node::Node},
};

/// The evidence of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The time of reading.
    pub now: Timestamp,
    /// Whether this is known to be OpenShift, where a cloud-controller-manager needs no `CloudControllerManager`.
    pub has_infrastructure: bool,
    /// Every node.
    pub nodes: Vec<Node>,
    /// The cloud-controller-managers that the operator has, or should have, installed.
    pub ccms: Vec<CcmEvidence>,
    /// Whether other cloud-controller-managers may exist that could not be looked for.
    pub may_have_more_ccms: bool,
    /// Pods of other cloud-controller-managers, by their images and names; `None` if they may not be listed.
    pub other_pods: Option<Vec<Pod>>,
    /// Every lease whose name contains `cloud-controller-manager`; `None` if leases may not be listed.
    pub leases: Option<Vec<Lease>>,
    /// Events about nodes; `None` if they may not be listed.
    pub events: Option<Vec<NodeEvent>>,
    /// The nodes that the status of a `CloudControllerManager` lists as deleted, each with the name of that.
    pub deleted: Vec<(String, Deleted)>,
    /// The sources that could not be read.
    pub unseen: Vec<Unseen>,
}

impl Evidence {
    /// Whether the cluster is OpenShift. There no cloud-controller-manager belongs to a `CloudControllerManager`.
    pub fn is_openshift(&self) -> bool {
        self.has_infrastructure || self.ccms.iter().any(|ccm| ccm.identity.name.is_empty())
    }
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The source, such as `the log of pod kube-system/aws-cloud-controller-manager-x`.
    pub what: String,
    /// Why it could not be read.
    pub why: String,
    /// The command that would show it.
    pub command: String,
}

/// What was read, or why it could not be read.
pub type ReadResult<T> = Result<T, Unseen>;

/// A cloud-controller-manager.
#[derive(Clone, Debug, Default)]
pub struct CcmEvidence {
    /// Where it was looked for.
    pub identity: CcmIdentity,
    /// Whether the Deployment or DaemonSet exists; `None` if that could not be read.
    pub is_installed: Option<bool>,
    /// The time when the workload was created, RFC 3339; empty if unknown.
    pub installed: String,
    /// Its pods; `None` if they may not be listed.
    pub pods: Option<Vec<Pod>>,
    /// The pods of its node manager, for clouds with one (Azure); `None` without a node manager.
    pub node_manager: Option<Vec<Pod>>,
    /// Events about its workload and its pods that tell why pods cannot be created or started, such as `FailedCreatePodSandBox`.
    pub pod_events: Vec<String>,
    /// Permissions that it needs and does not have, such as `update nodes`; `None` if that may not be asked.
    pub missing_permissions: Option<Vec<String>>,
    /// The last lines of the log of the pod that leads, or of the only one, oldest first; `None` if they may not be read.
    pub log: Option<Vec<String>>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The node that it is on; empty while it is on none.
    pub node: String,
    /// Whether the pod uses the network of the host. Then its host name is the name of the node.
    pub is_on_host_network: bool,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Whether the pod is ready.
    pub is_ready: bool,
    /// Whether the pod is being deleted. It runs until its kubelet has stopped it.
    pub is_terminating: bool,
    /// The time of its creation, RFC 3339.
    pub created: String,
    /// How often its containers were restarted.
    pub restarts: u32,
    /// Why a container waits, such as `CrashLoopBackOff`; with the message.
    pub waiting: Option<(String, String)>,
    /// How the last run of a container ended: its reason and the end of its log.
    pub terminated: Option<(String, String)>,
    /// Why it cannot be scheduled, as the scheduler says.
    pub unschedulable: Option<String>,
    /// The controllers that its argument `--controllers` turns on; `None` without the argument.
    pub controllers: Option<Vec<Controller>>,
    /// The lease that its arguments name: `--leader-elect-resource-name`, or the default.
    pub lease_name: String,
}

impl Pod {
    /// Its namespace and its name, for people.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A lease of leader election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The holder, `<host name>_<uuid>`; empty if there is none.
    pub holder: String,
    /// The time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// How long it is valid without a renewal, in seconds.
    pub duration_seconds: i64,
}

impl Lease {
    /// Whether this is the lease of the cloud-controller-manager `identity`.
    pub fn is_of(&self, identity: &CcmIdentity) -> bool {
        (&self.namespace, &self.name) == (&identity.namespace, &identity.lease_name)
    }

    /// Whether the lease has a holder that still renews it, for clocks that differ by at most this many seconds.
    pub fn is_held(&self, now: Timestamp, skew: i64) -> bool {
        let age = |renewed| now.duration_since(renewed).as_secs();
        let is_renewed = |renewed| age(renewed) <= self.duration_seconds + skew;
        !self.holder.is_empty() && self.renewed.is_some_and(is_renewed)
    }
}

/// An Event about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct NodeEvent {
    /// The name of the node.
    pub node: String,
    /// The unique id of the node that it is about; some components write the name instead.
    pub uid: String,
    /// Its reason, such as `DeletingNodeFailed`.
    pub reason: String,
    /// The component that reports it.
    pub component: String,
    /// Its message.
    pub message: String,
    /// When it was last repeated.
    pub last: Option<Timestamp>,
}
