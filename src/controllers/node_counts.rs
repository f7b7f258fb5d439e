//! Counts of the nodes, updated when a stored field of a node changes.

use k8s_openapi::jiff::Timestamp;

use crate::{api::placement::Distribution, controllers::observer::Observer};

/// The nodes in figures.
#[derive(Debug, Default)]
pub(super) struct NodeCounts {
    /// How many there are.
    pub(super) total: usize,
    /// How many have the taint of uninitialized nodes.
    pub(super) uninitialized: usize,
    /// Since when those wait that have the taint, of the first of them.
    pub(super) tainted: Option<Timestamp>,
    /// Since when those may wait that no cloud-controller-manager has initialized, the first of them first.
    pub(super) waiting: Vec<Timestamp>,
    /// The providerIDs of those that are not ready.
    pub(super) unready: Vec<String>,
    /// The version of the kubelet of each node of the control plane, and the distribution that it shows.
    pub(super) control_plane: Vec<(String, Option<Distribution>)>,
    /// Grows with each count.
    pub(super) revision: u64,
}

impl NodeCounts {
    /// Counts again, if a node has changed.
    pub(super) fn update(&mut self, observer: &mut Observer) {
        if !std::mem::take(&mut observer.nodes_changed) {
            return;
        }
        *self = Self { revision: self.revision + 1, ..Self::default() };
        for node in observer.nodes() {
            self.total += 1;
            self.uninitialized += usize::from(node.is_uninitialized());
            if node.is_uninitialized() {
                let created = node.created.parse::<Timestamp>().ok();
                self.tainted = [self.tainted, created].into_iter().flatten().min();
            }
            if node.may_wait() {
                self.waiting.extend(node.created.parse::<Timestamp>());
            }
            if !node.is_ready() {
                self.unready.push(node.provider_id.clone());
            }
            if node.is_control_plane {
                self.control_plane.push((node.kubelet, node.distribution));
            }
        }
        self.waiting.sort_unstable();
    }
}
