//! Leader election over one Lease (IO).
//!
//! The protocol of client-go's leaderelection: the process that holds and renews the lease leads; a lease that was not
//! renewed for its duration, by this process's clock and not by the recorded times, may be taken; every write carries the
//! resource version, so that of two writers one loses. One difference: the holder is the Pod, not the process, so that a
//! restarted container of the same Pod continues at once.

use std::{
    fs,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::cluster::request;

/// The timings of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long a lease is valid without a renewal.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up; less than the duration.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
}

impl Timings {
    /// OpenShift's for highly available clusters: a lease survives 60 s without an API server.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);
    /// OpenShift's for a single node, whose API server is away for longer.
    pub const SINGLE_REPLICA: Self = Self::seconds(270, 240, 60);

    /// The problem with these timings, if there is one: the rules of client-go.
    pub fn problem(&self) -> Option<&'static str> {
        if self.lease_duration < Duration::from_secs(1) {
            Some("the lease duration must be at least 1s: leases count in seconds")
        } else if self.lease_duration <= self.renew_deadline {
            Some("the lease duration must be longer than the renew deadline, or two would lead at once")
        } else if self.renew_deadline <= self.retry_period * 6 / 5 {
            Some("the renew deadline must be longer than 1.2 times the retry period")
        } else {
            None
        }
    }

    const fn seconds(lease_duration: u64, renew_deadline: u64, retry_period: u64) -> Self {
        Self {
            lease_duration: Duration::from_secs(lease_duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
        }
    }
}

/// Whether this process leads.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// It leads, until this time at least.
    Leading(Instant),
    /// It does not lead; holds the reason if that is not another holder.
    Waiting(Option<String>),
}

/// The process no longer leads; holds the lease and the reason.
#[derive(Debug, thiserror::Error)]
#[error("lost the lease {0}")]
pub struct Lost(String);

/// One lease, as this process sees it.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    leading: watch::Sender<Leadership>,
    /// The lease as last read or written, and when this state was first seen.
    observed: Option<(Lease, Instant)>,
    /// Whether the lease has changed since it was observed.
    conflicted: bool,
}

/// The longest pause after an error.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(2);

enum Try {
    /// The lease is ours and was renewed.
    Held,
    /// This other holder's lease has not expired.
    HeldBy(String),
    /// Another process wrote the lease first.
    Conflict,
}

impl Election {
    /// An election for a lease, not started yet.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        timings: Timings,
        leading: watch::Sender<Leadership>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity(),
            timings,
            leading,
            observed: None,
            conflicted: false,
        }
    }

    /// Competes for the lease and then holds it, until it is lost.
    pub async fn run(&mut self) -> Lost {
        let lease = format!("{}/{}", self.namespace, self.name);
        let mut holder = String::new();
        let mut renewed = loop {
            let started = Instant::now();
            let pause = match self.try_once().await {
                Ok(Try::Held) => break started,
                // The next try reads the lease again.
                Ok(Try::Conflict) => continue,
                Ok(Try::HeldBy(other)) => {
                    if other != holder {
                        info!(lease, holder = other, "waiting for the lease");
                        holder = other;
                    }
                    self.leading.send_replace(Leadership::Waiting(None));
                    self.timings.retry_period
                }
                Err(error) => {
                    let trouble = format!("failed to acquire the lease {lease}: {}", request::describe(&error));
                    warn!("{trouble}");
                    self.leading.send_replace(Leadership::Waiting(Some(trouble)));
                    self.timings.retry_period.min(RETRY_AFTER_ERROR)
                }
            };
            // As client-go does, so that waiting processes do not move in step.
            tokio::time::sleep(jittered(pause)).await;
        };
        info!(lease, identity = self.identity, "acquired the lease");
        let Timings { renew_deadline, retry_period, .. } = self.timings;
        self.leading.send_replace(Leadership::Leading(renewed + renew_deadline));
        let mut pause = retry_period;
        let lost = loop {
            tokio::time::sleep(pause).await;
            pause = retry_period.min(RETRY_AFTER_ERROR);
            let started = Instant::now();
            match self.try_once().await {
                Ok(Try::Held) => {
                    (renewed, pause) = (started, retry_period);
                    self.leading.send_replace(Leadership::Leading(renewed + renew_deadline));
                    continue;
                }
                Ok(Try::HeldBy(holder)) => break format!("{lease} to {holder}"),
                Ok(Try::Conflict) => debug!(lease, "the lease was changed by another process"),
                Err(error) => warn!(lease, "failed to renew the lease: {}", request::describe(&error)),
            }
            if renewed.elapsed() > renew_deadline {
                break format!("{lease}: it could not be renewed for {} s", renew_deadline.as_secs());
            }
        };
        self.leading.send_replace(Leadership::Waiting(None));
        Lost(lost)
    }

    /// Releases the lease if it is held, so that the next holder need not wait.
    pub async fn release(self) {
        if !matches!(self.leading.send_replace(Leadership::Waiting(None)), Leadership::Leading(_)) {
            return;
        }
        let lease = format!("{}/{}", self.namespace, self.name);
        match request::send(Some(Duration::from_secs(5)), self.give_back()).await {
            Ok(()) => info!(lease, "released the lease"),
            Err(error) => warn!(lease, "failed to release the lease: {error}"),
        }
    }

    async fn give_back(&self) -> Result<(), kube::Error> {
        // Read again: a renewal may have been cut off after it was written.
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
        let answer = tokio::time::timeout(self.timings.renew_deadline / 2, self.acquire_or_renew()).await;
        answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
    }

    async fn acquire_or_renew(&mut self) -> Result<Try, kube::Error> {
        // The holder renews without reading the lease again, unless another process has written it.
        let is_holder = self.observed.as_ref().is_some_and(|(lease, _)| self.is_ours(lease));
        if self.conflicted || !is_holder {
            let read = self.api.get_opt(&self.name).await?;
            let before = self.observed.take();
            self.observed = read.map(|lease| match before {
                // The duration counts from when the change was seen, not from the recorded time.
                Some((known, seen)) if known.spec == lease.spec => (lease, seen),
                _ => (lease, Instant::now()),
            });
        }
        self.conflicted = false;
        let params = PostParams::default();
        let written = match self.observed.clone() {
            None => self.api.create(&params, &self.record(Lease::default())).await,
            Some((lease, seen)) => {
                let holder = holder(&lease);
                let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
                let has_expired = seen.elapsed() > Duration::from_secs(u64::try_from(duration).unwrap_or_default());
                if !(holder.is_empty() || holder == self.identity || has_expired) {
                    return Ok(Try::HeldBy(holder.to_owned()));
                }
                self.api.replace(&self.name, &params, &self.record(lease)).await
            }
        };
        // Where the lease was missing, a 404 is about the namespace and stays an error.
        let is_conflict = |code| code == 409 || (code == 404 && self.observed.is_some());
        match written {
            Err(kube::Error::Api(status)) if is_conflict(status.code) => {
                self.conflicted = true;
                Ok(Try::Conflict)
            }
            written => {
                self.observed = Some((written?, Instant::now()));
                Ok(Try::Held)
            }
        }
    }

    /// The lease as held by this process, made from its current state.
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
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Between one and 1.2 times the period.
fn jittered(period: Duration) -> Duration {
    let nanos = Timestamp::now().subsec_nanosecond().unsigned_abs();
    period + period / 5 * (nanos % 1000) / 1000
}

/// The Pod's UID, so that a restarted container of the same Pod keeps the lease; outside of a Pod a unique name.
fn identity() -> String {
    let of_mounts = || pod_uid(&fs::read_to_string("/proc/self/mountinfo").ok()?);
    std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty()).or_else(of_mounts).unwrap_or_else(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        format!("{}_{}", read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/uuid"))
    })
}

/// The kubelet mounts every container's /etc/hosts and termination log from `<root>/pods/<uid>/`. Other mounts may belong
/// to other Pods.
fn pod_uid(mountinfo: &str) -> Option<String> {
    let is_uid = |part: &str| part.len() == 36 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    mountinfo
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| matches!(fields.get(4), Some(&("/etc/hosts" | "/dev/termination-log"))))
        .filter_map(|fields| fields[3].split_once("/pods/")?.1.split('/').next().map(ToOwned::to_owned))
        .find(|part| is_uid(part))
}

/// A controller's right to write: while it leads, until the process stops.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Whether the process leads, and until when.
    pub leadership: watch::Receiver<Leadership>,
    /// Becomes true when the process has to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Authority {
    /// How long a write may take, `None` if none is allowed: it has to end while this process still leads.
    pub fn write_budget(&self) -> Option<Duration> {
        let Leadership::Leading(until) = *self.leadership.borrow() else { return None };
        let remaining = until.checked_duration_since(Instant::now())?;
        (!remaining.is_zero() && !*self.shutdown.borrow()).then_some(remaining)
    }

    /// Why this process does not lead, if the reason is not another holder.
    pub fn trouble(&self) -> Option<String> {
        match &*self.leadership.borrow() {
            Leadership::Waiting(trouble) => trouble.clone(),
            Leadership::Leading(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
