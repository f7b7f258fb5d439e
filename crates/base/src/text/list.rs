//! Lists in messages (pure).

/// Formats at most `most` items of a list on one line, with the number of the others: `a, b and 3 more`.
pub fn first<T: AsRef<str>>(most: usize, items: impl IntoIterator<Item = T>) -> String {
    let mut items = items.into_iter();
    let shown: Vec<_> = items.by_ref().take(most).collect();
    let shown = shown.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match items.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_with_a_number() {
        assert_eq!(first(2, [""; 0]), "");
        assert_eq!(first(2, ["a", "b"]), "a, b");
        assert_eq!(first(2, ["a", "b", "c", "d"]), "a, b and 2 more");
    }
}
