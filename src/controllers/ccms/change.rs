//! Refuses changes that no pod would survive, before anything is written (pure, except for reads of the watches).
//!
//! With several pods, a rollout keeps a pod until the next one is ready. A single pod is removed first, and its replacement may never
//! start. If a DaemonSet no longer selects the nodes, all pods end at once. Changed inputs take effect only after they have been accepted.

use serde_json::Value;

use super::{
    Member,
    stage::{Grounds, Stage},
};
use crate::{
    apply::inventory::{Inventory, Location},
    cluster::seen::Seen,
    controllers::{
        observer::{Id, Observer},
        target::Target,
    },
    facts::ccm::{Ccm, SKIP_PREFLIGHT},
    nodes::{
        node::Node,
        observed::container,
        placement::{self, Obstacle, obstacle},
    },
    object::Object,
    plan::kubernetes::{sources::InputProblem, validation::Validation},
    preflight::check::Check,
    provider::{
        kubernetes::is_ccm,
        repository_and_tag,
        versions::{UNKNOWN_VERSION, VERSION_BROKEN},
    },
    status::rollout::{self, Rollout},
};

/// The fields of a pod that determine its nodes.
const PLACEMENT: [&str; 3] = ["nodeSelector", "affinity", "tolerations"];

impl Member {
    /// Validates the inputs again if their change was refused, and the nodes or the workload have changed since.
    pub(super) fn reconsider_refusal(&mut self, Target { observer, node_counts, .. }: &Target) {
        if matches!(&self.stage, Stage::ChangeRefused(_, grounds) if grounds.have_changed(observer, node_counts)) {
            self.forget_validation();
        }
    }

    /// Accepts or refuses the change to the plan of good inputs, also while the member is paused.
    pub(super) fn decide_change(&mut self, Target { observer, node_counts, .. }: &Target) {
        if !matches!(self.stage, Stage::Validated(_)) || self.stage.planned().is_none() {
            return;
        }
        let Some(workload) = workload(self.planned()).filter(|_| !self.is_removed()) else {
            self.accept_change();
            return;
        };
        if !observer.watches.seen(&Id::Ours(Location::of(workload))).is_some_and(Seen::is_synced) {
            return;
        }
        match self.risk(workload, observer) {
            None => self.accept_change(),
            Some(problem) => self.refuse_change(Grounds::new(workload, observer, node_counts), problem),
        }
    }

    /// Returns the reason why a change to this workload would leave no pod. For a deleted workload, the accepted version counts, because it
    /// is about to be recreated. Without an accepted plan, there is no pod to lose.
    fn risk(&self, wanted: &Object, observer: &Observer) -> Option<InputProblem> {
        let accepted = || workload(self.accepted.as_deref()?).map(Object::value);
        let runs = observer.live(wanted).or_else(accepted)?;
        risk((self.ccm()?, self.validation()?), wanted, runs, || observer.nodes().collect())
    }

    /// Returns the locations of the planned objects, and that of a refused workload, which may be in no plan in force.
    pub(super) fn locations(&self) -> Inventory {
        let planned = Inventory::of(self.planned());
        match &self.stage {
            Stage::ChangeRefused(_, grounds) => planned.union(&Inventory::of(std::slice::from_ref(&grounds.workload))),
            _ => planned,
        }
    }
}

fn workload(objects: &[Object]) -> Option<&Object> {
    objects.iter().find(|object| object.pod_spec().is_some_and(is_ccm))
}

/// Returns the reason why a change would leave no pod, or none that may run.
fn risk(
    (ccm, validation): (&Ccm, &Validation),
    wanted: &Object,
    runs: &Value,
    nodes: impl FnOnce() -> Vec<Node>,
) -> Option<InputProblem> {
    let is_skipped = |check: Check| ccm.skips.iter().any(|id| id == check.id());
    let problem = validation.version.as_ref().and_then(|(choice, _)| choice.problem.as_ref());
    let tag = |workload: &Value| {
        let image = container(pod(workload))["image"].as_str().unwrap_or_default();
        repository_and_tag(image).1.map(ToOwned::to_owned)
    };
    let is_changed = || tag(wanted.value()) != tag(runs);
    let broken = problem.filter(|(reason, _)| *reason == VERSION_BROKEN && !is_skipped(Check::Version));
    if let Some((_, problem)) = broken.filter(|_| is_changed()) {
        let message = format!("spec.image.version: {problem}: {}", unless(Check::Version));
        return Some(InputProblem { reason: VERSION_BROKEN, message });
    }
    let unknown = problem.filter(|(reason, _)| *reason == UNKNOWN_VERSION && !is_skipped(Check::Version));
    let unknown = unknown.filter(|_| may_end_pods(wanted.value(), runs)).map(|(_, problem)| problem);
    let is_moved = may_move(wanted.value(), runs) && !is_skipped(Check::ControlPlane);
    if unknown.is_none() && !is_moved {
        return None;
    }
    let nodes = nodes();
    if let Some(problem) = unknown.filter(|_| survivors(wanted.value(), runs, &nodes) <= 1) {
        let message = format!(
            "spec.image.version: {problem}; no pod would go on until one with this version is ready: {}",
            unless(Check::Version)
        );
        return Some(InputProblem { reason: UNKNOWN_VERSION, message });
    }
    let problem = nowhere(wanted.value(), &nodes).filter(|_| is_moved)?;
    let message = format!("spec.placement.{problem}, and the pods that run would end: {}", unless(Check::ControlPlane));
    Some(InputProblem { reason: "NoNodeFits", message })
}

fn unless(check: Check) -> String {
    format!("if this is intended, set the annotation {SKIP_PREFLIGHT}: {}", check.id())
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// Whether a change may move pods to other nodes.
fn may_move(wanted: &Value, runs: &Value) -> bool {
    PLACEMENT.iter().any(|field| pod(wanted)[field] != pod(runs)[field])
}

/// Whether a change ends pods with another image: by its rollout, or because there are fewer pods before a rollout is done.
fn may_end_pods(wanted: &Value, runs: &Value) -> bool {
    let has_fewer = || may_move(wanted, runs) || wanted["spec"]["replicas"] != runs["spec"]["replicas"];
    container(pod(wanted))["image"] != container(pod(runs))["image"]
        || (rollout::of(runs) != Rollout::Done && has_fewer())
}

/// Returns the number of pods that exist both before and after a change. If there are several, a rollout leaves one in place. The pods of a
/// DaemonSet end on nodes that it no longer selects. No pod survives a rollout that may end all of them at once.
fn survivors(wanted: &Value, runs: &Value, nodes: &[Node]) -> u64 {
    let spec = &wanted["spec"];
    let (before, after, ends_all) = if wanted["kind"] == "DaemonSet" {
        let stays = |node: &&Node| obstacle(wanted, node).is_none() && placement::fits(pod(runs), node);
        let has_pod = |node: &&Node| placement::fits(pod(wanted), node);
        // An unready node counts, too, because its missing pod is one of the pods that may be unavailable.
        let all = nodes.iter().filter(has_pod).count() as u64;
        let unavailable = scaled(&spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"], all, true);
        let after = nodes.iter().filter(stays).count() as u64;
        (&runs["status"]["desiredNumberScheduled"], after, unavailable.is_some_and(|most| most >= all))
    } else {
        let after = spec["replicas"].as_u64().unwrap_or(1);
        let unavailable = scaled(&spec["strategy"]["rollingUpdate"]["maxUnavailable"], after, false);
        let is_recreated = spec["strategy"]["type"] == "Recreate";
        (&runs["spec"]["replicas"], after, is_recreated || unavailable.is_some_and(|most| most >= after))
    };
    if ends_all { 0 } else { before.as_u64().unwrap_or(after).min(after) }
}

/// Converts a field with a number or a percentage to a number of pods, as the workload's controller does. Returns `None` without the field,
/// because the default leaves a pod in place if there are several.
fn scaled(field: &Value, all: u64, rounds_up: bool) -> Option<u64> {
    let Some(percentage) = field.as_str() else { return field.as_u64() };
    let hundredths = percentage.strip_suffix('%')?.parse::<u64>().ok()?.saturating_mul(all);
    Some(if rounds_up { hundredths.div_ceil(100) } else { hundredths / 100 })
}

/// Returns the reason why no node accepts the pods: the obstacle of the node that comes closest to accepting them.
fn nowhere(wanted: &Value, nodes: &[Node]) -> Option<String> {
    let keeps_out = |node| Some((obstacle(wanted, node)?, &node.name));
    let all: Option<Vec<_>> = nodes.iter().map(keeps_out).collect();
    Some(match all?.into_iter().max()? {
        (Obstacle::Labels, _) => "nodeSelector: no node has these labels".to_owned(),
        (Obstacle::Closed, name) => {
            format!("nodeSelector: no node with these labels takes pods: {name} is not ready, or cordoned")
        }
        (Obstacle::Taint(taint), name) => format!("tolerations: no node takes the pods: {name} has the taint {taint}"),
    })
}

#[cfg(test)]
mod tests;
