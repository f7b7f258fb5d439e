//! The only module that reads and writes YAML (pure).
//!
//! It reads YAML as Kubernetes' own tools do: `0644` is octal, `yes` is true, a repeated key is an error. It writes
//! YAML in which a YAML 1.1 parser in Go reads the same values.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_saphyr::{DefaultMessageFormatter, Localizer, Location};

use crate::{
    error::problem,
    text::{Place, suggest::did_you_mean},
};

pub use lines::Lines;

pub mod cost;
pub mod edit;
pub mod lines;
pub mod outline;
mod quoted;

pub use quoted::quoted;

/// A syntax error, or a value that does not fit its type.
pub use crate::text::Problem as Error;

/// Parses one document into a type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| describe(&error, text))
}

/// Parses every document of a text; leaves out empty ones.
pub fn documents(text: &str) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| describe(&error, text))
}

/// Parses every document of a text as [`documents`] does, each with the lines of its values.
pub fn documents_with_lines(text: &str) -> Result<Vec<(Value, Lines)>, Error> {
    let documents = documents(text)?;
    let roots = outline::roots(text)?;
    if documents.len() != roots.len() {
        // The reader leaves out a document that is null by a tag or by its spelling, such as `nUll`.
        let line = roots.iter().find(|root| root.is_scalar()).map_or(1, |root| root.line);
        return Err(Error::at(line, "a document that only some readers take for an empty one; remove it"));
    }
    if let Some((line, key)) = roots.iter().find_map(outline::Node::repeated_key) {
        return Err(Error::at(line, twice(Some(key))));
    }
    Ok(documents.into_iter().zip(roots.iter().map(Lines::of_root)).collect())
}

/// Writes one document. No text in it controls a terminal, even if it is untrusted, and Go's parser reads every text unchanged.
pub fn to_string(value: &impl Serialize) -> Result<String, Error> {
    let text = write(value)?;
    if quoted::may_need(&text) { quoted::write(value, &text) } else { Ok(text) }
}

fn write(value: &impl Serialize) -> Result<String, Error> {
    // Long lines, because readers may misread folded scalars.
    let mut options = serde_saphyr::SerializerOptions::default();
    options.folded_wrap_chars = usize::MAX;
    let text = serde_saphyr::to_string_with_options(value, options).map_err(|error| Error::new(error.to_string()))?;
    if text.chars().all(is_printable) {
        return Ok(text);
    }
    // The library leaves such characters as they are, and no reader accepts them. JSON is YAML, and has them only in its strings.
    let json = serde_json::to_string_pretty(value).map_err(|error| Error::new(error.to_string()))?;
    let escaped = json.chars().fold(String::new(), |mut escaped, one| {
        if is_printable(one) {
            escaped.push(one);
        } else {
            escaped.extend([format!("\\u{:04x}", u32::from(one))]);
        }
        escaped
    });
    Ok(escaped + "\n")
}

/// Whether a character may stand in YAML (YAML 1.2.2, `c-printable`).
fn is_printable(one: char) -> bool {
    matches!(one, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn options() -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

/// Keeps locations out of the library's messages: [`Error`] has a field for them.
struct WithoutPlaces;

impl Localizer for WithoutPlaces {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }

    fn alias_defined_at(&self, _: Location) -> String {
        String::new()
    }

    fn alias_used_at(&self, _: Location) -> String {
        String::new()
    }
}

/// Puts the key after a colon, as values are: the masking of secrets cuts messages there.
fn twice(key: Option<&str>) -> String {
    let key = key.map(|key| format!(": {key:?}")).unwrap_or_default();
    format!("a key stands twice, remove one{key}")
}

/// Whether the value at a place of a text is null.
fn is_null(text: &str, place: Option<Place>) -> bool {
    let at = place.and_then(|place| {
        let line = text.lines().nth(place.line.checked_sub(1)?)?;
        Some(line.chars().skip(place.column?.checked_sub(1)?).collect::<String>())
    });
    let word = |rest: String| rest.split(|c: char| c.is_whitespace() || ",]}".contains(c)).next().map(str::to_owned);
    at.and_then(word).is_some_and(|word| ["~", "null", "Null", "NULL"].contains(&word.as_str()))
}

fn describe(error: &serde_saphyr::Error, text: &str) -> Error {
    let hint = match error {
        serde_saphyr::Error::SerdeUnknownField { field: word, expected, .. }
        | serde_saphyr::Error::SerdeUnknownVariant { variant: word, expected, .. } => did_you_mean(word, expected),
        _ => String::new(),
    };
    let message = error.render_with_formatter(&DefaultMessageFormatter.with_localizer(&WithoutPlaces));
    let number = |number| usize::try_from(number).ok();
    let place = error.location().and_then(|at| Some(Place { line: number(at.line())?, column: number(at.column()) }));
    let message = match error {
        serde_saphyr::Error::Budget { .. } => {
            "too many values, or nested too deep; aliases count as often as used".into()
        }
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => twice(key.as_deref()),
        serde_saphyr::Error::InvalidScalar { .. } if is_null(text, place) => {
            "null, which is not a value here: give one, or leave the key out".into()
        }
        _ => message.replace('\n', " ").replace("expected mapping start", "expected a mapping such as {key: value}"),
    };
    Error { place, message: problem(message) + &hint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_scalars_as_kubernetes_does() {
        let value: Value = from_str("mode: 0644\non: yes\ntext: \"0644\"\nempty:\n").unwrap();
        assert_eq!(value, json!({"mode": 420, "on": true, "text": "0644", "empty": null}));
    }

    #[test]
    fn errors_hold_their_place_and_print_it_once() {
        for (text, place) in [
            ("a: 1\nb: 2\na: 3\n", Place { line: 3, column: Some(1) }),
            ("a: 1\n  b: [\n", Place { line: 2, column: Some(4) }),
            ("a: &x [1]\nb: !!int y\n", Place { line: 2, column: Some(10) }),
        ] {
            let error = from_str::<Value>(text).unwrap_err();
            assert_eq!(error.place, Some(place), "{error}");
            assert!(!error.message.contains("line ") && !error.message.contains('\n'), "{error}");
            assert_eq!(error.to_string(), format!("{place}: {}", error.message));
            assert_eq!(error.of("a.yaml"), format!("a.yaml:{place}: {}", error.message));
        }
    }

    #[test]
    fn errors_are_in_the_words_of_users_and_not_of_the_library() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code, reason = "it is not read")]
        struct Flags {
            on: bool,
        }
        let of = |text: &str| from_str::<Value>(text).unwrap_err().message;
        assert_eq!(of("a: 1\nb: 2\na: 3\n"), "a key stands twice, remove one: \"a\"");
        assert_eq!(of("a: {b: 1, b: 2}\n"), "a key stands twice, remove one: \"b\"");
        let of = |text: &str| from_str::<Flags>(text).unwrap_err().message;
        for text in ["on: null\n", "on: ~\n", "{on: null}\n"] {
            assert!(of(text).starts_with("null, which is not a value here"), "{text}: {}", of(text));
        }
        assert!(of("on: nullable\n").starts_with("invalid boolean"), "{}", of("on: nullable\n"));
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert_eq!(
            documents("# only a comment\n---\na: 1\n---\n---\nb: 2\n").unwrap(),
            [json!({"a": 1}), json!({"b": 2})]
        );
        assert_eq!(documents("").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn a_document_that_is_null_by_its_tag_shifts_no_line() {
        for text in ["--- !!null x\n---\na: 1\n", "--- nUll\n---\na: 1\n", "--- !x ~\n---\na: 1\n"] {
            let error = documents_with_lines(text).unwrap_err();
            assert_eq!(error.place, Some(Place::line(1)), "{text}: {error}");
            assert!(error.message.contains("empty"), "{error}");
        }
        let documents = documents_with_lines("--- ~\n---\n--- null\n---\na: 1\n").unwrap();
        assert_eq!(documents.iter().map(|(_, lines)| lines.of("/a")).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_key_is_repeated_whatever_its_tag() {
        for text in ["a: 1\n!x a: 2\n", "b:\n- c\n- {a: 1,\n   !x a: 2}\n", "1: a\n!!str 1: b\n"] {
            let error = documents_with_lines(text).unwrap_err();
            assert_eq!(error.place.map(|place| place.line), Some(text.matches('\n').count()), "{text}: {error}");
            assert!(error.message.contains("stands twice, remove one"), "{error}");
        }
        assert_eq!(documents_with_lines("a: {b: 1}\nb: {b: 1}\n").unwrap().len(), 1);
    }

    #[test]
    fn every_value_has_the_line_of_its_key() {
        let text = "# comment\na: 1\nb:\n  c:\n  - d: x\n    e/f: |\n      text\n  - {g: 1,\n     h: 2}\n  \"i\":\n    - [1,\n      2]\n---\n~\n---\ni:\n  b: c\n  a: \"b: c\"\n";
        let documents = documents_with_lines(text).unwrap();
        let (first, second) = (&documents[0].1, &documents[1].1);
        for (pointer, line) in [
            ("", 2),
            ("/a", 2),
            ("/b", 3),
            ("/b/c", 4),
            ("/b/c/0", 5),
            ("/b/c/0/d", 5),
            ("/b/c/0/e~1f", 6),
            ("/b/c/1/g", 8),
            ("/b/c/1/h", 9),
            ("/b/c/1/other/below", 8),
            ("/b/i", 10),
            ("/b/i/0/1", 12),
            ("/other", 2),
        ] {
            assert_eq!(first.of(pointer), line, "{pointer}");
        }
        assert_eq!((second.of("/i"), second.of("/i/b"), second.of("/i/a")), (16, 17, 18));
        assert_eq!(documents[0].0["b"]["c"][1]["h"], 2);
    }

    proptest::proptest! {
        /// Every string of a manifest is read back as the same string.
        #[test]
        fn strings_survive_writing_and_reading(text in "(?s).{0,60}", key in "[a-z:#\\- ]{1,12}") {
            let value = json!({key: [text.clone(), {"nested": text}]});
            let written = to_string(&value).unwrap();
            proptest::prop_assert_eq!(from_str::<Value>(&written).unwrap(), value, "{}", written);
        }
    }

    #[test]
    fn characters_that_yaml_does_not_have_are_escaped() {
        for one in ['\u{0}', '\u{7f}', '\u{9f}', '\u{fffe}', '\u{ffff}', '\u{feff}', '\u{85}'] {
            let value = json!({"a": format!("{one}¥{one}: \"b\"\n{one}"), "b": format!("{one}")});
            let written = to_string(&value).unwrap();
            assert!(written.chars().all(is_printable), "{written:?}");
            assert_eq!(from_str::<Value>(&written).unwrap(), value, "{written:?}");
        }
    }

    #[test]
    fn strings_that_go_reads_as_other_types_are_quoted() {
        for word in ["yes", "on", "y", "0644", "12:30:45", "1e3", "null", "~", "2001-01-01", "=", "1_000"] {
            let written = to_string(&json!({"a": word})).unwrap();
            assert!(written.contains('"') || written.contains('\''), "{written}");
        }
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        assert_eq!(
            did_you_mean("infrastuctureName", ["namespace", "infrastructureName"]),
            " (did you mean `infrastructureName`?)"
        );
        assert_eq!(did_you_mean("zone", ["namespace", "infrastructureName"]), "");
    }
}
