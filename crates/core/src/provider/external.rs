//! External providers: the requests for them, and the reasons to refuse one (pure).
//!
//! This module fails closed: a requested provider that does not pass every check is refused by name, and no built-in
//! provider replaces it.

pub mod policy;
pub mod read;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{brief, message},
    object::reference::is_digest,
    provider::{DescriptorFields, Error, Provider, folder::ParsedProvider, package::Package},
    text::output::printable,
};

/// The text between a pinned path and its digest: `PATH@sha256:HEX`.
pub const PIN: &str = "@sha256:";

/// The environment variables that request an external provider. Other systems with external providers use the same names.
pub const CLOUD_PROVIDER: &str = "CLOUD_PROVIDER";
const ENABLE: &str = "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN";
const PATH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH";
const HASH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH";

/// Splits `PATH@sha256:HEX` into the path and the digest. The digest is checked later.
fn split_pin(text: &str) -> (&str, Option<String>) {
    let is_hex = |hex: &str| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The name of the algorithm may be absent, as in the environment variable.
    let bare = || text.rsplit_once('@').filter(|(_, hex)| is_hex(hex));
    match text.rsplit_once(PIN).or_else(bare) {
        Some((path, hex)) => (path, Some(format!("sha256:{hex}"))),
        None => (text, None),
    }
}

/// Whether a path that the user gives needs a digest. A digest that is given is always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// The path needs a digest, because its files are applied to a cluster or run with the credentials of the bootstrap VM.
    #[default]
    Required,
    /// The path needs no digest, because its files are only shown.
    Optional,
}

/// A request for an external provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderRequest {
    /// The path of the folder, the tar or the OCI image layout, if it is given.
    pub path: Option<PathBuf>,
    /// The digest that the package must have, `sha256:HEX`, if it is given.
    pub digest: Option<String>,
    /// The name that the provider must have. By default it is the name of the file or folder.
    pub name: Option<String>,
}

/// The origin of an external provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The path, for messages.
    pub path: String,
    /// The digest of the package.
    pub digest: String,
    /// The exceptions from the rules for external providers that the administrator's policy allows, for messages.
    pub policy_exceptions: Vec<String>,
}

impl Origin {
    /// The origin as a phrase for messages.
    pub fn words(&self) -> String {
        let exceptions = match self.policy_exceptions.as_slice() {
            [] => String::new(),
            all => format!(", beyond the rules for external providers: {}", all.join(", ")),
        };
        format!("the provider is external, {}{exceptions}", self.digest)
    }
}

/// An external provider that has passed every check of its package.
#[derive(Clone, Debug)]
pub struct ExternalProvider {
    /// The package.
    pub package: Package,
    /// The provider in the package, shared with each catalog.
    pub provider: Arc<Provider>,
    /// The origin of the package.
    pub origin: Origin,
}

impl ExternalProvider {
    /// Adds the policies that restrict the accounts of the provider in a package. Fails with a defect of the provider.
    pub fn new(package: Package, provider: Provider, origin: Origin) -> Result<Self, Error> {
        let Provider { name, openshift, kubernetes } = provider;
        let provider = Provider {
            name,
            openshift: openshift.map(|one| one.restricted(&origin)).transpose()?,
            kubernetes: kubernetes.map(|one| one.restricted(&origin)).transpose()?,
        };
        Ok(Self { package, provider: Arc::new(provider), origin })
    }
}

/// An external provider that is requested and refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", printable(&message(&format!("the external provider {} is refused: {why}", self.title()))))]
pub struct RefusedProvider {
    /// The names that the provider may have, for messages. None of them is verified, so a refusal prevents the use of all providers.
    pub names: BTreeSet<String>,
    /// The reason and its fix, for messages.
    pub why: String,
}

impl RefusedProvider {
    fn title(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| brief(name)).collect();
        if names.is_empty() { "that is enabled".to_owned() } else { names.join(" or ") }
    }
}

impl ProviderRequest {
    /// Reads the value of a flag: a path, and the digest after `@`.
    pub fn of_flag(text: &str) -> Self {
        let (path, digest) = split_pin(text);
        let path = (!path.is_empty()).then(|| PathBuf::from(path));
        Self { path, digest, name: None }
    }

    /// Reads the environment variables, if they enable an external provider.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RefusedProvider> {
        let given = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let name = given(CLOUD_PROVIDER);
        match given(ENABLE).as_deref() {
            None | Some("false") => return Ok(None),
            Some("true") => {}
            Some(other) => {
                let why = format!("{ENABLE} is {other:?}: it must be \"true\" or \"false\"");
                return Err(RefusedProvider { names: name.into_iter().collect(), why });
            }
        }
        let hash = given(HASH).map(|hash| if hash.contains(':') { hash } else { format!("sha256:{hash}") });
        let request = Self { path: given(PATH).map(PathBuf::from), digest: hash, name };
        let missing = [
            (CLOUD_PROVIDER, request.name.is_none()),
            (PATH, request.path.is_none()),
            (HASH, request.digest.is_none()),
        ];
        match missing.into_iter().find(|(_, is_missing)| *is_missing) {
            Some((missing, _)) => Err(request.refused(format!("{ENABLE} is true, and {missing} is not set"))),
            None => Ok(Some(request)),
        }
    }

    /// Returns the path, or a refusal if none is given.
    pub fn given_path(&self) -> Result<&Path, RefusedProvider> {
        self.path.as_deref().ok_or_else(|| self.refused("no path is given".to_owned()))
    }

    /// Checks the form of the digest, and that it is given if it is required.
    pub fn check_pin(&self, pinning: Pinning) -> Result<(), RefusedProvider> {
        match &self.digest {
            None if pinning == Pinning::Required => {
                let path = self.path.as_deref().unwrap_or(Path::new("PATH")).display();
                Err(self.refused(format!(
                    "no digest is given, so the files are not verified: review them, then give --provider {path}{PIN}… with the digest \
                     that `ccm-operator provider digest {path}` prints"
                )))
            }
            Some(digest) if !is_digest(digest) => {
                Err(self.refused(format!("{digest:?} is no digest: it must be sha256: and 64 hexadecimal digits")))
            }
            _ => Ok(()),
        }
    }

    /// Compares the digest and the names of a package with the requested ones.
    pub fn check_identity(
        &self,
        (name, digest): (&str, &str),
        parsed_providers: &[ParsedProvider],
    ) -> Result<(), RefusedProvider> {
        if let Some(expected) = self.digest.as_deref().filter(|expected| *expected != digest) {
            return Err(self.refused(format!(
                "expected the digest {expected}, found {digest} at {}: somebody has changed it, or the digest is of another one \
                 or of another form: an image layout has another digest than its folder or tar",
                self.path.as_deref().unwrap_or(Path::new("")).display()
            )));
        }
        let descriptors = parsed_providers.iter().filter_map(|parsed| parsed.descriptor.as_ref());
        let names = descriptors.map(|one| ("its descriptor says", one.common().name));
        let mut names = names.chain(self.name.as_deref().map(|name| (CLOUD_PROVIDER, name)));
        if let Some((whose, other)) = names.find(|(_, other)| *other != name) {
            let mut refused = self.refused(format!(
                "its names differ: its file or folder is named {name:?}, {whose} {:?}: give it one name",
                brief(other)
            ));
            refused.names.extend([name.to_owned(), brief(other).into_owned()]);
            return Err(refused);
        }
        Ok(())
    }

    /// Refuses the request under every name that the provider may have.
    pub fn refused(&self, why: String) -> RefusedProvider {
        let of_path = self.path.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        RefusedProvider { names: self.name.iter().cloned().chain(of_path).collect(), why }
    }
}

#[cfg(test)]
mod tests;
