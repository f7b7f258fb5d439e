//! A table of the produced reasons and the printed ones, at the end of the run.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

use anyhow::Result;

use crate::{
    support::process,
    table::{Column, Table},
};

/// A reason that was produced.
pub(super) struct Row {
    /// The cloud.
    pub(super) cloud: String,
    /// The id of the reason.
    pub(super) reason: String,
    /// How the reason was produced.
    pub(super) how: String,
    /// The time until the reason was found.
    pub(super) after: Duration,
    /// The printed text.
    pub(super) printed: String,
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn rows() -> MutexGuard<'static, Vec<Row>> {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a row for the table.
pub(super) fn note(row: Row) -> Result<()> {
    static PRINT: Once = Once::new();
    let mut registered = Ok(());
    PRINT.call_once(|| registered = process::at_exit(print));
    rows().push(row);
    registered
}

extern "C" fn print() {
    let mut rows = rows();
    rows.sort_by(|one, other| (&one.reason, &one.cloud, &one.how).cmp(&(&other.reason, &other.cloud, &other.how)));
    let mut table = Table::new([
        Column::new("REASON"),
        Column::new("CLOUD"),
        Column::wrapped("PRODUCED BY", 44),
        Column::right_aligned("AFTER"),
        Column::wrapped("PRINTED", 90),
    ]);
    let mut reasons: Vec<_> = rows.iter().map(|row| row.reason.clone()).collect();
    reasons.dedup();
    for Row { cloud, reason, how, after, printed } in rows.drain(..) {
        table.row([reason, cloud, how, format!("{} ms", after.as_millis()), printed]);
    }
    let text = format!("\n{}\n\n{} reasons: {}\n", table.lines().join("\n"), reasons.len(), reasons.join(" "));
    // Past the capture of the tests' output; nobody may be there to read it.
    let _ = io::stderr().write_all(text.as_bytes());
}
