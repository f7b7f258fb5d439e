//! The command `status`: the state of a cluster's cloud-controller-manager.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use k8s_openapi::jiff::Timestamp;

use super::{
    FAILED,
    flags::{ClusterArgs, OutputFormat, print, runtime, say},
    status_input,
};
use crate::{
    controllers::view::images_of_file,
    error::chain,
    provider::embedded,
    status::screen::{self, Report},
};

/// The period of `status --watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Flags of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,

    /// Read again every two seconds, and print the report if it has changed.
    #[arg(short, long)]
    pub watch: bool,
}

/// Prints the report; the exit code says whether the cluster is healthy.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let catalog = embedded::catalog()?;
    if let Some(path) = &args.cluster.images_json {
        images_of_file(path)?;
    }
    runtime()?.block_on(async {
        let reader = args.cluster.reader().await?;
        let clears = args.watch && args.output == OutputFormat::Table && io::stdout().is_terminal();
        let mut shown = None;
        loop {
            match status_input::read(&reader, &catalog, args.cluster.images_json.as_deref()).await {
                // `--watch` waits for the API server to come back.
                Err(error) if shown.is_some() => say(&chain(&error)),
                Err(error) => return Err(error.into()),
                Ok(findings) => {
                    let report = Report::new(&findings, &args.cluster.namespace);
                    // On a terminal the ages are kept up to date; elsewhere only changes are printed.
                    if clears || shown.as_ref() != Some(&report) {
                        let text = args.output.write(&report, || screen::text::screen(&report, Timestamp::now()))?;
                        print(&if clears { format!("{CLEAR}{text}") } else { text })?;
                    }
                    if !args.watch {
                        return Ok(match report.healthy {
                            Some(is_healthy) => ExitCode::from(u8::from(!is_healthy)),
                            None => ExitCode::from(FAILED),
                        });
                    }
                    shown = Some(report);
                }
            }
            tokio::time::sleep(WATCH_PERIOD).await;
        }
    })
}
