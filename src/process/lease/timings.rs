//! The timings of leader election.

use std::time::Duration;

/// How long a lease is valid, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long a lease is valid without a renewal.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up; less than the duration.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
}

impl Timings {
    /// OpenShift's for highly available clusters: a lease survives 60 s without an API server.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);
    /// OpenShift's for a single node, whose API server is away for longer.
    pub const SINGLE_REPLICA: Self = Self::seconds(270, 240, 60);

    /// The problem with these timings, if there is one: the rules of client-go.
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

    pub(super) const fn seconds(lease_duration: u64, renew_deadline: u64, retry_period: u64) -> Self {
        Self {
            lease_duration: Duration::from_secs(lease_duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
        }
    }
}
