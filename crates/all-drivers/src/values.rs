//! The values of a driver's settings: from variables, and from the file of accounts.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use anyhow::{Context, anyhow};
use ccm_drivers::{
    contract::DriverType,
    settings::{AccountFile, COMMON, Given, Origin, Problem, Setting, Values},
};

use crate::files;

/// All settings of a driver: its own, and those that every driver has.
pub fn settings(driver: &dyn DriverType) -> impl Iterator<Item = &Setting> + Clone {
    driver.settings().iter().chain(&COMMON)
}

/// Returns the values that variables give to the settings of a driver, by the names of settings. An empty variable counts as none.
/// The values are not checked yet. Fails for a value that is not UTF-8.
pub fn from_environment(
    driver: &dyn DriverType,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut given = BTreeMap::new();
    for setting in settings(driver) {
        let key = setting.variable(driver.name());
        let text = text_of(&key, &variable)?;
        given.extend(text.map(|text| (setting.name.clone().into_owned(), text)));
    }
    Ok(given)
}

/// Returns the text of a variable. An empty variable counts as none. Fails for a value that is not UTF-8.
pub(crate) fn text_of(key: &str, variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Option<String>> {
    let text = variable(key).map(OsString::into_string).transpose();
    let text = text.map_err(|_| anyhow!("the environment variable {key}: the value is not UTF-8"))?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Reads a file of accounts.
pub fn read_accounts(path: &Path) -> anyhow::Result<AccountFile> {
    let text = files::read_given(path).with_context(|| format!("failed to read {}", path.display()))?;
    AccountFile::parse(&text).map_err(|problem| anyhow!(problem.of(path.display())))
}

/// Returns the settings of an account of a file: of the one with a name or, without a name, of the driver's only one.
pub fn account_settings(path: &Path, driver: &str, account: Option<&str>) -> anyhow::Result<BTreeMap<String, String>> {
    let file = read_accounts(path)?;
    let account = file.account(driver, account).map_err(|problem| anyhow!(problem.of(path.display())))?;
    Ok(account.settings.clone())
}

/// Takes and checks the value of each setting. `file` is the path of the file of accounts, for messages.
pub fn resolve(driver: &dyn DriverType, given: &Given, file: Option<&Path>) -> anyhow::Result<Values> {
    Values::resolve(driver.name(), settings(driver), given).map_err(|problem| {
        let is_of_file = match &problem {
            Problem::BadValue { origin, .. } => *origin == Origin::File,
            Problem::Unknown { name, .. } => given.file.contains_key(name),
            _ => false,
        };
        match file {
            Some(path) if is_of_file => anyhow!("{}: {problem}", path.display()),
            _ => problem.into(),
        }
    })
}
