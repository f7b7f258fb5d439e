//! The values of settings: where they come from, and whether they are of the right types (pure).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use thiserror::Error;

use super::{
    Setting,
    secrets::{MASK, Secrets},
};
use crate::{
    error::brief,
    text::{boolean, go, mask, suggest::did_you_mean},
};

/// Where a value comes from; the first one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// An environment variable.
    Environment,
    /// A file of accounts.
    File,
    /// What `create` was given for one instance.
    Option,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "the flag",
            Self::Environment => "the environment variable",
            Self::File => "the file, setting",
            Self::Option => "the option",
        })
    }
}

/// A problem of settings. It never has the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// A value is not of the type of its setting.
    #[error("{origin} {name}: {shown} is not {expected}")]
    BadValue {
        /// Where the value comes from.
        origin: Origin,
        /// The name of the flag, of the variable, of the setting or of the option.
        name: String,
        /// The quoted value, or words that stand for a secret one.
        shown: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A setting without a default was not given.
    #[error("the setting {name:?} has no value: give the flag --{flag} or the environment variable {variable}")]
    Missing {
        /// The name of the setting.
        name: String,
        /// The name of its flag.
        flag: String,
        /// The name of its variable.
        variable: String,
    },
    /// An option without a default was not given.
    #[error("the option {name} is missing")]
    MissingOption {
        /// The name of the option.
        name: String,
    },
    /// No setting has this name.
    #[error("there is no {what} {name:?}{hint}")]
    Unknown {
        /// "setting" or "option".
        what: &'static str,
        /// The name.
        name: String,
        /// The nearest name that exists.
        hint: String,
    },
}

/// The values of settings by their names, all of them of the types of their settings.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values {
    texts: BTreeMap<String, String>,
    /// The declared defaults.
    defaults: BTreeMap<String, String>,
    /// The names of secret settings.
    secrets: BTreeSet<String>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shown()).finish()
    }
}

/// The values that were given for the settings of one driver, by the names of settings.
#[derive(Clone, Default)]
pub struct Given {
    /// Those of flags.
    pub flags: BTreeMap<String, String>,
    /// Those of environment variables.
    pub environment: BTreeMap<String, String>,
    /// Those of the file.
    pub file: BTreeMap<String, String>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the declarations say which values are secret.
        let names = |texts: &BTreeMap<String, String>| texts.keys().cloned().collect::<Vec<_>>();
        let Self { flags, environment, file } = self;
        let mut given = f.debug_struct("Given");
        given
            .field("flags", &names(flags))
            .field("environment", &names(environment))
            .field("file", &names(file))
            .finish()
    }
}

impl Values {
    /// Takes each setting's value from where it was given first, and checks it. An empty text counts as not given.
    pub fn resolve<'a>(
        driver: &str,
        settings: impl IntoIterator<Item = &'a Setting> + Clone,
        given: &Given,
    ) -> Result<Self, Problem> {
        let Given { flags, environment, file } = given;
        let sources = [(Origin::Flag, flags), (Origin::Environment, environment), (Origin::File, file)];
        Self::take(Some(driver), settings, &sources)
    }

    /// Checks the options of one instance: all have to be declared, and their values of the right types.
    pub fn options(declared: &[Setting], given: &BTreeMap<String, String>) -> Result<Self, Problem> {
        Self::take(None, declared, &[(Origin::Option, given)])
    }

    /// `driver` is `None` for options, which have neither flags nor variables of their own.
    fn take<'a>(
        driver: Option<&str>,
        settings: impl IntoIterator<Item = &'a Setting> + Clone,
        sources: &[(Origin, &BTreeMap<String, String>)],
    ) -> Result<Self, Problem> {
        let names = || settings.clone().into_iter().map(|setting| &*setting.name);
        let mut given = sources.iter().flat_map(|(_, texts)| texts.keys());
        if let Some(name) = given.find(|name| !names().any(|one| one == *name)) {
            let what = if driver.is_some() { "setting" } else { "option" };
            return Err(Problem::Unknown { what, name: brief(name).into_owned(), hint: did_you_mean(name, names()) });
        }
        let mut values = Self::default();
        for setting in settings {
            let (name, flag) = (setting.name.clone().into_owned(), setting.flag());
            if setting.secret {
                values.secrets.insert(name.clone());
            }
            if let Some(default) = &setting.default {
                values.defaults.insert(name.clone(), default.clone().into_owned());
            }
            let found = sources.iter().find_map(|(origin, texts)| {
                let text = texts.get(&name).filter(|text| !text.is_empty())?;
                Some((*origin, text))
            });
            if let Some((origin, text)) = found {
                if !setting.kind.accepts(text) {
                    let name = match (origin, driver) {
                        (Origin::Flag, _) => format!("--{flag}"),
                        (Origin::Environment, Some(driver)) => setting.variable(driver),
                        _ => name,
                    };
                    let shown = if setting.secret { "the value".to_owned() } else { format!("{:?}", brief(text)) };
                    return Err(Problem::BadValue { origin, name, shown, expected: setting.kind.words() });
                }
                values.texts.insert(name, text.clone());
            } else if let Some(default) = &setting.default {
                values.texts.insert(name, default.clone().into_owned());
            } else if setting.required {
                return Err(match driver {
                    Some(driver) => Problem::Missing { name, flag, variable: setting.variable(driver) },
                    None => Problem::MissingOption { name },
                });
            }
        }
        Ok(values)
    }

    /// Returns these values with another one for a declared setting.
    #[must_use]
    pub fn with(mut self, name: &str, text: &str) -> Self {
        self.texts.insert(name.to_owned(), text.to_owned());
        self
    }

    /// The text of a setting; `None` if it has no default and was not given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Whether a boolean setting is true.
    pub fn is(&self, name: &str) -> bool {
        self.text(name).and_then(boolean).unwrap_or_default()
    }

    /// The number of a setting.
    pub fn integer(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The duration of a setting.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        let nanoseconds = go::duration(self.text(name)?)?;
        Some(Duration::from_nanos(nanoseconds.try_into().ok()?))
    }

    /// The items of a list, trimmed, without empty ones.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let items = self.text(name).unwrap_or_default().split(',').map(str::trim);
        items.filter(|item| !item.is_empty()).collect()
    }

    /// All names and texts, those of secrets, too.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The names and texts that differ from the declared default.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(name, text)| self.defaults.get(*name).is_none_or(|default| default != text))
    }

    /// The values of secret settings. One that is the declared default is known to everybody, and is not secret.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.changed().filter(|(name, _)| self.secrets.contains(*name)).map(|(_, text)| text)
    }

    /// Replaces the values of secret settings in a text, because clouds repeat them. Values of fewer than four bytes stay, and so does
    /// a declared default.
    pub fn mask(&self, text: &str) -> String {
        Secrets::of(self.secrets()).mask(text)
    }

    /// All names and texts. Texts of secrets are replaced, and so are credentials in other texts, such as the password in a URL.
    pub fn shown(&self) -> impl Iterator<Item = (&str, String)> {
        let shown =
            |name: &str, text: &str| if self.secrets.contains(name) { MASK.to_owned() } else { mask::message(text) };
        self.all().map(move |(name, text)| (name, shown(name, text)))
    }
}
