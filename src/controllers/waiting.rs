//! Logs the conditions that a process waits for, if it waits for long (IO). Until then only `/readyz` and SIGUSR1 show them.

use std::{collections::BTreeMap, time::Instant};

use tracing::{info, warn};

use crate::grace::TRANSIENT_ERROR_GRACE;

/// The conditions that the process waits for: each with the time since which it does, and whether it was logged.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<String, (Instant, bool)>);

impl Waiting {
    /// Notes the conditions after a pass. Logs each once it has lasted for the grace period, and its end. Returns the time at which the next
    /// one will have lasted that long.
    pub(super) fn set(&mut self, conditions: &[String], now: Instant) -> Option<Instant> {
        self.0.retain(|condition, (_, is_logged)| {
            let stays = conditions.contains(condition);
            if *is_logged && !stays {
                info!("no longer waiting: {condition}");
            }
            stays
        });
        for condition in conditions {
            self.0.entry(condition.clone()).or_insert((now, false));
        }
        for (condition, (since, is_logged)) in &mut self.0 {
            if !*is_logged && now.duration_since(*since) >= TRANSIENT_ERROR_GRACE {
                warn!("still waiting after {} s: {condition}", TRANSIENT_ERROR_GRACE.as_secs());
                *is_logged = true;
            }
        }
        let unlogged = self.0.values().filter(|(_, is_logged)| !is_logged);
        unlogged.map(|(since, _)| *since + TRANSIENT_ERROR_GRACE).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_long_wait_is_logged_once_whatever_else_comes_and_goes() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let [version, nodes] = ["the version", "the nodes"].map(str::to_owned);
        let both = [version.clone(), nodes.clone()];
        let due = start + TRANSIENT_ERROR_GRACE;
        let later = start + Duration::from_secs(1);
        assert_eq!(waiting.set(std::slice::from_ref(&version), start), Some(due));
        assert_eq!(waiting.set(&both, later), Some(due), "the first one");
        let logged = |waiting: &Waiting| waiting.0.values().filter(|(_, is_logged)| *is_logged).count();
        assert_eq!((waiting.set(&both, due), logged(&waiting)), (Some(later + TRANSIENT_ERROR_GRACE), 1));
        assert_eq!((waiting.set(std::slice::from_ref(&version), due), logged(&waiting)), (None, 1));
        assert_eq!((waiting.set(&[], due), logged(&waiting)), (None, 0));
    }
}
