//! Errors of a command, and exit codes.

use ccm_drivers::contract::{Error, ErrorKind};

use crate::{error::chain, terminal::say};

/// The exit code of a success.
pub(crate) const DONE: u8 = 0;

/// The exit code of a negative answer.
pub(crate) const NEGATIVE: u8 = 1;

/// The exit code of wrong usage, and of a failure that is not the cloud's.
pub(crate) const USAGE: u8 = 2;

/// What the exit codes of classes mean, in the order of [`ErrorKind::NAMES`].
const MEANINGS: [&str; ErrorKind::NAMES.len()] = [
    "the cloud does not have it",
    "there is another one of the same name or key",
    "the credentials are wrong, or of another account",
    "the credentials do not allow it, or others made the instance",
    "the driver or the cloud refuses a value",
    "the driver or the cloud cannot do it",
    "the setting readOnly or the driver makes the account read-only",
    "too many requests",
    "no answer in time; it may have happened all the same",
    "the cloud was not reached, or cannot answer now",
    "a fault of the driver or of the cloud",
];

/// The exit codes, for the help.
pub(crate) fn exit_codes() -> String {
    let mut text = "\
Exit codes:
   0  done
   1  the answer is negative: verify has found a failure or has passed no check,
      the command of instance-run has failed, or instance-sweep refuses to
      delete every instance
   2  a wrong command line, a setting of a wrong type, or a failure of this
      machine, such as a file that cannot be read
"
    .to_owned();
    for ((name, code), meaning) in ErrorKind::NAMES.iter().zip(MEANINGS) {
        text.extend([format!("  {code}  {name}: {meaning}\n")]);
    }
    text + " 129  its terminal was closed (SIGHUP)\n 130  interrupted (SIGINT)\n 143  terminated (SIGTERM)\n"
}

/// Reports an error, and returns its exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        // The help and the version are errors of this library, too. A failure to write is ignored.
        let _ = usage.print();
        return u8::try_from(usage.exit_code()).unwrap_or(USAGE);
    }
    let (line, code) = describe(error);
    say(&line);
    code
}

/// Returns the line of an error, and its exit code.
fn describe(error: &anyhow::Error) -> (String, u8) {
    let words = chain(error.as_ref());
    let Some(failed) = error.downcast_ref::<Error>() else { return (format!("ccm-cloud: {words}"), USAGE) };
    let class = match &failed.kind {
        ErrorKind::InvalidArgument(field) => format!("{} ({field})", failed.kind.name()),
        kind => kind.name().to_owned(),
    };
    let made = failed.instance.as_ref().map(|id| {
        format!("; the instance {id} was made: repeat the command, or delete the instance with instance-delete")
    });
    (format!("ccm-cloud: {class}: {words}{}", made.unwrap_or_default()), failed.kind.exit_code())
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_has_the_exit_code_of_its_class_and_one_line() {
        let error =
            Err::<(), _>(Error::new(ErrorKind::Unavailable, "no\nanswer")).context("failed to list").unwrap_err();
        assert_eq!(describe(&error), ("ccm-cloud: Unavailable: failed to list: no answer".to_owned(), 19));
        let error = Error::invalid("image", "there is no image \"x\"").after("c1").into();
        let (line, code) = describe(&error);
        assert!(
            line.starts_with("ccm-cloud: InvalidArgument (image): there is no image \"x\"; the instance c1 "),
            "{line}"
        );
        assert_eq!(code, 14);
        assert_eq!(describe(&anyhow::anyhow!("no file")), ("ccm-cloud: no file".to_owned(), USAGE));
    }

    #[test]
    fn the_help_has_each_class() {
        let help = exit_codes();
        for (name, code) in ErrorKind::NAMES {
            assert!(help.contains(&format!("  {code}  {name}: ")), "{help}");
        }
        // Where a terminal is wide enough for a line, it is not wrapped a second time.
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
        let page = include_str!("../../../docs/drivers/README.md");
        for (name, code) in ErrorKind::NAMES {
            assert!(page.contains(&format!("| {code} | `{name}`: ")), "{name}");
        }
    }
}
