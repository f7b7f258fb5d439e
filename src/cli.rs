//! The command line (IO): the flags of each command, and its work.
//!
//! Flags are accepted in Go's spellings, so that the Go operator's command lines work. Exit codes follow `kubectl
//! diff`: 0 for success, 1 if the answer of a query is negative, 2 for a failure (with one line on standard error) or
//! wrong usage. A lost lease has its own exit code.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::Path,
    process::{ExitCode, Termination},
};

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};
use tracing::warn;

use crate::{
    error::chain,
    process::{
        dumps,
        lease::Lost,
        logs::{self, Format},
    },
};
use flags::say;

mod azure;
mod cloud_config;
mod cluster_reader;
mod completion;
mod diff;
mod explain;
mod flags;
mod go_operator;
mod image_references;
mod images;
mod init;
mod limits;
mod nodes;
mod operator;
mod operator_flags;
mod preflight;
mod provider;
mod provider_flags;
mod render;
mod status;
mod version;
mod watch;

/// The exit code of a failure, and of wrong usage.
const FAILED: u8 = 2;

/// The exit code of a process that has lost its lease.
const LOST_LEASE: u8 = 3;

/// The meanings of the exit codes of all commands, for the help.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; nothing is wrong
  1  something is wrong: `diff` found a change, `status` an unhealthy cluster, `nodes` a problem of a node, `nodes retry`
     a node that still waits, `init` and `preflight` a check that refuses, `init` a setting that is not kept,
     `provider verify` a defect, `provider list` a provider that is refused, `provider test` no pod that was ready
  2  failed, or wrong usage; one line on standard error says why
  3  the lease was lost to another process
";

/// The crates of this program, whose log lines follow `-v`.
const CRATES: [&str; 4] = ["ccm_base", "ccm_core", "ccm_kit", "ccm_operator"];

/// The file names under which kubectl finds this program as a plugin.
const PLUGIN: [&str; 2] = ["kubectl-ccm", "kubectl-ccm.exe"];

/// Returns the command line. Started under the name of a Go operator program, this program runs the command that replaces it. Started as a
/// kubectl plugin, it does the same under another name.
pub fn arguments(mut given: Vec<OsString>) -> Vec<OsString> {
    let name = given.first().and_then(|program| Path::new(program).file_name()).map(ToOwned::to_owned);
    if name.as_ref().is_some_and(|name| PLUGIN.iter().any(|plugin| name == plugin)) {
        given.splice(..1, ["kubectl ccm".into()]);
    }
    if let Some((_, command)) =
        go_operator::PROGRAMS.iter().find(|(program, _)| name.as_ref().is_some_and(|name| name == *program))
    {
        // The help shows the program and the command as users type them.
        given.splice(..1, ["ccm-operator"].iter().chain(*command).map(OsString::from));
    }
    given
}

/// Installs a cluster's cloud-controller-manager, keeps it installed, and renders it for the bootstrap VM.
#[derive(Debug, Parser)]
#[command(name = "ccm-operator", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,

    /// The format of log lines.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// The log level, as in klog: 4 adds debug messages, 6 adds those of libraries.
    #[arg(short, long, global = true, value_name = "LEVEL", default_value_t = 2)]
    pub v: u8,

    /// When to use color in the output and the log; auto: on a terminal, unless `NO_COLOR` is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t, hide_short_help = true)]
    pub color: ColorChoice,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Whether to use color for an output that may be a terminal.
fn has_color(choice: ColorChoice, output: &impl IsTerminal) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
pub enum Command {
    /// Keep the cluster's cloud-controller-manager installed and report its status in the ClusterOperator.
    Operator(operator_flags::OperatorArgs),
    /// Show what the operator would change in the cluster, by dry runs; writes nothing.
    ///
    /// Exit code: 0 no changes, 1 changes, 2 failure, or the API server refuses an object.
    Diff(diff::DiffArgs),
    /// Show the state of the cluster's cloud-controller-manager on one screen; writes nothing.
    ///
    /// Exit code: 0 available, not degraded and kept so by an operator; 1 otherwise; 2 the status cannot be read.
    Status(status::StatusArgs),
    /// Show the nodes that wait for their cloud-controller-manager or are about to be deleted, the reasons, and the fixes; without a
    /// subcommand it writes nothing.
    ///
    /// For a node with the name of a subcommand, use `--`: `nodes -- retry`.
    /// Exit code: 0 no problem; 1 a node has a problem other than its deletion; 2 failure.
    Nodes(nodes::NodesArgs),
    /// Propose a `CloudControllerManager` for the cluster of the kubeconfig, and write it and its Secret as files to apply.
    ///
    /// Inspects the nodes and the workloads, asks for missing values, checks the proposal as `preflight` does, and prints the next
    /// commands. Changes nothing in the cluster. With --from-existing it keeps the settings of the cloud-controller-manager of a chart or a
    /// manifest, and prints the steps of the migration and of the rollback.
    /// Exit code: 0 the files are written, and no check refuses the installation; 1 they are written, and a check refuses or a
    /// setting is not kept; 2 failure.
    Init(init::InitArgs),
    /// Check a cluster before a cloud-controller-manager is installed, and print the fixes; writes nothing.
    ///
    /// For a property that the API server does not show, it prints how to check it.
    /// Exit code: 0 nothing refuses the installation; 1 a check refuses it; 2 failure.
    Preflight(preflight::PreflightArgs),
    /// Explain a reason of a condition, of an Event or of a node that waits, or a check: its meaning, and what to do. Needs no cluster.
    ///
    /// The name of a condition, such as `Ready`, stands for all its reasons. Without a name, it lists all reasons and checks.
    Explain(explain::ExplainArgs),
    /// Sync the cloud's configuration and the trusted certificates in a separate process (by default `operator` syncs them too).
    ConfigSync(operator_flags::ConfigSyncArgs),
    /// Show the cloud configuration that would be synced for a cluster, without access to it.
    CloudConfig(cloud_config::CloudConfigArgs),
    /// Write the manifests of the bootstrap VM, of a cluster, or of an installation.
    Render(render::RenderArgs),
    /// Print the file in which release tooling finds the images, generated from the providers' descriptors.
    ImageReferences(image_references::ImageReferencesArgs),
    /// List the images of cloud-controller-managers for versions of Kubernetes, for mirrors.
    Images(images::ImagesArgs),
    /// Write Azure's cloud configuration with its credentials, for the cloud-controller-manager in the same pod.
    AzureInjectCredentials(azure::AzureInjectCredentialsArgs),
    /// Create, test, verify, pack and show providers.
    #[command(subcommand)]
    Provider(provider::ProviderCommand),
    /// Show the version of this program and of the cluster.
    Version(version::VersionArgs),
    /// Print the script that completes this program's command lines in a shell.
    Completion(completion::CompletionArgs),
}

/// Runs a command to its end.
pub fn run(cli: Cli) -> ExitCode {
    let format = match cli.log_format {
        LogFormat::Text => Format::Text { colors: has_color(cli.color, &io::stderr()) },
        LogFormat::Json => Format::Json,
    };
    logs::init(format, cli.v, &CRATES);
    if let Err(error) = dumps::disable() {
        warn!("failed to disable core dumps, which would contain Secrets: {error}");
    }
    match cli.command {
        Command::Operator(args) => exit_code(operator::run_operator(&args)),
        Command::ConfigSync(args) => exit_code(operator::run_config_sync(&args)),
        Command::Diff(args) => exit_code(diff::run(&args, has_color(cli.color, &io::stdout()))),
        Command::Status(args) => exit_code(status::run(&args)),
        Command::Nodes(args) => exit_code(nodes::run(&args)),
        Command::Init(args) => exit_code(init::run(&args)),
        Command::Preflight(args) => exit_code(preflight::run(&args)),
        Command::Explain(args) => exit_code(explain::run(&args)),
        Command::CloudConfig(args) => exit_code(cloud_config::run(args)),
        Command::Render(args) => exit_code(render::run(&args)),
        Command::ImageReferences(args) => exit_code(image_references::run(&args)),
        Command::Images(args) => exit_code(images::run(&args)),
        Command::AzureInjectCredentials(args) => exit_code(azure::run(&args)),
        Command::Provider(command) => exit_code(provider::run(&command)),
        Command::Version(args) => exit_code(version::run(&args)),
        Command::Completion(args) => exit_code(completion::run(&args)),
    }
}

/// Returns the exit code of a command, and reports its error.
fn exit_code(done: anyhow::Result<impl Termination>) -> ExitCode {
    match done {
        Ok(done) => done.report(),
        Err(error) => {
            if let Some(usage) = error.downcast_ref::<clap::Error>() {
                // A failure to write, such as to a closed pipe, is ignored.
                let _ = usage.print();
                return ExitCode::from(FAILED);
            }
            say(&format!("ccm-operator: {}", chain(error.as_ref())));
            ExitCode::from(if error.is::<Lost>() { LOST_LEASE } else { FAILED })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_and_the_page_name_the_same_commands_that_can_exit_with_1() {
        let of = |text: &str, start: &str, end: &str| -> BTreeSet<String> {
            let part = text.split_once(start).and_then(|(_, rest)| rest.split_once(end)).unwrap().0;
            part.split('`').skip(1).step_by(2).map(|name| name.replace('\n', " ")).collect()
        };
        let page = include_str!("../docs/commands.md");
        assert_eq!(of(EXIT_CODES, "  1  ", "  2  "), of(page, "1 is an answer", "2 is"));
    }

    #[test]
    fn the_help_of_a_package_names_each_of_its_forms() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                let help =
                    argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
                let takes_package = help.contains(" folder") && help.contains(" tar");
                assert!(!takes_package || help.contains("OCI image"), "{} {argument}: {help}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn the_name_of_the_program_can_select_the_command() {
        for (line, command) in [
            ("/azure-config-credentials-injector -v=4", "ccm-operator azure-inject-credentials -v=4"),
            ("bin/cluster-controller-manager-operator -v=2", "ccm-operator operator --controllers=operator -v=2"),
            ("/config-sync-controllers", "ccm-operator config-sync"),
            ("/render --dest-dir=/x", "ccm-operator render --dest-dir=/x"),
            ("ccm-operator render", "ccm-operator render"),
            ("/usr/local/bin/kubectl-ccm nodes a", "kubectl ccm nodes a"),
            ("kubectl-ccm.exe --help", "kubectl ccm --help"),
            ("./azure-config-credentials-injectors x", "./azure-config-credentials-injectors x"),
            ("", ""),
        ] {
            let arguments = arguments(line.split_whitespace().map(OsString::from).collect());
            assert_eq!(arguments.join(" ".as_ref()), command);
        }
    }

    #[test]
    fn the_injector_accepts_the_go_programs_flags() {
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
            ("--logtostderr --alsologtostderr=false --v=4 --vmodule=a=1 --log_dir /x", Some(false)),
            ("--logtostderr=x", None),
        ] {
            assert_eq!(parse(line).map(|args| args.disable_identity_extension_auth), disabled, "{line}");
        }
    }
}
