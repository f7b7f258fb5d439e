//! The programs accept the arguments of our manifests: the real programs of AWS, Azure, OpenStack and vSphere are started
//! with them (`hack/ccm/build.sh` builds them), and for other clouds a program with the flags that every
//! cloud-controller-manager has.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{
    facts::{DEFAULT_NAMESPACE, Documents, Facts, Settings},
    plan::Plan,
    provider::{Phase, catalog::Catalog, embedded},
    text::suggest::did_you_mean,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    ccm, contract,
    lab::{LIMIT, VERSION},
    support::{artifacts, eventually, process, process::Process, scrape::free_port},
};

mod bootstrap;
mod kubernetes;
pub(crate) mod tls;

/// The program that replaces cloud-controller-managers that cannot be built here.
const STAND_IN: &str = "generic-cloud-controller-manager";

/// Merges the cloud's credentials into Azure's configuration. It is not a cloud-controller-manager.
const INJECTOR: &str = "azure-config-credentials-injector";

/// The flags of Azure's injector: openshift/cluster-cloud-controller-manager-operator,
/// `cmd/azure-config-credentials-injector/main.go`.
const INJECTOR_FLAGS: [&str; 5] = [
    "--cloud-config-file-path",
    "--output-file-path",
    "--creds-path",
    "--disable-identity-extension-auth",
    "--enable-azure-workload-identity",
];

/// The log message after a program has accepted its TLS flags: most print a warning, Azure's asks the API server.
const SERVES: [&str; 2] =
    ["No authentication-kubeconfig provided", "unable to load configmap based request-header-client-ca-file"];

/// The only argument whose value the program refuses, and a value that it accepts
/// (kubernetes-sigs/cloud-provider-azure, `cmd/cloud-controller-manager/app/options/options.go`). OpenShift's own build
/// accepts 10, which cannot be tested here.
const AZURE_SYNCS: (&str, &str) = ("--concurrent-service-syncs=10", "--concurrent-service-syncs=1");

/// The command line of a container of a plan.
#[derive(Clone, Debug)]
struct Start {
    platform: String,
    /// Whether the Go operator knows the platform.
    is_known: bool,
    /// The container, for messages.
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

/// Every container of every embedded platform, with everything that a cluster can add to the arguments.
fn starts() -> Result<Vec<Start>> {
    starts_of(&embedded::catalog()?, &without_http2())
}

/// A TLS profile that adds every argument about TLS.
fn without_http2() -> Value {
    custom(&["ECDHE-RSA-AES256-GCM-SHA384"])
}

fn custom(ciphers: &[&str]) -> Value {
    json!({"type": "Custom", "custom": {"minTLSVersion": "VersionTLS12", "ciphers": ciphers}})
}

/// Every container of every platform, for a cluster with a TLS profile, the feature gates of cloud-controller-managers,
/// and the gate with which vSphere labels its nodes.
fn starts_of(catalog: &Catalog, profile: &Value) -> Result<Vec<Start>> {
    let gates = [
        "CloudControllerManagerWebhook",
        "CloudControllerManagerWatchBasedRoutesReconciliation",
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        "VSphereMixedNodeEnv",
    ];
    let gates: Vec<_> = gates.iter().map(|name| json!({"name": name})).collect();
    let mut all = Vec::new();
    let details = json!([{"version": VERSION, "enabled": gates}]);
    let tls = json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": profile});
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
    for platform in contract::platforms(catalog)? {
        let facts = contract::facts(catalog, &platform, documents.clone(), &settings)?;
        for phase in [Phase::Bootstrap, Phase::Cluster] {
            let starts = starts_of_phase(catalog, &platform, &facts, phase)?;
            assert!(phase == Phase::Bootstrap || !starts.is_empty(), "{}: no container", platform.name);
            all.extend(starts);
        }
    }
    Ok(all)
}

fn starts_of_phase(
    catalog: &Catalog,
    platform: &contract::Platform,
    facts: &Facts,
    phase: Phase,
) -> Result<Vec<Start>> {
    starts_of_plan(&Plan::new(catalog, facts, phase)?, &platform.name, platform.is_known())
}

fn starts_of_plan(plan: &Plan, name: &str, is_known: bool) -> Result<Vec<Start>> {
    let mut all = Vec::new();
    for object in plan.objects() {
        let Some(pod) = object.pod_spec() else { continue };
        for container in ["initContainers", "containers"].into_iter().flat_map(|list| items(&pod[list])) {
            let container_name = format!("{}/{} {}", object.kind().kind, object.name(), container["name"]);
            let words = items(&container["command"]).iter().chain(items(&container["args"]));
            let mut words = words.map(|word| word.as_str().unwrap().replace("$(NODE_NAME)", "node-0"));
            let program = words.next().with_context(|| format!("{name}: {container_name} has no command"))?;
            let program = Path::new(&program).file_name().context("program")?.to_str().unwrap().to_owned();
            let arguments = words.collect();
            all.push(Start { platform: name.to_owned(), is_known, container: container_name, program, arguments });
        }
    }
    Ok(all)
}

/// The name of a provider's program in the tests: the names of programs in Azure's images do not contain the cloud.
pub(crate) fn built_as(provider: &str, program: &str) -> String {
    let is_azure = provider == "azure" && program.starts_with("cloud-");
    if is_azure { format!("azure-{program}") } else { program.to_owned() }
}

/// The file of a real program, if it is there: ours, or one in the folder of the clouds' programs.
pub(crate) fn real(folder: &Path, program: &str) -> Result<PathBuf> {
    if program == ccm::NAME { ccm::ours() } else { Ok(folder.join(program)) }
}

/// Arguments that override the manifest's port, which may be in use on the machine of the test.
fn free_address() -> Result<[String; 2]> {
    let port = free_port()?;
    Ok(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
}

/// A program's log, without its lists of all flags.
fn words(process: &Process) -> String {
    let log = process.log();
    log.lines().filter(|line| !line.starts_with("  ") && !line.contains("] FLAG: ")).collect::<Vec<_>>().join("\n")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Starts programs and checks how they exit.
struct Programs {
    folder: &'static Path,
    dir: TempDir,
}

impl Programs {
    async fn new() -> Result<Self> {
        Ok(Self { folder: artifacts::cloud_controller_managers().await?, dir: process::temp_dir()? })
    }

    /// The real program, or its stand-in.
    fn file(&self, program: &str) -> Result<PathBuf> {
        let file = real(self.folder, program)?;
        if file.is_file() {
            return Ok(file);
        }
        let is_ccm = program.ends_with("cloud-controller-manager") || program.starts_with("cloud-provider-");
        ensure!(is_ccm, "{program} is not built, and has no stand-in");
        Ok(self.folder.join(STAND_IN))
    }

    /// The built programs of clouds.
    fn built(&self) -> Result<BTreeSet<String>> {
        let names = fs::read_dir(self.folder)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<Result<BTreeSet<_>>>()?;
        Ok(names.into_iter().filter(|name| name.contains("-cloud-") && name != STAND_IN).collect())
    }

    /// The reason for which a container cannot be tested: only its cloud's own program has its flags. The Go operator's
    /// clouds have no such container.
    async fn untestable(&self, start: &Start) -> Result<Option<String>> {
        if start.is_known || real(self.folder, &start.program)?.is_file() {
            return Ok(None);
        }
        if self.file(&start.program).is_err() {
            return Ok(Some(format!("{} is not built", start.program)));
        }
        self.stand_in_lacks(start).await
    }

    /// A start without the flags that only the program of its cloud has, if that is not built; prints them.
    #[expect(clippy::print_stderr, reason = "a flag that is not tested is reported")]
    async fn without_own_flags(&self, start: &Start) -> Result<Start> {
        let mut start = start.clone();
        while let Some(reason) = self.stand_in_lacks(&start).await? {
            let flag = reason.rsplit(' ').next().unwrap_or_default();
            let hint = did_you_mean(flag, self.flags_of_stand_in()?);
            ensure!(hint.is_empty(), "{}: {reason}{hint}", start.platform);
            let count = start.arguments.len();
            start.arguments.retain(|argument| argument.split('=').next() != Some(flag));
            ensure!(start.arguments.len() < count, "{}: {reason}", start.platform);
            eprintln!("not tested: {}: {}: {flag}", start.platform, start.program);
        }
        Ok(start)
    }

    /// The flags that every cloud-controller-manager has.
    fn flags_of_stand_in(&self) -> Result<Vec<String>> {
        let help = Command::new(self.folder.join(STAND_IN)).arg("--help").env_clear().output()?.stdout;
        let help = String::from_utf8(help)?;
        let flags: Vec<_> = help.split_whitespace().filter(|word| word.starts_with("--")).map(str::to_owned).collect();
        ensure!(flags.iter().any(|flag| flag == "--cluster-name"), "{help}");
        Ok(flags)
    }

    /// The message of the generic program about the first flag that it does not have.
    async fn stand_in_lacks(&self, start: &Start) -> Result<Option<String>> {
        if real(self.folder, &start.program)?.is_file() {
            return Ok(None);
        }
        let (_, log) = self.run(&start.with(&["--version"])).await?;
        Ok(log.lines().find(|line| line.contains("unknown flag: ")).map(str::to_owned))
    }

    /// The containers that can be tested; prints why the others cannot.
    #[expect(clippy::print_stderr, reason = "a container that is not tested is reported")]
    async fn testable(&self, starts: Vec<Start>) -> Result<Vec<Start>> {
        let mut testable = Vec::new();
        for start in starts.into_iter().filter(|start| start.program != INJECTOR) {
            match self.untestable(&start).await? {
                Some(reason) => eprintln!("not tested: {}: {}: {reason}", start.platform, start.container),
                None => testable.push(start),
            }
        }
        Ok(testable)
    }

    fn spawn(&self, start: &Start) -> Result<Process> {
        let mut command = Command::new(self.file(&start.program)?);
        let azure = start.program == "azure-cloud-controller-manager";
        let taken = |argument| if azure && argument == AZURE_SYNCS.0 { AZURE_SYNCS.1 } else { argument };
        command
            .args(start.arguments.iter().map(|argument| taken(argument.as_str())))
            .env_clear()
            // No request may leave the machine.
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .current_dir(self.dir.path());
        Process::spawn(&start.program, command, &self.dir.path().join("log"))
    }

    /// Runs the container's program to its end. Returns whether it succeeded, and its log.
    async fn run(&self, start: &Start) -> Result<(bool, String)> {
        let process = self.spawn(start)?;
        let what = format!("{}: the end of {}", start.platform, start.program);
        let status = eventually(&what, LIMIT, async || process.try_wait()).await?;
        Ok((status.success(), words(&process)))
    }

    /// Fails unless the program's only error is the missing kubeconfig: it reads the kubeconfig after it has accepted all
    /// flags, and before it sends any request.
    async fn check_start(&self, start: &Start) -> Result<()> {
        let kubeconfig = self.dir.path().join("no-kubeconfig");
        let mut start = start.clone();
        // The manifest's own may exist on the machine of the test.
        start.arguments.retain(|argument| !argument.starts_with("--kubeconfig="));
        let mut start = start.with(&[format!("--kubeconfig={}", kubeconfig.display())]);
        // Azure's listens before it reads the kubeconfig.
        if !start.is_node_manager() {
            start = start.with(&free_address()?);
        }
        let (success, said) = self.run(&start).await?;
        let kubeconfig = kubeconfig.display();
        let expected = match &*start.program {
            ccm::NAME => format!("failed to read the kubeconfig {kubeconfig}: "),
            _ => format!("stat {kubeconfig}: no such file or directory"),
        };
        if success || !said.contains(&expected) {
            bail!("{}: {}: {:?} ended with:\n{said}", start.platform, start.container, start.arguments);
        }
        Ok(())
    }

    /// Starts a program with other files. Returns whether it succeeded and its log, when it says some words or ends.
    async fn end_of(&self, start: &Start, config: &Path, kubeconfig: &Path, words: &str) -> Result<(bool, String)> {
        let mut start = start.clone();
        start
            .arguments
            .retain(|argument| !["--kubeconfig=", "--cloud-config="].iter().any(|flag| argument.starts_with(flag)));
        let start = start
            .with(&free_address()?)
            .with(&[format!("--kubeconfig={}", kubeconfig.display()), format!("--cloud-config={}", config.display())]);
        let process = self.spawn(&start)?;
        let what = format!("{}: {words}, or the end", start.platform);
        let status = eventually(&what, LIMIT, async || {
            let ended = process.try_wait()?;
            Ok(if ended.is_some() || process.log().contains(words) { Some(ended) } else { None })
        })
        .await?;
        Ok((status.is_some_and(|status| status.success()), self::words(&process)))
    }

    /// Fails unless the program accepts its TLS flags, which it reads only with a kubeconfig. It exits later, for lack of
    /// a cloud configuration.
    async fn check_serving(&self, start: &Start) -> Result<()> {
        let kubeconfig = self.unreachable_kubeconfig()?;
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

    /// The kubeconfig of an API server that does not answer.
    fn unreachable_kubeconfig(&self) -> Result<PathBuf> {
        let kubeconfig = self.dir.path().join("kubeconfig");
        let context = json!([{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]);
        let unreachable = json!([{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}]);
        let text = json!({"clusters": unreachable, "contexts": context, "current-context": "lab"});
        fs::write(&kubeconfig, text.to_string())?;
        Ok(kubeconfig)
    }

    /// Fails unless the program prints its version, which it does not do after an unknown flag.
    async fn check_version(&self, start: &Start) -> Result<()> {
        let start = start.with(&["--version"]);
        let (success, said) = self.run(&start).await?;
        ensure!(success, "{}: {}: {:?} ended with:\n{said}", start.platform, start.container, start.arguments);
        Ok(())
    }
}

/// The arguments of a program without the flags that only the program of its cloud has, if that is not built.
pub(crate) async fn without_own_flags(program: &str, arguments: Vec<String>) -> Result<Vec<String>> {
    let (platform, program) = (program.to_owned(), program.to_owned());
    let start = Start { platform, is_known: true, container: String::new(), program, arguments };
    Ok(Programs::new().await?.without_own_flags(&start).await?.arguments)
}

/// Starts every container of the wanted platforms. Returns the platforms and the programs that were tested.
pub(crate) async fn check_starts(
    catalog: &Catalog,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let programs = Programs::new().await?;
    let mut starts = starts_of(catalog, &without_http2())?;
    starts.retain(|start| is_wanted(&start.platform));
    let starts = programs.testable(starts).await?;
    for start in &starts {
        programs.check_start(start).await?;
        programs.check_version(start).await?;
    }
    Ok(starts.into_iter().map(|start| (start.platform, start.program)).unzip())
}

#[tokio::test]
async fn every_program_starts_with_the_arguments_of_its_manifest() -> Result<()> {
    let catalog = embedded::catalog()?;
    let (platforms, tested) = check_starts(&catalog, |_| true).await?;
    for platform in contract::platforms(&catalog)?.iter().filter(|platform| platform.is_known()) {
        assert!(platforms.contains(&platform.name), "{} is not tested", platform.name);
    }
    let built = Programs::new().await?.built()?;
    assert!(built.is_subset(&tested), "a manifest misspells its program: built are {built:?}, tested {tested:?}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_flag_is_found() -> Result<()> {
    let programs = Programs::new().await?;
    let mut seen = BTreeSet::new();
    let starts = programs.testable(starts()?).await?;
    for start in starts.iter().filter(|start| seen.insert(&start.program)) {
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
    Ok(())
}

#[tokio::test]
async fn every_program_serves_the_tls_of_every_profile() -> Result<()> {
    let programs = Programs::new().await?;
    // The profile with all suites for every program, the shorter ones for one program.
    for (profile, all) in [("Old", true), ("Intermediate", false), ("Modern", false)] {
        let starts = programs.testable(starts_of(&embedded::catalog()?, &json!({"type": profile}))?).await?;
        let deployments = starts.iter().filter(|start| start.container.starts_with("Deployment/"));
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
fn the_injector_of_azure_has_the_flags_of_its_manifest() -> Result<()> {
    let mut platforms = Vec::new();
    for start in starts()?.iter().filter(|start| start.program == INJECTOR) {
        for argument in &start.arguments {
            let flag = argument.split_once('=').map_or(argument.as_str(), |(flag, _)| flag);
            assert!(INJECTOR_FLAGS.contains(&flag), "{}: {}: {argument}", start.platform, start.container);
        }
        platforms.push(start.platform.clone());
    }
    assert_eq!(platforms, ["Azure", "Azure", "AzureStackHub", "AzureStackHub"]);
    Ok(())
}

#[test]
fn arguments_from_facts_are_set() -> Result<()> {
    let starts = starts()?;
    let ccms = starts.iter().filter(|start| start.is_known && start.program.ends_with("cloud-controller-manager"));
    // Static pods of the bootstrap VM have none of them.
    for start in ccms.filter(|start| start.container.starts_with("Deployment/")) {
        let has = |flag: &str| start.arguments.iter().any(|argument| argument.starts_with(&format!("{flag}=")));
        let of_every_cluster =
            ["--tls-min-version", "--tls-cipher-suites", "--disable-http2-serving", "--feature-gates"];
        assert!(of_every_cluster.into_iter().all(has), "{start:?}");
        assert_eq!(has("--node-labels"), start.platform == "VSphere", "{start:?}");
    }
    Ok(())
}
