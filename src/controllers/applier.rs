//! Applies and deletes objects for the controllers (IO): with one backoff, one limiter of repairs, one record of changes.
//!
//! The controllers decide what should exist and what is reported.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tracing::warn;

use crate::{
    apply::{
        change::{Action, Change},
        inventory, ownership,
        steps::{End, Ladder, Next},
        write::{self, Error, Pruned},
    },
    cluster::request::Cause,
    controllers::{
        backoff::{Backoff, RepairLimiter},
        events::Events,
    },
    error::chain,
    object::{Key, Kind, Object},
};

/// The number of concurrent applies; over HTTP/1.1 each needs its own connection.
const CONCURRENCY: usize = 4;

/// Why a pass stopped.
pub(super) struct Stopped {
    /// The error, with its causes.
    pub error: String,
    /// Whether the error is to be reported: it has lasted long enough, and its retry is not pending.
    pub is_reported: bool,
}

impl From<String> for Stopped {
    fn from(error: String) -> Self {
        Self { error, is_reported: false }
    }
}

/// Applies objects; keeps its state from one pass to the next.
pub(super) struct Applier {
    client: Client,
    pub(super) events: Events,
    /// How long a transient error may last before it is reported.
    patience: Duration,
    backoff: Backoff,
    limiter: RepairLimiter,
    /// When the next repair that is held back will be granted.
    held_until: Option<Instant>,
    /// Objects that are annotated to be left alone.
    pub(super) skipped: BTreeSet<Key>,
}

impl Applier {
    pub(super) fn new(client: Client, events: Events, patience: Duration) -> Self {
        Self {
            client,
            events,
            patience,
            backoff: Backoff::default(),
            limiter: RepairLimiter::default(),
            held_until: None,
            skipped: BTreeSet::new(),
        }
    }

    /// Starts over for a new plan: errors may have come from the old one, and writes for the new one are no repairs.
    pub(super) fn replanned(&mut self) {
        self.backoff = Backoff::default();
        self.limiter = RepairLimiter::default();
    }

    /// Begins a pass, unless a retry is pending.
    pub(super) fn begin(&mut self) -> Result<(), Stopped> {
        self.backoff.ready(Instant::now())?;
        self.held_until = None;
        Ok(())
    }

    /// Ends a pass without an error.
    pub(super) fn succeeded(&mut self) {
        self.backoff = Backoff::default();
    }

    pub(super) fn due(&self) -> [Option<Instant>; 2] {
        [self.backoff.due(), self.held_until]
    }

    pub(super) fn holds_back(&self) -> bool {
        self.held_until.is_some()
    }

    /// Applies objects, each given with its live state. Returns the new states, and the error of the objects that were
    /// refused; the others are still applied.
    pub(super) async fn apply(
        &mut self,
        objects: impl Iterator<Item = (&Object, Option<&Value>)>,
        budget: &impl Fn() -> Option<Duration>,
    ) -> (Vec<(Key, Value)>, Result<(), Stopped>) {
        let due: Vec<_> = objects.filter_map(|(object, live)| self.start(object, live)).collect();
        let client = &self.client;
        let answers: Vec<_> = stream::iter(due)
            .map(|(ladder, next)| async move {
                let (object, seen) = (ladder.desired(), ladder.seen());
                (object, seen, write::apply(client, ladder, next, budget).await)
            })
            // In order, so that of two errors always the same one is reported.
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let (mut written, mut errors) = (Vec::new(), Vec::new());
        for (object, seen, answer) in answers {
            let seen = seen.unwrap_or(object.value());
            match answer {
                Ok(applied) => {
                    if applied.change.action != Action::Unchanged {
                        self.events.record(&applied.change, applied.live.as_ref().unwrap_or(seen));
                    }
                    written.extend(applied.live.map(|live| (object.key(), live)));
                }
                Err(error) => {
                    self.record_failure(&error, seen);
                    errors.push(error);
                }
            }
        }
        (written, self.stop_at(&errors))
    }

    /// The first step for an object that is not as planned and may be written now.
    fn start<'a>(&mut self, object: &'a Object, live: Option<&'a Value>) -> Option<(Ladder<'a>, Next)> {
        let mut ladder = Ladder::new(object, live);
        let next = ladder.first();
        if next == Next::Break(End::LeftAlone(None)) {
            if self.skipped.insert(object.key()) {
                let change = Change::plain(object.key(), Action::Skip).because(inventory::LEFT_ALONE);
                self.events.record(&change, live.unwrap_or(object.value()));
            }
            return None;
        }
        self.skipped.remove(&object.key());
        if next.is_break() {
            return None;
        }
        let was_holding_back = self.holds_back();
        let may_repair = self.may_repair(object.key());
        if !may_repair && !was_holding_back {
            let who = live.and_then(ownership::last_foreign_manager).unwrap_or("another manager");
            warn!("{who} keeps changing {}: its repairs are limited", object.key());
        }
        may_repair.then_some((ladder, next))
    }

    /// Whether an object may be repaired now; counts as a repair.
    pub(super) fn may_repair(&mut self, key: Key) -> bool {
        let Err(free) = self.limiter.repair(key, Instant::now()) else { return true };
        self.held_until = Some(self.held_until.map_or(free, |until| until.min(free)));
        false
    }

    /// Deletes an object in the state that was seen.
    pub(super) async fn delete(
        &self,
        (kind, live): (&Kind, &Value),
        why: &str,
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<Pruned, Error> {
        let key = write::key_of(kind, live);
        let pruned = write::prune(&self.client, kind, live, budget()).await;
        match &pruned {
            Ok(Pruned::Absent) => {}
            Ok(_) => self.events.record(&Change::plain(key, Action::Prune).because(why), live),
            Err(error) => self.record_failure(error, live),
        }
        pruned
    }

    fn record_failure(&self, error: &Error, object: &Value) {
        // Not the object's failure: the process lost its lease or is being stopped.
        if !matches!(error.source, Cause::NotLeading) {
            self.events.record(&Change::plain(error.object.clone(), Action::Refuse).because(chain(error)), object);
        }
    }

    /// Fails with the first terminal error, else with the first error, if there is one.
    pub(super) fn stop_at(&mut self, errors: &[Error]) -> Result<(), Stopped> {
        let Some(error) = errors.iter().find(|error| error.source.is_terminal()).or(errors.first()) else {
            return Ok(());
        };
        let text = chain(error);
        let retry_after = errors.iter().map(|error| error.source.retry_after()).max().unwrap_or_default();
        let now = Instant::now();
        // A terminal error is retried, too: the process's rights may change, or the object.
        if self.backoff.failed(&text, retry_after, now) && !error.source.is_terminal() {
            warn!("{text}; retrying");
        }
        let is_reported = self.backoff.has_lasted(error.source.patience(self.patience), now);
        Err(Stopped { error: text, is_reported })
    }
}
