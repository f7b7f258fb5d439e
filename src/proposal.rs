//! Proposes a `CloudControllerManager` for a cluster (pure), based on its nodes, or on the cloud-controller-manager that
//! a chart or a manifest has installed.
//!
//! A proposal passes the same checks as a user's object. `read` reads a cluster; the rest only decides. Only
//! `proposed::SecretFile`, which cannot be printed, contains the values of Secrets.

pub mod credentials;
pub(crate) mod existing;
pub(crate) mod keep;
mod keep_arguments;
mod keep_controllers;
mod keep_environment;
mod keep_files;
mod keep_inputs;
pub(crate) mod keep_node_manager;
pub(crate) mod keep_place;
pub(crate) mod keep_pod;
pub(crate) mod lost_permissions;
pub(crate) mod proposed;
pub(crate) mod provider;
pub(crate) mod published;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod steps;
mod values;

#[cfg(test)]
mod tests;
