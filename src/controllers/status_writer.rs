//! The writer of one status, or of one field manager's part of it (IO). It writes less often while another client keeps changing it.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::{
    cluster::request::Cause,
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
    fn ready(&self) -> Result<(), String> {
        self.backoff.ready(Instant::now())
    }

    /// Records that the status is as it should be.
    pub(super) fn succeeded(&mut self) {
        (self.backoff, self.free) = (Backoff::default(), None);
    }

    pub(super) fn due(&self) -> impl Iterator<Item = Instant> + use<> {
        [self.backoff.due(), self.free].into_iter().flatten()
    }

    /// Sends the write of a status that is not as it should be, unless its retry is not due, or it has to be held back for the reason
    /// `held_back`. A failure is logged once.
    pub(super) async fn send<T>(
        &mut self,
        held_back: &str,
        failure: impl FnOnce(&Cause) -> String,
        write: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, String> {
        self.ready()?;
        self.free = self.limiter.repair((), Instant::now()).err();
        if self.free.is_some() {
            if !std::mem::replace(&mut self.is_limit_logged, true) {
                warn!("{held_back}");
            }
            return Err(held_back.to_owned());
        }
        self.is_limit_logged &= self.limiter.is_contested(&(), Instant::now());
        let retrying = |cause: Cause| self.backoff.retrying(failure(&cause), Duration::ZERO, cause.retry_after());
        let written = write.await.map_err(retrying)?;
        self.succeeded();
        Ok(written)
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
        let held_back = "another writer keeps changing the status: it is written less often";
        let (client, budget) = (&view.target.client, || authority.write_budget());
        let write = status::write::write(client, live, (manager, own), is_well, budget);
        if let Some(written) = self.send(held_back, status::write::failure, write).await? {
            view.target.observer.put(&Id::Status, status::write::NAME, written);
            view.remember_status();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    async fn send(writer: &mut StatusWriter, answer: Result<(), Cause>) -> Result<(), String> {
        writer.send("too often", ToString::to_string, ready(answer)).await
    }

    #[tokio::test]
    async fn a_status_that_others_keep_changing_is_written_less_often() {
        let mut writer = StatusWriter::default();
        for _ in 0..STATUS_WRITES {
            assert_eq!(send(&mut writer, Ok(())).await, Ok(()));
        }
        let mut held_back = Ok(());
        for _ in 0..STATUS_WRITES {
            held_back = held_back.and(send(&mut writer, Ok(())).await);
        }
        assert_eq!(held_back, Err("too often".into()));
        assert!(writer.due().all(|due| due > Instant::now()) && writer.due().count() == 1);
        writer.succeeded();
        assert_eq!(writer.due().count(), 0);
    }

    #[tokio::test]
    async fn a_write_that_has_failed_is_retried_later() {
        let mut writer = StatusWriter::default();
        let error = send(&mut writer, Err(Cause::Timeout)).await;
        assert!(error.is_err());
        assert_eq!((writer.ready(), writer.due().count()), (error, 1));
        writer.succeeded();
        assert_eq!((writer.ready(), writer.due().count()), (Ok(()), 0));
    }
}
