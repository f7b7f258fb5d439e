//! What signals do.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    Cloud, Done,
    api_server::{ApiServer, Pods},
    proxy::Stalled,
    sweep::SWEEP,
};

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn start(cloud: &Cloud, stalled: &Stalled, words: &[&str]) -> Child {
    start_by(&["--default-signal=HUP"], cloud, stalled, words)
}

/// Starts the program by `env`, because the tests may run with SIGHUP ignored.
fn start_by(env: &[&str], cloud: &Cloud, stalled: &Stalled, words: &[&str]) -> Child {
    let words: Vec<_> = ["--endpoint", &stalled.endpoint, "--timeout", "0"].iter().chain(words).copied().collect();
    let program = cloud.command(&words);
    let mut command = Command::new("env");
    command.env_clear().args(env).arg(program.get_program()).args(program.get_args()).current_dir(cloud.folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
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
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
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
fn a_signal_ends_process_1_of_a_container_as_any_other() {
    let mut namespace = vec!["--default-signal=HUP", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        namespace.extend(["--user", "--map-root-user"]);
    }
    for (action, words) in [("login", &["instance-list"][..]), ("start-instance", &["verify", "--only", "I4"])] {
        for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            let cloud = Cloud::new();
            let stalled = Stalled::new(&cloud.file(), action);
            let unshare = start_by(&namespace, &cloud, &stalled, words);
            stalled.wait();
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", unshare.id())).unwrap();
            let sent = Command::new("kill").args([&format!("-{signal}"), children.trim()]).status().unwrap();
            assert!(sent.success());
            let done = Done::of(unshare.wait_with_output().unwrap());
            assert_eq!((done.code, cloud.names().len()), (Some(code), 0), "{signal}: {done:?}");
        }
    }
}

#[test]
fn a_verify_that_was_started_to_survive_its_terminal_does() {
    let cloud = Cloud::new();
    let stalled = Stalled::new(&cloud.file(), "start-instance");
    let child = start_by(&["--ignore-signal=HUP"], &cloud, &stalled, &["verify", "--only", "I4"]);
    stalled.wait();
    send(&child, "HUP");
    send(&child, "INT");
    assert_eq!(Done::of(child.wait_with_output().unwrap()).code, Some(130));
}

/// Starts a sweep of two instances, and waits for the first deletion, which is held.
fn start_sweep(cloud: &Cloud, server: &ApiServer, stalled: &Stalled) -> Child {
    for (name, owner) in [("one", "gone-1"), ("two", "gone-2"), ("alive", "alive")] {
        cloud.create(name, owner, &["--cluster-id", "this"]);
    }
    server.write_kubeconfig(&cloud.path("kubeconfig"));
    let words: Vec<_> = SWEEP.iter().copied().chain(["--yes", "-o", "json"]).collect();
    let child = start(cloud, stalled, &words);
    stalled.wait();
    child
}

/// Reads standard error up to a line that begins with this.
fn read_until(stderr: &mut impl BufRead, begin: &str) {
    assert!(stderr.lines().map(Result::unwrap).any(|line| line.starts_with(begin)), "{begin}");
}

/// The names and actions of a sweep that was stopped.
fn rows(child: Child, code: i32) -> Vec<String> {
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(code), "{done:?}");
    let rows: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    rows.iter().map(|row| format!("{} {}", row["name"].as_str().unwrap(), row["action"].as_str().unwrap())).collect()
}

#[test]
fn a_signal_stops_a_sweep_before_the_next_deletion_and_what_was_done_is_printed() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let cloud = Cloud::new();
        let server = ApiServer::new(&["this"], &[Pods::Pages(vec![vec!["alive"]])]);
        let stalled = Stalled::new(&cloud.file(), "delete-instance");
        let mut child = start_sweep(&cloud, &server, &stalled);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        read_until(&mut stderr, "deleting one i-");
        send(&child, signal);
        read_until(&mut stderr, "stopping after this deletion");
        stalled.release();
        assert_eq!(rows(child, code), ["one deleted"], "{signal}");
        assert_eq!(cloud.names(), ["two", "alive"]);
    }
}

#[test]
fn a_second_signal_does_not_wait_for_the_deletion() {
    let cloud = Cloud::new();
    let server = ApiServer::new(&["this"], &[Pods::Pages(vec![vec!["alive"]])]);
    let stalled = Stalled::new(&cloud.file(), "delete-instance");
    let mut child = start_sweep(&cloud, &server, &stalled);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    send(&child, "INT");
    read_until(&mut stderr, "stopping after this deletion");
    send(&child, "TERM");
    read_until(&mut stderr, "ccm-cloud: failed to delete \"i-");
    assert_eq!(rows(child, 143), ["one failed"]);
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
    let file = std::fs::read(cloud.file()).unwrap();
    let done = cloud.run(&["verify", "--clean-up"]);
    assert!(done.code == Some(0) && done.stdout.ends_with(" deleted\n"), "{done:?}");
    let name = done.stdout.split(' ').next().unwrap();
    assert!(stderr.contains(name), "{stderr} {done:?}");
    assert_eq!(cloud.names(), ["mine"]);
    std::fs::write(cloud.file(), file).unwrap();
    let json = cloud.run(&["verify", "--clean-up", "-o", "json"]);
    let deleted: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert!(deleted.len() == 1 && deleted[0]["name"] == name, "{json:?}");
}
