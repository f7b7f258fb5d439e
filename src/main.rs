//! The binary `ccm-operator`. Its code is in the library, see [`ccm_operator::cli`].

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

use ccm_operator::cli::{self, Cli};
use clap::Parser;

fn main() -> ExitCode {
    cli::run(Cli::parse_from(cli::arguments(env::args_os().collect())))
}
