//! The part of a diagnosis that all nodes of a cloud-controller-manager share.

use std::{collections::BTreeSet, time::Duration};

use super::{
    age,
    diagnosed::{CcmContext, is_held},
    pods,
};
use crate::{
    facts::ccm::Controller,
    grace::ATTEMPT_GRACE,
    nodes::{
        CLOCK_SKEW,
        evidence::{CcmEvidence, Evidence, Lease, Pod},
        identity::CcmIdentity,
        log::Log,
        observed::{current, holds},
        reason::Reason,
    },
};

impl<'a> CcmContext<'a> {
    pub(super) fn of(ccm: &'a CcmEvidence, evidence: &Evidence) -> Self {
        let name = if ccm.identity.name.is_empty() {
            format!("the cloud-controller-manager in {}", ccm.identity.namespace)
        } else {
            format!("CloudControllerManager/{}", ccm.identity.name)
        };
        let log = ccm.log.as_deref().map(Log::of).unwrap_or_default();
        let pods = current(ccm.pods.as_deref().unwrap_or_default());
        let is_on = pods.into_iter().all(is_cloud_node_on) && log.off.is_none();
        let mut diagnosed = Self {
            ccm,
            name,
            log,
            initializes: is_on || ccm.node_manager.is_some(),
            findings: Vec::new(),
            observations: Vec::new(),
            is_wrong_scope: false,
            has_zone: false,
            regions: BTreeSet::new(),
        };
        pods::check(&mut diagnosed, evidence);
        diagnosed.ask_controller(evidence);
        diagnosed.ask_lease(evidence);
        diagnosed.ask_others(evidence);
        // The operator creates the permissions with the workload.
        if ccm.is_installed != Some(false) {
            diagnosed.ask_permissions();
        }
        diagnosed
    }

    /// Checks whether the controller that initializes nodes is enabled.
    fn ask_controller(&mut self, evidence: &Evidence) {
        if self.initializes {
            return;
        }
        let others = evidence.other_pods.iter().flatten().filter(|pod| is_cloud_node_on(pod));
        let has_it =
            |other: &&CcmEvidence| !std::ptr::eq(*other, self.ccm) && other.pods.iter().flatten().any(is_cloud_node_on);
        let elsewhere = evidence.ccms.iter().filter(has_it);
        let does: Vec<String> = others
            .map(|pod| format!("pod {}", pod.key()))
            .chain(elsewhere.map(|ccm| format!("CloudControllerManager/{}", ccm.identity.name)))
            .collect();
        let what = format!("the controllers of {}", self.name);
        self.observe(what, "the controller cloud-node does not run");
        let shown = self.log.off.clone().unwrap_or_else(|| "--controllers leaves out cloud-node".to_owned());
        let cause = if does.is_empty() {
            format!(
                "the controller cloud-node of {} does not run, and no other cloud-controller-manager has it",
                self.name
            )
        } else {
            format!("the controller cloud-node of {} does not run; {} has it", self.name, does.join(", "))
        };
        self.find(Reason::ControllerOff, &shown, cause);
    }

    /// Checks whether one of the pods is the leader.
    fn ask_lease(&mut self, evidence: &Evidence) {
        let ccm = self.ccm;
        if evidence.leases.is_none() || ccm.identity.lease_name.is_empty() {
            return;
        }
        let CcmIdentity { namespace, lease_name, .. } = &ccm.identity;
        let (what, now) = (format!("the lease {namespace}/{lease_name}"), evidence.now);
        let lease = self.lease(evidence);
        let held = lease.filter(|lease| is_held(lease, evidence));
        self.observe(
            what.clone(),
            lease.map_or_else(|| "there is none".to_owned(), |lease| describe(lease, held.is_some())),
        );
        // Without pods, or with pods that do not start, there can be no leader.
        let Some(pods) = ccm.pods.as_ref().filter(|pods| !pods.is_empty() && self.findings.is_empty()) else {
            return;
        };
        let is_old = |pod: &&Pod, least: Duration| {
            age(&pod.created, now).is_none_or(|age| age >= least + CLOCK_SKEW.unsigned_abs())
        };
        let current = current(pods);
        match held {
            // A pod that is being deleted leads until it has ended.
            Some(held) if pods.iter().any(|pod| holds(held, pod)) => {}
            // The host name of a machine may differ from the name of its node.
            Some(_) if self.log.leads() => {}
            Some(held) => {
                let valid = Duration::from_secs(held.duration_seconds.unsigned_abs());
                // After a rollout, the lease still names a deleted pod.
                if !current.iter().all(|pod| is_old(pod, valid)) {
                    return;
                }
                let other = evidence.other_pods.iter().flatten().find(|pod| holds(held, pod));
                let who = other.map_or("none of its pods".to_owned(), |pod| format!("pod {}", pod.key()));
                let cause = format!("{what} of {} is held by {who}", self.name);
                self.find(Reason::NoLeader, &format!("holder {}", held.holder), cause);
            }
            // A starting pod renews no lease.
            None if !current.iter().any(|pod| pod.phase == "Running") => {}
            None if self.log.works() || !current.iter().all(|pod| is_old(pod, ATTEMPT_GRACE)) => {}
            None => {
                let shown = self.log.api_server.clone();
                let renewed = lease.and_then(|lease| lease.renewed);
                let never = renewed.is_none_or(|renewed| {
                    current.iter().all(|pod| pod.created.parse().is_ok_and(|created| renewed < created))
                });
                let lacks = ccm.missing_permissions.iter().flatten().any(|permission| permission.contains("leases"));
                if shown.is_some() || (never && ccm.log.is_none() && !lacks) {
                    let cause = format!("{} runs, and has never renewed its lease", self.name);
                    self.find(Reason::ApiServerUnreachable, &shown.unwrap_or_default(), cause);
                } else {
                    let cause = format!("no pod of {} holds {what}", self.name);
                    self.find(Reason::NoLeader, "nobody renews the lease", cause);
                }
            }
        }
    }

    /// Checks whether another cloud-controller-manager runs the same controllers.
    fn ask_others(&mut self, evidence: &Evidence) {
        if !self.initializes {
            return;
        }
        let CcmIdentity { namespace, lease_name, .. } = self.identity();
        let is_ours = |pod: &Pod| (&pod.namespace, &pod.lease_name) == (namespace, lease_name);
        let leads = |pod: &&Pod| {
            let mut leases = evidence.leases.iter().flatten();
            let is_its = |lease: &Lease| (&lease.namespace, &lease.name) == (&pod.namespace, &pod.lease_name);
            let is_led = |lease: &Lease| is_its(lease) && is_held(lease, evidence) && holds(lease, pod);
            evidence.leases.is_none() || leases.any(is_led)
        };
        let active = |pod: &&Pod| pod.is_ready && is_cloud_node_on(pod) && !is_ours(pod);
        let Some(pods) = &evidence.other_pods else { return };
        let others: Vec<String> = pods.iter().filter(active).filter(leads).map(Pod::key).collect();
        self.observe(
            "other cloud-controller-managers".into(),
            if others.is_empty() { "none that initializes nodes".to_owned() } else { others.join(", ") },
        );
        if !others.is_empty() {
            let cause = format!("{} and pod {} both initialize nodes", self.name, others.join(", "));
            self.find(Reason::TwoCCMs, &others.join(", "), cause);
        }
    }

    fn ask_permissions(&mut self) {
        let Some(missing) = &self.ccm.missing_permissions else { return };
        // The deletion guard withholds this permission on purpose.
        let missing: Vec<&str> =
            missing.iter().map(String::as_str).filter(|permission| *permission != "delete nodes").collect();
        let what = format!("the permissions of {}", self.identity().user());
        if missing.is_empty() {
            self.observe(what, "it has every permission that it needs");
            return;
        }
        let missing = missing.join(", ");
        self.observe(what, format!("missing: {missing}"));
        let cause = format!("{} may not {missing}", self.name);
        self.find(Reason::Forbidden, &missing, cause);
    }
}

/// Whether the `--controllers` argument enables the controller that initializes nodes.
fn is_cloud_node_on(pod: &Pod) -> bool {
    pod.controllers.as_ref().is_none_or(|on| on.contains(&Controller::CloudNode))
}

fn describe(lease: &Lease, is_held: bool) -> String {
    let holder = if lease.holder.is_empty() { "nobody".to_owned() } else { super::clean(&lease.holder) };
    if is_held {
        // The time would change the output with every renewal.
        return format!("held by {holder}, renewed in time");
    }
    let renewed = lease.renewed.map_or_else(|| "never".to_owned(), |renewed| renewed.to_string());
    format!("held by {holder}, renewed {renewed}, which is too long ago")
}
