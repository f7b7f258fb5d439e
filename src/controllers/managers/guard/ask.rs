//! What the guard asks the API server, because no watch shows it (IO).

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};

use crate::{
    cluster::read,
    error::chain,
    nodes::{guard::leader, subject::Subject},
    object::POD,
    process::lease::LEASE,
};

/// Since when the pod of the current rollout that leads has led.
///
/// # Errors
///
/// The lease or the pods cannot be read, or the leader is not known to be of the current rollout.
pub(super) async fn leads_since(client: &Client, subject: &Subject) -> Result<Timestamp, String> {
    let (namespace, name) = (subject.namespace.as_str(), subject.lease_name.as_str());
    let lease = read::get(client, &LEASE, namespace, name).await.map_err(|error| chain(&error))?;
    let lease = lease.ok_or_else(|| format!("there is no lease {namespace}/{name}"))?;
    let pods = read::list(client, &POD, namespace, &ListParams::default().labels(&subject.selector)).await;
    leader::leads_since(&lease, &pods.map_err(|error| chain(&error))?)
}
