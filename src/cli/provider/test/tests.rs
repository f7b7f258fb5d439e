use std::{
    fs,
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command, provider::ProviderCommand};
use fixtures::{FIXTURES, KUBERNETES};

#[path = "../../../../crates/core/src/provider/verify/trust/tests/fixtures.rs"]
#[allow(dead_code, reason = "the tests of the core use the rest")]
mod fixtures;

/// An API server that only counts its connections, its kubeconfig, and the credentials for a test of Exoscale.
struct Fixture {
    root: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}],
        });
        fs::write(root.path().join("kubeconfig"), config.to_string()).unwrap();
        fs::write(root.path().join("keys.env"), "api-key=a\napi-secret=b\n").unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for connection in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        Self { root, connections }
    }

    /// The error of a test of Exoscale's folder, with one of its files changed.
    fn error_of(&self, changed: usize, text: &str, further: &[&str]) -> String {
        let folder = self.root.path().join("exoscale");
        for (index, (path, sound)) in KUBERNETES.iter().enumerate() {
            fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            fs::write(folder.join(path), if index == changed { text } else { sound }).unwrap();
        }
        let own = |name: &str| self.root.path().join(name).display().to_string();
        let (folder, kubeconfig, credentials) = (own("exoscale"), own("kubeconfig"), own("keys.env"));
        let line =
            ["ccm-operator", "provider", "test", &folder, "--kubeconfig", &kubeconfig, "--credentials", &credentials];
        let Command::Provider(ProviderCommand::Test(args)) = Cli::parse_from([&line[..], further].concat()).command
        else {
            panic!("{line:?}")
        };
        chain(run(&args).unwrap_err().as_ref())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[test]
fn what_the_operator_would_refuse_is_refused_before_the_first_request() {
    let fixture = Fixture::new();
    for (rule, file, from, to, ..) in FIXTURES {
        let error = fixture.error_of(*file, &KUBERNETES[*file].1.replacen(from, to, 1), &[]);
        // Two cases are defects already: a value of the wrong type, and a container without an image in the descriptor.
        let is_named = error.contains(&format!("({rule})"))
            || *rule == "external-type"
            || error.contains("`images` has no entry for container");
        assert!(is_named && error.ends_with("the operator would refuse it"), "{rule}: {to:?}: {error}");
        assert_eq!(fixture.connections(), 0, "{rule}: {to:?}: {error}");
    }
    let error = fixture.error_of(0, KUBERNETES[0].1, &[]);
    assert!(!error.contains("would refuse it") && fixture.connections() > 0, "{error}");
}

#[test]
fn a_policy_allows_a_test_what_it_allows_the_operator() {
    let fixture = Fixture::new();
    let policy = |text: &str| {
        let path = fixture.root.path().join("policy.yaml");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let text = KUBERNETES[0].1.replace("hostNetwork: true", "hostNetwork: true\n      hostPID: true");
    let tried = |policy: &str| fixture.error_of(0, &text, &["--provider-policy", policy]);
    let error = tried(&policy("other: {external-host-namespace: [hostPID]}\n"));
    assert!(error.contains("(external-host-namespace)") && fixture.connections() == 0, "{error}");
    let path = policy("exoscale: {external-host-namespace: [hostPID]}\n");
    let error = tried(&format!("{path}@sha256:{}", "0".repeat(64)));
    assert!(error.contains("expected the digest") && fixture.connections() == 0, "{error}");
    assert!(Path::new(&path).is_file());
    let error = tried(&path);
    assert!(!error.contains("would refuse it") && fixture.connections() > 0, "{error}");
}
