//! The command line: the commands of the program, and for each driver a command with its settings and operations.

use std::{env, ffi::OsString};

use anyhow::{Context, anyhow};
use ccm_all_drivers::{DriverFlags, Drivers, settings};
use ccm_drivers::contract::DriverType;
use ccm_kit::process::{
    dumps,
    logs::{self, Format},
};
use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand,
    error::{ContextKind, ContextValue},
};
use tokio::runtime::Runtime;
use tracing::warn;

use crate::{
    activity::{self, Activity},
    error::chain,
    failure::{DONE, exit_codes},
    flags::{General, argument, given},
    operations::{Call, Operation},
    terminal::{WIDE, say},
    version::VERSION,
};

mod fit;
mod new_driver;
mod own;

use own::Own;

/// The name of the program.
const NAME: &str = "ccm-cloud";

/// The crates of this program besides drivers, whose log lines follow `--debug`.
const CRATES: [&str; 6] = ["ccm_all_drivers", "ccm_base", "ccm_cloud", "ccm_driver_external", "ccm_drivers", "ccm_kit"];

/// The end of the help of other commands.
const CODES: &str = "Exit codes: see ccm-cloud --help";

/// The end of the help, after the exit codes.
const NOTES: &str = "
A setting has the value of its flag, else of its environment variable, else of
the file of --config, else its default. SIGUSR1 prints what is in flight.
docs/drivers/README.md says what to do after each exit code.
";

/// Returns the whole command line.
fn command(drivers: &Drivers) -> Command {
    let program = DriverFlags::augment_args(Command::new(NAME))
        .version(VERSION)
        .max_term_width(WIDE)
        .after_help(exit_codes() + NOTES)
        .subcommand_required(true)
        .arg_required_else_help(true);
    let program = drivers.all().fold(program, |program, driver| program.subcommand(of_driver(driver)));
    Own::augment_subcommands(program)
        .about("Asks a cloud by its driver, checks drivers, and deletes instances whose owners are gone")
}

/// Returns the command of a driver.
fn of_driver(driver: &dyn DriverType) -> Command {
    let name = driver.name().to_owned();
    let command = Command::new(name.clone());
    let command = General::augment_args(command).subcommand_required(true).arg_required_else_help(true);
    let command = command.args(settings(driver).map(|setting| argument(&name, setting)));
    let command = Operation::augment_subcommands(command).about(summary(driver).to_owned()).after_help(CODES);
    let options = options(driver);
    command.mut_subcommands(|operation| {
        let takes_options = operation.get_arguments().any(|argument| argument.get_long() == Some("option"));
        let options = if takes_options { options.as_str() } else { "" };
        operation.after_help(format!("{options}{CODES}"))
    })
}

/// The summary of a driver, as other commands are summarized: without a full stop.
fn summary(driver: &dyn DriverType) -> &str {
    driver.summary().trim_end_matches('.')
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
fn explained(error: clap::Error, drivers: &Drivers, first: Option<&OsString>) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if first.is_none_or(|first| first != word.as_str()) {
        return error;
    }
    let own = Own::augment_subcommands(Command::new(NAME));
    let others: Vec<_> = own.get_subcommands().map(Command::get_name).collect();
    let message = drivers.unknown(word, &others);
    command(drivers).error(error.kind(), message)
}

/// Reads the flags that name an external driver. They are read before the command line is, because the driver adds a command to it.
/// Returns also the words that are none of them.
fn driver_flags(arguments: &[OsString]) -> anyhow::Result<(DriverFlags, Vec<&OsString>)> {
    let command = DriverFlags::augment_args(Command::new(NAME).disable_help_flag(true));
    let flags: Vec<_> = command.get_arguments().filter_map(Arg::get_long).map(|long| format!("--{long}")).collect();
    let (mut own, mut others) = (vec![OsString::from(NAME)], Vec::new());
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--" {
            break;
        }
        if !flags.iter().any(|flag| text.split('=').next() == Some(flag)) {
            others.push(word);
            continue;
        }
        own.push(word.clone());
        own.extend(if text.contains('=') { None } else { words.next().cloned() });
    }
    Ok((DriverFlags::from_arg_matches(&command.try_get_matches_from(own)?)?, others))
}

/// Runs a command line to its end, and returns the exit code.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<u8> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let (flags, others) = driver_flags(&arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("failed to start the runtime")?;
    let drivers = match load(&runtime, &flags) {
        Err(problem) if flags.driver.is_none() => return without_drivers(problem, &arguments),
        loaded => loaded?,
    };
    let matches = command(drivers).try_get_matches_from(&arguments);
    let matches = matches.map_err(|error| explained(error, drivers, others.first().copied()))?;
    match matches.subcommand().and_then(|(name, of)| Some((drivers.named(name)?, of))) {
        Some((driver, matches)) => run_driver(&runtime, drivers, driver, matches),
        None => Own::from_arg_matches(&matches)?.run(drivers, command(drivers)).map(|()| DONE),
    }
}

/// Loads the drivers. Fails unless every guard of an external driver passes, and if the command line cannot have it.
fn load(runtime: &Runtime, flags: &DriverFlags) -> anyhow::Result<&'static Drivers> {
    let drivers = runtime.block_on(Drivers::load(flags, |name| env::var_os(name)))?;
    if let Some(driver) = drivers.external() {
        fit::check(driver).map_err(|problem| anyhow!("{}: {problem}", driver.program().path().display()))?;
    }
    Ok(drivers)
}

/// Runs what needs no driver, after the one of the variables was refused: the help, the version, and commands of the program itself.
/// Variables may be set for a whole shell, and the help says how to set them right. For all else the problem is the answer.
fn without_drivers(problem: anyhow::Error, arguments: &[OsString]) -> anyhow::Result<u8> {
    let drivers = Drivers::of_program();
    let own = match command(drivers).try_get_matches_from(arguments) {
        Err(usage) if !usage.use_stderr() => Err(usage),
        Err(_) => return Err(problem),
        Ok(matches) => match Own::from_arg_matches(&matches) {
            Ok(own) if !own.needs_drivers() => Ok(own),
            _ => return Err(problem),
        },
    };
    say(&format!("ccm-cloud: note: without the driver of the environment: {}", chain(problem.as_ref())));
    own?.run(drivers, command(drivers)).map(|()| DONE)
}

fn run_driver(
    runtime: &Runtime,
    drivers: &'static Drivers,
    driver: &'static dyn DriverType,
    matches: &ArgMatches,
) -> anyhow::Result<u8> {
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
    let call = Call { drivers, driver, general, given, is_traced, activity: Activity::default() };
    let run = async {
        call.activity.print_on_signal().context("failed to listen for SIGUSR1")?;
        // Lines of the log would be written into the line of progress.
        if is_traced { call.run(&operation).await } else { call.activity.during(call.run(&operation)).await }
    };
    runtime.block_on(async {
        tokio::select! {
            done = run => done,
            code = activity::ended_by_signal() => code.context("failed to listen for signals"),
        }
    })
}

#[cfg(test)]
mod tests;
