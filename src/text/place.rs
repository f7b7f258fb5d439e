//! A place in a text (pure).

use std::fmt;

/// A line and, where known, a column, both from 1. Displayed as compilers do: `4:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: Option<usize>,
}

impl From<usize> for Place {
    fn from(line: usize) -> Self {
        Self { line, column: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}
