//! The binary `ccm-cloud`. Its code is in the library, see [`ccm_cloud::run`].

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ccm_cloud::run(env::args_os())
}
