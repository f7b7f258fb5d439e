//! The commands without a driver.

use std::iter;

use anyhow::anyhow;
use ccm_all_drivers::{Drivers, settings};
use ccm_drivers::contract::DriverType;
use clap::{Command, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use super::{NAME, new_driver, summary};
use crate::{
    output::{Output, table},
    terminal::print,
    version::{COMMIT, VERSION},
};

/// The commands without a driver. No driver can have one of these names.
#[derive(Debug, Subcommand)]
pub(super) enum Own {
    /// List the drivers: those that are built in, and the one of --driver.
    Drivers(Output),
    /// Write the folder of a new driver, a program in a language of your choice that passes `verify` with a cloud in a file.
    NewDriver(new_driver::NewArgs),
    /// Print the script that completes this program's command lines in a shell.
    Completion {
        /// The shell, for example in ~/.bashrc: `source <(ccm-cloud completion bash)`.
        shell: Shell,
    },
    /// Print a manual page, for example for `man -l <(ccm-cloud man)`.
    Man {
        /// The command of the page, such as `docker instance-create` [default: the program].
        command: Vec<String>,
    },
    /// Show the version of this program.
    Version,
}

/// A driver.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    settings: usize,
    options: usize,
    /// The path of its program; `None` for a built-in one.
    path: Option<String>,
    /// The digest of its program.
    digest: Option<String>,
    summary: &'static str,
}

impl Own {
    /// Whether the command is about the drivers themselves.
    pub(super) fn needs_drivers(&self) -> bool {
        matches!(self, Self::Drivers(_))
    }

    /// Runs a command. `program` is the whole command line.
    pub(super) fn run(&self, drivers: &'static Drivers, mut program: Command) -> anyhow::Result<()> {
        match self {
            Self::Drivers(output) => list(drivers, *output),
            Self::NewDriver(args) => new_driver::run(args, &program),
            Self::Completion { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(*shell, &mut program, NAME, &mut script);
                let script = String::from_utf8(script)?;
                // The library uses two names for the same state if the program's name has a hyphen (clap-rs/clap#6421).
                let is_bash = *shell == Shell::Bash;
                print(&if is_bash { script.replace("ccm__subcmd__cloud", "ccm__cloud") } else { script })
            }
            Self::Man { command } => man(program, command),
            Self::Version => {
                let commit = COMMIT.map(|commit| format!(", commit {commit}")).unwrap_or_default();
                print(&format!("{NAME} {VERSION}{commit}\n"))
            }
        }
    }
}

fn list(drivers: &'static Drivers, output: Output) -> anyhow::Result<()> {
    let row = |driver: &'static dyn DriverType| {
        let program = drivers.program(driver.name());
        Row {
            name: driver.name(),
            settings: settings(driver).count(),
            options: driver.options().len(),
            path: program.map(|program| program.path().display().to_string()),
            digest: program.map(|program| format!("sha256:{}", program.digest())),
            summary: summary(driver),
        }
    };
    let rows: Vec<_> = drivers.all().map(row).collect();
    output.print(&rows, || {
        let row = |Row { name, settings, options, path, digest, summary }: &Row| {
            let first = [(*name).to_owned(), settings.to_string(), options.to_string(), (*summary).to_owned()];
            let program = path.as_ref().zip(digest.as_ref()).map(|(path, digest)| format!("{path} {digest}"));
            // Both are long words, and only the last column has room for them.
            iter::once(first).chain(program.map(|program| ["", "", "", &program].map(str::to_owned)))
        };
        table(["NAME", "SETTINGS", "OPTIONS", "SUMMARY AND PROGRAM"], rows.iter().flat_map(row))
    })
}

/// Prints the page of the program or of one of its commands.
fn man(mut program: Command, words: &[String]) -> anyhow::Result<()> {
    // The names of commands in their own help, and the flags that they have of others.
    program.build();
    let mut shown = program;
    for word in words {
        let found = shown.find_subcommand(word).cloned();
        shown = found.ok_or_else(|| anyhow!("there is no command {:?}", words.join(" ")))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(shown).source(format!("{NAME} {VERSION}")).render(&mut page)?;
    print(&String::from_utf8(page)?)
}
