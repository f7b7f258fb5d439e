//! The places of values in a YAML text (pure).
//!
//! It finds places, not values: [`super::from_str`] parses the values and refuses repeated keys. The parser limits the
//! depth of nesting. Aliases are not followed.

use std::{collections::BTreeSet, ops::Range};

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, StructureStyle};
use serde_json::Value;

use crate::text::{Place, Problem};

/// The first document of a text.
#[derive(Debug)]
pub struct Outline {
    /// Its value.
    pub root: Node,
    /// The byte where it ends; other documents may follow.
    pub end: usize,
    /// The first line of the next document.
    pub next: Option<usize>,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its byte range, without anchor, tag and comment. Empty for an omitted value.
    pub span: Range<usize>,
    /// Its first line, from 1.
    pub(super) line: usize,
    /// The parser's number of its anchor; 0 without one.
    pub anchor: usize,
    /// The content of the node.
    pub shape: Shape,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// An omitted value, or a plain null.
    Null,
    /// Another scalar.
    Scalar,
    /// An alias of the anchor with this number.
    Alias(usize),
    /// A list, in either style.
    List(Vec<Node>),
    /// A mapping, one member a line.
    Block(Vec<Member>),
    /// A mapping in braces.
    Flow(Vec<Member>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Member {
    /// Without quotes and escapes; empty for an alias, a list or a mapping.
    pub key: String,
    /// The parser's number of the key's anchor; 0 without one.
    pub key_anchor: usize,
    /// The bytes of the key.
    pub key_span: Range<usize>,
    /// The key's line, from 1.
    pub line: usize,
    /// The value.
    pub value: Node,
}

impl Member {
    /// The bytes from the key to the end of the value.
    pub fn span(&self) -> Range<usize> {
        self.key_span.start..self.value.span.end.max(self.key_span.end)
    }
}

impl Node {
    /// Whether the value is a mapping, in either style.
    pub fn is_mapping(&self) -> bool {
        matches!(self.shape, Shape::Block(_) | Shape::Flow(_))
    }

    pub(super) fn is_scalar(&self) -> bool {
        matches!(self.shape, Shape::Scalar)
    }

    /// Returns the line and the text of a key that its mapping repeats. The reader finds only repeated keys with the same tag.
    pub(super) fn repeated_key(&self) -> Option<(usize, &str)> {
        if let Shape::List(items) = &self.shape {
            return items.iter().find_map(Self::repeated_key);
        }
        let mut seen = BTreeSet::new();
        self.members().iter().find_map(|Member { key, line, value, .. }| {
            // A mapping may have several merge keys. A key that is not a scalar has no text.
            let is_repeated = !matches!(key.as_str(), "" | "<<") && !seen.insert(key.as_str());
            if is_repeated { Some((*line, key.as_str())) } else { value.repeated_key() }
        })
    }

    /// The members of a mapping, in their order; empty for any other value.
    pub fn members(&self) -> &[Member] {
        match &self.shape {
            Shape::Block(members) | Shape::Flow(members) => members,
            Shape::Null | Shape::Scalar | Shape::Alias(_) | Shape::List(_) => &[],
        }
    }

    /// Returns the first member with a key.
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().find(|member| member.key == key)
    }
}

/// Returns the places of the values of the first document; `None` without a document, as in a text of comments.
pub fn outline(text: &str) -> Result<Option<Outline>, Problem> {
    let mut events = Events::new(text);
    let Some((root, end)) = events.document()? else { return Ok(None) };
    // Errors after the first document do not matter: readers stop there.
    let next = std::iter::from_fn(|| events.next().ok().flatten())
        .find_map(|(event, span)| matches!(event, Event::DocumentStart(..)).then(|| span.start.line()));
    Ok(Some(Outline { root, end, next }))
}

/// Returns the root of every document that is not empty.
pub(super) fn roots(text: &str) -> Result<Vec<Node>, Problem> {
    let Documents { mut roots, error, .. } = documents(text);
    roots.retain(|root| !matches!(root.shape, Shape::Null));
    error.map_or(Ok(roots), Err)
}

/// The documents of a text up to its first syntax error.
pub struct Documents {
    /// The root of each document that is not empty.
    pub roots: Vec<Node>,
    /// The byte where the last of them ends.
    pub end: usize,
    /// The error.
    pub error: Option<Problem>,
}

/// The documents of a text up to its first syntax error.
pub fn documents(text: &str) -> Documents {
    let mut events = Events::new(text);
    let mut documents = Documents { roots: Vec::new(), end: 0, error: None };
    loop {
        match events.document() {
            Ok(Some((root, end))) => {
                documents.roots.push(root);
                documents.end = end;
            }
            Ok(None) => return documents,
            Err(error) => return Documents { error: Some(error), ..documents },
        }
    }
}

/// Returns the scalars and keys without quotes and tag, up to the first syntax error, each with its line.
pub fn plain_scalars(text: &str) -> Vec<(usize, String)> {
    let mut events = Events::new(text);
    let events = std::iter::from_fn(|| events.next().ok().flatten());
    let plain = events.filter_map(|(event, span)| match event {
        Event::Scalar(text, ScalarStyle::Plain, _, None) => Some((span.start.line(), text.into_owned())),
        _ => None,
    });
    plain.collect()
}

/// The maximum nesting depth of values. No configuration comes near it, and each level takes a piece of the stack.
const DEEPEST: usize = 100;

/// The events of the parser.
pub(super) struct Events<'a> {
    text: &'a str,
    /// The nesting depth of the current value.
    depth: usize,
    parser: Parser<'a, StrInput<'a>>,
}

impl<'a> Events<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut options = Options::default();
        options.set_emit_comments(false);
        Self { text, depth: 0, parser: Parser::new_from_str_with_options(text, options) }
    }

    pub(super) fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Problem> {
        self.parser.next().transpose().map_err(|error| {
            let place = Place { line: error.marker().line(), column: Some(error.marker().col() + 1) };
            Problem { place: Some(place), message: error.info().replace('\n', " ") }
        })
    }

    /// Reads the next document. Also returns the byte where it ends.
    fn document(&mut self) -> Result<Option<(Node, usize)>, Problem> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) => {}
                Event::DocumentEnd => return Ok(root.map(|root| (root, bytes(&span).start))),
                event => root = Some(self.node(&event, &span)?),
            }
        }
        Ok(root.map(|root| (root, self.text.len())))
    }

    fn node(&mut self, event: &Event<'a>, span: &Span) -> Result<Node, Problem> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Problem::at(span.start.line(), format!("nested deeper than {DEEPEST} levels")));
        }
        let node = self.value(event, span);
        self.depth -= 1;
        node
    }

    fn value(&mut self, event: &Event<'a>, span: &Span) -> Result<Node, Problem> {
        let (line, mut span) = (span.start.line(), bytes(span));
        let shape = match event {
            Event::MappingStart(style, ..) => {
                let mut members = Vec::new();
                while let Some((event, at)) = self.next()? {
                    if matches!(event, Event::MappingEnd) {
                        span.end = end(*style, bytes(&at).end, members.last().map(Member::span), span.end);
                        break;
                    }
                    let line = at.start.line();
                    let Node { span: key_span, anchor: key_anchor, .. } = self.node(&event, &at)?;
                    let key = event.scalar().map_or_else(String::new, |(text, _)| text.to_owned());
                    let Some((event, at)) = self.next()? else { break };
                    let mut value = self.node(&event, &at)?;
                    // The parser places an omitted value before the colon.
                    let behind = self.text.get(key_span.end..).unwrap_or_default();
                    if value.span.is_empty() && behind.trim_start().starts_with(':') {
                        let colon = key_span.end + behind.len() - behind.trim_start().len();
                        value.span = colon + 1..colon + 1;
                    }
                    members.push(Member { key, key_anchor, key_span, line, value });
                }
                if *style == StructureStyle::Flow { Shape::Flow(members) } else { Shape::Block(members) }
            }
            Event::SequenceStart(style, ..) => {
                let mut items: Vec<Node> = Vec::new();
                while let Some((event, at)) = self.next()? {
                    if matches!(event, Event::SequenceEnd) {
                        span.end = end(*style, bytes(&at).end, items.last().map(|item| item.span.clone()), span.end);
                        break;
                    }
                    items.push(self.node(&event, &at)?);
                }
                Shape::List(items)
            }
            Event::Scalar(text, ScalarStyle::Plain, _, None)
                if matches!(&**text, "" | "~" | "null" | "Null" | "NULL") =>
            {
                Shape::Null
            }
            Event::Alias(anchor) => Shape::Alias(*anchor),
            _ => Shape::Scalar,
        };
        let anchor = match event {
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                *anchor
            }
            _ => 0,
        };
        Ok(Node { span, line, anchor, shape })
    }
}

/// Returns the end of a block: the parser ends it where the next node begins, after comments that do not belong to it.
fn end(style: StructureStyle, closed: usize, last: Option<Range<usize>>, start: usize) -> usize {
    match style {
        StructureStyle::Flow => closed,
        StructureStyle::Block => last.map_or(start, |last| last.end),
    }
}

/// Returns the JSON pointer of a member.
pub fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Calls a function with every value of a document and its JSON pointer.
pub fn walk<'v>(value: &'v Value, pointer: &str, see: &mut impl FnMut(&str, &'v Value)) {
    see(pointer, value);
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &format!("{pointer}/{index}"), see);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                walk(member, &child(pointer, key), see);
            }
        }
        _ => {}
    }
}

fn bytes(span: &Span) -> Range<usize> {
    span.byte_range().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_at_its_last_byte() {
        let text = "# c\na: # x\n  b: c # t\n  # in\n\nd: {e: [f], g}\nh:\ni: |\n  j\n...\n---\nk: 1\n";
        let outline = outline(text).unwrap().unwrap();
        let written: Vec<_> = outline.root.members().iter().map(|member| &text[member.span()]).collect();
        assert_eq!(written, ["a: # x\n  b: c", "d: {e: [f], g}", "h:", "i: |\n  j\n"]);
        assert_eq!((outline.next, &text[outline.end..outline.end + 3]), (Some(11), "..."));
    }

    #[test]
    fn a_text_of_comments_has_no_document() {
        assert!(outline("# only\n").unwrap().is_none());
        assert!(outline("").unwrap().is_none());
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let place = outline("a: 1\nb: [\n").unwrap_err().place;
        assert_eq!(place, Some(Place { line: 2, column: Some(4) }));
        assert!(outline(&"[".repeat(10_000)).is_err());
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let nested = |depth| open.repeat(depth) + "b" + &close.repeat(depth);
            assert!(outline(&nested(DEEPEST - 1)).is_ok());
            assert!(outline(&nested(DEEPEST)).is_err());
        }
    }
}
