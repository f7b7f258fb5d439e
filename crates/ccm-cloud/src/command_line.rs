//! The command line: the commands of the program, and for each driver a command with its settings and operations.

use std::{env, ffi::OsString};

use anyhow::Context;
use ccm_drivers::contract::DriverType;
use ccm_kit::process::{
    dumps,
    logs::{self, Format},
};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use tracing::warn;

use crate::{
    activity::Activity,
    drivers::{DRIVERS, named},
    failure::{DONE, exit_codes},
    flags::{General, argument, given, settings},
    operations::{Call, Operation},
    version::VERSION,
};

mod own;

use own::Own;

/// The name of the program.
const NAME: &str = "ccm-cloud";

/// The crates of this program besides drivers, whose log lines follow `--debug`.
const CRATES: [&str; 4] = ["ccm_base", "ccm_cloud", "ccm_drivers", "ccm_kit"];

/// The end of the help, after the exit codes.
const NOTES: &str = "
A setting has the value of its flag, else of its environment variable, else of the file of
--config, else its default. SIGUSR1 prints what is in flight.
";

/// Returns the whole command line.
fn command() -> Command {
    let program = Command::new(NAME)
        .version(VERSION)
        .max_term_width(100)
        .after_help(exit_codes() + NOTES)
        .subcommand_required(true)
        .arg_required_else_help(true);
    let program = DRIVERS.iter().fold(program, |program, driver| program.subcommand(of_driver(&**driver)));
    Own::augment_subcommands(program)
        .about("Asks a cloud by its driver, checks drivers, and deletes instances whose owners are gone")
}

/// Returns the command of a driver.
fn of_driver(driver: &dyn DriverType) -> Command {
    let name = driver.name().to_owned();
    let command = Command::new(name.clone());
    let command = General::augment_args(command).subcommand_required(true).arg_required_else_help(true);
    let command = command.args(settings(driver).map(|setting| argument(&name, setting)));
    let command = Operation::augment_subcommands(command).about(driver.summary().to_owned());
    let Some(options) = options(driver) else { return command };
    command.mut_subcommands(|operation| {
        let takes_options = operation.get_arguments().any(|argument| argument.get_long() == Some("option"));
        if takes_options { operation.after_help(options.clone()) } else { operation }
    })
}

/// The help of the options that only a driver has; `None` if it has none.
fn options(driver: &dyn DriverType) -> Option<String> {
    let mut text = format!("Options of {}, each as --option NAME=VALUE:\n", driver.name());
    for option in driver.options() {
        let default = option.default.as_ref().map(|default| format!(" [default: {default}]")).unwrap_or_default();
        text.extend([format!("  {}={}\n          {}{default}\n", option.name, option.kind.placeholder(), option.help)]);
    }
    (!driver.options().is_empty()).then_some(text)
}

/// Runs a command line to its end, and returns the exit code.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<u8> {
    let matches = command().try_get_matches_from(arguments)?;
    match matches.subcommand().and_then(|(name, of)| Some((named(name)?, of))) {
        Some((driver, matches)) => run_driver(driver, matches),
        None => Own::from_arg_matches(&matches)?.run(command()).map(|()| DONE),
    }
}

fn run_driver(driver: &'static dyn DriverType, matches: &ArgMatches) -> anyhow::Result<u8> {
    let general = General::from_arg_matches(matches)?;
    let is_traced = general.debug;
    let own = format!("ccm_driver_{}", driver.name().replace('-', "_"));
    let crates: Vec<_> = CRATES.into_iter().chain([own.as_str()]).collect();
    logs::init(Format::Text { colors: false }, if is_traced { 4 } else { 2 }, &crates);
    if let Err(error) = dumps::disable() {
        warn!("failed to disable core dumps, which would contain credentials: {error}");
    }
    let operation = Operation::from_arg_matches(matches)?;
    let given = given(driver, matches, |name| env::var(name).ok())?;
    let call = Call { driver, general, given, is_traced, activity: Activity::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let run = async {
        call.activity.print_on_signal().context("failed to listen for SIGUSR1")?;
        call.activity.during(call.run(&operation)).await
    };
    runtime.context("failed to start the runtime")?.block_on(run)
}

#[cfg(test)]
mod tests;
