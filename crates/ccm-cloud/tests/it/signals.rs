//! What signals do.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use crate::{Cloud, Done, proxy::Stalled};

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn start(cloud: &Cloud, stalled: &Stalled, words: &[&str]) -> Child {
    let words: Vec<_> = ["--endpoint", &stalled.endpoint, "--timeout", "0"].iter().chain(words).copied().collect();
    cloud.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn sigusr1_prints_what_is_in_flight_and_ends_nothing() {
    let cloud = Cloud::new();
    let stalled = Stalled::new(&cloud.file(), "start-instance");
    let mut child = start(&cloud, &stalled, &["instance-create", "--name", "worker-1", "--key", "1"]);
    stalled.wait();
    for _ in 0..2 {
        send(&child, "USR1");
        let mut stderr = BufReader::new(child.stderr.as_mut().unwrap());
        let (mut title, mut line) = (String::new(), String::new());
        stderr.read_line(&mut title).unwrap();
        stderr.read_line(&mut line).unwrap();
        assert_eq!(title, "in flight:\n");
        assert!(line.starts_with("  create instance \"worker-1\", attempt 1, for ") && line.ends_with("s\n"), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn sigusr1_shows_the_verification_of_credentials_and_the_check_of_verify() {
    let cloud = Cloud::new();
    for (action, words, part) in [
        ("login", &["instance-list"][..], "  verify credentials, attempt 1"),
        ("start-instance", &["verify", "--only", "I4"], "  check I4 stopped-exists, for "),
    ] {
        let stalled = Stalled::new(&cloud.file(), action);
        let mut child = start(&cloud, &stalled, words);
        stalled.wait();
        send(&child, "USR1");
        let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
        assert!(lines.into_iter().any(|line| line.starts_with(part)), "{part}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_signal_during_verify_deletes_the_instances_of_the_run_and_nothing_else() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let cloud = Cloud::new();
        cloud.create("mine", "1", &[]);
        let stalled = Stalled::new(&cloud.file(), "start-instance");
        let child = start(&cloud, &stalled, &["verify", "--only", "I4"]);
        stalled.wait();
        assert_eq!(cloud.names().len(), 2);
        send(&child, signal);
        let done = Done::of(child.wait_with_output().unwrap());
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(done.stdout.is_empty(), "{done:?}");
        assert_eq!(cloud.names(), ["mine"], "{done:?}");
        // The names were printed before, and the one that was made is one of them.
        let mut lines = done.stderr.lines();
        let announced = lines.next().unwrap();
        let deleted = lines.find_map(|line| line.strip_suffix(" deleted")).unwrap().split(' ').next().unwrap();
        assert!(announced.starts_with("run ") && announced.contains(deleted), "{done:?}");
    }
}

#[test]
fn what_a_killed_verify_has_left_is_deleted_by_clean_up_and_nothing_else() {
    let cloud = Cloud::new();
    let label = format!("{}=1", ccm_drivers::conformance::RUN_LABEL);
    cloud.create("mine", "1", &["--label", &label]);
    let stalled = Stalled::new(&cloud.file(), "start-instance");
    let mut child = start(&cloud, &stalled, &["verify", "--only", "I4"]);
    stalled.wait();
    child.kill().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    child.wait().unwrap();
    assert_eq!(cloud.names().len(), 2);
    let done = cloud.run(&["verify", "--clean-up"]);
    assert!(done.code == Some(0) && done.stdout.ends_with(" deleted\n"), "{done:?}");
    assert!(stderr.contains(done.stdout.split(' ').next().unwrap()), "{stderr} {done:?}");
    assert_eq!(cloud.names(), ["mine"]);
}
