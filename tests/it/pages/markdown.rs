//! Markdown.

/// A table in Markdown.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let line = |cells: &[String]| {
        cells
            .iter()
            .map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") })
            .collect::<String>()
    };
    let rows = rows.iter().map(|row| format!("|{}", line(row)));
    let heads = format!("|{}", line(&heads.map(str::to_owned)));
    [heads, format!("|{}", "---|".repeat(N))].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Each as code.
pub(crate) fn coded(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| format!("`{text}`")).collect()
}

/// `a, b and c`.
pub(crate) fn listed<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<_> = texts.iter().map(AsRef::as_ref).collect();
    match texts.as_slice() {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `a` or `b`, as code.
pub(crate) fn or(texts: &[String]) -> String {
    coded(texts).join(" or ")
}
