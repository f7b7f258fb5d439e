//! External providers: the one that is asked for, and the reasons not to use it (pure).
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
    provider::{Describe, Error, Provider, folder::ParsedProvider, package::Package},
    text::output::printable,
};

/// What stands before the digest of a pinned path: `PATH@sha256:HEX`.
pub const PIN: &str = "@sha256:";

/// The variables of the environment that ask for an external provider, as other systems with external providers name them.
pub const CLOUD_PROVIDER: &str = "CLOUD_PROVIDER";
const ENABLE: &str = "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN";
const PATH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH";
const HASH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH";

/// A path, and the digest behind it, as `PATH@sha256:HEX`. What is no whole digest is left to whoever checks it.
fn split(text: &str) -> (&str, Option<String>) {
    let is_hex = |hex: &str| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    // As in the environment, the name of the algorithm may be absent.
    let bare = || text.rsplit_once('@').filter(|(_, hex)| is_hex(hex));
    match text.rsplit_once(PIN).or_else(bare) {
        Some((path, hex)) => (path, Some(format!("sha256:{hex}"))),
        None => (text, None),
    }
}

/// A provider that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The folder, the tar or the OCI image layout; `None` if that is not said.
    pub path: Option<PathBuf>,
    /// The digest that it must have, `sha256:HEX`; `None` if that is not said.
    pub digest: Option<String>,
    /// The name that it must have; `None`: that of its file or folder.
    pub name: Option<String>,
}

/// Where an external provider comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The path, for people.
    pub path: String,
    /// The digest of its package.
    pub digest: String,
    /// What the administrator's policy lets pass beyond the rules for external providers, for people.
    pub policy_exceptions: Vec<String>,
}

impl Origin {
    /// The origin in words.
    pub fn words(&self) -> String {
        let exceptions = match self.policy_exceptions.as_slice() {
            [] => String::new(),
            all => format!(", beyond the rules for external providers: {}", all.join(", ")),
        };
        format!("the provider is external, {}{exceptions}", self.digest)
    }
}

/// An external provider that has passed every check of its own.
#[derive(Clone, Debug)]
pub struct External {
    /// Its package.
    pub package: Package,
    /// What is used of it, shared with each catalog.
    pub provider: Arc<Provider>,
    /// Where it comes from.
    pub origin: Origin,
}

impl External {
    /// The provider of a package and its parsed providers, with the policies that restrict its accounts, or the first defect.
    pub fn new(package: Package, parsed_providers: &[ParsedProvider], origin: Origin) -> Result<Self, Error> {
        let Provider { name, openshift, kubernetes } = Provider::of(package.name(), parsed_providers)?;
        let provider = Provider {
            name,
            openshift: openshift.map(|one| one.restricted(&origin)).transpose()?,
            kubernetes: kubernetes.map(|one| one.restricted(&origin)).transpose()?,
        };
        Ok(Self { package, provider: Arc::new(provider), origin })
    }
}

/// An external provider that is asked for and not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", printable(&message(&format!("the external provider {} is refused: {why}", self.title()))))]
pub struct Refused {
    /// The names that it may have, for people: nothing proves one. So whatever is refused keeps all providers from being used.
    pub names: BTreeSet<String>,
    /// Why, and what to do, for people.
    pub why: String,
}

impl Refused {
    fn title(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| brief(name)).collect();
        if names.is_empty() { "that is enabled".to_owned() } else { names.join(" or ") }
    }
}

impl Wanted {
    /// What a flag asks for: a path, and the digest after `@`.
    pub fn of_flag(text: &str) -> Self {
        let (path, digest) = split(text);
        let path = (!path.is_empty()).then(|| PathBuf::from(path));
        Self { path, digest, name: None }
    }

    /// What the environment asks for, if it enables an external provider.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Refused> {
        let given = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let name = given(CLOUD_PROVIDER);
        match given(ENABLE).as_deref() {
            None | Some("false") => return Ok(None),
            Some("true") => {}
            Some(other) => {
                let why = format!("{ENABLE} is {other:?}: it must be \"true\" or \"false\"");
                return Err(Refused { names: name.into_iter().collect(), why });
            }
        }
        let hash = given(HASH).map(|hash| if hash.contains(':') { hash } else { format!("sha256:{hash}") });
        let wanted = Self { path: given(PATH).map(PathBuf::from), digest: hash, name };
        let missing =
            [(CLOUD_PROVIDER, wanted.name.is_none()), (PATH, wanted.path.is_none()), (HASH, wanted.digest.is_none())];
        match missing.into_iter().find(|(_, is_missing)| *is_missing) {
            Some((missing, _)) => Err(wanted.refused(format!("{ENABLE} is true, and {missing} is not set"))),
            None => Ok(Some(wanted)),
        }
    }

    /// Its path.
    pub fn given_path(&self) -> Result<&Path, Refused> {
        self.path.as_deref().ok_or_else(|| self.refused("no path is given".to_owned()))
    }

    /// Checks that a digest is given, and is one.
    pub fn check_pin(&self) -> Result<&str, Refused> {
        let Some(digest) = &self.digest else {
            let path = self.path.as_deref().unwrap_or(Path::new("PATH")).display();
            return Err(self.refused(format!(
                "no digest is given, so its files could be anybody's: look at them, then give --provider {path}{PIN}… with the digest \
                 that `ccm-operator provider digest {path}` prints"
            )));
        };
        if !is_digest(digest) {
            return Err(self.refused(format!("{digest:?} is no digest: it must be sha256: and 64 hexadecimal digits")));
        }
        Ok(digest)
    }

    /// Checks what was found against what is asked for: the digest, then the names.
    pub fn check(&self, (name, digest): (&str, &str), parsed_providers: &[ParsedProvider]) -> Result<(), Refused> {
        if let Some(expected) = self.digest.as_deref().filter(|expected| *expected != digest) {
            return Err(self.refused(format!(
                "expected the digest {expected}, found {digest} at {}: somebody has changed it, or the digest is of another one \
                 or of another form: a folder and its tar have one digest, an image layout another",
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

    /// It is refused under every name that it may have.
    pub fn refused(&self, why: String) -> Refused {
        let of_path = self.path.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        Refused { names: self.name.iter().cloned().chain(of_path).collect(), why }
    }
}

#[cfg(test)]
mod tests;
