//! What the guard asks the API server, because no watch shows it (IO).

use k8s_openapi::{
    api::{authorization::v1::ResourceAttributes, coordination::v1::Lease},
    jiff::Timestamp,
};
use kube::{Api, Client};
use tracing::debug;

use crate::cluster::{
    access,
    request::{self, Cause, REQUEST_TIMEOUT},
};

/// Whether a ServiceAccount may delete every node. Rights on single nodes do not count: the operator grants these.
pub(super) async fn may_delete_any_node(client: &Client, user: &str) -> Result<bool, Cause> {
    let delete = ResourceAttributes {
        verb: Some("delete".to_owned()),
        resource: Some("nodes".to_owned()),
        version: Some("v1".to_owned()),
        ..ResourceAttributes::default()
    };
    let answer = access::may(client, Some(user), delete, Some(REQUEST_TIMEOUT)).await;
    answer.inspect_err(|error| debug!("failed to ask for the rights of {user}: {error}"))
}

/// Since when the holder of a lease has held it; else what keeps that from being known.
pub(super) async fn leads_since(client: &Client, namespace: &str, name: &str) -> Result<Timestamp, String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = request::send(Some(REQUEST_TIMEOUT), leases.get(name)).await;
    let lease = lease.map_err(|error| format!("failed to read lease {namespace}/{name}: {error}"))?;
    let spec = lease.spec.unwrap_or_default();
    let is_held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
    let since = spec.acquire_time.filter(|_| is_held).map(|time| time.0);
    since.ok_or_else(|| format!("lease {namespace}/{name} has no holder, or no time since when"))
}
