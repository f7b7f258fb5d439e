//! Writes texts with quotes and escapes, so that they cannot control a terminal and Go's parser reads them correctly
//! (pure).
//!
//! The YAML writer leaves control characters and the like as they are. It also writes a text of several lines as a
//! block, and Go's parsers refuse a block whose first line begins with a tab.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
};

use serde::Serialize;
use serde_json::Value;

use super::Error;
use crate::text::terminal::controls_terminal;

/// Whether a document may contain such a text.
pub(super) fn may_need(document: &str) -> bool {
    document.contains(controls_terminal) || document.lines().any(begins_with_tab)
}

fn begins_with_tab(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with('\t')
}

/// Whether a text needs quotes.
fn needs(text: &str) -> bool {
    let is_block = || text.contains('\n');
    let mut lines = text.lines().filter(|line| !line.trim_matches(' ').is_empty());
    text.contains(controls_terminal) || (is_block() && lines.next().is_some_and(begins_with_tab))
}

/// Writes a document with quotes around these texts. Each is first written as a word that occurs nowhere else in the document, and
/// replaced afterwards.
pub(super) fn write(value: &impl Serialize, plain: &str) -> Result<String, Error> {
    let mut value = serde_json::to_value(value).map_err(|error| Error::new(error.to_string()))?;
    let mark = mark_beside(plain);
    let mut texts = HashMap::new();
    replace(&mut value, &mark, &mut texts);
    let written = super::write(&value)?;
    let mut parts = written.split(&mark);
    let mut document = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        document += texts.get(number).map(String::as_str).unwrap_or_default();
        document += &part[number.len()..];
    }
    Ok(document)
}

/// The beginning of the word that replaces a text.
const MARK: &str = "quoted";

/// Returns a short word that a document does not contain, found in one walk over it, even if its author tries to prevent that.
fn mark_beside(plain: &str) -> String {
    let behind = plain.split(MARK).skip(1);
    // Each part ends before the next one, so that every digit is read once.
    let numbers = behind.filter_map(|part| part.split_once('q').and_then(|(number, _)| number.parse::<usize>().ok()));
    let taken: BTreeSet<_> = numbers.collect();
    let free = (0..=taken.len()).find(|number| !taken.contains(number)).unwrap_or_default();
    format!("{MARK}{free}q")
}

/// Replaces texts by marks with numbers, and collects them by their number.
fn replace(value: &mut Value, mark: &str, texts: &mut HashMap<String, String>) {
    let mut marked = |text: &str| {
        let number = texts.len().to_string();
        texts.insert(number.clone(), quoted(text));
        format!("{mark}{number}")
    };
    match value {
        Value::String(text) if needs(text) => *text = marked(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, mark, texts)),
        Value::Object(members) => {
            let keys: Vec<_> = members.keys().filter(|key| needs(key)).cloned().collect();
            for key in keys {
                if let Some(member) = members.remove(&key) {
                    members.insert(marked(&key), member);
                }
            }
            members.values_mut().for_each(|member| replace(member, mark, texts));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes a text in double quotes, on one line. Source of the escapes: YAML 1.2.2, section 5.7.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        // Writing into a String does not fail.
        let _ = match character {
            '"' | '\\' => write!(quoted, "\\{character}"),
            '\n' => write!(quoted, "\\n"),
            '\t' => write!(quoted, "\\t"),
            other if controls_terminal(other) && u32::from(other) <= 0xffff => {
                write!(quoted, "\\u{:04X}", u32::from(other))
            }
            other if controls_terminal(other) => write!(quoted, "\\U{:08X}", u32::from(other)),
            other => write!(quoted, "{other}"),
        };
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::yaml::{from_str, to_string};

    #[test]
    fn what_controls_a_terminal_is_escaped_and_read_as_meant() {
        for text in [
            "a\u{9b}2J",
            "\u{202e}",
            "a\u{85}b",
            "a\u{2028}b\nc",
            "\r",
            "\u{feff}",
            "\u{e0041}\"\\'",
            "\x1b[2J",
            "quoted0\u{9b}",
            "\tb\n",
            "\tbb\nc\n",
            " \n\tb\nc",
            "a\n\tb\n",
            "\n\n\tb\n",
            "\t",
            "\ta",
            "quoted0",
            "quoted0q\n\tb",
            "\tquoted0q0\nquoted1q0",
        ] {
            let value = json!({
                text: [text, {"a": text}], "b\u{9b}": "c\u{9b}", "quoted1": 1, "quoted0q1": "quoted2q",
            });
            let written = to_string(&value).unwrap();
            assert!(!written.contains(controls_terminal), "{written:?}");
            assert_eq!(from_str::<Value>(&written).unwrap(), value, "{written:?}");
        }
        assert_eq!(to_string(&json!({"a": "\tb\nc\n"})).unwrap(), "a: \"\\tb\\nc\\n\"\n");
        assert_eq!(to_string(&json!({"a": "b\n\tc\n"})).unwrap(), "a: |\n  b\n  \tc\n");
    }

    #[test]
    fn the_mark_is_short_and_nowhere_else() {
        let many = (0..1 << 16).map(|n| format!("quoted{n}q")).collect::<Vec<_>>().concat();
        for (plain, mark) in [
            (String::new(), "quoted0q"),
            ("quoted quotedq quotedquoted".to_owned(), "quoted0q"),
            ("quoted0q quoted1q1 quoted3q quoted02q".to_owned(), "quoted4q"),
            ("quotedq".repeat(1 << 17), "quoted0q"),
            (format!("quoted{}", "q".repeat(1 << 20)), "quoted0q"),
            (format!("quoted{}q", "1".repeat(1 << 20)), "quoted0q"),
            (many, "quoted65536q"),
        ] {
            assert_eq!(mark_beside(&plain), mark);
            assert!(!plain.contains(mark), "{mark}");
        }
        // Each text is written as the mark, so a long mark would take the product of its length and their number.
        let texts = vec!["\tb\n"; 2_000];
        let value = json!({"a": format!("quoted{}", "q".repeat(1 << 18)), "b": texts});
        assert_eq!(from_str::<Value>(&to_string(&value).unwrap()).unwrap(), value);
    }
}
