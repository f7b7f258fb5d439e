//! The result of the command `preflight` (pure).

use serde::Serialize;

use super::check::{Row, refusal};
use crate::text::output::{printable, table};

/// The result for one `CloudControllerManager`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreflightReport {
    /// The name of the object.
    pub name: String,
    /// Its provider.
    pub provider: String,
    /// Whether no check refuses.
    pub passed: bool,
    /// Every check.
    pub checks: Vec<Row>,
}

impl PreflightReport {
    /// Creates the report from all rows.
    pub fn new(name: &str, provider: &str, checks: Vec<Row>) -> Self {
        Self { name: name.to_owned(), provider: provider.to_owned(), passed: refusal(&checks).is_none(), checks }
    }

    /// Returns the human-readable text: each check or its facts, followed by the fix.
    pub fn text(&self) -> String {
        let rows = self.checks.iter().flat_map(|row| {
            let found = if row.message.is_empty() { row.check.title() } else { &row.message };
            let first = [row.result.word().to_owned(), row.check.id().to_owned(), found.to_owned()];
            let then = (!row.fix.is_empty()).then(|| [String::new(), String::new(), format!("-> {}", row.fix)]);
            std::iter::once(first).chain(then)
        });
        printable(&table(["RESULT", "CHECK", "FOUND"], &rows.collect::<Vec<_>>()))
    }
}
