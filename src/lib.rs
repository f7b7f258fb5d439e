//! A cloud-controller-manager operator: the library of the binary `ccm-operator`.
//!
//! The layers are listed in the order of the data flow; each imports only layers above it. ARCHITECTURE.md describes
//! them, and `tests/it/structure.rs` enforces the rules.

#![forbid(unsafe_code)]

pub mod version;

pub mod error;

pub mod grace;

pub mod files;

pub mod object;

pub mod text;

pub mod api;

pub mod facts;

pub mod config;

pub mod provider;

pub mod plan;

pub mod cluster;

pub mod process;

pub mod apply;

pub mod nodes;

pub mod evidence;

pub mod preflight;
pub mod proposal;

pub mod status;

pub mod controllers;

pub mod cli;
