//! What must not be read in a diff or a log: values that look like secrets (pure).
//!
//! It goes by the name of a key, and by what looks like a password in a URL or like a private key. It is not what keeps
//! secrets out of errors: those hold no values at all.

use std::borrow::Cow;

/// What stands for a value.
pub const MASK: &str = "***";

/// Words that make a key's value a secret. `accesskey` is one of a pair: its other half is named an id.
const SECRET: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "credential",
    "authorization",
    "userdata",
    "connectionstring",
];

/// Keys of cryptography and of APIs, by how they end; of others `key` is only half the name.
const KEYS: [&str; 13] = [
    "accesskey",
    "accountkey",
    "apikey",
    "authkey",
    "clientkey",
    "encryptionkey",
    "keydata",
    "keymaterial",
    "masterkey",
    "privatekey",
    "secretkey",
    "signingkey",
    "sshkey",
];

/// How a key ends that names, places or describes a secret.
const HARMLESS: [&str; 26] = [
    "audience",
    "enabled",
    "endpoint",
    "expiry",
    "file",
    "files",
    "id",
    "ids",
    "key",
    "kind",
    "mode",
    "mount",
    "name",
    "names",
    "namespace",
    "namespaces",
    "path",
    "provider",
    "ref",
    "refs",
    "seconds",
    "source",
    "ttl",
    "type",
    "url",
    "version",
];

/// Whether the value of a key is to be masked.
pub fn is_secret_key(key: &str) -> bool {
    let squashed: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    KEYS.iter().any(|end| squashed.ends_with(end))
        || (SECRET.iter().any(|word| squashed.contains(word))
            && !HARMLESS.iter().any(|end| squashed.ends_with(end))
            && !squashed.starts_with("automount"))
}

/// One line of INI, YAML or JSON as it may be shown; what a line before it began is not known here.
pub fn line(text: &str) -> Cow<'_, str> {
    Shown::default().line(text)
}

/// Every line of a text as it may be shown, one for each of [`str::lines`].
pub fn lines(text: &str) -> Vec<Cow<'_, str>> {
    let mut shown = Shown::default();
    text.lines().map(|line| shown.line(line)).collect()
}

/// What the lines before this one began.
#[derive(Default)]
struct Shown {
    private_key: bool,
    /// A secret that goes on: over every line that is indented deeper, or over the next one alone.
    goes_on: Option<GoesOn>,
}

enum GoesOn {
    Deeper(usize),
    NextLine,
}

impl Shown {
    fn line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        let indent = line.len() - line.trim_start().len();
        let continued = line.trim_end().ends_with('\\');
        match self.goes_on {
            Some(GoesOn::Deeper(above)) if indent > above || line.trim().is_empty() => return hidden(line),
            Some(GoesOn::NextLine) => {
                self.goes_on = continued.then_some(GoesOn::NextLine);
                return hidden(line);
            }
            _ => self.goes_on = None,
        }
        if let Some(masked) = self.pem(line) {
            return masked;
        }
        match pair(line) {
            Some((key, start)) if is_secret_key(key) => {
                let value = &line[start..];
                if value.starts_with(['|', '>']) || value.is_empty() {
                    self.goes_on = Some(GoesOn::Deeper(indent));
                    return Cow::Borrowed(line);
                }
                if continued {
                    self.goes_on = Some(GoesOn::NextLine);
                }
                if says_nothing(value) { Cow::Borrowed(line) } else { Cow::Owned(format!("{}{MASK}", &line[..start])) }
            }
            _ => text(line),
        }
    }

    /// A line of a private key.
    fn pem<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        const BEGIN: &str = "PRIVATE KEY-----";
        let begins = line.find("-----BEGIN ").and_then(|at| Some(at + line[at..].find(BEGIN)? + BEGIN.len()));
        let was_inside = self.private_key;
        if begins.is_some() || was_inside {
            let rest = &line[begins.unwrap_or_default()..];
            self.private_key = !rest.contains("-----END ");
            return Some(match begins {
                Some(end) if end == line.len() => Cow::Borrowed(line),
                Some(end) => Cow::Owned(format!("{}{MASK}", &line[..end])),
                None => hidden(line),
            });
        }
        None
    }
}

/// An indented line with nothing of it to be read.
fn hidden(line: &str) -> Cow<'_, str> {
    if line.trim().is_empty() {
        return Cow::Borrowed(line);
    }
    Cow::Owned(format!("{}{MASK}", &line[..line.len() - line.trim_start().len()]))
}

/// A value that cannot be a secret, with what may follow it in JSON.
fn says_nothing(value: &str) -> bool {
    let value = value.trim().trim_end_matches(',').trim_matches(['"', '\'']);
    matches!(value.to_lowercase().as_str(), "" | "true" | "false" | "yes" | "no" | "null" | "{}" | "[]" | MASK)
}

/// The key of an INI or YAML line, and where its value begins.
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

/// Masks JSON's members and the passwords of URLs wherever they stand in a text.
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
            masked.push_str(&text[done..start]);
            masked.push_str(MASK);
            done = end;
        }
    }
    masked.push_str(&text[done..]);
    Cow::Owned(masked)
}

/// The values of JSON's members with a secret's name, without their quotes.
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
        if !says_nothing(&text[start..end]) {
            found.push((start, end));
        }
        // Behind the closing quote, so that it opens no other string.
        at += usize::from(text[at..].starts_with('"'));
    }
    found
}

/// Where the string that opens here closes: its quote, or the end of the text.
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

/// The passwords of `scheme://user:password@host`.
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
