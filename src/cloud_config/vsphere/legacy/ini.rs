//! Reads INI as the Go library does that cloud-controller-managers use (gcfg), line by line (pure).
//!
//! Quotes may stand anywhere in a value, `;` and `#` outside of them begin a comment, a backslash at the end of a line
//! continues it.

use super::super::super::Error;

/// A heading, or a key below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The section's name.
    pub(super) section: String,
    /// The name in quotes behind it.
    pub(super) subsection: Option<String>,
    /// The key; `None` for the heading itself.
    pub(super) key: Option<String>,
    /// The value; `None` when there is no `=`.
    pub(super) value: Option<String>,
    /// The line, from 1.
    pub(super) line: usize,
}

/// Every heading and key, in order.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, Error> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries: Vec<Entry> = Vec::new();
    while !rest.is_empty() {
        let line = text[..text.len() - rest.len()].matches('\n').count() + 1;
        let failed = |message: &str| Error { line: Some(line), message: message.to_owned() };
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        if let Some(heading) = rest.strip_prefix('[') {
            let (section, behind) = identifier(heading).ok_or_else(|| failed("`[` needs the name of a section"))?;
            let behind = behind.trim_start_matches([' ', '\t']);
            let (subsection, behind) = match behind.strip_prefix('"') {
                Some(quoted) => {
                    let (name, behind) = subsection(quoted).ok_or_else(|| failed("the name in quotes does not end"))?;
                    (Some(name), behind)
                }
                None => (None, behind),
            };
            let behind = behind.trim_start_matches([' ', '\t']);
            rest = behind.strip_prefix(']').ok_or_else(|| failed("the section's heading needs a `]`"))?;
            if subsection.as_deref() == Some("") {
                return Err(failed("the name in quotes is empty"));
            }
            entries.push(Entry { section: section.to_owned(), subsection, key: None, value: None, line });
        } else if let Some((key, behind)) = identifier(rest) {
            let heading = entries.last().ok_or_else(|| failed("a key stands before the first section"))?;
            let (section, subsection) = (heading.section.clone(), heading.subsection.clone());
            let behind = behind.trim_start_matches([' ', '\t', '\r']);
            let mut found = None;
            rest = behind;
            if let Some(behind) = behind.strip_prefix('=') {
                let (value, behind) = value(behind).map_err(failed)?;
                (found, rest) = (Some(value), behind);
            }
            entries.push(Entry { section, subsection, key: Some(key.to_owned()), value: found, line });
        }
        // What is left of the line may be a comment.
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        if rest.starts_with([';', '#']) {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        }
        match rest.strip_prefix('\n') {
            Some(next) => rest = next,
            None if rest.is_empty() => {}
            None => return Err(failed("this is neither a section, nor a key with its value, nor a comment")),
        }
    }
    Ok(entries)
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let is_inside = |letter: char| letter.is_alphanumeric() || letter == '-';
    text.starts_with(char::is_alphabetic)
        .then(|| text.split_at(text.find(|letter: char| !is_inside(letter)).unwrap_or(text.len())))
}

/// A name up to its closing quote, and what comes behind.
fn subsection(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((name, &text[at + 1..])),
            '\n' => return None,
            '\\' => name.push(letters.next().filter(|(_, next)| matches!(next, '"' | '\\'))?.1),
            _ => name.push(letter),
        }
    }
    None
}

/// A value and what comes behind it.
fn value(text: &str) -> Result<(String, &str), &'static str> {
    let text = text.trim_start_matches([' ', '\t', '\r']);
    let mut value = String::new();
    // Blanks at the end do not count, those in quotes do.
    let mut kept = 0;
    let mut quoted = false;
    let mut letters = text.char_indices().peekable();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' | ';' | '#' if !quoted => {
                end = at;
                break;
            }
            '\n' => return Err("the quotes are not closed on this line"),
            '"' => quoted = !quoted,
            '\r' => continue,
            '\\' => {
                let _ = letters.next_if(|(_, next)| *next == '\r');
                match letters.next().map(|(_, next)| next) {
                    Some('\n') => continue,
                    Some('"') => value.push('"'),
                    Some('\\') if quoted => value.push('\\'),
                    Some('n') if quoted => value.push('\n'),
                    Some('t') if quoted => value.push('\t'),
                    _ => return Err("a backslash has to stand before a quote or the end of the line, or in quotes"),
                }
            }
            _ => value.push(letter),
        }
        if quoted || !matches!(letter, ' ' | '\t') {
            kept = value.len();
        }
    }
    if quoted {
        return Err("the quotes are not closed on this line");
    }
    value.truncate(kept);
    Ok((value, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_gcfg_reads() {
        let text = "\u{feff}; c\r\n[Global] # c\r\na = x y ; c\nb=\"1 ; 2\" # c\n c\n\
                    d =\n[V \"s \\\"x\"]\ne = a\\\nb\nf = \"a\"b\" c \"";
        let read: Vec<_> = entries(text).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|entry| (entry.line, entry.subsection.as_deref(), entry.key.as_deref(), entry.value.as_deref()))
            .collect();
        assert_eq!(
            read,
            [
                (2, None, None, None),
                (3, None, Some("a"), Some("x y")),
                (4, None, Some("b"), Some("1 ; 2")),
                (5, None, Some("c"), None),
                (6, None, Some("d"), Some("")),
                (7, Some("s \"x"), None, None),
                (8, Some("s \"x"), Some("e"), Some("ab")),
                (10, Some("s \"x"), Some("f"), Some("ab c ")),
            ]
        );
    }

    #[test]
    fn what_is_malformed_has_its_line() {
        for text in ["\na = 1", "[A]\n= 1", "[A\n", "[A]\nb = \"x\n", "[A]\nb = \\x", "[A \"x]", "[A \"\"]", "[A] x"] {
            assert!(entries(text).unwrap_err().line.is_some(), "{text:?}");
        }
    }
}
