//! Reads the cluster and the owners of instances from an API server (IO).

use std::collections::BTreeSet;

use anyhow::bail;
use ccm_drivers::contract::{Error, ErrorKind};
use ccm_kit::cluster::request::{self, Cause, NO_DEADLINE};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta},
    discovery::{self, verbs},
};

use super::Owners;
use crate::error::brief;

/// The namespace whose UID is the id of its cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";

/// The types of the metadata of objects.
const METADATA_VERSION: &str = "meta.k8s.io/v1";
const METADATA: &str = "PartialObjectMetadata";
const METADATA_LIST: &str = "PartialObjectMetadataList";

/// The number of objects of one page of a list.
const PAGE: u32 = 500;

/// Reads the id of a cluster.
pub(crate) async fn cluster_id(client: &Client) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let read = request::send(NO_DEADLINE, namespaces.get_metadata(CLUSTER_NAMESPACE)).await;
    let namespace = read.map_err(|cause| failed(&format!("failed to read namespace {CLUSTER_NAMESPACE}"), &cause))?;
    let is_it = namespace.metadata.name.as_deref() == Some(CLUSTER_NAMESPACE);
    let id = namespace.metadata.uid.filter(|uid| is_it && !uid.is_empty());
    Ok(id.ok_or_else(|| {
        doubtful(&format!("failed to read namespace {CLUSTER_NAMESPACE}"), "the answer is another object")
    })?)
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

/// Reads the UIDs of all objects of these kinds in all namespaces, and the id of the cluster. Fails unless every list is complete, and of one
/// cluster: an address may lead to several.
pub(crate) async fn owners(client: &Client, kinds: &[ApiResource]) -> anyhow::Result<Owners> {
    let cluster = cluster_id(client).await?;
    let mut uids = BTreeSet::new();
    for kind in kinds {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), kind);
        let (mut params, mut tokens) = (ListParams::default().limit(PAGE), BTreeSet::new());
        let what = format!("failed to list {}", named(kind));
        loop {
            let page = request::send(NO_DEADLINE, objects.list_metadata(&params)).await;
            let page = page.map_err(|cause| failed(&what, &cause))?;
            if !is_list_of(&page.types, kind) {
                return Err(doubtful(&what, "the answer is not a list of them").into());
            }
            for object in page.items {
                let is_one = object.types.is_none_or(|types| is_one_of(&types, kind));
                let Some(uid) = object.metadata.uid.filter(|uid| is_one && !uid.is_empty()) else {
                    return Err(doubtful(&what, "an object has no UID or is of another kind").into());
                };
                uids.insert(uid);
            }
            let more = page.metadata.remaining_item_count.is_some_and(|count| count > 0);
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                if more {
                    return Err(doubtful(&what, "the list is not complete").into());
                }
                break;
            };
            if !tokens.insert(token.clone()) {
                return Err(doubtful(&what, "the list has no end").into());
            }
            params.continue_token = Some(token);
        }
    }
    let after = cluster_id(client).await?;
    if after != cluster {
        let problem = format!(
            "two clusters have answered during one read of the owners, {:?} and {:?}: check the address in the kubeconfig",
            brief(&cluster),
            brief(&after)
        );
        return Err(Error::new(ErrorKind::Internal, problem).into());
    }
    Ok(Owners { cluster, uids })
}

/// Whether an answer is a list of a kind, or of the metadata of its objects, which was asked for.
fn is_list_of(types: &TypeMeta, kind: &ApiResource) -> bool {
    (types.kind == METADATA_LIST && types.api_version == METADATA_VERSION)
        || (types.kind == format!("{}List", kind.kind) && types.api_version == kind.api_version)
}

fn is_one_of(types: &TypeMeta, kind: &ApiResource) -> bool {
    (types.kind == METADATA && types.api_version == METADATA_VERSION)
        || (types.kind == kind.kind && types.api_version == kind.api_version)
}

fn named(ApiResource { plural, group, .. }: &ApiResource) -> String {
    if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
}

/// The failure of a request whose answer is not what was asked for.
fn doubtful(what: &str, problem: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what}: {problem}"))
}

/// The failure of a request to the API server, with the class that the exit code follows from. It is never `NotFound`, which would say that
/// the cloud does not have something.
fn failed(what: &str, cause: &Cause) -> Error {
    let kind = match cause {
        Cause::Timeout => ErrorKind::Timeout,
        cause if cause.code() == 401 => ErrorKind::InvalidCredentials,
        cause if cause.is_denied() => ErrorKind::Forbidden,
        cause if cause.code() == 429 => ErrorKind::RateLimited(Some(cause.retry_after())),
        Cause::Api(kube::Error::SerdeError(_)) => ErrorKind::Internal,
        cause if cause.is_servers() || cause.code() >= 500 => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("{what}: {cause}"))
}
