//! The command `preflight`: the checks before a cloud-controller-manager is installed. Writes nothing.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use kube::Client;

use super::{
    flags::{AnyCluster, OutputFormat, print, runtime},
    provider_flags::ProviderFlags,
};
use crate::{
    facts::{self, ccm::Ccm},
    nodes::evidence::Unseen,
    plan::install::NAME,
    preflight::{
        read::{Overview, check},
        screen::PreflightReport,
    },
    provider::{catalog::Catalog, external::Pinning},
};

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "filename"])))]
pub struct PreflightArgs {
    /// The `CloudControllerManager` in the cluster.
    pub name: Option<String>,

    /// A CloudControllerManager manifest that need not be applied yet; - is the standard input.
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,

    #[command(flatten)]
    pub cluster: AnyCluster,

    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The operator's own namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = NAME)]
    pub operator_namespace: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Prints the checks; the exit code says whether a check refuses.
pub(super) fn run(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let catalog = args.providers.catalog(Pinning::Optional)?;
    let report = runtime()?.block_on(async {
        let client = args.cluster.client().await?;
        report(args, &client, &catalog).await
    })?;
    print(&args.output.write(&report, || report.text())?)?;
    Ok(ExitCode::from(u8::from(!report.passed)))
}

async fn report(args: &PreflightArgs, client: &Client, catalog: &Catalog) -> anyhow::Result<PreflightReport> {
    let overview = Overview::at(client).await?;
    let ccm = match (&args.filename, &args.name) {
        (Some(path), _) => facts::read::ccm(path, overview.cluster)?,
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let failed = |unseen: &Unseen| anyhow!("failed to read the CloudControllerManager {name}: {}", unseen.why);
            let all = overview.ccms.as_ref().map_err(failed)?;
            let found = all.iter().find(|one| one["metadata"]["name"] == name);
            let found = found.with_context(|| format!("there is no CloudControllerManager {name}"))?;
            let ccm = Ccm::of_live(found, overview.cluster);
            ccm.with_context(|| format!("failed to read CloudControllerManager {name}"))?
        }
    };
    check(client, catalog, &ccm, &overview, None, &args.operator_namespace).await
}
