//! Changes that no pod would survive (pure, but for what it asks of the watches): they are refused before anything is written.
//!
//! A rollout leaves a pod in place until the next one is ready, where there are several. A single pod goes first, and its replacement
//! may never start; and from nodes that a DaemonSet does not select any more all pods go at once.

use serde_json::Value;

use super::{Managed, Managers};
use crate::{
    apply::inventory::Place,
    cluster::seen::Seen,
    controllers::{
        census::Census,
        observer::{Id, Observer},
        view::View,
    },
    facts::manager::{Manager, SKIP_PREFLIGHT},
    nodes::{node::Node, observed::container, placement},
    object::Object,
    plan::upstream::{judgement::Judgement, sources::Trouble},
    preflight::check::Check,
    provider::{upstream::is_manager, versions::UNKNOWN_VERSION},
};

/// What was found out about the change to a new plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing yet: what runs has not been seen.
    #[default]
    Unknown,
    /// It may be made.
    Accepted,
    /// It is refused, by the nodes that were counted then.
    Refused(u64),
}

impl Managers {
    /// Accepts or refuses what was planned since the last pass. Returns whether one is to be judged again.
    pub(super) fn weigh_changes(&mut self, view: &View, census: &Census) {
        for managed in self.fleet.values_mut() {
            managed.weigh(&view.observer, census);
        }
    }

    /// Has those judged again that were refused by nodes that have changed since.
    pub(super) fn reconsider(&mut self, census: &Census) {
        for managed in self.fleet.values_mut() {
            if matches!(managed.change, Change::Refused(revision) if revision != census.revision) {
                managed.forget_judgement();
            }
        }
    }
}

impl Managed {
    fn weigh(&mut self, observer: &Observer, census: &Census) {
        if self.change != Change::Unknown || self.is_removed() {
            return;
        }
        let Some(workload) = self.objects().iter().find(|object| object.pod_spec().is_some_and(is_manager)) else {
            return;
        };
        if !observer.watches.seen(&Id::Ours(Place::of(workload))).is_some_and(Seen::is_synced) {
            return;
        }
        let known = self.manager().zip(self.judgement.as_ref()).zip(observer.live(workload));
        let trouble = known.and_then(|((manager, judgement), live)| {
            risk((manager, judgement), workload, live, || observer.nodes().collect())
        });
        match trouble {
            None => self.change = Change::Accepted,
            Some(trouble) => {
                self.change = Change::Refused(census.revision);
                self.refuse_change(trouble);
            }
        }
    }
}

/// Why a change would leave no pod, if so.
fn risk(
    (manager, judgement): (&Manager, &Judgement),
    workload: &Object,
    live: &Value,
    nodes: impl FnOnce() -> Vec<Node>,
) -> Option<Trouble> {
    let (wanted, runs) = (workload.pod_spec()?, &live["spec"]["template"]["spec"]);
    let is_meant = |check: Check| manager.skips.iter().any(|id| id == check.id());
    let differs = |field: &str| wanted[field] != runs[field];
    let unless = |check: Check| format!("if it is meant, give the annotation {SKIP_PREFLIGHT}: {}", check.id());
    let problem = judgement.version.as_ref().and_then(|(choice, _)| choice.problem.as_ref());
    if let Some((UNKNOWN_VERSION, problem)) = problem
        && container(wanted)["image"] != container(runs)["image"]
        && is_alone(live)
        && !is_meant(Check::Version)
    {
        let message = format!(
            "spec.image.version: {problem}; the only pod would end before another one starts: {}",
            unless(Check::Version)
        );
        return Some(Trouble { reason: UNKNOWN_VERSION, message });
    }
    if (differs("nodeSelector") || differs("affinity")) && !is_meant(Check::ControlPlane) {
        let nodes = nodes();
        if !nodes.is_empty() && !nodes.iter().any(|node| placement::fits(wanted, node)) {
            let message = format!(
                "spec.placement.nodeSelector: no node has these labels, and the pods that run would end: {}",
                unless(Check::ControlPlane)
            );
            return Some(Trouble { reason: "NoNodeFits", message });
        }
    }
    None
}

/// Whether a live workload has a single pod.
fn is_alone(live: &Value) -> bool {
    let pods =
        if live["kind"] == "DaemonSet" { &live["status"]["desiredNumberScheduled"] } else { &live["spec"]["replicas"] };
    pods.as_u64() == Some(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::placement::Distribution,
        facts::{cluster::Cluster, version::Minor},
        plan::upstream::judgement,
        plan::upstream::sources::Found,
        provider::embedded,
    };

    /// What is wrong with the change of a live workload of one pod to what is asked for.
    fn reason(provider: &str, before: Value, after: Value, skips: &str) -> Option<&'static str> {
        let catalog = embedded::catalog().unwrap();
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 1 };
        let asked = |mut spec: Value| {
            spec["provider"] = json!(provider);
            Manager::new("cluster".into(), serde_json::from_value(spec).unwrap(), cluster).annotated(Some(skips))
        };
        let planned = |manager: &Manager| {
            let judged = judgement::judge(&catalog, manager, |_| {
                Found::Present(crate::plan::upstream::sources::Source::default())
            });
            let objects = judged.objects.clone().unwrap_or_else(|| panic!("{:?}", judged.trouble()));
            let workload = objects.into_iter().find(|object| object.pod_spec().is_some_and(is_manager)).unwrap();
            (judged, workload)
        };
        let mut live = planned(&asked(before)).1.value().clone();
        live["status"]["desiredNumberScheduled"] = json!(1);
        let manager = asked(after);
        let (judged, workload) = planned(&manager);
        let node = json!({"metadata": {"name": "a", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/arch": "amd64"}}});
        risk((&manager, &judged), &workload, &live, || vec![Node::of(&node)]).map(|trouble| trouble.reason)
    }

    #[test]
    fn a_single_pod_does_not_make_room_for_one_that_may_never_start() {
        let version = |tag: &str| json!({"image": {"version": tag}});
        assert_eq!(reason("aws", json!({}), version("1.35.0"), ""), Some(UNKNOWN_VERSION));
        assert_eq!(reason("aws", json!({}), version("1.35.0"), "ports, version"), None, "it is meant");
        assert_eq!(reason("aws", version("1.35.0"), version("1.35.0"), ""), None, "it runs already");
        assert_eq!(reason("aws", json!({}), json!({"logging": {"verbosity": 4}}), ""), None);
    }

    #[test]
    fn pods_do_not_leave_for_nodes_that_there_are_not() {
        let selector = |key: &str| json!({"placement": {"nodeSelector": {key: ""}}});
        assert_eq!(reason("aws", json!({}), selector("disk"), ""), Some("NoNodeFits"));
        assert_eq!(reason("aws", json!({}), selector("disk"), "control-plane"), None);
        assert_eq!(reason("aws", selector("disk"), selector("disk"), ""), None);
        assert_eq!(reason("aws", json!({}), selector("node-role.kubernetes.io/control-plane"), ""), None);
    }
}
