//! Logs the conditions that a process waits for, if it waits for long (IO). Until then only `/readyz` and SIGUSR1 show them.

use std::time::Instant;

use tracing::{info, warn};

use crate::grace::TRANSIENT_ERROR_GRACE;

/// The conditions that the process waits for.
#[derive(Default)]
pub(super) struct Waiting {
    conditions: Vec<String>,
    /// The time since which they are the same.
    since: Option<Instant>,
    is_logged: bool,
}

impl Waiting {
    /// Notes the conditions after a pass. Logs them once they have lasted for the grace period, and logs their end. Returns the time at
    /// which they will have lasted that long.
    pub(super) fn set(&mut self, conditions: &[String], now: Instant) -> Option<Instant> {
        if conditions.is_empty() {
            if self.is_logged {
                info!("no longer waiting: {}", self.conditions.join("; "));
            }
            *self = Self::default();
            return None;
        }
        if self.conditions != conditions {
            (self.conditions, self.since, self.is_logged) = (conditions.to_vec(), Some(now), false);
        }
        let logged_at = self.since.unwrap_or(now) + TRANSIENT_ERROR_GRACE;
        if now >= logged_at && !self.is_logged {
            warn!("still waiting after {} s: {}", TRANSIENT_ERROR_GRACE.as_secs(), conditions.join("; "));
            self.is_logged = true;
        }
        (!self.is_logged).then_some(logged_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_long_wait_is_logged_and_only_once() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let one = ["the version".to_owned()];
        let due = start + TRANSIENT_ERROR_GRACE;
        assert_eq!(waiting.set(&one, start), Some(due));
        assert_eq!(waiting.set(&one, start + Duration::from_secs(1)), Some(due), "the same condition");
        assert!(!waiting.is_logged);
        assert_eq!(waiting.set(&one, due), None);
        assert!(waiting.is_logged);
        let other = ["the nodes".to_owned()];
        assert_eq!(
            waiting.set(&other, due),
            Some(due + TRANSIENT_ERROR_GRACE),
            "a new condition has a period of its own"
        );
        assert_eq!(waiting.set(&[], due), None);
        assert!(waiting.conditions.is_empty() && !waiting.is_logged);
    }
}
