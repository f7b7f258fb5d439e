//! The commands `completion` and `man-pages`, made of the command line itself.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, flags::print};

/// Flags of `completion`.
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// The shell, for example in ~/.bashrc: `source <(ccm-operator completion bash)`.
    pub shell: Shell,
}

/// Flags of `man-pages`.
#[derive(Args, Debug)]
pub struct ManPagesArgs {
    /// The folder to write to.
    #[arg(long, value_name = "DIR")]
    pub dest_dir: PathBuf,
}

/// Prints the script.
pub(super) fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ccm-operator", &mut script);
    let script = String::from_utf8(script)?;
    // The library names the same state in two ways if the program's name has a hyphen (clap-rs/clap#6421).
    print(&if args.shell == Shell::Bash { script.replace("ccm__subcmd__operator", "ccm__operator") } else { script })
}

/// Writes one page for each command.
pub(super) fn man_pages(args: &ManPagesArgs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dest_dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dest_dir))
        .with_context(|| format!("failed to write the manual pages to {}", args.dest_dir.display()))
}
