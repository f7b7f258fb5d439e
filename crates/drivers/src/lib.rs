//! Drivers: how the instances of a cloud are made, found and deleted. This crate has the contract that each driver fulfills,
//! the declaration of its settings, the layer around each driver, and the checks of its conformance. It has no client of any
//! cloud: each driver is a crate of its own.

#![forbid(unsafe_code)]

use ccm_base::{error, text};

pub mod settings;

pub mod contract;

pub mod middleware;

pub mod conformance;
