//! A cloud in a process or in a file, and its driver: for tests, and for a first try of `ccm-cloud`. The cloud and the driver
//! speak [`protocol`] over TCP, as any other driver speaks with its cloud, so connections can be refused, cut and falsified.

#![forbid(unsafe_code)]

pub mod protocol;

pub mod cloud;

mod driver;

pub use driver::Fake;

#[cfg(test)]
mod broken;
