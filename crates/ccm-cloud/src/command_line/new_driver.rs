//! `new-driver`: the folder of a new external driver.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use ccm_drivers::settings;
use clap::{Args, Command, ValueEnum};
use sha2::{Digest, Sha256};

use crate::{files::write_folder, terminal::print, text::shell::quoted};

#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The name of the driver, which is also that of its file: lowercase letters, digits and hyphens.
    name: String,

    /// The language of the driver.
    #[arg(long, value_enum)]
    language: Language,

    /// The folder to write, which must not exist or be empty [default: NAME].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// A language of a driver.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    /// Python 3.9 or newer, without other packages; with each capability.
    Python,
    /// POSIX sh with jq and flock; instances only.
    Sh,
}

/// The name of the driver in the templates.
const TEMPLATE: &str = "template-cloud";

const README: &str = include_str!("../../../../scaffold/drivers/README.md");

impl Language {
    fn extension(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::Sh => "sh",
        }
    }

    fn template(self) -> &'static str {
        match self {
            Self::Python => include_str!("../../../../scaffold/drivers/template-cloud.py"),
            Self::Sh => include_str!("../../../../scaffold/drivers/template-cloud.sh"),
        }
    }

    /// What has to be in the image besides the driver.
    fn needs(self) -> &'static str {
        match self {
            Self::Python => {
                "`python3`, 3.9 or newer. It is looked for in /usr/local/bin, /usr/bin and /bin only.\n\
                 A Python of your own, such as pyenv's or a venv's: its whole path in the first line"
            }
            Self::Sh => "`sh`, `jq` and `flock`",
        }
    }
}

/// Writes the folder, and prints the next steps. `program` is the whole command line.
pub(super) fn run(args: &NewArgs, program: &Command) -> anyhow::Result<()> {
    let NewArgs { name, language, folder } = args;
    if let Some(problem) = settings::problems(name, &[], &[]).first() {
        bail!("{problem}");
    }
    if name == "help" || program.find_subcommand(name).is_some() {
        bail!("there is a driver or a command {name:?}: take another name");
    }
    let folder = folder.clone().unwrap_or_else(|| PathBuf::from(name));
    let file = format!("{name}.{}", language.extension());
    let driver = of_name(language.template(), name);
    let readme = of_name(README, name)
        .replace("DRIVER_FILE", &file)
        .replace("DRIVER_NEEDS", language.needs())
        .replace("DRIVER_DIGEST", &digest(driver.as_bytes()));
    write_folder(&folder, [(file.as_str(), driver), ("README.md", readme)]).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            anyhow!("{} exists and is not an empty folder: give another one with --folder", folder.display())
        }
        _ => anyhow::Error::new(error).context(format!("failed to write the folder {}", folder.display())),
    })?;
    make_executable(&folder.join(&file))?;
    let shown = folder.display().to_string();
    print(&format!(
        "written:\n  {shown}/{file}\n  {shown}/README.md\nnext: cd {}, and read README.md, which has the commands\n",
        quoted(&shown)
    ))
}

fn of_name(template: &str, name: &str) -> String {
    template.replace(TEMPLATE, name).replace(&variable(TEMPLATE), &variable(name))
}

/// What `sha256sum` prints.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The first part of the names of the driver's variables.
fn variable(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

/// Lets everybody execute a file who may read it, and only its owner change it, because a driver that others may change is refused.
fn make_executable(file: &Path) -> anyhow::Result<()> {
    let mode = fs::metadata(file).map(|meta| meta.permissions().mode());
    let set =
        mode.and_then(|mode| fs::set_permissions(file, Permissions::from_mode((mode | (mode & 0o444) >> 2) & !0o022)));
    set.with_context(|| format!("failed to make {} executable", file.display()))
}
