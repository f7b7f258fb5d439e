//! Spelling suggestions (pure).

/// " (did you mean `near`?)" if a known word is near the given one, else an empty text.
pub fn did_you_mean<S: AsRef<str> + Ord>(word: &str, known: impl IntoIterator<Item = S>) -> String {
    let lower = word.to_lowercase();
    let near = |candidate: &S| 1 + candidate.as_ref().len() / 4;
    known
        .into_iter()
        // Comparing lengths is cheaper, and words of very different lengths are not near.
        .filter(|candidate| candidate.as_ref().len().abs_diff(lower.len()) <= near(candidate))
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.as_ref().to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= near(candidate))
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{}`?)", candidate.as_ref()))
        .unwrap_or_default()
}
