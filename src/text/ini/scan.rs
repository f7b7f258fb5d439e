//! Parses the lines of an INI text in gcfg's dialect (pure).

use crate::text::{
    Place, Problem,
    ini::{Entry, Header, Item, Line},
};

/// All logical lines of a text, in order. Concatenated, they are the text.
pub(crate) fn lines(source: &str) -> Result<Vec<Line>, Problem> {
    let mut scanner = Scanner { source, at: 0, line: 1 };
    let mut lines = Vec::new();
    let mut in_section = false;
    while scanner.at < source.len() {
        let (start, number) = (scanner.at, scanner.line);
        let item = scanner.item(start, in_section)?;
        in_section |= matches!(item, Item::Header(_));
        let terminated = scanner.end_of_line()?;
        let text = source[start..scanner.at].to_owned();
        lines.push(Line { text, number, terminated, item });
    }
    Ok(lines)
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn bump(&mut self) {
        if let Some(next) = self.peek() {
            self.at += next.len_utf8();
            self.line += usize::from(next == '\n');
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, Problem> {
        let before = self.source[..self.at].rsplit('\n').next().unwrap_or_default();
        let place = Place { line: self.line, column: Some(before.chars().count() + 1) };
        Err(Problem { place: Some(place), message: message.into() })
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.bump();
        }
    }

    /// The content of the current line, without its end.
    fn item(&mut self, start: usize, in_section: bool) -> Result<Item, Problem> {
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | ';' | '#') => Ok(Item::Other),
            Some('[') => self.header().map(Item::Header),
            Some(_) if !in_section => {
                self.error("a key stands before the first section; add a section such as `[Global]` above it")
            }
            Some(first) if is_letter(first) => self.entry(start).map(Item::Entry),
            Some(first) => self.error(format!("a section or a key cannot begin with {first:?}")),
        }
    }

    /// Advances to the next line; false if the text ends without a line break.
    fn end_of_line(&mut self) -> Result<bool, Problem> {
        self.skip_blanks();
        if matches!(self.peek(), Some(';' | '#')) {
            while !matches!(self.peek(), None | Some('\n')) {
                self.bump();
            }
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
        self.bump();
        self.skip_blanks();
        let name = self.name();
        if name.is_empty() {
            return self.error("a section's name is missing; write it as `[Global]`");
        }
        self.skip_blanks();
        let sub = if self.peek() == Some('"') { self.sub_section()? } else { String::new() };
        self.skip_blanks();
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

    fn entry(&mut self, start: usize) -> Result<Entry, Problem> {
        let key = self.name();
        let key_end = self.at - start;
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | ';' | '#') => {
                return Ok(Entry { key, value: None, key_end, after_equals: key_end, literal: key_end..key_end });
            }
            Some('=') => self.bump(),
            Some(other) => {
                return self.error(format!(
                    "`=` is missing after `{key}`, or {other:?} is invalid in a key; keys consist of letters, digits and `-`"
                ));
            }
        }
        let after_equals = self.at - start;
        self.skip_blanks();
        let begin = self.at;
        let (value, end) = self.value()?;
        Ok(Entry { key, value: Some(value), key_end, after_equals, literal: begin - start..end - start })
    }

    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|next| is_letter(next) || is_digit(next) || next == '-') {
            self.bump();
        }
        self.source[start..self.at].to_owned()
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
fn is_letter(character: char) -> bool {
    if character.is_ascii() { character.is_ascii_alphabetic() } else { character.is_alphabetic() }
}

fn is_digit(character: char) -> bool {
    if character.is_ascii() { character.is_ascii_digit() } else { character.is_numeric() }
}
