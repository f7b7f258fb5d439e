//! The binary `ccm-operator`: everything is in the library, [`ccm_operator::cli`] first.

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

use ccm_operator::cli::{self, Cli};
use clap::Parser;

fn main() -> ExitCode {
    cli::run(Cli::parse_from(cli::arguments(env::args_os().collect())))
}
