//! The nodes to initialize (pure): each change of a node queues it at once, and each failure after a growing pause, as in client-go.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// The pause after the first failure. It doubles with each further one.
const FIRST: Duration = Duration::from_millis(5);

/// The longest pause.
pub(super) const LONGEST: Duration = Duration::from_secs(1000);

/// A queue of names.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The names whose turn it is, in order, with the time of the change or of the last failure.
    ready: VecDeque<(String, Instant)>,
    /// The names that failed, with the time of the next attempt and that of the failure.
    delayed: BTreeMap<String, (Instant, Instant)>,
    running: BTreeSet<String>,
    /// The names that changed while they ran.
    again: BTreeMap<String, Instant>,
    /// The number of failures in a row.
    failures: BTreeMap<String, u32>,
}

impl Queue {
    /// Queues a name at once. Returns whether it was not queued already.
    pub(super) fn add(&mut self, name: String, now: Instant) -> bool {
        self.delayed.remove(&name);
        if self.running.contains(&name) {
            return self.again.insert(name, now).is_none();
        }
        let is_new = !self.ready.iter().any(|(queued, _)| *queued == name);
        if is_new {
            self.ready.push_back((name, now));
        }
        is_new
    }

    /// Takes the next name, with the time of its change or of its last failure. It runs until [`Queue::done`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(String, Instant)> {
        let due = self.delayed.iter().filter(|(_, (due, _))| *due <= now);
        let due: Vec<_> = due.map(|(name, (_, failed))| (name.clone(), *failed)).collect();
        for (name, failed) in due {
            self.add(name, failed);
        }
        let (name, since) = self.ready.pop_front()?;
        self.running.insert(name.clone());
        Some((name, since))
    }

    /// The pause after the next failure of a name.
    pub(super) fn pause(&self, name: &str) -> Duration {
        let failures = self.failures.get(name).copied().unwrap_or_default();
        let pause = 2_u32.checked_pow(failures).and_then(|factor| FIRST.checked_mul(factor));
        pause.unwrap_or(LONGEST).min(LONGEST)
    }

    /// Notes the end of a name's run. After a failure it is queued again later.
    pub(super) fn done(&mut self, name: String, has_succeeded: bool, now: Instant) {
        self.running.remove(&name);
        if has_succeeded {
            self.failures.remove(&name);
        } else {
            self.delayed.insert(name.clone(), (now + self.pause(&name), now));
            *self.failures.entry(name.clone()).or_default() += 1;
        }
        if let Some(since) = self.again.remove(&name) {
            self.add(name, since);
        }
    }

    /// The number of the names whose turn it is.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// The time of the next name that failed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.delayed.values().map(|(due, _)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a name fail, and returns the pause in milliseconds.
    fn fail(queue: &mut Queue, now: &mut Instant) -> u128 {
        queue.done("a".into(), false, *now);
        let due = queue.due().unwrap();
        let pause = due - *now;
        assert!(queue.next(due.checked_sub(Duration::from_nanos(1)).unwrap()).is_none());
        *now = due;
        assert_eq!(queue.next(due).unwrap().0, "a");
        pause.as_millis()
    }

    #[test]
    fn pauses_grow_with_failures_and_end_with_a_success() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        assert!(queue.add("a".into(), now));
        assert_eq!(queue.next(now), Some(("a".to_owned(), now)));
        let pauses: Vec<_> = (0..40).map(|_| fail(&mut queue, &mut now)).collect();
        assert_eq!(&pauses[..5], [5, 10, 20, 40, 80]);
        assert_eq!((pauses[17], pauses[18], pauses[39]), (655_360, 1_000_000, 1_000_000));
        queue.done("a".into(), true, now);
        assert_eq!((queue.due(), queue.next(now)), (None, None));
        queue.add("a".into(), now);
        queue.next(now);
        assert_eq!(fail(&mut queue, &mut now), 5);
    }

    #[test]
    fn the_next_attempt_has_the_time_of_the_failure() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("a".into(), now);
        queue.next(now);
        queue.done("a".into(), false, now);
        let later = now + LONGEST;
        assert_eq!(queue.next(later), Some(("a".to_owned(), now)), "an answer since then is new to it");
        queue.done("a".into(), false, later);
        queue.add("a".into(), later + FIRST);
        assert_eq!(queue.next(later + FIRST), Some(("a".to_owned(), later + FIRST)), "a change is newer");
    }

    #[test]
    fn a_change_ends_the_pause_and_not_the_count_of_failures() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.add("a".into(), now);
        queue.next(now);
        queue.done("a".into(), false, now);
        assert!(queue.next(now).is_none());
        assert!(queue.add("a".into(), now) && !queue.add("a".into(), now));
        assert_eq!(queue.next(now).unwrap().0, "a");
        assert_eq!(queue.due(), None);
        assert_eq!(fail(&mut queue, &mut now), 10);
    }

    #[test]
    fn a_name_never_runs_twice_at_once_and_no_change_is_lost() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["a", "b", "a"] {
            queue.add(name.into(), now);
        }
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next(now).unwrap().0, "a");
        assert!(queue.add("a".into(), now) && !queue.add("a".into(), now));
        assert_eq!(queue.next(now).unwrap().0, "b");
        assert_eq!(queue.next(now), None, "it runs");
        queue.done("a".into(), true, now);
        assert_eq!(queue.next(now).unwrap().0, "a");
        queue.done("a".into(), true, now);
        queue.done("b".into(), true, now);
        assert_eq!((queue.next(now), queue.len(), queue.due()), (None, 0, None));
    }
}
