//! Settings of drivers: one declaration for each, from which its flag, its environment variable, its key in a ConfigMap or a
//! Secret, and its line in the help follow (pure).
//!
//! A value is taken from a flag, else from the environment, else from a file, else it is the default. A bad value is an error,
//! and so is a name that no setting has.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{boolean, go, suggest::did_you_mean};

mod account_file;
mod show;

// pub use account_file::{Account, AccountFile};
// pub use show::{Format, show};

/// The type of a setting. Values are texts in flags, variables and keys; the type says which are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`, in Go's spellings.
    Boolean,
    /// A whole number that is not negative.
    Integer,
    /// A duration in Go's form, such as `30s` or `1m30s`, not negative.
    Duration,
    /// Texts separated by commas.
    List,
    /// The path of a file or a folder.
    Path,
}

impl Kind {
    /// The placeholder of a value in the help.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Boolean => "BOOLEAN",
            Self::Integer => "NUMBER",
            Self::Duration => "DURATION",
            Self::List => "LIST",
            Self::Path => "PATH",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Boolean => "a boolean such as true",
            Self::Integer => "a whole number such as 10",
            Self::Duration => "a duration such as 30s",
            Self::List => "a list such as a,b",
            Self::Path => "a path",
        }
    }

    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Text | Self::List => true,
            Self::Path => !text.is_empty(),
            Self::Boolean => boolean(text).is_some(),
            Self::Integer => text.parse::<u64>().is_ok(),
            Self::Duration => go::duration(text).is_some_and(|nanoseconds| nanoseconds >= 0),
        }
    }
}

/// The declaration of a setting of a driver, or of an option of `create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Setting {
    /// Its name in a file and in messages, such as `certPath`. Flag and variable follow from it.
    pub name: Cow<'static, str>,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The value if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Cow<'static, str>>,
    /// Whether a value has to be given.
    #[serde(default)]
    pub required: bool,
    /// Whether the value belongs into a Secret, and into no output.
    #[serde(default)]
    pub secret: bool,
    /// One or two sentences for the help.
    pub help: Cow<'static, str>,
}

impl Setting {
    /// Declares a setting without a default that need not be given.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
        Self { name, kind, default: None, required: false, secret: false, help }
    }

    /// Declares a setting with a default.
    pub const fn with_default(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Self {
        let (name, help, default) = (Cow::Borrowed(name), Cow::Borrowed(help), Some(Cow::Borrowed(default)));
        Self { name, kind, default, required: false, secret: false, help }
    }

    /// A value has to be given.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The value is secret.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The name of its flag without the hyphens in front, such as `cert-path`.
    pub fn flag(&self) -> String {
        words_of(&self.name).join("-")
    }

    /// The name of its environment variable with a driver, such as `DOCKER_CERT_PATH`. Its key in a ConfigMap or, if it is secret,
    /// in a Secret is the same, so that a Pod takes both with `envFrom`.
    pub fn variable(&self, driver: &str) -> String {
        let words = words_of(&self.name).join("_");
        format!("{}_{words}", driver.replace('-', "_")).to_ascii_uppercase()
    }
}

/// The lowercase words of a name such as `accountID`.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut was_upper = true;
    for one in name.chars() {
        let is_upper = one.is_ascii_uppercase();
        match words.last_mut() {
            Some(word) if !is_upper || was_upper => word.push(one.to_ascii_lowercase()),
            _ => words.push(one.to_ascii_lowercase().to_string()),
        }
        was_upper = is_upper;
    }
    words
}

/// The id that an account has to have.
pub const ACCOUNT_ID: &str = "accountID";
/// Whether only operations that read are allowed.
pub const READ_ONLY: &str = "readOnly";
/// The limit of one operation.
pub const TIMEOUT: &str = "timeout";
/// The limit of operations in a second.
pub const RATE: &str = "operationsPerSecond";

/// The settings that every driver has, besides its own.
pub static COMMON: [Setting; 4] = [
    Setting::new(
        ACCOUNT_ID,
        Kind::Text,
        "The id of the account that the credentials have to belong to, as account-show prints it. With another account nothing \
         is answered and nothing is deleted.",
    ),
    Setting::with_default(READ_ONLY, Kind::Boolean, "false", "Refuse every operation that changes something."),
    Setting::with_default(
        TIMEOUT,
        Kind::Duration,
        "30s",
        "The limit of one attempt of an operation; 0 means no limit. Creating an instance may take ten times as long.",
    ),
    Setting::with_default(RATE, Kind::Integer, "0", "The maximum number of operations in a second; 0 means no limit."),
];

/// Where a value comes from; the first one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// An environment variable.
    Environment,
    /// A file of accounts.
    File,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "the flag",
            Self::Environment => "the environment variable",
            Self::File => "the file, setting",
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
        /// The name of the flag, of the variable or of the setting.
        name: String,
        /// The quoted value, or words that stand for a secret one.
        shown: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A setting without a default was not given.
    #[error("{name} is missing: give the flag --{flag} or the environment variable {variable}")]
    Missing {
        /// The name of the setting.
        name: String,
        /// The name of its flag.
        flag: String,
        /// The name of its variable.
        variable: String,
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
    secrets: Vec<String>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, text): (&String, &String)| {
            (name.clone(), if self.secrets.contains(name) { "(secret)".to_owned() } else { text.clone() })
        };
        f.debug_map().entries(self.texts.iter().map(shown)).finish()
    }
}

/// The values that were given for the settings of one driver, by the names of settings.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Those of flags.
    pub flags: BTreeMap<String, String>,
    /// Those of environment variables.
    pub environment: BTreeMap<String, String>,
    /// Those of the file.
    pub file: BTreeMap<String, String>,
}

impl Values {
    /// Takes each setting's value from where it was given first, and checks it.
    pub fn resolve<'a>(
        driver: &str,
        settings: impl IntoIterator<Item = &'a Setting> + Clone,
        given: &Given,
    ) -> Result<Self, Problem> {
        let Given { flags, environment, file } = given;
        let names = || settings.clone().into_iter().map(|setting| &*setting.name);
        if let Some(name) = [flags, environment, file]
            .into_iter()
            .flat_map(BTreeMap::keys)
            .find(|name| !names().any(|one| one == *name))
        {
            return Err(unknown("setting", name, names()));
        }
        let mut values = Self::default();
        for setting in settings {
            let sources = [(Origin::Flag, flags), (Origin::Environment, environment), (Origin::File, file)];
            let found = sources.into_iter().find_map(|(origin, texts)| Some((origin, texts.get(&*setting.name)?)));
            if let Some((origin, text)) = found {
                if !setting.kind.accepts(text) {
                    let name = match origin {
                        Origin::Flag => format!("--{}", setting.flag()),
                        Origin::Environment => setting.variable(driver),
                        Origin::File => setting.name.clone().into_owned(),
                    };
                    let shown = if setting.secret { "the value".to_owned() } else { format!("{text:?}") };
                    return Err(Problem::BadValue { origin, name, shown, expected: setting.kind.words() });
                }
                values.put(setting, text);
            } else if let Some(default) = &setting.default {
                values.put(setting, default);
            } else if setting.required {
                let (flag, variable) = (setting.flag(), setting.variable(driver));
                return Err(Problem::Missing { name: setting.name.clone().into_owned(), flag, variable });
            }
        }
        Ok(values)
    }

    /// Checks the options of one instance: all have to be declared, and their values of the right types.
    pub fn options(declared: &[Setting], given: &BTreeMap<String, String>) -> Result<Self, Problem> {
        let names = || declared.iter().map(|setting| &*setting.name);
        if let Some(name) = given.keys().find(|name| !names().any(|one| one == name.as_str())) {
            return Err(unknown("option", name, names()));
        }
        let file = given.clone();
        Self::resolve("", declared, &Given { file, ..Given::default() })
    }

    fn put(&mut self, setting: &Setting, text: &str) {
        self.texts.insert(setting.name.clone().into_owned(), text.to_owned());
        if setting.secret {
            self.secrets.push(setting.name.clone().into_owned());
        }
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

    /// All names and texts. Texts of secrets are replaced.
    pub fn shown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(name, text)| (name.as_str(), if self.secrets.contains(name) { "(secret)" } else { text.as_str() }))
    }
}

fn unknown<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Problem {
    Problem::Unknown { what, name: name.to_owned(), hint: did_you_mean(name, known) }
}
