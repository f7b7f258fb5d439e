//! What the integration tests, the demo and the benchmark share: a real control plane, the OpenShift objects on it,
//! and the operator as a process of its own.
//!
//! Knows nothing of the operator's sources: it sees the operator only as a binary, as a cluster does.
#![allow(dead_code, reason = "three targets include this by #[path], and each of them uses a part")]
#![allow(unreachable_pub, reason = "the targets that include this are programs: nothing in them can be reached")]

pub mod artifacts;
pub mod audit;
pub mod control_plane;
pub mod faults;
pub mod kubelet;
pub mod latency;
pub mod objects;
pub mod openshift;
pub mod operator;
pub mod pki;
pub mod process;

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// How long [`eventually`] pauses between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Asks `probe` every 10 ms until it gives a value, for at most `timeout`.
///
/// `Ok(None)` and an error both mean "not yet". An error is the better answer: the last one ends up in the message, so
/// a probe that says `ensure!(ready == 2, "{ready} of 2 are ready")` explains its own failure.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let mut last = String::from("nothing was seen");
    while Instant::now() < deadline {
        // A probe that hangs must not outlast the deadline either.
        match timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(state)) => last = format!("{state:#}"),
        }
        sleep(POLL_INTERVAL).await;
    }
    bail!("{what}: not within {timeout:?}; last: {last}");
}
