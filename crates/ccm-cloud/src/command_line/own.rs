//! The commands without a driver.

use anyhow::anyhow;
use clap::{Command, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use super::NAME;
use crate::{
    drivers::DRIVERS,
    flags::settings,
    output::{Output, table},
    terminal::print,
    version::{COMMIT, VERSION},
};

/// The commands without a driver. No driver can have one of these names.
#[derive(Debug, Subcommand)]
pub(super) enum Own {
    /// List the built-in drivers.
    Drivers(Output),
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

/// A built-in driver.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    settings: usize,
    options: usize,
    summary: &'static str,
}

impl Own {
    /// Runs a command. `program` is the whole command line.
    pub(super) fn run(&self, mut program: Command) -> anyhow::Result<()> {
        match self {
            Self::Drivers(output) => drivers(*output),
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

fn drivers(output: Output) -> anyhow::Result<()> {
    let rows: Vec<_> = DRIVERS
        .iter()
        .map(|driver| Row {
            name: driver.name(),
            settings: settings(&**driver).count(),
            options: driver.options().len(),
            summary: driver.summary(),
        })
        .collect();
    output.print(&rows, || {
        let row = |Row { name, settings, options, summary }: &Row| {
            [(*name).to_owned(), settings.to_string(), options.to_string(), (*summary).to_owned()]
        };
        table(["NAME", "SETTINGS", "OPTIONS", "SUMMARY"], rows.iter().map(row))
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
