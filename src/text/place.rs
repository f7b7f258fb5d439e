//! A place in a text, and the one way in which a message names it: `file:line:column: message` (pure).

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

/// A message about a file, or about a place in it.
pub fn located(file: impl fmt::Display, place: Option<Place>, message: &str) -> String {
    place.map_or_else(|| format!("{file}: {message}"), |place| format!("{file}:{place}: {message}"))
}
