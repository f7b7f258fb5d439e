//! A cloud-controller-manager operator: what the binary `ccm-operator` is made of.
//!
//! The layers stand in the order in which data flows; each imports only layers above it. ARCHITECTURE.md has the
//! picture and the rules, `tests/it/structure.rs` enforces them.

#![forbid(unsafe_code)]

pub mod error;

pub mod files;

pub mod object;

pub mod text;

pub mod facts;

pub mod config;

pub mod provider;

pub mod plan;

pub mod cluster;

pub mod process;

pub mod apply;

pub mod status;

pub mod controllers;

pub mod cli;
