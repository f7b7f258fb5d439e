//! The ends of the parts of a line, each found once (pure). A line without blanks may name a thousand secrets. If each
//! of them looked for the next blank, the work would grow with the square of the line's length.

use crate::text::work;

/// The parts of a line, asked for at ever later places.
pub(super) struct Parts<'a> {
    line: &'a str,
    ends: fn(char) -> bool,
    measure: fn(&str) -> usize,
    last: Option<Part>,
}

/// The part of a line around a place.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The end of the part.
    pub(super) end: usize,
    /// The end of its measured prefix; less than the start if the prefix is empty.
    pub(super) measured: usize,
}

impl<'a> Parts<'a> {
    /// Parts that end at some characters. Each is measured: how many of its bytes come before a place that counts from its end.
    pub(super) fn new(line: &'a str, ends: fn(char) -> bool, measure: fn(&str) -> usize) -> Self {
        Self { line, ends, measure, last: None }
    }

    /// The part around a place, which is not before the places that were asked for.
    pub(super) fn around(&mut self, place: usize) -> Part {
        if let Some(part) = self.last.filter(|part| place <= part.end) {
            return part;
        }
        let rest = &self.line[place..];
        let length = rest.find(self.ends).unwrap_or(rest.len());
        work::add(length);
        let part = Part { end: place + length, measured: place + (self.measure)(&rest[..length]) };
        self.last = Some(part);
        part
    }
}
