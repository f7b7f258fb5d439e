//! The binary `docker-cloud-controller-manager`. Its code is in the library, see [`ccm_cloud_controller_manager::run`].

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ccm_cloud_controller_manager::run(env::args_os())
}
