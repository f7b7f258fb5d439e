//! Leader election over one Lease (IO).
//!
//! The protocol of client-go's leaderelection: the process that holds and renews the record leads; a record that was not
//! renewed for its duration, as observed here and not by its own clock, may be taken; every write carries the resource
//! version, so that of two writers one loses. One difference: the holder is the Pod, not the process, so that a restarted
//! container of the same Pod continues at once.

use std::{
    fs,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::cluster::request;

/// How a lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long a record counts that nobody renews.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up; less than the duration.
    pub renew_deadline: Duration,
    /// How long between two tries.
    pub retry_period: Duration,
}

impl Timings {
    /// OpenShift's for highly available clusters: a lease survives 60 s without an API server.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);
    /// OpenShift's for a single node, whose API server is away for longer.
    pub const SINGLE_REPLICA: Self = Self::seconds(270, 240, 60);

    /// What is wrong with them, if anything: the rules of client-go.
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
    /// It does, until then at least.
    Leading(Instant),
    /// It does not. With the reason when that is not another holder.
    Waiting(Option<String>),
}

/// The process leads no longer; holds the lease and the reason.
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
    /// The record as last seen or written, and when it was first seen to be so.
    observed: Option<(Lease, Instant)>,
    /// Whether the record has changed since it was observed.
    conflicted: bool,
}

/// How long after an error the lease is asked for again, at most.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(2);

/// The result of one try.
enum Try {
    /// The lease is ours, renewed now.
    Held,
    /// Another holder's, and not expired.
    HeldBy(String),
    /// Another process has written first.
    Conflict,
}

impl Election {
    /// An election for a lease; nothing is asked yet.
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
        let lease = self.full_name();
        let mut holder = String::new();
        let mut renewed = loop {
            let started = Instant::now();
            let pause = match self.try_once().await {
                Ok(Try::Held) => break started,
                // Read it again at once: the next try knows more.
                Ok(Try::Conflict) => continue,
                Ok(Try::HeldBy(other)) => {
                    if other != holder {
                        info!(lease, holder = other, "waiting for the lease");
                        holder = other;
                    }
                    self.waits(None);
                    self.timings.retry_period
                }
                Err(error) => {
                    let trouble = format!("failed to acquire the lease {lease}: {}", request::describe(&error));
                    warn!("{trouble}");
                    self.waits(Some(trouble));
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
        self.waits(None);
        Lost(lost)
    }

    /// Gives the lease back, if it is held, so that the next holder need not wait.
    pub async fn release(self) {
        if !matches!(self.leading.send_replace(Leadership::Waiting(None)), Leadership::Leading(_)) {
            return;
        }
        let lease = self.full_name();
        match tokio::time::timeout(Duration::from_secs(5), self.give_back()).await {
            Ok(Ok(())) => info!(lease, "released the lease"),
            Ok(Err(error)) => warn!(lease, "failed to release the lease: {}", request::describe(&error)),
            Err(_) => warn!(lease, "failed to release the lease: no answer within 5 s"),
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

    fn waits(&self, trouble: Option<String>) {
        self.leading.send_replace(Leadership::Waiting(trouble));
    }

    async fn try_once(&mut self) -> Result<Try, kube::Error> {
        let limit = self.timings.renew_deadline / 2;
        match tokio::time::timeout(limit, self.acquire_or_renew()).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
        }
    }

    async fn acquire_or_renew(&mut self) -> Result<Try, kube::Error> {
        // The holder knows the record: it renews without reading it again, unless another process has written it.
        let current = match &self.observed {
            Some((lease, at)) if self.is_ours(lease) && !self.conflicted => Some((lease.clone(), *at)),
            before => match self.api.get_opt(&self.name).await? {
                None => None,
                // Judged by when the record was seen to change, not by the time that stands in it.
                Some(lease) => match before {
                    Some((known, at)) if known.spec == lease.spec => Some((lease, *at)),
                    _ => Some((lease, Instant::now())),
                },
            },
        };
        self.conflicted = false;
        self.observed.clone_from(&current);
        let Some((lease, seen)) = current else {
            let lease = self.record(None);
            return match self.api.create(&PostParams::default(), &lease).await {
                // A 404 here is the namespace's, and stays an error.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(self.conflict()),
                written => Ok(self.held(written?)),
            };
        };
        let holder = holder(&lease).to_owned();
        let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let expired = seen.elapsed() > Duration::from_secs(u64::try_from(duration).unwrap_or_default());
        if !(holder.is_empty() || self.is_ours(&lease) || expired) {
            return Ok(Try::HeldBy(holder));
        }
        let lease = self.record(Some(lease));
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(self.conflict()),
            written => Ok(self.held(written?)),
        }
    }

    fn conflict(&mut self) -> Try {
        self.conflicted = true;
        Try::Conflict
    }

    fn held(&mut self, lease: Lease) -> Try {
        self.observed = Some((lease, Instant::now()));
        Try::Held
    }

    /// The record with which this process holds the lease, made from the one that is there.
    fn record(&self, current: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = current.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let ours = self.is_ours(&lease);
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

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
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

/// The Pod's UID, so that a restarted container of the same Pod holds what its predecessor held; outside of a Pod a name
/// that no other process has.
fn identity() -> String {
    let of_mounts = || pod_uid(&fs::read_to_string("/proc/self/mountinfo").ok()?);
    std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty()).or_else(of_mounts).unwrap_or_else(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        format!("{}_{}", read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/uuid"))
    })
}

/// The kubelet mounts every container's /etc/hosts and termination log from `<root>/pods/<uid>/`. Other mounts may be those
/// of other Pods.
fn pod_uid(mountinfo: &str) -> Option<String> {
    let is_uid = |part: &str| part.len() == 36 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    mountinfo
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| matches!(fields.get(4), Some(&("/etc/hosts" | "/dev/termination-log"))))
        .filter_map(|fields| fields[3].split_once("/pods/")?.1.split('/').next().map(ToOwned::to_owned))
        .find(|part| is_uid(part))
}

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
    pub fn write_budget(&self) -> Option<Duration> {
        match *self.leadership.borrow() {
            Leadership::Leading(until) if !*self.shutdown.borrow() => {
                until.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero())
            }
            _ => None,
        }
    }

    /// What keeps it from leading, when that is not another holder.
    pub fn trouble(&self) -> Option<String> {
        match &*self.leadership.borrow() {
            Leadership::Waiting(trouble) => trouble.clone(),
            Leadership::Leading(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
