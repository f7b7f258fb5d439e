//! The limit of operations in a second.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Spaces attempts evenly.
pub(super) struct Pace {
    /// The time between two attempts; zero without a limit.
    gap: Duration,
    /// The earliest time of the next attempt.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// `per_second` is 0 for no limit.
    pub(super) fn new(per_second: u64) -> Self {
        let gap = 1_000_000_000_u64.checked_div(per_second).unwrap_or_default();
        Self { gap: Duration::from_nanos(gap), next: Mutex::new(None) }
    }

    /// Waits for the turn of one attempt. Turns are given in the order of the calls.
    pub(super) async fn turn(&self) {
        if self.gap.is_zero() {
            return;
        }
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + self.gap);
            turn
        };
        sleep_until(turn).await;
    }
}
