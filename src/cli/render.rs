//! The command `render`: writes manifests to files, or to one stream.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, builder::TypedValueParser};

use super::flags::{choice, print, say, wrong_usage};
use crate::{
    api::placement::Distribution,
    files::{Readers, STANDARD},
    plan::{Plan, write},
};

mod ccm;
pub(super) mod install;
mod openshift;
mod payload;

/// Flags of `render`. Bootstrap VMs call it without a subcommand.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct RenderArgs {
    /// The manifests to render.
    #[command(subcommand)]
    pub command: Option<RenderCommand>,

    #[command(flatten)]
    pub bootstrap: Option<openshift::BootstrapArgs>,
}

#[derive(Debug, Subcommand)]
pub enum RenderCommand {
    /// Write the static pod of OpenShift's bootstrap VM and its cloud.conf; `render` without a subcommand does the same.
    Bootstrap(openshift::BootstrapArgs),
    /// Print the objects that the operator applies to an OpenShift cluster, or write them to files.
    ///
    /// The output is not for applying, because the digests of the configuration are known only in the cluster.
    Cluster(openshift::RenderClusterArgs),
    /// Print the manifests that install the operator on OpenShift, or write them to files.
    ///
    /// An external provider is added with `ccm-operator provider pack --configmap` and
    /// `ccm-operator provider rbac`.
    Payload(payload::PayloadArgs),
    /// Print the manifests that install the operator on any Kubernetes, or write them to files.
    Install(Box<install::InstallArgs>),
    /// Print the objects that the operator applies for a `CloudControllerManager`, or write them to files. For clusters without
    /// the operator.
    Ccm(ccm::CcmArgs),
}

/// The destination of manifests.
#[derive(Args, Debug)]
pub struct Destination {
    /// The folder to write to: the files are in DIR/manifests. It is created if it does not exist. With - the manifests are printed
    /// as one YAML stream.
    #[arg(long, value_name = "DIR", default_value = STANDARD)]
    pub dest_dir: PathBuf,

    /// Print the manifests, as --dest-dir - does.
    #[arg(short, long, value_enum, value_name = "FORMAT", conflicts_with = "dest_dir")]
    pub output: Option<StreamFormat>,
}

/// The format of printed manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamFormat {
    /// One YAML stream.
    Yaml,
}

impl Destination {
    /// Whether the manifests are printed.
    fn is_stream(&self) -> bool {
        self.dest_dir.as_os_str() == STANDARD
    }

    fn write(&self, files: &[(PathBuf, String)]) -> anyhow::Result<()> {
        if self.is_stream() { print(&write::stream(files)) } else { write_below(&self.dest_dir, &["manifests"], files) }
    }
}

/// The properties of a cluster other than OpenShift. They are flags because the command reads no cluster.
#[derive(Args, Debug)]
pub struct KubernetesFlags {
    /// The distribution of Kubernetes.
    #[arg(long, default_value = Distribution::Other.properties().flag, value_parser = distribution())]
    pub distribution: Distribution,

    /// The number of nodes with the label of the control plane.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub control_plane_nodes: usize,
}

/// Accepts all distributions, because the command reads no cluster that could show it.
fn distribution() -> impl TypedValueParser<Value = Distribution> {
    choice(Distribution::ALL.map(|one| (one, one.properties().flag, one.properties().help)))
}

pub(super) fn run(args: &RenderArgs) -> anyhow::Result<()> {
    match (&args.command, &args.bootstrap) {
        (Some(RenderCommand::Bootstrap(args)), _) | (None, Some(args)) => openshift::bootstrap(args),
        (Some(RenderCommand::Cluster(args)), _) => openshift::cluster(args),
        (Some(RenderCommand::Payload(args)), _) => payload::run(args),
        (Some(RenderCommand::Install(args)), _) => install::run(args),
        (Some(RenderCommand::Ccm(args)), _) => ccm::run(args),
        (None, None) => Err(wrong_usage("give a subcommand, or the flags of `render bootstrap`")),
    }
}

/// Prints the reason if nothing is planned.
fn announced(plan: Plan) -> Plan {
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
    }
    plan
}

/// Prints the parts that the operator applies but this command does not know, in addition to those it never knows.
fn say_left_out(missing: impl IntoIterator<Item = &'static str>) {
    let always = ["the digests of mounted ConfigMaps and Secrets", "the label of the set of objects"];
    let all: Vec<_> = missing.into_iter().chain(always).collect();
    say(&format!("left out, but applied by the operator: {}", all.join(", ")));
}

/// Writes files below a folder, and creates these folders in it even if they stay empty.
fn write_below(folder: &Path, folders: &[&str], files: &[(PathBuf, String)]) -> anyhow::Result<()> {
    // A proxy's address may hold a password.
    for path in write::write(folder, folders, files, |_| Readers::Group, true)? {
        say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::cli::Cli;

    #[test]
    fn the_examples_of_the_help_are_command_lines() {
        let command = Cli::command();
        let render = command.find_subcommand("render").unwrap();
        for subcommand in render.get_subcommands() {
            let help = subcommand.get_after_long_help().unwrap().to_string().replace("\\\n", "");
            let example = help.lines().find(|line| line.starts_with("  ccm-operator render ")).unwrap();
            let line = example.split(" | ").next().unwrap();
            Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
