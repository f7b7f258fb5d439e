//! Parses the lines of an INI text in gcfg's dialect (pure).

use crate::text::{
    Place, Problem,
    ini::{Entry, Header, Item, Line},
};

/// All logical lines of a text, in order. Concatenated, they are the text.
pub(super) fn lines(source: &str) -> Result<Vec<Line>, Problem> {
    let mut scanner = Scanner { source, start: 0, at: 0, in_section: false };
    let (mut lines, mut number) = (Vec::new(), 1);
    while scanner.at < source.len() {
        scanner.start = scanner.at;
        let item = scanner.item()?;
        let terminated = scanner.end_of_line()?;
        let text = &source[scanner.start..scanner.at];
        lines.push(Line { text: text.to_owned(), number, terminated, item });
        number += text.matches('\n').count();
    }
    Ok(lines)
}

/// The content of a valid line of a section.
pub(super) fn item(line: &str) -> Item {
    Scanner { source: line, start: 0, at: 0, in_section: true }.item().unwrap_or(Item::Other)
}

struct Scanner<'a> {
    source: &'a str,
    /// The beginning of the current line.
    start: usize,
    at: usize,
    in_section: bool,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn bump(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    /// Skips the characters that match.
    fn skip(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.source[self.at..];
        let skipped = &rest[..rest.find(|c| !matches(c)).unwrap_or(rest.len())];
        self.at += skipped.len();
        skipped
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, Problem> {
        let before = &self.source[..self.at];
        let (line, column) = (before.split('\n').count(), before.chars().rev().take_while(|c| *c != '\n').count() + 1);
        let place = Place { line, column: Some(column) };
        Err(Problem { place: Some(place), message: message.into() })
    }

    /// The content of the current line, without its end.
    fn item(&mut self) -> Result<Item, Problem> {
        self.skip(is_blank);
        match self.peek() {
            None | Some('\n' | ';' | '#') => Ok(Item::Other),
            Some('[') => self.header().map(Item::Header),
            Some(_) if !self.in_section => {
                self.error("a key precedes the first section; add a section such as `[Global]` above it")
            }
            Some(first) if first.is_alphabetic() => self.entry().map(Item::Entry),
            Some(first) => self.error(format!("a section or a key cannot begin with {first:?}")),
        }
    }

    /// Advances to the next line; false if the text ends without a line break.
    fn end_of_line(&mut self) -> Result<bool, Problem> {
        self.skip(is_blank);
        if matches!(self.peek(), Some(';' | '#')) {
            self.skip(|c| c != '\n');
        }
        match self.peek() {
            None => Ok(false),
            Some('\n') => {
                self.bump();
                Ok(true)
            }
            Some(_) => self.error("a section's `]` must be the last on its line; move the rest to the next line"),
        }
    }

    fn header(&mut self) -> Result<Header, Problem> {
        self.in_section = true;
        self.bump();
        self.skip(is_blank);
        let name = self.skip(is_name).to_owned();
        if name.is_empty() {
            return self.error("a section's name is missing; write it as `[Global]`");
        }
        self.skip(is_blank);
        let sub = if self.peek() == Some('"') { self.sub_section()? } else { String::new() };
        self.skip(is_blank);
        if self.peek() != Some(']') {
            return self.error("a section's `]` is missing; write it as `[Global]` or `[ServiceOverride \"1\"]`");
        }
        self.bump();
        Ok(Header { name, sub })
    }

    fn sub_section(&mut self) -> Result<String, Problem> {
        let mut sub = String::new();
        loop {
            self.bump();
            match self.peek() {
                None | Some('\n') => return self.error("a section's closing quote is missing"),
                Some('"') if sub.is_empty() => return self.error("the name between a section's quotes is empty"),
                Some('"') => break,
                Some('\\') => {
                    self.bump();
                    match self.peek() {
                        Some(escaped @ ('\\' | '"')) => sub.push(escaped),
                        _ => return self.error("between a section's quotes, `\\` is valid before `\\` and `\"` only"),
                    }
                }
                Some(other) => sub.push(other),
            }
        }
        self.bump();
        Ok(sub)
    }

    fn entry(&mut self) -> Result<Entry, Problem> {
        let key = self.skip(is_name).to_owned();
        let key_end = self.at - self.start;
        self.skip(is_blank);
        match self.peek() {
            None | Some('\n' | ';' | '#') => {
                return Ok(Entry { key, value: None, key_end, literal: key_end..key_end });
            }
            Some('=') => self.bump(),
            Some(other) => {
                // The key may be a line of a secret.
                return self.error(format!(
                    "`=` is missing after the key, or {other:?} is invalid in it; keys consist of letters, digits and `-`"
                ));
            }
        }
        let after_equals = self.at;
        self.skip(is_blank);
        let begin = self.at;
        let (value, end) = self.value()?;
        let literal = if begin == end { after_equals..after_equals } else { begin..end };
        Ok(Entry { key, value: Some(value), key_end, literal: literal.start - self.start..literal.end - self.start })
    }

    /// The decoded value and the position of its end.
    fn value(&mut self) -> Result<(String, usize), Problem> {
        let (mut value, mut quoted) = (String::new(), false);
        // Trailing blanks are not part of the value.
        let (mut kept, mut end) = (0, self.at);
        loop {
            let next = self.peek();
            match next {
                None | Some('\n') if quoted => return self.error("a value's closing quote is missing on its line"),
                None | Some('\n') => break,
                Some(';' | '#') if !quoted => break,
                Some('"') => quoted = !quoted,
                Some('\\') => self.escape(quoted, &mut value)?,
                // gcfg drops it everywhere, even between quotes.
                Some('\r') => {}
                Some(other) => value.push(other),
            }
            self.bump();
            if quoted || !next.is_some_and(is_blank) {
                (kept, end) = (value.len(), self.at);
            }
        }
        value.truncate(kept);
        Ok((value, end))
    }

    /// Reads an escape sequence, up to its last character.
    fn escape(&mut self, quoted: bool, value: &mut String) -> Result<(), Problem> {
        self.bump();
        if !quoted && self.peek() == Some('\r') {
            self.bump();
        }
        match self.peek() {
            Some('"') => value.push('"'),
            Some('\n') if !quoted => {}
            Some('\\') if quoted => value.push('\\'),
            Some('n') if quoted => value.push('\n'),
            Some('t') if quoted => value.push('\t'),
            _ if quoted => return self.error("between quotes, `\\` is valid before `\\`, `\"`, `n` and `t` only"),
            _ => {
                return self.error(
                    "`\\` is valid before `\"` or the end of a line only; put the value in quotes and write `\\\\`",
                );
            }
        }
        Ok(())
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r')
}

/// Accepts a few more non-ASCII letters than gcfg, because it must not be stricter.
fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '-'
}
