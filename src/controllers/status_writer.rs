//! The writer of one status, or of one field manager's part of it (IO). It writes less often while another client keeps changing it.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::{
    controllers::{
        backoff::{Backoff, RepairLimiter, STATUS_WRITES},
        observer::Id,
        view::View,
    },
    process::leadership::Authority,
    status::{self, cluster_operator::Status},
};

pub(super) struct StatusWriter {
    backoff: Backoff,
    limiter: RepairLimiter<()>,
    /// The time at which a write that was held back will be granted.
    free: Option<Instant>,
    /// Whether the limit of the writes is logged.
    is_limit_logged: bool,
}

impl Default for StatusWriter {
    fn default() -> Self {
        let limiter = RepairLimiter::new(STATUS_WRITES);
        Self { backoff: Backoff::default(), limiter, free: None, is_limit_logged: false }
    }
}

impl StatusWriter {
    /// Returns the last error while the retry of a write is not due.
    pub(super) fn ready(&self) -> Result<(), String> {
        self.backoff.ready(Instant::now())
    }

    /// Grants one write, unless it has to be held back.
    pub(super) fn grant(&mut self) -> bool {
        self.free = self.limiter.repair((), Instant::now()).err();
        self.free.is_none()
    }

    /// Records that the status is as it should be.
    pub(super) fn succeeded(&mut self) {
        (self.backoff, self.free) = (Backoff::default(), None);
    }

    /// Records a failure and logs it once. Returns its text.
    pub(super) fn failed(&mut self, error: String, retry_after: Duration) -> String {
        self.backoff.retrying(error, Duration::ZERO, retry_after)
    }

    pub(super) fn due(&self) -> impl Iterator<Item = Instant> + use<> {
        [self.backoff.due(), self.free].into_iter().flatten()
    }

    /// Writes a field manager's own part of the status of the ClusterOperator, unless the status has it already.
    pub(super) async fn write(
        &mut self,
        view: &mut View,
        (manager, own): (&str, &Status),
        is_well: bool,
        authority: &Authority,
    ) -> Result<(), String> {
        let live = view.target.observer.status_object();
        if !status::write::is_needed(live, own, is_well) {
            self.succeeded();
            return Ok(());
        }
        if !self.grant() {
            let text = "another writer keeps changing the status: it is written less often";
            if !std::mem::replace(&mut self.is_limit_logged, true) {
                warn!("{text}");
            }
            return Err(text.to_owned());
        }
        self.is_limit_logged &= self.limiter.is_contested(&(), Instant::now());
        let budget = || authority.write_budget();
        let written = status::write::write(&view.target.client, live, (manager, own), is_well, budget).await;
        let written = written.map_err(|cause| self.failed(status::write::failure(&cause), cause.retry_after()))?;
        self.succeeded();
        if let Some(written) = written {
            view.target.observer.watches.put(&Id::Status, status::write::NAME, written);
            view.remember_status();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_others_keep_changing_is_written_less_often() {
        let mut writer = StatusWriter::default();
        assert!((0..STATUS_WRITES).all(|_| writer.grant()));
        assert!((0..STATUS_WRITES).any(|_| !writer.grant()));
        assert!(writer.due().all(|due| due > Instant::now()) && writer.due().count() == 1);
        writer.succeeded();
        assert_eq!(writer.due().count(), 0);
    }

    #[test]
    fn a_write_that_has_failed_is_retried_later() {
        let mut writer = StatusWriter::default();
        assert_eq!(writer.failed("no".into(), Duration::ZERO), "no");
        assert_eq!((writer.ready(), writer.due().count()), (Err("no".into()), 1));
        writer.succeeded();
        assert_eq!((writer.ready(), writer.due().count()), (Ok(()), 0));
    }
}
