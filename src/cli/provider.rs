//! The commands `provider list`, `provider show` and `provider verify`.

use std::{path::Path, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};

use super::flags::{Connection, OutputFormat, RequestTimeout, print, runtime, wrong_usage};
use crate::{
    apply::dry_run,
    plan::show,
    provider::{Flavour, Phase, embedded, read, verify},
    text::output,
    version::VERSION,
};

/// The commands about providers.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List the providers that come with this program.
    List {
        /// The format of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: OutputFormat,
    },
    /// Show the objects of a provider for OpenShift, and where each value comes from.
    Show(ShowArgs),
    /// Check providers against the rules for manifests of cloud-controller-managers. Exit code 1 if one is broken.
    Verify(VerifyArgs),
}

/// Flags of `provider show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The provider, by its name in `provider list`.
    pub name: String,

    /// The objects to show.
    #[arg(long, value_enum, default_value_t)]
    pub phase: ShowPhase,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Flags of `provider verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// A provider by its name in `provider list`, or a folder with assets/CLOUD/, bootstrap/CLOUD/ and, optionally, the
    /// operator's manifests/; `./NAME` is always a folder [default: every provider of `provider list`].
    #[arg(value_name = "NAME|FOLDER")]
    pub target: Option<String>,

    /// The format of the findings.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: VerifyFormat,

    /// Also send every object to the API server of a cluster, as a dry run, and report what it refuses.
    #[arg(long, value_name = "MODE")]
    pub dry_run: Option<DryRun>,

    /// The connection to that cluster.
    #[command(flatten)]
    pub connection: Connection,

    /// The limit of its requests.
    #[command(flatten)]
    pub request_timeout: RequestTimeout,
}

/// Where a dry run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// At the API server, which stores nothing.
    Server,
}

/// The format of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum VerifyFormat {
    /// For people, at most 100 columns wide.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// JUnit XML, a case for each rule.
    Junit,
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

/// Runs one of the commands about providers.
pub(super) fn run(command: &ProviderCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProviderCommand::List { output } => list(*output).map(|()| ExitCode::SUCCESS),
        ProviderCommand::Show(args) => show(args).map(|()| ExitCode::SUCCESS),
        ProviderCommand::Verify(args) => verify(args),
    }
}

fn list(output: OutputFormat) -> anyhow::Result<()> {
    let summaries: Vec<_> = embedded::bundles().iter().map(|bundle| show::summary(bundle, VERSION)).collect();
    print(&output.write(&summaries, || show::list_table(&summaries))?)
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let (bundles, upstream): (Vec<_>, Vec<_>) =
        embedded::bundles().into_iter().partition(|bundle| bundle.flavour == Flavour::OpenShift);
    let bundle = bundles.iter().find(|bundle| bundle.name == args.name);
    if bundle.is_none() && upstream.iter().any(|bundle| bundle.name == args.name) {
        wrong_usage(&format!(
            "provider {:?} is for any Kubernetes: `ccm-operator render --config` shows its objects",
            args.name
        ));
    }
    let bundle = bundle.unwrap_or_else(|| wrong_usage(&show::unknown(&args.name, &bundles)));
    let phase = if args.phase == ShowPhase::Bootstrap { Phase::Bootstrap } else { Phase::Cluster };
    let details = show::details(bundle, VERSION, phase)?;
    print(&args.output.write(&details, || show::details_table(&details))?)
}

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if args.connection.is_given() && args.dry_run.is_none() {
        wrong_usage("flags of a connection need --dry-run=server");
    }
    let mut bundles = embedded::bundles();
    let mut payload = Some(embedded::payload());
    if let Some(target) = &args.target {
        if bundles.iter().any(|bundle| bundle.name == *target) {
            bundles.retain(|bundle| bundle.name == *target);
        } else if Path::new(target).is_dir() {
            (bundles, payload) = match read::read(Path::new(target)) {
                Err(error @ read::Error::NoProviders(_)) => wrong_usage(&error.to_string()),
                read => read?,
            };
        } else if target.contains('/') {
            wrong_usage(&format!("there is no folder {target:?}"));
        } else {
            wrong_usage(&format!("{}, and there is no folder of this name", show::unknown(target, &bundles)));
        }
    }
    let mut report = verify::verify(&bundles, payload.as_ref());
    if args.dry_run.is_some() {
        let refusals = runtime()?.block_on(async {
            args.request_timeout.set();
            let client = args.connection.client().await?;
            anyhow::Ok(dry_run::verify(&client, &bundles).await?)
        })?;
        report = report.with_refusals(refusals);
    }
    print(&match args.output {
        VerifyFormat::Table => report.table(),
        VerifyFormat::Json => output::json(&report)?,
        VerifyFormat::Junit => output::junit(&report.suites()),
    })?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
