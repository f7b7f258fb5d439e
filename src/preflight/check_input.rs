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
    provider::{catalog::Catalog, kubernetes::Kubernetes},
};

/// The reader of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The operator: what it cannot read it cannot use.
    Operator,
    /// The user of a command, who may have other permissions than the operator.
    Caller,
}

/// The input of the checks: a `CloudControllerManager` and its cluster.
#[derive(Clone, Debug)]
pub struct CheckInput<'a> {
    /// The time of reading.
    pub now: Timestamp,
    /// The reader of the evidence.
    pub by: Reader,
    /// Every provider.
    pub catalog: &'a Catalog,
    /// The checked `CloudControllerManager`.
    pub ccm: &'a Ccm,
    /// The provider that it names.
    pub provider: &'a Kubernetes,
    /// The result of validating its inputs.
    pub validation: &'a Validation,
    /// Whether its Deployment or DaemonSet exists.
    pub is_installed: ReadResult<bool>,
    /// The other `CloudControllerManager`s.
    pub others: ReadResult<Vec<Other<'a>>>,
    /// Every node.
    pub nodes: ReadResult<&'a [Node]>,
    /// The pods, leases and namespaces of the cluster.
    pub snapshot: &'a Snapshot,
    /// The permissions that the operator needs and lacks, such as `create deployments.apps in namespace kube-system`.
    pub missing_permissions: ReadResult<Vec<String>>,
    /// The bindings by which others let its ServiceAccount delete every node, as far as they were found, each as
    /// [`permissions::Bound`](super::permissions::Bound) writes it; `None` if it may not.
    pub deletion_permission: ReadResult<Option<Vec<String>>>,
}

/// Another `CloudControllerManager`.
#[derive(Clone, Debug)]
pub struct Other<'a> {
    /// Its spec.
    pub ccm: &'a Ccm,
    /// Whether it takes precedence if the two exclude each other.
    pub goes_first: bool,
    /// Its spec as it runs now, if the checked one may not take over what runs.
    pub runs: Option<Ccm>,
}

/// The parts of a cluster that are read once for several `CloudControllerManager`s.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The namespaces in which pods and leases were looked for; an empty name stands for all.
    pub places: BTreeSet<String>,
    /// Pods of cloud-controller-managers and node managers, those on the network of the host with ports, and kube-controller-manager's.
    pub pods: Vec<ObservedPod>,
    /// Why there may be more pods.
    pub unseen_pods: Option<Unseen>,
    /// Whether a pod of kube-proxy is among them.
    pub has_kube_proxy: bool,
    /// Leases of cloud-controller-managers.
    pub leases: Vec<Lease>,
    /// Why there may be more leases.
    pub unseen_leases: Option<Unseen>,
    /// The namespaces of the `CloudControllerManager`s, by name, as they are; null for one that does not exist.
    pub namespaces: BTreeMap<String, ReadResult<Value>>,
}

impl CheckInput<'_> {
    /// The nodes that its pods run on: those of the control plane, or all where there are none.
    pub(super) fn hosts<'a>(&self, nodes: &'a [Node]) -> Vec<&'a Node> {
        let is_any = self.ccm.cluster.control_plane_nodes == 0;
        nodes.iter().filter(|node| is_any || node.is_control_plane).collect()
    }

    /// Where the pods and the lease of a `CloudControllerManager` are.
    pub(super) fn identity(&self, ccm: &Ccm) -> Option<CcmIdentity> {
        CcmIdentity::kubernetes(self.catalog.kubernetes_of(&ccm.spec.provider).ok()?, ccm)
    }
}
