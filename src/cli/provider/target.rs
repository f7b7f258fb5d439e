//! The target of a command about providers: the built-in providers, the repository's tree, or a package.

use std::{fs::DirEntry, path::Path};

use crate::{
    cli::flags::{say, wrong_usage},
    plan::show,
    provider::{
        embedded,
        external::PIN,
        folder::ParsedProvider,
        package::read::{self as package, Form, Loaded},
        payload::Payload,
        read,
    },
};

/// Providers to look at.
pub(super) enum Target {
    /// Those that come with this program.
    BuiltIn(Vec<ParsedProvider>),
    /// A folder with `assets/CLOUD/` of many providers, and the install payload if it has one.
    Tree(Vec<ParsedProvider>, Option<Payload>),
    /// One provider's own folder, or a tar of it.
    Package(Loaded),
}

impl Target {
    /// A name that a provider has that comes with this program is that provider; anything else is a path.
    pub(super) fn of(given: &str) -> anyhow::Result<Self> {
        if embedded::names().contains(&given) {
            return Ok(Self::BuiltIn(embedded::parsed_providers_of(given)));
        }
        let path = Path::new(given);
        if is_tree(path) {
            return match read::read(path) {
                Err(error @ read::Error::NoProviders(_)) => Err(wrong_usage(&error.to_string())),
                read => Ok(read.map(|(parsed_providers, payload)| Self::Tree(parsed_providers, payload))?),
            };
        }
        if path.exists() {
            return Ok(Self::Package(package::read(path)?));
        }
        refuse_a_pin(given)?;
        if given.contains('/') {
            return Err(wrong_usage(&format!("there is no folder or file {given:?}")));
        }
        Err(wrong_usage(&format!(
            "{}, and there is no folder or file of this name",
            show::unknown(given, &embedded::names())
        )))
    }
}

/// The package of a provider that comes with this program, by its name, or that of a path.
pub(in crate::cli) fn load(target: &str) -> anyhow::Result<Loaded> {
    if embedded::names().contains(&target) {
        let package = embedded::package(target)?;
        if Path::new(target).is_dir() {
            say(&format!("{target}: the provider that comes with this program; the folder is ./{target}"));
        }
        return Ok(Loaded { digest: package.digest(), package, form: Form::BuiltIn });
    }
    if !Path::new(target).exists() {
        refuse_a_pin(target)?;
    }
    if !target.contains('/') && !Path::new(target).exists() {
        let unknown = show::unknown(target, &embedded::names());
        return Err(wrong_usage(&format!("{unknown}, and there is no file or folder of this name")));
    }
    Ok(package::read(Path::new(target))?)
}

/// Refuses the path of a package with its digest behind it, as the operator's arguments have it.
fn refuse_a_pin(given: &str) -> anyhow::Result<()> {
    if let Some((path, _)) = given.rsplit_once(PIN) {
        return Err(wrong_usage(&format!("{given}: give the path without {PIN}…: {path}")));
    }
    Ok(())
}

/// Whether a folder has folders of providers in `assets/`, and nothing else there that a package may have: whoever wrote a package must
/// not decide that it is checked by fewer rules. The image layout of a package and the mount of a `ConfigMap` are never a tree.
fn is_tree(path: &Path) -> bool {
    if ["oci-layout", "..data"].iter().any(|mark| path.join(mark).symlink_metadata().is_ok()) {
        return false;
    }
    let Ok(entries) = path.join("assets").read_dir() else {
        // The error names what it lacks.
        return path.is_dir() && !path.join("assets").exists();
    };
    let mut entries = entries.flatten();
    let is_provider = |entry: DirEntry| entry.path().is_dir() && entry.file_name() != "kubernetes";
    let first = entries.next();
    first.is_some_and(is_provider) && entries.all(is_provider)
}
