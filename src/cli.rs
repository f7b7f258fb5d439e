//! The command line: what is asked for, and the settings that follow from it (pure but for the environment that clap
//! reads). Flags are accepted in Go's spellings, so that the Go operator's command lines work.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::SignedDuration;

use crate::{facts::DEFAULT_NAMESPACE, lease::Timings, plan::Phase, telemetry::LogFormat};

/// The Go operator's programs, each with the command that takes its place when this program is started under that name.
const GO_PROGRAMS: [(&str, &str); 1] = [("azure-config-credentials-injector", "azure-inject-credentials")];

/// The command line as if a command had been named, where the program's own name says which.
pub fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    let name = given.first().and_then(|program| Path::new(program).file_name());
    let command = GO_PROGRAMS.iter().find(|(program, _)| name.is_some_and(|name| name == *program));
    if let Some((_, command)) = command {
        given.insert(1, command.into());
    }
    given
}

/// Installs a cluster's cloud-controller-manager, keeps it installed, and renders it for the bootstrap VM.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// How log lines are written.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// How much is logged, as klog counts: 4 is debugging, 6 the libraries too.
    #[arg(short, long, global = true, value_name = "LEVEL", default_value_t = 2)]
    pub v: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
pub enum Command {
    /// Keep this cluster's cloud-controller-manager installed and report to its ClusterOperator.
    Operator(OperatorArgs),
    /// Show what the operator would change in this cluster, by dry runs; nothing is written.
    ///
    /// Exit code: 0 nothing, 1 something, 2 it could not be found out, or the API server refuses an object.
    Diff(DiffArgs),
    /// Show how this cluster's cloud-controller-manager is doing, on one screen; nothing is written.
    ///
    /// Exit code: 0 available and not degraded, 1 otherwise, 2 the cluster could not be asked.
    Status(StatusArgs),
    /// Sync the cloud's configuration and the trusted certificates, which `operator` does too unless told otherwise.
    ConfigSync(ConfigSyncArgs),
    /// Show what a cluster's cloud configuration becomes, without the cluster.
    CloudConfig(CloudConfigArgs),
    /// Write the manifests of the bootstrap VM, of the cluster, or of the installation to files.
    Render(RenderArgs),
    /// Print what release tooling finds the images by, made of the providers' descriptors.
    ImageReferences(ImageReferencesArgs),
    /// Write Azure's cloud configuration with the credentials in it, for the cloud-controller-manager in the same pod.
    AzureInjectCredentials(AzureInjectCredentialsArgs),
    /// What the providers are: list them, show what is applied for one.
    #[command(subcommand)]
    Provider(ProviderCommand),
}

/// Which cluster a command looks at.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    /// The kubeconfig to use, instead of the usual one.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that is managed.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The file with the images of all providers [default: the ConfigMap cloud-controller-manager-images of the cluster].
    #[arg(long, value_name = "FILE")]
    pub images_json: Option<PathBuf>,
}

/// Flags of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// How the differences are written.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DiffFormat,
}

/// How differences are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// A unified diff of YAML; coloured on a terminal, unless `NO_COLOR` is set.
    #[default]
    Diff,
    /// One JSON document: of each object what would be done, and the fields.
    Json,
}

/// Flags of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,

    /// Look again every two seconds, and show anew what has changed.
    #[arg(short, long)]
    pub watch: bool,
}

/// The commands about providers.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List the providers that come with this program.
    List(ListArgs),
    /// Show what is applied for a provider, and where each value comes from.
    Show(ShowArgs),
    /// Check providers against the rules that a cloud-controller-manager's manifests must keep. Exit code 1 when one is broken.
    Verify(VerifyArgs),
}

/// Flags of `provider list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Flags of `provider show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The provider, by its name in `provider list`.
    pub name: String,

    /// Where the objects are for.
    #[arg(long, value_enum, default_value_t)]
    pub phase: ShowPhase,

    /// How the answer is written.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Flags of `provider verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// A provider by its name in `provider list`, or a folder with assets/CLOUD/, bootstrap/CLOUD/ and, where it has them,
    /// the manifests/ of the operator; `./NAME` is always a folder [default: every provider of `provider list`].
    #[arg(value_name = "NAME|FOLDER")]
    pub target: Option<String>,

    /// How the findings are written.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: VerifyFormat,

    /// Ask the API server of a cluster, too, whether it would take every object; nothing is written.
    #[arg(long)]
    pub cluster: bool,

    /// The kubeconfig of that cluster, instead of the usual one.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub kubeconfig: Option<PathBuf>,
}

/// How findings are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum VerifyFormat {
    /// For people, at most 100 columns wide.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// JUnit's XML, a case for each rule.
    Junit,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people, at most 100 columns wide.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// The lease of the config-sync controllers, the same as the Go operator's.
pub const CONFIG_SYNC_LEASE: &str = "cluster-cloud-config-sync-leader";

const LEADER_ELECTION: &str = "Leader election";

/// A group of controllers that run under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ControllerGroup {
    /// Every one of them.
    #[value(name = "*")]
    All,
    /// Applies the provider's manifests and reports the ClusterOperator's status.
    Operator,
    /// Syncs the cloud's configuration and the trusted certificates.
    ConfigSync,
}

/// Flags of every command that runs controllers.
#[derive(Args, Debug)]
pub struct ControllersArgs {
    /// The namespace to manage.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// Where /healthz and /readyz are served; without a host on all addresses.
    #[arg(long, value_name = "ADDRESS", default_value = ":9440")]
    pub health_addr: String,

    /// The kubeconfig to use, instead of the Pod's own credentials.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// A file that says where the API server is, as /etc/kubernetes/apiserver-url.env does on nodes of OpenShift. It comes
    /// before the Pod's environment, whose address answers only once there is a pod network.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub api_server_env_file: Option<PathBuf>,

    /// The certificates that the system trusts; they become part of the bundle that the cloud-controller-manager trusts.
    #[arg(long, value_name = "FILE", default_value = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")]
    pub system_trust_bundle: PathBuf,

    /// The version that this operator brings.
    #[arg(env = "RELEASE_VERSION", long, hide = true)]
    pub release_version: Option<String>,

    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionArgs,
}

/// Flags of `cloud-config`.
#[derive(Args, Debug)]
pub struct CloudConfigArgs {
    /// An Infrastructure manifest with its status.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: PathBuf,

    /// The ConfigMap manifest of the configuration [default: the cluster has none].
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// A Network manifest; what follows from the networks of Services is left out without it.
    #[arg(long, value_name = "FILE")]
    pub network_file: Option<PathBuf>,

    /// Feature gates that the cluster enables, as `Name=true`.
    #[arg(long, value_name = "GATES", value_delimiter = ',', value_parser = feature_gate)]
    pub feature_gates: Vec<(String, bool)>,

    /// Show what changed and which rule changed it, instead of the result; values that look like secrets are masked.
    #[arg(long)]
    pub diff: bool,
}

/// Flags of `config-sync`.
#[derive(Args, Debug)]
pub struct ConfigSyncArgs {
    /// What every command has that runs controllers.
    #[command(flatten)]
    pub common: ControllersArgs,

    /// The name of the lease.
    #[arg(long, value_name = "NAME", default_value = CONFIG_SYNC_LEASE, help_heading = LEADER_ELECTION)]
    pub leader_elect_resource_name: String,
}

/// Flags of `operator`.
#[derive(Args, Debug)]
pub struct OperatorArgs {
    /// Log what would be done, and write nothing: no object, no status, no lease.
    #[arg(long, conflicts_with = "controllers")]
    pub dry_run: bool,

    /// What every command has that runs controllers.
    #[command(flatten)]
    pub common: ControllersArgs,

    /// Which controllers run in this process, each group under its own lease.
    #[arg(long, value_enum, value_name = "GROUPS", value_delimiter = ',', default_value = "*")]
    pub controllers: Vec<ControllerGroup>,

    /// The name of the operator's lease.
    #[arg(long, value_name = "NAME", default_value = "cluster-cloud-controller-manager-leader",
        help_heading = LEADER_ELECTION)]
    pub leader_elect_resource_name: String,

    /// The file with the images of all providers, a JSON object of key and image reference. It is followed.
    #[arg(long, value_name = "FILE", default_value = "/etc/cloud-controller-manager-config/images.json")]
    pub images_json: PathBuf,

    /// The lowest TLS version that the cloud-controller-manager serves, instead of the cluster's profile.
    #[arg(long, value_name = "VERSION", value_parser = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"])]
    pub tls_min_version: Option<String>,

    /// The cipher suites that the cloud-controller-manager serves, by IANA's names, instead of the cluster's profile.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,

    /// Accepted for the Go operator's command lines; metrics are not served yet.
    #[arg(long, value_name = "ADDRESS", default_value = ":9258", hide_short_help = true)]
    pub metrics_bind_address: String,

    /// Accepted for the Go operator's command lines; nothing is served.
    #[arg(long, value_name = "PORT", default_value_t = 9443, hide_short_help = true)]
    pub webhook_port: u16,
}

/// Flags of leader election.
#[derive(Args, Debug)]
#[command(next_help_heading = LEADER_ELECTION)]
pub struct LeaderElectionArgs {
    /// Compete for the lease, and act only while holding it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// The namespace of the lease [default: the Pod's own].
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,

    /// How long a lease counts that nobody renews [default: 137s; 270s on a single node].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,

    /// How long the holder tries to renew before it gives up [default: 107s; 240s on a single node].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,

    /// How long between two tries [default: 26s; 60s on a single node].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,

    /// Accepted for the Go operator's command lines; the lock is always a Lease.
    #[arg(long, value_name = "KIND", hide = true)]
    pub leader_elect_resource_lock: Option<String>,
}

impl LeaderElectionArgs {
    /// The timings, when any was given; an error says what is wrong with them.
    pub fn timings(&self) -> Result<Option<Timings>, &'static str> {
        let given =
            [self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period];
        if given.iter().all(Option::is_none) {
            return Ok(None);
        }
        let default = Timings::HIGHLY_AVAILABLE;
        let timings = Timings {
            lease_duration: given[0].unwrap_or(default.lease_duration),
            renew_deadline: given[1].unwrap_or(default.renew_deadline),
            retry_period: given[2].unwrap_or(default.retry_period),
        };
        timings.problem().map_or(Ok(Some(timings)), Err)
    }
}

/// Flags of `render`.
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The folder to write into; it is made when it is missing.
    #[arg(long, value_name = "DIR", required_unless_present = "output")]
    pub dest_dir: Option<PathBuf>,

    /// An Infrastructure manifest with its status; needed but for --phase install.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: Option<PathBuf>,

    /// The ConfigMap manifest cloud-controller-manager-images; needed but for --phase install.
    #[arg(long, value_name = "FILE")]
    pub images_file: Option<PathBuf>,

    /// The ConfigMap manifest of the cloud's configuration; needed when the Infrastructure names one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// Which manifests: DIR/bootstrap and DIR/config, or DIR/manifests with those of the cluster or of the installation.
    #[arg(long, value_enum, default_value_t)]
    pub phase: RenderPhase,

    /// The namespace to manage, for --phase cluster and install.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// `-` prints the manifests as one YAML stream; not with --phase bootstrap.
    #[arg(short, long, value_name = "-", value_parser = ["-"], conflicts_with = "dest_dir")]
    pub output: Option<String>,
}

/// Which objects `provider show` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowPhase {
    /// The static pod of the bootstrap VM.
    Bootstrap,
    /// What the operator applies to the cluster.
    #[default]
    Cluster,
}

impl From<ShowPhase> for Phase {
    fn from(phase: ShowPhase) -> Self {
        match phase {
            ShowPhase::Bootstrap => Self::Bootstrap,
            ShowPhase::Cluster => Self::Cluster,
        }
    }
}

/// Which manifests `render` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RenderPhase {
    /// The static pod of the bootstrap VM, and its cloud.conf.
    #[default]
    Bootstrap,
    /// What the operator applies to the cluster.
    Cluster,
    /// What the cluster's version operator installs: the operator itself, with its RBAC.
    Install,
}

/// Flags of `image-references`.
#[derive(Args, Debug)]
pub struct ImageReferencesArgs {
    /// Print the images ConfigMap instead, with an image for each key.
    #[arg(long)]
    pub config_map: bool,
}

/// Flags of `azure-inject-credentials`.
#[derive(Args, Debug)]
pub struct AzureInjectCredentialsArgs {
    /// The cloud configuration to start from.
    #[arg(long, value_name = "FILE", default_value = "/tmp/cloud-config/cloud.conf")]
    pub cloud_config_file_path: PathBuf,

    /// The file to write. Its folder must be there.
    #[arg(long, value_name = "FILE", default_value = "/tmp/merged-cloud-config/cloud.conf")]
    pub output_file_path: PathBuf,

    /// The folder that the Secret with the credentials is mounted in.
    #[arg(long, value_name = "DIR", default_value = "/etc/azure/credentials")]
    pub creds_path: PathBuf,

    /// Set useManagedIdentityExtension to false where the configuration has it, so that the credentials are used.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", action = clap::ArgAction::Set, value_parser = boolean)]
    pub disable_identity_extension_auth: bool,

    /// Accepted for the Go operator's command lines; the credentials say whether it is a workload identity.
    #[arg(long, value_name = "TEXT", default_value = "false", hide_short_help = true)]
    pub enable_azure_workload_identity: String,
}

/// A boolean in Go's spellings.
fn boolean(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false"),
    }
}

/// A feature gate in Go's spelling, such as `Name=true`.
fn feature_gate(text: &str) -> Result<(String, bool), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("give it as Name=true or Name=false")?;
    Ok((name.to_owned(), boolean(value)?))
}

/// A duration in Go's spelling, such as `137s` or `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<SignedDuration, _> = text.parse();
    parsed
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "give a positive duration such as 137s or 1m30s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn operator(arguments: &str) -> Result<OperatorArgs, clap::Error> {
        let cli = Cli::try_parse_from(["ccm-operator", "operator"].into_iter().chain(arguments.split_whitespace()))?;
        match cli.command {
            Command::Operator(operator) => Ok(operator),
            _ => unreachable!(),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_go_operators_command_line_is_accepted() {
        let args = operator(
            "--leader-elect=true --leader-elect-lease-duration=137s --leader-elect-renew-deadline=1m47s \
             --leader-elect-retry-period=26s --leader-elect-resource-namespace=openshift-cloud-controller-manager-operator \
             --images-json=/x/images.json --webhook-port=9443 --metrics-bind-address=:9258 --health-addr=127.0.0.1:9259 -v=2",
        )
        .unwrap();
        assert!(args.common.leader_election.leader_elect);
        assert_eq!(args.common.leader_election.timings(), Ok(Some(Timings::HIGHLY_AVAILABLE)));
        assert!(!operator("--leader-elect=false").unwrap().common.leader_election.leader_elect);
        assert!(operator("--leader-elect").unwrap().common.leader_election.leader_elect);
        assert_eq!(operator("").unwrap().common.leader_election.timings(), Ok(None));
        assert!(operator("--leader-elect-lease-duration=60s").unwrap().common.leader_election.timings().is_err());
    }

    #[test]
    fn the_programs_name_may_name_the_command() {
        let of = |line: &str| arguments(line.split_whitespace().map(OsString::from).collect());
        assert_eq!(
            of("/azure-config-credentials-injector -v=4").join(" ".as_ref()),
            "/azure-config-credentials-injector azure-inject-credentials -v=4"
        );
        for line in ["ccm-operator render", "./azure-config-credentials-injectors x", ""] {
            assert_eq!(of(line).join(" ".as_ref()), line);
        }
    }

    #[test]
    fn the_injectors_flags_are_gos() {
        let parse = |line: &str| {
            let line = format!("azure-config-credentials-injector {line}");
            match Cli::try_parse_from(arguments(line.split_whitespace().map(OsString::from).collect()))
                .map(|cli| cli.command)
            {
                Ok(Command::AzureInjectCredentials(args)) => Some(args),
                _ => None,
            }
        };
        let args = parse("").unwrap();
        assert_eq!(args.cloud_config_file_path, Path::new("/tmp/cloud-config/cloud.conf"));
        assert_eq!(args.output_file_path, Path::new("/tmp/merged-cloud-config/cloud.conf"));
        assert_eq!(args.creds_path, Path::new("/etc/azure/credentials"));
        assert!(!args.disable_identity_extension_auth);
        for (line, disabled) in [
            ("--disable-identity-extension-auth --enable-azure-workload-identity=true", Some(true)),
            ("--disable-identity-extension-auth --enable-azure-workload-identity any", Some(true)),
            ("--disable-identity-extension-auth=T --creds-path /x --output-file-path=/y", Some(true)),
            ("--disable-identity-extension-auth=0 -v=4", Some(false)),
            ("--disable-identity-extension-auth=maybe", None),
            ("--disable-identity-extension-auth false", None),
            ("--enable-azure-workload-identity", None),
        ] {
            assert_eq!(parse(line).map(|args| args.disable_identity_extension_auth), disabled, "{line}");
        }
    }

    #[test]
    fn durations_are_gos() {
        for (text, seconds) in [("137s", 137.0), ("1m30s", 90.0), ("2h", 7200.0), ("500ms", 0.5), ("1.5h", 5400.0)] {
            assert_eq!(duration(text).map(|duration| duration.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "5", "-1s", "0s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
