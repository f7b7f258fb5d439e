//! Flags for external providers, which do not come with this program.

use std::{env, path::Path};

use anyhow::bail;
use clap::Args;

use crate::{
    provider::{
        catalog::Catalog,
        embedded,
        external::{
            Pinning, ProviderRequest,
            policy::PolicyFile,
            read::{ExternalProviders, ExternalSettings},
        },
    },
    text::suggest::did_you_mean,
};

/// The heading of these flags in the help.
pub(super) const EXTERNAL_PROVIDERS: &str = "External providers";

/// Flags for external providers. The environment may also request one: `ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN`, `CLOUD_PROVIDER`, and
/// `CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH` and `_HASH`.
#[derive(Args, Debug)]
pub struct ProviderFlags {
    /// An external provider: its folder, its tar or an OCI image layout. The operator needs the digest that
    /// `provider digest` prints; may be repeated.
    #[arg(long, value_name = "PATH@sha256:DIGEST", help_heading = EXTERNAL_PROVIDERS)]
    pub provider: Vec<String>,

    /// A file with exceptions of these providers from the rules for external providers. The operator needs the digest that `provider digest
    /// FILE` prints.
    #[arg(long, value_name = "FILE@sha256:DIGEST", help_heading = EXTERNAL_PROVIDERS)]
    pub provider_policy: Option<String>,

    /// The built-in providers, comma-separated, that these providers may replace.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = EXTERNAL_PROVIDERS)]
    pub replace_built_in: Vec<String>,
}

impl ProviderFlags {
    /// Reads the providers that the flags and the environment request.
    pub(super) fn externals(&self, pinning: Pinning) -> anyhow::Result<ExternalProviders> {
        let of_flags = self.provider.iter().map(|text| Ok(ProviderRequest::of_flag(text)));
        // A value that is not UTF-8 enables nothing, and is refused.
        let variable = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let of_environment = ProviderRequest::of_environment(variable).transpose();
        let known = embedded::names();
        if let Some(unknown) = self.replace_built_in.iter().find(|name| !known.contains(&name.as_str())) {
            let hint = did_you_mean(unknown, known.iter().copied());
            bail!(
                "--replace-built-in: there is no built-in provider {unknown:?}{hint}; one of your own is given by --provider ./{}",
                unknown.escape_debug()
            );
        }
        let is_name = |text: &&String| known.contains(&text.as_str()) && !Path::new(text.as_str()).exists();
        if let Some(name) = self.provider.iter().find(is_name) {
            bail!("--provider: {name} comes with this program; the flag is for the path of one that does not");
        }
        let settings = ExternalSettings {
            requests: of_flags.chain(of_environment).collect(),
            policy: self.provider_policy.as_deref().map(PolicyFile::of_flag),
            replace: self.replace_built_in.clone(),
            pinning,
        };
        Ok(ExternalProviders::read(embedded::catalog()?, settings))
    }

    /// Returns the catalog of all providers. Fails if a provider is refused.
    pub(super) fn catalog(&self, pinning: Pinning) -> anyhow::Result<Catalog> {
        let catalog = self.externals(pinning)?.catalog();
        catalog.check()?;
        Ok(catalog)
    }
}
