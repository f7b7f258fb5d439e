//! The input of a diagnosis (pure): the nodes of a cluster, and the state of its cloud-controller-managers.
//!
//! A source that could not be read is `None`, and is listed in [`Evidence::unseen`]. Untrusted text (logs, messages of
//! the API server and of kubelets) is already masked and free of control characters here.

use std::collections::BTreeMap;

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
    /// The time when the evidence was read.
    pub now: Timestamp,
    /// Whether the cluster is known to be OpenShift, where a cloud-controller-manager needs no `CloudControllerManager`.
    pub has_infrastructure: bool,
    /// Every node.
    pub nodes: Vec<Node>,
    /// The cloud-controller-managers that the operator has installed or should have installed.
    pub ccms: Vec<CcmEvidence>,
    /// Whether further cloud-controller-managers may exist, because the search for them failed.
    pub may_have_more_ccms: bool,
    /// Pods of other cloud-controller-managers, found by image and name; `None` if they may not be listed.
    pub other_pods: Option<Vec<Pod>>,
    /// Every lease whose name contains `cloud-controller-manager`; `None` if leases may not be listed.
    pub leases: Option<Vec<Lease>>,
    /// Events about nodes; `None` if they may not be listed.
    pub events: Option<Vec<NodeEvent>>,
    /// The nodes that a `CloudControllerManager` lists as deleted in its status, each with the name of that object.
    pub deleted: Vec<(String, Deleted)>,
    /// The message of each `CloudControllerManager` that is not ready, by its name.
    pub not_ready: BTreeMap<String, String>,
    /// The sources that could not be read.
    pub unseen: Vec<Unseen>,
}

impl Evidence {
    /// Whether the cluster is OpenShift, where no cloud-controller-manager belongs to a `CloudControllerManager`.
    pub fn is_openshift(&self) -> bool {
        self.has_infrastructure || self.ccms.iter().any(|ccm| ccm.identity.name.is_empty())
    }
}

/// A source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The source, such as `the log of pod kube-system/aws-cloud-controller-manager-x`.
    pub what: String,
    /// The reason for the failure.
    pub why: String,
    /// The command that shows the source.
    pub command: String,
}

/// The value, or the reason why it could not be read.
pub type ReadResult<T> = Result<T, Unseen>;

/// A cloud-controller-manager.
#[derive(Clone, Debug, Default)]
pub struct CcmEvidence {
    /// The identity.
    pub identity: CcmIdentity,
    /// Whether the Deployment or DaemonSet exists; `None` if it could not be read.
    pub is_installed: Option<bool>,
    /// The creation time of the workload, RFC 3339; empty if unknown.
    pub installed: String,
    /// The pods; `None` if they may not be listed.
    pub pods: Option<Vec<Pod>>,
    /// The pods of the node manager, for clouds with one (Azure); otherwise `None`.
    pub node_manager: Option<Vec<Pod>>,
    /// Events about the workload and the pods that show why pods cannot be created or started, such as `FailedCreatePodSandBox`.
    pub pod_events: Vec<String>,
    /// Missing permissions, such as `update nodes`; `None` if the caller may not check them.
    pub missing_permissions: Option<Vec<String>>,
    /// The last log lines of the leader or of the only pod, oldest first; `None` if they may not be read.
    pub log: Option<Vec<String>>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The node that the pod runs on; empty while the pod is not scheduled.
    pub node: String,
    /// Whether the pod uses the host network. If so, its host name is the name of the node.
    pub is_on_host_network: bool,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Whether the pod is ready.
    pub is_ready: bool,
    /// Whether the pod is being deleted. The pod runs until its kubelet has stopped it.
    pub is_terminating: bool,
    /// The creation time, RFC 3339.
    pub created: String,
    /// The number of container restarts.
    pub restarts: u32,
    /// The reason why a container waits, such as `CrashLoopBackOff`, and the message.
    pub waiting: Option<(String, String)>,
    /// The reason why the last run of a container ended, and the end of its log.
    pub terminated: Option<(String, String)>,
    /// The scheduler's message if the pod cannot be scheduled.
    pub unschedulable: Option<String>,
    /// The controllers that the `--controllers` argument enables; `None` without the argument.
    pub controllers: Option<Vec<Controller>>,
    /// The name of the lease: `--leader-elect-resource-name`, or the default.
    pub lease_name: String,
}

impl Pod {
    /// Returns the namespace and the name, for people.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A leader election lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The holder, `<host name>_<uuid>`; empty if there is none.
    pub holder: String,
    /// The time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// The validity of the lease without a renewal, in seconds.
    pub duration_seconds: i64,
}

impl Lease {
    /// Whether this is the lease of the cloud-controller-manager `identity`.
    pub fn is_of(&self, identity: &CcmIdentity) -> bool {
        (&self.namespace, &self.name) == (&identity.namespace, &identity.lease_name)
    }

    /// Whether the lease has a holder that still renews it. The clocks may differ by at most `skew` seconds.
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
    /// The unique id of the node; some components write the name instead.
    pub uid: String,
    /// The reason, such as `DeletingNodeFailed`.
    pub reason: String,
    /// The reporting component.
    pub component: String,
    /// The message.
    pub message: String,
    /// The time of the last repetition.
    pub last: Option<Timestamp>,
}
