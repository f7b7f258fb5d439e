use serde_json::json;

use super::*;

fn key() -> Key {
    Key { group: "apps".into(), kind: "Deployment".into(), namespace: "n".into(), name: "ccm".into() }
}

fn deployment(replicas: u8, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "ccm", "namespace": "n", "uid": "x", "resourceVersion": replicas.to_string(), "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}],
            "annotations": {LAST_APPLIED: "{}"},
        },
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "ccm", "image": image, "env": [{"name": "OS_PASSWORD", "value": image}]},
            {"name": "other", "image": "same"},
        ]}}},
        "status": {"replicas": replicas},
    })
}

#[test]
fn a_diff_names_fields_and_shows_no_noise_and_no_secret() {
    let change = Change::between(key(), Some(&deployment(1, "a")), Some(&deployment(2, "b"))).unwrap();
    assert_eq!(change.action, Action::Configure);
    assert_eq!(
        change.fields,
        [
            "spec.replicas",
            "spec.template.spec.containers[name=ccm].env[name=OS_PASSWORD].value",
            "spec.template.spec.containers[name=ccm].image"
        ]
    );
    insta::assert_snapshot!(unified(&[change], false), @r#"
    --- Deployment n/ccm (live)
    +++ Deployment n/ccm (planned)
    @@ -4,14 +4,14 @@
       name: ccm
       namespace: "n"
     spec:
    -  replicas: 1
    +  replicas: 2
       template:
         spec:
           containers:
           - env:
             - name: OS_PASSWORD
    -          value: "*** (before)"
    -        image: a
    +          value: "*** (after)"
    +        image: b
             name: ccm
           - image: same
             name: other
    "#);
}

#[test]
fn what_the_server_counts_is_no_difference() {
    let mut after = deployment(1, "a");
    after["status"]["replicas"] = 7.into();
    after["metadata"]["resourceVersion"] = "9".into();
    let change = Change::between(key(), Some(&deployment(1, "a")), Some(&after)).unwrap();
    assert_eq!(change.action, Action::Unchanged);
    assert!(!change.is_difference());
    assert_eq!(unified(&[change], false), "");
}

#[test]
fn new_and_removed_objects_are_shown_whole() {
    let created = Change::between(key(), None, Some(&deployment(1, "a"))).unwrap();
    let pruned = Change::between(key(), Some(&deployment(1, "a")), None).unwrap();
    let text = unified(&[created, pruned], false);
    assert!(text.starts_with("--- /dev/null\n+++ Deployment n/ccm (planned)\n"), "{text}");
    assert!(text.contains("--- Deployment n/ccm (live)\n+++ /dev/null\n"), "{text}");
    assert!(text.contains("\n+  replicas: 1\n") && text.contains("\n-  replicas: 1\n"), "{text}");
}

#[test]
fn colors_are_for_terminals() {
    let change = Change::between(key(), Some(&deployment(1, "a")), Some(&deployment(2, "a"))).unwrap();
    let text = unified(std::slice::from_ref(&change), true);
    assert!(text.contains("\x1b[31m-  replicas: 1\x1b[0m\n\x1b[32m+  replicas: 2\x1b[0m\n"), "{text}");
    assert!(!unified(&[change], false).contains('\x1b'));
}

#[test]
fn programs_read_actions_and_fields() {
    let changes = [
        Change::between(key(), Some(&deployment(1, "a")), Some(&deployment(2, "a"))).unwrap(),
        Change::without(key(), Action::Refuse, Some("no".into())),
    ];
    assert_eq!(
        serde_json::to_value(&changes).unwrap(),
        json!([
            {"group": "apps", "kind": "Deployment", "namespace": "n", "name": "ccm", "action": "configure",
             "fields": ["spec.replicas"]},
            {"group": "apps", "kind": "Deployment", "namespace": "n", "name": "ccm", "action": "refuse", "why": "no"},
        ])
    );
    assert_eq!(summary(&changes), "0 to create, 1 to change, 0 to remove, 0 as planned, 1 refused");
}
