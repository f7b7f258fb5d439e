//! Whether this process leads, and what it may write.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// Whether this process leads.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// It leads, until this time at least.
    Leading(Deadline),
    /// It does not lead; holds the reason if that is not another holder.
    Waiting(Option<String>),
}

impl Leadership {
    /// Whether the process leads, as far as it knows.
    pub fn leads(&self) -> bool {
        matches!(self, Self::Leading(_))
    }
}

/// A time that has passed as soon as one of two clocks says so. The monotonic clock stands still while a virtual machine is
/// paused; the wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    monotonic: Instant,
    wall: SystemTime,
}

impl Deadline {
    /// This long after `start`.
    pub fn after(start: Now, period: Duration) -> Self {
        Self { monotonic: start.monotonic + period, wall: start.wall + period }
    }

    /// The time that is left; `None` once it has passed.
    pub fn remaining(&self, now: Now) -> Option<Duration> {
        let monotonic = self.monotonic.checked_duration_since(now.monotonic)?;
        let wall = self.wall.duration_since(now.wall).ok()?;
        Some(monotonic.min(wall)).filter(|remaining| !remaining.is_zero())
    }
}

/// The current time of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    monotonic: Instant,
    wall: SystemTime,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }
}

/// A controller's permission to write: while it leads, until the process stops.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Whether the process leads, and until when.
    pub leadership: watch::Receiver<Leadership>,
    /// Becomes true when the process has to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Authority {
    /// How long a write may take, `None` if none is allowed: it has to end while this process still leads.
    pub fn write_budget(&self) -> Option<Duration> {
        self.last_budget().filter(|_| !*self.shutdown.borrow())
    }

    /// The same while the process stops: for what must not be left behind.
    pub fn last_budget(&self) -> Option<Duration> {
        let Leadership::Leading(until) = *self.leadership.borrow() else { return None };
        until.remaining(Now::read())
    }

    /// Why this process does not lead, if the reason is not another holder.
    pub fn problem(&self) -> Option<String> {
        match &*self.leadership.borrow() {
            Leadership::Waiting(problem) => problem.clone(),
            Leadership::Leading(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_by_either_clock() {
        let start = Now::read();
        let deadline = Deadline::after(start, Duration::from_secs(60));
        let at = |monotonic: u64, wall: i64| {
            let wall_period = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { start.wall - wall_period } else { start.wall + wall_period };
            let now = Now { monotonic: start.monotonic + Duration::from_secs(monotonic), wall };
            deadline.remaining(now).map(|remaining| remaining.as_secs())
        };
        assert_eq!(at(20, 20), Some(40));
        assert_eq!(at(1, 61), None, "the virtual machine was paused");
        assert_eq!(at(20, -3600), Some(40), "the wall clock was set back");
        assert_eq!(at(61, -3600), None);
        assert_eq!(at(60, 60), None);
    }
}
