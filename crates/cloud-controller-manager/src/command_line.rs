//! The command line: how it is read, and what is decided before the process starts.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use anyhow::bail;
use ccm_kit::process::{
    dumps,
    logs::{self, Format},
};
use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use tracing::{info, warn};

use crate::{
    flags::{Flags, Given, LoggingFormat, accepted, controllers::choose},
    process,
    version::{COMMIT, VERSION},
};

/// The end of the names of this program.
const SUFFIX: &str = "-cloud-controller-manager";

/// The crates of this program besides drivers, whose log lines follow `-v`.
const CRATES: [&str; 8] = [
    "ccm_all_drivers",
    "ccm_base",
    "ccm_cloud_controller_manager",
    "ccm_core",
    "ccm_driver_docker",
    "ccm_driver_external",
    "ccm_drivers",
    "ccm_kit",
];

const ABOUT: &str = "\
The cloud-controller-manager of a cloud that has a driver: it initializes nodes (providerID, addresses, labels), taints nodes whose \
instances are stopped, and deletes nodes whose instances are gone.";

const NOTES: &str = "\
The settings of the driver come from variables, such as DOCKER_HOST, or from the file of --cloud-config.
SIGUSR1 logs what the process does. docs/drivers/cloud-controller-manager.md has all metrics and Events.";

fn command() -> Command {
    let accepted: Vec<_> = accepted::names().map(|name| format!("--{name}")).collect();
    let accepted = accepted.join(" ");
    let command = Command::new("docker-cloud-controller-manager").max_term_width(100).args_override_self(true);
    let command = accepted::augment(Flags::augment_args(command.disable_version_flag(true)));
    command.about(ABOUT).after_help(NOTES).after_long_help(format!(
        "{NOTES}\n\nFlags of k8s.io/cloud-provider that are accepted, and have no effect:\n{accepted}"
    ))
}

/// Writes the names of flags with hyphens. As in the library, underscores are accepted.
fn normalized(argument: OsString) -> OsString {
    let Some(text) = argument.to_str().filter(|text| text.starts_with("--")) else { return argument };
    match text.split_once('=') {
        None => text.replace('_', "-").into(),
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
    }
}

/// The cloud of a program's name, such as `docker` of `/usr/bin/docker-cloud-controller-manager`.
fn cloud_of(program: &Path) -> Option<String> {
    let name = program.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Parses a command line, whose first word is the program's own name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Given, clap::Error> {
    let arguments: Vec<_> = arguments.into_iter().map(normalized).collect();
    let matches = command().try_get_matches_from(&arguments)?;
    let flags = Flags::from_arg_matches(&matches)?;
    let wrong = |problem: &str| command().error(ErrorKind::ValueValidation, problem);
    let controllers = choose(&flags.controllers).map_err(|problem| wrong(&problem))?;
    flags.election.timings().map_err(wrong)?;
    flags.serving.check().map_err(wrong)?;
    if flags.cloud_provider.as_deref() == Some("") {
        return Err(wrong("--cloud-provider is empty: name the driver"));
    }
    let called_as = arguments.first().and_then(|program| cloud_of(Path::new(program)));
    let warnings = warnings(&flags, &matches);
    Ok(Given { flags, controllers, called_as, warnings })
}

fn warnings(flags: &Flags, matches: &ArgMatches) -> Vec<String> {
    let mut warnings = accepted::warnings(matches);
    let serving = &flags.serving;
    if let (Some(one), Some(other)) = (&serving.authentication_kubeconfig, &serving.authorization_kubeconfig)
        && one != other
    {
        warnings
            .push("--authorization-kubeconfig has no effect: --authentication-kubeconfig is used for both".to_owned());
    }
    warnings
}

/// Runs a command line to its end.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let given = parse(arguments)?;
    let flags = &given.flags;
    match flags.version.as_deref() {
        None => {}
        Some("true" | "raw") => {
            // A closed pipe is not a failure.
            let _ =
                writeln!(io::stdout(), "cloud-controller-manager {VERSION}, commit {}", COMMIT.unwrap_or("unknown"));
            return Ok(());
        }
        Some(other) => bail!("--version={other}: give --version, or --version=raw"),
    }
    let format = match flags.logging_format {
        LoggingFormat::Text => Format::Text { colors: false },
        LoggingFormat::Json => Format::Json,
    };
    logs::init(format, flags.v, &CRATES);
    if let Err(error) = dumps::disable() {
        warn!("failed to disable core dumps, which would contain credentials: {error}");
    }
    for warning in &given.warnings {
        warn!("{warning}");
    }
    for controller in &given.controllers.not_supported {
        warn!("{} is not supported by this cloud: it is not started", controller.name());
    }
    if given.controllers.run.is_empty() {
        info!("--controllers excludes every controller: none is started, and no node is initialized");
    }
    // One thread is enough: the work between two requests takes microseconds.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(process::run(&given))
}

#[cfg(test)]
mod tests;
