//! Finds secrets without a separator: tokens that are recognized by their prefix, and words after `password`, `token`,
//! `key` and `secret` (pure).

use std::ops::Range;

use crate::text::mask::squashed;

/// The minimum length of a word after `Bearer` that is a token and not an English word.
pub(super) const TOKEN: usize = 16;

/// The known prefixes of tokens: of GitHub, GitLab, `DigitalOcean`, Slack, Hugging Face and Vault, and of the ids of AWS's keys, as
/// their documentation shows them. `eyJ` is how `{"` begins in the base64 of a JSON Web Token.
const TOKENS: [&str; 22] = [
    "eyJ",
    "AKIA",
    "ASIA",
    "dop_v1_",
    "doo_v1_",
    "dor_v1_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "glrt-",
    "hvb.",
    "hvs.",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "hf_",
];

/// Returns the words of a line that have a token's prefix, at any position.
pub(super) fn tokens(line: &str) -> Vec<Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = line[at..].find(is_part).map(|part| at + part) {
        let end = line[start..].find(|c| !is_part(c)).map_or(line.len(), |end| start + end);
        let word = line[start..end].trim_end_matches('.');
        if word.len() >= TOKEN && TOKENS.iter().any(|token| word.starts_with(token)) {
            found.push(start..start + word.len());
        }
        at = end;
    }
    found
}

/// Whether a key is the key of a password, which no prose follows.
pub(super) fn is_password(key: &str) -> bool {
    let key = squashed(key);
    ["passw", "passphrase", "pwd"].iter().any(|word| key.contains(word))
}

/// The minimum length of a token after the word `token`.
const SHORTEST_TOKEN: usize = 8;

/// The minimum length of a password without a digit after the word `password`: English words are shorter.
const LONG_PASSWORD: usize = 16;

/// The minimum length of a token with dots and slashes, which paths and host names have, too.
const LONG_TOKEN: usize = 20;

/// The quotes around a value, in plain text and in a JSON string.
const QUOTES: [&str; 5] = ["\"", "'", "`", "\\\"", "\\'"];

/// Returns the range of the secret in the rest of a line after the word `password`, `token`, `key` or `secret` and a blank.
pub(super) fn named_secret(word: &str, rest: &str) -> Option<Range<usize>> {
    let name = squashed(word);
    // A flag is read elsewhere, and a path such as /etc/passwd is not a name.
    let is_password = is_password(word) && !word.starts_with(['-', '/']);
    let shortest = match name.as_str() {
        "token" => SHORTEST_TOKEN,
        "key" | "secret" => TOKEN,
        _ if is_password => 1,
        _ => return None,
    };
    let after = rest.strip_prefix(' ')?;
    // After `key` and `secret`, quotes enclose an object's name, as in `secret "cloud-credentials" not found`.
    let may_be_quoted = is_password || name == "token";
    let quote = QUOTES.iter().find(|quote| may_be_quoted && after.starts_with(**quote));
    let value = quote.map_or(after, |quote| after.strip_prefix(quote).unwrap_or(after));
    let value = quote.and_then(|quote| quoted(value, quote)).unwrap_or_else(|| first_word(value));
    let is_secret = if is_password { looks_like_a_password(value) } else { looks_like_a_token(value, shortest) };
    let start = 1 + quote.map_or(0, |quote| quote.len());
    is_secret.then(|| start..start + value.len())
}

/// Returns a text up to its closing quote.
fn quoted<'a>(text: &'a str, quote: &str) -> Option<&'a str> {
    let mut ends = text.match_indices(quote).map(|(at, _)| &text[..at]);
    ends.find(|inside| !inside.ends_with('\\'))
}

/// Returns the first word of a text, without the punctuation after it.
fn first_word(text: &str) -> &str {
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    word.trim_end_matches([',', '.', ';', ':', ')', '"', '\'', '`', '\\'])
}

fn looks_like_a_password(value: &str) -> bool {
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    !value.starts_with('/') && (has_digit || value.chars().count() >= LONG_PASSWORD)
}

/// Whether a word is a token and not an English word, a path or a host name.
fn looks_like_a_token(word: &str, shortest: usize) -> bool {
    let has = |is: fn(&u8) -> bool| word.bytes().any(|byte| is(&byte));
    if word.len() < shortest || !has(u8::is_ascii_digit) || !has(u8::is_ascii_alphabetic) {
        return false;
    }
    if !word.contains(['/', '.', '=', '"', '\'']) {
        return true;
    }
    let has_only =
        |marks: &[u8], word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte));
    // Base64 has a `+`, and `=` at its end only. Paths have neither.
    let base64 = word.trim_end_matches('=');
    if has_only(b"+/-_", base64) && (base64.len() < word.len() || (word.contains('+') && !word.starts_with('/'))) {
        return true;
    }
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    word.len() >= LONG_TOKEN && is_mixed && has_only(b"+/=._-", word) && !is_place(word)
}

/// Whether a word is a path, or ends in letters after a dot, as files and hosts do.
fn is_place(word: &str) -> bool {
    let end = word.rsplit_once('.').map(|(_, end)| end);
    word.starts_with(['/', '.']) || end.is_some_and(|end| end.bytes().all(|byte| byte.is_ascii_alphabetic()))
}
