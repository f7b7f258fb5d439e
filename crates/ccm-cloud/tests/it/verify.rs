//! The command `verify`.

use ccm_drivers::conformance::CHECKS;
use serde_json::Value;

use crate::Cloud;

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
