//! Shared by the integration tests, the demo and the benchmark: a real control plane, the OpenShift objects on it, and
//! the operator as a process.
//!
//! The operator is only a binary here, as in a cluster. From its library comes the list of objects to clean up.
#![allow(dead_code, reason = "several targets include this by #[path], and each uses a part of it")]
#![allow(unreachable_pub, reason = "the targets that include this are programs: nothing in them can be reached")]

pub mod artifacts;
pub mod audit;
pub mod control_plane;
pub mod faults;
pub mod go_operator;
pub mod kubelet;
pub mod kubernetes;
pub mod lab;
pub mod latency;
pub mod moto;
pub mod objects;
pub mod openshift;
pub mod operator;
pub mod permissions;
pub mod pki;
pub mod pool;
pub mod process;
pub mod scrape;

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// The first pause of [`eventually`] between two probes, and the longest: pauses grow, so that a long wait costs little.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// Calls `probe` until it returns a value, for at most `timeout`.
///
/// `Ok(None)` and an error both mean "not yet". Prefer an error: the message contains the last one, so that a probe with
/// `ensure!(ready == 2, "{ready} of 2 are ready")` explains its failure.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let [mut pause, longest] = PAUSES;
    let mut last = String::from("no error");
    while Instant::now() < deadline {
        // A probe that hangs must not outlast the deadline either.
        match timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(state)) => last = format!("{state:#}"),
        }
        sleep(pause).await;
        pause = longest.min(pause * 3 / 2);
    }
    bail!("timed out after {timeout:?}: {what}; last: {last}");
}
