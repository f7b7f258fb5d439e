//! A `CloudControllerManager` that is proposed for a cluster (pure): by its nodes, or by the cloud-controller-manager that it has from
//! a chart or a manifest.
//!
//! What is proposed passes the same checks as what a user writes. [`read`] asks a cluster, [`mod@write`] writes the files; the rest only
//! decides. The values of Secrets are in [`draft::SecretFile`] and nowhere else: it cannot be printed.

pub mod credentials;
pub mod draft;
pub mod existing;
pub mod keep;
mod keep_inputs;
mod keep_place;
pub mod provider;
pub mod read;
pub mod report;
pub mod steps;
pub mod write;

#[cfg(test)]
mod tests;
