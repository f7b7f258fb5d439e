use serde_json::json;

use super::*;
use crate::object::Key;

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
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "ccm", "image": image, "env": [{"name": "OS_PASSWORD", "value": image}]},
            {"name": "other", "image": "same"},
        ]}}},
        "status": {"replicas": replicas},
    })
}

fn between(before: Option<&Value>, after: Option<&Value>) -> Diff {
    let pruned = || Change::plain(key(), Action::Prune);
    let change = after.map_or_else(pruned, |after| Change::planned(key(), before, after));
    Diff::new(change, before, after)
}

#[test]
fn a_diff_names_fields_and_shows_no_noise_and_no_secret() {
    let diff = between(Some(&deployment(1, "a")), Some(&deployment(2, "b")));
    assert_eq!(diff.change.action, Action::Configure);
    assert_eq!(
        diff.change.fields,
        [
            "spec.replicas",
            "spec.template.spec.containers[name=ccm].env[name=OS_PASSWORD].value",
            "spec.template.spec.containers[name=ccm].image"
        ]
    );
    insta::assert_snapshot!(unified(&[diff], false), @r#"
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
fn server_fields_are_no_difference() {
    let mut after = deployment(1, "a");
    after["status"]["replicas"] = 7.into();
    after["metadata"]["resourceVersion"] = "9".into();
    let diff = between(Some(&deployment(1, "a")), Some(&after));
    assert_eq!(diff.change.action, Action::Unchanged);
    assert!(!diff.change.is_difference());
    assert_eq!(unified(&[diff], false), "");
}

#[test]
fn new_and_removed_objects_are_shown_whole() {
    let created = between(None, Some(&deployment(1, "a")));
    let pruned = between(Some(&deployment(1, "a")), None);
    let text = unified(&[created, pruned], false);
    assert!(text.starts_with("--- /dev/null\n+++ Deployment n/ccm (planned)\n"), "{text}");
    assert!(text.contains("--- Deployment n/ccm (live)\n+++ /dev/null\n"), "{text}");
    assert!(text.contains("\n+  replicas: 1\n") && text.contains("\n-  replicas: 1\n"), "{text}");
}

#[test]
fn colors_are_for_terminals() {
    let diff = between(Some(&deployment(1, "a")), Some(&deployment(2, "a")));
    let text = unified(std::slice::from_ref(&diff), true);
    assert!(text.contains("\x1b[31m-  replicas: 1\x1b[0m\n\x1b[32m+  replicas: 2\x1b[0m\n"), "{text}");
    assert!(!unified(&[diff], false).contains('\x1b'));
}

#[test]
fn programs_read_actions_and_fields() {
    let changes = [
        between(Some(&deployment(1, "a")), Some(&deployment(2, "a"))),
        Diff::new(Change::plain(key(), Action::Refuse).because("no"), None, None),
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

#[test]
fn colors_tell_titles_places_and_lines_apart() {
    let text = unified(&[between(Some(&deployment(1, "a")), Some(&deployment(2, "a")))], true);
    for line in
        ["\x1b[1m--- Deployment", "\x1b[1m+++ Deployment", "\x1b[36m@@", "\x1b[31m-  replicas", "\x1b[32m+  replicas"]
    {
        assert!(text.contains(line), "{line:?} is not in {text:?}");
    }
}

#[test]
fn a_change_in_one_line_says_what_would_be_done() {
    let line = |action| {
        Diff::new(Change { fields: vec!["spec".into()], ..Change::plain(key(), action).because("why") }, None, None)
            .line()
    };
    assert_eq!(line(Action::Create), "would create Deployment n/ccm");
    assert_eq!(line(Action::Configure), "would change Deployment n/ccm: spec");
    assert_eq!(line(Action::Recreate), "would delete and recreate Deployment n/ccm: spec");
    assert_eq!(line(Action::Refuse), "could not apply Deployment n/ccm: why");
}
