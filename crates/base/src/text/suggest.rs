//! Spelling suggestions (pure).

use std::cell::Cell;

use crate::text::work;

/// The maximum length in bytes of a word with a suggestion: the search time is the product of the lengths of two words.
const LONGEST: usize = 64;

/// The maximum number of known words that are searched.
const MOST_KNOWN: usize = 200;

/// The maximum number of suggestions in one report.
const MOST_HINTS: usize = 100;

/// Returns " (did you mean `near`?)" if a known word is near the given one, else an empty text. Does not search long
/// words and long lists.
pub fn did_you_mean<S: AsRef<str> + Ord>(word: &str, known: impl IntoIterator<Item = S>) -> String {
    if word.len() > LONGEST {
        return String::new();
    }
    let known: Vec<_> = known.into_iter().take(MOST_KNOWN + 1).collect();
    if known.len() > MOST_KNOWN {
        return String::new();
    }
    let lower = word.to_lowercase();
    let near = |candidate: &S| 1 + candidate.as_ref().len() / 4;
    known
        .into_iter()
        // Comparing lengths is cheaper, and words of very different lengths are not near.
        .filter(|candidate| candidate.as_ref().len().abs_diff(lower.len()) <= near(candidate))
        .map(|candidate| {
            work::add(lower.len() * candidate.as_ref().len());
            (strsim::osa_distance(&lower, &candidate.as_ref().to_lowercase()), candidate)
        })
        .filter(|(distance, candidate)| *distance <= near(candidate))
        // Typing errors are rarely in the first letter: a word with another first letter is near only if it has a single error.
        .filter(|(distance, candidate)| *distance <= 1 || begins(candidate.as_ref()) == begins(&lower))
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{}`?)", candidate.as_ref()))
        .unwrap_or_default()
}

fn begins(word: &str) -> Option<char> {
    word.chars().next().map(|first| first.to_ascii_lowercase())
}

/// The suggestions of one report. Untrusted text may decide their number.
#[derive(Default)]
pub struct Hints(Cell<usize>);

impl Hints {
    /// The same as [`did_you_mean`] for the first words, and an empty text for all others. A word without a suggestion should
    /// not be repeated in a message: it may be a line of a secret.
    pub fn of<S: AsRef<str> + Ord>(&self, word: &str, known: impl IntoIterator<Item = S>) -> String {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MOST_HINTS { String::new() } else { did_you_mean(word, known) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_begins_otherwise_is_another_one() {
        let known = ["aws", "gcp", "hcloud"];
        for (word, near) in
            [("asw", "aws"), ("wsa", ""), ("hclud", "hcloud"), ("jcloud", "hcloud"), ("HCLUOD", "hcloud")]
        {
            let hint = if near.is_empty() { String::new() } else { format!(" (did you mean `{near}`?)") };
            assert_eq!(did_you_mean(word, known), hint, "{word}");
        }
        assert_eq!(did_you_mean("upcloud", known), "", "a cloud of its own");
    }

    #[test]
    fn long_words_and_many_have_no_suggestion() {
        let near = " (did you mean `namespace`?)";
        assert_eq!(did_you_mean("namespac", ["namespace"]), near);
        let long = "a".repeat(LONGEST);
        assert_eq!(did_you_mean(&long, [format!("{long}b")]), format!(" (did you mean `{long}b`?)"));
        assert_eq!(did_you_mean(&format!("{long}a"), [format!("{long}b")]), "");
        let words = |count: usize| (1..count).map(|n| n.to_string()).chain(["namespace".to_owned()]);
        assert_eq!(did_you_mean("namespac", words(MOST_KNOWN)), near);
        assert_eq!(did_you_mean("namespac", words(MOST_KNOWN + 1)), "");
        let hints = Hints::default();
        let given: Vec<_> = (0..=MOST_HINTS).map(|_| hints.of("namespac", ["namespace"])).collect();
        assert_eq!((given[MOST_HINTS - 1].as_str(), given[MOST_HINTS].as_str()), (near, ""));
    }
}
