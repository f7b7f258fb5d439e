//! The patterns of texts in the API, for its schema and for manifests that no API server has checked (pure).

/// The valid form of a text: its pattern and maximum length, as in the schema, and the same in words.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    pub(super) regex: &'static str,
    pub(super) longest: usize,
    pub(super) words: &'static str,
}

const fn pattern(regex: &'static str, longest: usize, words: &'static str) -> Pattern {
    Pattern { regex, longest, words }
}

pub(super) const NAME: Pattern =
    pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63, "a name consists of lower-case letters, digits and -");
pub(super) const DOTTED_NAME: Pattern =
    pattern("^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", 253, "a name consists of lower-case letters, digits, - and .");
pub(super) const CLUSTER_NAME: Pattern =
    pattern("^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$", 255, "a name consists of letters, digits, -, . and _");
pub(super) const HOST: Pattern = pattern("^[-.:a-zA-Z0-9]+$", 253, "a host name or an IP address");
pub(super) const KEY: Pattern = pattern("^[-._a-zA-Z0-9]+$", 253, "a key consists of letters, digits, -, . and _");
pub(super) const TAG: Pattern =
    pattern("^[a-zA-Z0-9_][-._a-zA-Z0-9]*$", 128, "a version consists of letters, digits, -, . and _");
pub(super) const REPOSITORY: Pattern = pattern(
    "^[a-z0-9][-._:/a-z0-9]*[a-z0-9]$",
    255,
    "the name of a registry or a repository consists of lower-case letters, digits, -, ., _, : and /",
);
pub(super) const LABEL_NAME: Pattern = pattern("^[-A-Za-z0-9_./]+$", usize::MAX, "");
pub(super) const LABEL_VALUE: Pattern = pattern("^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", 63, "");

impl Pattern {
    /// Whether a text matches this pattern.
    pub(super) fn fits(&self, text: &str) -> bool {
        text.len() <= self.longest && behind(self.regex.trim_start_matches('^').as_bytes(), text.as_bytes())
    }
}

/// Whether a text matches a pattern. Patterns are the small subset of regular expressions that the API uses: character classes, each
/// alone or with `*` or `+`, and an optional group at the end.
fn behind(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [b'(', group @ ..] => text.is_empty() || behind(group, text),
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            let (class, next) = rest.split_at(end);
            let fitting = text.iter().take_while(|byte| is_in(class, **byte)).count();
            match next.get(1) {
                Some(b'*') => (0..=fitting).any(|count| behind(&next[2..], &text[count..])),
                Some(b'+') => (1..=fitting).any(|count| behind(&next[2..], &text[count..])),
                _ => fitting > 0 && behind(&next[1..], &text[1..]),
            }
        }
        _ => text.is_empty(),
    }
}

fn is_in(class: &[u8], byte: u8) -> bool {
    match class {
        [first, b'-', last, others @ ..] => (*first..=*last).contains(&byte) || is_in(others, byte),
        [one, others @ ..] => *one == byte || is_in(others, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_its_pattern_as_a_whole() {
        let long = "a".repeat(64);
        for (pattern, valid, invalid) in [
            (NAME, &["a", "0", "a-b", "a--b"][..], &["", "-a", "a-", "a.b", "A", "a b", "a\n", &long][..]),
            (DOTTED_NAME, &["a", "a.b", "a..b", &long], &["", ".a", "a.", "a_b", "A"]),
            (CLUSTER_NAME, &["A", "a_b.C-1"], &["", "_a", "a_", "a/b"]),
            (HOST, &["a", "::1", "A.b-c:1"], &["", "a/b", "[::1]"]),
            (KEY, &["-", "_", "ca.crt"], &["", "a/b", "a b"]),
            (TAG, &["a", "_a", "a-", "A.b"], &["", "-a", ".a", "a:b"]),
            (REPOSITORY, &["ab", "a:5000/b_c"], &["", "a", "/a", "a/", "A/b", "a@b"]),
            (LABEL_NAME, &["a", "-", "a.b/c_D"], &["", "a b", "a=b"]),
            (LABEL_VALUE, &["", "a", "a.b_c-D"], &["-", "a-", ".a", "a/b", &long]),
        ] {
            for text in valid {
                assert!(pattern.fits(text), "{}: {text:?}", pattern.regex);
            }
            for text in invalid {
                assert!(!pattern.fits(text), "{}: {text:?}", pattern.regex);
            }
        }
    }
}
