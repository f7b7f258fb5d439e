//! One API server, and everything that talks to it (IO).

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::{
    controllers::{
        diagnoser::{Diagnoser, NodeCounts},
        events::Events,
        metrics::Metrics,
        observer::Observer,
    },
    nodes::identity::CcmIdentity,
};

/// One API server. Nothing outside of it keeps a client, so that a process may have several independent targets.
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) observer: Observer,
    pub(super) events: Events,
    pub(super) node_counts: NodeCounts,
    pub(super) diagnoser: Diagnoser,
    pub(super) metrics: Metrics,
}

impl Target {
    /// Creates a target that has not been observed yet. `set_id` marks our objects in it. Must be called in a runtime.
    pub(super) fn new(client: Client, set_id: String, metrics: Metrics) -> Self {
        Self {
            observer: Observer::new(client.clone(), set_id),
            events: Events::start(client.clone(), metrics.clone()),
            node_counts: NodeCounts::default(),
            diagnoser: Diagnoser::default(),
            metrics,
            client,
        }
    }

    pub(super) fn count_nodes(&mut self) {
        self.observer.watch_nodes();
        self.node_counts.update(&mut self.observer);
    }

    /// Determines why nodes wait for these cloud-controller-managers. Returns the time of the next call, even without a change.
    pub(super) fn diagnose(&mut self, identities: &[CcmIdentity]) -> Option<Instant> {
        self.count_nodes();
        let Self { client, observer, events, node_counts, diagnoser, .. } = self;
        diagnoser.pass((client, events), observer, node_counts, identities)
    }

    /// Updates the metrics of nodes and watches.
    pub(super) fn measure(&self) {
        let Self { observer, node_counts, diagnoser, metrics, .. } = self;
        let since = [node_counts.tainted, diagnoser.since()].into_iter().flatten().min();
        metrics.nodes.set(node_counts.total as u64);
        metrics.uninitialized.set(node_counts.uninitialized as u64);
        metrics.waiting_since.set(since.map_or(0, Timestamp::as_second));
        for (reason, count) in diagnoser.reasons() {
            metrics.waiting.of([reason]).set(count as u64);
        }
        metrics.set_watches(observer.watches.heard());
    }
}
