//! What a clean-up deletes next, how often, and for how long.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::limit_of_change;
use crate::contract::{Instance, State};

/// How many times the instances of a run are deleted.
const MAX_DELETES: usize = 2;

/// The deletions of one clean-up.
pub(super) struct Deletions {
    begin: Instant,
    limit: Duration,
    deletes: usize,
    repeated: BTreeSet<String>,
}

impl Deletions {
    /// Begins a clean-up with this limit of an operation.
    pub(super) fn begin(limit: Duration) -> Self {
        Self { begin: Instant::now(), limit: limit_of_change(limit), deletes: 0, repeated: BTreeSet::new() }
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self) -> bool {
        self.begin.elapsed() > self.limit
    }

    /// Returns which of the instances that are left are deleted now; none while they are waited for. Nothing is returned when the
    /// clean-up is over: nothing is left, enough was deleted, or its time is over. Late or not, what is found first is deleted once.
    /// `may_be_others` if more can be left than is known.
    pub(super) fn next<'a>(&mut self, left: &'a [Instance], may_be_others: bool) -> Option<Vec<&'a Instance>> {
        let is_first = self.deletes == 0 && self.repeated.is_empty();
        let is_over = if left.is_empty() { !may_be_others || self.is_late() } else { !is_first && self.is_late() };
        if is_over {
            return None;
        }
        // A delete that was interrupted goes on only when it is repeated.
        let mut needs_delete = |one: &&Instance| one.state != State::Deleting || self.repeated.insert(one.id.clone());
        let now: Vec<_> = left.iter().filter(|one| needs_delete(one)).collect();
        if now.iter().any(|one| one.state != State::Deleting) {
            if self.deletes == MAX_DELETES {
                return None;
            }
            self.deletes += 1;
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn instance(id: &str, state: State) -> Instance {
        let texts = ["providerID", "name", "region", "zone", "image", "instanceType", "created"];
        let mut all: serde_json::Map<_, _> = texts.into_iter().map(|field| (field.to_owned(), json!(""))).collect();
        all.extend([("id".to_owned(), json!(id)), ("state".to_owned(), json!(state))]);
        all.extend([("addresses".to_owned(), json!([])), ("labels".to_owned(), json!({}))]);
        serde_json::from_value(all.into()).unwrap()
    }

    /// The ids that are deleted in each round, with what is left then; `over` for the end.
    fn rounds(deletions: &mut Deletions, left: &[&[(&str, State)]]) -> Vec<String> {
        let of_round = |now: &&[(&str, State)]| {
            let left: Vec<_> = now.iter().map(|(id, state)| instance(id, *state)).collect();
            let now = deletions.next(&left, false);
            now.map_or_else(|| "over".to_owned(), |now| now.iter().map(|one| &*one.id).collect())
        };
        left.iter().map(of_round).collect()
    }

    #[test]
    fn what_stays_is_deleted_twice_and_what_is_being_deleted_is_repeated_once_and_waited_for() {
        use State::{Deleting, Running};
        let (a, b): (&[_], &[_]) = (&[("a", Running)], &[("a", Deleting)]);
        for (left, expected) in [
            (vec![&[][..]], vec!["over"]),
            (vec![a, a, a], vec!["a", "a", "over"]),
            (vec![a, b, b, b, &[]], vec!["a", "a", "", "", "over"]),
            // The cloud begins only after the second one, which may break off as well.
            (vec![a, a, b, b, &[]], vec!["a", "a", "a", "", "over"]),
            (vec![b, b, &[]], vec!["a", "", "over"]),
        ] {
            assert_eq!(rounds(&mut Deletions::begin(LONG), &left), expected, "{left:?}");
        }
    }

    #[test]
    fn what_is_found_late_is_deleted_once_and_not_waited_for() {
        for state in [State::Running, State::Deleting] {
            let mut late = Deletions { limit: Duration::ZERO, ..Deletions::begin(LONG) };
            while !late.is_late() {}
            assert_eq!(rounds(&mut late, &[&[("a", state)], &[("a", state)]]), ["a", "over"]);
        }
    }

    #[test]
    fn what_may_be_there_besides_is_waited_for_until_it_is_late() {
        let mut deletions = Deletions::begin(LONG);
        assert_eq!(deletions.next(&[], true).map(|now| now.len()), Some(0));
        deletions.limit = Duration::ZERO;
        while !deletions.is_late() {}
        assert!(deletions.next(&[], true).is_none());
    }
}
