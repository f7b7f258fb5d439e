//! Formats: YAML, JSON, INI, tables, and how secrets are masked (pure). Knows no Kubernetes and no cloud.

pub mod ini;
pub mod json;
pub mod mask;
pub mod output;
pub mod place;
pub mod suggest;
pub mod yaml;

use std::fmt;

/// One difference from the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The rule, for people: why it was changed.
    pub rule: &'static str,
    /// The key, such as `[Global] use-clouds`, `vmType` or `nodes.internalVmNetworkName`.
    pub key: String,
    /// Its value before, `None` when it was not there.
    pub before: Option<String>,
    /// Its value now, `None` when it was dropped.
    pub after: Option<String>,
}

/// Something in the source that has no effect. Holds no value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The line of the source, from 1.
    pub line: Option<usize>,
    /// What it is and what to do.
    pub message: String,
}

/// Why a configuration cannot be used. Always terminal. Holds no value that may be a secret.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub struct Error {
    /// The line of the source, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        described(self.line, &self.message, f)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        described(self.line, &self.message, f)
    }
}

fn described(line: Option<usize>, message: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match line {
        Some(line) => write!(f, "line {line}: {message}"),
        None => f.write_str(message),
    }
}
