#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use proptest::prelude::*;

use super::*;

fn desired() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "namespace": "n", "labels": {"ours": "x"}},
        "spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 1}], "selector": {"a": "b"}},
    })
}

/// The live object after an apply, with the fields that the server fills in.
fn live() -> Value {
    let mut live = desired();
    live["metadata"]["resourceVersion"] = "7".into();
    live["spec"]["clusterIP"] = "10.0.0.1".into();
    live["spec"]["ports"][0]["protocol"] = "TCP".into();
    live["status"] = json!({"x": 1});
    live["metadata"]["managedFields"] = json!([entry(
        FIELD_MANAGER,
        "Apply",
        json!({
            "f:metadata": {"f:labels": {"f:ours": {}}},
            "f:spec": {
                "f:type": {},
                "f:selector": {},
                "f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}},
            },
        })
    )]);
    live
}

fn entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn add(live: &mut Value, entry: Value) {
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
}

#[test]
fn an_applied_object_needs_nothing() {
    assert_eq!(required_writes(&desired(), &live()), RequiredWrites::Nothing);
}

#[test]
fn a_port_without_a_protocol_is_one_of_tcp() {
    let owns = |protocols: &[&str]| {
        let mut live = live();
        let port = |protocol: &&str| format!("k:{{\"port\":1,\"protocol\":\"{protocol}\"}}");
        let fields: Map<_, _> =
            protocols.iter().map(|one| (port(one), json!({".": {}, "f:name": {}, "f:port": {}}))).collect();
        live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ports"] = Value::Object(fields);
        let ports = protocols.iter().map(|protocol| json!({"name": "https", "port": 1, "protocol": protocol}));
        live["spec"]["ports"] = ports.collect();
        required_writes(&desired(), &live)
    };
    assert_eq!(owns(&["TCP"]), RequiredWrites::Nothing);
    assert_eq!(owns(&["UDP"]), RequiredWrites::Apply);
    assert_eq!(owns(&["TCP", "UDP"]), RequiredWrites::Apply);
    assert_eq!(owns(&["SCTP", "TCP"]), RequiredWrites::Apply);
}

#[test]
fn status_and_other_peoples_metadata_are_none_of_ours() {
    let mut live = live();
    add(&mut live, entry("somebody", "Update", json!({"f:metadata": {"f:labels": {"f:theirs": {}}}})));
    live["metadata"]["labels"]["theirs"] = "y".into();
    let mut status = entry("controller", "Update", json!({"f:spec": {"f:more": {}}}));
    status["subresource"] = "status".into();
    add(&mut live, status);
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Nothing);
}

#[test]
fn a_changed_value_needs_one_apply() {
    let mut live = live();
    live["spec"]["type"] = "NodePort".into();
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Apply);
}

#[test]
fn a_field_that_is_no_longer_ours_needs_one_apply() {
    let mut live = live();
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().unwrap().remove("f:type");
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Apply);
}

#[test]
fn a_field_that_we_no_longer_want_needs_one_apply() {
    let mut live = live();
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:old"] = json!({});
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Apply);
}

#[test]
fn wiped_managed_fields_are_taken_over() {
    let mut live = live();
    live["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::MigrateThenApply);
}

#[test]
fn a_field_of_others_beside_ours_has_to_be_adopted() {
    let mut live = live();
    let port = json!({"f:spec": {"f:ports": {"k:{\"port\":2,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    add(&mut live, entry("somebody", "Update", port));
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::MigrateThenApply);
    // The apply of another manager is intentional, so it is not migrated.
    live["metadata"]["managedFields"][1]["operation"] = "Apply".into();
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Nothing);
}

#[test]
fn another_value_of_our_field_is_no_reason_to_migrate() {
    let mut live = live();
    live["spec"]["type"] = "NodePort".into();
    live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().unwrap().remove("f:type");
    add(&mut live, entry("somebody", "Update", json!({"f:spec": {"f:type": {}}})));
    assert_eq!(required_writes(&desired(), &live), RequiredWrites::Apply);
}

#[test]
fn a_migration_moves_roots_of_anybody_and_all_of_the_predecessor() {
    let mut live = live();
    let theirs = json!({"f:metadata": {"f:labels": {"f:theirs": {}}}, "f:spec": {"f:sidecar": {}}});
    add(&mut live, entry("somebody", "Update", theirs));
    let old = json!({"f:metadata": {"f:annotations": {"f:old": {}}}, "f:spec": {"f:type": {}}});
    add(&mut live, entry("cluster-controller-manager-operator", "Update", old));
    add(&mut live, entry("applier", "Apply", json!({"f:spec": {"f:kept": {}}})));
    let migrated = migrate(&live);
    let entries = migrated.as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, [FIELD_MANAGER, "somebody", "applier"]);
    let ours = &entries[0]["fieldsV1"];
    assert_eq!(ours["f:spec"]["f:sidecar"], json!({}));
    assert_eq!(ours["f:metadata"], json!({"f:labels": {"f:ours": {}}, "f:annotations": {"f:old": {}}}));
    assert_eq!(entries[1]["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:theirs": {}}}}));
    assert_eq!(entries[2]["fieldsV1"], json!({"f:spec": {"f:kept": {}}}));
}

#[test]
fn a_migration_makes_our_entry_where_there_is_none() {
    let mut live = live();
    live["metadata"]["managedFields"] = json!([entry("somebody", "Update", json!({"f:spec": {"f:x": {}}}))]);
    let migrated = migrate(&live);
    assert_eq!(migrated, json!([entry(FIELD_MANAGER, "Apply", json!({"f:spec": {"f:x": {}}}))]));
}

#[test]
fn an_object_is_new_if_nothing_but_its_creation_has_written_it() {
    let created = "2026-11-25T04:00:01Z";
    let of = |entries: Value| json!({"metadata": {"creationTimestamp": created, "managedFields": entries}});
    let written = |manager: &str, time: &str| json!({"manager": manager, "operation": "Apply", "time": time});
    let ours = written(FIELD_MANAGER, created);
    assert!(is_new(&of(json!([ours]))));
    assert!(is_new(&of(json!([written(FIELD_MANAGER, "2026-11-25T04:00:00Z")]))), "across the end of a second");
    assert!(!is_new(&of(json!([written(FIELD_MANAGER, "2026-11-25T04:00:02Z")]))));
    assert!(!is_new(&of(json!([written("kubectl", created)]))));
    assert!(!is_new(&of(json!([ours, ours]))));
}

#[test]
fn the_last_other_manager_is_that_of_the_latest_change() {
    let written = |manager: &str, time: &str, subresource: &str| json!({"manager": manager, "operation": "Update", "time": time, "subresource": subresource});
    let mut ours = entry(FIELD_MANAGER, "Apply", json!({}));
    ours["time"] = "9".into();
    let entries = json!([written("first", "1", ""), written("status", "3", "status"), written("last", "2", ""), ours]);
    assert_eq!(last_other_manager(&json!({"metadata": {"managedFields": entries}})), Some("last"));
    assert_eq!(last_other_manager(&json!({"metadata": {"managedFields": [ours]}})), None);
}

#[test]
fn a_bare_object_has_its_identity_and_nothing_else() {
    let mut whole = desired();
    whole["metadata"]["labels"] = json!({"a": "b"});
    let bare = bare(&whole);
    assert_eq!(bare.as_object().unwrap().len(), 3);
    assert_eq!((&bare["apiVersion"], &bare["kind"]), (&whole["apiVersion"], &whole["kind"]));
    assert_eq!(bare["metadata"]["name"], whole["metadata"]["name"]);
    assert_eq!(bare["metadata"].get("labels"), None);
}

#[test]
fn live_maps_may_hold_more_and_live_lists_may_not() {
    assert!(covers(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1, "c": 2}, "d": 3})));
    assert!(!covers(&json!({"a": {"b": 1}}), &json!({"a": {"c": 2}})));
    assert!(covers(&json!([{"a": 1}]), &json!([{"a": 1, "b": 2}])));
    assert!(!covers(&json!([1]), &json!([1, 2])));
    assert!(!covers(&json!([1]), &json!([2])));
    assert!(!covers(&json!([]), &json!([1])));
    assert!(covers(&json!([]), &Value::Null), "it is stored as none");
    assert!(!covers(&json!([1]), &Value::Null));
    assert!(!covers(&json!(1), &json!(2)));
}

#[test]
fn an_owned_item_beside_the_desired_one_must_go() {
    let (port, other) = (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"k:{"containerPort":80}"#);
    let (desired, live) = (json!([{"containerPort": 80}]), json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert!(holds(&json!({ port: {} }), &desired, &live));
    assert!(!holds(&json!({port: {}, other: {}}), &desired, &live));
}

#[test]
fn a_value_in_a_set_is_found_by_itself() {
    assert!(path_matches(r#"v:"a""#, &json!("a")));
    assert!(!path_matches(r#"v:"a""#, &json!("b")));
    assert!(holds(&json!({".": {}}), &json!("a"), &json!("a")));
    assert!(!holds(&json!({".": {}}), &json!("a"), &json!("b")));
}

fn fields() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("f:[a-c]|k:\\{\"name\":\"[ab]\"\\}|v:1|\\.", inner, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    })
}

proptest! {
    /// No content of managed fields causes a panic, and a migration is idempotent: migrated fields need no second
    /// migration. Field sets as text give the same results.
    #[test]
    fn migrating_once_is_enough(ours in fields(), theirs in fields(), predecessor in any::<bool>()) {
        let manager = if predecessor { "cluster-controller-manager-operator" } else { "somebody" };
        let mut live = live();
        let roots = |fields: Value| json!({"f:spec": fields.clone(), "f:metadata": {"f:labels": fields}});
        live["metadata"]["managedFields"] = json!([
            entry(FIELD_MANAGER, "Apply", roots(ours)),
            entry(manager, "Update", roots(theirs)),
        ]);
        let mut compacted = live.clone();
        for entry in compacted["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
            compact(&mut entry["fieldsV1"]);
            prop_assert!(entry["fieldsV1"].is_string());
        }
        prop_assert_eq!(required_writes(&desired(), &compacted), required_writes(&desired(), &live));
        prop_assert_eq!(migrate(&compacted), migrate(&live));
        let of_others = |live| ["a", "b", "c"].map(|label| is_label_of_others(live, label));
        prop_assert_eq!(of_others(&compacted), of_others(&live));
        live["metadata"]["managedFields"] = migrate(&live);
        prop_assert_ne!(required_writes(&desired(), &live), RequiredWrites::MigrateThenApply);
        prop_assert_eq!(migrate(&live), live["metadata"]["managedFields"].clone());
    }
}
