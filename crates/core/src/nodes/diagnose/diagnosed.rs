//! The state of a cloud-controller-manager during the diagnosis of its nodes.

use std::collections::BTreeSet;

use super::found;
use crate::nodes::{
    CLOCK_SKEW, cause,
    diagnosis::{Finding, Observation},
    evidence::{CcmEvidence, Evidence, Lease, Pod},
    identity::CcmIdentity,
    log::{Attempt, Log},
    node::Node,
    observed::holds,
    reason::Reason,
};

/// A cloud-controller-manager with its findings.
pub(super) struct CcmContext<'a> {
    pub(super) ccm: &'a CcmEvidence,
    /// The name in messages.
    pub(super) name: String,
    pub(super) log: Log,
    /// Whether the cloud-controller-manager or its node manager initializes nodes.
    pub(super) initializes: bool,
    /// The findings that prevent any initialization.
    pub(super) findings: Vec<Finding>,
    /// The observations behind these findings.
    pub(super) observations: Vec<Observation>,
    /// Whether the cloud-controller-manager finds none of its nodes in the cloud.
    pub(super) is_wrong_scope: bool,
    /// Whether any of its nodes has a zone.
    pub(super) has_zone: bool,
    /// The regions of its initialized nodes.
    pub(super) regions: BTreeSet<String>,
}

impl<'a> CcmContext<'a> {
    pub(super) fn identity(&self) -> &'a CcmIdentity {
        &self.ccm.identity
    }

    pub(super) fn find(&mut self, reason: Reason, evidence: &str, cause: String) {
        if !self.findings.iter().any(|known| known.reason == reason) {
            self.findings.push(found(reason, evidence, cause));
        }
    }

    pub(super) fn observe(&mut self, what: String, showed: impl Into<String>) {
        self.observations.push(Observation { what, showed: showed.into(), was_seen: true });
    }

    pub(super) fn lease<'b>(&self, evidence: &'b Evidence) -> Option<&'b Lease> {
        evidence.leases.iter().flatten().find(|lease| lease.is_of(self.identity()))
    }

    /// Whether a pod holds and renews the lease.
    pub(super) fn is_held_by(&self, evidence: &Evidence, pod: &Pod) -> bool {
        self.lease(evidence).is_some_and(|lease| is_held(lease, evidence) && holds(lease, pod))
    }

    /// Compares the nodes: a cloud that knows none of them is the wrong cloud.
    pub(super) fn compare(&mut self, nodes: &[&Node]) {
        let (waiting, done): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| node.is_uninitialized());
        let done: Vec<&Node> = done.into_iter().filter(|node| !node.provider_id.is_empty()).collect();
        self.has_zone = done.iter().any(|node| !node.zone.is_empty());
        self.regions = done.iter().map(|node| node.region.clone()).filter(|region| !region.is_empty()).collect();
        let ends: Vec<&Attempt> = waiting.iter().filter_map(|node| self.log.attempts.get(&node.name)).collect();
        let is_missing = |end: &&Attempt| matches!(end, Attempt::Failed(error) if matches!(cause::of_attempt(error), Reason::InstanceNotFound | Reason::WrongScope));
        let all = done.is_empty() && ends.len() > 1 && ends.iter().all(is_missing);
        self.is_wrong_scope = all || self.other_region().is_some();
        let what = format!("all nodes of {} or some", self.name);
        self.observe(what, format!("{} of {} wait", waiting.len(), nodes.len()));
    }

    /// Returns the region of the configuration and the regions of the nodes, if they differ.
    pub(super) fn other_region(&self) -> Option<(String, String)> {
        let own = self.identity().region.as_ref()?;
        let differs = !self.regions.is_empty() && !self.regions.contains(own);
        differs.then(|| (own.clone(), self.regions.iter().cloned().collect::<Vec<_>>().join(", ")))
    }
}

/// Whether the lease is held, allowing for clock skew.
pub(super) fn is_held(lease: &Lease, evidence: &Evidence) -> bool {
    lease.is_held(evidence.now, CLOCK_SKEW.as_secs())
}
