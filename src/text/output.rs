//! How answers are printed: tables for people, JSON, YAML and JUnit's XML for programs (pure).
//!
//! It knows nothing of what is printed. Whoever calls it writes the text.

use serde::Serialize;

use crate::text::yaml;

/// A table is never wider.
const WIDTH: usize = 100;
/// Between two columns.
const GAP: usize = 2;
/// The last column is never narrower, even if the table becomes too wide then.
const NARROWEST: usize = 20;

/// Why an answer cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not as JSON.
    #[error("failed to write the answer as JSON")]
    Json(#[from] serde_json::Error),
    /// Not as YAML.
    #[error("failed to write the answer as YAML")]
    Yaml(#[from] yaml::Error),
}

/// One JSON document, ending in a line break.
pub fn json(answer: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(answer)? + "\n")
}

/// One YAML document.
pub fn yaml(answer: &impl Serialize) -> Result<String, Error> {
    Ok(yaml::to_string(answer)?)
}

/// A table of at most 100 columns, but for a word that is longer than its column. What does not fit is wrapped in the last
/// column, and nothing is cut off.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    table_within(WIDTH, titles, rows)
}

/// The same, for another width.
pub fn table_within<const N: usize>(width: usize, titles: [&str; N], rows: &[[String; N]]) -> String {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
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
            // A word that is too long for its column moves to the left rather than over the edge.
            let indent = (before + last).saturating_sub(line.chars().count()).min(before);
            text = text.trim_end().to_owned() + "\n" + &" ".repeat(indent);
        }
        text += line;
    }
    text.trim_end().to_owned() + "\n"
}

/// A text as lines of at most so many characters, broken between words; a longer word has a line for itself.
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

/// A suite of tests as JUnit's XML knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Its cases, each with its failures.
    pub cases: Vec<(String, Vec<Failure>)>,
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one line.
    pub message: String,
    /// At length.
    pub text: String,
}

/// Test suites as JUnit's XML. A case stands once for each of its failures: most readers show only one of a case.
pub fn junit(suites: &[Suite]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for suite in suites {
        let tests: usize = suite.cases.iter().map(|(_, failures)| failures.len().max(1)).sum();
        let failures: usize = suite.cases.iter().map(|(_, failures)| failures.len()).sum();
        let name = escape(&suite.name);
        xml.extend([format!("  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">\n")]);
        xml.extend(suite.cases.iter().map(|(case, failures)| cases(&name, &escape(case), failures)));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn cases(suite: &str, case: &str, failures: &[Failure]) -> String {
    if failures.is_empty() {
        return format!("    <testcase classname=\"{suite}\" name=\"{case}\"/>\n");
    }
    let failed = |Failure { message, text }: &Failure| {
        format!(
            "    <testcase classname=\"{suite}\" name=\"{case}\">\n      <failure message=\"{}\">{}</failure>\n    \
             </testcase>\n",
            escape(message),
            escape(text)
        )
    };
    failures.iter().map(failed).collect()
}

/// A text as XML's character data or attribute value. What XML cannot hold at all becomes `?`.
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
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
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
    }

    #[test]
    fn junit_is_escaped_and_counts() {
        let failure = Failure { message: "\"a\" <b> & 'c'".into(), text: "line\n\u{1}".into() };
        let cases = vec![("good".to_owned(), vec![]), ("bad".to_owned(), vec![failure.clone(), failure])];
        let xml = junit(&[Suite { name: "a&b".into(), cases }]);
        assert!(xml.contains("<testsuite name=\"a&amp;b\" tests=\"3\" failures=\"2\">"), "{xml}");
        assert!(xml.contains("<testcase classname=\"a&amp;b\" name=\"good\"/>"), "{xml}");
        let failure = "<failure message=\"&quot;a&quot; &lt;b&gt; &amp; &apos;c&apos;\">line&#10;?</failure>";
        assert_eq!(xml.matches(failure).count(), 2, "{xml}");
    }
}
