//! The questions of the guard to the API server, for what no watch shows (IO).

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};

use crate::{
    cluster::{
        read::Error,
        request::{self, NO_DEADLINE, describe_objects},
    },
    error::chain,
    nodes::{guard::leader, identity::CcmIdentity},
    object::{Kind, POD},
    process::lease::LEASE,
};

/// Since when the pod of the current rollout that leads has led.
///
/// # Errors
///
/// The lease or the pods cannot be read, or the leader is not known to be of the current rollout.
pub(super) async fn leads_since(client: &Client, identity: &CcmIdentity) -> Result<Timestamp, String> {
    let (namespace, name) = (identity.namespace.as_str(), identity.lease_name.as_str());
    let lease = once(&LEASE, namespace, name, request::api(client, &LEASE, namespace).get_opt(name)).await?;
    let lease = lease.ok_or_else(|| format!("there is no lease {namespace}/{name}"))?;
    let params = ListParams::default().labels(&identity.selector);
    let pods = once(&POD, namespace, "", request::api(client, &POD, namespace).list(&params)).await?;
    let pods: Vec<_> = pods.items.iter().map(request::to_value).collect();
    leader::leads_since(&request::to_value(&lease), &pods)
}

/// Asks once. An API server that asks for a pause does not get it here: a withdrawal may wait for this pass.
async fn once<T>(
    kind: &Kind,
    namespace: &str,
    name: &str,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, String> {
    let answer = request::send(NO_DEADLINE, answer).await;
    answer.map_err(|source| chain(&Error::Read { what: describe_objects(kind, namespace, name), source }))
}
