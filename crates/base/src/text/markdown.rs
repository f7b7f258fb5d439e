//! Markdown as plain text for a terminal, as far as the pages of docs/ use it (pure).

use std::{iter::Peekable, str::Lines};

use crate::text::output::{table_within, wrap};

/// The indentation of code and tables.
const INDENT: &str = "    ";

/// The beginning and the end of a block of code.
const FENCE: &str = "```";

/// A table, with the heading above it. All texts are plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The last heading before the table.
    pub heading: String,
    /// The titles of the columns.
    pub titles: Vec<String>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// Formats Markdown for a terminal of this width. Paragraphs are wrapped, code and tables are indented, and links become their text.
pub fn plain(markdown: &str, width: usize) -> String {
    let mut text = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with(FENCE) {
            for code in lines.by_ref().take_while(|line| !line.starts_with(FENCE)) {
                text.extend([INDENT, code, "\n"]);
            }
        } else if line.starts_with('|') {
            text += &columns(&table(line, &mut lines), width);
        } else if line.starts_with('#') {
            text.extend([inline(line.trim_start_matches('#')).trim(), "\n"]);
        } else if line.trim().is_empty() {
            text.push('\n');
        } else if !line.starts_with("<!--") {
            let mut paragraph = line.to_owned();
            while let Some(next) = lines.next_if(|next| is_continued(next)) {
                paragraph.extend([" ", next.trim()]);
            }
            text.extend([&wrap(&inline(&paragraph), width).join("\n"), "\n"]);
        }
    }
    text
}

/// Returns all tables.
pub fn tables(markdown: &str) -> Vec<Table> {
    let (mut tables, mut heading) = (Vec::new(), String::new());
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with(FENCE) {
            lines.by_ref().take_while(|line| !line.starts_with(FENCE)).for_each(drop);
        } else if line.starts_with('#') {
            inline(line.trim_start_matches('#')).trim().clone_into(&mut heading);
        } else if line.starts_with('|') {
            tables.push(Table { heading: heading.clone(), ..table(line, &mut lines) });
        }
    }
    tables
}

/// Whether a line continues the paragraph above it.
fn is_continued(line: &str) -> bool {
    let begins_another = ["|", "#", "- ", "<!--", FENCE].iter().any(|start| line.starts_with(start));
    !line.trim().is_empty() && !begins_another
}

/// Reads a table from its first line.
fn table(first: &str, lines: &mut Peekable<Lines<'_>>) -> Table {
    let mut all = vec![cells(first)];
    while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
        all.push(cells(line));
    }
    let titles = all.remove(0);
    // The second line only separates the titles from the rows.
    let rows = all.into_iter().skip(1).collect();
    Table { heading: String::new(), titles, rows }
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|');
    // A bar inside of a cell is written as \|.
    let line = line.strip_suffix('|').unwrap_or(line).replace(r"\|", "\0");
    line.split('|').map(|cell| inline(cell.trim()).replace('\0', "|")).collect()
}

/// Formats a table with two columns as such, and each row of another one as a paragraph.
fn columns(table: &Table, width: usize) -> String {
    let width = width.saturating_sub(INDENT.len());
    let pairs: Option<Vec<[String; 2]>> = table.rows.iter().map(|row| row.clone().try_into().ok()).collect();
    let text = match (pairs, table.titles.as_slice()) {
        (Some(rows), [first, second]) => table_within(width, [first, second], &rows),
        _ => table.rows.iter().map(|row| wrap(&row.join(": "), width).join("\n") + "\n").collect(),
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.flat_map(|line| [INDENT, line, "\n"]).collect()
}

/// Returns a text without the marks of links and of bold text. Code keeps its marks: they separate commands from words.
fn inline(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', '[', '*']) {
        let (before, from) = rest.split_at(at);
        plain += before;
        let (taken, left) = span(from);
        plain += &taken;
        rest = left;
    }
    plain + rest
}

/// Returns the plain text of the code, the link or the bold text at the start of a text, and the rest.
fn span(text: &str) -> (String, &str) {
    if let Some((code, rest)) = text.strip_prefix('`').and_then(|code| code.split_once('`')) {
        return (format!("`{code}`"), rest);
    }
    if let Some((bold, rest)) = text.strip_prefix("**").and_then(|bold| bold.split_once("**")) {
        return (inline(bold), rest);
    }
    let link = text.strip_prefix('[').and_then(|link| link.split_once("]("));
    if let Some((shown, (_, rest))) = link.and_then(|(shown, target)| Some((shown, target.split_once(')')?))) {
        return (inline(shown), rest);
    }
    // A mark without its end is a character like any other.
    let mut characters = text.chars();
    let first = characters.next().map(String::from).unwrap_or_default();
    (first, characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
## N07 Name: a title

**What.** A paragraph with `code [x](y)` and [a *link* with `code`](page.md#part)
that goes on, and 2 * 3.

<!-- not run: a comment -->
```console
$ kubectl get  pods | head
```

- an item
- another one,
  longer

| | |
|---|---|
| first | has `a\\|b` and a [link](x) |

## Other

| reason | meaning | what to do |
|---|---|---|
| `A` | one | two |
";

    #[test]
    fn a_page_reads_well_on_a_terminal() {
        let expected = "\
N07 Name: a title

What. A paragraph with `code [x](y)` and
a *link* with `code` that goes on, and 2
* 3.

    $ kubectl get  pods | head

- an item
- another one, longer

    first  has `a|b` and a link

Other

    `A`: one: two
";
        assert_eq!(plain(PAGE, 40), expected);
    }

    #[test]
    fn tables_are_found_below_their_headings() {
        let tables = tables(PAGE);
        let headings: Vec<_> = tables.iter().map(|table| table.heading.as_str()).collect();
        assert_eq!(headings, ["N07 Name: a title", "Other"]);
        assert_eq!(tables[0].rows, [["first", "has `a|b` and a link"]]);
        assert_eq!(tables[1].titles, ["reason", "meaning", "what to do"]);
    }

    #[test]
    fn no_text_is_lost_or_ends_in_a_panic() {
        for text in ["", "|", "[", "[a](", "**", "`", "```", "| a", "#", "ä*ö[ü`", "a]("] {
            let _ = tables(text);
            assert_eq!(inline(text), text);
            assert!(plain(text, 0).lines().count() <= 2, "{text}");
        }
    }
}
