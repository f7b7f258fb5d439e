//! What is known of clouds, pure: the API, facts, configurations, providers, plans, and why a node waits. Its Cargo.toml has
//! neither a client nor a runtime.

#![forbid(unsafe_code)]

use ccm_base::{error, files, grace, object, text};

pub mod api;

pub mod facts;

pub mod config;

pub mod provider;

pub mod plan;

pub mod nodes;
