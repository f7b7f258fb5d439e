//! What is checked before a cloud-controller-manager is installed for the first time (pure).
//!
//! One list of checks for the command `preflight`, for the condition `PreflightPassed`, and for `ConfigurationValid`,
//! `CredentialsFound` and `VersionSupported`. A check that refuses stops a first installation, and never touches what is installed.
//! What cannot be known from the API server is not checked, and says how to. [`read`] asks a cluster; the rest only judges.

pub mod check;
mod cluster;
pub mod evidence;
pub mod inputs;
mod nodes;
mod others;
pub mod pods;
pub mod read;
pub mod rights;
pub mod screen;

use check::Row;
use evidence::Evidence;

/// Every check, in the order in which they are shown.
pub fn rows(evidence: &Evidence) -> Vec<Row> {
    let inputs = inputs::rows(evidence.judgement, evidence.by);
    let of_cluster = others::rows(evidence).into_iter().chain(nodes::rows(evidence)).chain(cluster::rows(evidence));
    // Nothing can be planned without good inputs.
    let skips = |row: &Row| evidence.manager.skips.iter().any(|id| id == row.check.id());
    let skipped = of_cluster.map(|row| if skips(&row) { row.skipped() } else { row });
    inputs.into_iter().chain(skipped).collect()
}

#[cfg(test)]
mod tests;
