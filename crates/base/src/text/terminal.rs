//! Characters in untrusted text that control a terminal, or hide a part of its output (pure).

use std::fmt::Write;

use crate::text::Place;

/// Whether a terminal does more with a character than show it: control characters except line feed and tab, and Unicode
/// characters that reorder a line, break it in some programs only, or have no width. Source: the properties `Cc`, `Bidi_Control` and
/// `Default_Ignorable_Code_Point` of the Unicode Character Database.
pub fn controls_terminal(character: char) -> bool {
    (character.is_control() && !matches!(character, '\n' | '\t'))
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Replaces each of these characters, so that a terminal can show the text.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if controls_terminal(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Finds the first of these characters in a file, and its place. A carriage return before a line feed is allowed.
pub fn first(text: &str) -> Option<(Place, char)> {
    let is_break = |at: usize, c: char| c == '\r' && text[at..].starts_with("\r\n");
    let (at, found) = text.char_indices().find(|(at, c)| controls_terminal(*c) && !is_break(*at, *c))?;
    let before = &text[..at];
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let place = Place { line: 1 + before.matches('\n').count(), column: Some(1 + before[line..].chars().count()) };
    Some((place, found))
}

/// Returns the error for a file or a value with such a character.
pub fn refusal(found: char) -> String {
    format!(
        "the character U+{:04X}, which controls a terminal or hides text from its reader: remove it",
        u32::from(found)
    )
}

/// Escapes these characters in a JSON document: a program reads the same values.
pub(super) fn escaped_json(json: String) -> String {
    if !json.contains(controls_terminal) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if controls_terminal(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing into a String does not fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_controls_a_terminal() {
        assert_eq!(printable("a\x1b[2J\tb\r\n\u{202e}c"), "a\u{fffd}[2J\tb\u{fffd}\n\u{fffd}c");
        for control in
            ['\u{61c}', '\u{85}', '\u{9b}', '\u{2028}', '\u{2029}', '\u{2060}', '\u{2066}', '\u{feff}', '\u{e0041}']
        {
            assert_eq!(printable(&control.to_string()), "\u{fffd}", "{control:?}");
        }
    }

    /// The property `Default_Ignorable_Code_Point` of `DerivedCoreProperties.txt` in Unicode 16.
    const IGNORABLE: [(u32, u32); 17] = [
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x202a, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfff8),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];

    #[test]
    fn nothing_hides_in_a_text() {
        let is_ignorable = |code: &u32| IGNORABLE.iter().any(|(first, last)| (first..=last).contains(&code));
        // Line and paragraph separator, and the marks of interlinear annotations.
        let others = [0x2028, 0x2029, 0xfff9, 0xfffa, 0xfffb];
        for code in 0..=u32::from(char::MAX) {
            let Some(character) = char::from_u32(code).filter(|c| !c.is_control()) else { continue };
            assert_eq!(controls_terminal(character), is_ignorable(&code) || others.contains(&code), "U+{code:04X}");
        }
    }

    #[test]
    fn the_place_is_that_of_the_character() {
        assert_eq!(first("a: é\r\nb: 1\r\n\tc: 2\n"), None);
        for (text, line, column, found) in [
            ("\u{feff}a", 1, 1, '\u{feff}'),
            ("a\nbé\u{85}c", 2, 3, '\u{85}'),
            ("a\r\nb\rc", 2, 2, '\r'),
            ("a\r", 1, 2, '\r'),
            ("\r\r\n", 1, 1, '\r'),
        ] {
            assert_eq!(first(text), Some((Place { line, column: Some(column) }, found)), "{text:?}");
        }
        assert!(refusal('\u{9b}').starts_with("the character U+009B, which"));
    }
}
