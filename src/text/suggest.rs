//! Suggests the nearest correct spelling (pure).

/// " (did you mean `near`?)" if a known word is similar to the given one, otherwise an empty text.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_lowercase();
    let near = |candidate: &str| 1 + candidate.len() / 4;
    known
        .into_iter()
        // Words of very different length are not similar, and the length is cheaper to compare.
        .filter(|candidate| candidate.len().abs_diff(lower.len()) <= near(candidate))
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= near(candidate))
        .min()
        .map(|(_, candidate)| format!(" (did you mean `{candidate}`?)"))
        .unwrap_or_default()
}
