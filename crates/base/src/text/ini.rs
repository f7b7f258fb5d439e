//! Edits an INI text in place, in the dialect of gopkg.in/gcfg.v1, which cloud-controller-managers read (pure).
//!
//! Lines that are not edited keep every byte. No crate that preserves the text reads this dialect: gix-config (sixty
//! crates) accepts `[a.b]`, refuses `[ a ]` and moves a key that is on its header's line; ini-roundtrip and ini-edit
//! have no quotes, escapes or continued lines; rust-ini and configparser do not preserve the text.

use std::ops::Range;

use crate::text::{Change, Problem, line_break};

mod scan;

/// A section's `[Name]` or `[Name "sub"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// As written; compared ignoring case.
    pub name: String,
    /// Empty when there is none; compared exactly.
    pub sub: String,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written; compared ignoring case.
    pub key: String,
    /// Without quotes and escapes; `None` without `=`, which gcfg reads as true for a boolean.
    pub value: Option<String>,
    key_end: usize,
    /// The value as written. An empty range after the `=` for an empty value, and after the key without `=`.
    literal: Range<usize>,
}

/// A key with its place.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The section.
    pub header: &'a Header,
    /// The line, from 1.
    pub line: usize,
    /// The key and its value.
    pub entry: &'a Entry,
}

/// An INI text and the changes made to it.
#[derive(Debug)]
pub struct Document {
    lines: Vec<Line>,
    line_end: &'static str,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Line {
    text: String,
    number: usize,
    /// False for a last line without a line break.
    terminated: bool,
    item: Item,
}

#[derive(Clone, Debug)]
enum Item {
    /// A blank line or a comment.
    Other,
    Header(Header),
    Entry(Entry),
}

impl Header {
    /// Whether this is the header of a section without a sub-section.
    pub fn is(&self, section: &str) -> bool {
        self.sub.is_empty() && self.name.eq_ignore_ascii_case(section)
    }
}

impl Entry {
    /// The value, unless it is blank.
    pub fn set(&self) -> Option<&str> {
        self.value.as_deref().filter(|value| !value.trim().is_empty())
    }
}

impl Document {
    /// Parses a text. Fails where gcfg fails.
    pub fn parse(source: &str) -> Result<Self, Problem> {
        if let Some(at) = source.find('\0') {
            let line = 1 + source[..at].matches('\n').count();
            return Err(Problem::at(line, "a NUL character; remove it"));
        }
        let text = source.strip_prefix('\u{feff}');
        let mut document =
            Self { lines: scan::lines(text.unwrap_or(source))?, line_end: line_break(source), changes: Vec::new() };
        if text.is_some() {
            let rule = "the cloud-controller-manager refuses a byte order mark";
            document.changed(rule, "byte order mark".to_owned(), Some("\u{feff}"), None);
        }
        Ok(document)
    }

    /// All section headers, with their lines.
    pub fn headers(&self) -> impl Iterator<Item = (usize, &Header)> {
        self.lines.iter().filter_map(|line| match &line.item {
            Item::Header(header) => Some((line.number, header)),
            _ => None,
        })
    }

    /// All keys, in order.
    pub fn entries(&self) -> impl Iterator<Item = Placed<'_>> {
        self.placed().map(|(_, placed)| placed)
    }

    /// The byte ranges of the text, in order: of each value with its key, and of every other part with `None`.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&str>, Range<usize>)> {
        let mut end = 0;
        self.lines.iter().flat_map(move |line| {
            let start = end;
            end += line.text.len();
            let value = match &line.item {
                Item::Entry(entry) => {
                    Some((entry.key.as_str(), start + entry.literal.start..start + entry.literal.end))
                }
                Item::Header(_) | Item::Other => None,
            };
            let rest = value.as_ref().map_or(start, |(_, value)| value.end)..end;
            value.map(|(key, value)| (Some(key), value)).into_iter().chain([(None, rest)])
        })
    }

    /// The effective key: gcfg keeps the last one.
    pub fn get(&self, section: &str, key: &str) -> Option<Placed<'_>> {
        self.find(section, key).last().map(|(_, placed)| placed)
    }

    /// Sets a key to a value that needs no quotes. Earlier occurrences in the section are removed, because gcfg reads them.
    pub fn set(&mut self, rule: &'static str, section: &str, key: &str, value: &str) {
        let mut earlier = self.positions(section, key);
        earlier.pop();
        self.remove(rule, section, earlier);
        let Some((at, found)) = self.find(section, key).last() else {
            self.add(section, key, value);
            self.changed(rule, format!("[{section}] {key}"), None, Some(value));
            return;
        };
        if found.entry.value.as_deref() == Some(value) {
            return;
        }
        let (entry, before) = (found.entry.clone(), found.entry.value.clone().unwrap_or_default());
        self.changed(rule, format!("[{section}] {key}"), Some(&before), Some(value));
        let line = &mut self.lines[at];
        let separator = match entry.value {
            None => " = ",
            Some(_) if entry.literal.is_empty() && line.text[..entry.literal.start].ends_with(" =") => " ",
            Some(_) => "",
        };
        line.text.replace_range(entry.literal, &format!("{separator}{value}"));
        line.item = scan::item(&line.text);
    }

    /// Sets a key that has no value yet.
    pub fn set_unless_set(&mut self, rule: &'static str, section: &str, key: &str, value: &str) {
        if self.get(section, key).is_none_or(|found| found.entry.set().is_none()) {
            self.set(rule, section, key, value);
        }
    }

    /// Removes every occurrence of a key in a section, with its line.
    pub fn drop_key(&mut self, rule: &'static str, section: &str, key: &str) {
        self.remove(rule, section, self.positions(section, key));
    }

    /// Removes a section from its header to its last key. Keeps comments below, which may belong to the next section.
    pub fn drop_section(&mut self, rule: &'static str, section: &str) {
        let blocks: Vec<_> = self.blocks(section).collect();
        let gone = blocks.into_iter().flatten().collect();
        self.remove(rule, section, gone);
    }

    /// The text and the changes.
    pub fn finish(self) -> (String, Vec<Change>) {
        (self.lines.into_iter().map(|line| line.text).collect(), self.changes)
    }

    /// Removes lines, given by ascending indexes.
    fn remove(&mut self, rule: &'static str, section: &str, gone: Vec<usize>) {
        let mut gone = gone.into_iter().peekable();
        for (at, line) in std::mem::take(&mut self.lines).into_iter().enumerate() {
            if gone.next_if_eq(&at).is_none() {
                self.lines.push(line);
                continue;
            }
            match line.item {
                Item::Entry(entry) => {
                    let before = entry.value.unwrap_or_default();
                    self.changed(rule, format!("[{section}] {}", entry.key), Some(&before), None);
                }
                Item::Header(_) => self.changed(rule, format!("[{section}]"), Some(""), None),
                Item::Other => {}
            }
        }
    }

    fn changed(&mut self, rule: &'static str, key: String, before: Option<&str>, after: Option<&str>) {
        let (before, after) = (before.map(str::to_owned), after.map(str::to_owned));
        self.changes.push(Change { rule, key, before, after });
    }

    /// Adds a key below the last key of its section, in the same style. Adds the section if it does not exist.
    fn add(&mut self, section: &str, key: &str, value: &str) {
        if self.blocks(section).next().is_none() {
            if self.lines.last().is_some_and(|last| !last.text.trim().is_empty()) {
                self.insert(self.lines.len(), String::new());
            }
            self.insert(self.lines.len(), format!("[{section}]"));
        }
        let end = self.blocks(section).last().map_or(self.lines.len(), |block| block.end);
        let (indent, separator) = self.lines[end - 1].style();
        let line = format!("{indent}{key}{separator}{value}");
        self.insert(end, line);
    }

    fn insert(&mut self, at: usize, text: String) {
        if let Some(before) = self.lines[..at].last_mut().filter(|before| !before.terminated) {
            before.text.push_str(self.line_end);
            before.terminated = true;
        }
        let item = scan::item(&text);
        self.lines.insert(at, Line { text: text + self.line_end, number: 0, terminated: true, item });
    }

    /// The line ranges of the matching sections, from the header to the last key.
    fn blocks(&self, section: &str) -> impl Iterator<Item = Range<usize>> {
        self.lines.iter().enumerate().filter_map(move |(start, line)| match &line.item {
            Item::Header(header) if header.is(section) => {
                let body = self.lines[start + 1..].iter().take_while(|line| !matches!(line.item, Item::Header(_)));
                let keys = body.enumerate().filter(|(_, line)| matches!(line.item, Item::Entry(_)));
                Some(start..keys.last().map_or(start + 1, |(last, _)| start + last + 2))
            }
            _ => None,
        })
    }

    fn positions(&self, section: &str, key: &str) -> Vec<usize> {
        self.find(section, key).map(|(at, _)| at).collect()
    }

    fn find(&self, section: &str, key: &str) -> impl Iterator<Item = (usize, Placed<'_>)> {
        self.placed().filter(move |(_, found)| found.header.is(section) && found.entry.key.eq_ignore_ascii_case(key))
    }

    fn placed(&self) -> impl Iterator<Item = (usize, Placed<'_>)> {
        let mut header = None;
        self.lines.iter().enumerate().filter_map(move |(at, line)| {
            if let Item::Header(found) = &line.item {
                header = Some(found);
            }
            let Item::Entry(entry) = &line.item else { return None };
            Some((at, Placed { header: header?, line: line.number, entry }))
        })
    }
}

impl Line {
    /// The style of a key: the indentation, and the text between key and value.
    fn style(&self) -> (&str, &str) {
        let Item::Entry(entry) = &self.item else { return ("", " = ") };
        let indent = &self.text[..self.text.len() - self.text.trim_start_matches([' ', '\t']).len()];
        let separator = &self.text[entry.key_end..entry.literal.start];
        (indent, if entry.set().is_some() { separator } else { " = " })
    }
}

#[cfg(test)]
mod tests;
