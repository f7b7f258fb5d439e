#![allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "tests read best with literals")]

use super::*;
use crate::apply::ownership::FIELD_MANAGER;

fn desired(kind: &str) -> Object {
    let (api_version, metadata) = match kind {
        "Service" => ("v1", json!({"name": "a", "namespace": "n"})),
        _ => ("rbac.authorization.k8s.io/v1", json!({"name": "a"})),
    };
    Object::new(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"x": 1}})).unwrap()
}

fn entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn live(entries: Value) -> Value {
    json!({"metadata": {"name": "a", "resourceVersion": "1", "managedFields": entries}, "spec": {"x": 1}})
}

fn ours() -> Value {
    live(json!([entry(FIELD_MANAGER, "Apply", json!({"f:spec": {"f:x": {}}}))]))
}

fn with_others() -> Value {
    live(json!([entry("edit", "Update", json!({"f:spec": {"f:y": {}}}))]))
}

/// Runs the steps with these responses; returns their names and the end.
fn run(desired: &Object, seen: Option<&Value>, answers: Vec<Answer>) -> (Vec<String>, End) {
    perform_steps(desired, LiveState::of(seen), answers)
}

fn perform_steps(desired: &Object, live_state: LiveState, answers: Vec<Answer>) -> (Vec<String>, End) {
    finish(Steps::new(desired, live_state), answers)
}

fn finish(mut sequence: Steps, answers: Vec<Answer>) -> (Vec<String>, End) {
    let (mut steps, mut next, mut answers) = (Vec::new(), sequence.first(), answers.into_iter());
    loop {
        match next {
            Next::Break(end) => {
                assert_eq!(answers.next(), None, "answers are left after {steps:?}");
                return (steps, end);
            }
            Next::Continue(step) => {
                steps.push(format!("{step:?}").split('(').next().unwrap().to_owned());
                next = sequence.next(answers.next().unwrap_or_else(|| panic!("no answer to {steps:?}")));
            }
        }
    }
}

fn object(value: Value) -> Answer {
    Ok(Some(value))
}

#[test]
fn an_object_as_planned_needs_no_step() {
    let service = desired("Service");
    assert_eq!(run(&service, Some(&ours()), vec![]), (vec![], End::Unchanged));
    let mut ignored = with_others();
    ignored["metadata"]["annotations"] = json!({"client.lifecycle.config.k8s.io/mutation": "ignore"});
    let mut member = desired("Service");
    member.set_label(PART_OF_LABEL, "set");
    assert_eq!(run(&member, Some(&ignored), vec![]), (vec![], End::LeftAlone(None)));
    let synced = run(&service, Some(&ignored), vec![Ok(None), Ok(Some(ours()))]).1;
    assert_eq!(synced, End::Applied(ours()), "not a member of the set");
}

/// An object of our set.
fn member() -> Object {
    let mut member = desired("Service");
    member.set_label(PART_OF_LABEL, "set");
    member
}

/// Runs the steps for an object that no watch shows; `live` is the result of its read.
fn read_first(live: Value, answers: Vec<Answer>) -> (String, End) {
    let (steps, end) = perform_steps(&member(), LiveState::Unknown, [vec![object(live)], answers].concat());
    (steps.join(" "), end)
}

#[test]
fn an_object_that_may_exist_is_looked_at_before_it_is_taken_over() {
    let (steps, end) = perform_steps(&member(), LiveState::Unknown, vec![Ok(None), object(ours())]);
    assert_eq!((steps.join(" "), end), ("Read Apply".into(), End::Applied(ours())));
    let taken = read_first(with_others(), vec![Ok(None), object(ours())]);
    assert_eq!(taken, ("Read Migrate Apply".into(), End::Applied(ours())));

    let mut ignored = ours();
    ignored["metadata"]["annotations"] = json!({"client.lifecycle.config.k8s.io/mutation": "ignore"});
    assert_eq!(read_first(ignored.clone(), vec![]), ("Read".into(), End::LeftAlone(Some(ignored.clone()))));
    let (_, end) = perform_steps(&member(), LiveState::Absent, vec![Err(Refusal::Invalid), object(ignored.clone())]);
    assert_eq!(end, End::LeftAlone(Some(ignored)), "it came meanwhile, and was refused");

    let label = json!({"f:metadata": {"f:labels": {format!("f:{}", PART_OF_LABEL): {}}}});
    let of_set = |manager: &str| {
        let mut live = live(json!([entry(manager, "Apply", label.clone())]));
        live["metadata"]["labels"] = json!({PART_OF_LABEL: "other"});
        live
    };
    assert_eq!(read_first(of_set("tool"), vec![]), ("Read".into(), End::OtherApplySet("other".into())));
    let seen = of_set("tool");
    assert_eq!(perform_steps(&member(), LiveState::Seen(&seen), vec![]), (vec![], End::OtherApplySet("other".into())));
    let (steps, _) = read_first(of_set(FIELD_MANAGER), vec![object(ours())]);
    assert_eq!(steps, "Read Apply", "of this operator, in another namespace");
}

#[test]
fn an_object_of_others_is_not_taken_over_where_they_keep_theirs() {
    let run = |live_state: LiveState, answers: Vec<Answer>| {
        let member = member();
        let mut sequence = Steps::new(&member, live_state).adopting(false);
        let (mut next, mut answers, mut steps) = (sequence.first(), answers.into_iter(), 0);
        while let Next::Continue(_) = next {
            steps += 1;
            next = sequence.next(answers.next().unwrap_or(Err(Refusal::Other)));
        }
        (steps, next.break_value().unwrap())
    };
    assert_eq!(run(LiveState::Unknown, vec![Ok(None), object(ours())]), (2, End::Applied(ours())));
    let theirs = live(json!([entry("kubectl", "Update", json!({"f:spec": {"f:type": {}}}))]));
    let of_others = || End::NotOwned("kubectl".into());
    assert_eq!(run(LiveState::Unknown, vec![object(theirs.clone())]), (1, of_others()));
    // Neither our label nor the annotation against changes makes the object ours.
    let mut labeled = theirs.clone();
    labeled["metadata"]["labels"] = json!({PART_OF_LABEL: "set"});
    labeled["metadata"]["annotations"] = json!({"client.lifecycle.config.k8s.io/mutation": "ignore"});
    assert_eq!(run(LiveState::Seen(&labeled), vec![]), (0, of_others()));
    assert_eq!(run(LiveState::Unknown, vec![object(labeled)]), (1, of_others()));
    // An object of ours that has lost its label.
    assert_eq!(run(LiveState::Unknown, vec![object(ours()), object(ours())]), (2, End::Applied(ours())));
    let mut wiped = live(json!([]));
    assert_eq!(run(LiveState::Unknown, vec![object(wiped.clone())]).1, End::NotOwned("another manager".into()));
    wiped["metadata"]["labels"] = json!({PART_OF_LABEL: "set"});
    assert!(run(LiveState::Seen(&wiped), vec![]).0 > 0, "one of ours that has lost its managed fields");
}

#[test]
fn other_managers_fields_are_migrated_once() {
    let service = desired("Service");
    let migrated = (vec!["Migrate".into(), "Apply".into()], End::Applied(with_others()));
    assert_eq!(run(&service, Some(&with_others()), vec![Ok(None), object(with_others())]), migrated);
    // Unseen: only the response to the apply shows other managers' fields.
    let answers = vec![object(with_others()), Ok(None), object(ours())];
    let (steps, end) = run(&service, None, answers);
    assert_eq!((steps.join(" "), end), ("Apply Migrate Apply".into(), End::Applied(ours())));
    // Wiped: only the API server knows the owners.
    let (steps, _) = run(&service, Some(&live(json!([]))), vec![object(with_others()), Ok(None), object(ours())]);
    assert_eq!(steps.join(" "), "Probe Migrate Apply");
}

#[test]
fn a_conflicting_migration_is_tried_three_times() {
    let conflict = || Err(Refusal::Conflict);
    let again = || object(with_others());
    let answers = vec![conflict(), again(), conflict(), again(), Ok(None), object(ours())];
    let (steps, end) = run(&desired("Service"), Some(&with_others()), answers);
    assert_eq!((steps.join(" "), end), ("Migrate Read Migrate Read Migrate Apply".into(), End::Applied(ours())));
    let answers = vec![conflict(), again(), conflict(), again(), conflict()];
    let (steps, end) = run(&desired("Service"), Some(&with_others()), answers);
    assert_eq!((steps.join(" "), end), ("Migrate Read Migrate Read Migrate".into(), End::Refused));
}

#[test]
fn an_object_that_was_not_seen_may_be_invalid_for_other_managers_fields() {
    let service = desired("Service");
    let invalid = || Err(Refusal::Invalid);
    let (steps, _) = run(&service, None, vec![invalid(), object(with_others()), Ok(None), object(ours())]);
    assert_eq!(steps.join(" "), "Apply Read Migrate Apply");
    assert_eq!(run(&service, None, vec![invalid(), Ok(None)]).1, End::Refused);
    assert_eq!(run(&service, None, vec![invalid(), object(ours())]).1, End::Refused);
    assert_eq!(run(&service, Some(&with_others()), vec![Ok(None), invalid()]).1, End::Refused);
}

#[test]
fn nothing_is_deleted_before_its_temporary_object_is_accepted() {
    let immutable = || Err(Refusal::Immutable);
    let mut changed = ours();
    changed["spec"]["x"] = 2.into();
    let answers = vec![immutable(), object(changed.clone()), object(ours()), Ok(None), object(ours())];
    let (steps, end) = run(&desired("Service"), Some(&changed), answers);
    assert_eq!(steps.join(" "), "Apply Read ApplyTemporary Delete Apply");
    assert_eq!(end, End::Recreated { before: changed.clone(), after: ours() });

    let refused = vec![immutable(), object(changed.clone()), Err(Refusal::Invalid)];
    let (steps, end) = run(&desired("Service"), Some(&changed), refused);
    assert_eq!((steps.join(" "), end), ("Apply Read ApplyTemporary".into(), End::Refused));

    // The same for an unseen object, with one read.
    let answers = vec![immutable(), object(changed.clone()), object(ours()), Ok(None), object(ours())];
    assert_eq!(run(&desired("Service"), None, answers).0.join(" "), "Apply Read ApplyTemporary Delete Apply");
}

#[test]
fn an_old_temporary_object_of_a_binding_is_replaced_once() {
    let immutable = || Err(Refusal::Immutable);
    let mut changed = ours();
    changed["spec"]["x"] = 2.into();
    let head = || vec![immutable(), object(changed.clone()), Ok(None), immutable()];
    let rest = vec![Ok(None), object(ours()), Ok(None), object(ours())];
    let (steps, _) = run(&desired("ClusterRoleBinding"), Some(&changed), [head(), rest].concat());
    assert_eq!(steps.join(" "), "Apply Read ReadTemporary ApplyTemporary DeleteTemporary ApplyTemporary Delete Apply");
    let (_, end) = run(&desired("ClusterRoleBinding"), Some(&changed), [head(), vec![Ok(None), immutable()]].concat());
    assert_eq!(end, End::Refused);
    let of_service = vec![immutable(), object(changed.clone()), immutable()];
    assert_eq!(run(&desired("Service"), Some(&changed), of_service).1, End::Refused);
}

#[test]
fn a_temporary_object_of_somebody_else_is_left_alone() {
    let mut changed = ours();
    changed["spec"]["x"] = 2.into();
    let theirs = live(json!([entry("kubectl", "Update", json!({"f:roleRef": {}}))]));
    let answers = vec![Err(Refusal::Immutable), object(changed.clone()), object(theirs)];
    let binding = desired("ClusterRoleBinding");
    let (steps, end) = finish(Steps::new(&binding, LiveState::Seen(&changed)).adopting(false), answers);
    assert_eq!((steps.join(" "), end), ("Apply Read ReadTemporary".into(), End::NotOwned("kubectl".into())));
}

#[test]
fn finalizers_hold_a_deletion() {
    let mut changed = ours();
    changed["spec"]["x"] = 2.into();
    let mut held = changed.clone();
    held["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    let immutable = || Err(Refusal::Immutable);
    let answers = vec![immutable(), object(changed.clone()), object(ours()), object(held.clone())];
    assert_eq!(run(&desired("Service"), Some(&changed), answers).1, End::BlockedByFinalizers("a/b, c/d".into()));
    held["metadata"]["deletionTimestamp"] = "now".into();
    let answers = vec![immutable(), object(held)];
    assert_eq!(run(&desired("Service"), Some(&changed), answers).1, End::BlockedByFinalizers("a/b, c/d".into()));
}

#[test]
fn only_a_member_of_the_set_is_looked_at_first() {
    let (steps, _) = perform_steps(&desired("Service"), LiveState::Unknown, vec![object(ours())]);
    assert_eq!(steps, ["Apply"], "a synced object is always ours");
}

#[test]
fn a_refusal_of_an_object_that_was_seen_stands() {
    let changed = live(json!([entry(FIELD_MANAGER, "Apply", json!({"f:spec": {"f:z": {}}}))]));
    let (steps, end) = run(&desired("Service"), Some(&changed), vec![Err(Refusal::Invalid)]);
    assert_eq!((steps, end), (vec!["Apply".to_owned()], End::Refused));
}

#[test]
fn a_deleted_object_without_finalizers_is_created_again() {
    let going = live(json!([]));
    let answers = vec![Err(Refusal::Immutable), object(ours()), object(json!({})), object(going), object(ours())];
    let (steps, end) = run(
        &desired("Service"),
        Some(&live(json!([entry(FIELD_MANAGER, "Apply", json!({"f:spec": {"f:z": {}}}))]))),
        answers,
    );
    assert_eq!(steps, ["Apply", "Read", "ApplyTemporary", "Delete", "Apply"]);
    assert_eq!(end, End::Recreated { before: ours(), after: ours() });
}

#[test]
fn a_migration_is_guarded_by_the_version_that_was_seen() {
    let patch = migration_patch(&with_others());
    assert_eq!(patch["metadata"]["resourceVersion"], "1");
    let managers = patch["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["manager"] == FIELD_MANAGER), "{patch}");
}
