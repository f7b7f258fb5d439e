//! The lines that the log has about nodes (pure): a pass every few seconds finds the same problems again, and each is logged once.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// Whether the instance exists is not known.
    Unknown,
    /// The node is about to be deleted.
    Deletion,
    /// The deletion has failed.
    Refusal,
    /// The guard keeps the node.
    Kept,
    /// The taint of the node cannot be changed.
    Taint,
    /// The initialization of the node begins.
    Begin,
    /// The initialization of the node has failed.
    Sync,
}

impl Topic {
    /// The time after which the same line is logged again, if at all. ccm-operator takes a check that has not failed for two minutes for
    /// one that succeeds. What the guard decides, it does not read, and from a beginning on only how it ends.
    fn repetition(self) -> Option<Duration> {
        (!matches!(self, Self::Kept | Self::Begin)).then_some(Duration::from_secs(60))
    }
}

/// The lines of a node with their texts and times, by the node's uid and topic.
type Logged = BTreeMap<(String, Topic), (String, Instant)>;

/// The lines of this pass and of the one before.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<[Logged; 2]>);

impl Lines {
    /// Begins a pass. What the pass before did not find any more is forgotten, so it is new when it comes back.
    pub(super) fn begin(&self) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [before, now] = &mut *passes;
        *before = std::mem::take(now);
    }

    /// Forgets what was logged about a node.
    pub(super) fn forget(&self, uid: &str) {
        for pass in &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            pass.retain(|(node, _), _| node != uid);
        }
    }

    /// Whether a line is to be logged: it is new, has changed, or was last logged long enough ago.
    pub(super) fn is_due(&self, uid: &str, topic: Topic, text: &str, now: Instant) -> bool {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (uid.to_owned(), topic);
        let last = passes.iter().rev().find_map(|pass| pass.get(&key)).filter(|(last, _)| last == text);
        let is_recent = |at: &Instant| topic.repetition().is_none_or(|period| now.duration_since(*at) < period);
        let last = last.map(|(_, at)| *at).filter(is_recent);
        passes[1].insert(key, (text.to_owned(), last.unwrap_or(now)));
        last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_logged_when_it_is_new_changes_or_comes_back() {
        let (lines, start) = (Lines::default(), Instant::now());
        let pass = |second: u64, found: &[(Topic, &str)]| -> Vec<bool> {
            lines.begin();
            let now = start + Duration::from_secs(second);
            found.iter().map(|(topic, text)| lines.is_due("uid-a", *topic, text, now)).collect()
        };
        let (kept, unknown) = ((Topic::Kept, "x"), (Topic::Unknown, "x"));
        assert_eq!(pass(0, &[kept, unknown]), [true, true]);
        assert_eq!(pass(5, &[kept, unknown]), [false, false]);
        assert_eq!(pass(10, &[(Topic::Kept, "y"), unknown]), [true, false]);
        assert_eq!(pass(60, &[(Topic::Kept, "y"), unknown]), [false, true], "the operator reads one of them");
        assert_eq!(pass(100, &[(Topic::Kept, "y"), unknown]), [false, false]);
        assert_eq!(pass(105, &[]), [false; 0]);
        assert_eq!(pass(110, &[(Topic::Kept, "y"), unknown]), [true, true], "it was over");
        assert!(lines.is_due("uid-b", Topic::Kept, "y", start), "another node");
        lines.forget("uid-b");
        assert!(lines.is_due("uid-b", Topic::Kept, "y", start) && !lines.is_due("uid-a", Topic::Kept, "y", start));
    }
}
