//! The progress of each member of the fleet, from pass to pass.

use std::time::Instant;

use crate::{
    apply::settled::Settled,
    controllers::{backoff::Backoff, rollouts::Rollouts},
    grace::TRANSIENT_ERROR_GRACE,
    object::Key,
    status::outcome::Acted,
};

/// What has come of one that is reported to.
#[derive(Debug)]
pub(super) struct Progress<Outcome> {
    /// What the last pass has come to; it stays reported while an error is retried.
    pub(super) last: Option<Outcome>,
    /// What of that was logged last.
    logged: String,
    /// Since when a rollout has been stuck.
    pub(super) stuck_since: Option<Instant>,
    /// Since when a rollout has not ended.
    pub(super) rolling_since: Option<Instant>,
    /// The writes of the status that have failed.
    pub(super) reporting: Backoff,
}

impl<Outcome> Default for Progress<Outcome> {
    fn default() -> Self {
        Self {
            last: None,
            logged: String::new(),
            stuck_since: None,
            rolling_since: None,
            reporting: Backoff::default(),
        }
    }
}

impl<Outcome: PartialEq> Progress<Outcome> {
    /// What the rollouts of objects have come to that are applied. `held_up_by` names the nodes that may hold up these: it is asked
    /// where one is stuck, or takes long.
    pub(super) fn of_rollouts(
        &mut self,
        settled: Settled,
        rollouts: Rollouts,
        held_up_by: impl Fn(&[Key]) -> String,
    ) -> Acted {
        let Rollouts { waiting: rollouts, stuck, .. } = rollouts;
        let has_lasted = |since: Instant| since.elapsed() >= TRANSIENT_ERROR_GRACE;
        self.stuck_since = stuck.as_ref().map(|_| self.stuck_since.unwrap_or_else(Instant::now));
        if let Some(why) = stuck
            && self.stuck_since.is_some_and(has_lasted)
        {
            return Acted::Stuck(settled, why + &held_up_by(&rollouts));
        }
        self.rolling_since = (!rollouts.is_empty()).then(|| self.rolling_since.unwrap_or_else(Instant::now));
        if rollouts.is_empty() {
            return Acted::Applied(settled);
        }
        let nodes = if self.rolling_since.is_some_and(has_lasted) { held_up_by(&rollouts) } else { String::new() };
        Acted::RollingOut { settled, rollouts, nodes }
    }

    /// Takes what a pass has come to, which concerns a rollout or not. Returns whether that is another outcome than the last one.
    pub(super) fn take(&mut self, outcome: Outcome, is_rollout: bool) -> bool {
        // A rollout has its own time: what was waited for before an error, a bad input or a pause does not count for the next one.
        if !is_rollout {
            (self.stuck_since, self.rolling_since) = (None, None);
        }
        let is_other = self.last.as_ref() != Some(&outcome);
        self.last = Some(outcome);
        is_other
    }

    /// Logs a text about it, once.
    pub(super) fn log(&mut self, text: String, write: impl FnOnce(&str)) {
        if self.logged != text {
            write(&text);
            self.logged = text;
        }
    }

    /// When it may have come to something else, or its status is to be written again.
    pub(super) fn due(&self) -> impl Iterator<Item = Instant> + use<Outcome> {
        let rollouts = [self.stuck_since, self.rolling_since].map(|since| Some(since? + TRANSIENT_ERROR_GRACE));
        rollouts.into_iter().chain([self.reporting.due()]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_after_something_else_has_its_whole_time() {
        let (mut progress, since) = (Progress::default(), Some(Instant::now()));
        for (outcome, is_rollout) in [("rolling out", true), ("stuck", true), ("paused", false), ("applied", false)] {
            (progress.stuck_since, progress.rolling_since) = (since, since);
            assert!(progress.take(outcome, is_rollout), "{outcome}");
            let left = since.filter(|_| is_rollout);
            assert_eq!((progress.stuck_since, progress.rolling_since), (left, left), "{outcome}");
            assert!(!progress.take(outcome, is_rollout), "it is the same");
        }
    }
}
