//! Proposes a `CloudControllerManager` for a cluster (pure), from its nodes, or from the cloud-controller-manager that
//! a chart or a manifest has installed.
//!
//! A proposal passes the same checks as an object of a user. `read` reads a cluster; the rest only decides. The values of
//! Secrets are only in `proposed::SecretFile`, which cannot be printed.

pub mod credentials;
pub(crate) mod existing;
pub(crate) mod keep;
mod keep_inputs;
mod keep_place;
pub(crate) mod proposed;
pub(crate) mod provider;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod steps;

#[cfg(test)]
mod tests;
