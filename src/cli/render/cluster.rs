//! The command `render cluster`: the objects that the operator applies to an OpenShift cluster.

use std::path::PathBuf;

use clap::Args;

use super::{Destination, OpenShiftFiles, catalog, facts, planned, say_left_out};
use crate::{
    cli::providers::ProviderFlags,
    facts::{DEFAULT_NAMESPACE, Settings, read::Files},
    plan::write,
    provider::Phase,
};

/// What the command does, for the long help.
const HELP: &str = "\
Example:
  ccm-operator render cluster --cluster-infrastructure-file infrastructure.yaml \\
      --images-file images.yaml --proxy-file proxy.yaml
      prints the objects for a cluster behind a proxy";

/// Flags of `render cluster`.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct RenderClusterArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: OpenShiftFiles,

    /// The Proxy manifest.
    #[arg(long, value_name = "FILE")]
    pub proxy_file: Option<PathBuf>,

    /// The FeatureGate manifest; needs --release-version.
    #[arg(long, value_name = "FILE", requires = "release_version")]
    pub feature_gate_file: Option<PathBuf>,

    /// The APIServer manifest with the TLS profile.
    #[arg(long, value_name = "FILE")]
    pub api_server_file: Option<PathBuf>,

    /// The version of the release.
    #[arg(long, value_name = "VERSION")]
    pub release_version: Option<String>,

    /// The namespace to manage.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The providers that do not come with this program.
    #[command(flatten)]
    pub providers: ProviderFlags,

    /// Where the objects are written.
    #[command(flatten)]
    pub destination: Destination,
}

/// Writes the objects.
pub(super) fn run(args: &RenderClusterArgs) -> anyhow::Result<()> {
    let files = Files {
        proxy: args.proxy_file.clone(),
        feature_gate: args.feature_gate_file.clone(),
        api_server: args.api_server_file.clone(),
        ..args.cluster.files()
    };
    let settings = Settings {
        namespace: args.namespace.clone(),
        release_version: args.release_version.clone(),
        ..Settings::default()
    };
    let facts = facts(&files, &settings)?;
    let plan = planned(&catalog(&args.providers)?, &facts, Phase::Cluster)?;
    let sources = [
        (&files.proxy, "the proxy (--proxy-file)"),
        (&files.feature_gate, "the feature gates (--feature-gate-file)"),
        (&files.api_server, "the TLS profile (--api-server-file)"),
    ];
    say_left_out(sources.into_iter().filter(|(file, _)| file.is_none()).map(|(_, what)| what));
    args.destination.write(&write::cluster_files(plan.objects())?)
}
