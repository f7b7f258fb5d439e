//! A cloud-controller-manager operator: the library of the binary `ccm-operator`.
//!
//! The layers are listed in the order of the data flow; each imports only layers above it. ARCHITECTURE.md describes
//! them, and `tests/it/structure.rs` enforces the rules.

#![forbid(unsafe_code)]

pub use ccm_base::{error, files, grace, object, text, version};
pub use ccm_core::{api, config, facts, nodes, plan, provider};
pub use ccm_kit::{cluster, process};

pub mod apply;

pub mod evidence;

pub mod preflight;
pub mod proposal;

pub mod status;

pub mod controllers;

pub mod cli;
