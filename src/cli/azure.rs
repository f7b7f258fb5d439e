//! The command `azure-inject-credentials`.

use std::path::PathBuf;

use clap::Args;
use tracing::info;

use super::flags::boolean;
use crate::config::azure::{credentials, read};

/// Flags of `azure-inject-credentials`.
#[derive(Args, Debug)]
pub struct AzureInjectCredentialsArgs {
    /// The cloud configuration to start from.
    #[arg(long, value_name = "FILE", default_value = "/tmp/cloud-config/cloud.conf")]
    pub cloud_config_file_path: PathBuf,

    /// The file to write. Its folder must be there.
    #[arg(long, value_name = "FILE", default_value = "/tmp/merged-cloud-config/cloud.conf")]
    pub output_file_path: PathBuf,

    /// The folder that the Secret with the credentials is mounted in.
    #[arg(long, value_name = "DIR", default_value = "/etc/azure/credentials")]
    pub creds_path: PathBuf,

    /// Set useManagedIdentityExtension to false where the configuration has it, so that the credentials are used.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", action = clap::ArgAction::Set, value_parser = boolean)]
    pub disable_identity_extension_auth: bool,

    /// Accepted for the Go operator's command lines; the credentials say whether it is a workload identity.
    #[arg(long, value_name = "TEXT", default_value = "false", hide_short_help = true)]
    pub enable_azure_workload_identity: String,
}

/// Writes the configuration with the credentials in it.
pub(super) fn run(args: &AzureInjectCredentialsArgs) -> anyhow::Result<()> {
    let config = read::config(&args.cloud_config_file_path)?;
    let credentials = read::credentials(&args.creds_path)?;
    let injected = credentials::inject(&config, &credentials, args.disable_identity_extension_auth).map_err(
        |error| match error {
            credentials::Error::Config(problem) => {
                anyhow::anyhow!(problem.of(args.cloud_config_file_path.display()))
            }
            other => other.into(),
        },
    )?;
    for note in injected.notes {
        info!("{note}");
    }
    read::write(&args.output_file_path, &injected.text)?;
    info!("wrote {}", args.output_file_path.display());
    Ok(())
}
