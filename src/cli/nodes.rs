//! The command `nodes`: the nodes that wait for their cloud-controller-manager, the reasons, and the fixes.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use kube::Client;
use serde::Serialize;

use super::{
    flags::{AnyCluster, OutputFormat, runtime},
    provider_flags::ProviderFlags,
    watch,
};
use crate::{
    evidence,
    nodes::{diagnose::diagnose, diagnosis::Diagnosis, evidence::Unseen, reason::Reason},
    provider::{catalog::Catalog, external::Pinning},
    text::suggest::did_you_mean,
};

mod allow;
mod retry;
mod screen;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NodesArgs {
    /// An action on a node; without one, the nodes are listed.
    #[command(subcommand)]
    pub command: Option<NodesCommand>,

    /// The node to show, with everything that was inspected [default: a table of all nodes].
    pub name: Option<String>,

    #[command(flatten)]
    pub cluster: AnyCluster,

    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,

    /// Read again every two seconds, or less often if reads are slow, and print the report if it has changed.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// Make the cloud-controller-manager retry the initialization of a node at once, and report the result.
    ///
    /// Sets an annotation on the Node: any change of a Node ends the backoff after a failure, which grows to 17 minutes.
    /// Exit code: 0 the node is initialized, 1 it still waits, 2 failure.
    Retry(retry::RetryArgs),
    /// Confirm that the cloud-controller-manager may delete a node, past the limits of `spec.nodeDeletion`.
    ///
    /// Adds the node to `spec.nodeDeletion.allow` of a `CloudControllerManager`.
    AllowDelete(allow::AllowDeleteArgs),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodesReport {
    /// All nodes, or the requested one.
    nodes: Vec<Diagnosis>,
    /// The sources that could not be read.
    unseen: Vec<Unseen>,
}

impl NodesReport {
    /// Reads the report of all nodes, or of the named node.
    async fn read(client: &Client, catalog: &Catalog, name: Option<&str>) -> anyhow::Result<Self> {
        let evidence = evidence::read(client, catalog, name).await?;
        let mut nodes = diagnose(&evidence);
        if let Some(name) = name {
            if !nodes.iter().any(|node| node.node == name) {
                let hint = did_you_mean(name, nodes.iter().map(|node| node.node.as_str()));
                bail!("there is no node {name:?}, and no sign that a cloud-controller-manager has deleted it{hint}");
            }
            nodes.retain(|node| node.node == name);
        } else {
            // The list of all nodes shows only the findings.
            for node in &mut nodes {
                node.observations.clear();
            }
        }
        Ok(Self { nodes, unseen: evidence.unseen })
    }

    /// Whether a finding needs an action. A deleted node needs none, because scaling down deletes nodes.
    fn needs_somebody(&self) -> bool {
        let findings = self.nodes.iter().flat_map(|node| &node.findings);
        findings.into_iter().any(|finding| finding.reason != Reason::NodeDeleted)
    }
}

/// Prints the nodes; the exit code says whether something is wrong.
pub(super) fn run(args: &NodesArgs) -> anyhow::Result<ExitCode> {
    let catalog = args.providers.catalog(Pinning::Optional)?;
    runtime()?.block_on(async {
        match &args.command {
            Some(NodesCommand::Retry(args)) => return retry::run(args, &catalog).await,
            Some(NodesCommand::AllowDelete(args)) => return allow::run(args, &catalog).await,
            None => {}
        }
        let (client, name) = (args.cluster.client().await?, args.name.as_deref());
        let read = async || NodesReport::read(&client, &catalog, name).await;
        let table = if name.is_some() { screen::one } else { screen::all };
        let report = watch::show(args.output, args.watch, read, table).await?;
        Ok(ExitCode::from(u8::from(report.needs_somebody())))
    })
}
