//! How long the pods of a cloud-controller-manager may take to become ready (pure).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{READY, RECONCILING, STALLED};
use crate::{
    api::status::{Condition, Status},
    grace::IMAGE_PULL_GRACE,
};

/// The reason of `Ready` if no pod is ready.
pub(super) const NO_POD_READY: &str = "NoPodReady";

/// Whether pods that are not ready have had enough time to start. An operator that starts again keeps what its predecessor has said.
pub(super) fn is_late(previous: &Status, now: &str) -> bool {
    let was_late = condition(previous, STALLED).is_some_and(|one| one.reason == NO_POD_READY);
    was_late || late_in(previous, now).is_some_and(|left| left.is_zero())
}

/// Returns the time until pods that a status calls not ready are late; `None` if they are not awaited.
pub(crate) fn late_in(status: &Status, now: &str) -> Option<Duration> {
    let is_awaited = status.conditions.iter().any(|one| one.type_ == READY && one.reason == NO_POD_READY);
    let since: Timestamp = condition(status, RECONCILING).filter(|_| is_awaited)?.last_transition_time.parse().ok()?;
    let now: Timestamp = now.parse().ok()?;
    // Without an elapsed time, the clock was set back.
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(IMAGE_PULL_GRACE.saturating_sub(elapsed))
}

fn condition<'a>(status: &'a Status, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|one| one.type_ == type_ && one.status == "True")
}
