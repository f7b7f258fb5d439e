//! Reads the evidence for a diagnosis from a cluster (IO), with the user's permissions. Writes nothing.
//!
//! An unreadable source is listed with the command that would show it, and the other sources are still read. Only a
//! failed read of the nodes is an error, because then there is nothing to explain.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, placement::Distribution, status::Deleted},
    cluster::{
        access_review,
        read::{self, Error},
        request::{self, NO_DEADLINE},
    },
    error::chain,
    facts::{DEFAULT_NAMESPACE, Documents, PLATFORM_DOCUMENT, Settings, ccm, cluster::Cluster, version::Minor},
    nodes::{
        evidence::{CcmEvidence, Evidence, Lease, NodeEvent, Pod, ReadResult, Unseen},
        identity::{CcmIdentity, Need},
        node::Node,
        observed,
    },
    object::{self, EVENT, KUBE_SYSTEM, Kind, NODE, POD},
    process::lease::LEASE,
    provider::catalog::Catalog,
};

pub mod log;

/// The namespace of Events about cluster-scoped objects.
const EVENTS_OF_NODES: &str = "default";

/// The number of objects per request.
const PAGE: u32 = 500;

/// Reads the evidence from a cluster. Logs and permissions cost more, and are read only if a node is named, or if a node
/// is not initialized or not ready.
pub async fn read(client: &Client, catalog: &Catalog, node: Option<&str>) -> Result<Evidence, Error> {
    let mut evidence = Evidence { now: Timestamp::now(), nodes: nodes(client).await?, ..Evidence::default() };
    let identities = identities(client, catalog, &mut evidence).await;
    let identities = read_or_unseen(identities, "the CloudControllerManagers", "kubectl get ccm".to_owned());
    let identities = value_or_note(identities, &mut evidence.unseen).unwrap_or_default();
    evidence.may_have_more_ccms = !evidence.unseen.is_empty();
    let is_thorough = node.is_some() || evidence.nodes.iter().any(|one| one.is_uninitialized() || !one.is_ready());
    add_ccms(client, (&identities, Some(KUBE_SYSTEM)), is_thorough, &mut evidence).await;
    evidence.events = value_or_note(events(client, node).await, &mut evidence.unseen);
    let own: Vec<_> = evidence.ccms.iter().flat_map(|ccm| &ccm.pods).flatten().map(Pod::key).collect();
    let others = value_or_note(ccm_pods(client, KUBE_SYSTEM).await, &mut evidence.unseen);
    evidence.other_pods = others.map(|others| others.into_iter().filter(|pod| !own.contains(&pod.key())).collect());
    Ok(evidence)
}

fn unseen(what: impl Into<String>, error: &(dyn std::error::Error + 'static), command: String) -> Unseen {
    Unseen { what: what.into(), why: observed::sanitized(&chain(error)), command }
}

/// Turns a read error into [`Unseen`], so that the other sources can be read.
fn read_or_unseen<T>(read: Result<T, Error>, what: impl Into<String>, command: String) -> ReadResult<T> {
    read.map_err(|error| unseen(what, &error, command))
}

/// Returns the value, or adds the reason for its absence to `unseen`.
fn value_or_note<T>(seen: ReadResult<T>, unseen: &mut Vec<Unseen>) -> Option<T> {
    seen.map_err(|why| unseen.push(why)).ok()
}

/// Reads all objects of a kind in a namespace page by page, and keeps the results of `of`.
async fn all<T>(
    client: &Client,
    (kind, namespace): (&Kind, &str),
    params: ListParams,
    of: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let mut found = Vec::new();
    read::each(client, kind, namespace, &params.limit(PAGE), |live| found.extend(of(&live))).await?;
    Ok(found)
}

/// Reads every node.
pub async fn nodes(client: &Client) -> Result<Vec<Node>, Error> {
    all(client, (&NODE, ""), ListParams::default(), |live| Some(Node::of(live))).await
}

/// Reads the Events about all nodes, or about one node.
async fn events(client: &Client, node: Option<&str>) -> ReadResult<Vec<NodeEvent>> {
    let of_node = node.map(|name| format!(",involvedObject.name={name}")).unwrap_or_default();
    let selector = format!("involvedObject.kind=Node{of_node}");
    let params = ListParams::default().fields(&selector);
    let events = all(client, (&EVENT, EVENTS_OF_NODES), params, |live| Some(NodeEvent::of(live))).await;
    let command = format!("kubectl get events -n {EVENTS_OF_NODES} --field-selector {selector}");
    read_or_unseen(events, "Events about nodes", command)
}

/// Reads the leases of cloud-controller-managers in these namespaces. Fails if one namespace cannot be read.
async fn leases(client: &Client, namespaces: BTreeSet<&str>) -> ReadResult<Vec<Lease>> {
    let mut leases = Vec::new();
    for namespace in namespaces {
        let read = all(client, (&LEASE, namespace), ListParams::default(), |live| Some(Lease::of(live))).await;
        let what = format!("the leases in namespace {namespace}");
        leases.extend(read_or_unseen(read, what, format!("kubectl get leases -n {namespace}"))?);
    }
    leases.retain(Lease::is_ccms);
    Ok(leases)
}

/// Reads the cloud-controller-manager pods of a namespace, whether the operator installed them or not.
async fn ccm_pods(client: &Client, namespace: &str) -> ReadResult<Vec<Pod>> {
    let of = |live: &Value| observed::is_ccm(live).then(|| Pod::of(live));
    let pods = all(client, (&POD, namespace), ListParams::default(), of).await;
    let what = format!("pods of other cloud-controller-managers in namespace {namespace}");
    read_or_unseen(pods, what, format!("kubectl get pods -n {namespace}"))
}

/// Returns the cloud-controller-managers that the operator has or should have installed, according to the platform on OpenShift and
/// to the `CloudControllerManager`s elsewhere. Also records those that cannot be identified, and the deleted nodes in the statuses.
async fn identities(client: &Client, catalog: &Catalog, evidence: &mut Evidence) -> Result<Vec<CcmIdentity>, Error> {
    // On OpenShift the operator ignores every `CloudControllerManager` as well.
    let openshift = on_openshift(client, catalog).await;
    if let Ok(Some(identities)) = openshift {
        evidence.has_infrastructure = true;
        return Ok(identities);
    }
    match ccms(client).await? {
        // If the kind is served, an unreadable Infrastructure does not matter.
        Some(ccms) => {
            evidence.deleted = ccms.iter().flat_map(deleted).collect();
            evidence.not_ready = ccms.iter().filter_map(not_ready).collect();
            let asked_for = ccms.iter().map(|live| asked_for(live, catalog));
            Ok(asked_for.filter_map(|read| value_or_note(read, &mut evidence.unseen)).collect())
        }
        None => openshift.map(|_| Vec::new()),
    }
}

/// Reads every `CloudControllerManager`; `None` if the API server does not serve the kind.
pub async fn ccms(client: &Client) -> Result<Option<Vec<Value>>, Error> {
    match read::list(client, &CLOUD_CONTROLLER_MANAGER, "", &ListParams::default()).await {
        Err(Error::Read { source, .. }) if source.is_absent() => Ok(None),
        listed => listed.map(Some),
    }
}

fn name_of(live: &Value) -> String {
    observed::sanitized(live["metadata"]["name"].as_str().unwrap_or_default())
}

/// Returns the name and the message of a `CloudControllerManager` that is not ready.
fn not_ready(live: &Value) -> Option<(String, String)> {
    let ready = object::condition(live, "Ready");
    let message = ready["message"].as_str().filter(|_| ready["status"] == "False")?;
    Some((name_of(live), observed::sanitized(message)))
}

/// Returns the deleted nodes in the status of a `CloudControllerManager`, each with the name of the `CloudControllerManager`.
fn deleted(live: &Value) -> impl Iterator<Item = (String, Deleted)> {
    let (name, deleted) = (name_of(live), live["status"]["nodeDeletion"]["deleted"].clone());
    let all: Vec<Deleted> = serde_json::from_value(deleted).unwrap_or_default();
    all.into_iter().map(move |Deleted { node, uid, at }| {
        let [node, uid, at] = [node, uid, at].map(|text| observed::sanitized(&text));
        (name.clone(), Deleted { node, uid, at })
    })
}

/// Returns the identity of a live `CloudControllerManager`, or the reason why it is unknown.
fn asked_for(live: &Value, catalog: &Catalog) -> ReadResult<CcmIdentity> {
    // The identity does not depend on the cluster.
    let cluster = Cluster { minor: Minor(0), distribution: Distribution::Other, control_plane_nodes: 0 };
    let identity = ccm::Ccm::of_live(live, cluster).map_err(|error| error.to_string()).and_then(|ccm| {
        let provider = catalog.kubernetes_of(&ccm.spec.provider)?;
        CcmIdentity::kubernetes(provider, &ccm).ok_or_else(|| "its provider has no workload".to_owned())
    });
    identity.map_err(|why| {
        let (name, why) = (name_of(live), observed::sanitized(&why));
        let command = format!("kubectl get ccm {name} -o yaml");
        Unseen { what: format!("the CloudControllerManager {name}"), why, command }
    })
}

/// Returns the cloud-controller-manager of an OpenShift cluster, or none if its platform has none; `None` if this is not OpenShift.
async fn on_openshift(client: &Client, catalog: &Catalog) -> Result<Option<Vec<CcmIdentity>>, Error> {
    let document = &PLATFORM_DOCUMENT;
    let live = match read::get(client, &document.kind, "", document.name).await {
        Err(Error::NotServed(_)) => None,
        live => live?,
    };
    let Some(live) = live else { return Ok(None) };
    let mut documents = Documents::default();
    let what = || request::describe_objects(&document.kind, "", document.name);
    documents.take(document, Some(&live)).map_err(|source| Error::Parse { what: what(), source })?;
    let provider = catalog.provider(&documents.facts(&Settings::default()));
    let identity = provider.and_then(|one| CcmIdentity::openshift(one, &live, DEFAULT_NAMESPACE));
    Ok(Some(identity.into_iter().collect()))
}

/// Adds the evidence about cloud-controller-managers, and the leases in their namespaces and in `more`; if `is_thorough`,
/// also their missing permissions and the logs of the pods that hold their leases.
pub async fn add_ccms(
    client: &Client,
    (identities, more): (&[CcmIdentity], Option<&str>),
    is_thorough: bool,
    evidence: &mut Evidence,
) {
    let namespaces = identities.iter().map(|one| one.namespace.as_str()).chain(more).collect();
    evidence.leases = value_or_note(leases(client, namespaces).await, &mut evidence.unseen);
    for identity in identities {
        let mut ccm = ccm(client, identity, &mut evidence.unseen).await;
        if is_thorough {
            let lease = evidence.leases.iter().flatten().find(|lease| lease.is_of(identity));
            ccm.missing_permissions = value_or_note(missing_permissions(client, identity).await, &mut evidence.unseen);
            let log = log::read(client, identity, ccm.pods.as_deref(), lease).await;
            ccm.log = value_or_note(log, &mut evidence.unseen).flatten();
        }
        evidence.ccms.push(ccm);
    }
}

async fn ccm(client: &Client, identity: &CcmIdentity, unseen: &mut Vec<Unseen>) -> CcmEvidence {
    let namespace = identity.namespace.as_str();
    let installed = match identity.kind {
        Some(kind) => value_or_note(installed(client, kind, identity).await, unseen),
        None => None,
    };
    let mut ccm = CcmEvidence {
        identity: identity.clone(),
        is_installed: installed.as_ref().map(Option::is_some),
        installed: installed.flatten().unwrap_or_default(),
        ..CcmEvidence::default()
    };
    ccm.pods = value_or_note(pods(client, namespace, &identity.selector, "its pods").await, unseen);
    if let Some(selector) = &identity.node_manager {
        let pods = pods(client, namespace, selector, "the pods of its node manager").await;
        // Without the pods, no problem with the node manager is known.
        ccm.node_manager = value_or_note(pods, unseen);
    }
    let is_well = |pods: &Vec<Pod>| !pods.is_empty() && pods.iter().all(|pod| pod.is_ready);
    if !ccm.pods.as_ref().is_some_and(is_well) {
        ccm.pod_events = value_or_note(pod_events(client, identity).await, unseen).unwrap_or_default();
    }
    ccm
}

/// Returns the creation time of the workload, if it exists.
async fn installed(client: &Client, kind: &Kind, identity: &CcmIdentity) -> ReadResult<Option<String>> {
    let CcmIdentity { workload, namespace, .. } = identity;
    let created = |live: Value| live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    let read = read::get(client, kind, namespace, workload).await.map(|live| live.map(created));
    read_or_unseen(
        read,
        format!("{} {namespace}/{workload}", kind.kind),
        format!("kubectl get {} -n {namespace} {workload}", kind.plural),
    )
}

async fn pods(client: &Client, namespace: &str, selector: &str, what: &str) -> ReadResult<Vec<Pod>> {
    let params = ListParams::default().labels(selector);
    let pods = all(client, (&POD, namespace), params, |live| Some(Pod::of(live))).await;
    let command = format!("kubectl get pods -n {namespace} -l {selector} -o wide");
    read_or_unseen(pods, format!("{what} ({selector} in namespace {namespace})"), command)
}

/// Reads the warnings from the workload controllers and the kubelets.
async fn pod_events(client: &Client, identity: &CcmIdentity) -> ReadResult<Vec<String>> {
    let CcmIdentity { namespace, workload, .. } = identity;
    // The names of a workload's ReplicaSets and pods begin with its name.
    let is_about = |event: &Value| {
        event["involvedObject"]["name"].as_str().is_some_and(|name| name.starts_with(workload.as_str()))
    };
    let of = |event: &Value| is_about(event).then(|| NodeEvent::of(event));
    let events = all(client, (&EVENT, namespace), ListParams::default().fields("type=Warning"), of).await;
    let command = format!("kubectl get events -n {namespace} --field-selector type=Warning");
    let mut events = read_or_unseen(events, format!("Events about {workload}"), command)?;
    events.sort_by_key(|event| event.last);
    Ok(events.iter().map(|event| format!("{}: {}", event.reason, event.message)).collect())
}

/// Returns the permissions that the cloud-controller-manager needs but lacks.
async fn missing_permissions(client: &Client, identity: &CcmIdentity) -> ReadResult<Vec<String>> {
    let user = identity.user();
    let review = async |need: &Need| {
        let may = access_review::may(client, Some(&user), need.attributes(), NO_DEADLINE).await;
        may.map(|may| (!may).then(|| need.words())).map_err(|cause| {
            let namespace = if need.namespace.is_empty() { String::new() } else { format!(" -n {}", need.namespace) };
            let resource = need.resource.replacen('/', " --subresource=", 1);
            let command = format!("kubectl auth can-i {} {resource}{namespace} --as={user}", need.verb);
            unseen(format!("the permissions of {user}"), &cause, command)
        })
    };
    let reviews = futures::future::join_all(identity.needs.iter().map(review)).await;
    let missing: Vec<_> = reviews.into_iter().collect::<Result<_, _>>()?;
    Ok(missing.into_iter().flatten().collect())
}
