//! Reads external providers (IO).

use std::path::Path;

use crate::{
    error::chain,
    files,
    provider::{
        catalog::Catalog,
        external::{
            External, Origin, Refused, Wanted,
            policy::{self, PolicyFile},
        },
        package,
        verify::{self, Policy, policy::policy_exceptions},
    },
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
    accept(wanted, loaded, policy)
}

/// Checks all that can be checked of a package alone: what is used of it, or why nothing is.
pub fn accept(wanted: &Wanted, loaded: package::read::Loaded, policy: &Policy) -> Result<External, Refused> {
    let path = wanted.given_path()?;
    let (package, digest) = (loaded.package, loaded.digest);
    let parsed_providers = package.parsed_providers();
    wanted.check((package.name(), &digest), &parsed_providers)?;
    if let Some(defect) = parsed_providers.iter().find_map(|parsed| parsed.first_defect().err()) {
        return Err(wanted.refused(defect.to_string()));
    }
    let broken = verify::check(&parsed_providers, policy);
    if !broken.is_empty() {
        let more = broken.len().saturating_sub(MOST_FINDINGS);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let broken: Vec<_> = broken.iter().take(MOST_FINDINGS).map(ToString::to_string).collect();
        return Err(wanted.refused(format!(
            "{}{more}; `ccm-operator provider verify` explains each rule, and --provider-policy widens some by name",
            broken.join("; ")
        )));
    }
    let origin = Origin {
        path: path.display().to_string(),
        digest,
        policy_exceptions: policy_exceptions(&parsed_providers, policy),
    };
    External::new(package, &parsed_providers, origin).map_err(|defect| wanted.refused(defect.to_string()))
}

/// The external providers that a process is given, as they were read.
#[derive(Clone, Debug)]
pub struct Externals {
    built_in: Catalog,
    settings: Settings,
    /// What the policy allows them, or why that is not known. Once it is, it is not read again.
    policy: Result<policy::Loaded, String>,
    /// Each that is asked for, with what came of it.
    entries: Vec<(Wanted, Result<External, Refused>)>,
    /// Those without a path to read.
    refused: Vec<Refused>,
}

/// What external providers a process is given.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Those that are asked for.
    pub wanted: Vec<Result<Wanted, Refused>>,
    /// The file with what the policy allows them.
    pub policy: Option<PolicyFile>,
    /// The built-in providers that one of them may take the place of.
    pub replace: Vec<String>,
    /// Whether each needs its digest.
    pub is_pinned: bool,
}

impl Externals {
    /// For a process without external providers.
    pub fn none(built_in: Catalog) -> Self {
        Self::read(built_in, Settings::default())
    }

    /// Reads what is asked for.
    pub fn read(built_in: Catalog, mut settings: Settings) -> Self {
        let wanted = std::mem::take(&mut settings.wanted);
        let policy = settings.policy();
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for one in wanted {
            match one {
                Ok(wanted) => {
                    let found = settings.read(&wanted, &policy);
                    entries.push((wanted, found));
                }
                Err(error) => refused.push(error),
            }
        }
        Self { built_in, settings, policy, entries, refused }
    }

    /// Reads the refused ones once more; returns whether one of them is accepted now, or refused for another reason.
    pub fn retry(&mut self) -> bool {
        let mut has_changed = false;
        if self.policy.is_err() {
            self.policy = self.settings.policy();
        }
        for (wanted, found) in self.entries.iter_mut().filter(|(_, found)| found.is_err()) {
            let again = self.settings.read(wanted, &self.policy);
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
                Ok(external) => catalog.add(&external.provider),
                Err(refused) => catalog.refuse(refused.clone()),
            }
        }
        self.refused.iter().for_each(|refused| catalog.refuse(refused.clone()));
        catalog
    }

    /// The built-in ones.
    pub fn built_in(&self) -> &Catalog {
        &self.built_in
    }

    /// The external providers that are used, unless the catalog refuses one.
    pub fn used(&self) -> impl Iterator<Item = &External> {
        self.entries.iter().filter_map(|(_, found)| found.as_ref().ok())
    }

    /// The text of the policy, as it was read.
    pub fn policy(&self) -> Result<Option<&str>, &str> {
        self.policy.as_ref().map(|loaded| loaded.text.as_deref()).map_err(String::as_str)
    }

    /// The built-in providers whose place they may take, by name.
    pub fn replaced(&self) -> &[String] {
        &self.settings.replace
    }

    /// The files that a change of a refused one may come from.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.entries.iter().filter_map(|(wanted, _)| wanted.path.as_deref());
        let policy = self.settings.policy.as_ref().filter(|_| self.policy.is_err() && !self.entries.is_empty());
        paths.chain(policy.map(|file| file.path.as_path()))
    }
}

impl Settings {
    fn read(&self, wanted: &Wanted, policy: &Result<policy::Loaded, String>) -> Result<External, Refused> {
        let loaded = policy.as_ref().map_err(|why| wanted.refused(why.clone()))?;
        read(wanted, &loaded.policy, self.is_pinned)
    }

    fn policy(&self) -> Result<policy::Loaded, String> {
        self.policy.as_ref().map_or_else(|| Ok(policy::Loaded::default()), |file| policy(file, self.is_pinned))
    }
}

/// Reads the file of `--provider-policy`. What was hashed is what is used. `is_pinned`: the digest must be given.
pub fn policy(file: &PolicyFile, is_pinned: bool) -> Result<policy::Loaded, String> {
    file.check_pin(is_pinned)?;
    let at = file.path.display();
    let text =
        files::read_text(&file.path).map_err(|error| format!("failed to read --provider-policy {at}: {error}"))?;
    file.load(text)
}
