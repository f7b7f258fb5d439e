//! The command `cloud-config`: the configuration that would be written for a cluster, without access to it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;

use super::flags::{boolean, one_reads_stdin, print, say};
use crate::{
    config::preview::Preview,
    facts::{Facts, Settings, read::Files},
    provider::embedded,
};

#[derive(Args, Debug)]
pub struct CloudConfigArgs {
    /// An Infrastructure manifest with its status. One of the files may be -, the standard input.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: PathBuf,

    /// The ConfigMap manifest of the configuration [default: the cluster has none].
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// A Network manifest; without it, settings that depend on the Service networks are left out.
    #[arg(long, value_name = "FILE")]
    pub network_file: Option<PathBuf>,

    /// Feature gates that the cluster enables, as `Name=true`.
    #[arg(long, value_name = "GATES", value_delimiter = ',', value_parser = feature_gate)]
    pub feature_gates: Vec<(String, bool)>,

    /// Show each change and its rule, instead of the result; values that look like secrets are masked.
    #[arg(long)]
    pub diff: bool,
}

/// Parses a feature gate in Go's spelling, such as `Name=true`.
fn feature_gate(text: &str) -> Result<(String, bool), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("must be Name=true or Name=false")?;
    Ok((name.to_owned(), boolean(value)?))
}

pub(super) fn run(args: CloudConfigArgs) -> anyhow::Result<()> {
    let files = Files {
        infrastructure: args.cluster_infrastructure_file,
        cloud_config: args.cloud_config_file,
        network: args.network_file,
        ..Files::default()
    };
    one_reads_stdin(files.paths().map(Some))?;
    let (facts, config_map) = (files.facts(&Settings::default())?, files.cloud_config_map()?);
    // If a gate is given twice, the last value counts, as in Go.
    let gates: BTreeMap<String, bool> = args.feature_gates.into_iter().collect();
    let gates = gates.into_iter().filter_map(|(name, is_enabled)| is_enabled.then_some(name)).collect();
    let facts = Facts { feature_gates: gates, ..facts };
    let catalog = embedded::catalog()?;
    let platform = facts.platform.clone()?.unwrap_or_default();
    let provider =
        catalog.select(&platform).map_err(|why| anyhow!("no cloud configuration is synced for this cluster: {why}"))?;
    let settings = provider.descriptor.cloud_config.as_ref().with_context(|| {
        format!("no cloud configuration is synced for this cluster: its provider {} needs none", provider.name())
    })?;
    let preview = Preview::new(settings, &facts, config_map.as_ref())?;
    for warning in &preview.synced.warnings {
        say(&format!("warning: {warning}"));
    }
    print(&if args.diff { preview.diff() } else { preview.synced.text().to_owned() })
}
