//! Reads the log of a cloud-controller-manager from a cluster (IO). Writes nothing.

use k8s_openapi::api::core::v1;
use kube::{Api, Client, api::LogParams};

use crate::{
    cluster::request::{self, NO_DEADLINE},
    error::chain,
    nodes::{
        evidence::{Lease, Pod, ReadResult, Unseen},
        identity::CcmIdentity,
        log::Log,
        observed,
    },
    provider::CCM,
};

/// The maximum number of lines and bytes of a log. The API server counts the bytes from the oldest of these lines, so the
/// limit must suffice for all lines.
const LOG: (i64, i64) = (500, 2 << 20);

/// The maximum number of logs to read to find the leader.
const MOST_LOGS: usize = 3;

/// The API server's error for a node without an address.
const NO_ADDRESS: &str = "no preferred addresses found";

/// Reads the last log lines of the pod that holds the lease, or of the only pod. If the lease names no pod, reads the log
/// that identifies its pod as the leader.
pub async fn read(
    client: &Client,
    identity: &CcmIdentity,
    pods: Option<&[Pod]>,
    lease: Option<&Lease>,
) -> ReadResult<Option<Vec<String>>> {
    // Without pods there is no log to read; unreadable pods are already recorded.
    let Some(pods) = pods.filter(|pods| !pods.is_empty()) else { return Ok(None) };
    let pods = observed::current(pods);
    let leader = lease.and_then(|lease| pods.iter().find(|pod| observed::holds(lease, pod)));
    let only = || pods.first().filter(|_| pods.len() == 1);
    if let Some(pod) = leader.or_else(only) {
        return log_of(client, identity, pod).await.map(Some);
    }
    for pod in pods.iter().filter(|pod| pod.phase == "Running").take(MOST_LOGS) {
        if let Ok(log) = log_of(client, identity, pod).await
            && Log::of(&log).leads()
        {
            return Ok(Some(log));
        }
    }
    let why = "no pod is known to hold the lease".to_owned();
    let command = log_command(identity, &format!("-l {} --prefix", identity.selector));
    Err(Unseen { what: "the log of the pod that leads".to_owned(), why, command })
}

fn log_command(CcmIdentity { namespace, .. }: &CcmIdentity, what: &str) -> String {
    format!("kubectl logs -n {namespace} {what} -c {CCM} --tail={}", LOG.0)
}

async fn log_of(client: &Client, identity: &CcmIdentity, pod: &Pod) -> ReadResult<Vec<String>> {
    let (namespace, (lines, bytes)) = (&identity.namespace, LOG);
    let params = LogParams {
        container: Some(CCM.to_owned()),
        tail_lines: Some(lines),
        limit_bytes: Some(bytes),
        ..LogParams::default()
    };
    let logs: Api<v1::Pod> = Api::namespaced(client.clone(), namespace);
    match request::send(NO_DEADLINE, logs.logs(&pod.name, &params)).await {
        Ok(log) => Ok(observed::lines(&log)),
        Err(cause) => {
            let what = format!("the log of pod {namespace}/{}", pod.name);
            // An uninitialized node has no address unless its kubelet was given one. Without one, logs cannot be read remotely.
            let command = if cause.to_string().contains(NO_ADDRESS) {
                format!(
                    "ssh {} 'crictl logs --tail={lines} $(crictl ps --all --quiet --name {CCM} | head -n 1)'",
                    pod.node
                )
            } else {
                log_command(identity, &pod.name)
            };
            Err(Unseen { what, why: observed::sanitized(&chain(&cause)), command })
        }
    }
}
