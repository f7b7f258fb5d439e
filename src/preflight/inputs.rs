//! The checks of what the object asks for and names (pure). The conditions `ConfigurationValid`, `CredentialsFound` and
//! `VersionSupported` come from the same rows.

use super::{
    check::{Check, Row},
    evidence::Reader,
};
use crate::plan::upstream::{judgement::Judgement, sources::Trouble};

/// Another check has to pass before.
const LATER: &str = "another problem comes first";

/// The three rows: configuration, credentials, version.
pub fn rows(judgement: &Judgement, by: Reader) -> [Row; 3] {
    [configuration(judgement, by), credentials(judgement, by), version(judgement)]
}

fn configuration(judgement: &Judgement, by: Reader) -> Row {
    let check = Check::Configuration;
    match &judgement.configuration {
        None => later(check),
        Some(Err(trouble)) => troubled(check, trouble, by),
        Some(Ok(ignored)) if ignored.is_empty() => Row { reason: "Valid", ..check.passed("") },
        Some(Ok(ignored)) => {
            let message = format!("ignored: {}", ignored.join("; "));
            Row { reason: "Valid", ..check.warned(message, "correct or remove what is ignored") }
        }
    }
}

fn credentials(judgement: &Judgement, by: Reader) -> Row {
    let check = Check::Credentials;
    match &judgement.credentials {
        None => later(check),
        Some(Err(trouble)) => troubled(check, trouble, by),
        Some(Ok(true)) => Row { reason: "Found", ..check.passed("") },
        Some(Ok(false)) => Row { reason: "NotNeeded", ..check.passed("no Secret is named, and none is needed") },
    }
}

fn version(judgement: &Judgement) -> Row {
    let check = Check::Version;
    match &judgement.version {
        None => later(check),
        Some((choice, _)) => match &choice.problem {
            Some((reason, problem)) => {
                Row { reason, ..check.warned(problem, "name a version that fits in spec.image.version") }
            }
            None => Row { reason: "Supported", ..check.passed(&choice.because) },
        },
    }
}

fn later(check: Check) -> Row {
    Row { reason: "NotChecked", ..check.not_checked(LATER, "") }
}

/// The message says what to do.
fn troubled(check: Check, trouble: &Trouble, by: Reader) -> Row {
    let Trouble { reason, message } = trouble;
    if by == Reader::Caller && *reason == "NotReadable" {
        let how = "run kubectl describe for it with an account that may read it: it shows the keys, and not the values";
        return Row { reason, ..check.not_checked(message, how) };
    }
    Row { reason, ..check.refused(message, "") }
}
