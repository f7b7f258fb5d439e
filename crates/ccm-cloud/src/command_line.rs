//! The command line: the commands of the program, and for each driver a command with its settings and operations.

use std::{env, ffi::OsString};

use anyhow::Context;
use ccm_drivers::contract::DriverType;
use ccm_kit::process::{
    dumps,
    logs::{self, Format},
};
use clap::{
    ArgMatches, Args, Command, FromArgMatches, Subcommand,
    error::{ContextKind, ContextValue},
};
use tracing::warn;

use crate::{
    activity::Activity,
    drivers::{DRIVERS, named},
    failure::{DONE, exit_codes},
    flags::{General, argument, given, settings},
    operations::{Call, Operation},
    text::suggest::did_you_mean,
    version::VERSION,
};

mod own;

use own::Own;

/// The name of the program.
const NAME: &str = "ccm-cloud";

/// The crates of this program besides drivers, whose log lines follow `--debug`.
const CRATES: [&str; 4] = ["ccm_base", "ccm_cloud", "ccm_drivers", "ccm_kit"];

/// The end of the help of other commands.
const CODES: &str = "Exit codes: see ccm-cloud --help";

/// The end of the help, after the exit codes.
const NOTES: &str = "
A setting has the value of its flag, else of its environment variable, else of the file of
--config, else its default. SIGUSR1 prints what is in flight. docs/drivers/README.md says what to do
after each exit code.
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
    let command = Operation::augment_subcommands(command).about(driver.summary().to_owned()).after_help(CODES);
    let options = options(driver);
    command.mut_subcommands(|operation| {
        let takes_options = operation.get_arguments().any(|argument| argument.get_long() == Some("option"));
        let options = if takes_options { options.as_str() } else { "" };
        operation.after_help(format!("{options}{CODES}"))
    })
}

/// The help of the options that only a driver has; empty if it has none.
fn options(driver: &dyn DriverType) -> String {
    if driver.options().is_empty() {
        return String::new();
    }
    let mut text = format!("Options of {}, each as --option NAME=VALUE:\n", driver.name());
    for option in driver.options() {
        let default = option.default.as_ref().map(|default| format!(" [default: {default}]")).unwrap_or_default();
        text.extend([format!("  {}={}\n          {}{default}\n", option.name, option.kind.placeholder(), option.help)]);
    }
    text + "\n"
}

/// Adds the drivers to an error about a first word that names nothing.
fn explained(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if arguments.get(1).is_none_or(|first| first != word.as_str()) {
        return error;
    }
    let mut program = command();
    let names: Vec<_> = program.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let hint = did_you_mean(word, names.iter().map(String::as_str));
    let drivers: Vec<_> = DRIVERS.iter().map(|driver| driver.name()).collect();
    let message = format!("there is no driver or command {word:?}{hint}; the drivers are {}", drivers.join(", "));
    program.error(error.kind(), message)
}

/// Runs a command line to its end, and returns the exit code.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<u8> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let matches = command().try_get_matches_from(&arguments).map_err(|error| explained(error, &arguments))?;
    match matches.subcommand().and_then(|(name, of)| Some((named(name)?, of))) {
        Some((driver, matches)) => run_driver(driver, matches),
        None => Own::from_arg_matches(&matches)?.run(command()).map(|()| DONE),
    }
}

fn run_driver(driver: &'static dyn DriverType, matches: &ArgMatches) -> anyhow::Result<u8> {
    let general = General::from_arg_matches(matches)?;
    general.check()?;
    let is_traced = general.debug;
    let own = format!("ccm_driver_{}", driver.name().replace('-', "_"));
    let crates: Vec<_> = CRATES.into_iter().chain([own.as_str()]).collect();
    logs::init(Format::Text { colors: false }, if is_traced { 4 } else { 2 }, &crates);
    if let Err(error) = dumps::disable() {
        warn!("failed to disable core dumps, which would contain credentials: {error}");
    }
    let operation = Operation::from_arg_matches(matches)?;
    let given = given(driver, matches, |name| env::var_os(name))?;
    let call = Call { driver, general, given, is_traced, activity: Activity::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let run = async {
        call.activity.print_on_signal().context("failed to listen for SIGUSR1")?;
        // Lines of the log would be written into the line of progress.
        if is_traced { call.run(&operation).await } else { call.activity.during(call.run(&operation)).await }
    };
    runtime.context("failed to start the runtime")?.block_on(run)
}

#[cfg(test)]
mod tests;
