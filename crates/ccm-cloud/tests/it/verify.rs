//! The command `verify`.

use std::fs;

use ccm_drivers::conformance::CHECKS;
use serde_json::{Value, json};

use crate::{Cloud, external::Driver};

#[test]
fn the_fake_passes_each_check_and_nothing_is_left() {
    let cloud = Cloud::new();
    cloud.create("mine", "1", &[]);
    let done = cloud.run(&["verify", "--other-image", "fedora", "-o", "json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let outcomes: Vec<_> =
        report["results"].as_array().unwrap().iter().map(|row| (&row["id"], &row["outcome"])).collect();
    assert_eq!(outcomes.len(), CHECKS.len());
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == "passed"), "{}", done.stdout);
    let run = report["run"].as_str().unwrap();
    assert!(done.stderr.starts_with(&format!("run {run}: its instances are ccm-verify-{run}-1, ")), "{done:?}");
    assert_eq!(done.stderr.lines().next().unwrap().matches("ccm-verify-").count(), 5);
    assert_eq!(cloud.names(), ["mine"]);
}

#[test]
fn only_some_checks_run_and_read_only_makes_no_instance() {
    let cloud = Cloud::new();
    let done = cloud.run(&["verify", "--only", "I3,I4"]);
    assert!(done.code == Some(0) && done.stdout.contains("\n2 passed, 0 failed, 0 not run\n"), "{done:?}");
    let before = std::fs::read(cloud.file()).unwrap();
    let done = cloud.run(&["--read-only", "verify", "-o", "junit"]);
    assert!(done.code == Some(0) && done.stderr.is_empty(), "{done:?}");
    assert!(
        done.stdout.contains("name=\"I4 stopped-exists\">\n      <skipped message=\"it needs instances"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("name=\"I9 ids-are-unique\"/>"), "{}", done.stdout);
    assert_eq!(std::fs::read(cloud.file()).unwrap(), before);
}

#[test]
fn wrong_settings_are_an_error_before_any_check() {
    let cloud = Cloud::new();
    let line = cloud.run(&["--token", "another", "verify"]).bad(12);
    assert!(line.starts_with("ccm-cloud: InvalidCredentials: "), "{line}");
    cloud.run(&["--account-id", "another", "verify", "--clean-up"]).bad(12);
    assert_eq!(cloud.run(&["--read-only", "verify", "--clean-up"]).code, Some(0), "there is nothing to delete");
}

#[test]
fn credentials_that_are_not_wrong_fail_their_check() {
    let cloud = Cloud::new();
    let done = cloud.run(&["verify", "--only", "I7", "--wrong", "token=fake-token"]);
    assert!(done.code == Some(1) && done.stdout.contains("\n0 passed, 1 failed, 0 not run\n"), "{done:?}");
    let done = cloud.run(&["verify", "--only", "I7", "--wrong", "token=another"]);
    assert!(done.code == Some(0), "{done:?}");
}

/// A list of instances that has none.
const LIST: (&str, &str) = (
    "return {\"instances\": [self.shown(instance) for instance in self.state[\"instances\"] if fits(instance)]}",
    "return {\"instances\": []}",
);

#[test]
fn an_instance_that_the_list_lacks_is_deleted_or_named() {
    let driver = Driver::new("my-cloud", "python");
    let state = || fs::read_to_string(driver.folder.path().join("cloud.json")).unwrap();
    let instances = || serde_json::from_str::<Value>(&state()).unwrap()["instances"].as_array().unwrap().clone();
    driver.edit(LIST.0, LIST.1);
    let run = || {
        let done = driver.run(&["verify", "--only", "I2,I4", "-o", "json"]);
        assert_eq!(done.code, Some(1), "{done:?}");
        serde_json::from_str::<Value>(&done.stdout).unwrap()["left"].clone()
    };
    assert_eq!((run(), instances()), (json!([]), vec![]));

    // It says that they are deleted, and they are not.
    driver.edit("self.state[\"instances\"].remove(self.own(id))", "self.own(id)");
    let left = run();
    let mut ids: Vec<_> = instances().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    assert_eq!((left, ids.len()), (json!(ids), 1));
    let table = driver.run(&["verify", "--only", "I3"]);
    assert!(table.code == Some(1) && table.stdout.contains("NOT DELETED\n"), "{table:?}");

    // Neither is it seen without its owner.
    driver.edit("if field != \"digest\"", "if field not in (\"digest\", \"owner\", \"labels\")} | {\"labels\": {}");
    let table = driver.run(&["verify", "--only", "I1"]);
    let id = instances().last().unwrap()["id"].as_str().unwrap().to_owned();
    assert!(table.stdout.contains(&format!("NOT DELETED\n{id}\n")), "{table:?}");
}

#[test]
fn an_instance_that_the_list_lacked_and_that_is_gone_is_not_named() {
    let driver = Driver::new("my-cloud", "python");
    driver.edit(LIST.0, "raise Failure(\"Internal\", \"no list\")");
    let done = driver.run(&["verify", "--only", "I3,I4", "-o", "json"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["left"], report["results"].as_array().unwrap().len()), (&json!([]), 2), "{done:?}");
}

#[test]
fn an_instance_of_a_run_whose_answers_cannot_be_read_is_not_left_in_silence() {
    let driver = Driver::new("my-cloud", "python");
    driver.edit("if field != \"digest\"", "if field not in (\"digest\", \"zone\")");
    let json = driver.run(&["verify", "-o", "json"]);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(json.code == Some(1) && report["left"] == json!([]), "{json:?}");
    assert!(report["listError"].as_str().unwrap().contains("zone"), "{json:?}");
    let table = driver.run(&["verify", "--only", "I1"]);
    let run = table.stderr.lines().next().unwrap().split([' ', ':']).nth(1).unwrap();
    let line = table.stdout.lines().find(|line| line.starts_with("NOT KNOWN: the list of instances could not be read"));
    assert!(line.unwrap().contains(&format!("ccm-verify-{run}- ")), "{table:?}");
}

#[test]
fn a_clean_up_after_which_an_instance_is_still_there_says_so() {
    let driver = Driver::new("my-cloud", "python");
    driver.edit("self.state[\"instances\"].remove(self.own(id))", "self.own(id)");
    assert_eq!(driver.run(&["verify", "--only", "I2"]).code, Some(1));
    for format in ["table", "json"] {
        let done = driver.run(&["verify", "--clean-up", "-o", format]);
        assert!(done.code == Some(1) && !done.stdout.contains("ccm-verify-"), "{done:?}");
        assert!(done.stderr.contains("deleted 0 instances\nNOT DELETED: ccm-verify-"), "{done:?}");
        assert!(done.stderr.contains("with the cloud's own tool"), "{done:?}");
    }
}

#[test]
fn a_wrong_answer_to_endpoint_fails_the_checks_that_need_it() {
    let driver = Driver::new("my-cloud", "python");
    let counts = |words: &str| {
        let done = driver.run(&["verify", "--only", "I5,I8,I12"]);
        assert!(done.stdout.contains(words), "{done:?}");
        done.code
    };
    assert_eq!(counts("\n0 passed, 0 failed, 3 not run\n"), Some(1), "no check has passed");
    let dispatch = "    if operation == \"describe\":\n";
    let with = |answer: &str| format!("    if operation == \"endpoint\":\n        {answer}\n{dispatch}");
    let wrong = with("return {\"endpoint\": \"127.0.0.1\"}");
    driver.edit(dispatch, &wrong);
    assert_eq!(counts("\n0 passed, 3 failed, 0 not run\n"), Some(1));
    let refuses = with("raise Failure(\"NotSupported\", \"a file has none\")");
    driver.edit(&wrong, &refuses);
    counts("\n0 passed, 0 failed, 3 not run\n");
    let half = with(
        "if \"through\" in arguments: raise Failure(\"Internal\", \"why\")\n        \
         return {\"endpoint\": {\"tcp\": {\"host\": \"127.0.0.1\", \"port\": 1}}, \"settings\": {}}",
    );
    driver.edit(&refuses, &half);
    counts("\n0 passed, 3 failed, 0 not run\n");
}
