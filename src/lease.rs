//! Leader election over one Lease (IO).
//!
//! The protocol of client-go's leaderelection: whoever holds the record and renews it leads; a record that nobody has
//! renewed for its duration, as observed here and not by its own clock, may be taken; every write carries the resource
//! version, so that of two writers one loses. One thing is ours: the holder is the Pod, not the process, so that a
//! restarted container of the same Pod goes on at once.

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

    const fn seconds(lease_duration: u64, renew_deadline: u64, retry_period: u64) -> Self {
        Self {
            lease_duration: Duration::from_secs(lease_duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
        }
    }
}

/// Until when this process leads; `None` when it does not.
pub type Leadership = Option<Instant>;

/// Why the process leads no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not renew in time.
    #[error("lost the lease {name}: it could not be renewed for {} s", deadline.as_secs())]
    NotRenewed {
        /// The lease, with its namespace.
        name: String,
        /// The renew deadline.
        deadline: Duration,
    },
    /// Another holder has it.
    #[error("lost the lease {name} to {holder}")]
    Taken {
        /// The lease, with its namespace.
        name: String,
        /// Who has it now.
        holder: String,
    },
}

/// One lease, as this process sees it.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    leading: watch::Sender<Leadership>,
    /// The record as last seen or written, and when that was.
    observed: Option<(Lease, Instant)>,
}

/// What one try came to.
enum Try {
    /// The lease is ours, renewed now.
    Held,
    /// Somebody else's, and not expired.
    HeldBy(String),
    /// Somebody was faster.
    Raced,
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
        }
    }

    /// Competes for the lease and then holds it, until it is lost.
    pub async fn run(&mut self) -> Error {
        let mut holder = String::new();
        let mut renewed = loop {
            let started = Instant::now();
            match self.try_once().await {
                Ok(Try::Held) => break started,
                // Read it again at once: the next try knows more.
                Ok(Try::Raced) => continue,
                Ok(Try::HeldBy(other)) if other != holder => {
                    info!(lease = self.full_name(), holder = other, "waiting for the lease");
                    holder = other;
                }
                Ok(Try::HeldBy(_)) => {}
                Err(error) => warn!(lease = self.full_name(), "failed to acquire the lease: {}", crate::chain(&error)),
            }
            // As client-go does, so that waiting processes do not move in step.
            tokio::time::sleep(jittered(self.timings.retry_period)).await;
        };
        info!(lease = self.full_name(), identity = self.identity, "acquired the lease");
        self.leading.send_replace(Some(renewed + self.timings.renew_deadline));
        loop {
            tokio::time::sleep(self.timings.retry_period).await;
            let error = loop {
                let started = Instant::now();
                match self.try_once().await {
                    Ok(Try::Held) => {
                        renewed = started;
                        self.leading.send_replace(Some(renewed + self.timings.renew_deadline));
                        break None;
                    }
                    Ok(Try::HeldBy(holder)) => break Some(Error::Taken { name: self.full_name(), holder }),
                    Ok(Try::Raced) => debug!(lease = self.full_name(), "the lease was changed by somebody else"),
                    Err(error) => {
                        warn!(lease = self.full_name(), "failed to renew the lease: {}", crate::chain(&error));
                    }
                }
                if renewed.elapsed() > self.timings.renew_deadline {
                    let deadline = self.timings.renew_deadline;
                    break Some(Error::NotRenewed { name: self.full_name(), deadline });
                }
                tokio::time::sleep(self.timings.retry_period.min(Duration::from_secs(2))).await;
            };
            if let Some(error) = error {
                self.leading.send_replace(None);
                return error;
            }
        }
    }

    /// Gives the lease back, if it is held, so that the next holder need not wait.
    pub async fn release(mut self) {
        if self.leading.send_replace(None).is_none() {
            return;
        }
        let Some((mut lease, _)) = self.observed.take() else { return };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        let now = MicroTime(Timestamp::now());
        (spec.renew_time, spec.acquire_time) = (Some(now.clone()), Some(now));
        match tokio::time::timeout(Duration::from_secs(5), self.api.replace(&self.name, &PostParams::default(), &lease))
            .await
        {
            Ok(Ok(_)) => info!(lease = self.full_name(), "released the lease"),
            Ok(Err(error)) => warn!(lease = self.full_name(), "failed to release the lease: {}", crate::chain(&error)),
            Err(_) => warn!(lease = self.full_name(), "failed to release the lease: no answer within 5 s"),
        }
    }

    async fn try_once(&mut self) -> Result<Try, kube::Error> {
        let limit = self.timings.renew_deadline / 2;
        match tokio::time::timeout(limit, self.acquire_or_renew()).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
        }
    }

    async fn acquire_or_renew(&mut self) -> Result<Try, kube::Error> {
        // The holder knows the record: it renews without reading it again.
        let current = match self.observed.take() {
            Some((lease, at)) if self.is_ours(&lease) => Some((lease, at)),
            before => match self.api.get_opt(&self.name).await? {
                None => None,
                // Judged by when the record was seen to change, not by the time that stands in it.
                Some(lease) => match before {
                    Some((known, at)) if known.spec == lease.spec => Some((lease, at)),
                    _ => Some((lease, Instant::now())),
                },
            },
        };
        let Some((lease, seen)) = current else {
            let lease = self.record(None);
            return match self.api.create(&PostParams::default(), &lease).await {
                // A 404 here is the namespace's, and stays an error.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Try::Raced),
                written => Ok(self.held(written?)),
            };
        };
        let holder = holder(&lease).to_owned();
        let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let expired = seen.elapsed() > Duration::from_secs(u64::try_from(duration).unwrap_or_default());
        if !(holder.is_empty() || self.is_ours(&lease) || expired) {
            self.observed = Some((lease, seen));
            return Ok(Try::HeldBy(holder));
        }
        let lease = self.record(Some(lease));
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Try::Raced),
            written => Ok(self.held(written?)),
        }
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
    std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty()).or_else(pod_uid_of_mounts).unwrap_or_else(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        format!("{}_{}", read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/uuid"))
    })
}

fn pod_uid_of_mounts() -> Option<String> {
    pod_uid(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// Kubelets mount a Pod's volumes from <root>/pods/<uid>/.
fn pod_uid(mountinfo: &str) -> Option<String> {
    let is_uid = |part: &str| part.len() == 36 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    mountinfo
        .split_whitespace()
        .filter_map(|field| field.split_once("/pods/")?.1.split('/').next())
        .find(|part| is_uid(part))
        .map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_is_found_in_its_mounts() {
        let uid = "0f4b2c9e-52d8-4a66-9e36-2d0e1a2f8b11";
        let line =
            format!("1011 990 8:1 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw\n");
        assert_eq!(pod_uid(&format!("36 35 98:0 / / rw - ext3 /dev/root rw\n{line}")), Some(uid.to_owned()));
        assert_eq!(pod_uid("36 35 98:0 /mnt/pods/some /x rw\n"), None);
    }

    #[test]
    fn the_next_try_is_never_early_and_at_most_a_fifth_late() {
        let period = Duration::from_secs(10);
        for _ in 0..100 {
            assert!((period..=period * 6 / 5).contains(&jittered(period)));
        }
    }
}
