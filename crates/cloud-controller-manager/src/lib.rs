//! A cloud-controller-manager for every cloud that has a driver.
//!
//! [`run`] has the whole program. `process.rs` has its parts and the order in which they end, `controllers.rs` the controllers.

#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use ccm_base::{error, files, text, version};

mod account;
mod addresses;
mod cloud_driver;
mod command_line;
mod controllers;
mod driver_files;
mod flags;
mod guard;
mod initialize;
mod instances;
mod lifecycle;
mod metrics;
mod node_events;
mod process;
mod reason;
mod serve;

/// Runs a command line, whose first word is the program's own name, to its end.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(code) = ccm_driver_external::supervise(&arguments) {
        return code;
    }
    match command_line::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Reports an error, and returns its exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        // The help and the version are errors of this library, too. A failure to write is ignored.
        let _ = usage.print();
        return u8::try_from(usage.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let line = text::output::printable(&error::chain(error.as_ref()));
    let _ = writeln!(io::stderr(), "cloud-controller-manager: {line}");
    ExitCode::FAILURE
}
