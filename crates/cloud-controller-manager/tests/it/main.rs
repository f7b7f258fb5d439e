//! The program as its users run it, with a stand-in for an API server and the driver `fake`.

#![cfg(feature = "fake")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy takes the helpers of tests for production code")]

mod api_server;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::json;

use api_server::{ACCOUNT, ApiServer, State};

const PROGRAM: &str = env!("CARGO_BIN_EXE_docker-cloud-controller-manager");

/// How long something is waited for that has to happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

/// A running program, which is killed when it is dropped.
struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Process {
    fn start(program: &Path, arguments: &[String], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::<Mutex<String>>::default();
        let (lines, written) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                written.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    async fn logs(&self, words: &str) {
        until(&format!("{words:?} is not in the log: {}", self.log()), || self.log().contains(words)).await;
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder, an API server, and the arguments of the program for it.
struct Fixture {
    folder: tempfile::TempDir,
    server: ApiServer,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::start(&folder.path().join("kubeconfig")).await;
        Self { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let kubeconfig = format!("--kubeconfig={}", self.path("kubeconfig").display());
        let all = [kubeconfig.as_str(), "--secure-port=0", "--leader-elect-retry-period=100ms"];
        all.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    fn start(&self, more: &[impl AsRef<str>]) -> Process {
        let more: Vec<_> = more.iter().map(AsRef::as_ref).collect();
        Process::start(Path::new(PROGRAM), &self.arguments(&more), &[])
    }

    /// The flags of an external driver that has a setting without a default.
    fn demanding_driver(&self) -> [String; 3] {
        let (folder, file) = (self.path("drivers"), self.path("drivers/demanding.sh"));
        let text = r#"#!/bin/sh
cat >/dev/null
echo '{"protocolVersion": 1, "result": {"name": "demanding", "version": "1", "summary": "A test.", "options": [], "idPrefix": "",
  "settings": [{"name": "place", "type": "text", "required": true, "help": "Where."}], "capabilities": {"instances": {}}}}'
"#;
        fs::create_dir(&folder).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let sum = Command::new("sha256sum").arg(&file).output().unwrap().stdout;
        let digest = String::from_utf8(sum).unwrap().split_whitespace().next().unwrap().to_owned();
        [
            "--cloud-provider=demanding".to_owned(),
            format!("--driver-folder={}", folder.display()),
            format!("--driver={}@sha256:{digest}", file.display()),
        ]
    }
}

/// Whether the account of a driver fake is kept.
fn has_account(state: &State) -> bool {
    state.account().is_some_and(|id| id.starts_with("acct-"))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leads_keeps_the_account_shows_its_state_and_ends_in_order() {
    let fixture = Fixture::new().await;
    let link = fixture.path("fake-cloud-controller-manager");
    symlink(PROGRAM, &link).unwrap();
    let mut process =
        Process::start(&link, &fixture.arguments(&["--cluster-cidr=10.0.0.0/8"]), &[("FAKE_TOKEN", "fake-token")]);
    until("the account is kept", || fixture.server.with(|state| has_account(state))).await;
    process.logs("opened the cloud").await;
    let log = process.log();
    for line in ["--cluster-cidr has no effect", "built-in driver driver=\"fake\"", "acquired the lease"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(!log.contains("fake-token") && !log.contains("not supported"), "{log}");

    process.signal("-USR1");
    process.logs("in flight: nothing").await;
    process.logs("the API server is http://127.0.0.1:").await;
    assert!(process.log().contains("this process leads"), "{}", process.log());

    process.signal("-TERM");
    assert!(process.end().await.success(), "{}", process.log());
    let (holder, account) = fixture.server.with(|state| (state.holder() == Some(""), has_account(state)));
    assert!(holder && account, "the lease is released, and keeps the account");
    // Without nodes nothing else is asked.
    let others = fixture.server.with(|state| {
        let all = state.requests.iter().filter(|request| !request.contains("/leases"));
        all.cloned().collect::<Vec<_>>()
    });
    assert_eq!(others, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_account_nothing_is_done_and_an_event_on_the_lease_says_why() {
    let fixture = Fixture::new().await;
    let metadata = json!({
        "name": "cloud-controller-manager", "namespace": "kube-system", "annotations": {ACCOUNT: "acct-first"},
    });
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
    fixture.server.with(|state| state.put_lease(lease));
    let mut process = fixture.start(&["--cloud-provider=fake", "--controllers=*,service"]);
    process.logs("service-lb-controller is not supported by this cloud").await;
    until("an Event", || fixture.server.with(|state| !state.events.is_empty())).await;
    let event = fixture.server.with(|state| state.events[0].clone());
    assert_eq!(event["reason"], "AccountChanged", "{event}");
    let message = event["message"].as_str().unwrap();
    let fix = format!("kubectl --namespace kube-system annotate lease cloud-controller-manager {ACCOUNT}-");
    for words in ["\"acct-first\"", "Lease kube-system/cloud-controller-manager", &fix] {
        assert!(message.contains(words), "{words}: {message}");
        assert!(process.log().contains(words), "{words}: {}", process.log());
    }
    assert!(message.len() < 1000, "it is not cut: {message}");
    process.signal("-TERM");
    assert!(process.end().await.success(), "{}", process.log());
    assert_eq!(fixture.server.with(|state| state.account().map(str::to_owned)).as_deref(), Some("acct-first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_an_event_and_a_corrected_file_ends_it() {
    let fixture = Fixture::new().await;
    let config = fixture.path("cloud.yaml");
    let write = |token: &str| {
        let text = format!("accounts:\n- name: a\n  driver: fake\n  settings: {{token: {token}}}\n");
        fs::write(&config, text).unwrap();
    };
    write("wrong");
    let flag = format!("--cloud-config={}", config.display());
    let process = fixture.start(&["--cloud-provider=fake", &flag]);
    until("an Event", || fixture.server.with(|state| !state.events.is_empty())).await;
    let event = fixture.server.with(|state| state.events[0].clone());
    assert_eq!(event["reason"], "CredentialsRejected", "{event}");
    assert_eq!(event["type"], "Warning");
    assert_eq!(
        (&event["involvedObject"]["kind"], &event["metadata"]["namespace"]),
        (&json!("Lease"), &json!("kube-system"))
    );
    assert!(event["message"].as_str().unwrap().contains("no node is initialized"), "{event}");
    assert!(!fixture.server.with(|state| has_account(state)));

    // A file that cannot be read is no reason to end.
    fs::write(&config, "accounts: [").unwrap();
    process.logs("failed to use the cloud fake: InvalidArgument").await;
    write("fake-token");
    until("the account is kept", || fixture.server.with(|state| has_account(state))).await;
    assert!(!process.log().contains("fake-token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_nobody_limits_are_a_warning_and_an_event() {
    for may_delete in [false, true] {
        let fixture = Fixture::new().await;
        fixture.server.with(|state| state.may_delete = may_delete);
        let process = fixture.start(&["--cloud-provider=fake", "--node-deletion-guard=false"]);
        process.logs("--node-deletion-guard=false").await;
        assert_eq!(process.log().contains("nobody limits"), may_delete, "{}", process.log());
        if may_delete {
            until("an Event", || fixture.server.with(|state| !state.events.is_empty())).await;
            let event = fixture.server.with(|state| state.events[0].clone());
            assert_eq!(
                (&event["reason"], &event["type"]),
                (&json!("DeletionsUnguarded"), &json!("Warning")),
                "{event}"
            );
            assert_eq!(event["involvedObject"]["kind"], "Lease");
        } else {
            process.logs("opened the cloud").await;
            assert!(fixture.server.with(|state| state.events.is_empty()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_lease_is_taken_ends() {
    let fixture = Fixture::new().await;
    let mut process = fixture.start(&["--cloud-provider=fake"]);
    until("the account is kept", || fixture.server.with(|state| has_account(state))).await;
    fixture.server.with(|state| {
        let mut lease = state.lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = "other".into();
        state.put_lease(lease);
    });
    assert_eq!(process.end().await.code(), Some(1));
    process.logs("lost the lease kube-system/cloud-controller-manager to other").await;
    assert_eq!(fixture.server.with(|state| state.holder().map(str::to_owned)).as_deref(), Some("other"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_start_says_what_is_right() {
    let fixture = Fixture::new().await;
    let missing = fixture.path("missing").display().to_string();
    for (arguments, code, expected) in [
        (vec!["--cloud-provider=dokcer"], 1, "there is no driver \"dokcer\" (did you mean `docker`?)"),
        (vec!["--cloud-provider=aws"], 1, "the drivers are docker, fake"),
        (vec!["--cloud-provider=fake", "--controllers=x"], 2, "there is no controller \"x\""),
        (vec!["--cloud-provider=fake", "--controllers=service,route"], 2, "starts no controller: give * or one of"),
        (vec!["--cloud-provider=fake", "--cloud-config", &missing], 1, "failed to read"),
        (vec!["--cloud-provider=fake", "--kubeconfig", &missing], 1, "failed to read the kubeconfig"),
        (vec!["--cloud-provider=fake", "--driver=/cloud-providers/x@sha256:00"], 2, "sha256"),
    ] {
        let mut process = fixture.start(&arguments);
        assert_eq!(process.end().await.code(), Some(code), "{arguments:?}: {}", process.log());
        process.logs(expected).await;
        assert!(process.log().matches(&missing).count() <= 1, "{}", process.log());
    }
    let mut process = fixture.start(&fixture.demanding_driver());
    assert_eq!(process.end().await.code(), Some(1), "{}", process.log());
    process
        .logs("place is missing: set the environment variable DEMANDING_PLACE, or place in the file of --cloud-config")
        .await;
    let link = fixture.path("cloud-controller-manager");
    symlink(PROGRAM, &link).unwrap();
    let mut process = Process::start(&link, &fixture.arguments(&[]), &[]);
    assert_eq!(process.end().await.code(), Some(1));
    process.logs("--cloud-provider is missing: name the driver").await;
    assert_eq!(fixture.server.with(|state| state.requests.clone()), Vec::<String>::new());
}
