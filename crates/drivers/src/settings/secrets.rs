//! Masks the values of secret settings in texts (pure).

/// What stands in place of a secret.
pub(super) const MASK: &str = "(secret)";

/// The end of a text that [`crate::error::brief`] has shortened.
const CUT: &str = "…";

/// The minimum number of bytes of what is masked. Shorter texts are parts of many words.
const MIN_LENGTH: usize = 4;

/// Texts that no output may have.
#[derive(Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Takes the values of secrets. They are masked in each form in which a message may have them.
    pub(crate) fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> =
            secrets.into_iter().flat_map(forms).filter(|form| form.len() >= MIN_LENGTH).collect();
        // A secret may be a part of another one.
        forms.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        forms.dedup();
        Self(forms)
    }

    /// Replaces them in a text, also the beginning of one where the text was shortened.
    pub(crate) fn mask(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, form| text.replace(form, MASK));
        if !text.contains(CUT) {
            return text;
        }
        self.0
            .iter()
            .flat_map(|form| beginnings(form))
            .fold(text, |text, beginning| text.replace(&format!("{beginning}{CUT}"), &format!("{MASK}{CUT}")))
    }
}

/// The forms of a secret in messages: as it is, quoted, and each of its lines.
fn forms(secret: &str) -> impl Iterator<Item = String> {
    let lines = secret.lines().map(str::trim);
    [secret].into_iter().chain(lines).flat_map(|text| [text.to_owned(), text.escape_debug().to_string()])
}

/// The beginnings of a text, the longest first.
fn beginnings(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.char_indices().map(|(end, _)| end).rev();
    ends.take_while(|end| *end >= MIN_LENGTH).map(|end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{MOST_OF_A_TEXT, brief};

    #[test]
    fn a_secret_is_masked_in_each_form_of_a_message() {
        let key = "-----BEGIN KEY-----\n  c2VjcmV0LW9mLXRoZS1rZXk\n-----END KEY-----\n";
        let secrets = Secrets::of(["hunter2", "hunter2-and-more", r#"a"b\c"#, key, "abc", ""]);
        for (text, masked) in [
            ("the token hunter2 is wrong", "the token (secret) is wrong".to_owned()),
            ("hunter2-and-more, hunter2", "(secret), (secret)".to_owned()),
            (&format!("{:?}", r#"a"b\c"#), "\"(secret)\"".to_owned()),
            (&brief(key), "(secret)   (secret) (secret) ".to_owned()),
            (&format!("{key:?}"), "\"(secret)\"".to_owned()),
            ("abc is a part of abcd, hunter is none", "abc is a part of abcd, hunter is none".to_owned()),
        ] {
            assert_eq!(secrets.mask(text), masked);
        }
        assert_eq!(Secrets::default().mask("hunter2…"), "hunter2…");
    }

    #[test]
    fn the_beginning_of_a_secret_that_was_cut_off_is_masked() {
        let long = "é0123456789".repeat(40);
        let secrets = Secrets::of([long.as_str()]);
        for before in [0, 1, 100, MOST_OF_A_TEXT - 4] {
            let before = "x".repeat(before);
            let text = brief(&format!("{before}{long}")).into_owned();
            assert_eq!(secrets.mask(&text), format!("{before}(secret)…"));
        }
        let few = format!("{}012…", "x".repeat(100));
        assert_eq!(Secrets::of(["0123456"]).mask(&few), few, "too little to be one");
    }
}
