//! Finds the secrets of a text by its structure, and reads the rest line by line (pure).

use std::{collections::BTreeMap, ops::Range};

use serde::de::IgnoredAny;

use crate::text::{
    ini::Document,
    mask::{
        is_secret_key,
        words::{self, Reader},
    },
    yaml::outline::{Documents, Node, Shape, documents},
};

/// The bytes of the secrets of a text, in no order; they may overlap.
pub(super) fn secrets(text: &str) -> Vec<Range<usize>> {
    if let Some(found) = json(text) {
        return found;
    }
    let documents = documents(text);
    let is_line = !text.trim().contains('\n');
    let is_yaml = documents.roots.iter().any(|root| match &root.shape {
        // A line such as `failed to pull the image: not found` is not YAML.
        Shape::Block(members) => !is_line || members.iter().all(|member| !member.key.contains(' ')),
        Shape::Flow(_) | Shape::List(_) => true,
        _ => false,
    });
    // Texts that are both are rare; then the secrets of both count.
    match (ini(text), is_yaml) {
        (Some(found), true) if documents.error.is_none() => found.into_iter().chain(yaml(text, &documents)).collect(),
        (Some(found), _) => found,
        (None, true) => yaml(text, &documents),
        (None, false) => words::secrets(text, 0..text.len()),
    }
}

pub(super) fn json(text: &str) -> Option<Vec<Range<usize>>> {
    let mark = text.len() - text.trim_start_matches('\u{feff}').len();
    let is_json = text[mark..].trim_start().starts_with(['{', '[']);
    if !is_json || serde_json::from_str::<IgnoredAny>(&text[mark..]).is_err() {
        return None;
    }
    let mut found = Vec::new();
    // Whether each open container is an object, and the start of the value of a secret's key, with its depth.
    let (mut objects, mut secret) = (Vec::new(), None);
    let (mut at, mut is_key, mut is_secret) = (mark, false, false);
    while let Some(first) = text[at..].chars().next() {
        let end = match first {
            '"' => words::string_end(text, at) + 1,
            '{' | '[' | '}' | ']' | ',' | ':' => at + 1,
            blank if blank.is_whitespace() => at + blank.len_utf8(),
            _ => text[at..].find([',', '}', ']', ' ', '\t', '\r', '\n']).map_or(text.len(), |end| at + end),
        };
        match first {
            '{' | '[' => {
                if is_secret && secret.is_none() {
                    secret = Some((at, objects.len()));
                }
                objects.push(first == '{');
                (is_key, is_secret) = (first == '{', false);
            }
            '}' | ']' => {
                objects.pop();
                if let Some((start, _)) = secret.take_if(|(_, depth)| *depth == objects.len()) {
                    found.push(start..end);
                }
                is_secret = false;
            }
            ',' => (is_key, is_secret) = (objects.last() == Some(&true), false),
            ':' => is_key = false,
            blank if blank.is_whitespace() => {}
            '"' if is_key => {
                let written = &text[at..end];
                // A name that cannot be decoded may be the name of a secret.
                is_secret = serde_json::from_str::<String>(written).map_or(true, |key| is_secret_key(&key));
            }
            _ if is_secret => found.push(inside_quotes(text, at..end)),
            _ => found.extend(words::secrets(text, inside_quotes(text, at..end))),
        }
        at = end;
    }
    Some(found)
}

fn ini(text: &str) -> Option<Vec<Range<usize>>> {
    let document = Document::parse(text).ok()?;
    document.headers().next()?;
    // The parser drops the byte order mark.
    let mark = text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len();
    let (mut found, mut others) = (Vec::new(), Reader::default());
    // A secret's key without a value: the secret may be on the next lines.
    let (mut hides_line, mut is_open) = (false, false);
    for (key, part) in document.parts() {
        let part = part.start + mark..part.end + mark;
        let written = &text[part.clone()];
        if let Some(key) = key {
            let is_secret = is_secret_key(key);
            let start = text[..part.start].rfind('\n').map_or(0, |at| at + 1);
            // A secret may look like the name of another secret.
            let is_value = is_open && !text[start..part.end].trim_end_matches('=').contains('=');
            is_open = is_value || (is_secret && written.trim().is_empty());
            hides_line = is_secret || is_open;
            others = Reader::default();
            if is_value {
                found.push(start..part.end);
            } else if is_secret {
                found.push(part);
            } else {
                found.extend(words::secrets(text, part));
            }
            continue;
        }
        // The text after a secret may be a part of it: the value ends at `#` and `;`.
        let end = part.start + written.find('\n').unwrap_or(written.len());
        if std::mem::take(&mut hides_line) {
            found.push(part.start..end);
        } else if written.trim_start().starts_with('[') {
            (others, is_open) = (Reader::default(), false);
            found.extend(words::secrets(text, part));
        } else {
            found.extend(others.read(text, part));
        }
    }
    Some(found)
}

/// Returns the secrets of all documents up to the first syntax error, and of the text after it.
fn yaml(text: &str, documents: &Documents) -> Vec<Range<usize>> {
    let Documents { roots, end, .. } = documents;
    let end = *end;
    let mut walk = Walk { text, ..Walk::default() };
    for root in roots {
        walk.note_anchors(root);
    }
    for (index, root) in roots.iter().enumerate() {
        walk.visit(root, roots.get(index + 1).map_or(end, |next| next.span.start));
    }
    let Walk { secrets, mut scalars, .. } = walk;
    let mut found: Vec<_> = scalars.iter().flat_map(|scalar| words::secrets(text, scalar.clone())).collect();
    // The rest is comments and punctuation.
    scalars.extend(secrets.iter().cloned());
    scalars.sort_by_key(|scalar| scalar.start);
    let mut comments = Reader::default();
    let mut from = 0;
    for Range { start, end } in scalars.into_iter().chain(std::iter::once(end..end)) {
        if from < start {
            found.extend(comments.comments(text, from..start));
        }
        from = from.max(end);
    }
    found.extend(secrets);
    found.extend(words::secrets(text, end..text.len()));
    found
}

/// Visits the nodes of YAML documents.
#[derive(Default)]
struct Walk<'a> {
    text: &'a str,
    /// The positions of anchored values and keys. An alias as the value of a secret's key makes them secret.
    anchors: BTreeMap<usize, (Range<usize>, Option<&'a Node>)>,
    secrets: Vec<Range<usize>>,
    /// The other scalars and keys.
    scalars: Vec<Range<usize>>,
}

impl<'a> Walk<'a> {
    fn note_anchors(&mut self, node: &'a Node) {
        if node.anchor != 0 {
            self.anchors.insert(node.anchor, (node.span.clone(), Some(node)));
        }
        for member in node.members() {
            if member.key_anchor != 0 {
                self.anchors.insert(member.key_anchor, (member.key_span.clone(), None));
            }
            self.note_anchors(&member.value);
        }
        if let Shape::List(items) = &node.shape {
            for item in items {
                self.note_anchors(item);
            }
        }
    }

    /// The node ends before `limit`, where the next one begins.
    fn visit(&mut self, node: &'a Node, limit: usize) {
        let limit = if matches!(node.shape, Shape::Flow(_)) { limit.min(node.span.end) } else { limit };
        let members = node.members();
        for (index, member) in members.iter().enumerate() {
            let limit = members.get(index + 1).map_or(limit, |next| next.key_span.start);
            self.scalars.push(member.key_span.clone());
            let is_alias = self.text[member.key_span.clone()].starts_with('*');
            if is_alias || is_secret_key(&member.key) {
                self.secrets.extend(self.value(&member.key_span, &member.value, limit));
                self.follow(&member.value);
            } else {
                self.visit(&member.value, limit);
            }
        }
        match &node.shape {
            Shape::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.visit(item, items.get(index + 1).map_or(limit, |next| next.span.start));
                }
            }
            Shape::Scalar => self.scalars.push(node.span.clone()),
            _ => {}
        }
    }

    /// Returns the whole range between a key's colon and the end of its value: to the parser, a password that begins with
    /// `!` or `&` is a tag or an anchor and not part of the value.
    fn value(&self, key: &Range<usize>, value: &Node, limit: usize) -> Option<Range<usize>> {
        let behind = self.text.get(key.end..limit)?;
        let colon = key.end + behind.find(':')? + 1;
        // The rest of its line may be a part of it: a value ends at ` #`.
        let rest = self.text.get(value.span.end..limit).unwrap_or_default();
        let line = value.span.end + rest.find('\n').unwrap_or(rest.len());
        let end = if ends_with_omitted(value) { limit } else { line.max(colon) };
        let secret = self.text.get(colon..end)?;
        let least = value.span.end.saturating_sub(colon).min(secret.len());
        let beyond = |c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']' | '-' | '?');
        let length = secret.trim_end_matches(beyond).len().max(least);
        let secret = self.text.get(colon..colon + length)?;
        let start = colon + secret.len() - secret.trim_start_matches([' ', '\t']).len();
        Some(inside_quotes(self.text, start..colon + secret.len()))
    }

    /// Also marks the targets of aliases in a secret as secret, each once.
    fn follow(&mut self, secret: &'a Node) {
        let mut open = vec![secret];
        while let Some(node) = open.pop() {
            match &node.shape {
                Shape::Alias(anchor) => {
                    if let Some((span, node)) = self.anchors.remove(anchor) {
                        self.secrets.push(span);
                        open.extend(node);
                    }
                }
                Shape::List(items) => open.extend(items),
                _ => open.extend(node.members().iter().map(|member| &member.value)),
            }
        }
    }
}

/// Whether the last value in a value is omitted: the parser does not locate its tag or anchor.
fn ends_with_omitted(node: &Node) -> bool {
    match &node.shape {
        Shape::List(items) => items.last().is_some_and(ends_with_omitted),
        Shape::Block(members) => members.last().is_some_and(|member| ends_with_omitted(&member.value)),
        _ => node.span.is_empty(),
    }
}

/// Returns a value without the quotes around it.
fn inside_quotes(text: &str, value: Range<usize>) -> Range<usize> {
    let written = &text[value.clone()];
    let is_quoted = |quote: char| written.len() > 1 && written.starts_with(quote) && written.ends_with(quote);
    if is_quoted('"') || is_quoted('\'') { value.start + 1..value.end - 1 } else { value }
}
