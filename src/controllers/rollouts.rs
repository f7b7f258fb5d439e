//! The rollouts of planned objects, from their watches.

use std::collections::BTreeMap;

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

/// The nodes, of all of these, that may hold up these rollouts, for people; empty without one (pure). A pod on a machine that is gone is
/// neither replaced nor removed before somebody says that the machine will not come back.
pub(super) fn held_up_by(nodes: impl IntoIterator<Item = Node>, objects: &[Object], waiting: &[Key]) -> String {
    let pods: Vec<_> =
        objects.iter().filter(|object| waiting.contains(&object.key())).filter_map(Object::pod_spec).collect();
    if pods.is_empty() {
        return String::new();
    }
    let is_one = |node: &Node| !node.is_ready() && pods.iter().any(|pod| placement::fits(pod, node));
    // By name, each with whether it is a server.
    let nodes: BTreeMap<String, bool> =
        nodes.into_iter().filter(is_one).map(|node| (node.name.clone(), node.is_server())).collect();
    if nodes.is_empty() {
        return String::new();
    }
    let more = nodes.len().saturating_sub(MOST_NODES);
    let names: Vec<_> = nodes.keys().take(MOST_NODES).map(String::as_str).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    // Whoever deletes the Node of a server for the sake of a rollout should know what else goes with it.
    let has_server = nodes.values().take(MOST_NODES).any(|is_server| *is_server);
    let etcd = if has_server { "; a k3s or RKE2 server leaves etcd with its Node" } else { "" };
    format!(
        "; of the nodes for its pods these are not ready: {}{more}: repair them, or delete the Node of a machine that is gone for \
         good{etcd}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, role: &str, ready: &str) -> Node {
        Node::of(&json!({"metadata": {"name": name, "labels": {"role": role}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    }

    /// What holds up the rollout of a workload for nodes with `role: ccm`.
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
        let etcd = "gone for good; a k3s or RKE2 server leaves etcd with its Node";
        for label in ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd"] {
            let server = Node::of(&json!({"metadata": {"name": "server", "labels": {"role": "ccm", label: ""}}}));
            let text = held_up_by(&[node("worker", "ccm", "False"), server]);
            assert!(text.contains("server, worker: repair them") && text.ends_with(etcd), "{text}");
        }
    }
}
