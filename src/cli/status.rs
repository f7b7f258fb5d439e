//! The command `status`: the state of a cluster's cloud-controller-manager.

use std::process::ExitCode;

use clap::Args;

use super::{
    FAILED,
    flags::{ClusterArgs, OutputFormat, runtime},
    watch,
};
use crate::{
    controllers::view::images_of_file,
    provider::external::Pinning,
    status::screen::{self, StatusReport},
};

#[derive(Args, Debug)]
pub struct StatusArgs {
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
    let catalog = args.cluster.providers.catalog(Pinning::Optional)?;
    if let Some(path) = &args.cluster.images_json {
        images_of_file(path)?;
    }
    runtime()?.block_on(async {
        let reader = args.cluster.reader().await?;
        let report = watch::show(
            args.output,
            args.watch,
            async || {
                let input = reader.status_input(&catalog, args.cluster.images_json.as_deref()).await?;
                Ok(StatusReport::new(&input, &args.cluster.namespace))
            },
            screen::text::screen,
        );
        Ok(match report.await?.healthy {
            Some(is_healthy) => ExitCode::from(u8::from(!is_healthy)),
            None => ExitCode::from(FAILED),
        })
    })
}
