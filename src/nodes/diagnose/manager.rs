//! The part of a diagnosis that is the same for all nodes of a cloud-controller-manager.

use std::collections::BTreeSet;

use super::{
    GRACE,
    judged::{Judged, SKEW, is_held},
    pods, seconds_since,
};
use crate::{
    facts::manager::Controller,
    nodes::{
        evidence::{Evidence, Lease, Manager, Pod},
        log::Log,
        observed::{current, holds},
        reason::Reason,
        subject::Subject,
    },
};

impl<'a> Judged<'a> {
    pub(super) fn of(manager: &'a Manager, evidence: &Evidence) -> Self {
        let name = if manager.subject.name.is_empty() {
            format!("the cloud-controller-manager in {}", manager.subject.namespace)
        } else {
            format!("CloudControllerManager/{}", manager.subject.name)
        };
        let log = manager.log.as_deref().map(Log::of).unwrap_or_default();
        let pods = current(manager.pods.as_deref().unwrap_or_default());
        let is_on = pods.into_iter().all(is_cloud_node_on) && log.off.is_none();
        let mut judged = Self {
            manager,
            name,
            log,
            initializes: is_on || manager.node_manager.is_some(),
            findings: Vec::new(),
            looks: Vec::new(),
            is_wrong_scope: false,
            has_zone: false,
            regions: BTreeSet::new(),
        };
        pods::ask(&mut judged, evidence);
        judged.ask_controller(evidence);
        judged.ask_lease(evidence);
        judged.ask_others(evidence);
        judged.ask_rights();
        judged
    }

    /// Whether the controller that initializes nodes is on.
    fn ask_controller(&mut self, evidence: &Evidence) {
        if self.initializes {
            return;
        }
        let others = evidence.other_pods.iter().flatten().filter(|pod| is_cloud_node_on(pod));
        let has_it =
            |other: &&Manager| !std::ptr::eq(*other, self.manager) && other.pods.iter().flatten().any(is_cloud_node_on);
        let elsewhere = evidence.managers.iter().filter(has_it);
        let does: Vec<String> = others
            .map(|pod| format!("pod {}", pod.key()))
            .chain(elsewhere.map(|manager| format!("CloudControllerManager/{}", manager.subject.name)))
            .collect();
        let what = format!("the controllers of {}", self.name);
        self.look(what, "the controller cloud-node does not run");
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

    /// Whether one of its pods leads.
    fn ask_lease(&mut self, evidence: &Evidence) {
        let manager = self.manager;
        if evidence.leases.is_none() || manager.subject.lease_name.is_empty() {
            return;
        }
        let Subject { namespace, lease_name, .. } = &manager.subject;
        let (what, now) = (format!("the lease {namespace}/{lease_name}"), evidence.now);
        let lease = self.lease(evidence);
        let held = lease.filter(|lease| is_held(lease, evidence));
        self.look(
            what.clone(),
            lease.map_or_else(|| "there is none".to_owned(), |lease| describe(lease, held.is_some())),
        );
        // Without pods, or with pods that do not start, nobody can lead.
        let Some(pods) = manager.pods.as_ref().filter(|pods| !pods.is_empty() && self.findings.is_empty()) else {
            return;
        };
        let is_old = |pod: &&Pod, seconds: i64| seconds_since(&pod.created, now).is_none_or(|age| age >= seconds);
        let current = current(pods);
        match held {
            // One that is being deleted leads until it has ended.
            Some(held) if pods.iter().any(|pod| holds(held, pod)) => {}
            // The host name of a machine may be another one than that of its node.
            Some(_) if self.log.leads() => {}
            Some(held) => {
                // After a rollout the lease is still that of a pod that has gone.
                if !current.iter().all(|pod| is_old(pod, held.duration_seconds + SKEW)) {
                    return;
                }
                let other = evidence.other_pods.iter().flatten().find(|pod| holds(held, pod));
                let who = other.map_or("none of its pods".to_owned(), |pod| format!("pod {}", pod.key()));
                let cause = format!("{what} of {} is held by {who}", self.name);
                self.find(Reason::NoLeader, &format!("holder {}", held.holder), cause);
            }
            // A pod that is being started renews nothing.
            None if !current.iter().any(|pod| pod.phase == "Running") => {}
            None if self.log.works() || !current.iter().all(|pod| is_old(pod, GRACE + SKEW)) => {}
            None => {
                let shown = self.log.api_server.clone();
                let renewed = lease.and_then(|lease| lease.renewed);
                let never = renewed.is_none_or(|renewed| current.iter().all(|pod| is_before(renewed, pod)));
                let lacks = manager.missing_rights.iter().flatten().any(|right| right.contains("leases"));
                if shown.is_some() || (never && manager.log.is_none() && !lacks) {
                    let cause = format!("{} runs, and has never renewed its lease", self.name);
                    self.find(Reason::ApiServerUnreachable, &shown.unwrap_or_default(), cause);
                } else {
                    let cause = format!("no pod of {} holds {what}", self.name);
                    self.find(Reason::NoLeader, "nobody renews the lease", cause);
                }
            }
        }
    }

    /// Whether another cloud-controller-manager does the same work.
    fn ask_others(&mut self, evidence: &Evidence) {
        if !self.initializes {
            return;
        }
        let Subject { namespace, lease_name, .. } = self.subject();
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
        self.look(
            "other cloud-controller-managers".into(),
            if others.is_empty() { "none that initializes nodes".to_owned() } else { others.join(", ") },
        );
        if !others.is_empty() {
            let cause = format!("{} and pod {} both initialize nodes", self.name, others.join(", "));
            self.find(Reason::TwoManagers, &others.join(", "), cause);
        }
    }

    fn ask_rights(&mut self) {
        let Some(missing) = &self.manager.missing_rights else { return };
        // This one is withheld on purpose, by the guard of deletions.
        let missing: Vec<&str> = missing.iter().map(String::as_str).filter(|right| *right != "delete nodes").collect();
        let what = format!("the rights of {}", self.subject().user());
        if missing.is_empty() {
            self.look(what, "it has every right that it needs");
            return;
        }
        let missing = missing.join(", ");
        self.look(what, format!("missing: {missing}"));
        let cause = format!("{} may not {missing}", self.name);
        self.find(Reason::Forbidden, &missing, cause);
    }
}

/// Whether its argument `--controllers` leaves the controller on that initializes nodes.
fn is_cloud_node_on(pod: &Pod) -> bool {
    pod.controllers.as_ref().is_none_or(|on| on.contains(&Controller::CloudNode))
}

fn is_before(time: k8s_openapi::jiff::Timestamp, pod: &Pod) -> bool {
    pod.created.parse().is_ok_and(|created| time < created)
}

fn describe(lease: &Lease, is_held: bool) -> String {
    let holder = if lease.holder.is_empty() { "nobody".to_owned() } else { super::clean(&lease.holder) };
    if is_held {
        // The time would change whatever is watched.
        return format!("held by {holder}, renewed in time");
    }
    let renewed = lease.renewed.map_or_else(|| "never".to_owned(), |renewed| renewed.to_string());
    format!("held by {holder}, renewed {renewed}, which is too long ago")
}
