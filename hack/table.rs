//! Tables and paragraphs for a terminal: aligned columns, long cells wrapped, no colors.
#![allow(dead_code, reason = "several programs include this by #[path], and each uses a part of it")]
#![allow(unreachable_pub, reason = "the targets that include this are programs: nothing in them can be reached")]

use std::fmt;

/// The gap between two columns.
const GAP: &str = "  ";

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    limit: usize,
    right: bool,
}

impl Column {
    /// A column as wide as its widest cell.
    pub fn new(title: &'static str) -> Self {
        Self { title, limit: usize::MAX, right: false }
    }

    /// A column whose cells are wrapped at `limit` characters.
    pub fn wrapped(title: &'static str, limit: usize) -> Self {
        Self { limit, ..Self::new(title) }
    }

    /// A column of numbers.
    pub fn right_aligned(title: &'static str) -> Self {
        Self { right: true, ..Self::new(title) }
    }
}

/// A table with a head.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are columns.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The head and the rule under it, and the rows.
    pub fn lines(&self) -> Vec<String> {
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_owned()).collect();
        let wrapped: Vec<Vec<Vec<String>>> = std::iter::once(&titles)
            .chain(&self.rows)
            .map(|row| row.iter().zip(&self.columns).map(|(cell, column)| wrap(cell, column.limit)).collect())
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| wrapped.iter().flat_map(|row| &row[column]).map(|line| width(line)).max().unwrap_or(0))
            .collect();
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();

        let mut lines = Vec::new();
        for (number, row) in wrapped.iter().enumerate() {
            let height = row.iter().map(Vec::len).max().unwrap_or(0);
            lines.extend((0..height).map(|line| self.line(row, line, &widths)));
            if number == 0 {
                lines.push(rule.join(GAP));
            }
        }
        lines
    }

    /// One of the lines of a row.
    fn line(&self, row: &[Vec<String>], number: usize, widths: &[usize]) -> String {
        let cells = row.iter().zip(&self.columns).zip(widths).map(|((cell, column), width)| {
            let text = cell.get(number).map_or("", String::as_str);
            if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(formatter, "{line}"))
    }
}

/// Breaks a text into lines of at most `limit` characters: between words, and inside a longer one where a name has a
/// joint.
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        for (number, piece) in pieces(word, limit).into_iter().enumerate() {
            let blank = if number == 0 && !line.is_empty() { " " } else { "" };
            if !line.is_empty() && width(&line) + blank.len() + width(piece) > limit {
                lines.push(std::mem::take(&mut line));
            } else {
                line.push_str(blank);
            }
            line.push_str(piece);
        }
    }
    lines.push(line);
    lines
}

/// A word that fits, or its parts: `kube-`, `system/`, `Config`, `Map`.
fn pieces(word: &str, limit: usize) -> Vec<&str> {
    if width(word) <= limit {
        return vec![word];
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut previous = ' ';
    for (index, character) in word.char_indices() {
        let is_joint = matches!(previous, '-' | '/') || (previous.is_lowercase() && character.is_uppercase());
        if is_joint && index > start {
            pieces.push(&word[start..index]);
            start = index;
        }
        previous = character;
    }
    pieces.push(&word[start..]);
    pieces
}

fn width(text: &str) -> usize {
    text.chars().count()
}
