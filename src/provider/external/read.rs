//! Reads external providers (IO).

use std::path::{Path, PathBuf};

use crate::{
    error::chain,
    files,
    provider::{
        catalog::Catalog,
        external::{External, Origin, Refused, Wanted},
        foreign::{self, Policy},
        package,
    },
    text::located,
};

/// The most findings that a refusal names: it stands in a status.
const MOST_FINDINGS: usize = 10;

/// Reads a provider, and checks all that can be checked of it alone. What was hashed is what is used: nothing is read twice.
/// `is_pinned`: the digest must be given.
pub fn read(wanted: &Wanted, policy: &Policy, is_pinned: bool) -> Result<External, Refused> {
    let path = wanted.given_path()?;
    if is_pinned || wanted.digest.is_some() {
        wanted.check_pin()?;
    }
    let loaded = package::read::read(path).map_err(|error| wanted.refused(chain(&error)))?;
    let (package, digest) = (loaded.package, loaded.digest);
    let (name, bundles) = (package.name().to_owned(), package.bundles());
    wanted.check((&name, &digest), &bundles)?;
    if let Some(defect) = bundles.iter().find_map(|bundle| bundle.first_defect().err()) {
        return Err(wanted.refused(defect.to_string()));
    }
    let broken = foreign::check(&bundles, policy);
    if !broken.is_empty() {
        let more = broken.len().saturating_sub(MOST_FINDINGS);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let broken: Vec<_> = broken.iter().take(MOST_FINDINGS).map(ToString::to_string).collect();
        return Err(wanted.refused(format!(
            "{}{more}; `ccm-operator provider verify` explains each rule, and --provider-policy widens some by name",
            broken.join("; ")
        )));
    }
    let origin = Origin { path: path.display().to_string(), digest, widened: foreign::widened(&bundles, policy) };
    Ok(External { name, package, bundles, origin })
}

/// The external providers that a process is given, as they were read.
#[derive(Clone, Debug, Default)]
pub struct Externals {
    built_in: Catalog,
    settings: Settings,
    /// Each that is asked for, with what came of it.
    entries: Vec<(Wanted, Result<External, Refused>)>,
    /// What nothing can be read of.
    refused: Vec<Refused>,
}

/// What external providers a process is given.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Those that are asked for.
    pub wanted: Vec<Result<Wanted, Refused>>,
    /// The file with what is widened for them.
    pub policy: Option<PathBuf>,
    /// The built-in providers that one of them may take the place of.
    pub replace: Vec<String>,
    /// Whether each needs its digest.
    pub is_pinned: bool,
}

impl Externals {
    /// Of a process that is given none.
    pub fn none(built_in: Catalog) -> Self {
        Self { built_in, ..Self::default() }
    }

    /// Reads what is asked for.
    pub fn read(built_in: Catalog, mut settings: Settings) -> Self {
        let wanted = std::mem::take(&mut settings.wanted);
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for one in wanted {
            match one {
                Ok(wanted) => {
                    let found = settings.read(&wanted);
                    entries.push((wanted, found));
                }
                Err(error) => refused.push(error),
            }
        }
        Self { built_in, settings, entries, refused }
    }

    /// Reads those once more that were refused; returns whether one of them is not, or for another reason.
    pub fn retry(&mut self) -> bool {
        let mut has_changed = false;
        for (wanted, found) in self.entries.iter_mut().filter(|(_, found)| found.is_err()) {
            let again = self.settings.read(wanted);
            has_changed |= again.is_ok() || again.as_ref().err() != found.as_ref().err();
            *found = again;
        }
        has_changed
    }

    /// All providers, the built-in ones and these.
    pub fn catalog(&self) -> Catalog {
        let mut catalog = self.built_in.clone();
        catalog.replace(&self.settings.replace);
        for (_, found) in &self.entries {
            match found {
                Ok(external) => catalog.add(external.clone()),
                Err(refused) => catalog.refuse(refused.clone()),
            }
        }
        self.refused.iter().for_each(|refused| catalog.refuse(refused.clone()));
        catalog
    }

    /// Those that are used, unless the catalog refuses one.
    pub fn used(&self) -> impl Iterator<Item = &External> {
        self.entries.iter().filter_map(|(_, found)| found.as_ref().ok())
    }

    /// The policy's file, and the built-in providers whose place they may take, by name.
    pub fn settings(&self) -> (Option<&Path>, &[String]) {
        (self.settings.policy.as_deref(), &self.settings.replace)
    }

    /// The files that a change of a refused one may come from.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.entries.iter().filter_map(|(wanted, _)| wanted.path.as_deref());
        paths.chain(self.settings.policy.as_deref().filter(|_| !self.entries.is_empty()))
    }
}

impl Settings {
    fn read(&self, wanted: &Wanted) -> Result<External, Refused> {
        let policy = match &self.policy {
            None => Ok(Policy::default()),
            Some(path) => policy(path).map_err(|why| wanted.refused(why)),
        };
        read(wanted, &policy?, self.is_pinned)
    }
}

/// Reads the file of `--provider-policy`.
pub fn policy(path: &Path) -> Result<Policy, String> {
    let at = path.display();
    let text = files::read_text(path).map_err(|error| format!("failed to read --provider-policy {at}: {error}"))?;
    Policy::parse(&text).map_err(|error| located(at, error.place, &error.message))
}
