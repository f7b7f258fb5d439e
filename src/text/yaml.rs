//! The one way in and out of YAML (pure).
//!
//! Reads it as Kubernetes' own tools do (`0644` is octal, `yes` is true, a repeated key is an error) and writes it so
//! that a YAML 1.1 reader in Go reads the same back. Nothing else in the crate names the YAML library.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use crate::text::suggest::did_you_mean;

pub use serde_saphyr::Spanned;

pub(crate) mod edit;
pub(crate) mod outline;

/// What is wrong with a YAML text, and where: one line, ending in "at line L, column C".
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Error {
    message: String,
    line: Option<u64>,
}

impl Error {
    /// The line, from 1, where it is known.
    pub(crate) fn line(&self) -> Option<u64> {
        self.line
    }
}

/// Parses one document into a type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| describe(&error))
}

/// Parses every document of a text, empty ones left out.
pub fn documents(text: &str) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| describe(&error))
}

/// The line, from 1, of each value of a document, by its JSON pointer: that of the value's key where it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// The line of a value, or of the nearest one around it when there is none.
    pub fn of(&self, pointer: &str) -> u64 {
        let mut pointer = pointer;
        loop {
            match (self.0.get(pointer), pointer.rfind('/')) {
                (Some(line), _) => return *line,
                (None, Some(end)) => pointer = &pointer[..end],
                (None, None) => return 1,
            }
        }
    }
}

/// The same as [`documents`], each with the lines of its values.
pub fn located(text: &str) -> Result<Vec<(Value, Lines)>, Error> {
    let nodes: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| describe(&error))?;
    let source: Vec<&str> = text.lines().collect();
    let lines = nodes.iter().map(|node| {
        let mut lines = Lines::default();
        locate(node, String::new(), node.referenced.line(), &source, &mut lines);
        lines
    });
    Ok(documents(text)?.into_iter().zip(lines).collect())
}

/// The shape of a value; what it says is left out.
enum Node {
    Scalar,
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNode;
        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                IgnoredAny::deserialize(deserializer).map(|_| Node::Scalar)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Node::Map(members))
            }
        }
        deserializer.deserialize_any(AnyNode)
    }
}

/// Notes the line of a value and of all in it. The library knows where a value begins, which for a block is the line
/// after its key: the key is looked for from there back to the value around it.
fn locate(node: &Spanned<Node>, pointer: String, line: u64, source: &[&str], lines: &mut Lines) {
    match &node.value {
        Node::Scalar => {}
        Node::List(items) => {
            for (index, item) in items.iter().enumerate() {
                locate(item, format!("{pointer}/{index}"), item.referenced.line(), source, lines);
            }
        }
        Node::Map(members) => {
            for (key, member) in members {
                let begins = member.referenced.line();
                let names_key = |number: &u64| {
                    let text = usize::try_from(*number - 1).ok().and_then(|index| source.get(index));
                    text.is_some_and(|text| text.contains(&format!("{key}:")) || text.contains(&format!("{key}\":")))
                };
                let line = (line.max(1)..=begins).rev().find(names_key).unwrap_or(begins);
                let key = key.replace('~', "~0").replace('/', "~1");
                locate(member, format!("{pointer}/{key}"), line, source, lines);
            }
        }
    }
    lines.0.insert(pointer, line);
}

/// Writes one document.
pub fn to_string(value: &impl Serialize) -> Result<String, Error> {
    // A folded scalar is one more thing that a reader can get wrong; long lines are not.
    let mut options = serde_saphyr::SerializerOptions::default();
    options.folded_wrap_chars = usize::MAX;
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Error { message: error.to_string(), line: None })
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
    Error {
        message: error.to_string().replace('\n', " ") + &hint,
        line: error.location().map(|location| location.line()),
    }
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

    #[test]
    fn every_value_has_the_line_of_its_key() {
        let text = "# comment\na: 1\nb:\n  c:\n  - d: x\n    e/f: |\n      text\n  - {g: 1,\n     h: 2}\n---\ni:\n";
        let documents = located(text).unwrap();
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
            ("/other", 2),
        ] {
            assert_eq!(first.of(pointer), line, "{pointer}");
        }
        assert_eq!(second.of("/i"), 11);
        assert_eq!(documents[0].0["b"]["c"][1]["h"], 2);
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
