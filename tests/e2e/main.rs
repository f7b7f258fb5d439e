//! End-to-end tests: the operator's image in containers of a real Docker Engine, on a real control plane.
//!
//! `hack/e2e/run.sh` starts the engine in namespaces that the whole test process is in: `make e2e`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod docker;
mod image;
mod pod;
