//! Reads external providers (IO): [`ExternalProviders`] holds the requested providers of a process, with the result for each.

use std::path::Path;

use crate::{
    error::chain,
    files,
    provider::{
        Error, Provider,
        catalog::Catalog,
        external::{
            ExternalProvider, Origin, Pinning, ProviderRequest, RefusedProvider,
            policy::{LoadedPolicy, PolicyFile},
        },
        package::read::{self as package, LoadedPackage},
        verify::{self, Finding, Policy},
    },
};

/// The largest number of findings in a refusal, which is a part of a status.
const MOST_FINDINGS: usize = 10;

/// The requested external providers of a process.
#[derive(Clone, Debug, Default)]
pub struct ExternalSettings {
    /// The requests of flags and of the environment.
    pub requests: Vec<Result<ProviderRequest, RefusedProvider>>,
    /// The file with the policy for all of them.
    pub policy: Option<PolicyFile>,
    /// The built-in providers that an external provider may replace, by name.
    pub replace: Vec<String>,
    /// Whether each provider and the policy need a digest.
    pub pinning: Pinning,
}

/// The requested external providers of a process, with the result of reading each.
#[derive(Clone, Debug)]
pub struct ExternalProviders {
    built_in: Catalog,
    settings: ExternalSettings,
    /// The policy, or the reason why it cannot be read. A policy that was read is not read again.
    policy: Result<LoadedPolicy, String>,
    /// Each request with its result. A refusal without a request cannot be read again.
    entries: Vec<(Option<ProviderRequest>, Result<ExternalProvider, RefusedProvider>)>,
}

impl ExternalProviders {
    /// Returns the value for a process without external providers.
    pub fn none(built_in: Catalog) -> Self {
        Self::read(built_in, ExternalSettings::default())
    }

    /// Reads the policy, then every requested provider.
    pub fn read(built_in: Catalog, mut settings: ExternalSettings) -> Self {
        let requests = std::mem::take(&mut settings.requests);
        let policy = settings.read_policy();
        let entry = |request: Result<ProviderRequest, RefusedProvider>| {
            let result = request.clone().and_then(|request| settings.read_provider(&request, &policy));
            (request.ok(), result)
        };
        let entries = requests.into_iter().map(entry).collect();
        Self { built_in, settings, policy, entries }
    }

    /// Reads the refused providers again. Returns whether one of them is accepted now, or refused for another reason.
    pub fn retry(&mut self) -> bool {
        let mut has_changed = false;
        if self.policy.is_err() {
            self.policy = self.settings.read_policy();
        }
        for (request, result) in self.entries.iter_mut().filter(|(_, result)| result.is_err()) {
            let Some(request) = request else { continue };
            let again = self.settings.read_provider(request, &self.policy);
            has_changed |= again.is_ok() || again.as_ref().err() != result.as_ref().err();
            *result = again;
        }
        has_changed
    }

    /// Returns the catalog of the built-in and the external providers.
    pub fn catalog(&self) -> Catalog {
        let mut catalog = self.built_in.clone();
        catalog.exclude_built_in(&self.settings.replace);
        for (_, result) in &self.entries {
            match result {
                Ok(external) => catalog.add(&external.provider),
                Err(refused) => catalog.refuse(refused.clone()),
            }
        }
        catalog
    }

    /// The catalog of the built-in providers.
    pub fn built_in(&self) -> &Catalog {
        &self.built_in
    }

    /// Returns the accepted external providers. The catalog may still refuse one.
    pub fn accepted(&self) -> impl Iterator<Item = &ExternalProvider> {
        self.entries.iter().filter_map(|(_, result)| result.as_ref().ok())
    }

    /// Returns the text of the policy's file, or the reason why it cannot be read.
    pub fn policy(&self) -> Result<Option<&str>, &str> {
        self.policy.as_ref().map(|loaded| loaded.text.as_deref()).map_err(String::as_str)
    }

    /// The built-in providers that an external provider may replace, by name.
    pub fn replaced(&self) -> &[String] {
        &self.settings.replace
    }

    /// Returns the paths whose change may lead to another result of [`Self::retry`].
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.entries.iter().filter_map(|(request, _)| request.as_ref()?.path.as_deref());
        let policy = self
            .settings
            .policy
            .as_ref()
            .filter(|_| self.policy.is_err() && self.entries.iter().any(|(request, _)| request.is_some()));
        paths.chain(policy.map(|file| file.path.as_path()))
    }
}

impl ExternalSettings {
    fn read_policy(&self) -> Result<LoadedPolicy, String> {
        self.policy.as_ref().map_or_else(|| Ok(LoadedPolicy::default()), |file| read_policy(file, self.pinning))
    }

    fn read_provider(
        &self,
        request: &ProviderRequest,
        policy: &Result<LoadedPolicy, String>,
    ) -> Result<ExternalProvider, RefusedProvider> {
        let loaded = policy.as_ref().map_err(|why| request.refused(why.clone()))?;
        read_provider(request, &loaded.policy, self.pinning)
    }
}

/// Reads the file of `--provider-policy`. The text whose digest was checked is the one that is used.
pub fn read_policy(file: &PolicyFile, pinning: Pinning) -> Result<LoadedPolicy, String> {
    file.check_pin(pinning)?;
    let at = file.path.display();
    let text =
        files::read_text(&file.path).map_err(|error| format!("failed to read --provider-policy {at}: {error}"))?;
    file.load(text)
}

/// Reads and checks a requested provider. The bytes whose digest was checked are the ones that are used.
pub fn read_provider(
    request: &ProviderRequest,
    policy: &Policy,
    pinning: Pinning,
) -> Result<ExternalProvider, RefusedProvider> {
    let path = request.given_path()?;
    request.check_pin(pinning)?;
    let loaded = package::read(path).map_err(|error| request.refused(chain(&error)))?;
    check_package(request, loaded, policy)
}

/// Checks a package in this order: its digest and names, its folder, the rules for external providers. Returns the provider, or the
/// first reason to refuse it.
pub fn check_package(
    request: &ProviderRequest,
    loaded: LoadedPackage,
    policy: &Policy,
) -> Result<ExternalProvider, RefusedProvider> {
    let path = request.given_path()?.display().to_string();
    let LoadedPackage { package, digest, .. } = loaded;
    let parsed_providers = package.parsed_providers();
    request.check_identity((package.name(), &digest), &parsed_providers)?;

    let refused = |defect: Error| request.refused(defect.to_string());
    let provider = Provider::of(package.name(), &parsed_providers).map_err(refused)?;

    let checked = verify::check_external(&parsed_providers, policy);
    if !checked.findings.is_empty() {
        return Err(request.refused(format!(
            "{}; `ccm-operator provider verify` explains each rule, and --provider-policy widens some by name",
            summary(&checked.findings)
        )));
    }
    ExternalProvider::new(package, provider, Origin { path, digest, policy_exceptions: checked.exceptions })
        .map_err(refused)
}

/// Returns the first findings, and the number of the others.
fn summary(findings: &[Finding]) -> String {
    let mut texts: Vec<_> = findings.iter().take(MOST_FINDINGS).map(ToString::to_string).collect();
    let more = findings.len().saturating_sub(MOST_FINDINGS);
    texts.extend((more > 0).then(|| format!("and {more} more")));
    texts.join("; ")
}
