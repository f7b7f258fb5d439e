//! Where the values of a document stand in its text (pure).
//!
//! It knows places, not meanings: what a value says, and that no key is repeated, is the business of [`super::from_str`].
//! The parser limits how deep a text may be nested, and aliases are not followed.

use std::ops::Range;

use granit_parser::{Event, Options, Parser, Span, StrInput, StructureStyle};

use crate::text::yaml::Error;

/// The first document of a text.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Its value.
    pub(crate) root: Node,
    /// The byte where it ends; what comes behind is of other documents.
    pub(crate) end: usize,
    /// The line where another document begins.
    pub(crate) next: Option<usize>,
}

/// A value.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its bytes, without anchor, tag and comment. Empty where nothing is written.
    pub(crate) span: Range<usize>,
    /// What it is made of.
    pub(crate) shape: Shape,
}

/// What a [`Node`] is made of.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A scalar, a list or an alias.
    Other,
    /// A mapping, one member a line.
    Block(Vec<Member>),
    /// A mapping in braces.
    Flow(Vec<Member>),
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct Member {
    /// The key as it is meant.
    pub(crate) key: String,
    /// The key as it is written.
    pub(crate) key_span: Range<usize>,
    /// The key's line, from 1.
    pub(crate) line: usize,
    /// The value.
    pub(crate) value: Node,
}

impl Member {
    /// The bytes from the key to the end of the value.
    pub(crate) fn span(&self) -> Range<usize> {
        self.key_span.start..self.value.span.end.max(self.key_span.end)
    }
}

impl Node {
    /// The members of a mapping, in their order; none for anything else.
    pub(crate) fn members(&self) -> &[Member] {
        match &self.shape {
            Shape::Block(members) | Shape::Flow(members) => members,
            Shape::Other => &[],
        }
    }

    /// A member of a mapping.
    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().find(|member| member.key == key)
    }

    /// The line of the last key of a path that is there.
    pub(crate) fn line(&self, path: &[&str]) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let member = self.member(first)?;
        member.value.line(rest).or(Some(member.line))
    }
}

/// Where the values of the first document stand; nothing when there is no document, only comments at most.
pub(crate) fn outline(text: &str) -> Result<Option<Outline>, Error> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut events = Events { text, parser: Parser::new_from_str_with_options(text, options) };
    let mut root = None;
    let mut end = text.len();
    while let Some((event, span)) = events.next()? {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) => {}
            Event::DocumentEnd => {
                end = bytes(&span).start;
                break;
            }
            event => root = Some(events.node(&event, &span)?),
        }
    }
    // What is wrong behind the first document is no matter: nobody reads it.
    let next = std::iter::from_fn(|| events.next().ok().flatten())
        .find_map(|(event, span)| matches!(event, Event::DocumentStart(..)).then(|| span.start.line()));
    Ok(root.map(|root| Outline { root, end, next }))
}

struct Events<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Error> {
        self.parser.next().transpose().map_err(|error| {
            let (line, column) = (error.marker().line(), error.marker().col() + 1);
            let message = format!("{} at line {line}, column {column}", error.info());
            Error { message: message.replace('\n', " "), line: u64::try_from(line).ok() }
        })
    }

    fn node(&mut self, event: &Event<'a>, span: &Span) -> Result<Node, Error> {
        let mut span = bytes(span);
        let shape = match event {
            Event::MappingStart(style, ..) => {
                let mut members = Vec::new();
                while let Some((event, at)) = self.next()? {
                    if matches!(event, Event::MappingEnd) {
                        span.end = end(*style, bytes(&at).end, members.last().map(Member::span), span.end);
                        break;
                    }
                    let line = at.start.line();
                    let key_span = self.node(&event, &at)?.span;
                    let key = event.scalar().map_or_else(String::new, |(text, _)| text.to_owned());
                    let Some((event, at)) = self.next()? else { break };
                    let mut value = self.node(&event, &at)?;
                    // The parser sees a value that is not written before the colon.
                    let behind = self.text.get(key_span.end..).unwrap_or_default();
                    if value.span.is_empty() && behind.trim_start().starts_with(':') {
                        let colon = key_span.end + behind.len() - behind.trim_start().len();
                        value.span = colon + 1..colon + 1;
                    }
                    members.push(Member { key, key_span, line, value });
                }
                if *style == StructureStyle::Flow { Shape::Flow(members) } else { Shape::Block(members) }
            }
            Event::SequenceStart(style, ..) => {
                let mut last = None;
                while let Some((event, at)) = self.next()? {
                    if matches!(event, Event::SequenceEnd) {
                        span.end = end(*style, bytes(&at).end, last, span.end);
                        break;
                    }
                    last = Some(self.node(&event, &at)?.span);
                }
                Shape::Other
            }
            _ => Shape::Other,
        };
        Ok(Node { span, shape })
    }
}

/// A block has no end of its own: the parser sees it where the next thing begins, behind comments that are not in it.
fn end(style: StructureStyle, closed: usize, last: Option<Range<usize>>, start: usize) -> usize {
    match style {
        StructureStyle::Flow => closed,
        StructureStyle::Block => last.map_or(start, |last| last.end),
    }
}

fn bytes(span: &Span) -> Range<usize> {
    span.byte_range().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_where_their_last_byte_stands() {
        let text = "# c\na: # x\n  b: c # t\n  # in\n\nd: {e: [f], g}\nh:\ni: |\n  j\n...\n---\nk: 1\n";
        let outline = outline(text).unwrap().unwrap();
        let written: Vec<_> = outline.root.members().iter().map(|member| &text[member.span()]).collect();
        assert_eq!(written, ["a: # x\n  b: c", "d: {e: [f], g}", "h:", "i: |\n  j\n"]);
        assert_eq!((outline.next, &text[outline.end..outline.end + 3]), (Some(11), "..."));
        assert_eq!(outline.root.line(&["d", "g"]), Some(6));
    }

    #[test]
    fn comments_alone_are_no_document() {
        assert!(outline("# only\n").unwrap().is_none());
        assert!(outline("").unwrap().is_none());
    }

    #[test]
    fn what_is_malformed_has_its_line() {
        assert_eq!(outline("a: 1\nb: [\n").unwrap_err().line(), Some(2));
        assert!(outline(&"[".repeat(10_000)).is_err());
    }
}
