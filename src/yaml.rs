//! The one way in and out of YAML (pure).
//!
//! Reads it as Kubernetes' own tools do (`0644` is octal, `yes` is true, a repeated key is an error) and writes it so
//! that a YAML 1.1 reader in Go reads the same back. Nothing else in the crate names the YAML library.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use serde_saphyr::Spanned;

/// What is wrong with a YAML text, and where: one line, ending in "at line L, column C".
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Error(String);

/// Parses one document into a type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| describe(&error))
}

/// Parses every document of a text, empty ones left out.
pub fn documents(text: &str) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| describe(&error))
}

/// Writes one document.
pub fn to_string(value: &impl Serialize) -> Result<String, Error> {
    // A folded scalar is one more thing that a reader can get wrong; long lines are not.
    let mut options = serde_saphyr::SerializerOptions::default();
    options.folded_wrap_chars = usize::MAX;
    serde_saphyr::to_string_with_options(value, options).map_err(|error| Error(error.to_string()))
}

/// " (did you mean `near`?)" when one of the known words is near the given one, else nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{candidate}`?)"))
        .unwrap_or_default()
}

fn options() -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

fn describe(error: &serde_saphyr::Error) -> Error {
    let hint = match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => did_you_mean(field, expected.iter().copied()),
        serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => {
            did_you_mean(variant, expected.iter().copied())
        }
        _ => String::new(),
    };
    Error(error.to_string().replace('\n', " ") + &hint)
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
    fn repeated_keys_are_an_error_that_says_where() {
        let error = from_str::<Value>("a: 1\nb: 2\na: 3\n").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn documents_without_content_are_left_out() {
        assert_eq!(
            documents("# only a comment\n---\na: 1\n---\n---\nb: 2\n").unwrap(),
            [json!({"a": 1}), json!({"b": 2})]
        );
        assert_eq!(documents("").unwrap(), Vec::<Value>::new());
    }

    proptest::proptest! {
        /// Whatever string stands in a manifest comes back as it was, as a string.
        #[test]
        fn strings_survive_writing_and_reading(text in "(?s).{0,60}", key in "[a-z:#\\- ]{1,12}") {
            let value = json!({key: [text.clone(), {"nested": text}]});
            let written = to_string(&value).unwrap();
            proptest::prop_assert_eq!(from_str::<Value>(&written).unwrap(), value, "{}", written);
        }
    }

    #[test]
    fn words_that_go_reads_as_other_types_are_quoted() {
        for word in ["yes", "on", "y", "0644", "12:30:45", "1e3", "null", "~", "2001-01-01", "=", "1_000"] {
            let written = to_string(&json!({"a": word})).unwrap();
            assert!(written.contains('"') || written.contains('\''), "{written}");
        }
    }

    #[test]
    fn the_nearest_word_is_offered() {
        assert_eq!(
            did_you_mean("infrastuctureName", ["namespace", "infrastructureName"]),
            " (did you mean `infrastructureName`?)"
        );
        assert_eq!(did_you_mean("zone", ["namespace", "infrastructureName"]), "");
    }
}
