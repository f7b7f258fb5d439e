//! Formats: YAML, JSON, INI, tables, command lines, and the masking of secrets (pure). Independent of any cloud.

pub mod diff;
pub mod go;
pub mod ini;
pub mod json;
pub mod kubectl;
pub mod list;
pub mod markdown;
pub mod mask;
pub mod output;
pub mod shell;
pub mod suggest;
pub mod terminal;
#[doc(hidden)]
pub mod work;
pub mod yaml;

use std::fmt;

use serde::Serialize;

/// A line of a text, and a column where one is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl Place {
    /// A whole line.
    pub fn line(line: usize) -> Self {
        Self { line, column: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "{}:{column}", self.line),
            None => write!(f, "{}", self.line),
        }
    }
}

/// A message about a file, or about a place in it: `file:line:column: message`.
pub fn located(file: impl fmt::Display, place: Option<Place>, message: &str) -> String {
    place.map_or_else(|| format!("{file}: {message}"), |place| format!("{file}:{place}: {message}"))
}

/// A change to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The reason for the change, for people.
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

impl From<&serde_json::Error> for Problem {
    /// A syntax error of JSON. The library ends its message with the place.
    fn from(error: &serde_json::Error) -> Self {
        let words = error.to_string();
        let end = format!(" at line {} column {}", error.line(), error.column());
        let message = format!("invalid JSON: {}", words.strip_suffix(&end).unwrap_or(&words));
        Self {
            place: Some(Place { line: error.line(), column: Some(error.column()).filter(|column| *column > 0) }),
            message,
        }
    }
}

impl Problem {
    /// A problem without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }

    /// A problem of a line, from 1.
    pub fn at(line: usize, message: impl Into<String>) -> Self {
        Self { place: Some(Place::line(line)), message: message.into() }
    }

    /// The problem with its file, such as `cloud.conf:4:7: a closing quote is missing`.
    pub fn of(&self, source: impl fmt::Display) -> String {
        located(source, self.place, &self.message)
    }
}

/// The line break of a text's first line.
fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Parses a boolean in the spellings that Go's flags accept.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
