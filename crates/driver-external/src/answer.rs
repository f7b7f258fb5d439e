//! Reads what a driver has answered (pure). Nothing but a whole, understood answer of the right account says that something is gone.

use ccm_base::{
    error::{brief, problem},
    text::{mask, terminal::printable},
};
use ccm_drivers::contract::ErrorKind;
use serde::de::DeserializeOwned;

use crate::{
    frame::{Ended, Report},
    problem::Problem,
    program::{Program, format},
    protocol::{Answer, Call, Failure, Outcome, VERSION, Version},
    supervisor::{KEPT, MAX_OUTPUT, MAX_PROCESSES},
};

/// How many of the last lines of standard error are in a message.
const LINES: usize = 3;

/// How many characters of standard output are in a message if it is no answer.
const BEGINNING: usize = 60;

/// The exit status of `/usr/bin/env` if the program that it looks for is not there.
const NOT_FOUND: i32 = 127;

/// What was asked, and how texts of the driver are made fit for output.
pub(crate) struct Question<'a> {
    pub(crate) program: &'a Program,
    pub(crate) call: &'a Call,
    /// The limit of the run.
    pub(crate) limit: Option<std::time::Duration>,
    /// The account that has to answer, if it is known.
    pub(crate) account: Option<String>,
    /// Replaces secrets.
    pub(crate) masked: &'a (dyn Fn(&str) -> String + Sync),
}

/// A result, and the account that it is of.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) account: Option<String>,
    pub(crate) result: T,
}

impl Question<'_> {
    /// Reads the report of a run.
    pub(crate) fn read<T: Outcome>(&self, report: &Report) -> Result<Answered<T>, Problem> {
        let stderr = self.stderr(&report.stderr);
        self.ended(report.ended, stderr.clone())?;
        let operation = self.call.name();
        let none = |error: &serde_json::Error| {
            let reason = match &report.stdout[..] {
                [] => "it is empty".to_owned(),
                bytes => format!("{}; {}", (self.masked)(&error.to_string()), self.beginning(bytes)),
            };
            Problem::NoAnswer { operation, reason, stderr: stderr.clone() }
        };
        // First what every version has: another one may have other answers.
        let version: Version = serde_json::from_slice(&report.stdout).map_err(|error| none(&error))?;
        let found = version.protocol_version.unwrap_or_default();
        if found.is_null() {
            return Err(self.wrong("it has no protocolVersion"));
        }
        if found.as_u64() != Some(VERSION.into()) {
            return Err(Problem::OtherProtocol { operation, found: brief(&found.to_string()).into_owned() });
        }
        self.check(self.parsed("", &report.stdout)?)
    }

    fn check<T: Outcome>(&self, answer: Answer) -> Result<Answered<T>, Problem> {
        let account = answer.account.filter(|account| !account.is_empty());
        if let (Some(found), Some(expected)) = (&account, &self.account)
            && found != expected
        {
            let (expected, found) = (brief(expected).into_owned(), brief(found).into_owned());
            return Err(Problem::OtherAccount { operation: self.call.name(), expected, found });
        }
        match (answer.result, answer.error) {
            (Some(result), None) => {
                if T::HAS_ACCOUNT && account.is_none() {
                    return Err(
                        self.wrong("it has no field \"account\", which is the id of the account that has answered")
                    );
                }
                let result: T = self.parsed("result.", result.get().as_bytes())?;
                if let Some(id) = result.account().filter(|id| account.as_deref() != Some(*id)) {
                    let account = account.unwrap_or_default();
                    return Err(self.wrong(&format!(
                        "result.id is {:?}, and the field \"account\" is {:?}: both are the id of the account",
                        brief(id),
                        brief(&account)
                    )));
                }
                if let Some(reason) = result.problem() {
                    return Err(self.wrong(&self.text(&format!("result.{reason}"))));
                }
                Ok(Answered { account, result })
            }
            (None, Some(failure)) => Err(self.failure(failure, account.as_deref())),
            (Some(_), Some(_)) => Err(self.wrong("it has a result and an error")),
            (None, None) => Err(self.wrong("it has neither a result nor an error")),
        }
    }

    /// Reads a value of the answer. A failure has the path of the field that is wrong, which begins with `prefix`.
    fn parsed<T: DeserializeOwned>(&self, prefix: &str, json: &[u8]) -> Result<T, Problem> {
        let parsed = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        parsed.map_err(|error| {
            let (path, cause) = (error.path().to_string(), error.inner());
            // The place in the text says nothing to somebody who has not seen the text.
            let place = format!(" at line {} column {}", cause.line(), cause.column());
            let cause = cause.to_string();
            let cause = cause.strip_suffix(&place).unwrap_or(&cause);
            let path = if path == "." { prefix.trim_end_matches('.').to_owned() } else { format!("{prefix}{path}") };
            let path = if path.is_empty() { path } else { format!("{path}: ") };
            self.wrong(&self.text(&format!("{path}{cause}")))
        })
    }

    /// How standard output begins that is no answer.
    fn beginning(&self, stdout: &[u8]) -> String {
        let text = self.text(&String::from_utf8_lossy(stdout));
        let begins: String = text.trim().chars().take(BEGINNING).collect();
        format!("it begins with {begins:?}; it is for the answer alone: print all else to standard error")
    }

    fn failure(&self, failure: Failure, account: Option<&str>) -> Problem {
        let (id, message) = (failure.id.clone(), self.text(&failure.message));
        let error = match failure.error(message) {
            Ok(error) => error,
            Err(reason) => return self.wrong(&reason),
        };
        if error.kind != ErrorKind::NotFound {
            return Problem::Answered(error);
        }
        let asked = self.call.asked();
        let id = id.unwrap_or_default();
        if account.is_none() {
            return self.wrong(&format!(
                "NotFound without the field \"account\", the id of the account that was looked at: {error}"
            ));
        }
        if id.is_empty() {
            return self.wrong(&format!("NotFound without error.id, the id of what is not found: {error}"));
        }
        if !asked.contains(&id.as_str()) {
            return self
                .wrong(&format!("NotFound, and error.id is {:?}, which was not asked for: {error}", brief(&id)));
        }
        Problem::Answered(error)
    }

    /// Fails if the driver did not end by itself with success.
    fn ended(&self, ended: Ended, stderr: String) -> Result<(), Problem> {
        let operation = self.call.name();
        let head = self.program.head();
        match ended {
            Ended::Exited(0) => Ok(()),
            Ended::Exited(status) => match format::looked_for(&head).filter(|_| status == NOT_FOUND) {
                Some(interpreter) => Err(Problem::NoInterpreter { path: self.program.path().to_owned(), interpreter }),
                None => Err(Problem::Failed { operation, how: format!("exited with status {status}"), stderr }),
            },
            Ended::Signaled(signal) => {
                Err(Problem::Failed { operation, how: format!("was ended by signal {signal}"), stderr })
            }
            Ended::NotStarted(errno) => {
                Err(format::cannot_start(self.program.path(), &head, std::io::Error::from_raw_os_error(errno)))
            }
            Ended::TimedOut if matches!(self.call, Call::Describe) => {
                Err(Problem::SlowDescription { limit: self.limit.unwrap_or_default(), stderr })
            }
            Ended::TimedOut => Err(Problem::TimedOut { operation, limit: self.limit.unwrap_or_default(), stderr }),
            Ended::TooMuchOutput => Err(Problem::TooMuchOutput { operation, most: MAX_OUTPUT }),
            Ended::TooManyProcesses => Err(Problem::TooManyProcesses { operation, most: MAX_PROCESSES }),
        }
    }

    fn wrong(&self, reason: &str) -> Problem {
        Problem::WrongAnswer { operation: self.call.name(), reason: reason.to_owned() }
    }

    /// A text of the driver as a message may have it.
    fn text(&self, text: &str) -> String {
        problem(printable(&mask::message(&(self.masked)(text))))
    }

    /// The last lines of standard error as a message may have them.
    fn stderr(&self, bytes: &[u8]) -> String {
        let lines = self.lines(bytes);
        let last = lines[lines.len().saturating_sub(LINES)..].iter().map(|line| brief(line).into_owned());
        last.collect::<Vec<_>>().join(" | ")
    }

    /// The lines of standard error, fit for output.
    pub(crate) fn lines(&self, bytes: &[u8]) -> Vec<String> {
        // Where more was written, the first line may begin inside of a secret, whose rest no mask knows.
        let whole = match bytes.iter().position(|byte| *byte == b'\n') {
            _ if bytes.len() < KEPT => bytes,
            Some(end) => &bytes[end + 1..],
            None => "\u{2026}".as_bytes(),
        };
        let text = (self.masked)(&String::from_utf8_lossy(whole));
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| printable(&mask::message(line))).collect()
    }
}

#[cfg(test)]
mod tests;
