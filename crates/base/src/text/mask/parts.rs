//! Finds the end of each part of a line only once (pure). A line without blanks may name a thousand secrets. If each of
//! them searched for the next blank, the work would grow with the square of the line's length.

use crate::text::work;

/// The parts of a line, for queries at ascending positions.
pub(super) struct Parts<'a> {
    line: &'a str,
    ends: fn(char) -> bool,
    measure: fn(&str) -> usize,
    last: Option<Part>,
}

/// The part of a line around a position.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The end of the part.
    pub(super) end: usize,
    /// The end of its measured prefix; may be before the queried position if the prefix is empty.
    pub(super) measured: usize,
}

impl<'a> Parts<'a> {
    /// Creates parts that end at characters matching `ends`. `measure` returns the number of bytes of a part that count.
    pub(super) fn new(line: &'a str, ends: fn(char) -> bool, measure: fn(&str) -> usize) -> Self {
        Self { line, ends, measure, last: None }
    }

    /// Returns the part around a position, which must not be before an earlier query.
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
