//! The command line: what is asked for, and the settings that follow from it (pure but for the environment that clap
//! reads). Flags are accepted in Go's spellings, so that the Go operator's command lines work.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{facts::DEFAULT_NAMESPACE, plan::Phase, telemetry::LogFormat};

mod controllers;

pub use controllers::{
    CONFIG_SYNC_LEASE, ConfigSyncArgs, ControllerGroup, ControllersArgs, LeaderElectionArgs, OperatorArgs,
};

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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
}
