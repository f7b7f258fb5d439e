//! Masks values that look like secrets, for diffs, logs and messages (pure).
//!
//! If a text can be parsed as JSON, YAML or INI, the value of a secret's key is masked at its place in the structure.
//! Comments, other strings, and texts that cannot be parsed are read line by line, and masked generously. Passwords in
//! URLs and private keys are masked everywhere.

use std::ops::Range;

use crate::text::{json::folded, work};

pub mod excerpt;
mod layout;
mod named;
mod parts;
mod words;

/// Replaces a masked value.
pub const MASK: &str = "***";

/// Words in the name of a key that make its value a secret.
const SECRET: &str = "password passwd passphrase pwd secret token credential authorization userdata connectionstring";

/// Endings of the names of cryptographic and API keys; in other names `key` is harmless. `accesskey` is the secret half of a
/// pair whose other half ends in `id`.
const KEYS: &str = "\
    accesskey accountkey aeskey apikey authkey clientkey enckey encryptionkey hmackey keydata keymaterial masterkey privatekey \
    secretkey sharedkey signingkey sshkey storagekey";

/// Endings of keys that name, locate or describe a secret.
const HARMLESS: &str = "\
    audience enabled endpoint expiry file files id ids key kind mode mount name names namespace namespaces \
    dir directory lifetime applicationcredentials path paths policy provider ref refs seconds source ttl type url version";

/// Last words of the names of secrets that the lists above miss: of Docker's configuration, of Vault, of Azure's signed URLs.
const NAMES: &str = "auth cookie creds jwt pass passcode pat pgpass psk secretid sas sasuri sasurl";

/// Whether the value of a key is masked.
pub fn is_secret_key(key: &str) -> bool {
    let squashed = squashed(key);
    let ends_with_any = |words: &str| words.split(' ').any(|end| squashed.ends_with(end));
    let has_secret_word = SECRET.split(' ').any(|word| squashed.contains(word));
    let has_name = || {
        let last = last_words(key);
        NAMES.split(' ').any(|name| last.iter().any(|last| last == name))
    };
    ends_with_any(KEYS)
        || KEYS.split(' ').any(|key| squashed.strip_suffix('s').is_some_and(|one| one.ends_with(key)))
        || has_name()
        || (has_secret_word && !ends_with_any(HARMLESS) && !squashed.starts_with("automount"))
}

/// The number of characters at the end of a key that are searched for [`NAMES`]; every name with its separators is shorter.
const LONGEST_NAME: usize = 24;

/// Returns the last word of a key, the last two, and so on, squashed: for `DB_PASS` and `dbPass`, `pass` and `dbpass`.
fn last_words(key: &str) -> Vec<String> {
    let from = key.char_indices().rev().nth(LONGEST_NAME).map_or(0, |(at, _)| at);
    let end = &key[from..];
    let starts_word = |previous: char, character: char| {
        character.is_alphanumeric()
            && (!previous.is_alphanumeric() || (previous.is_lowercase() && character.is_uppercase()))
    };
    let pairs = std::iter::once(' ').chain(end.chars()).zip(end.char_indices());
    let starts = pairs.filter(|(previous, (_, character))| starts_word(*previous, *character));
    starts.map(|(_, (at, _))| squashed(&end[at..])).collect()
}

/// Returns the letters and digits of a key, folded as Go folds names: two non-ASCII letters become k and s.
fn squashed(key: &str) -> String {
    folded(key).chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Masks the secrets of a text. The number of lines stays the same.
pub fn text(text: &str) -> String {
    replaced(text, |_| MASK.to_owned())
}

/// Masks the secrets of a program's message, on one line. In prose, the text after a colon is masked only if it looks like a secret:
/// `failed to refresh token: no such host` stays readable.
pub fn message(text: &str) -> String {
    let line = text.replace('\n', " ");
    hide(&line, secrets_of_message(&line), |_| MASK.to_owned())
}

fn secrets_of_message(line: &str) -> Vec<Range<usize>> {
    layout::json(line).unwrap_or_else(|| words::of_message(line))
}

/// Replaces each secret of a text; later lines of a multi-line secret become [`MASK`].
pub fn replaced(text: &str, replacement: impl FnMut(&str) -> String) -> String {
    hide(text, layout::secrets(text), replacement)
}

/// Sorts ranges and merges those that overlap.
fn united(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut united = Vec::<Range<usize>>::new();
    for range in ranges {
        match united.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => united.push(range),
        }
    }
    united
}

fn hide(text: &str, secrets: Vec<Range<usize>>, mut replacement: impl FnMut(&str) -> String) -> String {
    let (mut shown, mut done) = (String::with_capacity(text.len()), 0);
    for Range { start, end } in united(secrets) {
        let secret = &text[start..end];
        if is_harmless_value(secret) {
            continue;
        }
        shown += &text[done..start];
        for (index, line) in secret.split_inclusive('\n').enumerate() {
            let inner = line.trim();
            let indent = line.len() - line.trim_start().len();
            shown += &line[..indent];
            match (inner.is_empty(), index) {
                (true, _) => continue,
                (false, 0) => shown += &replacement(secret),
                (false, _) => shown += MASK,
            }
            shown += &line[indent + inner.len()..];
        }
        done = end;
    }
    shown + &text[done..]
}

/// Values that cannot be secrets.
const HARMLESS_VALUES: [&str; 10] = ["", "true", "false", "yes", "no", "null", "~", "{}", "[]", MASK];

/// Whether a value cannot be a secret; in JSON a comma may follow it. A long value is not read to its end: in a message, many values
/// may share the same end.
fn is_harmless_value(value: &str) -> bool {
    const QUOTES: [char; 2] = ['"', '\''];
    let value = value.trim();
    let inner = value.trim_start_matches(QUOTES);
    HARMLESS_VALUES.iter().any(|word| {
        let Some((head, behind)) = inner.split_at_checked(word.len()) else { return false };
        if !head.eq_ignore_ascii_case(word) {
            return false;
        }
        let rest = behind.trim_start_matches(QUOTES).trim_start_matches([',', '\\', ' ']);
        work::add(value.len() - rest.len());
        rest.is_empty()
    })
}

#[cfg(test)]
mod tests;
