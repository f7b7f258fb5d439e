//! Leader election over one Lease (IO).
//!
//! The protocol is that of client-go's leaderelection. The process that holds and renews the lease leads. A process may take a lease
//! that was not renewed for its duration, by its own clock and not by the recorded times. Every write carries the resource version, so
//! one of two writers loses. There are two differences: The holder is the container, not the process, so that a restarted container
//! continues at once. A waiting process watches the lease, so that it leads soon after a release.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::{Notify, watch};
use tracing::{debug, info, warn};

use crate::{
    cluster::{
        request,
        seen::Event,
        watch::{self as lease_watch, Collection, LastEventTime},
    },
    object::{Kind, kind},
    process::leadership::{Deadline, Leadership, Now},
};

pub use crate::process::leadership::Timings;

/// The kind Lease.
pub static LEASE: Kind = kind("coordination.k8s.io", "v1", "Lease", "leases", true, 0);

/// The error of a process that no longer leads. Holds the lease and the reason.
#[derive(Debug, thiserror::Error)]
#[error("lost the lease {0}")]
pub struct Lost(String);

/// The election for one lease.
pub struct Election {
    client: Client,
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    leading: watch::Sender<Leadership>,
    /// Notified if the resource version of the lease has gone back.
    rewound: Arc<Notify>,
    /// The lease as last read or written, and the time at which this state was first seen.
    observed: Option<(Lease, Instant)>,
    /// Whether another process has changed the lease since it was observed.
    conflicted: bool,
    /// Whether an attempt to acquire or renew the lease is under way, or was cancelled.
    is_trying: bool,
    /// Whether a lease of this process was missing. If so, the next one is created without a read.
    was_missing: Arc<AtomicBool>,
}

/// The time between the expiry of a watched lease and the attempt to take it.
const EXPIRY_MARGIN: Duration = Duration::from_millis(500);

const RETRY_AFTER_ERROR: Duration = Duration::from_secs(2);

enum Try {
    /// This process holds the lease, and has renewed it.
    Held,
    /// Another process holds the lease, which has not expired. Holds its identity.
    HeldBy(String),
    /// Another process wrote the lease first.
    Conflict,
}

impl Election {
    /// Creates an election that has not started yet. `identity` names this process as the holder: see [`crate::process::identity`].
    /// `rewound` is notified if a response shows that resource versions have gone back. All elections of a process share `was_missing`:
    /// whether a lease was missing.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        identity: String,
        timings: Timings,
        leading: watch::Sender<Leadership>,
        rewound: Arc<Notify>,
        was_missing: Arc<AtomicBool>,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            timings,
            leading,
            rewound,
            observed: None,
            conflicted: false,
            is_trying: false,
            was_missing,
        }
    }

    /// Competes for the lease and then holds it, until it is lost.
    pub async fn run(&mut self) -> Lost {
        let lease = format!("{}/{}", self.namespace, self.name);
        let mut renewed = self.acquire(&lease).await;
        info!(lease, identity = self.identity, "acquired the lease");
        let Timings { renew_deadline, retry_period, .. } = self.timings;
        self.leading.send_replace(Leadership::Leading(Deadline::after(renewed, renew_deadline)));
        let mut pause = retry_period;
        let mut is_contested = false;
        let lost = loop {
            tokio::time::sleep(pause).await;
            pause = retry_period.min(RETRY_AFTER_ERROR);
            let was_contested = std::mem::take(&mut is_contested);
            let started = Now::read();
            match self.try_once().await {
                Ok(Try::Held) => {
                    (renewed, pause) = (started, retry_period);
                    self.leading.send_replace(Leadership::Leading(Deadline::after(renewed, renew_deadline)));
                    continue;
                }
                Ok(Try::HeldBy(holder)) => break format!("{lease} to {holder}"),
                Ok(Try::Conflict) => {
                    debug!(lease, "the lease was changed by another process");
                    is_contested = true;
                    if !was_contested {
                        // Another process may already lead.
                        pause = Duration::ZERO;
                    }
                }
                Err(error) => warn!(lease, "failed to renew the lease: {}", request::describe(&error)),
            }
            if Deadline::after(renewed, renew_deadline).remaining(Now::read()).is_none() {
                break format!("{lease}: it could not be renewed for {} s", renew_deadline.as_secs());
            }
        };
        self.leading.send_replace(Leadership::Waiting(None));
        Lost(lost)
    }

    /// Competes for the lease. Returns the start of the successful attempt.
    async fn acquire(&mut self, lease: &str) -> Now {
        let mut holder = String::new();
        let mut changes = None;
        loop {
            let started = Now::read();
            match self.try_once().await {
                Ok(Try::Held) => return started,
                // The next try reads the lease again.
                Ok(Try::Conflict) => {}
                Ok(Try::HeldBy(other)) => {
                    if other != holder {
                        info!(lease, holder = other, "waiting for the lease");
                        holder = other;
                    }
                    self.leading.send_replace(Leadership::Waiting(None));
                    self.wait_until_free(changes.get_or_insert_with(|| self.changes())).await;
                }
                Err(error) => {
                    let problem = format!("failed to acquire the lease {lease}: {}", request::describe(&error));
                    warn!("{problem}");
                    self.leading.send_replace(Leadership::Waiting(Some(problem)));
                    tokio::time::sleep(jittered(self.timings.retry_period.min(RETRY_AFTER_ERROR))).await;
                }
            }
        }
    }

    /// Starts a watch of the lease. Also returns whether it works: not yet.
    fn changes(&self) -> (BoxStream<'static, Event>, bool) {
        let target = Collection::named(&LEASE, &self.namespace, &self.name);
        (lease_watch::events(&self.client, &target, LastEventTime::default()), false)
    }

    /// Waits until the lease is released or has expired; only for one period while it cannot be watched. A deleted lease stays valid for
    /// its duration, because its holder has not noticed the deletion yet.
    async fn wait_until_free(&mut self, (changes, is_synced): &mut (BoxStream<'static, Event>, bool)) {
        loop {
            let expiry = self.observed.as_ref().map_or_else(Instant::now, |(lease, seen)| *seen + duration(lease));
            let remaining = expiry.saturating_duration_since(Instant::now());
            // Jittered as in client-go, so that waiting processes do not move in step.
            let poll = jittered(self.timings.retry_period);
            let pause = if *is_synced { remaining + jittered(EXPIRY_MARGIN) } else { remaining.min(poll) };
            let event = tokio::select! {
                Some(event) = changes.next() => event,
                () = tokio::time::sleep(pause) => return,
            };
            match event {
                // The holder has not noticed the deletion yet.
                Event::Started | Event::Deleted(_) => {}
                Event::Changed(object) => {
                    let Ok(lease) = object.try_parse::<Lease>() else { return };
                    let is_free = holder(&lease).is_empty();
                    self.observe(lease);
                    if is_free {
                        return;
                    }
                }
                Event::Synced => *is_synced = true,
                Event::Failed { error, .. } => {
                    debug!(lease = self.name, "failed to watch the lease, reading it instead: {error}");
                    *is_synced = false;
                }
            }
        }
    }

    /// Releases a held lease, so that the next holder does not have to wait.
    pub async fn release(self) {
        // A cancelled attempt may have written the lease.
        if !self.leading.send_replace(Leadership::Waiting(None)).is_leading() && !self.is_trying {
            return;
        }
        let lease = format!("{}/{}", self.namespace, self.name);
        match request::send(Some(Duration::from_secs(5)), self.give_back()).await {
            Ok(()) => info!(lease, "released the lease"),
            Err(error) => warn!(lease, "failed to release the lease: {error}"),
        }
    }

    async fn give_back(&self) -> Result<(), kube::Error> {
        // Read again: a renewal may have been canceled after it was written.
        let mut lease = self.api.get(&self.name).await?;
        if !self.is_ours(&lease) {
            return Ok(());
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        let now = MicroTime(Timestamp::now());
        (spec.renew_time, spec.acquire_time) = (Some(now.clone()), Some(now));
        self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
    }

    async fn try_once(&mut self) -> Result<Try, kube::Error> {
        self.is_trying = true;
        let answer = tokio::time::timeout(self.timings.renew_deadline / 2, self.acquire_or_renew()).await;
        self.is_trying = false;
        answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
    }

    async fn acquire_or_renew(&mut self) -> Result<Try, kube::Error> {
        // The holder renews without reading the lease again, unless another process has written it.
        let is_holder = self.observed.as_ref().is_some_and(|(lease, _)| self.is_ours(lease));
        let expects_none = self.observed.is_none() && self.was_missing.load(Ordering::Relaxed);
        if self.conflicted || !(is_holder || expects_none) {
            match self.api.get_opt(&self.name).await? {
                Some(lease) => self.observe(lease),
                None => match &self.observed {
                    Some((lease, seen)) if self.is_others(lease) && seen.elapsed() <= duration(lease) => {
                        return Ok(Try::HeldBy(holder(lease).to_owned()));
                    }
                    _ => {
                        self.was_missing.store(true, Ordering::Relaxed);
                        self.observed = None;
                    }
                },
            }
        }
        self.conflicted = false;
        let params = PostParams::default();
        let written = match self.observed.clone() {
            None => self.api.create(&params, &self.record(Lease::default())).await,
            Some((lease, seen)) => {
                let holder = holder(&lease);
                let has_expired = seen.elapsed() > duration(&lease);
                if self.is_others(&lease) && !has_expired {
                    return Ok(Try::HeldBy(holder.to_owned()));
                }
                self.api.replace(&self.name, &params, &self.record(lease)).await
            }
        };
        // If the lease was missing, a 404 concerns the namespace and stays an error.
        let is_conflict = |code| code == 409 || (code == 404 && self.observed.is_some());
        match written {
            Err(kube::Error::Api(status)) if is_conflict(status.code) => {
                self.conflicted = true;
                Ok(Try::Conflict)
            }
            written => {
                self.observe(written?);
                Ok(Try::Held)
            }
        }
    }

    /// Stores the state of the lease. Its duration counts from the time at which a change was seen, not from the recorded time.
    fn observe(&mut self, lease: Lease) {
        let known = self.observed.take();
        if known.as_ref().is_some_and(|(known, _)| is_older(&lease, known)) {
            self.rewound.notify_one();
        }
        let seen = match known {
            Some((known, seen)) if known.spec == lease.spec => seen,
            _ => Instant::now(),
        };
        self.observed = Some((lease, seen));
    }

    /// Returns the lease with this process as its holder.
    fn record(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let ours = self.is_ours(&lease);
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.namespace = Some(self.namespace.clone());
        let previous = lease.spec.take().unwrap_or_default();
        let transitions = previous.lease_transitions.unwrap_or_default();
        let first = previous.holder_identity.is_none();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.timings.lease_duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if ours { previous.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if ours || first { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        });
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.identity
    }

    fn is_others(&self, lease: &Lease) -> bool {
        !holder(lease).is_empty() && !self.is_ours(lease)
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Whether a lease is older than the known one. Resource versions grow.
fn is_older(lease: &Lease, known: &Lease) -> bool {
    let version = |lease: &Lease| lease.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    version(lease).zip(version(known)).is_some_and(|(version, known)| version < known)
}

/// Returns a random time between one and 1.2 times the period.
fn jittered(period: Duration) -> Duration {
    let nanos = Timestamp::now().subsec_nanosecond().unsigned_abs();
    period + period / 5 * (nanos % 1000) / 1000
}

#[cfg(test)]
mod tests;
