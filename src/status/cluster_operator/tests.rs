use super::*;
use crate::apply::settled::Settled;

const V1: &str = "4.21.0";

fn next(previous: &Status, outcome: &Outcome, version: &str, now: &str) -> Status {
    let related_objects = related_objects("own", "managed", &[], std::iter::empty());
    let context = Context { version, related_objects, remarks: String::new(), now };
    previous.next(outcome, &context)
}

fn summary(status: &Status) -> Vec<(&str, &str, &str)> {
    let conditions = status.conditions.iter();
    conditions.map(|condition| (&*condition.type_, &*condition.status, &*condition.reason)).collect()
}

fn applied() -> Outcome {
    Outcome::Applied(Settled::after_pass())
}

fn failed(error: &str) -> Outcome {
    Outcome::Failed { error: error.into(), is_terminal: false }
}

fn progressing() -> Outcome {
    let key = Key { group: "apps".into(), kind: "Deployment".into(), namespace: "n".into(), name: "ccm".into() };
    Outcome::RollingOut { settled: Settled::after_pass(), rollouts: vec![key], nodes: String::new() }
}

#[test]
fn the_version_is_announced_when_it_is_reached() {
    let first = next(&Status::default(), &progressing(), V1, "t1");
    assert_eq!(
        summary(&first),
        [
            ("Available", "False", "SyncingResources"),
            ("Progressing", "True", "SyncingResources"),
            ("Degraded", "False", "AsExpected"),
            ("Upgradeable", "True", "AsExpected"),
        ]
    );
    assert_eq!(first.conditions[1].message, "Progressing towards operator: 4.21.0");
    assert!(first.versions.is_empty());

    let second = next(&first, &applied(), V1, "t2");
    assert_eq!(
        summary(&second),
        [
            ("Available", "True", "AsExpected"),
            ("Progressing", "False", "AsExpected"),
            ("Degraded", "False", "AsExpected"),
            ("Upgradeable", "True", "AsExpected"),
        ]
    );
    assert_eq!(second.versions[0].version, V1);
    assert_eq!(second.conditions[2].last_transition_time, "t1", "what has not changed keeps its time");

    let upgrade = next(&second, &progressing(), "4.22.0", "t3");
    assert_eq!(upgrade.conditions[1].message, "Progressing towards operator: 4.22.0");
    assert_eq!(upgrade.versions, second.versions, "the old version stays until the new one is reached");
    assert_eq!(upgrade.conditions[0], second.conditions[0], "Available keeps its value");

    let again = next(&second, &progressing(), V1, "t3");
    assert_eq!(again.conditions[1].message, "Waiting for the rollout of Deployment n/ccm");
    assert_eq!(again.conditions[1].reason, "AsExpected");
}

#[test]
fn the_nodes_that_may_hold_up_a_rollout_are_named_with_it() {
    let Outcome::RollingOut { settled, rollouts, .. } = progressing() else { panic!("another outcome") };
    let nodes = "; of the nodes for its pods these are not ready: a".into();
    let held_up = Outcome::RollingOut { settled, rollouts, nodes };
    let upgrade = next(&Status::default(), &held_up, V1, "t1");
    assert_eq!(
        upgrade.conditions[1].message,
        "Progressing towards operator: 4.21.0; of the nodes for its pods these are not ready: a"
    );
    let done = next(&upgrade, &applied(), V1, "t2");
    assert_eq!(
        next(&done, &held_up, V1, "t3").conditions[1].message,
        "Waiting for the rollout of Deployment n/ccm; of the nodes for its pods these are not ready: a"
    );
}

#[test]
fn an_error_is_reported_and_nothing_else_changes() {
    let done = next(&Status::default(), &applied(), V1, "t1");
    let after = next(&done, &failed("cause"), V1, "t2");
    assert_eq!(
        summary(&after),
        [
            ("Available", "True", "AsExpected"),
            ("Progressing", "False", "AsExpected"),
            ("Degraded", "True", "SyncingFailed"),
            ("Upgradeable", "False", "SyncingFailed"),
        ]
    );
    assert_eq!(after.conditions[2].message, "cause");
    let first = next(&Status::default(), &failed("cause"), V1, "t2");
    assert_eq!(summary(&first)[0], ("Available", "False", "SyncingResources"));
}

#[test]
fn the_same_state_is_written_once() {
    for outcome in [applied(), progressing(), failed("x"), Outcome::Nothing("y".into())] {
        let first = next(&Status::default(), &outcome, V1, "t1");
        assert!(first.has(&next(&first, &outcome, V1, "t2")), "{outcome:?}");
        assert!(!Status::default().has(&first));
    }
}

#[test]
fn a_controller_reports_its_own_conditions_and_stays_available_with_the_last_good_input() {
    let next_of = |before: &Status, error: Option<&str>, now| {
        let result = error.map_or(Ok(()), |error| Err(error.to_owned()));
        before.next_of(&[(&CLOUD_CONFIG, Some(&result)), (&TRUSTED_CA, None)], now)
    };
    let failed = next_of(&Status::default(), Some("cause"), "t1");
    assert_eq!(
        summary(&failed),
        [
            ("CloudConfigControllerAvailable", "False", "SyncingFailed"),
            ("CloudConfigControllerDegraded", "True", "SyncingFailed"),
        ]
    );
    assert!(!failed.is_available(&CLOUD_CONFIG));
    let synced = next_of(&failed, None, "t2");
    assert!(synced.is_available(&CLOUD_CONFIG) && !synced.is_available(&TRUSTED_CA));
    assert_eq!(synced.problem_of(&CLOUD_CONFIG), None);
    let again = next_of(&synced, Some("cause"), "t3");
    assert_eq!(again.conditions[0], synced.conditions[0]);
    assert_eq!(again.problem_of(&CLOUD_CONFIG), Some("cause"));
    assert!(again.has(&next_of(&again, Some("cause"), "t4")));
    assert_eq!(serde_json::to_value(&again).unwrap().as_object().unwrap().len(), 1, "no versions, no objects");
}

#[test]
fn a_controller_without_a_result_keeps_its_conditions() {
    let both = [(&CLOUD_CONFIG, Some(&Ok(()))), (&TRUSTED_CA, Some(&Ok(())))];
    let before = Status::default().next_of(&both, "t1");
    let problem = Err("cause".to_owned());
    let after = before.next_of(&[(&CLOUD_CONFIG, Some(&problem)), (&TRUSTED_CA, None)], "t2");
    assert_eq!(after.conditions[2..], before.conditions[2..]);
    assert_eq!(after.problem_of(&CLOUD_CONFIG), Some("cause"));
}

#[test]
fn conditions_of_other_writers_are_ignored_but_the_obsolete_one_is_removed() {
    let own = next(&Status::default(), &applied(), V1, "t1");
    let mut live = json!({"metadata": {"resourceVersion": "7"}, "status": own});
    assert_eq!(without_obsolete_condition(&live), None);
    live["status"]["conditions"].as_array_mut().unwrap().insert(1, json!({"type": "CloudControllerOwner"}));
    assert!(Status::of(&live).has(&own));
    let patch = without_obsolete_condition(&live).unwrap();
    assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": own.conditions}}));
}

#[test]
fn a_deleted_cluster_operator_is_recreated_with_its_previous_status() {
    let before = next(&Status::default(), &applied(), V1, "1");
    let recreated = before.next_of(&[(&CLOUD_CONFIG, Some(&Ok(())))], "2").completed(&before);
    let problem = failed("x");
    let after = next(&recreated, &problem, V1, "3");
    assert_eq!(after.find("Available"), before.find("Available"));
    assert!(after.is_at(V1) && recreated.is_available(&CLOUD_CONFIG));
    assert_eq!(recreated.clone().completed(&before), recreated);
}
