//! Spelling suggestions (pure).

/// " (did you mean `near`?)" if a known word is near the given one, else an empty text.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_lowercase();
    let near = |candidate: &str| 1 + candidate.len() / 4;
    known
        .into_iter()
        // Comparing lengths is cheaper, and words of very different lengths are not near.
        .filter(|candidate| candidate.len().abs_diff(lower.len()) <= near(candidate))
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= near(candidate))
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{candidate}`?)"))
        .unwrap_or_default()
}
