//! A report that is printed once, or again after each change (`--watch`).

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::flags::{OutputFormat, print, say};
use crate::error::chain;

/// The minimum pause before a report is read again, and the minimum as a multiple of the time of the read.
const PAUSE: (Duration, u32) = (Duration::from_secs(2), 5);

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Prints a report, as a table for people with the current time or for programs; with `is_watched`, prints it repeatedly until the process
/// ends.
pub(super) async fn show<T: Serialize + PartialEq>(
    output: OutputFormat,
    is_watched: bool,
    read: impl AsyncFn() -> anyhow::Result<T>,
    table: impl Fn(&T, Timestamp) -> String,
) -> anyhow::Result<T> {
    let clears = is_watched && output == OutputFormat::Table && io::stdout().is_terminal();
    let mut shown = None;
    loop {
        let started = Instant::now();
        let read = read().await;
        let took = started.elapsed();
        match read {
            // `--watch` waits for the API server to come back.
            Err(error) if shown.is_some() => say(&chain(error.as_ref())),
            Err(error) => return Err(error),
            Ok(report) => {
                // On a terminal the ages are kept up to date; elsewhere only changes are printed.
                if clears || shown.as_ref() != Some(&report) {
                    let text = output.write(&report, || table(&report, Timestamp::now()))?;
                    print(&if clears { format!("{CLEAR}{text}") } else { text })?;
                }
                if !is_watched {
                    return Ok(report);
                }
                shown = Some(report);
            }
        }
        tokio::time::sleep(PAUSE.0.max(took * PAUSE.1)).await;
    }
}
