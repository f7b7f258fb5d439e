//! Computes the cost of reading a YAML text before it is read (pure).

use std::collections::HashMap;

use granit_parser::Event;

use super::outline::Events;

/// The memory that a text needs, in units that are independent of its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of its keys, values, lists, mappings and documents.
    pub values: usize,
    /// The number of mappings, which take most memory.
    pub mappings: usize,
    /// The bytes of its keys and scalars.
    pub bytes: usize,
    /// The bytes of the paths of its values: the keys that lead to each. Walking over the values takes as much time.
    pub paths: usize,
}

impl Cost {
    /// The sum of two costs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, usize::saturating_add)
    }

    /// Whether no part of the cost exceeds `most`.
    pub fn is_within(self, most: Self) -> bool {
        self.values <= most.values
            && self.mappings <= most.mappings
            && self.bytes <= most.bytes
            && self.paths <= most.paths
    }

    fn times(self, times: usize) -> Self {
        let each = Self { values: times, mappings: times, bytes: times, paths: times };
        self.with(each, usize::saturating_mul)
    }

    fn with(self, other: Self, combine: fn(usize, usize) -> usize) -> Self {
        Self {
            values: combine(self.values, other.values),
            mappings: combine(self.mappings, other.mappings),
            bytes: combine(self.bytes, other.bytes),
            paths: combine(self.paths, other.paths),
        }
    }
}

/// Returns the cost of a text up to its first syntax error, where its reader stops, or until it exceeds `most`. An alias costs as much
/// as its target, and the content of an anchor costs twice, because the reader keeps a copy.
pub fn cost(text: &str, most: Cost) -> Cost {
    let mut events = Events::new(text);
    let (mut total, mut anchors) = (Cost::default(), HashMap::new());
    // The anchor of each open list or mapping, the total before it, and the path around it.
    let mut open: Vec<(usize, Cost, Path)> = Vec::new();
    let (mut copies, mut path) = (1, Path::default());
    while total.is_within(most)
        && let Ok(Some((event, _))) = events.next()
    {
        let at = path.length;
        let one = |bytes| Cost { values: 1, bytes, paths: at, mappings: 0 };
        let tag = event.tag().map_or(0, |tag| tag.handle().len() + tag.suffix().len());
        match event {
            Event::Scalar(text, _, anchor, _) => {
                let cost = one(text.len() + tag);
                total = total.plus(cost.times(if anchor == 0 { copies } else { copies + 1 }));
                anchors.insert(anchor, cost);
                path.pass(text.len());
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                let is_mapping = matches!(event, Event::MappingStart(..));
                open.push((anchor, total, path));
                copies += usize::from(anchor != 0);
                total = total.plus(Cost { mappings: usize::from(is_mapping), ..one(tag) }.times(copies));
                path = path.below(is_mapping);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, before, around) = open.pop().unwrap_or_default();
                copies -= usize::from(anchor != 0);
                anchors.insert(anchor, total.with(before, usize::saturating_sub));
                path = around;
                path.pass(0);
            }
            Event::Alias(anchor) => {
                let mut cost = anchors.get(&anchor).copied().unwrap_or_default();
                // The paths of its target are counted from the root of the document, an upper bound.
                cost.paths = cost.paths.saturating_add(cost.values.saturating_mul(at));
                total = total.plus(cost.plus(one(0)).times(copies));
                path.pass(0);
            }
            Event::DocumentEnd => {
                total = total.plus(one(0));
                anchors.clear();
            }
            _ => {}
        }
    }
    total
}

/// The position of the next value in a document.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// The bytes of the keys and of the slashes that lead to it.
    length: usize,
    /// The length of the path to its mapping; `None` in a list.
    mapping: Option<usize>,
    /// Whether the next value is a key of the mapping.
    is_key: bool,
}

impl Path {
    /// Returns the first position in the list or mapping at this position.
    fn below(self, is_mapping: bool) -> Self {
        let length = self.length.saturating_add(1);
        Self { length, mapping: is_mapping.then_some(length), is_key: is_mapping }
    }

    /// Moves past a value, which may be a key of this many bytes.
    fn pass(&mut self, bytes: usize) {
        if let Some(around) = self.mapping {
            self.length = if self.is_key { around.saturating_add(bytes) } else { around };
            self.is_key = !self.is_key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Cost = Cost { values: usize::MAX, mappings: usize::MAX, bytes: usize::MAX, paths: usize::MAX };

    #[test]
    fn every_value_has_a_path() {
        let paths = |text: &str| cost(text, ANY).paths;
        // /ab and /ab/cd, of the key and of its value; indexes of lists are not counted.
        assert_eq!(paths("ab: {cd: e}"), 1 + 3 + 4 + 6);
        assert_eq!(paths("ab: [c, d]\ne: f"), 1 + 3 + 4 + 4 + 1 + 2);
        let wide = |key: usize, items: usize| paths(&format!("{}: [{}]", "k".repeat(key), "a,".repeat(items)));
        assert!(wide(1000, 1000) > 1_000_000 && wide(1000, 1000) < 1_100_000, "{}", wide(1000, 1000));
        let alias = paths(&format!("a: &a [{}]\n{}: *a", "b,".repeat(1000), "k".repeat(1000)));
        assert!(alias > 1_000_000 && alias < 2_100_000, "{alias}");
        let most = Cost { paths: 10_000, ..ANY };
        assert!(!cost(&format!("{}: [{}]", "k".repeat(100), "a,".repeat(200)), most).is_within(most));
    }

    #[test]
    fn an_alias_costs_as_much_as_what_it_stands_for() {
        let values = |text: &str| cost(text, ANY).values;
        assert_eq!(values(""), 0);
        assert_eq!(
            cost("a: bcd\n---\n- e\n", ANY),
            Cost { values: 3 + 1 + 2 + 1, mappings: 1, bytes: 1 + 3 + 1, paths: 1 + 2 + 1 }
        );
        assert_eq!(cost("[&a bcd, *a]", ANY).bytes, 3 * 3, "as an anchor, as a value, as an alias");
        let laughs = |levels: usize| {
            let level = |n: usize| format!("l{}: &l{} [{}]\n", n + 1, n + 1, vec![format!("*l{n}"); 10].join(","));
            format!("l0: &l0 ha\n{}", (0..levels).map(level).collect::<String>())
        };
        assert!(values(&laughs(2)) > 100 && values(&laughs(9)) > 1_000_000_000);
        assert_eq!(values(&laughs(40)), usize::MAX);
        assert_eq!(cost("%TAG !e! abc\n---\n- !e!x 1\n- !e!x 1\n", ANY).bytes, 2 * (4 + 1));
        let most = Cost { values: 10, ..ANY };
        assert!(!cost(&laughs(40), most).is_within(most));
        let nested = |anchor: &str| (0..20).fold("x".to_owned(), |inner, _| format!("{anchor}[{inner}]"));
        assert!(values(&nested("&a ")) > 20 * 20 / 2 && values(&nested("")) < 30);
    }

    #[test]
    fn the_cost_of_what_cannot_be_read_is_known_up_to_there() {
        assert_eq!(cost("- a\n- b\n- \"\n", ANY).values, 3);
        assert_eq!(cost("&a [*a]", ANY).values, 2 * 2 + 1, "an alias of what it is in");
    }
}
