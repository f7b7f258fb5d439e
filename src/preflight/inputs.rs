//! The input checks: the spec of the object, and the objects that it references (pure). The conditions
//! `ConfigurationValid`, `CredentialsFound` and `VersionSupported` use the same rows.

use super::{
    check::{Check, Row},
    check_input::Reader,
};
use crate::{
    plan::kubernetes::{sources::InputProblem, validation::Validation},
    provider::versions::VERSION_BROKEN,
};

/// Returns the three rows: configuration, credentials, version.
pub fn rows(validation: &Validation, by: Reader) -> [Row; 3] {
    [configuration(validation, by), credentials(validation, by), version(validation)]
}

pub(super) fn configuration(validation: &Validation, by: Reader) -> Row {
    let check = Check::Configuration;
    match &validation.configuration {
        None => later(check),
        Some(Err(problem)) => with_problem(check, problem, by),
        Some(Ok(ignored)) if ignored.is_empty() => Row { reason: "Valid", ..check.passed("") },
        Some(Ok(ignored)) => {
            Row { reason: "Valid", ..check.warned(ignored.join("; "), "correct or remove these settings") }
        }
    }
}

pub(super) fn credentials(validation: &Validation, by: Reader) -> Row {
    let check = Check::Credentials;
    match &validation.credentials {
        None => later(check),
        Some(Err(problem)) => with_problem(check, problem, by),
        Some(Ok(Some(warnings))) if !warnings.is_empty() => {
            let how =
                "create the Secret without them: a cloud-controller-manager may take them for a part of the value";
            Row { reason: "Found", ..check.warned(warnings.join("; "), how) }
        }
        Some(Ok(Some(_))) => Row { reason: "Found", ..check.passed("") },
        Some(Ok(None)) => Row { reason: "NotNeeded", ..check.passed("no Secret is named, and none is needed") },
    }
}

pub(super) fn version(validation: &Validation) -> Row {
    let check = Check::Version;
    match &validation.version {
        None => later(check),
        Some((choice, _)) => match &choice.problem {
            Some((reason, problem)) => {
                let fix = "name a version that fits in spec.image.version";
                let row =
                    if *reason == VERSION_BROKEN { check.refused(problem, fix) } else { check.warned(problem, fix) };
                Row { reason, ..row }
            }
            None => Row { reason: "Supported", ..check.passed(&choice.reason) },
        },
    }
}

fn later(check: Check) -> Row {
    Row { reason: "NotChecked", ..check.not_checked("another problem comes first", "") }
}

/// Returns the row of a problem. The message includes the fix.
fn with_problem(check: Check, problem: &InputProblem, by: Reader) -> Row {
    let InputProblem { reason, message } = problem;
    if by == Reader::Caller && *reason == "NotReadable" {
        let how = "run kubectl describe for it with an account that may read it: it shows the keys, and not the values";
        return Row { reason, ..check.not_checked(message, how) };
    }
    Row { reason, ..check.refused(message, "") }
}
