//! Edits a JSON object in place (pure): what is not edited stays as it is, byte for byte.
//!
//! It stands on `serde_json` alone: it is as strict as Go's `encoding/json`, names line and column, and its `RawValue` is a
//! piece of the source, so where a member stands is known and the rest is two splices. The `cst` feature of `jsonc-parser`
//! was tried first: it takes raw control characters and every Unicode space, which Go refuses, and breaks a one-line
//! object into several lines when a member is added.

use std::{borrow::Cow, fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{error::Category, value::RawValue};

use crate::text::{Place, Problem};

/// What some editors write before a text. Go's JSON decoder refuses it.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// A JSON object and what is to be different in it.
pub(crate) struct Document<'a> {
    text: &'a str,
    members: Members<'a>,
    replaced: Vec<(Range<usize>, String)>,
    added: Vec<(&'static str, String)>,
}

/// The members of an object in their order, repeated ones too.
struct Members<'a>(Vec<Member<'a>>);

/// A member of an object.
pub(crate) struct Member<'a> {
    /// Its name, decoded.
    pub(crate) name: Cow<'a, str>,
    /// Its value as it was written.
    pub(crate) value: &'a str,
}

impl<'a> Document<'a> {
    /// Reads a text that holds one object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Problem> {
        let members = serde_json::from_str(text).map_err(|error| refused(text, &error))?;
        Ok(Self { text, members, replaced: Vec::new(), added: Vec::new() })
    }

    /// All members, in their order, each with the line of its value, from 1.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, &Member<'a>)> {
        let (mut line, mut from) = (1, 0);
        self.members.0.iter().map(move |member| {
            let start = self.range(member).start;
            line += self.text.get(from..start).unwrap_or_default().matches('\n').count();
            from = start;
            (line, member)
        })
    }

    /// The members of a name, ignoring case.
    pub(crate) fn named<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s Member<'a>> {
        self.members.0.iter().filter(move |member| is_named(&member.name, name))
    }

    /// The one that counts among the members of a name: the last that is not null, as Go's decoder takes it.
    pub(crate) fn last(&self, name: &str) -> Option<&Member<'a>> {
        self.members.0.iter().rfind(|member| is_named(&member.name, name) && member.value != "null")
    }

    /// Gives every member of a name this value, or adds one at the end. Readers differ on which of several counts: Go's JSON
    /// decoder takes the last, its YAML decoder the last in the order of the bytes of the names.
    pub(crate) fn set(&mut self, name: &'static str, value: &serde_json::Value) {
        let ranges: Vec<_> = self.named(name).map(|member| self.range(member)).collect();
        if ranges.is_empty() {
            self.added.push((name, value.to_string()));
        }
        self.replaced.extend(ranges.into_iter().map(|range| (range, value.to_string())));
    }

    /// The line of a member's value, from 1.
    pub(crate) fn line(&self, member: &Member<'_>) -> usize {
        self.text.get(..self.range(member).start).unwrap_or_default().split('\n').count()
    }

    /// The text with what was set.
    pub(crate) fn write(mut self) -> String {
        let open = self.text.find('{').map_or(0, |brace| brace + 1);
        let end = self.members.0.last().map_or(open, |member| self.range(member).end);
        self.replaced.push((end..end, self.additions(open)));
        self.replaced.sort_by_key(|(range, _)| (range.start, range.end));
        let mut written = String::with_capacity(self.text.len() + 256);
        let mut from = 0;
        for (range, new) in &self.replaced {
            written += self.text.get(from..range.start).unwrap_or_default();
            written += new;
            from = range.end;
        }
        written + self.text.get(from..).unwrap_or_default()
    }

    /// What is added, written as the object begins: with the same line break and indentation.
    fn additions(&self, open: usize) -> String {
        let after = self.text.get(open..).unwrap_or_default();
        let space = &after[..after.len() - after.trim_start().len()];
        let space = if self.members.0.is_empty() { "" } else { space };
        let colon = if space.is_empty() { ":" } else { ": " };
        let mut text = String::new();
        for (index, (name, value)) in self.added.iter().enumerate() {
            let comma = if index == 0 && self.members.0.is_empty() { "" } else { "," };
            text.extend([comma, space, "\"", name, "\"", colon, value]);
        }
        text
    }

    /// Where a member's value stands: it is a piece of the text.
    fn range(&self, member: &Member<'_>) -> Range<usize> {
        let start = (member.value.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + member.value.len()
    }
}

impl Member<'_> {
    /// The value when it is a string, decoded.
    pub(crate) fn as_text(&self) -> Option<String> {
        serde_json::from_str(self.value).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push(Member { name, value: map.next_value::<&RawValue>()?.get() });
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A name; serde itself would always copy it.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Whether two names are the same to Go, which folds case as Unicode does: two letters beyond ASCII are `k` and `s` then.
pub(crate) fn is_named(name: &str, other: &str) -> bool {
    let fold = |letter: char| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(other.chars().map(fold))
}

/// The parser's own words hold values only where the shape is wrong, which is said in ours.
fn refused(text: &str, error: &serde_json::Error) -> Problem {
    if text.trim().is_empty() {
        return Problem { place: None, message: "it is empty: it must hold a JSON object".to_owned() };
    }
    let is_other_value = error.classify() == Category::Data;
    let message = if is_other_value {
        "it must hold a JSON object, and holds another value".to_owned()
    } else {
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        format!("it must hold a JSON object, and is not JSON: {words}")
    };
    let column = (!is_other_value).then_some(error.column());
    Problem { place: Some(Place { line: error.line(), column }), message }
}

/// Writes the few characters and escapes that JSON knows and the YAML decoder of Azure's cloud-controller-manager refuses in
/// another way that both know, with the same meaning. `None` when there are none. The text is valid JSON: all of them stand in
/// strings and names.
pub(crate) fn readable_as_yaml(text: &str) -> Option<String> {
    let is_refused =
        |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if !text.contains(|c| c == '\\' || is_refused(c)) {
        return None;
    }
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (new, taken) = match first {
            '\\' if rest.starts_with("\\/") => (Cow::Borrowed("/"), 2),
            '\\' => match unit(rest) {
                Some(high @ 0xd800..=0xdfff) => surrogates(high, rest),
                _ => (Cow::Borrowed(rest.get(..2).unwrap_or(rest)), 2.min(rest.len())),
            },
            other if is_refused(other) => (Cow::Owned(format!("\\u{:04x}", u32::from(other))), other.len_utf8()),
            other => (Cow::Borrowed(&rest[..other.len_utf8()]), other.len_utf8()),
        };
        written += &new;
        rest = rest.get(taken..).unwrap_or_default();
    }
    (written != text).then_some(written)
}

/// The character of two escapes; half a one is what Go makes of it.
fn surrogates(high: u16, text: &str) -> (Cow<'static, str>, usize) {
    let low = text.get(6..).and_then(unit);
    match low.and_then(|low| char::decode_utf16([high, low]).next()?.ok().filter(|_| high < 0xdc00)) {
        Some(whole) => (Cow::Owned(whole.to_string()), 12),
        None => (Cow::Borrowed("\u{fffd}"), 6),
    }
}

/// The number of the `\uXXXX` that a text begins with.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}
