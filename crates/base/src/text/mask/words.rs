//! Finds secrets in texts of unknown structure: comments, messages, logs (pure).

use std::ops::Range;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::text::{
    mask::{
        is_harmless_value, is_secret_key,
        named::{TOKEN, is_password, named_secret, tokens},
        parts::{Part, Parts},
        squashed,
    },
    work,
};

/// The first characters of a comment or a list item.
const MARKERS: [char; 7] = [' ', '\t', '#', ';', '/', '*', '-'];

/// Names of secrets in the query of a URL that are harmless elsewhere.
const QUERY: [&str; 5] = ["key", "sig", "signature", "code", "xamzsignature"];

/// Returns the byte ranges of the secrets in a part of a text.
pub(super) fn secrets(text: &str, part: Range<usize>) -> Vec<Range<usize>> {
    Reader::default().read(text, part)
}

/// Returns the secrets of a message.
pub(super) fn of_message(line: &str) -> Vec<Range<usize>> {
    Reader { is_message: true, ..Reader::default() }.read(line, 0..line.len())
}

/// The state that the previous lines leave for the next one.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct Reader {
    /// Whether the text is a message in prose.
    is_message: bool,
    /// In a private key.
    private_key: bool,
    /// The value of a secret's key continues in lines that are indented deeper than this.
    block: Option<usize>,
    /// The value continues until this character closes it.
    open: Option<Open>,
    /// The value continues in the next line, after a `\`.
    is_continued: bool,
    /// The previous line ended with the key.
    is_key: bool,
    /// The end of the last part.
    end: usize,
}

/// A quote or a bracket, and its nesting depth.
#[derive(Clone, Copy)]
struct Open {
    left: char,
    right: char,
    depth: usize,
}

impl Reader {
    /// Reads a part of a text, after the parts before it.
    pub(super) fn read(&mut self, text: &str, part: Range<usize>) -> Vec<Range<usize>> {
        let (mut found, mut start) = (Vec::new(), part.start);
        for line in text[part].split_inclusive('\n') {
            let end = start + line.len();
            let content = line.trim_end();
            let secrets = self.line(&text[start..start + content.len()]);
            found.extend(secrets.into_iter().map(|secret| start + secret.start..start + secret.end));
            start = end;
        }
        found
    }

    /// Reads the comments in a part of YAML without scalars.
    pub(super) fn comments(&mut self, text: &str, part: Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut start = part.start;
        for line in text[part].split_inclusive('\n') {
            if let Some(at) = line.find('#').map(|at| start + at) {
                // A line without a comment ends the value that a comment began.
                if text[self.end.min(at)..at].matches('\n').count() != 1 {
                    *self = Self::default();
                }
                self.end = start + line.trim_end().len();
                found.extend(self.read(text, at..start + line.len()));
            }
            start += line.len();
        }
        found
    }

    fn line(&mut self, line: &str) -> Vec<Range<usize>> {
        let line_without_mark = line.trim_start_matches('\u{feff}');
        let start = line.len() - line_without_mark.trim_start_matches(MARKERS).len();
        let indent = start - (line.len() - line_without_mark.len());
        let whole = line.len() - line.trim_start().len()..line.len();
        if let Some(found) = self.pem(line) {
            return vec![found];
        }
        if let Some(open) = self.open.take() {
            self.open = open.after(line);
            return vec![whole];
        }
        if std::mem::take(&mut self.is_continued) {
            self.is_continued = line.ends_with('\\');
            return vec![whole];
        }
        let content = &line[start..];
        if let Some(above) = self.block
            && !content.is_empty()
        {
            if indent > above {
                return vec![whole];
            }
            self.block = None;
        }
        if std::mem::take(&mut self.is_key) && content.starts_with([':', '=']) {
            return vec![whole];
        }
        let mut found: Vec<_> = self.values(line, indent);
        found.extend(passwords(line));
        found.extend(tokens(line));
        found
    }

    /// Returns the part of a line that belongs to a private key.
    fn pem(&mut self, line: &str) -> Option<Range<usize>> {
        const END: &str = "-----";
        let begins = line.find("-----BEGIN ").and_then(|at| {
            let name = at + line[at..].find("PRIVATE KEY")?;
            Some(name + line[name..].find(END)? + END.len())
        });
        if begins.is_none() && !self.private_key {
            return None;
        }
        self.private_key = !line[begins.unwrap_or_default()..].contains("-----END ");
        Some(begins.unwrap_or(line.len() - line.trim_start().len())..line.len())
    }

    /// Returns the values of keys with the names of secrets.
    fn values(&mut self, line: &str, indent: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        let mut words = Parts::new(line, char::is_whitespace, |word| word.trim_end_matches(PUNCTUATION).len());
        let last = line.trim_end().len();
        while let Some(start) = line[at..].find(is_word).map(|word| at + word) {
            let end = line[start..].find(|c| !is_word(c)).map_or(line.len(), |end| start + end);
            work::add(end - at);
            at = end;
            let (word, rest) = (&line[start..end], &line[end..]);
            if ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
                let token = rest.trim_start();
                let start = line.len() - token.len();
                let end = start + token.find([' ', '"', '\'', ',']).unwrap_or(token.len());
                let is_short = word.eq_ignore_ascii_case("basic") && is_basic(&line[start..end]);
                if end - start >= TOKEN || is_short {
                    found.push(start..end);
                    at = end;
                }
                continue;
            }
            if let Some(secret) = named_secret(word, rest) {
                at = end + secret.end;
                found.push(end + secret.start..at);
                continue;
            }
            let in_query = line[..start].ends_with(['?', '&']) && rest.starts_with('=');
            // An escape or an encoded letter may spell the name of a secret.
            let is_secret = is_secret_key(word)
                || (word.contains('\\') && !word.ends_with('\\'))
                || (in_query && (word.contains('%') || QUERY.iter().any(|name| squashed(word) == *name)));
            if !is_secret || names_an_object(&line[..start], rest) {
                continue;
            }
            let behind = rest.trim_start_matches(['"', '\'', '`', ' ', '\t', ')', ']']);
            let separated = [":=", "=>", ":", "="].iter().find_map(|separator| behind.strip_prefix(separator));
            let value = match separated {
                Some(value) => value.trim_start(),
                None if behind.is_empty() => {
                    self.is_key = true;
                    continue;
                }
                // A flag and its value.
                None if word.starts_with('-') && rest.starts_with(' ') => rest.trim_start(),
                None => continue,
            };
            let from = line.len() - value.len();
            // A flag's value ends at a blank, as does a possible secret in prose.
            let is_flag = word.starts_with("--") && behind.starts_with('=');
            let is_assigned = behind.starts_with('=') || behind.starts_with(":=");
            if is_flag || (self.is_message && !value.starts_with(['[', '{'])) {
                let Part { end, measured } = quoted(line, from).unwrap_or_else(|| words.around(from));
                let is_last = end >= last;
                let bare = &line[from..measured.max(from)];
                if (is_assigned || is_last || is_password(word) || looks_secret(bare))
                    && !is_harmless_value(&line[from..end])
                {
                    found.push(from..end);
                }
                at = if self.is_message && !is_flag { at.max(from) } else { end };
                continue;
            }
            if in_query {
                let end = from + value.find(['&', '#', ' ', '"', '\'', '<', '>', '`']).unwrap_or(value.len());
                found.push(from..end);
                at = end;
                continue;
            }
            if value.is_empty() {
                self.block = Some(indent);
            } else if !is_harmless_value(value) {
                found.push(from..line.len());
                self.is_continued = value.ends_with('\\');
                self.open = Open::in_value(value);
                self.block = behind.starts_with(':').then_some(indent);
                return found;
            }
        }
        found
    }
}

impl Open {
    /// Returns the quote or bracket at the beginning of a value, if the line does not close it.
    fn in_value(value: &str) -> Option<Self> {
        let left = value.chars().next()?;
        let right = match left {
            '"' | '\'' => left,
            '[' => ']',
            '{' => '}',
            '(' => ')',
            _ => return None,
        };
        Self { left, right, depth: 1 }.after(&value[1..])
    }

    /// Returns the quotes and brackets that are open after a line.
    fn after(mut self, line: &str) -> Option<Self> {
        for character in line.chars() {
            if character == self.right {
                self.depth -= 1;
                if self.depth == 0 {
                    return None;
                }
            } else if character == self.left {
                self.depth += 1;
            }
        }
        Some(self)
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '/' | '\\' | '%')
}

/// Kinds whose objects often have names like those of secrets.
const KINDS: [&str; 6] = ["secret", "secrets", "configmap", "volume", "serviceaccount", "credentialsrequest"];

/// Whether a quoted word is an object's name in a message, as in `secret "cloud-credentials" not found` and
/// `volume "cloud-credentials" : …`.
fn names_an_object(before: &str, rest: &str) -> bool {
    let Some(before) = before.strip_suffix('"').filter(|_| rest.starts_with('"')) else { return false };
    let kind = before.strip_suffix(' ').and_then(|before| before.rsplit(|c: char| !c.is_alphanumeric()).next());
    kind.is_some_and(|kind| KINDS.iter().any(|known| kind.eq_ignore_ascii_case(known)))
}

/// The characters that may follow a word in prose.
const PUNCTUATION: [char; 4] = [',', '.', ';', ':'];

/// Returns the quoted word at a position of a line, with its quotes. The measured prefix excludes punctuation at its end.
fn quoted(line: &str, from: usize) -> Option<Part> {
    let text = &line[from..];
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let length = text[1..].find(quote).map_or(text.len(), |end| end + 2);
    work::add(length);
    Some(Part { end: from + length, measured: from + text[..length].trim_end_matches(PUNCTUATION).len() })
}

/// Whether a word in prose, without the punctuation after it, looks like a secret and not like an English word or a path.
fn looks_secret(bare: &str) -> bool {
    !bare.starts_with('/') && (bare.len() >= TOKEN || bare.contains(|c: char| c.is_ascii_digit()))
}

/// Whether a word can follow `Basic`: a user and a password in base64.
fn is_basic(word: &str) -> bool {
    STANDARD.decode(word).is_ok_and(|bytes| bytes.contains(&b':') && bytes.iter().all(|byte| *byte >= b' '))
}

/// Returns the position of the closing quote of a string, or the end of the text.
pub(super) fn string_end(text: &str, open: usize) -> usize {
    let mut escaped = false;
    for (at, character) in text[open + 1..].char_indices() {
        match character {
            '"' if !escaped => return open + 1 + at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Returns the passwords in `scheme://user:password@host`.
fn passwords(text: &str) -> Vec<Range<usize>> {
    let is_end = |c| matches!(c, ' ' | '\t' | '"' | '\'');
    let mut words = Parts::new(text, is_end, |word| word.rfind('@').map_or(0, |at| at + 1));
    text.match_indices("://")
        .filter_map(|(at, marker)| {
            let start = at + marker.len();
            let end = text[start..].find([' ', '\t', '"', '\'', '/', '?', '#']).map_or(text.len(), |end| start + end);
            work::add(end - start);
            let end = if has_slash_in_password(&text[start..end]) { words.around(end).measured.max(end) } else { end };
            let user_info = start..start + text[start..end].rfind('@')?;
            let user = text[user_info.clone()].split(':').next().unwrap_or_default();
            let password = user_info.start + user.len() + 1;
            // A token may replace the user, with any password or none.
            let is_token = user.len() >= TOKEN;
            let secret = if is_token { user_info.start } else { password };
            (secret < user_info.end).then_some(secret..user_info.end)
        })
        .collect()
}

/// Whether an unencoded slash in a password may have ended the authority of a URL early: then the text after the colon is not a port.
/// If an `@` follows in the same word, the authority ends there.
fn has_slash_in_password(authority: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let begins_password = authority.split_once(':').is_some_and(|(user, port)| !user.is_empty() && !is_port(port));
    begins_password && !authority.contains('@') && !authority.starts_with('[')
}
