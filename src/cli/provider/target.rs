//! The target of a command about providers: the repository's tree, a built-in provider, or a package.

use std::{fs::DirEntry, path::Path};

use crate::{
    cli::flags::{say, wrong_usage},
    plan::show,
    provider::{
        embedded,
        external::PIN,
        folder::ParsedProvider,
        package::read::{self as package, LoadedPackage, PackageFormat},
        payload::Payload,
        read,
    },
};

/// The providers given to a command.
pub(super) enum GivenProviders {
    /// A folder with `assets/CLOUD/` of many providers, and the install payload if it has one.
    Tree(Vec<ParsedProvider>, Option<Payload>),
    /// A built-in provider, or the folder, tar or OCI image layout of one provider.
    Provider(LoadedPackage),
}

impl GivenProviders {
    /// The name of a built-in provider selects that provider; anything else is a path.
    pub(super) fn of(given: &str) -> anyhow::Result<Self> {
        let path = Path::new(given);
        if embedded::names().contains(&given) || !is_tree(path) {
            return load(given).map(Self::Provider);
        }
        match read::read(path) {
            Err(error @ read::Error::NoProviders(_)) => Err(wrong_usage(&error.to_string())),
            read => Ok(read.map(|(parsed_providers, payload)| Self::Tree(parsed_providers, payload))?),
        }
    }
}

/// Loads the package of a built-in provider, by its name, or the package at a path.
pub(in crate::cli) fn load(target: &str) -> anyhow::Result<LoadedPackage> {
    let path = Path::new(target);
    if embedded::names().contains(&target) {
        let package = embedded::package(target)?;
        if path.is_dir() {
            say(&format!("{target}: the provider that comes with this program; the folder is ./{target}"));
        }
        return Ok(LoadedPackage { digest: package.digest().to_owned(), package, form: PackageFormat::BuiltIn });
    }
    // The read of a path without access has its own error.
    if path.try_exists().unwrap_or(true) {
        return Ok(package::read(path)?);
    }
    // In the operator's arguments, the digest of a package follows its path.
    if let Some((path, _)) = target.rsplit_once(PIN) {
        return Err(wrong_usage(&format!("{target}: give the path without {PIN}…: {path}")));
    }
    if target.contains('/') {
        return Err(wrong_usage(&format!("there is no folder or file {target:?}")));
    }
    let unknown = show::unknown(target, &embedded::names());
    Err(wrong_usage(&format!("{unknown}, and there is no folder or file of this name")))
}

/// Returns the parsed providers of a package. The files of built-in providers have their paths in the repository.
pub(super) fn parsed_providers(loaded: &LoadedPackage) -> Vec<ParsedProvider> {
    if loaded.form == PackageFormat::BuiltIn {
        embedded::parsed_providers_of(loaded.package.name())
    } else {
        loaded.package.parsed_providers()
    }
}

/// Whether a folder has folders of providers in `assets/`, and nothing else there that a package may have, because the author of a package
/// must not be able to select fewer rules. The image layout of a package and the mount of a `ConfigMap` are never a tree.
fn is_tree(path: &Path) -> bool {
    if ["oci-layout", "..data"].iter().any(|mark| path.join(mark).symlink_metadata().is_ok()) {
        return false;
    }
    let Ok(entries) = path.join("assets").read_dir() else {
        // The error of a tree names the missing part.
        return path.is_dir() && !path.join("assets").exists();
    };
    let mut entries = entries.flatten();
    let is_provider = |entry: DirEntry| entry.path().is_dir() && entry.file_name() != "kubernetes";
    let first = entries.next();
    first.is_some_and(is_provider) && entries.all(is_provider)
}
