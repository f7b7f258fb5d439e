//! The log of a cloud-controller-manager (pure): lines of klog, as text or as JSON, and what k8s.io/cloud-provider says in them.
//!
//! Others decide on parts of a line: names of nodes, messages of a cloud. So a line counts only from its very beginning, never
//! because some words stand somewhere in it.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::text::output;

pub mod read;

/// The longest text of others that is shown.
const LONGEST: usize = 600;

/// The longest message that is read; lines that continue it are dropped.
const LONGEST_READ: usize = 8 << 10;

/// A text of others, not endless. Its secrets were masked when it was read; that nothing in it steers a terminal is worth a
/// second look.
pub fn clean(text: &str) -> String {
    let mut shown: String = output::printable(text.trim()).replace(['\t', '\n'], " ");
    if let Some((end, _)) = shown.char_indices().nth(LONGEST) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// The seconds of a day.
const DAY: u32 = 86_400;

/// How long before the last line a check every few seconds has failed for the last time, if it no longer fails, in seconds.
const STALE_CHECK: u32 = 120;

/// The same for the addresses of nodes, which are compared every five minutes unless the administrator says otherwise.
const STALE_ADDRESSES: u32 = 1_200;

/// The end of the log of a process that has ended, which is on one line: what klog calls fatal, else the last words.
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
    // Rather whole lines, if the last one is not too long.
    headers.iter().rfind(|at| **at >= start).map_or(&text[start..], |at| &text[*at..]).trim()
}

/// What a log tells about the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// How the last attempt to initialise a node has ended, by the node.
    pub attempts: BTreeMap<String, Attempt>,
    /// Why it is not known whether the instance of a node exists, by the node.
    pub unknown: BTreeMap<String, String>,
    /// Why the addresses of an initialised node are not updated, by the node.
    pub addresses: BTreeMap<String, String>,
    /// Why a node cannot be deleted, by the node.
    pub kept: BTreeMap<String, String>,
    /// Why there are no routes.
    pub routes: Option<String>,
    /// What says that the controller that initialises nodes does not run.
    pub off: Option<String>,
    /// What says that the API server cannot be reached.
    pub api_server: Option<String>,
    /// Whether it leads, or waits for the lease.
    pub leads: Option<bool>,
}

/// How an attempt to initialise a node has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It has begun.
    Started,
    /// It has failed, with this error.
    Failed(String),
    /// The cloud has answered with nothing; there is no other attempt until the node changes.
    Skipped,
    /// The node is initialised.
    Done,
}

impl Log {
    /// Of the last lines of a log, oldest first.
    pub fn of(lines: &[String]) -> Self {
        let mut log = Self::default();
        let messages = messages(lines);
        let last = messages.iter().rev().find_map(|message| message.time);
        for Message { time, text } in &messages {
            // A day has no date here: it is enough to know how long before the last line.
            let age = last.zip(*time).map_or(0, |(last, time)| (DAY + last - time) % DAY);
            log.take(&unwrapped(text), age);
        }
        log
    }

    /// Whether it shows that nodes are being initialised.
    pub fn works(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Whether it is the log of the pod that leads.
    pub fn leads(&self) -> bool {
        self.works() || self.leads == Some(true)
    }

    /// Takes a message that is so many seconds older than the last one.
    fn take(&mut self, message: &str, age: u32) {
        let known = |prefix: &str| message.strip_prefix(prefix);
        if let Some((node, error)) = known("error syncing '").and_then(|rest| rest.split_once("': ")) {
            let error = error.rsplit_once(", requeuing").map_or(error, |(error, _)| error);
            self.attempts.insert(node.to_owned(), Attempt::Failed(error.to_owned()));
        } else if let Some(node) = between(message, "Initializing node ", " with cloud provider") {
            self.attempts.entry(node.to_owned()).or_insert(Attempt::Started);
        } else if let Some(node) = between(message, "Successfully initialized node ", " with cloud provider") {
            self.attempts.insert(node.to_owned(), Attempt::Done);
        } else if let Some(node) = between(message, "Skip sync node ", " because cloud provided nil metadata") {
            self.attempts.insert(node.to_owned(), Attempt::Skipped);
        } else if let Some((node, error)) =
            known("error checking if node ").and_then(|rest| rest.split_once(" exists: "))
        {
            insert(&mut self.unknown, (node, error), age <= STALE_CHECK);
        } else if let Some((node, error)) =
            known("Failed to update node addresses for node \"").and_then(|rest| rest.split_once("\": "))
        {
            insert(&mut self.addresses, (node, error), age <= STALE_ADDRESSES);
        } else if let Some((node, error)) = known("unable to delete node \"").and_then(|rest| rest.split_once("\": ")) {
            insert(&mut self.kept, (node, error), age <= STALE_CHECK);
        } else {
            self.take_general(message);
        }
    }

    /// A message that is about no single node.
    fn take_general(&mut self, message: &str) {
        let starts = |words: &[&str]| words.iter().any(|word| message.starts_with(word));
        if starts(&["Couldn't reconcile node routes: ", "couldn't reconcile node routes: ", "Could not create route "])
        {
            self.routes = Some(message.to_owned());
        } else if starts(&["failed to start cloud node controller: "]) || is_off(message) {
            self.off = Some(message.to_owned());
        } else if starts(&["Started \"cloud-node-controller\"", "Started \"cloud-node\""]) {
            (self.off, self.api_server) = (None, None);
        } else if starts(&["attempting to acquire leader lease", "Attempting to acquire leader lease"]) {
            self.leads = Some(false);
        } else if starts(&["successfully acquired lease", "Successfully acquired lease"]) {
            (self.leads, self.api_server) = (Some(true), None);
        } else if misses_api_server(message) {
            self.api_server = Some(message.to_owned());
        }
    }
}

/// What stands between two texts, of which the first begins the message and the second ends it.
fn between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_suffix(after)
}

fn is_off(message: &str) -> bool {
    ["cloud-node-controller", "cloud-node"]
        .iter()
        .any(|name| message == format!("\"{name}\" is disabled") || message == format!("Skipping \"{name}\""))
}

/// Whether a message of klog or of client-go says that the API server cannot be reached.
pub fn misses_api_server(message: &str) -> bool {
    let waits = ["Failed to wait for apiserver being healthy", "failed to wait for apiserver being healthy"];
    let paths = ["/api/v1/", "/apis/coordination.k8s.io/", "/api?", "/apis?", "/healthz", "/version"];
    // Clouds have such paths, too, but further behind.
    let path = |url: &str| url.find('/').is_some_and(|at| paths.iter().any(|path| url[at..].starts_with(path)));
    let asks = |message: &str| message.split("://").skip(1).any(path);
    let fails = ["dial tcp", "i/o timeout", "connection refused", "no route to host", "no such host", "x509:"];
    waits.iter().any(|words| message.contains(words))
        || (asks(message) && fails.iter().any(|words| message.contains(words)))
}

/// A message, without klog's header.
struct Message {
    /// The second of the day.
    time: Option<u32>,
    text: String,
}

/// Notes an error of a node, unless it has ended since.
fn insert(errors: &mut BTreeMap<String, String>, (node, error): (&str, &str), is_fresh: bool) {
    if is_fresh {
        errors.insert(node.to_owned(), error.to_owned());
    }
}

fn messages(lines: &[String]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in lines {
        if let Some(message) = of_text(line).or_else(|| of_json(line)) {
            messages.push(message);
        } else if let Some(last) = messages.last_mut().filter(|last| last.text.len() < LONGEST_READ)
            // Only such lines continue a message of klog; others are of somebody who writes to the same log.
            && line.starts_with(char::is_whitespace)
        {
            last.text.push(' ');
            last.text.push_str(line.trim());
        }
    }
    messages
}

/// The message of a line of text: `E0102 15:04:05.000000       1 file.go:1] message`.
fn of_text(line: &str) -> Option<Message> {
    let (level, rest) = line.split_at_checked(1)?;
    let (day, rest) = rest.split_at_checked(4)?;
    let is_header = matches!(level, "I" | "W" | "E" | "F") && day.bytes().all(|byte| byte.is_ascii_digit());
    let (header, text) = rest.strip_prefix(' ').filter(|_| is_header)?.split_once("] ")?;
    let (time, place) = header.split_once(' ')?;
    let clock = time.split_once('.').map_or(time, |(clock, _)| clock);
    let seconds = clock.split(':').try_fold(0_u32, |seconds, part| {
        let part: u32 = part.parse().ok().filter(|part| *part < 60)?;
        Some(seconds * 60 + part)
    });
    (time.len() == 15 && place.contains(':'))
        .then(|| Message { time: seconds.filter(|seconds| *seconds < DAY), text: text.to_owned() })
}

/// The message of a line of JSON: `{"ts":1.5,"caller":"file.go:1","msg":"message","err":"error"}`.
fn of_json(line: &str) -> Option<Message> {
    let line: Value = line.starts_with('{').then(|| serde_json::from_str(line).ok())??;
    let message = line["msg"].as_str()?;
    // An error that nobody handles has no message of its own.
    let text = line["err"].as_str().filter(|_| message == "Unhandled Error").unwrap_or(message);
    // Milliseconds or seconds, by the version of the library: unknown is better than wrong.
    Some(Message { time: None, text: text.to_owned() })
}

/// The error of `"Unhandled Error" err="error" logger="UnhandledError"`, as client-go logs errors that nobody handles.
fn unwrapped(message: &str) -> Cow<'_, str> {
    let Some(quoted) = message.strip_prefix("\"Unhandled Error\" err=") else { return message.into() };
    // An error of several lines is not quoted, but in angle brackets.
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
mod tests {
    use super::*;

    fn of(text: &str) -> Log {
        Log::of(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    fn failed(error: &str) -> Attempt {
        Attempt::Failed(error.to_owned())
    }

    #[test]
    fn an_error_is_read_in_every_form_in_which_it_is_logged() {
        for (text, error) in [
            (
                "I0102 15:04:05.000000       1 node_controller.go:236] error syncing 'a': no \"b\", requeuing",
                "no \"b\"",
            ),
            (
                "E0102 15:04:05.000000       1 node_controller.go:237] \"Unhandled Error\" err=\"error syncing 'a': no \\\"b\\\"\\n, requeuing\" logger=\"UnhandledError\"",
                "no \"b\" ",
            ),
            (
                "E0102 15:04:05.000000       1 x.go:1] \"Unhandled Error\" err=<\n\terror syncing 'a': no\n\tb, requeuing\n > logger=\"UnhandledError\"",
                "no b",
            ),
            (
                "{\"ts\":1.5,\"caller\":\"x.go:1\",\"msg\":\"Unhandled Error\",\"err\":\"error syncing 'a': no, requeuing\"}",
                "no",
            ),
            ("{\"ts\":1.5,\"msg\":\"error syncing 'a': no, requeuing\",\"v\":0}", "no"),
        ] {
            assert_eq!(of(text).attempts.get("a"), Some(&failed(error)), "{text}");
        }
    }

    #[test]
    fn the_newest_attempt_counts() {
        let header = "I0102 15:04:05.000000       1 node_controller.go:1] ";
        let (begun, done) =
            ("Initializing node a with cloud provider", "Successfully initialized node a with cloud provider");
        let end = |messages: &[&str]| {
            let text = messages.iter().map(|message| format!("{header}{message}")).collect::<Vec<_>>().join("\n");
            of(&text).attempts.get("a").cloned()
        };
        let error = |error: &str| format!("error syncing 'a': {error}, requeuing");
        assert_eq!(end(&[begun]), Some(Attempt::Started));
        assert_eq!(end(&[begun, &error("one"), begun, &error("two"), begun]), Some(failed("two")));
        assert_eq!(end(&[&error("one"), begun, done]), Some(Attempt::Done));
        assert_eq!(end(&[done, &error("one")]), Some(failed("one")));
        assert_eq!(
            end(&[&error("one"), "Skip sync node a because cloud provided nil metadata"]),
            Some(Attempt::Skipped)
        );
    }

    #[test]
    fn an_error_that_repeats_itself_has_ended_when_other_lines_follow_for_long() {
        let log = |last: &str| {
            of(&format!(
                "E0101 23:59:00.000000       1 x.go:1] error checking if node a exists: no\n\
                 E0101 23:59:01.000000       1 x.go:1] unable to delete node \"b\": no\n\
                 E0101 23:59:02.000000       1 x.go:1] Failed to update node addresses for node \"c\": no\n\
                 I0102 {last}.000000       1 x.go:1] other\n"
            ))
        };
        let count = |log: Log| (log.unknown.len(), log.kept.len(), log.addresses.len());
        assert_eq!(count(log("00:00:10")), (1, 1, 1), "over midnight");
        assert_eq!(count(log("00:10:00")), (0, 0, 1));
        assert_eq!(count(log("01:00:00")), (0, 0, 0));
        assert_eq!(count(log("99:00:00")), (1, 1, 1), "no time");
    }

    #[test]
    fn words_inside_of_a_message_are_no_message() {
        let forged =
            "I0102 15:04:05.000000       1 x.go:1] error syncing 'b': server said: error syncing 'a': no, requeuing";
        let log = of(forged);
        assert_eq!(log.attempts.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(
            of("error syncing 'a': no, requeuing\n").attempts.len(),
            0,
            "a line without a header, and none before"
        );
        assert_eq!(of("{\"msg\":1}\n{\nE01 x] y\n").attempts.len(), 0);
        let followed =
            of("I0102 15:04:05.000000       1 x.go:1] error syncing 'a': no, requeuing\nrequest 403 of a library\n");
        assert_eq!(followed.attempts.get("a"), Some(&failed("no")));
    }

    #[test]
    fn only_the_api_server_has_its_paths_right_behind_the_host() {
        for (url, is_it) in [
            ("https://10.96.0.1:443/api/v1/nodes", true),
            ("https://10.96.0.1:443/apis/coordination.k8s.io/v1/x", true),
            ("https://api.example.com/client/api?command=x", false),
            ("https://pve.example.com:8006/api2/json/version", false),
        ] {
            assert_eq!(misses_api_server(&format!("Get \"{url}\": dial tcp: i/o timeout")), is_it, "{url}");
        }
    }

    #[test]
    fn the_last_words_are_those_that_are_fatal() {
        let (info, fatal) =
            ("I1123 01:06:37.692753    3768 aws.go:3748] Zone", "F1123 01:06:37.693382    3768 main.go:104] no");
        for (text, words) in [
            (format!("{info} {fatal}"), fatal),
            (format!("{info} {fatal} {info}"), fatal),
            (format!("usage {info}"), info),
            ("flag: missing unit in duration".to_owned(), "flag: missing unit in duration"),
            (format!("{} end", "ü".repeat(5_000)), &format!("{} end", "ü".repeat(297))),
            (String::new(), ""),
        ] {
            assert_eq!(last_words(&text), words, "{text}");
        }
    }

    #[test]
    fn a_text_is_cut_and_steers_nothing() {
        assert_eq!(clean(" a\x1b[2J\tb\n"), "a\u{fffd}[2J b");
        let long = clean(&"ü".repeat(2_000));
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with('…'));
    }
}
