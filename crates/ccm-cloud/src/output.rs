//! The output of commands: for people, or one document for programs.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::{
    terminal::{print, width},
    text::{
        output::{self, printable},
        yaml,
    },
};

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// The flag of the format.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The format of the output.
    #[arg(id = "output", short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: Format,
}

impl Output {
    /// Prints a value.
    pub(crate) fn print<T: Serialize>(self, value: &T, table: impl FnOnce() -> String) -> anyhow::Result<()> {
        print(&self.format.write(value, table)?)
    }
}

impl Format {
    /// Formats a value.
    pub(crate) fn write<T: Serialize>(self, value: &T, table: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table => table(),
            Self::Json => output::json(value)?,
            Self::Yaml => yaml::to_string(value)?,
        })
    }
}

/// Formats a table of untrusted texts that fits the terminal: each cell is on one line and controls no terminal.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(|cell| on_one_line(&cell))).collect();
    output::table_within(width(), titles, &rows)
}

/// Formats fields and their values, one in a line. Fields without a value are left out.
pub(crate) fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
    table(["FIELD", "VALUE"], given.map(|(name, value)| [name.to_owned(), value]))
}

/// Puts an untrusted text on one line, without characters that control a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Joins names and values, such as labels, to one text.
pub(crate) fn pairs<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> String {
    let pairs = pairs.into_iter().map(|(name, value)| format!("{}={}", name.as_ref(), value.as_ref()));
    pairs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_forges_neither_a_row_nor_a_terminal() {
        let text = table(["A", "B"], [["x\ny\x1b[2J".to_owned(), "z\tz".to_owned()]]);
        assert_eq!(text, "A        B\nx y\u{fffd}[2J  z z\n");
    }
}
