//! Output formats: tables for people; JSON and JUnit's XML for programs (pure).
//!
//! The callers write the output.

use std::iter;

use serde::Serialize;

use crate::text::terminal;

pub use terminal::printable;

/// The width of a table.
const WIDTH: usize = 100;
/// The space between two columns.
const GAP: usize = 2;
/// The minimum width of the last column, even if the table becomes too wide.
const NARROWEST: usize = 20;

/// Formats one JSON document, ending in a line break. Characters that control a terminal are escaped.
pub fn json(output: &impl Serialize) -> serde_json::Result<String> {
    Ok(terminal::escaped_json(serde_json::to_string_pretty(output)?) + "\n")
}

/// Formats a table of at most 100 columns, unless a word is longer than its column. Long texts are wrapped in the last
/// column; nothing is cut off.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    table_within(WIDTH, titles, rows)
}

/// Formats a [`table`] of another width.
pub fn table_within<const N: usize>(width: usize, titles: [&str; N], rows: &[[String; N]]) -> String {
    let titles = titles.map(str::to_owned);
    let all = || iter::once(&titles).chain(rows);
    let mut widths = [0; N];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before: usize = widths.iter().take(N.saturating_sub(1)).map(|width| width + GAP).sum();
    let last = width.saturating_sub(before).max(NARROWEST);
    all().map(|row| lines_of_row(row, &widths, last, before)).collect()
}

fn lines_of_row<const N: usize>(row: &[String; N], widths: &[usize; N], last: usize, before: usize) -> String {
    let first = row.iter().zip(widths).take(N.saturating_sub(1));
    let padded: Vec<_> = first.map(|(cell, width)| format!("{cell:<width$}", width = width + GAP)).collect();
    let mut text = padded.concat();
    for (index, line) in wrap(row.last().map_or("", String::as_str), last).iter().enumerate() {
        if index > 0 {
            // A word that is too long for its column moves left instead of over the edge.
            let indent = (before + last).saturating_sub(line.chars().count()).min(before);
            end_line(&mut text);
            text.extend(iter::repeat_n(' ', indent));
        }
        text += line;
    }
    end_line(&mut text);
    text
}

/// Ends a line and removes its trailing spaces. In place: a row may have as many lines as an untrusted text has words.
fn end_line(text: &mut String) {
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// Wraps a text between words into lines of at most `width` characters; a longer word has its own line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => word.clone_into(line),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A test suite of JUnit's XML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Its cases, and how each ended.
    pub cases: Vec<(String, Outcome)>,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its failures; none if it has passed.
    Run(Vec<Failure>),
    /// Why it was not run.
    Skipped(String),
}

impl FromIterator<Failure> for Outcome {
    fn from_iter<I: IntoIterator<Item = Failure>>(failures: I) -> Self {
        Self::Run(failures.into_iter().collect())
    }
}

/// A failure of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The summary, on one line.
    pub message: String,
    /// The details.
    pub text: String,
}

/// Formats test suites as JUnit's XML. A case is repeated for each of its failures: most readers show only one failure per case.
pub fn junit(suites: &[Suite]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for suite in suites {
        let outcomes = || suite.cases.iter().map(|(_, outcome)| outcome);
        let tests: usize = outcomes().map(|outcome| failures(outcome).len().max(1)).sum();
        let failed: usize = outcomes().map(|outcome| failures(outcome).len()).sum();
        let skipped = match outcomes().filter(|outcome| matches!(outcome, Outcome::Skipped(_))).count() {
            0 => String::new(),
            count => format!(" skipped=\"{count}\""),
        };
        let name = escape(&suite.name);
        xml.extend([format!("  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failed}\"{skipped}>\n")]);
        xml.extend(suite.cases.iter().map(|(case, outcome)| cases(&name, &escape(case), outcome)));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn failures(outcome: &Outcome) -> &[Failure] {
    match outcome {
        Outcome::Run(failures) => failures,
        Outcome::Skipped(_) => &[],
    }
}

fn cases(suite: &str, case: &str, outcome: &Outcome) -> String {
    let with = |element: &str| {
        format!("    <testcase classname=\"{suite}\" name=\"{case}\">\n      {element}\n    </testcase>\n")
    };
    match outcome {
        Outcome::Skipped(reason) => with(&format!("<skipped message=\"{}\"/>", escape(reason))),
        Outcome::Run(failures) if failures.is_empty() => {
            format!("    <testcase classname=\"{suite}\" name=\"{case}\"/>\n")
        }
        Outcome::Run(failures) => {
            let failed = |Failure { message, text }: &Failure| {
                with(&format!("<failure message=\"{}\">{}</failure>", escape(message), escape(text)))
            };
            failures.iter().map(failed).collect()
        }
    }
}

/// Escapes a text as XML character data or attribute value. Characters that XML cannot represent become `?`.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&apos;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            control if terminal::controls_terminal(control) || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('?');
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up_and_wrap_in_the_last_column() {
        let rows = [
            ["a".to_owned(), "short".to_owned()],
            ["long name".to_owned(), "word ".repeat(30)],
            ["b".to_owned(), "x".repeat(120)],
        ];
        let text = table(["NAME", "WHAT"], &rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "NAME       WHAT");
        assert_eq!(lines[1], "a          short");
        assert!(lines[2].starts_with("long name  word word") && lines[2].len() <= WIDTH, "{text}");
        assert!(lines[3].starts_with("           word"), "{text}");
        assert_eq!(lines.last().map(|line| line.len()), Some(131), "nothing is cut off: {text}");
        assert_eq!(table(["NAME", "WHAT"], &[["a".into(), String::new()]]), "NAME  WHAT\na\n");
        // One line per word: each is only appended.
        let text = table(["NAME", "WHAT"], &[["a".into(), format!("{} ", "x".repeat(95)).repeat(20_000)]]);
        assert_eq!(text.lines().count(), 20_001);
        assert!(text.lines().skip(2).all(|line| line == format!("     {}", "x".repeat(95))), "{text:.300}");
    }

    #[test]
    fn a_document_of_json_controls_no_terminal_and_is_read_as_meant() {
        let text = "a\x1b[2J\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}é\n\t";
        let written = json(&[text]).unwrap();
        assert!(
            !written.contains(terminal::controls_terminal) && written.contains("\\u202e\\u2028\\udb40\\udc41é\\n"),
            "{written}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), [text]);
    }

    #[test]
    fn junit_escapes_texts_and_counts_failures() {
        let failure = Failure { message: "\"a\" <b> & 'c'".into(), text: "line\n\u{1}".into() };
        let bad = [failure.clone(), failure].into_iter().collect();
        let mut cases = vec![("good".to_owned(), Outcome::Run(vec![])), ("bad".to_owned(), bad)];
        let xml = junit(&[Suite { name: "a&b".into(), cases: cases.clone() }]);
        assert!(xml.contains("<testsuite name=\"a&amp;b\" tests=\"3\" failures=\"2\">"), "{xml}");
        assert!(xml.contains("<testcase classname=\"a&amp;b\" name=\"good\"/>"), "{xml}");
        let failure = "<failure message=\"&quot;a&quot; &lt;b&gt; &amp; &apos;c&apos;\">line&#10;?</failure>";
        assert_eq!(xml.matches(failure).count(), 2, "{xml}");
        cases.push(("none".to_owned(), Outcome::Skipped("no \"b\"".into())));
        let xml = junit(&[Suite { name: "a&b".into(), cases }]);
        assert!(xml.contains("tests=\"4\" failures=\"2\" skipped=\"1\">"), "{xml}");
        let skipped = "name=\"none\">\n      <skipped message=\"no &quot;b&quot;\"/>\n    </testcase>\n";
        assert!(xml.contains(skipped), "{xml}");
    }
}
