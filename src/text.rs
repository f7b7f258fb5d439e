//! Formats: YAML, JSON, INI, tables, and how secrets are masked (pure). Knows no Kubernetes and no cloud.

pub mod ini;
pub mod json;
pub mod mask;
pub mod output;
mod place;
pub mod suggest;
pub mod yaml;

pub use place::Place;

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

/// Why a configuration cannot be used or, as a warning, which part of it has no effect. Holds no value that may be a secret.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}{message}", place.map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct Problem {
    /// Where it is in the source.
    pub place: Option<Place>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// The problem with its place, such as `cloud.conf:4:7: a closing quote is missing`.
    pub fn of(&self, source: &str) -> String {
        let colon = if self.place.is_some() { ":" } else { ": " };
        format!("{source}{colon}{self}")
    }
}
