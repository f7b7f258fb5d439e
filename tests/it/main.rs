//! Tests of the program as its users meet it: the binary on files, and on a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

mod operator;
mod render;
