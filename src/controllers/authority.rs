//! Whether a controller may write, and for how long (no IO).

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lease::Leadership;

/// A controller's right to write: its lease, until the process is to stop.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Whether, and until when, it leads.
    pub leadership: watch::Receiver<Leadership>,
    /// Becomes true when it is to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Authority {
    /// How long a write may take, `None` when there may be none: it has to end while this process still leads.
    pub(super) fn write_budget(&self) -> Option<Duration> {
        if *self.shutdown.borrow() {
            return None;
        }
        self.leadership.borrow().remaining(Instant::now())
    }

    /// What keeps it from leading, when that is not another holder.
    pub(super) fn trouble(&self) -> Option<String> {
        self.leadership.borrow().trouble().map(ToOwned::to_owned)
    }
}
