//! The command `azure-inject-credentials`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tracing::info;

use super::{flags::boolean, go_operator::KlogFlags};
use crate::config::azure::{credentials, read};

#[derive(Args, Debug)]
pub struct AzureInjectCredentialsArgs {
    /// The cloud configuration to read.
    #[arg(long, value_name = "FILE", default_value = "/tmp/cloud-config/cloud.conf")]
    pub cloud_config_file_path: PathBuf,

    /// The file to write; its folder must exist.
    #[arg(long, value_name = "FILE", default_value = "/tmp/merged-cloud-config/cloud.conf")]
    pub output_file_path: PathBuf,

    /// The folder that the Secret with the credentials is mounted in.
    #[arg(long, value_name = "DIR", default_value = "/etc/azure/credentials")]
    pub creds_path: PathBuf,

    /// Set useManagedIdentityExtension to false if the configuration has it, so that the credentials are used.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", action = clap::ArgAction::Set, value_parser = boolean)]
    pub disable_identity_extension_auth: bool,

    /// Accepted for the Go operator's command lines; workload identity is detected from the credentials.
    #[arg(long, value_name = "TEXT", default_value = "false", hide_short_help = true)]
    pub enable_azure_workload_identity: String,

    #[command(flatten)]
    pub klog: KlogFlags,
}

pub(super) fn run(args: &AzureInjectCredentialsArgs) -> anyhow::Result<()> {
    let path = &args.cloud_config_file_path;
    let (config, credentials) = (read::config(path)?, read::credentials(&args.creds_path)?);
    let injected = credentials::inject(&config, &credentials, args.disable_identity_extension_auth);
    let injected = injected.map_err(|error| match error {
        credentials::Error::Config(problem) => anyhow!(problem.of(path.display())),
        other => other.into(),
    })?;
    for note in injected.notes {
        info!("{note}");
    }
    read::write(&args.output_file_path, &injected.text)?;
    info!("wrote {}", args.output_file_path.display());
    Ok(())
}
