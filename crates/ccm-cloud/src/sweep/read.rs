//! Reads the cluster and the owners of instances from an API server (IO).

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use ccm_drivers::contract::{Error, ErrorKind};
use ccm_kit::cluster::request::{self, Cause, NO_DEADLINE};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{self, verbs},
};

use super::Owners;

/// The namespace whose UID is the id of its cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";

/// The number of objects of one page of a list.
const PAGE: u32 = 500;

/// Reads the id of a cluster.
pub(crate) async fn cluster_id(client: &Client) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let read = request::send(NO_DEADLINE, namespaces.get_metadata(CLUSTER_NAMESPACE)).await;
    let namespace = read.map_err(|cause| failed(&format!("failed to read namespace {CLUSTER_NAMESPACE}"), &cause))?;
    let id = namespace.metadata.uid.filter(|uid| !uid.is_empty());
    id.ok_or_else(|| anyhow!("the namespace {CLUSTER_NAMESPACE} has no UID"))
}

/// Finds a kind of owners by its name in the words of kubectl, `RESOURCE[.GROUP]`, such as `machines.cluster.x-k8s.io`. Without a group
/// it is one of the core.
pub(crate) async fn resource(client: &Client, name: &str) -> anyhow::Result<ApiResource> {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let served = match request::send(NO_DEADLINE, discovery::group(client, group)).await {
        Ok(group) => group.resources_by_stability(),
        Err(Cause::Api(kube::Error::Discovery(_))) => Vec::new(),
        Err(cause) => return Err(failed(&format!("failed to look for {name}"), &cause).into()),
    };
    let found = served.into_iter().find(|(resource, _)| resource.plural == plural);
    match found {
        Some((resource, capabilities)) if capabilities.supports_operation(verbs::LIST) => Ok(resource),
        Some(_) => bail!("--owners: {name} cannot be listed"),
        None => bail!("--owners: this cluster does not serve {name}; name the plural and the group, as in jobs.batch"),
    }
}

/// Reads the UIDs of all objects of these kinds in all namespaces, and the id of the cluster. Fails unless every list is complete.
pub(crate) async fn owners(client: &Client, kinds: &[ApiResource]) -> anyhow::Result<Owners> {
    let mut uids = BTreeSet::new();
    for kind in kinds {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), kind);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = request::send(NO_DEADLINE, objects.list_metadata(&params)).await;
            let page = page.map_err(|cause| failed(&format!("failed to list {}", named(kind)), &cause))?;
            for object in page.items {
                let Some(uid) = object.metadata.uid.filter(|uid| !uid.is_empty()) else {
                    let problem = format!("failed to list {}: an object has no UID", named(kind));
                    return Err(Error::new(ErrorKind::Internal, problem).into());
                };
                uids.insert(uid);
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
    }
    Ok(Owners { cluster: cluster_id(client).await?, uids })
}

fn named(ApiResource { plural, group, .. }: &ApiResource) -> String {
    if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
}

/// The failure of a request to the API server, with the class that the exit code follows from. It is never `NotFound`, which would say that
/// the cloud does not have something.
fn failed(what: &str, cause: &Cause) -> Error {
    let kind = match cause {
        Cause::Timeout => ErrorKind::Timeout,
        cause if cause.code() == 401 => ErrorKind::InvalidCredentials,
        cause if cause.is_denied() => ErrorKind::Forbidden,
        cause if cause.code() == 429 => ErrorKind::RateLimited(Some(cause.retry_after())),
        cause if cause.is_servers() => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("{what}: {cause}"))
}
