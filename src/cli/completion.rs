//! The command `completion`, generated from the command line itself.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, flags::print};

#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// The shell, for example in ~/.bashrc: `source <(ccm-operator completion bash)`.
    pub shell: Shell,
}

pub(super) fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ccm-operator", &mut script);
    let script = String::from_utf8(script)?;
    // The library uses two names for the same state if the program's name has a hyphen (clap-rs/clap#6421).
    print(&if args.shell == Shell::Bash { script.replace("ccm__subcmd__operator", "ccm__operator") } else { script })
}
