//! The cost of reading a YAML text, known before it is read (pure).

use std::collections::HashMap;

use granit_parser::Event;

use super::outline::Events;

/// The memory that a text needs, in numbers that are independent of its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Its keys, values, lists, mappings and documents.
    pub values: usize,
    /// The bytes of its keys and scalars.
    pub bytes: usize,
}

impl Cost {
    /// The sum of two costs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { values: self.values.saturating_add(other.values), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// Whether nothing of it is more.
    pub fn is_within(self, most: Self) -> bool {
        self.values <= most.values && self.bytes <= most.bytes
    }

    fn minus(self, other: Self) -> Self {
        Self { values: self.values.saturating_sub(other.values), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    fn times(self, times: usize) -> Self {
        Self { values: self.values.saturating_mul(times), bytes: self.bytes.saturating_mul(times) }
    }
}

/// The cost of a text up to its first syntax error, where its reader stops, or up to where it is more than this. An alias costs as
/// much as what it stands for, and whatever is in an anchor costs it once more, because the reader keeps it.
pub fn cost(text: &str, most: Cost) -> Cost {
    let mut events = Events::new(text);
    let (mut total, mut anchors) = (Cost::default(), HashMap::new());
    // The anchor of each open list or mapping, and the total before it.
    let mut open: Vec<(usize, Cost)> = Vec::new();
    let mut copies = 1;
    while total.is_within(most)
        && let Ok(Some((event, _))) = events.next()
    {
        let one = |bytes| Cost { values: 1, bytes };
        let tag = event.tag().map_or(0, |tag| tag.handle().len() + tag.suffix().len());
        match event {
            Event::Scalar(text, _, anchor, _) => {
                let cost = one(text.len() + tag);
                total = total.plus(cost.times(if anchor == 0 { copies } else { copies + 1 }));
                anchors.insert(anchor, cost);
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                open.push((anchor, total));
                copies += usize::from(anchor != 0);
                total = total.plus(one(tag).times(copies));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, before) = open.pop().unwrap_or_default();
                copies -= usize::from(anchor != 0);
                anchors.insert(anchor, total.minus(before));
            }
            Event::Alias(anchor) => {
                let cost = anchors.get(&anchor).copied().unwrap_or_default();
                total = total.plus(cost.plus(one(0)).times(copies));
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

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Cost = Cost { values: usize::MAX, bytes: usize::MAX };

    #[test]
    fn an_alias_costs_as_much_as_what_it_stands_for() {
        let values = |text: &str| cost(text, ANY).values;
        assert_eq!(values(""), 0);
        assert_eq!(cost("a: bcd\n---\n- e\n", ANY), Cost { values: 3 + 1 + 2 + 1, bytes: 1 + 3 + 1 });
        assert_eq!(cost("[&a bcd, *a]", ANY).bytes, 3 * 3, "as an anchor, as a value, as an alias");
        let laughs = |levels: usize| {
            let level = |n: usize| format!("l{}: &l{} [{}]\n", n + 1, n + 1, vec![format!("*l{n}"); 10].join(","));
            format!("l0: &l0 ha\n{}", (0..levels).map(level).collect::<String>())
        };
        assert!(values(&laughs(2)) > 100 && values(&laughs(9)) > 1_000_000_000);
        assert_eq!(values(&laughs(40)), usize::MAX);
        assert_eq!(cost("%TAG !e! abc\n---\n- !e!x 1\n- !e!x 1\n", ANY).bytes, 2 * (4 + 1));
        let most = Cost { values: 10, bytes: 100 };
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
