//! The input of the checks (pure).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::pods::ObservedPod;
use crate::{
    facts::ccm::Ccm,
    nodes::{
        evidence::{Lease, ReadResult, Unseen},
        identity::CcmIdentity,
        node::Node,
    },
    plan::kubernetes::validation::Validation,
    provider::{catalog::Catalog, kubernetes::KubernetesProvider},
};

/// The reader of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The operator, which cannot use an input that it cannot read.
    Operator,
    /// The user of a command, whose permissions may differ from those of the operator.
    Caller,
}

/// The input of the checks: a `CloudControllerManager` and its cluster.
#[derive(Clone, Debug)]
pub struct CheckInput<'a> {
    /// The time of the read.
    pub now: Timestamp,
    /// The reader of the evidence.
    pub by: Reader,
    /// Every provider.
    pub catalog: &'a Catalog,
    /// The checked `CloudControllerManager`.
    pub ccm: &'a Ccm,
    /// The requested provider.
    pub provider: &'a KubernetesProvider,
    /// The validation result of its inputs.
    pub validation: &'a Validation,
    /// Whether its Deployment or DaemonSet exists.
    pub is_installed: ReadResult<bool>,
    /// The other `CloudControllerManager`s.
    pub others: ReadResult<Vec<Other<'a>>>,
    /// Every node.
    pub nodes: ReadResult<&'a [Node]>,
    /// The pods, leases and namespaces of the cluster.
    pub snapshot: &'a Snapshot,
    /// The missing permissions of the operator, such as `create deployments.apps in namespace kube-system`.
    pub missing_permissions: ReadResult<Vec<String>>,
    /// The known bindings of other managers that allow its ServiceAccount to delete every node, in the format of
    /// [`permissions::Bound`](super::permissions::Bound); `None` if the account lacks the permission.
    pub deletion_permission: ReadResult<Option<Vec<String>>>,
}

/// Another `CloudControllerManager`.
#[derive(Clone, Debug)]
pub struct Other<'a> {
    /// The requested spec.
    pub ccm: &'a Ccm,
    /// Whether it takes precedence in a conflict.
    pub goes_first: bool,
    /// The running spec, if it takes precedence over the checked object.
    pub runs: Option<Ccm>,
}

/// The cluster state that several `CloudControllerManager`s share.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The namespaces from which pods and leases were read; an empty name means all.
    pub places: BTreeSet<String>,
    /// Pods of cloud-controller-managers, node managers and kube-controller-manager, and host-network pods with ports.
    pub pods: Vec<ObservedPod>,
    /// The reason why more pods may exist.
    pub unseen_pods: Option<Unseen>,
    /// Whether a kube-proxy pod exists.
    pub has_kube_proxy: bool,
    /// Leases of cloud-controller-managers.
    pub leases: Vec<Lease>,
    /// The reason why more leases may exist.
    pub unseen_leases: Option<Unseen>,
    /// The live namespaces of the `CloudControllerManager`s, by name; null for a namespace that does not exist.
    pub namespaces: BTreeMap<String, ReadResult<Value>>,
}

impl CheckInput<'_> {
    /// Returns the nodes that the pods run on: the control-plane nodes, or all nodes if no control-plane node exists, with the labels of
    /// `spec.placement.nodeSelector`.
    pub(super) fn hosts<'a>(&self, nodes: &'a [Node]) -> Vec<&'a Node> {
        let is_any = self.ccm.cluster.control_plane_nodes == 0;
        let selector = &self.ccm.spec.placement.node_selector;
        let is_selected = |node: &&Node| selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        nodes.iter().filter(|node| is_any || node.is_control_plane).filter(is_selected).collect()
    }

    /// Returns the location of the pods and the lease of a `CloudControllerManager`.
    pub(super) fn identity(&self, ccm: &Ccm) -> Option<CcmIdentity> {
        CcmIdentity::kubernetes(self.catalog.kubernetes_of(&ccm.spec.provider).ok()?, ccm)
    }
}
