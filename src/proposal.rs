//! Proposes a `CloudControllerManager` for a cluster (pure), from its nodes, or from the cloud-controller-manager that
//! a chart or a manifest has installed.
//!
//! A proposal passes the same checks as an object of a user. [`read`] reads a cluster, [`mod@write`] writes the files;
//! the rest only decides. The values of Secrets are only in [`proposed::SecretFile`], which cannot be printed.

pub mod credentials;
pub mod existing;
pub mod keep;
mod keep_inputs;
mod keep_place;
pub mod proposed;
pub mod provider;
pub mod read;
pub mod report;
pub mod steps;
pub mod write;

#[cfg(test)]
mod tests;
