//! The flags of a driver, which follow from the declarations of its settings, and the flags of this program that say where
//! else values come from.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use anyhow::{anyhow, bail};
use ccm_all_drivers::{account_settings, from_environment, read_accounts, settings};
use ccm_drivers::{
    contract::DriverType,
    settings::{AccountFile, Given, Kind, Setting},
};
use clap::{Arg, ArgAction, ArgMatches, Args, builder::NonEmptyStringValueParser, parser::ValueSource};

use crate::text::{self, Problem};

/// The flags of every driver that are not settings.
#[derive(Args, Debug)]
#[command(next_help_heading = "General")]
pub(crate) struct General {
    /// The file with the settings of one or more accounts.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The account of the file of --config to use; needed if the file has several.
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) account: Option<String>,

    /// Before instance-create, verify and verify-credentials, check that what the settings name exists: image, network and
    /// instance type.
    #[arg(long, global = true, value_name = "BOOLEAN", env = "CLOUD_CONFIG_VERIFY", value_parser = boolean,
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) cloud_config_verify: bool,

    /// Log the begin and the end of each operation; without secrets, and of user data only its length and its digest.
    #[arg(long, global = true)]
    pub(crate) debug: bool,
}

/// Parses a boolean. As in the scripts of other systems, an empty variable means false.
fn boolean(given: &str) -> Result<bool, &'static str> {
    if given.is_empty() { Ok(false) } else { text::boolean(given).ok_or("must be true or false") }
}

/// The id of the argument of a setting. An operation's own argument of the same id, such as `--image` of instance-create, takes
/// its place there and gives its value to both.
fn id(setting: &Setting) -> String {
    setting.flag().replace('-', "_")
}

/// Returns the argument of a setting, which stands before or after the name of the operation.
pub(crate) fn argument(driver: &str, setting: &Setting) -> Arg {
    let mut notes = vec![format!("[env: {}]", setting.variable(driver))];
    notes.extend(setting.default.as_ref().filter(|_| !setting.secret).map(|default| format!("[default: {default}]")));
    notes.extend(setting.required.then(|| "[required]".to_owned()));
    notes.extend(setting.secret.then(|| "[secret: use the variable, because others can read flags]".to_owned()));
    let argument = Arg::new(id(setting))
        .long(setting.flag())
        .value_name(setting.kind.placeholder())
        .help(format!("{} {}", setting.help, notes.join(" ")))
        .help_heading(format!("Settings of {driver}"))
        .action(ArgAction::Set)
        .global(true);
    if setting.kind == Kind::Boolean {
        return argument.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    argument
}

/// Collects the values that were given for the settings of a driver by flags and variables, for [`Given::file`] to be added. The
/// values are not checked yet.
pub(crate) fn given(
    driver: &dyn DriverType,
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Given> {
    let mut given = Given { environment: from_environment(driver, variable)?, ..Given::default() };
    for setting in settings(driver) {
        given.flags.extend(flag(setting, matches)?.map(|text| (setting.name.clone().into_owned(), text)));
    }
    Ok(given)
}

fn flag(setting: &Setting, matches: &ArgMatches) -> anyhow::Result<Option<String>> {
    let id = id(setting);
    if matches.value_source(&id) != Some(ValueSource::CommandLine) {
        return Ok(None);
    }
    match matches.get_raw(&id).and_then(Iterator::last).map(OsStr::to_str) {
        Some(None) => bail!("--{}: the value is not UTF-8", setting.flag()),
        found => Ok(found.flatten().map(ToOwned::to_owned)),
    }
}

impl General {
    /// Refuses an account without a file. The declaration of a global flag cannot: the other flag may stand on the other side of
    /// the name of the operation.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.account.is_some() && self.config.is_none() {
            bail!("--account: the file that has the account is missing: give --config");
        }
        Ok(())
    }

    /// Reads the file of accounts, if one was given.
    pub(crate) fn file(&self) -> anyhow::Result<Option<AccountFile>> {
        self.config.as_deref().map(read_accounts).transpose()
    }

    /// Returns the settings of the account that is to be used; none without a file.
    pub(crate) fn account_settings(&self, driver: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let settings = |path| account_settings(path, driver, self.account.as_deref());
        self.config.as_deref().map_or_else(|| Ok(BTreeMap::new()), settings)
    }

    /// A problem of the file, with its path.
    pub(crate) fn problem(&self, problem: &Problem) -> anyhow::Error {
        let path = self.config.as_deref().unwrap_or(Path::new("--config"));
        anyhow!(problem.of(path.display()))
    }
}
