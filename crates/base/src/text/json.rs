//! Edits a JSON object in place (pure). Members that are not edited keep every byte.
//!
//! `serde_json` is as strict as Go's `encoding/json`, reports line and column, and its `RawValue` is a slice of the source,
//! which gives the position of a member. The `cst` feature of `jsonc-parser` accepts raw control characters and all Unicode
//! spaces, which Go refuses, and splits a one-line object into several lines when a member is added.

use std::{borrow::Cow, fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{error::Category, value::RawValue};

use crate::text::Problem;

/// A JSON object and the edits to it.
pub struct Document<'a> {
    text: &'a str,
    /// Some editors write a byte order mark. It is dropped, because Go's JSON decoder refuses it.
    pub had_byte_order_mark: bool,
    /// The members in order, including repeated ones.
    pub members: Vec<Member<'a>>,
    replaced: Vec<(Range<usize>, String)>,
    added: Vec<(&'static str, String)>,
}

/// A name and its value.
pub struct Member<'a> {
    /// The decoded name.
    pub name: Cow<'a, str>,
    /// The value as written in the source.
    pub value: &'a str,
    /// The line of the value, from 1.
    pub line: usize,
    /// The position of the value.
    pub span: Range<usize>,
}

impl<'a> Document<'a> {
    /// Parses a text that consists of one object.
    pub fn parse(source: &'a str) -> Result<Self, Problem> {
        let text = source.strip_prefix('\u{feff}').unwrap_or(source);
        let Pairs(pairs) = serde_json::from_str(text).map_err(|error| refused(text, &error))?;
        let (mut line, mut at) = (1, 0);
        let placed = pairs.into_iter().map(|(name, value)| {
            // The value is a slice of the text.
            let start = (value.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            line += text.get(at..start).unwrap_or_default().matches('\n').count();
            at = start;
            Member { name, value, line, span: start..start + value.len() }
        });
        let (members, had_byte_order_mark) = (placed.collect(), text.len() < source.len());
        Ok(Self { text, had_byte_order_mark, members, replaced: Vec::new(), added: Vec::new() })
    }

    /// The members with this name, ignoring case.
    pub fn named<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s Member<'a>> {
        self.members.iter().filter(move |member| is_named(&member.name, name))
    }

    /// The effective member with this name: the last that is not null, as in Go's decoder.
    pub fn last(&self, name: &str) -> Option<&Member<'a>> {
        self.members.iter().rfind(|member| is_named(&member.name, name) && member.value != "null")
    }

    /// Sets every member with this name, or adds one at the end. Readers differ on which of several members is effective:
    /// Go's JSON decoder takes the last one, its YAML decoder the last one in byte order of the names.
    pub fn set(&mut self, name: &'static str, value: &serde_json::Value) {
        let ranges: Vec<_> = self.named(name).map(|member| member.span.clone()).collect();
        if ranges.is_empty() {
            self.added.push((name, value.to_string()));
        }
        self.replaced.extend(ranges.into_iter().map(|range| (range, value.to_string())));
    }

    /// The edited text.
    pub fn write(mut self) -> String {
        let open = self.text.find('{').map_or(0, |brace| brace + 1);
        let end = self.members.last().map_or(open, |member| member.span.end);
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

    /// The added members, with the line break and indentation of the first member.
    fn additions(&self, open: usize) -> String {
        let after = self.text.get(open..).unwrap_or_default();
        let space = &after[..after.len() - after.trim_start().len()];
        let space = if self.members.is_empty() { "" } else { space };
        let colon = if space.is_empty() { ":" } else { ": " };
        let mut text = String::new();
        for (index, (name, value)) in self.added.iter().enumerate() {
            let comma = if index == 0 && self.members.is_empty() { "" } else { "," };
            text.extend([comma, space, "\"", name, "\"", colon, value]);
        }
        text
    }
}

impl Member<'_> {
    /// The decoded value, if it is a string.
    pub fn as_text(&self) -> Option<String> {
        serde_json::from_str(self.value).ok()
    }
}

/// The names and values of an object.
struct Pairs<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    pairs.push((name, map.next_value::<&RawValue>()?.get()));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A name that is borrowed where possible; serde itself always copies a `Cow`.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Whether Go treats two names as equal: it folds case as Unicode does, where two non-ASCII letters fold to `k` and `s`.
pub fn is_named(name: &str, other: &str) -> bool {
    letters(name).eq(letters(other))
}

/// Returns the case-folded name: the same text for equal names.
pub fn folded(name: &str) -> String {
    letters(name).collect()
}

fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|letter| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    })
}

/// The parser's messages contain values only for data of the wrong type, which gets a message of our own.
fn refused(text: &str, error: &serde_json::Error) -> Problem {
    if text.trim().is_empty() {
        return Problem::new("the text is empty; expected a JSON object");
    }
    if error.classify() == Category::Data {
        return Problem::at(error.line(), "expected a JSON object, found another value");
    }
    error.into()
}

/// Rewrites the characters and escapes that are valid JSON but that the YAML decoder of Azure's cloud-controller-manager
/// refuses. `None` if there are none. The text must be valid JSON, in which they occur in strings and names only.
pub fn readable_as_yaml(text: &str) -> Option<String> {
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

/// The character of a surrogate pair; a lone surrogate becomes U+FFFD, as in Go.
fn surrogates(high: u16, text: &str) -> (Cow<'static, str>, usize) {
    let low = text.get(6..).and_then(unit);
    match low.and_then(|low| char::decode_utf16([high, low]).next()?.ok().filter(|_| high < 0xdc00)) {
        Some(whole) => (Cow::Owned(whole.to_string()), 12),
        None => (Cow::Borrowed("\u{fffd}"), 6),
    }
}

/// The code unit of the `\uXXXX` at the start of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}
