//! Sets values of a YAML text and keeps every other byte (pure).
//!
//! It edits text only. Anchors, merge keys and rare layouts can change the meaning of the result, so the caller parses
//! and compares the result.

use std::ops::Range;

use serde_json::{Value, json};

use crate::text::{
    line_break,
    yaml::outline::{Member, Node, Shape, outline},
};

/// Sets the value at a path of keys in the first document. Returns `None` if the layout does not allow it.
pub fn set(text: &str, path: &[&str], value: &Value) -> Option<String> {
    let outline = outline(text).ok()??;
    let (range, replacement) = place(text, &outline.root, path, value)?;
    let mut edited = text.to_owned();
    edited.replace_range(range, &replacement);
    Some(edited)
}

/// Changes a document with the value `from` to the value `to` and keeps its comments. Returns `None` if the layout does not allow it.
pub fn change(text: &str, from: &Value, to: &Value) -> Option<String> {
    let mut edited = text.to_owned();
    for (path, value) in differences(from, to) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        edited = set(&edited, &path, value)?;
    }
    let is_right = super::from_str::<Value>(&edited).is_ok_and(|value| value == *to);
    is_right.then_some(edited)
}

/// Returns the innermost values that differ, with their paths. A removed value counts as a difference of its parent.
fn differences<'a>(from: &Value, to: &'a Value) -> Vec<(Vec<String>, &'a Value)> {
    let inside = |key: String, from: Option<&Value>, to: &'a Value| match from {
        Some(from) => {
            differences(from, to).into_iter().map(|(path, to)| ([vec![key.clone()], path].concat(), to)).collect()
        }
        None => vec![(vec![key], to)],
    };
    match (from, to) {
        _ if from == to => Vec::new(),
        (Value::Object(before), Value::Object(after)) if before.keys().all(|key| after.contains_key(key)) => {
            after.iter().flat_map(|(key, to)| inside(key.clone(), before.get(key), to)).collect()
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let items = before.iter().zip(after).enumerate();
            items.flat_map(|(index, (from, to))| inside(index.to_string(), Some(from), to)).collect()
        }
        _ => vec![(Vec::new(), to)],
    }
}

fn place(text: &str, node: &Node, path: &[&str], value: &Value) -> Option<(Range<usize>, String)> {
    let (key, rest) = path.split_first()?;
    if let Shape::List(items) = &node.shape {
        let item = items.get(key.parse::<usize>().ok()?)?;
        let is_scalar = matches!(item.shape, Shape::Scalar) && !(value.is_object() || value.is_array());
        return match rest {
            [] => is_scalar.then(|| (item.span.clone(), value.to_string())),
            _ => place(text, item, rest, value),
        };
    }
    let member = node.member(key);
    if let Some(member) = member
        && !rest.is_empty()
        && (member.value.is_mapping() || is_item(&member.value, rest[0]))
    {
        return place(text, &member.value, rest, value);
    }
    let value = rest.iter().rev().fold(value.clone(), |value, key| json!({ *key: value }));
    match (&node.shape, member) {
        (Shape::Null | Shape::Scalar | Shape::Alias(_) | Shape::List(_), _) => None,
        (Shape::Block(_), Some(member)) => replace_block(text, member, &value),
        (Shape::Block(members), None) => insert_block(text, members, key, &value),
        (Shape::Flow(_), Some(member)) => Some((member.span(), format!("{}: {value}", &text[member.key_span.clone()]))),
        (Shape::Flow(members), None) => {
            let entry = format!("{}: {value}", Value::from(*key));
            Some(match members.last() {
                Some(last) => (last.span().end..last.span().end, format!(", {entry}")),
                None => (node.span.start + 1..node.span.start + 1, entry),
            })
        }
    }
}

/// Whether a key is the index of an item.
fn is_item(list: &Node, key: &str) -> bool {
    matches!(&list.shape, Shape::List(items) if key.parse().is_ok_and(|index: usize| index < items.len()))
}

/// Keeps the spelling of the key and the comment beside it.
fn replace_block(text: &str, member: &Member, value: &Value) -> Option<(Range<usize>, String)> {
    let indent = indent(text, member)?;
    let start = member.key_span.start - indent.len();
    let end = end_of_line(text, member.span().end);
    let written = &text[member.key_span.clone()];
    let rendered = render(text, indent, &member.key, value)?;
    let (first, below) = rendered.split_once('\n')?;
    let own_lines = value.as_object().is_some_and(|members| !members.is_empty());
    let head = if matches!(member.value.shape, Shape::Block(_)) && own_lines {
        text[start..end_of_line(text, member.key_span.end)].to_owned()
    } else {
        let beside = if text[member.span()].contains('\n') { "" } else { text[member.span().end..end].trim_end() };
        let comment = if beside.trim_start().starts_with('#') { beside } else { "" };
        let after_key = first.get(indent.len() + member.key.len()..)?;
        format!("{indent}{written}{}{comment}{}", after_key.trim_end_matches('\r'), line_break(text))
    };
    Some((start..end, head + below))
}

fn insert_block(text: &str, members: &[Member], key: &str, value: &Value) -> Option<(Range<usize>, String)> {
    let indent = indent(text, members.first()?)?;
    let at = end_of_line(text, members.last()?.span().end);
    let before = if text[..at].ends_with('\n') { "" } else { line_break(text) };
    Some((at..at, format!("{before}{}", render(text, indent, key, value)?)))
}

/// The spaces before a key on its line; `None` if other text precedes it.
fn indent<'a>(text: &'a str, member: &Member) -> Option<&'a str> {
    let before = &text[..member.key_span.start];
    let indent = before.rsplit_once('\n').map_or(before, |(_, line)| line).trim_start_matches('\u{feff}');
    indent.bytes().all(|byte| byte == b' ').then_some(indent)
}

/// The end of the line around a position, with its line break; the position itself if a line begins there.
fn end_of_line(text: &str, at: usize) -> usize {
    if text[..at].ends_with('\n') {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |found| at + found + 1)
}

/// A member on its own lines, with the document's line breaks.
fn render(text: &str, indent: &str, key: &str, value: &Value) -> Option<String> {
    let rendered = super::to_string(&json!({ key: value })).ok()?;
    Some(rendered.lines().flat_map(|line| [indent, line, line_break(text)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_set_value_changes() {
        for (text, path, value, wanted) in [
            ("a: 1 # x\nb: 2\n", &["a"][..], json!(3), "a: 3 # x\nb: 2\n"),
            ("a: 1", &["b"], json!({"c": 2}), "a: 1\nb:\n  c: 2\n"),
            ("a: 1\r\n# end\r\n", &["b"], json!([2]), "a: 1\r\nb:\r\n- 2\r\n# end\r\n"),
            ("a:\n   b: 1\n   # in\nc: 2\n", &["a", "d"], json!(3), "a:\n   b: 1\n   d: 3\n   # in\nc: 2\n"),
            ("'a': # x\n  b: 1\n  c: 2 # gone\n# d\n", &["a"], json!({"e": 3}), "'a': # x\n  e: 3\n# d\n"),
            ("a: {} # x\nb: 1\n", &["a"], json!({"c": 3}), "a: # x\n  c: 3\nb: 1\n"),
            ("a:\nb: 1\n", &["a", "c"], json!(3), "a:\n  c: 3\nb: 1\n"),
            ("a:\n  b: 1\n", &["a"], json!({}), "a: {}\n"),
            ("a: {b: 1}\n", &["a", "b"], json!("x"), "a: {b: \"x\"}\n"),
            ("{\"a\": {},\n \"b\": 1 }\n", &["a", "c"], json!(["x"]), "{\"a\": {\"c\": [\"x\"]},\n \"b\": 1 }\n"),
            ("{\"a\": 1}", &["b", "c"], json!(2), "{\"a\": 1, \"b\": {\"c\":2}}"),
            ("---\na: 1\n...\n---\nb: 1\n", &["c"], json!(2), "---\na: 1\nc: 2\n...\n---\nb: 1\n"),
        ] {
            assert_eq!(set(text, path, &value).as_deref(), Some(wanted), "{text:?}");
        }
    }

    #[test]
    fn a_changed_text_keeps_its_comments() {
        for (text, to, wanted) in [
            ("# a\na: 1\n", json!({"a": 1}), "# a\na: 1\n"),
            ("# a\na:\n  b: 1 # b\n  c: 2\n", json!({"a": {"b": 3, "c": 4}}), "# a\na:\n  b: 3 # b\n  c: 4\n"),
            (
                "a:\n- b: 1\n  # c\n  c: [x, y]\n  d:\n  - z # z\n",
                json!({"a": [{"b": 1, "c": ["x", "w"], "d": ["v"]}]}),
                "a:\n- b: 1\n  # c\n  c: [x, \"w\"]\n  d:\n  - \"v\" # z\n",
            ),
        ] {
            let from = crate::text::yaml::from_str(text).unwrap();
            assert_eq!(change(text, &from, &to).as_deref(), Some(wanted), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_edited_is_left_to_the_caller() {
        assert_eq!(set("? a\n: 1\n", &["a"], &json!(2)), None);
        assert_eq!(set("- a\n", &["a"], &json!(2)), None);
        // The edit would need the indentation of the next line.
        assert_eq!(change("- a: 1\n", &json!([{"a": 1}]), &json!([{"a": 1, "b": 2}])), None);
        assert_eq!(change("- a\n", &json!(["a"]), &json!([])), None);
    }
}
