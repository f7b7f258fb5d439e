//! The rollouts of planned objects, from their watches, and the progress of each member of the fleet from pass to pass.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    apply::settled::Settled,
    controllers::{observer::Observer, status_writer::StatusWriter},
    grace::TRANSIENT_ERROR_GRACE,
    nodes::{node::Node, placement},
    object::{Key, Object},
    status::{
        outcome::Outcome,
        rollout::{self, Rollout},
    },
    text::list::first,
};

const MOST_NODES: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// The objects that are not rolled out yet.
    pub(super) waiting: Vec<Key>,
    pub(super) stuck: Option<String>,
    pub(super) workloads: [usize; 3],
}

impl Rollouts {
    /// Computes the rollouts of these objects. An object that is left alone and that no watch shows does not count.
    pub(super) fn of(observer: &Observer, objects: &[Object], is_left_alone: impl Fn(&Key) -> bool) -> Self {
        let mut all = Self::default();
        for object in objects {
            let rollout = observer.live(object).map(rollout::of);
            if object.pod_spec().is_some() {
                let state = match &rollout {
                    Some(Rollout::Done) => 0,
                    Some(Rollout::Stuck { .. }) => 2,
                    Some(Rollout::Progressing) | None => 1,
                };
                all.workloads[state] += 1;
            }
            if rollout.is_none() && is_left_alone(&object.key()) {
                continue;
            }
            if let Some(Rollout::Stuck { why }) = &rollout {
                all.stuck = Some(format!("the rollout of {} is stuck: {why}", object.key()));
            }
            if rollout != Some(Rollout::Done) {
                all.waiting.push(object.key());
            }
        }
        all
    }
}

/// Names the nodes that may hold up the rollouts of these waiting objects, for people (pure). Returns an empty text if there are none. A
/// pod on a machine that is gone is neither replaced nor removed before its Node is deleted.
pub(super) fn held_up_by(nodes: impl IntoIterator<Item = Node>, objects: &[Object], waiting: &[Key]) -> String {
    let pods: Vec<_> =
        objects.iter().filter(|object| waiting.contains(&object.key())).filter_map(Object::pod_spec).collect();
    if pods.is_empty() {
        return String::new();
    }
    let is_one = |node: &Node| !node.is_ready() && pods.iter().any(|pod| placement::fits(pod, node));
    // The names of the nodes, each with whether the node is a k3s or RKE2 server.
    let nodes: BTreeMap<String, bool> =
        nodes.into_iter().filter(is_one).map(|node| (node.name.clone(), node.is_server())).collect();
    if nodes.is_empty() {
        return String::new();
    }
    // Deleting the Node of a server also removes the server from etcd.
    let has_server = nodes.values().take(MOST_NODES).any(|is_server| *is_server);
    let etcd = if has_server { "; a k3s or RKE2 server is removed from etcd with its Node" } else { "" };
    format!(
        "; of the nodes for its pods these are not ready: {}: repair them, or delete the Node of a machine that is gone for \
         good{etcd}",
        first(MOST_NODES, nodes.keys())
    )
}

/// The result of a pass for one member of the fleet.
pub(super) enum PassResult {
    /// An outcome, which is reported.
    Outcome(Outcome),
    /// No outcome yet, so the previous status stays. Holds the reason, if it is to be shown: an error that has not lasted long enough to
    /// be reported or whose retry is not due, or a watch that has not delivered.
    Pending(Option<String>),
}

impl PassResult {
    /// A failure, which is reported only if `is_reported`.
    pub(super) fn failed(error: String, is_reported: bool) -> Self {
        if is_reported { Self::Outcome(Outcome::failed(error)) } else { Self::Pending(Some(error)) }
    }
}

/// The progress of one member of the fleet, from pass to pass.
#[derive(Default)]
pub(super) struct Progress {
    /// The outcome of the last pass; it stays reported while an error is retried.
    pub(super) last: Option<Outcome>,
    /// The last logged line about the member.
    pub(super) logged: String,
    stuck_since: Option<Instant>,
    pub(super) rolling_since: Option<Instant>,
    pub(super) writer: StatusWriter,
}

impl Progress {
    /// Returns the outcome of the rollouts of applied objects.
    pub(super) fn of_rollouts(
        &mut self,
        settled: Settled,
        (objects, Rollouts { waiting: rollouts, stuck, .. }): (&[Object], Rollouts),
        observer: &Observer,
    ) -> Outcome {
        let held_up_by = |waiting: &[Key]| held_up_by(observer.nodes(), objects, waiting);
        let has_lasted = |since: Instant| since.elapsed() >= TRANSIENT_ERROR_GRACE;
        self.stuck_since = stuck.as_ref().map(|_| self.stuck_since.unwrap_or_else(Instant::now));
        if let Some(why) = stuck
            && self.stuck_since.is_some_and(has_lasted)
        {
            return Outcome::Stuck(settled, why + &held_up_by(&rollouts));
        }
        self.rolling_since = (!rollouts.is_empty()).then(|| self.rolling_since.unwrap_or_else(Instant::now));
        if rollouts.is_empty() {
            return Outcome::Applied(settled);
        }
        let nodes = if self.rolling_since.is_some_and(has_lasted) { held_up_by(&rollouts) } else { String::new() };
        Outcome::RollingOut { settled, rollouts, nodes }
    }

    /// Keeps the outcome of a pass. Returns whether it differs from the previous one.
    pub(super) fn update(&mut self, outcome: Outcome) -> bool {
        // The time of a rollout starts again after an error, a bad input or a pause.
        if !outcome.is_rollout() {
            (self.stuck_since, self.rolling_since) = (None, None);
        }
        let is_other = self.last.as_ref() != Some(&outcome);
        self.last = Some(outcome);
        is_other
    }

    /// Returns the times at which the outcome may change by itself, or the write of the status is retried.
    pub(super) fn due(&self) -> impl Iterator<Item = Instant> + use<> {
        let rollouts = [self.stuck_since, self.rolling_since].map(|since| Some(since? + TRANSIENT_ERROR_GRACE));
        rollouts.into_iter().flatten().chain(self.writer.due())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, role: &str, ready: &str) -> Node {
        Node::of(&json!({"metadata": {"name": name, "labels": {"role": role}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    }

    /// The text about the nodes that hold up the rollout of a workload for nodes with `role: ccm`.
    fn held_up_by(nodes: &[Node]) -> String {
        let pod = json!({"nodeSelector": {"role": "ccm"}});
        let object = |kind: &str, spec: Value| {
            let metadata = json!({"name": "a", "namespace": "n"});
            Object::new(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})).unwrap()
        };
        let waits = object("DaemonSet", json!({"template": {"spec": pod}}));
        // It is rolled out, so no node holds it up.
        let done = object("Deployment", json!({"template": {"spec": {}}}));
        let waiting = [waits.key()];
        super::held_up_by(nodes.to_vec(), &[waits, done], &waiting)
    }

    #[test]
    fn the_nodes_are_named_that_may_hold_up_a_rollout_and_no_others() {
        let others = [node("ready", "ccm", "True"), node("elsewhere", "worker", "Unknown")];
        assert_eq!(held_up_by(&[]), "");
        assert_eq!(held_up_by(&others), "");
        let dead = |name: &str| node(name, "ccm", "Unknown");
        let [ready, elsewhere] = others;
        assert_eq!(
            held_up_by(&[dead("b"), ready, dead("a"), elsewhere]),
            "; of the nodes for its pods these are not ready: a, b: repair them, or delete the Node of a machine that is gone for good"
        );
        let many: Vec<_> = ["g", "f", "e", "d", "c", "b", "a"].map(dead).into();
        let text = held_up_by(&many);
        assert!(text.contains("not ready: a, b, c, d, e and 2 more: repair"), "{text}");
        // Nothing that waits has pods.
        assert_eq!(super::held_up_by([dead("a")], &[], &[]), "");
    }

    #[test]
    fn of_a_server_it_is_said_what_goes_with_its_node() {
        let etcd = "gone for good; a k3s or RKE2 server is removed from etcd with its Node";
        for label in ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd"] {
            let server = Node::of(&json!({"metadata": {"name": "server", "labels": {"role": "ccm", label: ""}}}));
            let text = held_up_by(&[node("worker", "ccm", "False"), server]);
            assert!(text.contains("server, worker: repair them") && text.ends_with(etcd), "{text}");
        }
    }

    #[test]
    fn a_rollout_after_something_else_has_its_whole_time() {
        let (mut progress, since) = (Progress::default(), Some(Instant::now()));
        let rolling_out =
            Outcome::RollingOut { settled: Settled::after_pass(), rollouts: Vec::new(), nodes: String::new() };
        let stuck = Outcome::Stuck(Settled::after_pass(), "why".into());
        for outcome in [rolling_out, stuck, Outcome::Paused, Outcome::Applied(Settled::after_pass())] {
            (progress.stuck_since, progress.rolling_since) = (since, since);
            assert!(progress.update(outcome.clone()), "{outcome:?}");
            let left = since.filter(|_| outcome.is_rollout());
            assert_eq!((progress.stuck_since, progress.rolling_since), (left, left), "{outcome:?}");
            assert!(!progress.update(outcome), "it is the same");
        }
    }
}
