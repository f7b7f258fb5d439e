use serde_json::json;

use super::*;
use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, version::Minor},
    plan::kubernetes::{
        sources::{Checkers, Source, SourceState},
        validation,
    },
    provider::embedded,
};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The spec for this provider, its validation and its workload.
fn asked(provider: &str, mut spec: Value, skips: &str) -> (Ccm, Validation, Object) {
    let catalog = embedded::catalog().unwrap();
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    spec["provider"] = json!(provider);
    spec["credentials"] = if provider == "aws" { Value::Null } else { json!({"secretRef": {"name": "x"}}) };
    let spec = serde_json::from_value(spec).unwrap();
    let ccm = Ccm::new("cluster".into(), spec, cluster).annotated(Some(skips));
    let validated = validation::validate(&catalog, &ccm, |reference| {
        let secret = json!({"data": {"token": "eA=="}});
        SourceState::Present(Source::of(&secret, reference, &Checkers::default()))
    });
    let objects = validated.objects.clone().unwrap_or_else(|| panic!("{:?}", validated.problem()));
    let workload = workload(&objects).unwrap().clone();
    (ccm, validated, workload)
}

/// A node of the control plane, with further labels, a spec, and the status of its condition Ready.
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

/// The problem of a change to a live workload whose rollout is done.
fn problem(provider: &str, (before, after): (Value, Value), nodes: &[Node], skips: &str) -> Option<InputProblem> {
    let (_, _, live) = asked(provider, before, "");
    let mut live = live.value().clone();
    live["status"] = json!({"desiredNumberScheduled": nodes.len(), "observedGeneration": 1});
    let (ccm, validated, wanted) = asked(provider, after, skips);
    risk((&ccm, &validated), &wanted, &live, || nodes.to_vec())
}

fn reason(provider: &str, change: (Value, Value), nodes: &[Node], skips: &str) -> Option<&'static str> {
    problem(provider, change, nodes, skips).map(|problem| problem.reason)
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
    // The pods end one after the other, and the remaining ones may not start.
    let (_, _, live) = asked("hcloud", version("1.35.0"), "");
    let (ccm, validated, wanted) = asked("hcloud", unknown(json!({"replicas": 1})), "");
    let at = |reason: &str| {
        let mut live = live.value().clone();
        live["metadata"]["generation"] = json!(1);
        let conditions = json!([{"type": "Progressing", "status": "True", "reason": reason}]);
        live["status"] = json!({"observedGeneration": 1, "conditions": conditions});
        risk((&ccm, &validated), &wanted, &live, || vec![plain("a")]).map(|problem| problem.reason)
    };
    assert_eq!((at("ReplicaSetUpdated"), at("NewReplicaSetAvailable")), (Some(UNKNOWN_VERSION), None));
}

#[test]
fn of_a_rollout_that_may_end_all_pods_at_once_none_counts() {
    let three = [plain("a"), plain("b"), plain("c")];
    let is_refused = |provider: &str, field: &str, strategy: Value| {
        let (_, _, live) = asked(provider, json!({}), "");
        let mut live = live.value().clone();
        live["status"] = json!({"desiredNumberScheduled": three.len(), "observedGeneration": 1});
        let (ccm, validated, mut wanted) = asked(provider, version("1.35.0"), "");
        wanted.value_mut()["spec"][field] = strategy;
        risk((&ccm, &validated), &wanted, &live, || three.to_vec()).is_some()
    };
    let rolling = |most: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}});
    // Of two replicas, rounded down.
    let deployment = |strategy: Value| is_refused("hcloud", "strategy", strategy);
    assert!(deployment(json!({"type": "Recreate"})), "as external providers of an earlier scaffold have it");
    assert!(!deployment(json!({"type": "RollingUpdate"})), "a quarter");
    let of_deployment = [json!(1), json!("50%"), json!("99%"), json!(2), json!("100%")].map(rolling).map(deployment);
    assert_eq!(of_deployment, [false, false, false, true, true]);
    // Of three pods, rounded up.
    let daemon_set = |strategy: Value| is_refused("aws", "updateStrategy", strategy);
    assert!(!daemon_set(json!({"type": "OnDelete"})), "no rollout ends them");
    let of_daemon_set = [json!(1), json!("66%"), json!("67%"), json!(3), json!("100%")].map(rolling).map(daemon_set);
    assert_eq!(of_daemon_set, [false, false, true, true, true]);
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
        problem(provider, change, &[plain("a"), other], "").map(|problem| problem.message)
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
    let why = problem("aws", change(), std::slice::from_ref(&tainted), "").unwrap().message;
    assert!(
        why.starts_with("spec.placement.tolerations: no node takes the pods: a has the taint dedicated=cp:NoExecute"),
        "{why}"
    );
    assert_eq!(reason("aws", change(), &[tainted.clone(), plain("b")], ""), None);
    assert_eq!(reason("aws", change(), &[tainted], "control-plane"), None);
}

#[test]
fn a_version_that_must_not_run_replaces_none() {
    let nodes = [plain("a"), plain("b"), plain("c")];
    let hcloud = |before: &str, after: &str, skips| reason("hcloud", (version(before), version(after)), &nodes, skips);
    assert_eq!(hcloud("v1.35.0", "v1.30.0", ""), Some(VERSION_BROKEN));
    assert_eq!(hcloud("v1.35.0", "v1.30.0", "version"), None);
    assert_eq!(hcloud("v1.30.0", "v1.30.0", ""), None, "it runs already");
    assert_eq!(hcloud("v1.30.0", "v1.30.1", ""), None);
}
