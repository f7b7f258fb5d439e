//! Words of a YAML text that one version of YAML reads as text and another as something else (pure).
//!
//! A parser has decided already, so this reads the text itself: quotes, comments, block scalars and flow collections, and
//! no more of YAML than that.

/// The ambiguous words of a text with their lines, from 1.
pub(super) fn ambiguous(text: &str) -> Vec<(u64, String)> {
    let mut scanner = Scanner::default();
    let mut block = None;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || block.is_some_and(|outer| indent(line) > outer) {
            continue;
        }
        let words = scanner.words(line);
        let opens_block = words.last().is_some_and(|word| is_block_indicator(word));
        block = opens_block.then(|| indent_of_node(line));
        found.extend(words.into_iter().filter(|word| is_ambiguous(word)).map(|word| (number, word)));
    }
    found
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Lines of a block scalar are indented deeper than this: than its key, or than its own dash.
fn indent_of_node(line: &str) -> usize {
    let mut rest = line.trim_start();
    while let Some(inner) = rest.strip_prefix("- ").map(str::trim_start) {
        if inner.starts_with(['|', '>']) {
            break;
        }
        rest = inner;
    }
    line.len() - rest.len()
}

fn is_block_indicator(word: &str) -> bool {
    let rest = word.strip_prefix(['|', '>']);
    rest.is_some_and(|rest| rest.chars().all(|character| character.is_ascii_digit() || "+-".contains(character)))
}

fn is_ambiguous(word: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let truth = ["y", "yes", "n", "no", "on", "off"].contains(&word.to_lowercase().as_str());
    let octal = word.len() > 1 && word.starts_with('0') && is_digits(word);
    // 12:30:45 is a number of seconds in YAML 1.1.
    let mut parts = word.split(':');
    let first = parts.next().is_some_and(|part| is_digits(part.trim_start_matches(['+', '-'])));
    let sixtieths: Vec<_> = parts.collect();
    let is_sixtieth = |part: &&str| is_digits(part) && part.parse::<u8>().is_ok_and(|number| number < 60);
    truth || octal || (first && !sixtieths.is_empty() && sixtieths.iter().all(is_sixtieth))
}

/// Finds plain scalars, keys too; what it is inside of goes on over the end of a line.
#[derive(Default)]
struct Scanner {
    quote: Option<char>,
    flow_depth: usize,
}

impl Scanner {
    fn words(&mut self, line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut characters = line.chars().peekable();
        let mut before = ' ';
        while let Some(character) = characters.next() {
            let Some(word) = words.last_mut() else { break };
            let next = characters.peek().copied().unwrap_or(' ');
            let begins = word.trim().is_empty();
            match (self.quote, character) {
                (Some(quote), _) if character == quote => self.quote = None,
                (Some('"'), '\\') => drop(characters.next()),
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if begins => {
                    self.quote = Some(character);
                    // What is quoted is never ambiguous.
                    word.push('"');
                }
                (None, '[' | '{') if begins || self.flow_depth > 0 => {
                    self.flow_depth += 1;
                    words.push(String::new());
                }
                (None, ']' | '}') if self.flow_depth > 0 => {
                    self.flow_depth -= 1;
                    words.push(String::new());
                }
                (None, ',') if self.flow_depth > 0 => words.push(String::new()),
                (None, ':') if next.is_whitespace() => words.push(String::new()),
                (None, '-' | '?') if begins && next.is_whitespace() => {}
                (None, _) => word.push(character),
            }
            before = character;
        }
        words.into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_words_are_found_where_they_are_plain() {
        for (text, expected) in [
            ("a: yes", &[(1, "yes")][..]),
            ("a: Off # why", &[(1, "Off")]),
            ("- on\n- [n, {b: y}]", &[(1, "on"), (2, "n"), (2, "y")]),
            ("on: 1", &[(1, "on")]),
            ("defaultMode: 0644", &[(1, "0644")]),
            ("time: 12:30:45", &[(1, "12:30:45")]),
            ("a: [\n  no,\n]", &[(2, "no")]),
            ("- key: |\n    yes\n  other: no", &[(3, "no")]),
            ("- >-\n  yes\n- no", &[(3, "no")]),
            ("a: 'it''s'\nb: no", &[(2, "no")]),
            ("a: \"b \\\" no\"", &[]),
            ("a: \"b\n  no\"", &[]),
            ("a: 'yes'\nb: \"no\" # off", &[]),
            ("a: true\nb: 10\nc: 0\nd: 0.5", &[]),
            ("a: 8080:80\nb: ::1\nc: host:443\nd: sha256:00", &[]),
            ("a: yes, that\nb: don't\nc: n/a", &[]),
            ("args: --controllers=*,-cloud-node,no", &[]),
        ] {
            let found = ambiguous(text);
            let found: Vec<_> = found.iter().map(|(line, word)| (*line, word.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
