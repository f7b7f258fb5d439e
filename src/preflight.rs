//! The checks before a cloud-controller-manager is installed for the first time (pure).
//!
//! One list of checks serves the command `preflight`, the condition `PreflightPassed`, and `ConfigurationValid`,
//! `CredentialsFound` and `VersionSupported`. A check that refuses stops a first installation, and never affects an
//! installed cloud-controller-manager. If the API server cannot show something, its check describes how to check it by
//! hand. [`read`] reads the cluster; the rest only validates.

pub mod check;
mod cluster;
pub mod evidence;
pub mod inputs;
mod nodes;
mod others;
pub mod permissions;
pub mod pods;
pub mod read;
pub mod screen;

use check::Row;
use evidence::Evidence;

/// Every check, in the order in which they are shown.
pub fn rows(evidence: &Evidence) -> Vec<Row> {
    let inputs = inputs::rows(evidence.validation, evidence.by);
    let of_cluster = others::rows(evidence).into_iter().chain(nodes::rows(evidence)).chain(cluster::rows(evidence));
    // Nothing can be planned without good inputs.
    let skips = |row: &Row| evidence.ccm.skips.iter().any(|id| id == row.check.id());
    let skipped = of_cluster.map(|row| if skips(&row) { row.skipped() } else { row });
    inputs.into_iter().chain(skipped).collect()
}

#[cfg(test)]
mod tests;
