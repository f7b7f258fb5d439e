//! The binary `ccm-cloud`. Its code is in the library, see [`ccm_cloud::run`].

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    ccm_driver_external::supervise(&arguments).unwrap_or_else(|| ccm_cloud::run(arguments))
}
