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
    /// clean-up is over: nothing is left, enough was deleted, or its time is over. `may_be_others` if more can be left than is known.
    pub(super) fn next<'a>(&mut self, left: &'a [Instance], may_be_others: bool) -> Option<Vec<&'a Instance>> {
        if (left.is_empty() && !may_be_others) || self.is_late() {
            return None;
        }
        // A delete that was interrupted goes on only when it is repeated.
        let mut needs_delete = |one: &&Instance| one.state != State::Deleting || self.repeated.insert(one.id.clone());
        let now: Vec<_> = left.iter().filter(|one| needs_delete(one)).collect();
        if !now.is_empty() {
            if self.deletes == MAX_DELETES {
                return None;
            }
            self.deletes += 1;
        }
        Some(now)
    }
}
