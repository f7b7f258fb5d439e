//! The version of the API server (IO), for clusters in which no node shows the version of the control plane.

use std::time::Instant;

use crate::{
    api::placement::Distribution,
    cluster::request,
    controllers::{RESYNC_PERIOD, backoff::Backoff},
    facts::{cluster::Cluster, version::Minor},
    grace::TRANSIENT_ERROR_GRACE,
};

/// The number of successive answers, all higher or all lower than the version in use, after which it changes: an hour of answers.
const ANSWERS: usize = 6;

#[derive(Default)]
pub(super) struct VersionReader {
    last: Option<String>,
    version: Version,
    asked: Option<Instant>,
    backoff: Backoff,
}

/// The version in use. During an upgrade, API servers behind one address differ, and any of them may answer.
#[derive(Debug, Default)]
struct Version {
    counts: Option<Minor>,
    /// The last answers, if all of them are higher or all are lower than the version in use.
    others: Vec<Minor>,
}

impl Version {
    /// Adds an answer. The first one is used at once.
    fn take(&mut self, answer: Minor) {
        let counts = *self.counts.get_or_insert(answer);
        let direction = answer.cmp(&counts);
        self.others.retain(|other| other.cmp(&counts) == direction);
        if direction.is_ne() {
            self.others.push(answer);
        }
        if self.others.len() >= ANSWERS {
            self.counts = self.others.drain(..).min();
        }
    }
}

impl VersionReader {
    /// Asks for the version if the last answer is old. `before` is the version that an earlier process has used.
    pub(super) async fn ask(
        &mut self,
        client: &kube::Client,
        before: impl FnOnce() -> Option<Minor>,
    ) -> Result<(), String> {
        if self.asked.is_some_and(|asked| asked.elapsed() < RESYNC_PERIOD) {
            return Ok(());
        }
        self.backoff.ready(Instant::now())?;
        match request::send(request::NO_DEADLINE, client.apiserver_version()).await {
            Ok(info) => {
                if let Ok(answer) = info.git_version.parse() {
                    self.version.counts = self.version.counts.or_else(before);
                    self.version.take(answer);
                }
                self.last = Some(info.git_version);
                (self.asked, self.backoff) = (Some(Instant::now()), Backoff::default());
                Ok(())
            }
            Err(error) => {
                let text = format!("failed to ask the API server for its version: {error}");
                Err(self.backoff.retrying(text, TRANSIENT_ERROR_GRACE, error.retry_after()))
            }
        }
    }

    /// Returns the cluster with these nodes of the control plane, none of which shows a version.
    pub(super) fn cluster(&self, control_plane: &[(String, Option<Distribution>)]) -> Option<Cluster> {
        let cluster = Cluster::of(control_plane, self.last.as_deref())?;
        Some(Cluster { minor: self.version.counts?, ..cluster })
    }

    pub(super) fn lasting_problem(&self) -> Option<String> {
        let now = Instant::now();
        self.backoff.ready(now).err().filter(|_| self.backoff.has_lasted(now))
    }

    pub(super) fn due(&self, cluster: Option<&Cluster>) -> impl Iterator<Item = Instant> + use<> {
        let needed = cluster.is_none_or(|cluster| cluster.control_plane_nodes == 0);
        let next = self.asked.map(|asked| asked + RESYNC_PERIOD).filter(|_| needed);
        [self.backoff.due(), next].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The versions in use after each of these answers.
    fn counting(answers: &[u32]) -> Vec<u32> {
        let mut version = Version::default();
        let take = |answer: &u32| {
            version.take(Minor(*answer));
            version.counts.unwrap().0
        };
        answers.iter().map(take).collect()
    }

    fn last(answers: &[u32]) -> u32 {
        *counting(answers).last().unwrap()
    }

    #[test]
    fn the_first_answer_counts_at_once_and_another_version_once_many_answers_in_a_row_have_it() {
        assert_eq!(counting(&[35]), [35]);
        let before = [35; 3];
        for other in [34, 36] {
            let almost = [&before[..], &[other; ANSWERS - 1]].concat();
            assert_eq!(last(&almost), 35);
            assert_eq!(last(&[&almost[..], &[other]].concat()), other, "an upgrade that is complete, a real downgrade");
            assert_eq!(last(&[&almost[..], &[35], &almost[3..]].concat()), 35, "one answer starts over");
        }
        let two = [36, 37, 36, 37, 37, 36];
        assert_eq!(last(&[&before[..], &two].concat()), 36, "the lowest of several");
        let crossing = [34, 36].repeat(ANSWERS);
        assert_eq!(last(&[&before[..], &crossing].concat()), 35, "neither direction lasts");
    }

    #[test]
    fn a_mixture_of_answers_changes_nothing_however_long_it_lasts() {
        // Two of three API servers are upgraded; and the longest run that proves nothing.
        for mixture in [&[36, 36, 35][..], &[36, 36, 36, 36, 36, 35]] {
            let counting = counting(&[&[35][..], &mixture.repeat(100)].concat());
            assert!(counting.iter().all(|counts| *counts == 35), "{counting:?}");
        }
    }

    /// In all sequences of answers the version changes only after that many answers in one direction, so it never changes back and forth.
    #[test]
    fn nothing_but_answers_in_a_row_changes_what_counts() {
        const LENGTH: u32 = 10;
        for number in 0..3_u32.pow(LENGTH) {
            let answers: Vec<_> = (0..LENGTH).map(|at| 34 + number / 3_u32.pow(at) % 3).collect();
            let counting = counting(&answers);
            for at in 1..counting.len() {
                let (before, now) = (counting[at - 1], counting[at]);
                if before != now {
                    let row = &answers[(at + 1).saturating_sub(ANSWERS)..=at];
                    let is_in_a_row =
                        row.len() == ANSWERS && row.iter().all(|one| one.cmp(&before) == now.cmp(&before));
                    assert!(is_in_a_row, "{answers:?}: {counting:?}");
                    assert_eq!(row.iter().min(), Some(&now), "{answers:?}: {counting:?}");
                }
            }
        }
    }
}
