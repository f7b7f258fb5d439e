//! Masks values that look like secrets, for diffs and logs (pure).
//!
//! A value is masked by the name of its key, or because it looks like a password in a URL or a private key. Errors do not
//! depend on this: they contain no values at all.

use std::{borrow::Cow, mem};

/// Replaces a masked value.
pub const MASK: &str = "***";

/// Words in the name of a key that make its value a secret.
const SECRET: &str = "password passwd passphrase pwd secret token credential authorization userdata connectionstring";

/// Endings of the names of cryptographic and API keys; in other names `key` is harmless. `accesskey` is the secret half of a
/// pair whose other half ends in `id`.
const KEYS: &str = "\
    accesskey accountkey apikey authkey clientkey encryptionkey keydata keymaterial masterkey privatekey \
    secretkey signingkey sshkey";

/// Endings of keys that name, locate or describe a secret.
const HARMLESS: &str = "\
    audience enabled endpoint expiry file files id ids key kind mode mount name names namespace namespaces \
    path provider ref refs seconds source ttl type url version";

/// Whether the value of a key is masked.
pub fn is_secret_key(key: &str) -> bool {
    let squashed: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let ends_with_any = |words: &str| words.split(' ').any(|end| squashed.ends_with(end));
    let has_secret_word = SECRET.split(' ').any(|word| squashed.contains(word));
    ends_with_any(KEYS) || (has_secret_word && !ends_with_any(HARMLESS) && !squashed.starts_with("automount"))
}

/// Masks one line of INI, YAML or JSON on its own, without the context of previous lines.
pub fn line(text: &str) -> Cow<'_, str> {
    Masker::default().line(text)
}

/// Masks a text; one line for each of [`str::lines`].
pub fn lines(text: &str) -> Vec<Cow<'_, str>> {
    let mut masker = Masker::default();
    text.lines().map(|line| masker.line(line)).collect()
}

/// The context of the previous lines.
#[derive(Default)]
struct Masker {
    private_key: bool,
    /// A secret continues on the lines that are indented deeper than this.
    block: Option<usize>,
    /// A secret continues on the next line.
    is_continued: bool,
}

impl Masker {
    fn line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        let indent = line.len() - line.trim_start().len();
        self.block = self.block.filter(|above| indent > *above || line.trim().is_empty());
        let continues = line.trim_end().ends_with('\\');
        let was_continued = mem::replace(&mut self.is_continued, false);
        if was_continued || self.block.is_some() {
            self.is_continued = was_continued && continues;
            return hidden(line);
        }
        if let Some(masked) = self.pem(line) {
            return masked;
        }
        let Some((_, start)) = pair(line).filter(|(key, _)| is_secret_key(key)) else { return text(line) };
        let value = &line[start..];
        if value.starts_with(['|', '>']) || value.is_empty() {
            self.block = Some(indent);
            return Cow::Borrowed(line);
        }
        self.is_continued = continues;
        if is_harmless_value(value) { Cow::Borrowed(line) } else { Cow::Owned(format!("{}{MASK}", &line[..start])) }
    }

    /// Masks a line of a private key.
    fn pem<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        const BEGIN: &str = "PRIVATE KEY-----";
        let begins = line.find("-----BEGIN ").and_then(|at| Some(at + line[at..].find(BEGIN)? + BEGIN.len()));
        if begins.is_none() && !self.private_key {
            return None;
        }
        self.private_key = !line[begins.unwrap_or_default()..].contains("-----END ");
        Some(match begins {
            Some(end) if end == line.len() => Cow::Borrowed(line),
            Some(end) => Cow::Owned(format!("{}{MASK}", &line[..end])),
            None => hidden(line),
        })
    }
}

/// Masks a line except for its indentation.
fn hidden(line: &str) -> Cow<'_, str> {
    if line.trim().is_empty() {
        return Cow::Borrowed(line);
    }
    Cow::Owned(format!("{}{MASK}", &line[..line.len() - line.trim_start().len()]))
}

/// Whether a value cannot be a secret; in JSON a comma may follow it.
fn is_harmless_value(value: &str) -> bool {
    let value = value.trim().trim_end_matches(',').trim_matches(['"', '\'']);
    matches!(value.to_lowercase().as_str(), "" | "true" | "false" | "yes" | "no" | "null" | "{}" | "[]" | MASK)
}

/// The key of an INI or YAML line, and the position of its value.
fn pair(line: &str) -> Option<(&str, usize)> {
    let start = line.len() - line.trim_start_matches([' ', '\t', '-', '\'', '"']).len();
    if line[..start].contains('"') {
        return None;
    }
    let end = start + line[start..].find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')))?;
    let after = line[end..].trim_start_matches(['\'', ' ', '\t']);
    let value = after.strip_prefix('=').or_else(|| {
        after.strip_prefix(':').filter(|value| value.is_empty() || value.starts_with(char::is_whitespace))
    })?;
    let key = &line[start..end];
    (!key.is_empty()).then(|| (key, line.len() - value.trim_start().len()))
}

/// Masks JSON members and passwords in URLs anywhere in a text.
fn text(text: &str) -> Cow<'_, str> {
    let mut found = members(text);
    found.extend(passwords(text));
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_unstable();
    let (mut masked, mut done) = (String::new(), 0);
    for (start, end) in found {
        if start >= done {
            masked.extend([&text[done..start], MASK]);
            done = end;
        }
    }
    Cow::Owned(masked + &text[done..])
}

/// The values of JSON members whose names are those of secrets, without quotes.
fn members(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find('"').map(|quote| at + quote) {
        let close = string_end(text, open);
        let after = text[close..].trim_start_matches(['"', ' ', '\t']);
        at = (close + 1).min(text.len());
        let Some(value) = after.strip_prefix(':').map(str::trim_start) else { continue };
        if !is_secret_key(&text[open + 1..close]) {
            continue;
        }
        let start = text.len() - value.len();
        let (start, end) = match value.chars().next() {
            Some('"') => (start + 1, string_end(text, start)),
            Some('[') => (start + 1, value.find(']').map_or(text.len(), |end| start + end)),
            Some('{') | None => continue,
            Some(_) => (start, value.find([',', '}', ']']).map_or(text.len(), |end| start + end)),
        };
        at = end.max(at);
        if !is_harmless_value(&text[start..end]) {
            found.push((start, end));
        }
        // Skip the closing quote, so that it does not open another string.
        at += usize::from(text[at..].starts_with('"'));
    }
    found
}

/// The position of the closing quote of a string, or the end of the text.
fn string_end(text: &str, open: usize) -> usize {
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

/// The passwords in `scheme://user:password@host`.
fn passwords(text: &str) -> Vec<(usize, usize)> {
    text.match_indices("://")
        .filter_map(|(at, marker)| {
            let start = at + marker.len();
            let end = text[start..].find([' ', '\t', '"', '\'', '/', '?', '#']).map_or(text.len(), |end| start + end);
            let user_info = start..start + text[start..end].rfind('@')?;
            let password = user_info.start + text[user_info.clone()].find(':')? + 1;
            (password < user_info.end).then_some((password, user_info.end))
        })
        .collect()
}

#[cfg(test)]
mod tests;
