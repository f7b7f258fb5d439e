//! The log of a cloud-controller-manager (pure): lines of klog, or of this project's own cloud-controller-manager, as text or JSON, and
//! the messages of k8s.io/cloud-provider, which it has, too.
//!
//! Parts of a line are untrusted text, such as node names and cloud messages. So only the beginning of a line identifies it, never words in
//! its middle.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use crate::text::output;

/// The maximum length of untrusted text in the output.
const LONGEST: usize = 600;

/// The maximum length of a message; further continuation lines are dropped.
const LONGEST_READ: usize = 8 << 10;

/// Returns untrusted text with a limited length. Secrets were masked when it was read; control characters are removed again for safety.
pub fn clean(text: &str) -> String {
    let mut shown: String = output::printable(text.trim()).replace(['\t', '\n'], " ");
    if let Some((end, _)) = shown.char_indices().nth(LONGEST) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// The number of seconds in a day.
const DAY: u32 = 86_400;

/// The age of the last failure, in seconds before the last line, after which a check that runs every few seconds counts as recovered.
const STALE_CHECK: u32 = 120;

/// The same limit for a deletion: the API server keeps an Event this long.
const STALE_DELETION: u32 = 3_600;

/// The same limit for node addresses, which are compared every five minutes by default.
const STALE_ADDRESSES: u32 = 1_200;

/// Returns the end of the single-line log of an ended process: the fatal klog message, or else the last words.
pub fn last_words(text: &str) -> &str {
    let is_header = |at: &usize| {
        let header = &text.as_bytes()[*at..];
        let is_start = *at == 0 || text.as_bytes()[at - 1] == b' ';
        is_start
            && header.len() > 8
            && matches!(header[0], b'I' | b'W' | b'E' | b'F')
            && header[1..5].iter().all(u8::is_ascii_digit)
            && (header[5], header[8]) == (b' ', b':')
    };
    let headers: Vec<usize> = text.char_indices().map(|(at, _)| at).filter(is_header).collect();
    let fatal = headers.iter().rposition(|at| text.as_bytes()[*at] == b'F');
    if let Some(index) = fatal {
        return text[headers[index]..headers.get(index + 1).copied().unwrap_or(text.len())].trim();
    }
    let start = text.char_indices().rev().nth(LONGEST / 2).map_or(0, |(at, _)| at);
    // Prefer whole lines if the last one is not too long.
    headers.iter().rfind(|at| **at >= start).map_or(&text[start..], |at| &text[*at..]).trim()
}

/// The parts of a log that concern nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The result of the last attempt to initialize each node, by node name.
    pub attempts: BTreeMap<String, Attempt>,
    /// Why the existence of a node's instance is unknown, by node name.
    pub unknown: BTreeMap<String, String>,
    /// Why the addresses of an initialized node are not updated, by node name.
    pub addresses: BTreeMap<String, String>,
    /// Why a node cannot be deleted, by node name.
    pub kept: BTreeMap<String, String>,
    /// The line that announces a node deletion without a later error, by node name.
    pub deleted: BTreeMap<String, String>,
    /// The nodes whose deletion was announced more than once.
    deleted_twice: BTreeSet<String>,
    /// The line that explains why there are no routes.
    pub routes: Option<String>,
    /// The line that reports that the `cloud-node` controller does not run.
    pub off: Option<String>,
    /// The line that reports an unreachable API server.
    pub api_server: Option<String>,
    /// Whether the pod leads (`true`) or waits for the lease (`false`).
    pub leads: Option<bool>,
}

/// The result of an attempt to initialize a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The attempt has begun.
    Started,
    /// The attempt has failed with this error.
    Failed(String),
    /// The cloud returned an empty response; no further attempt follows until the node changes.
    Skipped,
    /// The node is initialized.
    Done,
}

/// The line of this project's own cloud-controller-manager while another process leads.
const OWN_WAITS: &str = "waiting for the lease";

/// Its line when it leads.
const OWN_LEADS: &str = "acquired the lease";

/// The beginnings of its lines about requests to the API server. With a `ServiceError`, it was not reached.
const OWN_FAILURES: [&str; 3] = ["failed to acquire the lease ", "failed to renew the lease", "failed to watch nodes"];

impl Log {
    /// Reads the last lines of a log, oldest first.
    pub fn of(lines: &[String]) -> Self {
        let mut log = Self::default();
        let messages = messages(lines);
        let last = messages.iter().rev().find_map(|message| message.time);
        for Message { time, text } in &messages {
            // A klog header has no date: the age relative to the last line is enough.
            let age = last.zip(*time).map_or(0, |(last, time)| (DAY + last - time) % DAY);
            log.take(&unwrapped(text), age);
        }
        log
    }

    /// Whether the log shows that nodes are being initialized.
    pub fn works(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Whether this is the log of the leader.
    pub fn leads(&self) -> bool {
        self.works() || self.leads == Some(true)
    }

    /// Reads a message that is `age` seconds older than the last one.
    fn take(&mut self, message: &str, age: u32) {
        let parts = |before: &str, between: &str| message.strip_prefix(before)?.split_once(between);
        if let Some((node, error)) = parts("error syncing '", "': ") {
            let error = error.rsplit_once(", requeuing").map_or(error, |(error, _)| error);
            self.attempts.insert(node.to_owned(), Attempt::Failed(error.to_owned()));
        } else if let Some(node) = between(message, "Initializing node ", " with cloud provider") {
            self.attempts.entry(node.to_owned()).or_insert(Attempt::Started);
        } else if let Some(node) = between(message, "Successfully initialized node ", " with cloud provider") {
            self.attempts.insert(node.to_owned(), Attempt::Done);
        } else if let Some(node) = between(message, "Skip sync node ", " because cloud provided nil metadata") {
            self.attempts.insert(node.to_owned(), Attempt::Skipped);
        } else if let Some((node, error)) = parts("error checking if node ", " exists: ") {
            insert(&mut self.unknown, (node, error), age <= STALE_CHECK);
        } else if let Some((node, error)) = parts("Failed to update node addresses for node \"", "\": ") {
            insert(&mut self.addresses, (node, error), age <= STALE_ADDRESSES);
        } else if let Some(node) =
            message.strip_prefix("deleting node since it is no longer present in cloud provider: ")
        {
            if self.deleted.contains_key(node) {
                self.deleted_twice.insert(node.to_owned());
            }
            insert(&mut self.deleted, (node, message), age <= STALE_DELETION);
        } else if let Some((node, error)) = parts("unable to delete node \"", "\": ") {
            // The controller notices the deletion only a moment later, and retries once.
            if !(error.ends_with(" not found") && self.deleted_twice.contains(node)) {
                self.deleted.remove(node);
                self.deleted_twice.remove(node);
            }
            insert(&mut self.kept, (node, error), age <= STALE_CHECK);
        } else {
            self.take_general(message);
        }
    }

    /// Reads a message that is not about a single node.
    fn take_general(&mut self, message: &str) {
        let starts = |words: &[&str]| words.iter().any(|word| message.starts_with(word));
        if starts(&["Couldn't reconcile node routes: ", "couldn't reconcile node routes: ", "Could not create route "])
        {
            self.routes = Some(message.to_owned());
        } else if starts(&["failed to start cloud node controller: "]) || is_off(message) {
            self.off = Some(message.to_owned());
        } else if starts(&["Started \"cloud-node-controller\"", "Started \"cloud-node\""]) {
            (self.off, self.api_server) = (None, None);
        } else if starts(&["attempting to acquire leader lease", "Attempting to acquire leader lease", OWN_WAITS]) {
            self.leads = Some(false);
        } else if starts(&["successfully acquired lease", "Successfully acquired lease", OWN_LEADS]) {
            (self.leads, self.api_server) = (Some(true), None);
        } else if misses_api_server(message) || (starts(&OWN_FAILURES) && message.contains(": ServiceError: ")) {
            self.api_server = Some(message.to_owned());
        }
    }
}

/// Returns the part of a message between a prefix and a suffix.
fn between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_suffix(after)
}

fn is_off(message: &str) -> bool {
    ["cloud-node-controller", "cloud-node"]
        .iter()
        .any(|name| message == format!("\"{name}\" is disabled") || message == format!("Skipping \"{name}\""))
}

/// Whether a message of klog or client-go reports that the API server cannot be reached.
pub fn misses_api_server(message: &str) -> bool {
    let waits = ["Failed to wait for apiserver being healthy", "failed to wait for apiserver being healthy"];
    let paths = ["/api/v1/", "/apis/coordination.k8s.io/", "/api?", "/apis?", "/healthz", "/version"];
    // Cloud URLs contain these, too, but not at the start of the path.
    let path = |url: &str| url.find('/').is_some_and(|at| paths.iter().any(|path| url[at..].starts_with(path)));
    let asks = |message: &str| message.split("://").skip(1).any(path);
    let fails = ["dial tcp", "i/o timeout", "connection refused", "no route to host", "no such host", "x509:"];
    waits.iter().any(|words| message.contains(words))
        || (asks(message) && fails.iter().any(|words| message.contains(words)))
}

/// A message without its klog header.
struct Message {
    /// The second of the day.
    time: Option<u32>,
    text: String,
}

/// Records an error of a node, unless the problem has ended since.
fn insert(errors: &mut BTreeMap<String, String>, (node, error): (&str, &str), is_fresh: bool) {
    if is_fresh {
        errors.insert(node.to_owned(), error.to_owned());
    }
}

fn messages(lines: &[String]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in lines {
        if let Some(message) = of_text(line).or_else(|| of_own_text(line)).or_else(|| of_json(line)) {
            messages.push(message);
        } else if let Some(last) = messages.last_mut().filter(|last| last.text.len() < LONGEST_READ)
            // Only indented lines continue a klog message; others come from another writer to the same log.
            && line.starts_with(char::is_whitespace)
        {
            last.text.push(' ');
            last.text.push_str(line.trim());
        }
    }
    messages
}

/// Parses a text line: `E0102 15:04:05.000000       1 file.go:1] message`.
fn of_text(line: &str) -> Option<Message> {
    let (level, rest) = line.split_at_checked(1)?;
    let (day, rest) = rest.split_at_checked(4)?;
    let is_header = matches!(level, "I" | "W" | "E" | "F") && day.bytes().all(|byte| byte.is_ascii_digit());
    let (header, text) = rest.strip_prefix(' ').filter(|_| is_header)?.split_once("] ")?;
    let (time, place) = header.split_once(' ')?;
    (time.len() == 15 && place.contains(':')).then(|| Message { time: second_of_day(time), text: text.to_owned() })
}

/// Returns the second of the day of a time such as `15:04:05.000000`.
fn second_of_day(time: &str) -> Option<u32> {
    let clock = time.split_once('.').map_or(time, |(clock, _)| clock);
    let seconds = clock.split(':').try_fold(0_u32, |seconds, part| {
        let part: u32 = part.parse().ok().filter(|part| *part < 60)?;
        Some(seconds * 60 + part)
    });
    seconds.filter(|seconds| *seconds < DAY)
}

/// Parses a text line of this project's own cloud-controller-manager: `2006-01-02T15:04:05.000000Z  INFO message`.
fn of_own_text(line: &str) -> Option<Message> {
    let (time, rest) = line.split_once("Z ")?;
    let is_time = time.len() == "2006-01-02T15:04:05.000000".len() && time.get(10..11) == Some("T");
    let (level, text) = rest.trim_start().split_once(' ').filter(|_| is_time)?;
    let is_level = matches!(level, "ERROR" | "WARN" | "INFO" | "DEBUG" | "TRACE");
    is_level.then(|| Message { time: time.get(11..).and_then(second_of_day), text: text.to_owned() })
}

/// Parses a JSON line of klog, `{"ts":1.5,"caller":"file.go:1","msg":"message","err":"error"}`, or of this project's own
/// cloud-controller-manager, `{"timestamp":"2006-01-02T15:04:05.000000Z","level":"INFO","message":"message"}`.
fn of_json(line: &str) -> Option<Message> {
    let line: Value = line.starts_with('{').then(|| serde_json::from_str(line).ok())??;
    if let Some(message) = line["timestamp"].as_str().and_then(|_| line["message"].as_str()) {
        let time = line["timestamp"].as_str().and_then(|time| time.get(11..)?.strip_suffix('Z'));
        return Some(Message { time: time.and_then(second_of_day), text: message.to_owned() });
    }
    let message = line["msg"].as_str()?;
    // An unhandled error has no message of its own.
    let text = line["err"].as_str().filter(|_| message == "Unhandled Error").unwrap_or(message);
    // The unit (milliseconds or seconds) depends on the library version: an unknown time is better than a wrong one.
    Some(Message { time: None, text: text.to_owned() })
}

/// Returns the error in `"Unhandled Error" err="error" logger="UnhandledError"`, the format of unhandled errors in client-go.
fn unwrapped(message: &str) -> Cow<'_, str> {
    let Some(quoted) = message.strip_prefix("\"Unhandled Error\" err=") else { return message.into() };
    // A multi-line error is in angle brackets instead of quotes.
    if let Some(lines) = quoted.strip_prefix('<') {
        return lines.rsplit_once('>').map_or(lines, |(lines, _)| lines).trim().into();
    }
    let mut error = String::with_capacity(quoted.len());
    let mut characters = quoted.strip_prefix('"').unwrap_or(quoted).chars();
    while let Some(character) = characters.next().filter(|character| *character != '"') {
        error.push(match character {
            '\\' => match characters.next() {
                Some('n' | 't' | 'r') => ' ',
                Some(escaped) => escaped,
                None => break,
            },
            other => other,
        });
    }
    error.into()
}

#[cfg(test)]
mod tests;
