//! The program `ccm-cloud`: asks a cloud by its driver, checks drivers, and deletes instances whose owners are gone.
//!
//! [`run`] has the whole program. Its drivers are those of [`ccm_all_drivers`].

#![forbid(unsafe_code)]

use std::{ffi::OsString, process::ExitCode};

use ccm_base::{error, files, text, version};

mod terminal;

mod failure;

mod output;

mod flags;

mod activity;

mod sweep;

mod operations;

mod command_line;

/// Runs a command line, whose first word is the program's own name, to its end.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(match command_line::run(arguments) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    })
}
