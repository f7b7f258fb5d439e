//! Leader election: whether this process leads, its permission to write, and the timings.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// Whether this process leads.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// The process leads at least until this time.
    Leading(Deadline),
    /// The process does not lead. Holds the reason, unless another process holds the lease.
    Waiting(Option<String>),
}

impl Leadership {
    /// Whether the process leads, according to its last renewal.
    pub fn is_leading(&self) -> bool {
        matches!(self, Self::Leading(_))
    }
}

/// A time that has passed once it has passed on either of two clocks. The monotonic clock stops while a virtual machine is paused, and
/// the wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Now);

impl Deadline {
    /// Returns the deadline at `period` after `start`.
    pub fn after(start: Now, period: Duration) -> Self {
        Self(Now { monotonic: start.monotonic + period, wall: start.wall + period })
    }

    /// The remaining time; `None` after the deadline.
    pub fn remaining(&self, now: Now) -> Option<Duration> {
        let monotonic = self.0.monotonic.checked_duration_since(now.monotonic)?;
        let wall = self.0.wall.duration_since(now.wall).ok()?;
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

/// A controller's permission to write: while its process leads, until it stops.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Whether the process leads, and until when.
    pub leadership: watch::Receiver<Leadership>,
    /// Becomes true when the process has to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Authority {
    /// The longest time of a write, which has to end while this process still leads. `None` if no write is allowed.
    pub fn write_budget(&self) -> Option<Duration> {
        self.last_budget().filter(|_| !*self.shutdown.borrow())
    }

    /// The longest time of a write that is also allowed while the process stops, to remove objects that must not stay.
    pub fn last_budget(&self) -> Option<Duration> {
        let Leadership::Leading(until) = *self.leadership.borrow() else { return None };
        until.remaining(Now::read())
    }

    /// The reason why this process does not lead, unless another process holds the lease.
    pub fn problem(&self) -> Option<String> {
        match &*self.leadership.borrow() {
            Leadership::Waiting(problem) => problem.clone(),
            Leadership::Leading(_) => None,
        }
    }
}

/// The timings of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// The duration of a lease without a renewal.
    pub lease_duration: Duration,
    /// The time in which the holder retries a renewal before it gives up. It is shorter than the duration.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
}

impl Timings {
    /// The problem of these timings, by the rules of client-go.
    pub fn problem(&self) -> Option<&'static str> {
        if self.lease_duration < Duration::from_secs(1) {
            Some("--leader-elect-lease-duration must be at least 1s: leases count in seconds")
        } else if self.lease_duration <= self.renew_deadline {
            Some(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, or two would lead at once",
            )
        } else if self.renew_deadline <= self.retry_period * 6 / 5 {
            Some("--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period")
        } else {
            None
        }
    }

    /// Timings in seconds.
    pub const fn seconds(lease_duration: u64, renew_deadline: u64, retry_period: u64) -> Self {
        Self {
            lease_duration: Duration::from_secs(lease_duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
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
