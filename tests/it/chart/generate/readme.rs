//! The table of the chart's values in its `README.md`: each with its default and the comment above it in `values.yaml`.

use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

/// The line before the table. The page ends with the table.
const MARK: &str = "<!-- Generated from values.yaml by `make generate`. -->\n";

/// The page with the table of these values.
pub(super) fn with_table(page: &str, values: &str) -> Result<String> {
    let (text, _) = page.split_once(MARK).with_context(|| format!("README.md has no line {MARK:?}"))?;
    Ok(format!("{text}{MARK}\n{}", table(values)?))
}

/// The values with their fields. A value without a comment is an error, because it would have no description.
fn table(values: &str) -> Result<String> {
    let mut table = "| value | default | |\n|---|---|---|\n".to_owned();
    let (mut comment, mut parent) = (Vec::new(), "");
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some((key, default)) = text.split_once(':') {
            ensure!(!comment.is_empty(), "values.yaml: {key} has no comment");
            let name = match line.len() - text.len() {
                0 => {
                    parent = key;
                    key.to_owned()
                }
                2 => format!("{parent}.{key}"),
                _ => bail!("values.yaml: {parent} has fields of fields: write it on one line"),
            };
            let default = match default.trim() {
                "" => String::new(),
                default => format!(" `{default}`"),
            };
            writeln!(table, "| `{name}` |{default} | {} |", comment.join(" ").replace('|', "\\|"))?;
        }
        comment.clear();
    }
    Ok(table)
}
