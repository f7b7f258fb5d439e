//! When to try again, and how often one object may be repaired (no IO; takes the time as it is given).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::object::Key;

/// The pause after the first failure and the longest one; each is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// How many repairs of one object may follow each other at once.
const REPAIRS: u32 = 5;

/// How long it takes until one more repair of the same object may follow.
const REPAIR_PERIOD: Duration = Duration::from_millis(500);

/// When to try again what has failed, and for how long it has been failing.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    pause: Duration,
    not_before: Instant,
    error: String,
}

impl Backoff {
    /// Notes a failure; answers whether it is another one than the last. The next try is due after the pause that `asked` is,
    /// if that is longer than its own.
    pub(super) fn failed(&mut self, error: &str, asked: Duration, now: Instant) -> bool {
        let known = self.failing.take();
        let is_new = known.as_ref().is_none_or(|known| known.error != error);
        let since = known.as_ref().map_or(now, |known| known.since);
        let pause = known.map_or(PAUSE.0, |known| (known.pause * 2).min(PAUSE.1));
        let not_before = now + pause.max(asked.min(PAUSE.1));
        self.failing = Some(Failing { since, pause, not_before, error: error.to_owned() });
        is_new
    }

    /// The last error, while the next try is not due.
    pub(super) fn pending_error(&self, now: Instant) -> Option<&str> {
        self.failing.as_ref().filter(|failing| now < failing.not_before).map(|failing| failing.error.as_str())
    }

    /// Whether it has been failing for this long.
    pub(super) fn has_lasted(&self, period: Duration, now: Instant) -> bool {
        self.failing.as_ref().is_some_and(|failing| now.duration_since(failing.since) >= period)
    }

    /// When the next try is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.failing.as_ref().map(|failing| failing.not_before)
    }
}

/// Keeps two that correct each other from doing so at the speed of the API server.
#[derive(Debug, Default)]
pub(super) struct RepairLimiter {
    /// Until when the repairs that each object has had are spread, were they a period apart.
    spread_until: HashMap<Key, Instant>,
}

impl RepairLimiter {
    /// Grants one repair of an object, or returns the time from which it will be granted.
    pub(super) fn repair(&mut self, key: Key, now: Instant) -> Result<(), Instant> {
        self.spread_until.retain(|_, until| *until > now);
        let until = self.spread_until.get(&key).copied().unwrap_or(now);
        let free = until.checked_sub(REPAIR_PERIOD * (REPAIRS - 1)).unwrap_or(now);
        if free > now {
            return Err(free);
        }
        self.spread_until.insert(key, until + REPAIR_PERIOD);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_the_first_failure_is_remembered() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            backoff.failed("x", Duration::ZERO, now);
            pauses.push((backoff.due().unwrap() - now).as_millis());
            now = backoff.due().unwrap();
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert!(backoff.has_lasted(Duration::from_secs(150), now) && backoff.pending_error(now).is_none());
        assert!(!backoff.has_lasted(Duration::from_secs(150), start + Duration::from_secs(149)));
    }

    #[test]
    fn only_another_error_is_news() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut failed = |error| backoff.failed(error, Duration::ZERO, now);
        assert!(failed("x") && !failed("x") && failed("y"));
    }

    #[test]
    fn the_pause_that_is_asked_for_is_kept_up_to_a_minute() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let mut pause = |seconds| {
            backoff.failed("x", Duration::from_secs(seconds), now);
            (backoff.due().unwrap() - now).as_millis()
        };
        assert_eq!([pause(0), pause(5), pause(0), pause(3600)], [250, 5000, 1000, 60000]);
    }

    #[test]
    fn a_fight_is_slowed_and_an_edit_a_second_is_not() {
        let key = |name: &str| Key {
            group: String::new(),
            kind: "Service".into(),
            namespace: String::new(),
            name: name.into(),
        };
        let (mut brake, start) = (RepairLimiter::default(), Instant::now());
        for _ in 0..REPAIRS {
            assert_eq!(brake.repair(key("a"), start), Ok(()));
        }
        let free = brake.repair(key("a"), start).unwrap_err();
        assert_eq!(free, start + REPAIR_PERIOD);
        assert_eq!(brake.repair(key("b"), start), Ok(()), "another object is another matter");
        assert_eq!(brake.repair(key("a"), free), Ok(()));
        let mut now = start + Duration::from_secs(10);
        for _ in 0..60 {
            assert_eq!(brake.repair(key("a"), now), Ok(()));
            now += Duration::from_secs(1);
        }
    }
}
