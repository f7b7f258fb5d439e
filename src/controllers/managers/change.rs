//! Changes that no pod would survive (pure, but for what it asks of the watches): they are refused before anything is written.
//!
//! A rollout leaves a pod in place until the next one is ready, where there are several. A single pod goes first, and its replacement
//! may never start; and from nodes that a DaemonSet does not select any more all pods go at once. What the inputs come to is in force
//! once it has been accepted, and not before.

use serde_json::Value;

use super::{Managed, Managers};
use crate::{
    apply::inventory::{Place, Scope},
    cluster::seen::Seen,
    controllers::{
        census::Census,
        observer::{Id, Observer},
        view::View,
    },
    facts::manager::{Manager, SKIP_PREFLIGHT},
    nodes::{
        node::Node,
        observed::container,
        placement::{self, Obstacle, obstacle},
    },
    object::Object,
    plan::upstream::{judgement::Judgement, sources::Trouble},
    preflight::check::Check,
    provider::{upstream::is_manager, versions::UNKNOWN_VERSION},
    status::rollout::{self, Rollout},
};

/// The fields of a pod that decide on which nodes it runs.
const PLACEMENT: [&str; 3] = ["nodeSelector", "affinity", "tolerations"];

/// What was found out about the change to a new plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Change {
    /// Nothing yet: what runs has not been seen.
    #[default]
    Unknown,
    /// It may be made.
    Accepted,
    /// It is refused, for what was seen then.
    Refused(Box<Grounds>),
}

/// What a change was refused for, besides the inputs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grounds {
    /// The workload as it would have become.
    workload: Object,
    /// The resource version of the live one.
    live: Option<String>,
    /// The count of the nodes.
    nodes: u64,
}

impl Grounds {
    fn new(workload: &Object, observer: &Observer, census: &Census) -> Self {
        Self { workload: workload.clone(), live: version(workload, observer), nodes: census.revision }
    }

    fn have_changed(&self, observer: &Observer, census: &Census) -> bool {
        self.nodes != census.revision || self.live != version(&self.workload, observer)
    }
}

fn version(workload: &Object, observer: &Observer) -> Option<String> {
    observer.live(workload)?["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

impl Managers {
    /// Accepts or refuses what was planned since the last pass.
    pub(super) fn weigh_changes(&mut self, view: &View, census: &Census) {
        for managed in self.fleet.values_mut() {
            managed.weigh(&view.observer, census);
        }
    }

    /// Has those judged again that were refused, and of which the nodes or the workload have changed since.
    pub(super) fn reconsider(&mut self, observer: &Observer, census: &Census) {
        for managed in self.fleet.values_mut() {
            if matches!(&managed.change, Change::Refused(grounds) if grounds.have_changed(observer, census)) {
                managed.forget_judgement();
            }
        }
    }
}

impl Managed {
    /// Accepts or refuses what its inputs come to, also while it is paused.
    fn weigh(&mut self, observer: &Observer, census: &Census) {
        let is_planned = self.judgement.as_ref().is_some_and(|judgement| judgement.objects.is_some());
        if self.change != Change::Unknown || !is_planned {
            return;
        }
        let Some(workload) = workload(self.planned()).filter(|_| !self.is_removed()) else {
            self.accept_change();
            return;
        };
        if !observer.watches.seen(&Id::Ours(Place::of(workload))).is_some_and(Seen::is_synced) {
            return;
        }
        match self.risk(workload, observer) {
            None => self.accept_change(),
            Some(trouble) => self.refuse_change(Grounds::new(workload, observer, census), trouble),
        }
    }

    /// Why a change to this workload would leave no pod, if so. One that somebody has deleted is about to come back as it was accepted;
    /// without that there is nothing to lose.
    fn risk(&self, wanted: &Object, observer: &Observer) -> Option<Trouble> {
        let accepted = || workload(self.accepted.as_deref()?).map(Object::value);
        let runs = observer.live(wanted).or_else(accepted)?;
        risk((self.manager()?, self.judgement.as_ref()?), wanted, runs, || observer.nodes().collect())
    }

    /// Where its objects are planned, and the workload is whose change was refused: nothing may be in force.
    pub(super) fn scope(&self) -> Scope {
        let planned = Scope::of(self.planned());
        match &self.change {
            Change::Refused(grounds) => planned.union(&Scope::of(std::slice::from_ref(&grounds.workload))),
            _ => planned,
        }
    }
}

fn workload(objects: &[Object]) -> Option<&Object> {
    objects.iter().find(|object| object.pod_spec().is_some_and(is_manager))
}

/// Why a change would leave no pod, if so.
fn risk(
    (manager, judgement): (&Manager, &Judgement),
    wanted: &Object,
    runs: &Value,
    nodes: impl FnOnce() -> Vec<Node>,
) -> Option<Trouble> {
    let is_meant = |check: Check| manager.skips.iter().any(|id| id == check.id());
    let problem = judgement.version.as_ref().and_then(|(choice, _)| choice.problem.as_ref());
    let unknown = problem.filter(|(reason, _)| *reason == UNKNOWN_VERSION && !is_meant(Check::Version));
    let unknown = unknown.filter(|_| may_end_pods(wanted.value(), runs)).map(|(_, problem)| problem);
    let is_moved = moves(wanted.value(), runs) && !is_meant(Check::ControlPlane);
    if unknown.is_none() && !is_moved {
        return None;
    }
    let nodes = nodes();
    if let Some(problem) = unknown.filter(|_| survivors(wanted.value(), runs, &nodes) <= 1) {
        let message = format!(
            "spec.image.version: {problem}; no pod would go on until one with this version is ready: {}",
            unless(Check::Version)
        );
        return Some(Trouble { reason: UNKNOWN_VERSION, message });
    }
    let problem = nowhere(wanted.value(), &nodes).filter(|_| is_moved)?;
    let message = format!("spec.placement.{problem}, and the pods that run would end: {}", unless(Check::ControlPlane));
    Some(Trouble { reason: "NoNodeFits", message })
}

fn unless(check: Check) -> String {
    format!("if it is meant, give the annotation {SKIP_PREFLIGHT}: {}", check.id())
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// Whether pods may have other nodes afterwards.
fn moves(wanted: &Value, runs: &Value) -> bool {
    PLACEMENT.iter().any(|field| pod(wanted)[field] != pod(runs)[field])
}

/// Whether pods with another image end for this one: by its rollout, or because there will be fewer before that is done.
fn may_end_pods(wanted: &Value, runs: &Value) -> bool {
    let has_fewer = || moves(wanted, runs) || wanted["spec"]["replicas"] != runs["spec"]["replicas"];
    container(pod(wanted))["image"] != container(pod(runs))["image"]
        || (rollout::of(runs) != Rollout::Done && has_fewer())
}

/// How many pods there are both before and after a change, of which a rollout leaves one in place if there are several. Those of a
/// DaemonSet end on nodes that it leaves.
fn survivors(wanted: &Value, runs: &Value, nodes: &[Node]) -> u64 {
    let (before, after) = if wanted["kind"] == "DaemonSet" {
        let stays = |node: &&Node| obstacle(wanted, node).is_none() && placement::fits(pod(runs), node);
        (&runs["status"]["desiredNumberScheduled"], nodes.iter().filter(stays).count() as u64)
    } else {
        (&runs["spec"]["replicas"], wanted["spec"]["replicas"].as_u64().unwrap_or(1))
    };
    before.as_u64().unwrap_or(after).min(after)
}

/// Why no node takes the pods, if so: what keeps the node out that is nearest to it.
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::placement::Distribution,
        facts::{cluster::Cluster, version::Minor},
        plan::upstream::{
            judgement,
            sources::{Checks, Found, Source},
        },
        provider::embedded,
    };

    const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

    /// What an object of this provider asks for, and the workload.
    fn asked(provider: &str, mut spec: Value, skips: &str) -> (Manager, Judgement, Object) {
        let catalog = embedded::catalog().unwrap();
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
        spec["provider"] = json!(provider);
        spec["credentials"] = if provider == "aws" { Value::Null } else { json!({"secretRef": {"name": "x"}}) };
        let spec = serde_json::from_value(spec).unwrap();
        let manager = Manager::new("cluster".into(), spec, cluster).annotated(Some(skips));
        let judged = judgement::judge(&catalog, &manager, |reference| {
            let secret = json!({"data": {"token": "eA=="}});
            Found::Present(Source::of(&secret, reference, &Checks::default()))
        });
        let objects = judged.objects.clone().unwrap_or_else(|| panic!("{:?}", judged.trouble()));
        let workload = workload(&objects).unwrap().clone();
        (manager, judged, workload)
    }

    /// A node of the control plane, ready, with `more` merged into it.
    fn node(name: &str, labels: &Value, spec: &Value, ready: &str) -> Node {
        let mut all = json!({CONTROL_PLANE: "", "kubernetes.io/arch": "amd64"});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        Node::of(&json!({"metadata": {"name": name, "labels": all}, "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    }

    fn plain(name: &str) -> Node {
        node(name, &json!({}), &json!({}), "True")
    }

    fn fast(name: &str) -> Node {
        node(name, &json!({"disk": "fast"}), &json!({}), "True")
    }

    /// What is wrong with the change of a live workload, whose rollout is done, to what is asked for.
    fn trouble(provider: &str, (before, after): (Value, Value), nodes: &[Node], skips: &str) -> Option<Trouble> {
        let (_, _, live) = asked(provider, before, "");
        let mut live = live.value().clone();
        live["status"] = json!({"desiredNumberScheduled": nodes.len(), "observedGeneration": 1});
        let (manager, judged, wanted) = asked(provider, after, skips);
        risk((&manager, &judged), &wanted, &live, || nodes.to_vec())
    }

    fn reason(provider: &str, change: (Value, Value), nodes: &[Node], skips: &str) -> Option<&'static str> {
        trouble(provider, change, nodes, skips).map(|trouble| trouble.reason)
    }

    fn version(tag: &str) -> Value {
        json!({"image": {"version": tag}})
    }

    fn selector(key: &str, value: &str) -> Value {
        json!({"placement": {"nodeSelector": {key: value}}})
    }

    #[test]
    fn a_single_pod_does_not_make_room_for_one_that_may_never_start() {
        let aws = |before, after, skips| reason("aws", (before, after), &[plain("a")], skips);
        assert_eq!(aws(json!({}), version("1.35.0"), ""), Some(UNKNOWN_VERSION));
        assert_eq!(aws(json!({}), version("1.35.0"), "ports, version"), None, "it is meant");
        assert_eq!(aws(version("1.35.0"), version("1.35.0"), ""), None, "it runs already");
        assert_eq!(aws(json!({}), json!({"logging": {"verbosity": 4}}), ""), None);
        let two = [plain("a"), plain("b")];
        assert_eq!(reason("aws", (json!({}), version("1.35.0")), &two, ""), None, "one is left");
    }

    #[test]
    fn of_the_pods_those_count_that_are_left() {
        let both = |version: Value, placement: Value| {
            let mut both = version;
            both["placement"] = placement;
            both
        };
        let unknown = |placement| both(version("1.35.0"), placement);
        let of = |provider, replicas: u8| {
            reason(provider, (json!({}), unknown(json!({"replicas": replicas}))), &[plain("a"), plain("b")], "")
        };
        assert_eq!((of("hcloud", 1), of("hcloud", 2)), (Some(UNKNOWN_VERSION), None));
        // A DaemonSet that leaves all nodes but one, or all of them.
        let fewer = unknown(json!({"nodeSelector": {"disk": "fast"}}));
        let on = |nodes: &[Node]| reason("aws", (json!({}), fewer.clone()), nodes, "");
        assert_eq!(on(&[plain("a"), plain("b"), fast("c")]), Some(UNKNOWN_VERSION));
        assert_eq!(on(&[plain("a"), fast("b"), fast("c")]), None);
        let moved = (selector("disk", "slow"), fewer.clone());
        let slow = || node("slow", &json!({"disk": "slow"}), &json!({}), "True");
        assert_eq!(reason("aws", moved, &[slow(), slow(), fast("b"), fast("c")], ""), Some(UNKNOWN_VERSION));
        // One after the other: the pods that are left may be those that do not start.
        let (_, _, live) = asked("hcloud", version("1.35.0"), "");
        let (manager, judged, wanted) = asked("hcloud", unknown(json!({"replicas": 1})), "");
        let at = |reason: &str| {
            let mut live = live.value().clone();
            live["metadata"]["generation"] = json!(1);
            let conditions = json!([{"type": "Progressing", "status": "True", "reason": reason}]);
            live["status"] = json!({"observedGeneration": 1, "conditions": conditions});
            risk((&manager, &judged), &wanted, &live, || vec![plain("a")]).map(|trouble| trouble.reason)
        };
        assert_eq!((at("ReplicaSetUpdated"), at("NewReplicaSetAvailable")), (Some(UNKNOWN_VERSION), None));
    }

    #[test]
    fn pods_do_not_leave_for_nodes_that_there_are_not() {
        let aws = |before, after, skips| reason("aws", (before, after), &[plain("a")], skips);
        assert_eq!(aws(json!({}), selector("disk", "fast"), ""), Some("NoNodeFits"));
        assert_eq!(aws(json!({}), selector("disk", "fast"), "control-plane"), None);
        assert_eq!(aws(selector("disk", "fast"), selector("disk", "fast"), ""), None);
        assert_eq!(aws(json!({}), selector(CONTROL_PLANE, ""), ""), None);
    }

    #[test]
    fn a_node_that_takes_no_pods_does_not_count() {
        let moved = |provider, other: Node| {
            let change = (json!({}), selector("disk", "fast"));
            trouble(provider, change, &[plain("a"), other], "").map(|trouble| trouble.message)
        };
        let (label, none) = (json!({"disk": "fast"}), json!({}));
        let dead = moved("aws", node("dead", &label, &none, "Unknown")).unwrap();
        assert!(dead.contains("nodeSelector: no node with these labels takes pods: dead is not ready"), "{dead}");
        let cordoned = json!({"unschedulable": true});
        assert!(moved("hcloud", node("b", &label, &cordoned, "True")).is_some());
        assert_eq!(moved("aws", node("b", &label, &cordoned, "True")), None, "pods of a DaemonSet run there");
        assert_eq!(moved("hcloud", fast("b")), None);
    }

    #[test]
    fn a_toleration_that_all_pods_need_stays() {
        let tolerant = json!({"placement": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}});
        let tainted = json!({"taints": [{"key": "dedicated", "value": "cp", "effect": "NoExecute"}]});
        let tainted = node("a", &json!({}), &tainted, "True");
        let change = || (tolerant.clone(), json!({}));
        let why = trouble("aws", change(), std::slice::from_ref(&tainted), "").unwrap().message;
        assert!(
            why.starts_with(
                "spec.placement.tolerations: no node takes the pods: a has the taint dedicated=cp:NoExecute"
            ),
            "{why}"
        );
        assert_eq!(reason("aws", change(), &[tainted.clone(), plain("b")], ""), None);
        assert_eq!(reason("aws", change(), &[tainted], "control-plane"), None);
    }
}
