//! The beginning of a message without the secrets of the object that it is about (pure).
//!
//! Both the message and the object are untrusted, so the work grows with the sum of their lengths and not with the
//! product: an automaton of all substrings of the message reads each secret once. It has at most two states for each byte
//! of the message (the suffix automaton of Blumer and others: The smallest automaton recognizing the subwords of a text,
//! 1985).

use std::{collections::BTreeMap, ops::Range};

use crate::text::{
    mask::{MASK, secrets_of_message, united},
    work,
};

/// The beginning of a message.
pub struct Excerpt<'a> {
    text: &'a str,
    /// The other secrets in it.
    hidden: Vec<Range<usize>>,
    states: Vec<State>,
    /// The state after each byte.
    behind: Vec<usize>,
    is_cut: bool,
    /// The number of bytes before the cut that begin a secret whose rest is cut off.
    cut_secret: usize,
}

/// The state after substrings that end at the same positions.
#[derive(Default)]
struct State {
    /// The length of the longest of them.
    length: usize,
    /// The state of their longest suffix that ends at more positions; the first state has none.
    ending: Option<usize>,
    next: BTreeMap<u8, usize>,
    /// The length of the longest secret that is one of them, or a suffix of them.
    secret: usize,
    /// Whether they end at the end of the text.
    is_last: bool,
}

impl<'a> Excerpt<'a> {
    /// Takes at most `most` bytes of a message. In a longer message, secret-like text of the whole message is masked as well: a cut can
    /// remove its evidence, such as the host behind the password of a URL, or the end of JSON.
    pub fn of(message: &'a str, most: usize) -> Self {
        let end = (0..=most.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        let (text, is_cut) = (&message[..end], end < message.len());
        let mut hidden = if is_cut { secrets_of_message(&message.replace('\n', " ")) } else { Vec::new() };
        hidden.retain(|secret| secret.start < end);
        for secret in &mut hidden {
            secret.end = secret.end.min(end);
        }
        let mut excerpt = Self { text, hidden, states: vec![State::default()], behind: vec![], is_cut, cut_secret: 0 };
        text.bytes().for_each(|byte| excerpt.push(byte));
        let mut last = excerpt.behind.last().copied();
        while let Some(state) = last {
            excerpt.states[state].is_last = true;
            last = excerpt.states[state].ending;
        }
        excerpt
    }

    /// Masks every copy of a secret, and its beginning before the cut.
    pub fn hide(&mut self, secret: &str) {
        let mut state = 0;
        for (length, byte) in secret.bytes().enumerate() {
            work::add(1);
            if self.is_cut && self.states[state].is_last {
                self.cut_secret = self.cut_secret.max(length);
            }
            let Some(next) = self.states[state].next.get(&byte) else { return };
            state = *next;
        }
        self.states[state].secret = self.states[state].secret.max(secret.len());
    }

    /// The masked text, which shows where it is cut.
    pub fn masked(mut self) -> String {
        let mut order: Vec<_> = (0..self.states.len()).collect();
        order.sort_by_key(|state| self.states[*state].length);
        for state in order {
            if let Some(ending) = self.states[state].ending {
                self.states[state].secret = self.states[state].secret.max(self.states[ending].secret);
            }
        }
        let lengths = self.behind.iter().map(|state| self.states[*state].secret).chain([self.cut_secret]);
        let ends = (1..=self.text.len()).chain([self.text.len()]);
        let found = ends.zip(lengths).filter(|(_, length)| *length > 0).map(|(end, length)| end - length..end);
        self.hidden.extend(found);
        let (mut shown, mut done) = (String::with_capacity(self.text.len()), 0);
        for secret in united(self.hidden) {
            shown.extend([&self.text[done..secret.start], MASK]);
            done = secret.end;
        }
        shown + &self.text[done..] + if self.is_cut { "…" } else { "" }
    }

    fn push(&mut self, byte: u8) {
        let last = self.behind.last().copied().unwrap_or_default();
        let new = self.states.len();
        self.states.push(State { length: self.states[last].length + 1, ..State::default() });
        let mut from = Some(last);
        while let Some(state) = from.filter(|state| !self.states[*state].next.contains_key(&byte)) {
            work::add(1);
            self.states[state].next.insert(byte, new);
            from = self.states[state].ending;
        }
        self.states[new].ending = Some(from.map_or(0, |state| self.exactly(state, byte)));
        self.behind.push(new);
    }

    /// Returns the state after a state's longest substring and a byte. Splits it off if other substrings share it.
    fn exactly(&mut self, state: usize, byte: u8) -> usize {
        let (shared, length) = (self.states[state].next[&byte], self.states[state].length + 1);
        if self.states[shared].length == length {
            return shared;
        }
        let own = self.states.len();
        let State { ending, next, .. } = &self.states[shared];
        let copy = State { length, ending: *ending, next: next.clone(), ..State::default() };
        work::add(copy.next.len());
        self.states.push(copy);
        self.states[shared].ending = Some(own);
        let mut from = Some(state);
        while let Some(state) = from.filter(|state| self.states[*state].next.get(&byte) == Some(&shared)) {
            work::add(1);
            self.states[state].next.insert(byte, own);
            from = self.states[state].ending;
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(message: &str, most: usize, secrets: &[&str]) -> String {
        let mut excerpt = Excerpt::of(message, most);
        for secret in secrets {
            excerpt.hide(secret);
        }
        excerpt.masked()
    }

    #[test]
    fn copies_are_masked_and_those_that_overlap_as_one() {
        for (message, secrets, expected) in [
            ("a hunter2, a hunter2", &["hunter2"][..], "a ***, a ***"),
            ("hello worldwide", &["lo world", "worldwide"], "hel***"),
            ("abcdefgh", &["abcd", "efgh"], "******"),
            ("the correct horse", &["horse", "correct horse", "corr"], "the ***"),
            ("pässword", &["ä"], "p***ssword"),
            ("none", &["nones", "one "], "none"),
            ("", &["x"], ""),
            ("x", &[""], "x"),
        ] {
            assert_eq!(shown(message, 100, secrets), expected, "{message}");
        }
    }

    #[test]
    fn a_cut_leaves_nothing_of_a_secret() {
        for (message, most, secrets, expected) in [
            ("the hunter2 is wrong", 7, &["hunter2"][..], "the ***…"),
            ("the hunter2 is wrong", 11, &["hunter2"], "the ***…"),
            ("the hunter2 is wrong", 14, &["hunter2"], "the *** is…"),
            ("täglich", 2, &[], "t…"),
            // These look like secrets only with the text that is cut off.
            ("get https://user:pass@host/ now", 20, &[], "get https://user:***…"),
            (r#"{"token":"abc","msg":"x y"} "#, 17, &[], r#"{"token":"***","m…"#),
            ("login with password \"hun ter2\" failed", 25, &[], "login with password \"***…"),
        ] {
            assert_eq!(shown(message, most, secrets), expected, "{message}");
        }
    }

    proptest! {
        /// Compares with a slow and simple implementation.
        #[test]
        fn it_masks_every_byte_of_a_copy_and_no_other(
            message in "[ab é]{0,24}", secrets in prop::collection::vec("[ab é]{1,5}", 0..5), most in 0..30_usize
        ) {
            let end = (0..=most.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap();
            let text = &message[..end];
            let mut ranges = Vec::new();
            for secret in &secrets {
                let starts = text.char_indices().map(|(at, _)| at);
                ranges.extend(starts.clone().filter(|at| text[*at..].starts_with(secret)).map(|at| at..at + secret.len()));
                let begun = starts.filter(|at| end < message.len() && secret.starts_with(&text[*at..]) && text[*at..] != *secret);
                ranges.extend(begun.map(|at| at..end));
            }
            let (mut expected, mut done) = (String::new(), 0);
            for range in united(ranges) {
                expected.extend([&text[done..range.start], MASK]);
                done = range.end;
            }
            expected += &text[done..];
            expected += if end < message.len() { "…" } else { "" };
            let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
            prop_assert_eq!(shown(&message, most, &secrets), expected);
        }
    }
}
