//! Formats: YAML, JSON, INI, tables, and the masking of secrets (pure). Independent of Kubernetes and of any cloud.

pub mod ini;
pub mod json;
pub mod mask;
pub mod output;
pub mod place;
pub mod suggest;
pub mod yaml;

pub use place::Place;

/// A change to the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The rule: why it was changed, for people.
    pub rule: &'static str,
    /// The key, such as `[Global] use-clouds`, `vmType` or `nodes.internalVmNetworkName`.
    pub key: String,
    /// The previous value; `None` for an added key.
    pub before: Option<String>,
    /// The new value; `None` for a removed key.
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
        place::located(source, self.place, &self.message)
    }
}
