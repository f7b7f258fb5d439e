//! Edits of a file of Python, as a reader makes them. An edit that does not fit the file fails.

/// An edit of a page.
#[derive(Debug, PartialEq)]
pub(crate) enum Edit {
    /// Definitions that replace those of their names. A new one comes before the next one of the text that is there, else after the
    /// one before it.
    Replace(String),
    /// Lines that begin with a space, `-` or `+`. What they begin with has to be in the file once.
    Diff(String),
    /// The names of definitions, or a key with its quotes.
    Delete(Vec<String>),
}

/// A definition at the beginning of a line, or one step inside of a class: its indentation and its name.
type Name = (usize, String);

/// A definition with its comments and decorators, or what stands between.
type Part = (Option<Name>, String);

impl Edit {
    /// The file after the edit.
    pub(crate) fn apply(&self, file: &str) -> String {
        match self {
            Self::Replace(text) => replaced(file, text),
            Self::Diff(lines) => patched(file, lines),
            Self::Delete(names) => names.iter().fold(file.to_owned(), |file, name| deleted(&file, name)),
        }
    }
}

fn replaced(file: &str, text: &str) -> String {
    let (mut parts, new) = (parts(file), parts(text));
    let place = |parts: &[Part], name: &Option<Name>| parts.iter().position(|(old, _)| old == name);
    let mut last = None;
    for (index, (name, text)) in new.iter().enumerate() {
        let Some((indent, _)) = name else { panic!("no definition: {text}") };
        last = Some(if let Some(at) = place(&parts, name) {
            let old = &mut parts[at].1;
            *old = format!("{}{}", text.trim_end(), &old[old.trim_end().len()..]);
            at
        } else {
            let next = new[index..].iter().find_map(|(name, _)| place(&parts, name));
            let at = next.or(last.map(|last| last + 1)).unwrap_or_else(|| panic!("no place for {name:?}"));
            let end = if *indent == 0 { "\n\n\n" } else { "\n\n" };
            parts.insert(at, (name.clone(), format!("{}{end}", text.trim_end())));
            at
        });
    }
    whole(parts)
}

fn patched(file: &str, lines: &str) -> String {
    let without = |sign: char| -> String {
        let lines = lines.split_inclusive('\n').filter(|line| !line.starts_with(sign));
        lines.map(|line| line.get(1..).unwrap_or(line)).collect()
    };
    let (old, new) = (without('+'), without('-'));
    assert_eq!(file.matches(&old).count(), 1, "the file has to have this once:\n{old}\n{file}");
    file.replacen(&old, &new, 1)
}

fn deleted(file: &str, name: &str) -> String {
    if name.starts_with('"') {
        let is_key = |line: &&str| line.trim_start().starts_with(&format!("{name}:"));
        assert_eq!(file.split_inclusive('\n').filter(is_key).count(), 1, "{name}");
        return file.split_inclusive('\n').filter(|line| !is_key(line)).collect();
    }
    let mut parts = parts(file);
    let is_it = |part: &Part| part.0.as_ref().is_some_and(|(_, one)| one == name);
    assert_eq!(parts.iter().filter(|part| is_it(part)).count(), 1, "{name} has to be there once");
    let at = parts.iter().position(is_it).unwrap_or_default();
    let (_, text) = parts.remove(at);
    // The lines that separate it from the next one do so for the one before it.
    let (_, before) = &mut parts[at - 1];
    *before = format!("{}{}", before.trim_end(), &text[text.trim_end().len()..]);
    whole(parts)
}

fn whole(parts: Vec<Part>) -> String {
    parts.into_iter().map(|(_, text)| text).collect()
}

fn parts(text: &str) -> Vec<Part> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut parts, mut begins) = (Vec::<Part>::new(), None);
    for (index, line) in lines.iter().enumerate() {
        // Comments and decorators belong to the definition below them.
        let is_lead = |line: &str| line.trim_start().starts_with(['#', '@']);
        let below = lines[index..].iter().position(|line| !is_lead(line)).map_or(index, |count| index + count);
        let name = name_of(lines[below]).filter(|(indent, _)| *indent == indent_of(line));
        let is_outside = !line.trim().is_empty() && indent_of(line) == 0 && !line.starts_with([')', ']', '}']);
        if name.is_some() && begins != Some(below) {
            parts.push((name, (*line).to_owned()));
            begins = Some(below);
        } else if let Some((_, part)) = parts.last_mut().filter(|_| begins == Some(below) || !is_outside) {
            part.push_str(line);
        } else {
            parts.push((None, (*line).to_owned()));
        }
    }
    parts
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn name_of(line: &str) -> Option<Name> {
    let (indent, text) = (indent_of(line), line.trim_start());
    let rest = text.strip_prefix("def ").or_else(|| text.strip_prefix("class "));
    let name: String = rest.unwrap_or(text).chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect();
    let follows = |ends: &[&str]| ends.iter().any(|end| text[name.len()..].starts_with(end));
    // Inside of functions there are variables, too.
    let is_constant = follows(&[" =", ": ", ", "]) && !name.chars().any(char::is_lowercase);
    ([0, 4].contains(&indent) && !name.is_empty() && (rest.is_some() || is_constant)).then_some((indent, name))
}
