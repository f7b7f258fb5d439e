//! End-to-end tests: the operator's image in containers of a real Docker Engine, on a real control plane.
//!
//! `hack/e2e/run.sh` starts the engine in namespaces that the whole test process is in: `make e2e`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, unreachable_pub, reason = "written for the demo, which uses all of it")]
#[path = "../../hack/demo/narrator.rs"]
mod narrator;
#[path = "../../hack/table.rs"]
mod table;

mod bootstrap;
mod cloud;
mod commands;
mod dead_node;
mod docker;
mod docker_cloud;
mod drivers;
mod image;
mod installation;
mod kubeadm;
mod life;
mod machine;
mod pod;
mod reasons;
mod story;
mod trial;

use support::lab;
