//! Tests of the program as users run it: the binary on files, and on a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at the first surprise")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../../hack/table.rs"]
mod table;

mod azure;
mod azure_credentials;
mod bad_input;
mod blind;
mod chart;
mod cloud_config;
mod clouds;
mod command_line;
mod config_sync;
mod container;
mod contested;
mod contract;
mod crash;
mod diff;
mod docs;
mod drift;
mod drop_in;
mod fault_suite;
mod faults;
mod flags;
mod fuzz;
mod gcfg;
mod guard;
mod hysteresis;
mod init;
mod install;
mod lab;
mod large;
mod leader;
mod managers;
mod manifests;
mod metrics;
mod monitoring;
mod namespace;
mod nodes;
mod openstack;
mod operator;
mod overruled;
mod payload;
mod platforms;
mod pod;
mod policies;
mod preflight;
mod provider;
mod prune;
mod published;
mod reasons;
mod recreate;
mod render;
mod roll_back;
mod rollout;
mod status;
mod structure;
mod take_over;
mod tls_profiles;
mod upstream;
mod vcenter;
mod vsphere;
mod waiting;
