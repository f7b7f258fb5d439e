//! `instance-run`.

use std::io;

use ccm_drivers::{contract::Driver, middleware::Session};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{Call, target::instance};
use crate::{
    failure::{DONE, NEGATIVE},
    output::{Format, Output},
    terminal::{pass_on, say},
};

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The id of the instance, or its whole name.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    /// The command, after `--`.
    #[arg(last = true, required = true)]
    command: Vec<String>,

    #[command(flatten)]
    output: Output,
}

/// Runs the command. Its own exit code would be taken for that of a class of errors, so it becomes 0 or 1.
pub(super) async fn run(call: &Call, session: &Session, args: &RunArgs) -> anyhow::Result<u8> {
    let runner = session.run_command().ok_or_else(|| call.lacks("commands inside of instances"))?;
    let found = instance(call.instances(session)?, &args.instance).await?;
    let done = runner.run(&found.id, &args.command).await?;
    if args.output.format == Format::Table {
        pass_on(&mut io::stdout(), &done.stdout)?;
        pass_on(&mut io::stderr(), &done.stderr)?;
        if done.exit_code != 0 {
            say(&format!("ccm-cloud: the command ended with exit code {}", done.exit_code));
        }
    } else {
        args.output.print(&done, String::new)?;
    }
    Ok(if done.exit_code == 0 { DONE } else { NEGATIVE })
}
