//! The rollouts of planned objects, from what their watches show.

use crate::{
    controllers::observer::Observer,
    nodes::{node::Node, placement},
    object::{Key, Object},
    status::rollout::{self, Rollout},
};

/// How many nodes are named.
const MOST_NODES: usize = 5;

/// The rollouts of objects.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// The objects that are not rolled out.
    pub(super) waiting: Vec<Key>,
    /// Why one is stuck, if one is.
    pub(super) stuck: Option<String>,
    /// How many workloads are rolled out, are being rolled out, and are stuck.
    pub(super) workloads: [usize; 3],
}

impl Rollouts {
    /// Of these objects; those that are left alone and that no watch shows do not count.
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

/// The nodes that may hold up these rollouts, for people; empty without one. A pod on a machine that is gone is neither replaced nor
/// removed before somebody says that the machine will not come back.
pub(super) fn held_up_by(observer: &Observer, objects: &[Object], waiting: &[Key]) -> String {
    let pods: Vec<_> =
        objects.iter().filter(|object| waiting.contains(&object.key())).filter_map(Object::pod_spec).collect();
    let is_one = |node: &Node| !node.is_ready() && pods.iter().any(|pod| placement::fits(pod, node));
    let mut nodes: Vec<_> = observer.nodes().filter(is_one).map(|node| node.name).collect();
    if pods.is_empty() || nodes.is_empty() {
        return String::new();
    }
    nodes.sort();
    let more = nodes.len().saturating_sub(MOST_NODES);
    nodes.truncate(MOST_NODES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(
        "; of the nodes for its pods these are not ready: {}{more}: repair them, or delete the Node of a machine that is gone for good",
        nodes.join(", ")
    )
}
