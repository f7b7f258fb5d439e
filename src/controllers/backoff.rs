//! The times of retries, and a limit for the repairs of one object (IO, by the clock and the log).

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    time::{Duration, Instant},
};

use tracing::warn;

use crate::object::Key;

/// The pause after the first failure, and the longest pause; each further failure doubles it.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// The number of repairs of an object that are granted without a pause.
pub(super) const REPAIR_BURST: u32 = 5;
/// The number of writes of a status that are granted without a pause.
pub(super) const STATUS_WRITES: u32 = 30;

/// The time after which an unchanged object is granted one more repair without a pause. An object that is edited once a second is repaired
/// each time. A slow machine, on which a repair takes more than half a second, still detects two managers that overwrite each other.
const REFILL: Duration = Duration::from_millis(900);

/// The pause between two repairs of an object that another manager keeps changing, and the longest such pause.
const REPAIR_PERIOD: Duration = Duration::from_millis(500);
const LONGEST_REPAIR_PERIOD: Duration = Duration::from_secs(60);

/// The time of the next retry, and the time since which an operation has been failing.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    /// The longest grace period of all errors since the first one.
    longest_grace: Duration,
    /// The grace period of the last error, and the time since which all errors have had it.
    grace: (Duration, Instant),
    pause: Duration,
    not_before: Instant,
    error: String,
}

impl Backoff {
    /// Records a failure that is reported after `grace`. Returns whether its error differs from the previous one. The pause is at least
    /// `retry_after`.
    pub(super) fn failed(&mut self, error: &str, grace: Duration, retry_after: Duration, now: Instant) -> bool {
        let known = self.failing.take();
        let is_new = known.as_ref().is_none_or(|known| known.error != error);
        let since = known.as_ref().map_or(now, |known| known.since);
        let longest_grace = known.as_ref().map_or(grace, |known| known.longest_grace.max(grace));
        let same = known.as_ref().map(|known| known.grace).filter(|(known, _)| *known == grace);
        let pause = known.map_or(PAUSE.0, |known| (known.pause * 2).min(PAUSE.1));
        let not_before = now + pause.max(retry_after.min(PAUSE.1));
        let (grace, error) = (same.unwrap_or((grace, now)), error.to_owned());
        self.failing = Some(Failing { since, longest_grace, grace, pause, not_before, error });
        is_new
    }

    /// Records a failure, and logs it unless it equals the previous one. Returns its text.
    pub(super) fn retrying(&mut self, error: String, grace: Duration, retry_after: Duration) -> String {
        if self.failed(&error, grace, retry_after, Instant::now()) {
            warn!("{error}; retrying");
        }
        error
    }

    /// Returns the last error while the retry is not due.
    pub(super) fn ready(&self, now: Instant) -> Result<(), String> {
        let pending = self.failing.as_ref().filter(|failing| now < failing.not_before);
        pending.map_or(Ok(()), |failing| Err(failing.error.clone()))
    }

    /// Whether the failure has lasted long enough to be reported.
    pub(super) fn has_lasted(&self, now: Instant) -> bool {
        self.failing.as_ref().is_some_and(|failing| {
            let (grace, since) = failing.grace;
            now.duration_since(failing.since) >= failing.longest_grace || now.duration_since(since) >= grace
        })
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.failing.as_ref().map(|failing| failing.error.as_str())
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.failing.as_ref().map(|failing| failing.not_before)
    }
}

/// The time without changes of the inputs before they are planned, and the longest delay of planning.
const QUIET: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Delays planning until the inputs stop changing, so that changes in quick succession become one plan.
#[derive(Debug, Default)]
pub(super) struct Debounce {
    /// The revision of the inputs that was planned last.
    planned: u64,
    /// The last revision since then, and the times of the first and of the last change.
    seen: Option<(u64, Instant, Instant)>,
}

impl Debounce {
    /// Whether this revision of the inputs was planned last.
    pub(super) fn is_planned(&self, revision: u64) -> bool {
        self.planned == revision
    }

    /// Records that this revision of the inputs is planned.
    pub(super) fn planned(&mut self, revision: u64) {
        *self = Self { planned: revision, seen: None };
    }

    /// Records the revision of the inputs. Returns whether the inputs have been quiet for long enough.
    pub(super) fn is_quiet(&mut self, revision: u64, now: Instant) -> bool {
        let (known, first, last) = self.seen.unwrap_or((revision, now, now));
        self.seen = Some((revision, first, if known == revision { last } else { now }));
        self.due().is_some_and(|due| due <= now)
    }

    /// The time at which delayed inputs are planned.
    pub(super) fn due(&self) -> Option<Instant> {
        self.seen.map(|(_, first, last)| (last + QUIET).min(first + LONGEST_WAIT))
    }
}

/// Limits the repairs of each object, because another manager may undo each of them at once. The longer this continues, the less often the
/// object is repaired.
#[derive(Debug)]
pub(super) struct RepairLimiter<K = Key> {
    /// The number of repairs of one object that are granted without a pause.
    burst: u32,
    objects: HashMap<K, Repairs>,
}

#[derive(Debug)]
struct Repairs {
    /// The time at which the past repairs would end if they were spread out, one in each period.
    spread_until: Instant,
    free: Instant,
    /// The pause after the next repair.
    period: Duration,
}

impl<K: Hash + Ord> RepairLimiter<K> {
    pub(super) fn new(burst: u32) -> Self {
        Self { burst, objects: HashMap::new() }
    }

    /// Grants one repair of an object, or returns the time from which it will be granted.
    pub(super) fn repair(&mut self, key: K, now: Instant) -> Result<(), Instant> {
        self.objects.retain(|_, repairs| repairs.is_remembered(now));
        let new = || Repairs { spread_until: now, free: now, period: REPAIR_PERIOD };
        let repairs = self.objects.entry(key).or_insert_with(new);
        if repairs.free > now {
            return Err(repairs.free);
        }
        repairs.spread_until = repairs.spread_until.max(now) + REFILL;
        if repairs.is_spread() || repairs.spread_until - now >= REFILL * self.burst {
            repairs.free = now + repairs.period;
            repairs.period = (repairs.period * 2).min(LONGEST_REPAIR_PERIOD);
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, keys: &BTreeSet<K>) {
        self.objects.retain(|key, _| !keys.contains(key));
    }

    /// Whether the repairs of an object are limited, because it was changed again after each of the last repairs.
    pub(super) fn is_contested(&self, key: &K, now: Instant) -> bool {
        self.objects.get(key).is_some_and(|repairs| repairs.is_spread() && repairs.is_remembered(now))
    }
}

impl Repairs {
    fn is_spread(&self) -> bool {
        self.period > REPAIR_PERIOD
    }

    /// Whether the repairs still count. Those of an object without changes for two periods are forgotten.
    fn is_remembered(&self, now: Instant) -> bool {
        self.spread_until > now || (self.is_spread() && self.free + self.period * 2 > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(150);

    #[test]
    fn pauses_grow_to_a_minute_and_the_first_failure_counts() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            backoff.failed("x", GRACE, Duration::ZERO, now);
            pauses.push((backoff.due().unwrap() - now).as_millis());
            now = backoff.due().unwrap();
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert!(backoff.has_lasted(now) && backoff.ready(now).is_ok());
        assert!(!backoff.has_lasted(start + Duration::from_secs(149)));
    }

    #[test]
    fn the_page_names_the_limit_of_repairs() {
        assert_eq!((REFILL.as_secs_f64().round(), LONGEST_REPAIR_PERIOD.as_secs()), (1.0, 60));
        let page = include_str!("../../docs/operations.md").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(
            "more than about once a second for some time, is repaired less and less often, down to once a minute"
        ));
    }

    #[test]
    fn only_a_different_error_is_new() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut failed = |error| backoff.failed(error, GRACE, Duration::ZERO, now);
        assert!(failed("x") && !failed("x") && failed("y"));
    }

    #[test]
    fn the_requested_pause_is_respected_up_to_a_minute() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut pause = |seconds| {
            backoff.failed("x", GRACE, Duration::from_secs(seconds), now);
            (backoff.due().unwrap() - now).as_millis()
        };
        assert_eq!([pause(0), pause(5), pause(0), pause(3600)], [250, 5000, 1000, 60000]);
    }

    #[test]
    fn constant_edits_are_limited_and_one_a_second_is_not() {
        let key = |name: &str| Key {
            group: String::new(),
            kind: "Service".into(),
            namespace: String::new(),
            name: name.into(),
        };
        let (mut limiter, start) = (RepairLimiter::new(REPAIR_BURST), Instant::now());
        for _ in 0..REPAIR_BURST {
            assert_eq!(limiter.repair(key("a"), start), Ok(()));
        }
        let free = limiter.repair(key("a"), start).unwrap_err();
        assert_eq!(free, start + REPAIR_PERIOD);
        assert_eq!(limiter.repair(key("b"), start), Ok(()), "each object has its own limit");
        assert_eq!(limiter.repair(key("a"), free), Ok(()));
        let mut last = free;
        let pauses = [1, 2, 4, 8, 16, 32, 60, 60].map(|_| {
            let free = limiter.repair(key("a"), last).unwrap_err();
            let pause = free - last;
            assert_eq!(limiter.repair(key("a"), free), Ok(()));
            last = free;
            pause.as_secs()
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(limiter.is_contested(&key("a"), last) && !limiter.is_contested(&key("b"), last));
        let (mut limiter, start) = (RepairLimiter::new(REPAIR_BURST), last);
        let mut now = start + Duration::from_secs(10);
        for _ in 0..60 {
            assert_eq!(limiter.repair(key("a"), now), Ok(()));
            now += Duration::from_secs(1);
        }
    }

    #[test]
    fn a_short_grace_period_counts_from_the_first_error_that_has_it() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let short = Duration::from_secs(5);
        backoff.failed("unavailable", GRACE, Duration::ZERO, at(0));
        backoff.failed("forbidden", short, Duration::ZERO, at(8));
        assert!(!backoff.has_lasted(at(8)), "an API server that restarts has not read its roles yet");
        backoff.failed("forbidden", short, Duration::ZERO, at(13));
        assert!(backoff.has_lasted(at(13)));
        backoff.failed("unavailable", GRACE, Duration::ZERO, at(14));
        assert!(!backoff.has_lasted(at(14)));
        backoff.failed("forbidden", short, Duration::ZERO, at(150));
        assert!(backoff.has_lasted(at(150)), "errors that alternate");
    }

    #[test]
    fn changes_that_come_together_are_over_after_some_quiet() {
        let (mut debounce, start) = (Debounce::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert!(!debounce.is_quiet(1, at(0)));
        assert!(!debounce.is_quiet(2, at(400)) && !debounce.is_quiet(2, at(899)));
        assert!(debounce.is_quiet(2, at(900)));
        let mut debounce = Debounce::default();
        let quiet: Vec<_> = (0..10).map(|number| debounce.is_quiet(number, at(number * 300))).collect();
        assert_eq!(quiet.iter().position(|is_quiet| *is_quiet), Some(7), "changes without an end");
    }
}
