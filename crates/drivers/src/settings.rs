//! Settings of drivers: one declaration for each, from which its flag, its environment variable, its key in a ConfigMap or a
//! Secret, and its line in the help follow (pure).
//!
//! A value is taken from a flag, else from the environment, else from a file, else it is the default. An empty text counts as not
//! given, wherever it stands. A bad value is an error, and so is a name that no setting has.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::text::{boolean, go};

mod account_file;
mod problems;
mod secrets;
mod show;
mod values;

pub use account_file::{Account, AccountFile, check_account_ids};
pub use problems::problems;
pub use show::{Declaration, Format, declarations, show};
pub use values::{Given, Origin, Problem, Values};

pub(crate) use secrets::Secrets;

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
            Self::Integer => "INTEGER",
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

/// The URL of the proxy for requests to the cloud.
pub const PROXY: &str = "proxy";
/// What is reached without the proxy.
pub const NO_PROXY: &str = "noProxy";
/// The file of certificates by which servers of the cloud are verified.
pub const CA_BUNDLE: &str = "caBundle";

/// The settings that every driver in a program of its own has, because such a program has no environment that it could take them
/// from. Drivers that are compiled in do not have them.
pub static NETWORK: [Setting; 3] = [
    Setting::new(
        PROXY,
        Kind::Text,
        "The URL of the HTTP proxy by which the driver reaches the cloud, such as http://proxy.example:3128.",
    ),
    Setting::new(NO_PROXY, Kind::List, "Hosts, domains and networks that are reached without the proxy."),
    Setting::new(
        CA_BUNDLE,
        Kind::Path,
        "A file of certificates in PEM. The driver takes a server of the cloud only if one of them has signed its certificate.",
    ),
];

#[cfg(test)]
mod tests;
