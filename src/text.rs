//! Formats: YAML, JSON, INI, tables, and the masking of secrets (pure). Independent of Kubernetes and of any cloud.

pub mod ini;
pub mod json;
pub mod mask;
pub mod output;
pub mod place;
pub mod suggest;
pub mod yaml;

pub use place::Place;

/// A change to a text.
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

/// A problem of a text, or a warning about it. The message holds no value that may be a secret.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}{message}", place.map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct Problem {
    /// The place in the text, where it is known.
    pub place: Option<Place>,
    /// The problem and its fix, on one line and without the place.
    pub message: String,
}

impl Problem {
    /// The problem with its file, such as `cloud.conf:4:7: a closing quote is missing`.
    pub fn of(&self, source: impl std::fmt::Display) -> String {
        place::located(source, self.place, &self.message)
    }
}

/// The line break of a text's first line.
fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}
