use serde_json::json;

use super::*;
use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, version::Minor},
    nodes::node::{ALLOW_CONTROL_PLANE, ETCD_LABEL, KEEP, UNINITIALIZED},
    plan::Plan,
    provider::kubernetes::CONTROL_PLANE_LABEL,
    text::yaml,
};

const CLUSTER: Cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };

fn ccm(name: &str, lifecycle: &str) -> Ccm {
    let spec = json!({"provider": "aws", "namespace": "clouds", "controllers": {"cloudNodeLifecycle": lifecycle}});
    Ccm { name: name.into(), spec: serde_json::from_value(spec).unwrap(), cluster: CLUSTER, skips: Vec::new() }
}

/// The objects of the guard.
fn planned(name: &str, lifecycle: &str) -> Vec<Object> {
    let catalog = embedded::catalog().unwrap();
    let plan = Plan::of_ccm(&catalog, &ccm(name, lifecycle)).unwrap();
    plan.objects().iter().filter(|object| is_of_guard(object.value())).cloned().collect()
}

fn deletable(listed: &[&str], granted: &[&str]) -> Deletable {
    let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Deletable { listed: set(listed), granted: set(granted) }
}

#[test]
fn the_policy_stands_in_every_mode_and_the_permission_only_where_nodes_may_be_deleted() {
    for lifecycle in ["Rehearsal", "Disabled"] {
        let objects = planned("cluster", lifecycle);
        assert_eq!(objects, planned("cluster", "Enabled")[..2], "{lifecycle}");
        assert_eq!(listed(&objects[0], objects[0].value()), Some(BTreeSet::new()), "{lifecycle}");
    }
    let texts: Vec<_> = planned("second", "Enabled").iter().map(|object| yaml::to_string(object).unwrap()).collect();
    insta::assert_snapshot!("guard", texts.join("---\n"));
}

#[test]
fn the_policy_is_applied_before_the_permission() {
    let kinds: Vec<_> = planned("cluster", "Enabled").iter().map(|object| object.kind().kind).collect();
    let expected =
        ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ClusterRole", "ClusterRoleBinding"];
    assert_eq!(kinds, expected);
}

#[test]
fn what_is_confirmed_enters_the_policy_and_the_role_and_is_read_back() {
    let mut objects = planned("cluster", "Enabled");
    let before = objects.clone();
    let all = deletable(&["a/u/t", "b/u/t"], &["a"]);
    for object in &mut objects {
        confirm(object, &all);
    }
    assert_eq!(
        objects[0].value()["spec"]["variables"][0],
        json!({"name": CONFIRMED, "expression": "['a/u/t', 'b/u/t']"})
    );
    assert_eq!(
        objects[2].value()["rules"],
        json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": ["a"]}])
    );
    assert_eq!(listed(&before[0], objects[0].value()), Some(all.listed.clone()));
    assert_eq!(granted(objects[2].value()), all.granted);
    // Removing all nodes again never leaves a rule without names.
    for object in &mut objects {
        confirm(object, &Deletable::default());
    }
    assert_eq!(objects, before);
    assert_eq!(objects[2].value()["rules"], json!([]));
    assert_eq!(listed(&before[0], objects[0].value()), Some(BTreeSet::new()));
}

#[test]
fn a_policy_that_differs_is_not_in_force() {
    let policy = &planned("cluster", "Enabled")[0];
    for (pointer, value) in [
        ("/spec/failurePolicy", json!("Ignore")),
        ("/spec/matchConditions/0/expression", json!("false")),
        ("/spec/validations/3/expression", json!("true")),
        ("/spec/variables/1/expression", json!("['']")),
        ("/spec/variables/0/expression", json!("['a/u/t'] + ['b/u/t']")),
        ("/spec/variables/0/expression", json!("[annotations]")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        let mut live = policy.value().clone();
        live["metadata"]["deletionTimestamp"] = Value::Null;
        *live.pointer_mut(pointer).unwrap() = value;
        assert_eq!(listed(policy, &live), None, "{pointer}");
    }
}

#[test]
fn texts_cannot_leave_their_literal() {
    assert_eq!(literal(r"a'b\c"), r"'a\'b\\c'");
}

#[test]
fn the_policy_names_what_the_rules_read() {
    let text = yaml::to_string(&planned("cluster", "Enabled")[0]).unwrap();
    for name in [KEEP, ALLOW_CONTROL_PLANE, UNINITIALIZED, CONTROL_PLANE_LABEL, ETCD_LABEL] {
        assert!(text.contains(&format!("'{name}'")), "{name}");
    }
}
