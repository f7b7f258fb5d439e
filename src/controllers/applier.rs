//! Applies and deletes objects for the controllers (IO), with one backoff, one limiter of repairs, and one record of
//! changes.
//!
//! The controllers decide which objects should exist, and what is reported.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tracing::{debug, warn};

use crate::{
    apply::{
        change::{Action, Change},
        inventory::{self, Location},
        ownership,
        steps::{End, LiveState, Next, Step, Steps},
        write::{self, Error, Pruned},
    },
    cluster::{read, request::Cause},
    controllers::{
        backoff::{Backoff, REPAIR_BURST, RepairLimiter},
        events::Events,
        failures::{Failures, PassError},
    },
    error::chain,
    object::{Key, Kind, Object, reference},
};
use overruled::Overruled;
use unchanged::Unchanged;

mod overruled;
mod unchanged;

/// The interval between reads of an object that is left alone and that no watch shows.
const CHECK_PERIOD: Duration = Duration::from_secs(45);

/// The longest time of a search for absent objects. Afterwards each is read, because somebody may have created it.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);

/// The time limit of one request of a search. An overloaded API server answers lists later than reads.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of concurrent applies; over HTTP/1.1 each needs its own connection.
const CONCURRENCY: usize = 4;

/// Applies objects, and keeps its state from pass to pass.
pub(super) struct Applier {
    pub(super) events: Events,
    /// The grace period of a transient error before it is reported.
    grace: Duration,
    /// The backoff for errors of the API server as a whole.
    server: Backoff,
    /// The backoff for errors of single objects.
    objects: HashMap<Key, Backoff>,
    pub(super) failures: Failures,
    limiter: RepairLimiter,
    /// The objects whose repair is held back in this pass, each with the time when it will be granted.
    held_back: BTreeMap<Key, Instant>,
    /// The objects that are annotated to be left alone. An object that no watch shows has the time of its last read.
    pub(super) skipped: BTreeMap<Key, Option<Instant>>,
    /// The assumed state of an object that no watch shows.
    pub(super) unseen: LiveState<'static>,
    /// Whether objects that other clients have created are adopted.
    pub(super) adopts: bool,
    overruled: BTreeMap<Key, Overruled>,
    /// The objects whose repairs are limited, each with the manager that keeps changing it.
    pub(super) contested: BTreeMap<Key, String>,
    /// The objects that have been as planned, so that a further write counts as a repair.
    pub(super) settled: BTreeSet<Key>,
    unchanged: Unchanged,
    /// The number of objects that may still be written in this pass.
    writes_left: usize,
    /// Whether an object was not written because of the limit of the pass.
    pub(super) has_reached_limit: bool,
}

impl Applier {
    pub(super) fn new(events: Events, grace: Duration) -> Self {
        Self {
            events,
            grace,
            server: Backoff::default(),
            objects: HashMap::new(),
            failures: Failures::default(),
            limiter: RepairLimiter::new(REPAIR_BURST),
            held_back: BTreeMap::new(),
            skipped: BTreeMap::new(),
            unseen: LiveState::Unknown,
            adopts: true,
            overruled: BTreeMap::new(),
            contested: BTreeMap::new(),
            settled: BTreeSet::new(),
            unchanged: Unchanged::default(),
            writes_left: usize::MAX,
            has_reached_limit: false,
        }
    }

    /// Limits the number of objects that the next pass writes.
    pub(super) fn limit_writes(&mut self, most_writes: usize) {
        (self.writes_left, self.has_reached_limit) = (most_writes, false);
    }

    /// Whether one more object may be written in this pass; if not, the pass counts as limited. Checked before a repair is counted. A
    /// repair that is held back writes nothing, and so does not limit the pass.
    pub(super) fn may_write_more(&mut self) -> bool {
        self.has_reached_limit |= self.writes_left == 0;
        self.writes_left > 0
    }

    /// Forgets objects that are no longer planned.
    pub(super) fn keep_only(&mut self, planned: &[Object]) {
        let is_planned = |key: &Key| planned.iter().any(|object| object.key() == *key);
        let is_inventory = |key: &Key| key.kind == reference::CONFIG_MAP.kind && key.name == inventory::NAME;
        self.skipped.retain(|key, _| is_planned(key));
        self.overruled.retain(|key, _| is_planned(key));
        self.unchanged.keep_only(is_planned);
        let now = Instant::now();
        self.contested.retain(|key, _| (is_planned(key) || is_inventory(key)) && self.limiter.is_contested(key, now));
    }

    pub(super) fn is_skipped(&self, key: &Key) -> bool {
        self.skipped.contains_key(key)
    }

    /// Leaves an object alone. Returns whether it was not left alone before.
    fn skip(&mut self, key: Key, checked_at: Option<Instant>) -> bool {
        self.objects.remove(&key);
        self.overruled.remove(&key);
        self.contested.remove(&key);
        self.skipped.insert(key, checked_at).is_none()
    }

    /// Resets the backoffs for a new plan, because errors may come from the previous plan, and the new writes are not repairs. A plan that
    /// only restarts pods after a change of a mounted object counts as a repair, because another client may keep changing that object.
    pub(super) fn replanned(&mut self, only_restarts: bool) {
        (self.server, self.objects, self.settled) = (Backoff::default(), HashMap::new(), BTreeSet::new());
        if !only_restarts {
            self.limiter = RepairLimiter::new(REPAIR_BURST);
        }
    }

    /// Resets the backoffs of the objects whose plan has changed.
    pub(super) fn replanned_some(&mut self, changed: &BTreeSet<Key>, only_restarts: bool) {
        self.objects.retain(|key, _| !changed.contains(key));
        self.settled.retain(|key| !changed.contains(key));
        if !only_restarts {
            self.limiter.forget(changed);
        }
    }

    /// Begins a pass, unless the retry after an error of the API server is not due.
    pub(super) fn begin(&mut self) -> Result<(), PassError> {
        self.server.ready(Instant::now())?;
        (self.held_back, self.failures) = (BTreeMap::new(), Failures::default());
        Ok(())
    }

    /// Ends a pass. Fails with its most important error: a terminal error before others, then the first one.
    pub(super) fn finish(&mut self) -> Result<(), PassError> {
        if !self.failures.is_servers() {
            self.server = Backoff::default();
        }
        self.failures.of(|_| true).cloned().map_or(Ok(()), Err)
    }

    /// Whether an object has failed in this pass, or its repair is held back.
    pub(super) fn is_unsettled(&self, key: &Key) -> bool {
        self.held_back.contains_key(key) || self.failures.has(key)
    }

    /// Returns the earliest times of a retry, of a repair, of a new apply of an overruled object, and of a read of an object that is left
    /// alone.
    pub(super) fn due(&self) -> [Option<Instant>; 4] {
        let retries = self.objects.values().chain([&self.server]).filter_map(Backoff::due);
        let answers = self.overruled.values().filter_map(Overruled::due);
        let checks = self.skipped.values().flatten().map(|checked_at| *checked_at + CHECK_PERIOD);
        [retries.min(), self.held_back.values().min().copied(), answers.min(), checks.min()]
    }

    /// Applies objects, each given with its live state. Returns the new states of the objects that were written.
    pub(super) async fn apply(
        &mut self,
        client: &Client,
        objects: impl Iterator<Item = (&Object, Option<&Value>)>,
        budget: &impl Fn() -> Option<Duration>,
    ) -> Vec<(Key, Value)> {
        let mut due: Vec<_> = objects.filter_map(|(object, live)| self.start(object, live)).collect();
        find_absent(client, &mut due, budget).await;
        let answers: Vec<_> = stream::iter(due)
            .map(|(steps, next)| async move {
                let (object, seen) = (steps.desired(), steps.seen());
                (object, seen, write::apply(client, steps, next, budget).await)
            })
            // In order, so that the same one of two errors is always reported.
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let mut written = Vec::new();
        for (object, seen, answer) in answers {
            let seen = seen.unwrap_or(object.value());
            match answer {
                Ok(applied) => {
                    if applied.change.action == Action::Skip {
                        // No watch shows the object, which may lack our label.
                        if self.skip(object.key(), Some(Instant::now())) {
                            self.events.record(&applied.change, applied.live.as_ref().unwrap_or(seen));
                        }
                        continue;
                    }
                    self.objects.remove(&object.key());
                    self.skipped.remove(&object.key());
                    self.compare(object, applied.live.as_ref());
                    let was_settled = !self.settled.insert(object.key());
                    if applied.change.action != Action::Unchanged {
                        // A new object itself shows when it was created.
                        if was_settled || applied.change.action != Action::Create {
                            self.events.record(&applied.change, applied.live.as_ref().unwrap_or(seen));
                        } else {
                            self.events.count(&applied.change);
                        }
                        if was_settled {
                            self.events.metrics.repairs.of([object.kind().kind]).inc();
                        }
                    }
                    written.extend(applied.live.map(|live| (object.key(), live)));
                }
                Err(error) => self.fail(&error, seen),
            }
        }
        written
    }

    /// Returns the first step for an object that differs from the plan and may be written now.
    fn start<'a>(&mut self, object: &'a Object, live: Option<&'a Value>) -> Option<(Steps<'a>, Next)> {
        if live.is_none()
            && self.skipped.get(&object.key()).is_some_and(|at| at.is_some_and(|at| at.elapsed() < CHECK_PERIOD))
        {
            return None;
        }
        let live_state = live.map_or(self.unseen, LiveState::Seen);
        let mut steps = Steps::new(object, live_state).adopting(self.adopts);
        let is_unchanged = live.is_some_and(|live| self.unchanged.has(object, live));
        let next = if is_unchanged { Next::Break(End::Unchanged) } else { steps.first() };
        if next == Next::Break(End::LeftAlone(None)) {
            if self.skip(object.key(), None) {
                let change = Change::plain(object.key(), Action::Skip).because(inventory::LEFT_ALONE);
                self.events.record(&change, live.unwrap_or(object.value()));
            }
            return None;
        }
        if live.is_some() {
            self.skipped.remove(&object.key());
        }
        if next.is_break() {
            if let Some(live) = live.filter(|_| !is_unchanged && next == Next::Break(End::Unchanged)) {
                self.unchanged.insert(object, live);
            }
            let key = object.key();
            self.objects.remove(&key);
            self.overruled.remove(&key);
            self.settled.insert(key);
            return None;
        }
        if live.is_some_and(|live| self.is_answered(object, live)) {
            return None;
        }
        if !self.is_due(&object.key()) {
            return None;
        }
        let restarts = live.is_some_and(|live| reference::hash_of(live) != reference::hash_of(object.value()));
        // A repeated apply of an overruled object is not a repair, because the object has not changed.
        let is_known = self.overruled.contains_key(&object.key());
        if !self.may_write_more() || !(is_known || self.may_repair_again(object.key(), live, restarts)) {
            return None;
        }
        self.writes_left = self.writes_left.saturating_sub(1);
        Some((steps, next))
    }

    /// Whether an object may be repaired now. If not, logs the manager that keeps changing it. `restarts` is true if the write follows a
    /// change of mounted objects.
    pub(super) fn may_repair_again(&mut self, key: Key, live: Option<&Value>, restarts: bool) -> bool {
        if self.may_repair(key.clone()) {
            return true;
        }
        if let Entry::Vacant(entry) = self.contested.entry(key) {
            let who = live.and_then(ownership::last_other_manager).unwrap_or("another manager");
            let who = if restarts { "a change of what its pods mount" } else { who };
            warn!("{who} keeps changing {}: it is repaired less and less often", entry.key());
            entry.insert(who.to_owned());
        }
        false
    }

    /// Whether an object may be repaired now. A granted repair is counted.
    pub(super) fn may_repair(&mut self, key: Key) -> bool {
        let Err(free) = self.limiter.repair(key.clone(), Instant::now()) else { return true };
        self.held_back.insert(key, free);
        false
    }

    /// Whether no retry of an object is pending. The error of a pending retry counts as a failure of this pass.
    pub(super) fn is_due(&mut self, key: &Key) -> bool {
        let Some(Err(error)) = self.objects.get(key).map(|backoff| backoff.ready(Instant::now())) else { return true };
        self.failures.add(key.clone(), false, error.into());
        false
    }

    /// Deletes an object if its live state has not changed, and records the deletion as this action. Returns `None` if the deletion is not
    /// due or has failed.
    pub(super) async fn delete(
        &mut self,
        client: &Client,
        (kind, live): (&Kind, &Value),
        (action, why): (Action, &str),
        budget: &impl Fn() -> Option<Duration>,
    ) -> Option<Pruned> {
        let key = write::key_of(kind, live);
        if !self.is_due(&key) || !self.may_write_more() {
            return None;
        }
        self.writes_left = self.writes_left.saturating_sub(1);
        match write::prune(client, kind, live, budget()).await {
            Ok(pruned) => {
                self.objects.remove(&key);
                if !matches!(pruned, Pruned::Absent) {
                    self.events.record(&Change::plain(key, action).because(why), live);
                }
                Some(pruned)
            }
            Err(error) => {
                self.fail(&error, live);
                None
            }
        }
    }

    pub(super) fn fail(&mut self, error: &Error, object: &Value) {
        let (is_servers, is_terminal) = (error.source.is_servers(), error.source.is_terminal());
        // An API server finds a role that it has just created only a moment later: its binding succeeds in the next attempt. The text of the
        // next failure is another one, and is logged.
        let is_early = error.source.is_absent() && !self.objects.contains_key(&error.object);
        let text = chain(error) + if is_early { "; it may exist, and be found a moment later" } else { "" };
        // The failure is not about the object if the process has lost its lease or is being stopped.
        if !is_early && !matches!(error.source, Cause::NotLeading) {
            self.events.record(&Change::plain(error.object.clone(), Action::Refuse).because(text.as_str()), object);
        }
        self.events.metrics.errors.of([error.source.word()]).inc();
        let had_failed = self.failures.is_servers();
        let backoff = if is_servers { &mut self.server } else { self.objects.entry(error.object.clone()).or_default() };
        let (grace, now) = (error.source.grace(self.grace), Instant::now());
        // The failures of all objects of a pass count once for the API server.
        let counts = !is_servers || !had_failed;
        // A terminal error is retried, too, because permissions or the object may change.
        if counts && backoff.failed(&text, grace, error.source.retry_after(), now) && !is_terminal {
            if is_early {
                debug!("{text}; retrying");
            } else {
                warn!("{text}; retrying");
            }
        }
        let (is_reported, is_denied) = (backoff.has_lasted(now), error.source.is_denied());
        self.failures.add(
            error.object.clone(),
            is_servers,
            PassError { error: text, is_reported, is_terminal, is_denied },
        );
    }
}

/// Finds which of several objects in one location do not exist, with one request instead of a read of each. The others are read.
async fn find_absent(client: &Client, due: &mut [(Steps<'_>, Next)], budget: &impl Fn() -> Option<Duration>) {
    let started = Instant::now();
    let mut locations: BTreeMap<Location, Vec<&mut (Steps<'_>, Next)>> = BTreeMap::new();
    for one in due.iter_mut().filter(|(_, next)| *next == Next::Continue(Step::Read)) {
        locations.entry(Location::of(one.0.desired())).or_default().push(one);
    }
    for (location, unread) in locations.into_iter().filter(|(_, unread)| unread.len() > 1) {
        // The reads that follow report an error, and see an object that somebody creates meanwhile.
        let limit = budget().map(|budget| budget.min(SEARCH_TIMEOUT));
        let Ok(names) = read::names(client, location.kind, &location.namespace, limit).await else { return };
        if started.elapsed() > LONGEST_SEARCH {
            return;
        }
        let Some(names) = names else { continue };
        for (steps, next) in unread.into_iter().filter(|(steps, _)| !names.contains(steps.desired().name())) {
            *next = steps.next(Ok(None));
        }
    }
}

#[cfg(test)]
mod tests;
