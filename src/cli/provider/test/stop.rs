//! Signals that end a test early. The test then removes its objects.

use std::io;

use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, SIGTERM, and the end of the terminal.
pub(super) struct Stop {
    signals: [Signal; 3],
}

impl Stop {
    /// Catches the signals, which then no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let [interrupt, terminate, hangup] = signals;
        Ok(Self { signals: [interrupt?, terminate?, hangup?] })
    }

    /// Waits for the next signal.
    pub(super) async fn asked(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// Whether a signal has arrived.
    pub(super) fn is_asked(&mut self) -> bool {
        self.asked().now_or_never().is_some()
    }
}
