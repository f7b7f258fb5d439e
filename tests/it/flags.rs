//! The arguments of our manifests are flags that the programs have, with values that they take: the real programs of AWS,
//! Azure, OpenStack and vSphere are started with them, and for the other clouds a program with the flags that every
//! cloud-controller-manager has (`hack/ccm/build.sh` builds them).

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{
    facts::{DEFAULT_NAMESPACE, Documents, Facts, Settings},
    plan::Plan,
    provider::{Phase, embedded},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    contract,
    lab::{LIMIT, VERSION},
    support::{artifacts, eventually, process, process::Process},
};

/// The programs that cannot be built here, by the names that our manifests start them by.
///
/// Not one of their manifests has a flag that only the cloud's own program knows; were there one, it would have to be
/// listed here with the file of the program's repository that defines it, and left out where the generic one is started.
const GENERIC: [&str; 3] =
    ["gcp-cloud-controller-manager", "ibm-cloud-controller-manager", "nutanix-cloud-controller-manager"];

/// What GENERIC programs are replaced by.
const STAND_IN: &str = "generic-cloud-controller-manager";

/// No cloud-controller-manager: it merges the cloud's credentials into Azure's configuration.
const INJECTOR: &str = "azure-config-credentials-injector";

/// Its flags: openshift/cluster-cloud-controller-manager-operator,
/// `cmd/azure-config-credentials-injector/main.go`.
const INJECTOR_FLAGS: [&str; 5] = [
    "--cloud-config-file-path",
    "--output-file-path",
    "--creds-path",
    "--disable-identity-extension-auth",
    "--enable-azure-workload-identity",
];

/// What a program says next when it has understood which TLS it has to serve: most warn, Azure's asks the API server.
const SERVES: [&str; 2] =
    ["No authentication-kubeconfig provided", "unable to load configmap based request-header-client-ca-file"];

/// The one argument that upstream's program refuses for its value, not for its name, and what it takes instead
/// (kubernetes-sigs/cloud-provider-azure, `cmd/cloud-controller-manager/app/options/options.go`). OpenShift's clusters run
/// with 10: that its own build takes it cannot be shown here.
const AZURE_SYNCS: (&str, &str) = ("--concurrent-service-syncs=10", "--concurrent-service-syncs=1");

/// A container of a plan, and how it is started.
#[derive(Clone, Debug)]
struct Start {
    platform: &'static str,
    /// Whose container it is, for messages.
    container: String,
    program: String,
    arguments: Vec<String>,
}

impl Start {
    fn with(&self, arguments: &[impl AsRef<str>]) -> Self {
        let mut start = self.clone();
        start.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        start
    }

    fn is_node_manager(&self) -> bool {
        self.program == "azure-cloud-node-manager"
    }
}

/// Every container of every platform, with all that a cluster can add to the arguments: TLS settings, feature gates of
/// cloud-controller-managers, and the gate that makes vSphere label its nodes.
fn starts() -> Result<Vec<Start>> {
    starts_with_tls("Intermediate")
}

/// The same for a cluster with another TLS profile.
fn starts_with_tls(profile: &str) -> Result<Vec<Start>> {
    let gates = [
        "CloudControllerManagerWebhook",
        "CloudControllerManagerWatchBasedRoutesReconciliation",
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        "VSphereMixedNodeEnv",
    ];
    let gates: Vec<_> = gates.iter().map(|name| json!({"name": name})).collect();
    let mut all = Vec::new();
    let details = json!([{"version": VERSION, "enabled": gates}]);
    let tls = json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": profile}});
    let documents = Documents {
        feature_gate: Some(serde_json::from_value(json!({"status": {"featureGates": details}}))?),
        api_server: Some(serde_json::from_value(json!({"spec": tls}))?),
        ..Documents::default()
    };
    let settings = Settings {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        release_version: Some(VERSION.to_owned()),
        ..Settings::default()
    };
    for (platform, facts) in contract::all_facts(&documents, &settings)? {
        for phase in [Phase::Bootstrap, Phase::Cluster] {
            let before = all.len();
            all.extend(starts_of(platform, &facts, phase)?);
            assert!(all.len() > before, "{platform}: no container in {phase:?}");
        }
    }
    Ok(all)
}

fn starts_of(platform: &'static str, facts: &Facts, phase: Phase) -> Result<Vec<Start>> {
    let plan = Plan::new(&embedded::catalog()?, facts, phase)?;
    let mut all = Vec::new();
    for object in plan.objects() {
        let Some(pod) = object.pod_spec() else { continue };
        for container in ["initContainers", "containers"].into_iter().flat_map(|list| items(&pod[list])) {
            let name = format!("{}/{} {}", object.kind().kind, object.name(), container["name"]);
            let words = items(&container["command"]).iter().chain(items(&container["args"]));
            let mut words = words.map(|word| word.as_str().unwrap().replace("$(NODE_NAME)", "node-0"));
            let program = words.next().with_context(|| format!("{platform}: {name} has no command"))?;
            let program = Path::new(&program).file_name().context("program")?.to_str().unwrap().to_owned();
            all.push(Start { platform, container: name, program, arguments: words.collect() });
        }
    }
    Ok(all)
}

/// Arguments that win over the manifest's port, which may be in use on the machine of the test.
fn free_address() -> Result<[String; 2]> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
}

/// What a program said, without its lists of all flags.
fn words(process: &Process) -> String {
    let log = process.log();
    log.lines().filter(|line| !line.starts_with("  ") && !line.contains("] FLAG: ")).collect::<Vec<_>>().join("\n")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Starts programs, and reads how they end.
struct Programs {
    folder: &'static Path,
    dir: TempDir,
}

impl Programs {
    async fn new() -> Result<Self> {
        Ok(Self { folder: artifacts::cloud_controller_managers().await?, dir: process::temp_dir()? })
    }

    /// The file that is started for a program.
    fn file(&self, program: &str) -> Result<PathBuf> {
        let file = self.folder.join(if GENERIC.contains(&program) { STAND_IN } else { program });
        ensure!(file.is_file(), "{program} is not built, and nothing stands in for it");
        Ok(file)
    }

    fn spawn(&self, start: &Start) -> Result<Process> {
        let mut command = Command::new(self.file(&start.program)?);
        let azure = start.program == "azure-cloud-controller-manager";
        let taken = |argument| if azure && argument == AZURE_SYNCS.0 { AZURE_SYNCS.1 } else { argument };
        command
            .args(start.arguments.iter().map(|argument| taken(argument.as_str())))
            .env_clear()
            .current_dir(self.dir.path());
        Process::spawn(&start.program, command, &self.dir.path().join("log"))
    }

    /// Starts the container's program and gives back whether it ended well, and all that it said.
    async fn run(&self, start: &Start) -> Result<(bool, String)> {
        let process = self.spawn(start)?;
        let what = format!("{}: the end of {}", start.platform, start.program);
        let status = eventually(&what, LIMIT, async || process.try_wait()).await?;
        Ok((status.success(), words(&process)))
    }

    /// Fails unless all that the program has to say against its arguments is that there is no kubeconfig: it reads that
    /// after it has understood all flags, and before it asks anything of anyone.
    async fn check_start(&self, start: &Start) -> Result<()> {
        let kubeconfig = self.dir.path().join("no-kubeconfig");
        let mut start = start.clone();
        // In place of the manifest's own, which may exist on the machine of the test.
        start.arguments.retain(|argument| !argument.starts_with("--kubeconfig="));
        let mut start = start.with(&[format!("--kubeconfig={}", kubeconfig.display())]);
        // Azure's listens before it reads the kubeconfig.
        if !start.is_node_manager() {
            start = start.with(&free_address()?);
        }
        let (success, said) = self.run(&start).await?;
        let expected = format!("stat {}: no such file or directory", kubeconfig.display());
        if success || !said.contains(&expected) {
            bail!("{}: {}: {:?} ended with:\n{said}", start.platform, start.container, start.arguments);
        }
        Ok(())
    }

    /// Fails unless the program gets as far as to serve: it looks at what TLS it has to serve only when it has a kubeconfig.
    /// Where the cloud's configuration is missing, as here, is the end of it.
    async fn check_serving(&self, start: &Start) -> Result<()> {
        let kubeconfig = self.dir.path().join("kubeconfig");
        let context = json!([{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]);
        let unreachable = json!([{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}]);
        let text = json!({"clusters": unreachable, "contexts": context, "current-context": "lab"});
        fs::write(&kubeconfig, text.to_string())?;
        let start = start.with(&[format!("--kubeconfig={}", kubeconfig.display())]).with(&free_address()?);
        let process = self.spawn(&start)?;
        let what = format!("{}: {} serves or ends", start.platform, start.program);
        let serves = eventually(&what, LIMIT, async || {
            let ended = process.try_wait()?.is_some();
            let log = process.log();
            Ok(if SERVES.iter().any(|words| log.contains(words)) { Some(true) } else { ended.then_some(false) })
        })
        .await?;
        let Start { platform, container, arguments, .. } = &start;
        ensure!(serves, "{platform}: {container}: {arguments:?} ended with:\n{}", words(&process));
        Ok(())
    }

    /// Fails unless the program prints its version: it does not, when it does not understand a flag.
    async fn check_version(&self, start: &Start) -> Result<()> {
        let start = start.with(&["--version"]);
        let (success, said) = self.run(&start).await?;
        ensure!(success, "{}: {}: {:?} ended with:\n{said}", start.platform, start.container, start.arguments);
        Ok(())
    }
}

#[tokio::test]
async fn every_program_starts_with_the_arguments_of_its_manifest() -> Result<()> {
    let programs = Programs::new().await?;
    let mut platforms = BTreeSet::new();
    for start in starts()?.iter().filter(|start| start.program != INJECTOR) {
        programs.check_start(start).await?;
        programs.check_version(start).await?;
        platforms.insert(start.platform);
    }
    assert_eq!(platforms, contract::statuses().map(|(name, _)| name).collect());
    Ok(())
}

#[tokio::test]
async fn a_wrong_flag_is_found() -> Result<()> {
    let programs = Programs::new().await?;
    let mut seen = BTreeSet::new();
    let starts = starts()?;
    for start in starts.iter().filter(|start| start.program != INJECTOR && seen.insert(&start.program)) {
        let unknown = ("--no-such-flag=1", "unknown flag: --no-such-flag");
        let mut wrong = vec![unknown];
        if !start.is_node_manager() {
            wrong.extend([
                ("--leader-elect=perhaps", "invalid argument \"perhaps\" for \"--leader-elect\""),
                ("--feature-gates=NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
                ("--controllers=no-such-controller", "is not in the list of known controllers"),
            ]);
        }
        for (argument, why) in wrong {
            let error = programs.check_start(&start.with(&[argument])).await.expect_err(argument);
            assert!(format!("{error:#}").contains(why), "{argument}: {error:#}");
        }
        programs.check_version(&start.with(&[unknown.0])).await.expect_err(unknown.0);
    }
    // All real ones, and the stand-in under each of its names.
    assert_eq!(seen.len(), 5 + GENERIC.len(), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn every_program_serves_the_tls_of_every_profile() -> Result<()> {
    let programs = Programs::new().await?;
    // The profile with all suites for every program; the others, which say less, for one.
    for (profile, all) in [("Old", true), ("Intermediate", false), ("Modern", false)] {
        let starts = starts_with_tls(profile)?;
        let deployments = starts.iter().filter(|start| start.container.starts_with("Deployment/"));
        let deployments = deployments.filter(|start| start.program != INJECTOR);
        for start in deployments.filter(|start| all || start.platform == "AWS") {
            programs.check_serving(start).await.context(profile)?;
        }
    }
    let starts = starts()?;
    let aws = starts.iter().find(|start| start.container.starts_with("Deployment/")).context("AWS")?;
    for (argument, why) in [
        ("--tls-cipher-suites=ECDHE-RSA-AES128-SHA", "Cipher suite ECDHE-RSA-AES128-SHA not supported"),
        ("--tls-min-version=TLSv1.2", "unknown tls version \"TLSv1.2\""),
    ] {
        let error = programs.check_serving(&aws.with(&[argument])).await.expect_err(argument);
        assert!(format!("{error:#}").contains(why), "{argument}: {error:#}");
    }
    Ok(())
}

#[test]
fn the_injector_of_azure_is_given_flags_that_it_has() -> Result<()> {
    let mut platforms = Vec::new();
    for start in starts()?.iter().filter(|start| start.program == INJECTOR) {
        for argument in &start.arguments {
            let flag = argument.split_once('=').map_or(argument.as_str(), |(flag, _)| flag);
            assert!(INJECTOR_FLAGS.contains(&flag), "{}: {}: {argument}", start.platform, start.container);
        }
        platforms.push(start.platform);
    }
    assert_eq!(platforms, ["Azure", "Azure", "AzureStackHub", "AzureStackHub"]);
    Ok(())
}

#[test]
fn what_a_cluster_adds_is_among_the_arguments() -> Result<()> {
    for start in starts()?.iter().filter(|start| start.program.ends_with("cloud-controller-manager")) {
        // A static pod of the bootstrap VM gets none of it.
        if !start.container.starts_with("Deployment/") {
            continue;
        }
        let has = |flag: &str| start.arguments.iter().any(|argument| argument.starts_with(&format!("{flag}=")));
        assert!(has("--tls-min-version") && has("--tls-cipher-suites") && has("--feature-gates"), "{start:?}");
        assert_eq!(has("--node-labels"), start.platform == "VSphere", "{start:?}");
    }
    Ok(())
}
