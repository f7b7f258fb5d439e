//! `make bench-check`: a few starts, compared with the figures of a file, so that a change that makes the operator heavier is seen.
//!
//! It prints and never fails on a figure: processor time depends on the machine, and some changes are worth their weight.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    lab,
    measure::{self, Access},
    progress, report,
    support::control_plane::Options,
    table::{Column, Table},
};

const STARTS: usize = 7;

/// Measures, and returns a table for people. Writes the file if `is_update`.
pub async fn run(file: &Path, is_update: bool, binary_bytes: u64) -> Result<String> {
    let before: BTreeMap<String, f64> = if is_update {
        BTreeMap::new()
    } else {
        let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("failed to read {}", file.display()))?
    };
    progress("starting the control plane");
    let lab = lab(Options::default()).await?;
    let (access, mut runs) = (Access::direct(&lab), Vec::new());
    for number in 1..=STARTS {
        progress(&format!("cold start, {number} of {STARTS}"));
        runs.push(measure::cold(&access).await?);
    }
    let now = report::compared(binary_bytes, &runs);
    if is_update {
        fs::write(file, serde_json::to_string_pretty(&now)? + "\n")?;
        return Ok(format!("{}: written\n", file.display()));
    }
    Ok(format!("{}\n", table(&before, &now)))
}

fn table(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) -> Table {
    let mut table = Table::new([
        Column::new("FIGURE"),
        Column::right_aligned("BEFORE"),
        Column::right_aligned("NOW"),
        Column::new("CHANGE"),
    ]);
    for (name, now) in now {
        let before = before.get(name).copied().unwrap_or(f64::NAN);
        let percent = (now / before - 1.0) * 100.0;
        let verdict = if percent > 10.0 { ", worse by more than a tenth" } else { "" };
        table.row([name.clone(), format!("{before:.3}"), format!("{now:.3}"), format!("{percent:+.0} %{verdict}")]);
    }
    table
}
