//! Finds out why nodes wait or are about to be deleted (pure).
//!
//! The part that all nodes of a cloud-controller-manager share is diagnosed once. For each node the checks are ordered by their cost.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    grace::{ATTEMPT_GRACE, IMAGE_PULL_GRACE},
    nodes::{
        diagnosis::{Diagnosis, Finding, Observation, State},
        evidence::{Evidence, Lease, NodeEvent, Pod},
        log::{Attempt, clean},
        node::{NO_CLOUD, Node},
        observed::current,
        reason::Reason,
    },
    provider::owns,
};
use diagnosed::CcmContext;

mod attempts;
mod ccm;
mod deleted;
mod diagnosed;
mod events;
mod fields;
mod pods;

/// Returns the diagnosis of every node, including deleted nodes. A healthy node has no finding; a node that waits longer than an
/// attempt takes has at least one.
pub fn diagnose(evidence: &Evidence) -> Vec<Diagnosis> {
    let mut ccms: Vec<CcmContext> = evidence.ccms.iter().map(|ccm| CcmContext::of(ccm, evidence)).collect();
    let owners: Vec<Owners> = evidence.nodes.iter().map(|node| Owners::of(node, &ccms)).collect();
    for (index, ccm) in ccms.iter_mut().enumerate() {
        let owned = evidence.nodes.iter().zip(&owners).filter(|(_, owners)| owners.ccms.contains(&index));
        ccm.compare(&owned.map(|(node, _)| node).collect::<Vec<_>>());
    }
    let mut events: HashMap<&str, Vec<&NodeEvent>> = HashMap::new();
    for event in evidence.events.iter().flatten() {
        events.entry(&event.node).or_default().push(event);
    }
    let cluster =
        ClusterContext { evidence, ccms, events, has_pod_cidrs: evidence.nodes.iter().any(|node| node.has_pod_cidr) };
    let present = evidence.nodes.iter().zip(&owners).map(|(node, owners)| cluster.diagnosis(node, owners));
    present.chain(cluster.deleted()).collect()
}

/// The input of the diagnosis of one node.
struct ClusterContext<'a> {
    evidence: &'a Evidence,
    ccms: Vec<CcmContext<'a>>,
    events: HashMap<&'a str, Vec<&'a NodeEvent>>,
    /// Whether any node has a subnet for pods, so some controller allocates them.
    has_pod_cidrs: bool,
}

/// The owners of a node.
struct Owners {
    /// The indexes of the cloud-controller-managers. A node without a providerID may belong to any of them.
    ccms: Vec<usize>,
    /// Whether the providerID belongs to none of the clouds.
    is_of_other_cloud: bool,
}

impl Owners {
    fn of(node: &Node, ccms: &[CcmContext]) -> Self {
        let all = |fits: &dyn Fn(&CcmContext) -> bool| -> Vec<usize> {
            ccms.iter().enumerate().filter(|(_, ccm)| fits(ccm)).map(|(index, _)| index).collect()
        };
        // The node belongs to no cloud.
        if !node.may_wait() && node.provider_id.is_empty() {
            return Self { ccms: Vec::new(), is_of_other_cloud: false };
        }
        if node.provider_id.is_empty() {
            let initializing = all(&|ccm| ccm.initializes);
            let ccms = if initializing.is_empty() { all(&|_| true) } else { initializing };
            return Self { ccms, is_of_other_cloud: false };
        }
        let named = all(&|ccm| owns(&ccm.identity().provider_ids, &node.provider_id));
        // A provider without declared prefixes owns the providerIDs that no other provider owns.
        let is_claimed = !named.is_empty() || fields::is_of_distribution(&node.provider_id);
        let owners = if is_claimed { named } else { all(&|ccm| ccm.identity().provider_ids.is_empty()) };
        Self { is_of_other_cloud: owners.is_empty() && !ccms.is_empty(), ccms: owners }
    }
}

/// The unfinished diagnosis of a node.
#[derive(Default)]
struct NodeResult {
    findings: Vec<Finding>,
    observations: Vec<Observation>,
}

impl NodeResult {
    fn find(&mut self, finding: Finding) {
        if !self.findings.iter().any(|known| known.reason == finding.reason && known.cause == finding.cause) {
            self.findings.push(finding);
        }
    }

    fn has(&self, reason: Reason) -> bool {
        self.findings.iter().any(|finding| finding.reason == reason)
    }

    /// Whether a finding explains why the node waits. A finding that ranks below [`Reason::CauseUnknown`] is a consequence.
    fn has_explanation(&self) -> bool {
        self.findings.iter().any(|finding| finding.reason.rank() <= Reason::CauseUnknown.rank())
    }

    fn observe(&mut self, what: impl Into<String>, showed: impl Into<String>) {
        self.observations.push(Observation { what: what.into(), showed: showed.into(), was_seen: true });
    }
}

impl ClusterContext<'_> {
    fn diagnosis(&self, node: &Node, owners: &Owners) -> Diagnosis {
        let waits = node.is_uninitialized() && !node.is_terminating;
        let ccms: Vec<&CcmContext> = owners.ccms.iter().filter_map(|index| self.ccms.get(*index)).collect();
        let state = match () {
            () if node.is_terminating => State::Deleted,
            () if waits => State::Uninitialized,
            () if node.has_no_cloud && ccms.is_empty() => State::NoCloud,
            () if ccms.is_empty() || node.provider_id.is_empty() => State::NotManaged,
            () => State::Initialized,
        };
        let mut result = NodeResult::default();
        if state == State::NoCloud {
            result.observe("the Node", format!("it has the annotation {NO_CLOUD}"));
        } else {
            self.check(node, (owners, &ccms), &mut result);
        }
        let NodeResult { mut findings, observations } = result;
        findings.sort_by_key(|finding| finding.reason.rank());
        for finding in &mut findings {
            let of_server = finding.reason.fix_of_server().filter(|_| node.is_server());
            let on_openshift = finding.reason.fix_on_openshift().filter(|_| self.evidence.is_openshift());
            if let Some(fix) = of_server.or(on_openshift) {
                fix.clone_into(&mut finding.fix);
            }
        }
        let providers: BTreeSet<&str> = ccms.iter().map(|ccm| ccm.identity().provider.as_str()).collect();
        Diagnosis {
            node: node.name.clone(),
            uid: node.uid.clone(),
            state,
            provider: providers.into_iter().collect::<Vec<_>>().join(","),
            provider_id: node.provider_id.clone(),
            since: matches!(state, State::Uninitialized | State::NotManaged).then(|| node.created.clone()),
            findings,
            observations,
        }
    }

    fn check(&self, node: &Node, (owners, ccms): (&Owners, &[&CcmContext]), result: &mut NodeResult) {
        let waits = node.is_uninitialized() && !node.is_terminating;
        fields::check(self, node, owners, result);
        if waits && !owners.is_of_other_cloud {
            self.check_ccms(node, ccms, result);
        }
        events::check(self, node, result);
        for ccm in ccms {
            attempts::check(ccm, node, result);
        }
        if waits {
            self.conclude(node, ccms, result);
        }
    }

    /// Finds the problems that keep a cloud-controller-manager from initializing any node.
    fn check_ccms(&self, node: &Node, ccms: &[&CcmContext], result: &mut NodeResult) {
        if ccms.is_empty() && !self.evidence.may_have_more_ccms {
            self.check_unknown(node, result);
        }
        for ccm in ccms {
            result.observations.extend(ccm.observations.iter().cloned());
            if ccm.ccm.node_manager.is_some() {
                // A node manager initializes its own node, without the cloud-controller-manager.
                if let Some(finding) = pods::of_node_manager(ccm, node, self.evidence) {
                    result.find(finding);
                }
            } else {
                ccm.findings.iter().cloned().for_each(|finding| result.find(finding));
            }
        }
    }

    /// Looks for a cloud-controller-manager that the operator has not installed. Its only sign may be a lease: in k3s it is part of the
    /// server, and with a hosted control plane it runs elsewhere.
    fn check_unknown(&self, node: &Node, result: &mut NodeResult) {
        let pods = || self.evidence.other_pods.iter().flatten();
        let names: Vec<String> = pods().map(Pod::key).collect();
        let showed =
            if names.is_empty() { "there is none".to_owned() } else { format!("others only: {}", names.join(", ")) };
        result.observe("the cloud-controller-managers", showed.clone());
        let mut leases = self.evidence.leases.iter().flatten();
        let held = leases.find(|lease| diagnosed::is_held(lease, self.evidence));
        let other = if let Some(Lease { namespace, name, holder, .. }) = held {
            Some((format!("holder {holder}"), format!("lease {namespace}/{name}")))
        } else {
            pods()
                .find(|pod| pod.is_ready && !pod.is_terminating)
                .map(|pod| (showed.clone(), format!("pod {}", pod.key())))
        };
        match other {
            Some(_) if is_young(&node.created, self.evidence) => {}
            Some((shown, what)) => {
                let cause =
                    format!("{what} belongs to a cloud-controller-manager that this operator has not installed");
                result.find(found(Reason::CauseUnknown, &shown, cause));
            }
            None => {
                let cause = if self.evidence.is_openshift() {
                    "no provider of this operator is for the platform of the cluster"
                } else {
                    "no CloudControllerManager object asks for one"
                };
                result.find(found(Reason::NotInstalled, &showed, cause.into()));
            }
        }
    }

    /// Ensures that a waiting node has a reason, even if the cause is unknown.
    fn conclude(&self, node: &Node, ccms: &[&CcmContext], result: &mut NodeResult) {
        let unseen = self.evidence.unseen.iter().map(|unseen| Observation {
            what: unseen.what.clone(),
            showed: format!("could not be looked at: {}; {}", clean(&unseen.why), unseen.command),
            was_seen: false,
        });
        result.observations.extend(unseen);
        if result.has_explanation() {
            return;
        }
        let has_begun = |ccm: &&CcmContext| ccm.log.attempts.get(&node.name) == Some(&Attempt::Started);
        let pods = || ccms.iter().flat_map(|ccm| current(ccm.ccm.pods.as_deref().unwrap_or_default()));
        let has_pods = pods().next().is_some();
        let are_young = if has_pods {
            pods().all(|pod| is_young(&pod.created, self.evidence))
        } else {
            ccms.iter().any(|ccm| is_young(&ccm.ccm.installed, self.evidence))
        };
        if is_young(&node.created, self.evidence) || are_young {
            result.observe(
                "the time",
                format!("the node or the pods were created less than {} s ago", ATTEMPT_GRACE.as_secs()),
            );
            return;
        }
        let age = |pod: &Pod| age(&pod.created, self.evidence.now);
        if has_pods && pods().all(|pod| pod.phase == "Pending" && age(pod).is_some_and(|age| age < IMAGE_PULL_GRACE)) {
            let start = IMAGE_PULL_GRACE.as_secs();
            result.observe("the time", format!("the pods were created less than {start} s ago, and are being started"));
            return;
        }
        let cause = if ccms.is_empty() {
            "which cloud-controller-managers there are cannot be looked at".to_owned()
        } else if let Some(ccm) = ccms.iter().copied().find(has_begun) {
            format!("an attempt of {} has begun, and its cloud has not answered yet", ccm.name)
        } else if ccms.iter().any(|ccm| ccm.ccm.node_manager.is_some()) {
            format!("the cause is in the log of the node manager on {}", node.name)
        } else if ccms.iter().any(|ccm| ccm.ccm.log.is_some()) {
            "the log of its cloud-controller-manager has no recent attempt for this node".to_owned()
        } else {
            "the cause is in the log of its cloud-controller-manager only".to_owned()
        };
        result.find(found(Reason::CauseUnknown, "", cause));
    }
}

/// Returns a finding. The cause must not contain untrusted text except names.
#[allow(clippy::needless_pass_by_value, reason = "most causes are put together for it")]
fn found(reason: Reason, evidence: &str, cause: String) -> Finding {
    Finding { reason, evidence: clean(evidence), cause: clean(&cause), fix: reason.fix().to_owned() }
}

/// Whether an object was created less than [`ATTEMPT_GRACE`] ago.
fn is_young(created: &str, evidence: &Evidence) -> bool {
    age(created, evidence.now).is_some_and(|age| age < ATTEMPT_GRACE)
}

/// Returns the age of an object by its creation time; zero if it is in the future.
fn age(created: &str, now: Timestamp) -> Option<Duration> {
    Some(now.duration_since(created.parse().ok()?).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests;
