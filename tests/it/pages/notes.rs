//! The notes about a cloud in `docs/clouds/notes/`.

/// The sections that a page takes from the notes.
pub(crate) const SECTIONS: [&str; 3] = ["What the cluster must have", "Pitfalls", "Variants"];

/// A file of `docs/clouds/notes/`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    sections: Vec<(String, String)>,
    /// Sections that no page has.
    pub(crate) unknown: Vec<String>,
}

impl Notes {
    /// The notes in a text, which may be empty.
    pub(crate) fn of(text: &str) -> Self {
        let mut notes = Self::default();
        let (mut is_code, mut open) = (false, None::<(String, String)>);
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            let heading = line.get(level..).unwrap_or_default().trim();
            if is_code || level == 0 || level > 2 || heading.is_empty() {
                if let Some((_, section)) = &mut open {
                    section.push_str(line);
                    section.push('\n');
                }
            } else {
                notes.sections.extend(open.replace((heading.to_owned(), String::new())));
            }
        }
        notes.sections.extend(open);
        let known = |name: &String| SECTIONS.contains(&name.as_str());
        notes.unknown = notes.sections.iter().map(|(name, _)| name.clone()).filter(|name| !known(name)).collect();
        notes
    }

    /// The text of a section; empty without one.
    pub(crate) fn section(&self, name: &str) -> &str {
        let found = self.sections.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, text)| text.trim_matches('\n'))
    }
}

#[test]
fn sections_are_found_by_their_headings() {
    let text = "## Pitfalls\n- One.\n\n### Inner\n\n```yaml\n# no heading\n```\n## Variants\nx\n# Other\n";
    let notes = Notes::of(text);
    assert_eq!(notes.section("Pitfalls"), "- One.\n\n### Inner\n\n```yaml\n# no heading\n```");
    assert_eq!((notes.section("Variants"), notes.section("What the cluster must have")), ("x", ""));
    assert_eq!(notes.unknown, ["Other"]);
    assert_eq!(Notes::of(""), Notes::default());
}
