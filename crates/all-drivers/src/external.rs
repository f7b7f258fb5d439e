//! Which external driver joins the built-in ones: that of the command line, or that of the variables of cloud-api-adaptor.
//!
//! Nothing is executed before every guard has passed. A guard that does not pass is an error and never another driver.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use ccm_driver_external::Pin;
use clap::Args;

use crate::{built_in, error::brief, text::boolean, values::text_of};

/// The name of the driver.
const NAME: &str = "CLOUD_PROVIDER";
/// Whether the three variables below count; false unless it is set.
const ENABLE: &str = "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN";
/// The path of the driver's file.
const PATH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH";
/// What `sha256sum` prints for it.
const HASH: &str = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH";

/// The flags that name a driver in a program of its own.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "External driver")]
pub struct DriverFlags {
    /// A driver in a program of its own: its file, and the digest that sha256sum prints for it. It is executed, so take the digest of
    /// what you have read.
    #[arg(long, global = true, value_name = "PATH@sha256:HEX")]
    pub driver: Option<Pin>,

    /// The folder that the file of --driver has to stand in directly.
    #[arg(long, global = true, value_name = "FOLDER", default_value = "/cloud-providers")]
    pub driver_folder: PathBuf,
}

/// What the flags and the variables name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No external driver.
    None,
    /// A file that is not enabled, so it is not used.
    Disabled(PathBuf),
    /// The file of a driver.
    Pinned(Pin),
}

/// Reads the flags and the variables. Fails unless every guard has passed that needs no look at the file.
pub(crate) fn choice(flags: &DriverFlags, variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Choice> {
    let of_variables = of_variables(variable)?;
    let pin = match (&flags.driver, of_variables) {
        (None, choice @ (Choice::None | Choice::Disabled(_))) => return Ok(choice),
        (None, Choice::Pinned(pin)) => pin,
        (Some(pin), Choice::Pinned(other)) if *pin != other => bail!(
            "--driver names {pin}, and the variables {PATH} and {HASH} name {other}: give one of both, or the same path and digest"
        ),
        (Some(pin), _) => pin.clone(),
    };
    let name = name_of(&pin.path);
    if let Some(driver) = built_in().iter().find(|driver| driver.name() == name) {
        let name = driver.name();
        bail!("{}: the built-in driver {name} has this name: rename the file and the driver", pin.path.display());
    }
    Ok(Choice::Pinned(pin))
}

fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Choice> {
    let text = |key: &str| text_of(key, &variable);
    let enabled = match text(ENABLE)? {
        None => false,
        Some(text) => {
            let found = brief(&text);
            boolean(&text)
                .ok_or_else(|| anyhow!("the environment variable {ENABLE} is {found:?}, not true or false"))?
        }
    };
    let path = text(PATH)?;
    if !enabled {
        return Ok(path.map_or(Choice::None, |path| Choice::Disabled(path.into())));
    }
    let (hash, name) = (text(HASH)?, text(NAME)?);
    let missing: Vec<_> =
        [(NAME, &name), (PATH, &path), (HASH, &hash)].into_iter().filter(|(_, text)| text.is_none()).collect();
    let (Some(path), Some(hash), Some(name)) = (&path, &hash, &name) else {
        let (noun, verb) = if missing.len() == 1 { ("variable", "is") } else { ("variables", "are") };
        let missing = missing.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(", ");
        bail!("the environment {noun} {missing} {verb} missing, and {ENABLE} is true: set all four, or unset {ENABLE}");
    };
    let path = PathBuf::from(path);
    let of_file = name_of(&path);
    if *name != of_file {
        bail!(
            "{NAME} is {name:?}, and the file of {PATH} has the name {of_file:?} without its extension: both have to be the name of the driver"
        );
    }
    let pin = Pin::new(path, hash).with_context(|| format!("the environment variables {PATH} and {HASH}"))?;
    Ok(Choice::Pinned(pin))
}

/// The name that the driver of a file has to have: that of the file, without its extension.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
