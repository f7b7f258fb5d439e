//! Formats errors on one line, and limits untrusted text in messages (pure).

use std::borrow::Cow;

/// The maximum number of characters of one untrusted text.
pub const MOST_OF_A_TEXT: usize = 200;

/// The maximum number of characters of a problem's description, which may contain several such texts.
const MOST_OF_A_PROBLEM: usize = 1000;

/// The number of characters kept at the end of a longer description, where the fix is.
const END_OF_A_PROBLEM: usize = 400;

/// The maximum number of bytes of a message: the API server's limit for the message of a `Condition`.
pub const MOST_OF_A_MESSAGE: usize = 32 << 10;

/// The mark that replaces the rest of a text.
const CUT: &str = "…";

/// The characters that end a line or move along it: in untrusted text they could imitate this program's own output.
const BREAKS: [char; 2] = ['\n', '\t'];

/// Formats an error and its causes on one line, each stated once.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let words = cause.to_string();
        // Some libraries repeat the cause in the message.
        if !text.contains(&words) {
            text = if text.is_empty() { words } else { format!("{text}: {words}") };
        }
    }
    message(&text.replace('\n', " ")).into_owned()
}

/// Shortens an untrusted text for a message: its first 200 characters, on one line.
pub fn brief(text: &str) -> Cow<'_, str> {
    let cut = match text.char_indices().nth(MOST_OF_A_TEXT) {
        Some((end, _)) => Cow::Owned(format!("{}{CUT}", &text[..end])),
        None => Cow::Borrowed(text),
    };
    if cut.contains(BREAKS) { Cow::Owned(cut.replace(BREAKS, " ")) } else { cut }
}

/// Shortens a problem's description, which may contain untrusted text: one line, each word shortened by [`brief`], and only the
/// beginning and the end of a long one.
pub fn problem(text: String) -> String {
    let text = if text.contains(BREAKS) { text.replace(BREAKS, " ") } else { text };
    if text.len() <= MOST_OF_A_TEXT {
        return text;
    }
    let words: Vec<_> = text.split(' ').map(brief).collect();
    let text = words.join(" ");
    let count = text.chars().count();
    if count <= MOST_OF_A_PROBLEM {
        return text;
    }
    let at = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    let (begin, end) = (at(MOST_OF_A_PROBLEM - END_OF_A_PROBLEM), at(count - END_OF_A_PROBLEM));
    format!("{} {CUT} {}", &text[..begin], &text[end..])
}

/// Cuts a message to its first 32 KiB.
pub fn message(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_OF_A_MESSAGE {
        return Cow::Borrowed(text);
    }
    let most = MOST_OF_A_MESSAGE - CUT.len();
    // A character has at most four bytes.
    let end = (most - 3..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    Cow::Owned(format!("{}{CUT}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_little_of_a_text() {
        assert_eq!(brief("é"), "é");
        let long = "é".repeat(1 << 20);
        assert_eq!(brief(&long).chars().count(), MOST_OF_A_TEXT + 1);
        assert_eq!(
            problem(format!("the label {long} is here: remove it")),
            format!("the label {} is here: remove it", brief(&long))
        );
        let words = problem(format!("begin {}the end", "a b\n".repeat(1 << 18)));
        assert!(words.starts_with("begin a b") && words.ends_with("the end"), "{words}");
        assert!(words.chars().count() <= MOST_OF_A_PROBLEM + 3, "{}", words.len());
        let short = "x ".repeat(MOST_OF_A_PROBLEM / 2);
        assert_eq!(problem(short.clone()), short);
        for text in [&long, &"x".repeat(MOST_OF_A_MESSAGE + 1)] {
            let cut = message(text);
            assert!(cut.len() <= MOST_OF_A_MESSAGE && cut.ends_with(CUT), "{}", cut.len());
        }
        assert_eq!(message("x"), "x");
    }

    #[test]
    fn a_text_forges_no_line_of_a_message() {
        let forged = "a\n2026-01-01T00:00:00Z INFO all is well\tx";
        let line = "a 2026-01-01T00:00:00Z INFO all is well x";
        assert_eq!(brief(forged), line);
        assert_eq!(problem(forged.to_owned()), line);
        for text in ["\n".repeat(1 << 20), "a\n\t".repeat(1 << 18), format!("{}\n", "é".repeat(MOST_OF_A_TEXT))] {
            assert!(!brief(&text).contains(BREAKS) && !problem(text).contains(BREAKS));
        }
    }
}
