//! Reads the evidence of a diagnosis from a cluster (IO), with the caller's permissions. Writes nothing.
//!
//! Everything that cannot be read is listed with the command that would show it, and the rest is read all the same.
//! Only without nodes there is nothing to explain.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, placement::Distribution, status::Deleted},
    cluster::{
        access,
        read::{self, Error},
        request::{self, NO_DEADLINE},
    },
    error::chain,
    facts::{DEFAULT_NAMESPACE, DOCUMENTS, Documents, Settings, ccm, cluster::Cluster, version::Minor},
    nodes::{
        evidence::{Ccm, Evidence, Lease, NodeEvent, Pod, Seen, Unseen},
        identity::{CcmIdentity, Need},
        log,
        node::Node,
        observed,
    },
    object::{EVENT, Kind, NODE, POD},
    process::lease::LEASE,
    provider::catalog::Catalog,
};

/// The namespace in which most cloud-controller-managers are.
const KUBE_SYSTEM: &str = "kube-system";

/// The namespace of Events about objects without one.
const EVENTS_OF_NODES: &str = "default";

/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// Everything that may be seen of a cluster; with the name of a node also what costs more to ask, and is asked otherwise only
/// while a node is not initialized or not ready.
pub async fn evidence(client: &Client, catalog: &Catalog, node: Option<&str>) -> Result<Evidence, Error> {
    let mut evidence = Evidence { now: Timestamp::now(), nodes: nodes(client).await?, ..Evidence::default() };
    let identities = match identities(client, catalog).await {
        Ok(asked) => {
            (evidence.unseen, evidence.deleted) = (asked.unseen, asked.deleted);
            evidence.has_infrastructure = asked.has_infrastructure;
            asked.identities
        }
        Err(error) => {
            evidence.unseen.push(unseen("the CloudControllerManagers", &error, "kubectl get ccm".to_owned()));
            Vec::new()
        }
    };
    evidence.may_have_more_ccms = !evidence.unseen.is_empty();
    let namespaces: BTreeSet<&str> = identities.iter().map(|one| one.namespace.as_str()).chain([KUBE_SYSTEM]).collect();
    evidence.leases = noted(leases(client, &namespaces).await, &mut evidence.unseen);
    let is_thorough = node.is_some() || evidence.nodes.iter().any(|one| one.is_uninitialized() || !one.is_ready());
    for identity in &identities {
        let lease = evidence.leases.iter().flatten().find(|lease| lease.is_of(identity));
        let (ccm, unseen) = ccm(client, identity, lease, is_thorough).await;
        evidence.ccms.push(ccm);
        evidence.unseen.extend(unseen);
    }
    evidence.events = noted(events(client, node).await, &mut evidence.unseen);
    let own = evidence.ccms.iter().filter_map(|ccm| ccm.pods.as_ref()).flatten();
    let own: Vec<_> = own.map(|pod| (pod.namespace.clone(), pod.name.clone())).collect();
    let others = noted(ccm_pods(client, KUBE_SYSTEM).await, &mut evidence.unseen);
    let is_own = |pod: &Pod| own.contains(&(pod.namespace.clone(), pod.name.clone()));
    evidence.other_pods = others.map(|others| others.into_iter().filter(|pod| !is_own(pod)).collect());
    Ok(evidence)
}

fn unseen(what: impl Into<String>, error: &(dyn std::error::Error + 'static), command: String) -> Unseen {
    Unseen { what: what.into(), why: observed::sanitized(&chain(error)), command }
}

/// What was read, whatever keeps the rest from being read.
fn seen<T>(read: Result<T, Error>, what: impl Into<String>, command: String) -> Seen<T> {
    read.map_err(|error| unseen(what, &error, command))
}

/// What was seen; why not is noted.
pub fn noted<T>(seen: Seen<T>, unseen: &mut Vec<Unseen>) -> Option<T> {
    seen.map_err(|why| unseen.push(why)).ok()
}

/// Every node.
pub async fn nodes(client: &Client) -> Result<Vec<Node>, Error> {
    let mut nodes = Vec::new();
    read::each(client, &NODE, "", &ListParams::default().limit(PAGE), |node| nodes.push(Node::of(&node))).await?;
    Ok(nodes)
}

/// Events about nodes, or about one.
async fn events(client: &Client, node: Option<&str>) -> Seen<Vec<NodeEvent>> {
    let of_one = node.map(|name| format!(",involvedObject.name={name}")).unwrap_or_default();
    let selector = format!("involvedObject.kind=Node{of_one}");
    let params = ListParams::default().limit(PAGE).fields(&selector);
    let mut events = Vec::new();
    let read = read::each(client, &EVENT, EVENTS_OF_NODES, &params, |event| events.push(NodeEvent::of(&event))).await;
    let command = format!("kubectl get events -n {EVENTS_OF_NODES} --field-selector {selector}");
    seen(read.map(|()| events), "Events about nodes", command)
}

/// The leases of cloud-controller-managers in these namespaces, all or none.
pub async fn leases(client: &Client, namespaces: &BTreeSet<&str>) -> Seen<Vec<Lease>> {
    let mut leases = Vec::new();
    for namespace in namespaces {
        let take = |lease: Value| leases.push(Lease::of(&lease));
        let read = read::each(client, &LEASE, namespace, &ListParams::default().limit(PAGE), take).await;
        seen(read, format!("the leases in namespace {namespace}"), format!("kubectl get leases -n {namespace}"))?;
    }
    leases.retain(Lease::is_ccms);
    Ok(leases)
}

/// The pods of a namespace that run a cloud-controller-manager, whoever made them.
async fn ccm_pods(client: &Client, namespace: &str) -> Seen<Vec<Pod>> {
    let mut pods = Vec::new();
    let take = |pod: Value| pods.extend(observed::is_ccm(&pod).then(|| Pod::of(&pod)));
    let read = read::each(client, &POD, namespace, &ListParams::default().limit(PAGE), take).await;
    let what = format!("pods of other cloud-controller-managers in namespace {namespace}");
    seen(read.map(|()| pods), what, format!("kubectl get pods -n {namespace}"))
}

/// The cloud-controller-managers that the operator has, or should have, installed.
#[derive(Default)]
struct Asked {
    /// Those that are asked for, or on OpenShift that of the platform.
    identities: Vec<CcmIdentity>,
    /// What their statuses list as deleted, each with the name of the `CloudControllerManager`.
    deleted: Vec<(String, Deleted)>,
    /// Those that cannot be told.
    unseen: Vec<Unseen>,
    /// Whether the platform of the cluster is what asks.
    has_infrastructure: bool,
}

/// The cloud-controller-managers that the operator has, or should have, installed.
async fn identities(client: &Client, catalog: &Catalog) -> Result<Asked, Error> {
    match read::list(client, &CLOUD_CONTROLLER_MANAGER, "", &ListParams::default()).await {
        Ok(ccms) if !ccms.is_empty() => {
            let mut asked = Asked::default();
            for live in &ccms {
                let name = observed::sanitized(live["metadata"]["name"].as_str().unwrap_or_default());
                asked.deleted.extend(deleted(live).map(|one| (name.clone(), one)));
                match asked_for(live, catalog) {
                    Ok(identity) => asked.identities.push(identity),
                    Err(why) => {
                        let command = format!("kubectl get ccm {name} -o yaml");
                        asked.unseen.push(Unseen { what: format!("the CloudControllerManager {name}"), why, command });
                    }
                }
            }
            Ok(asked)
        }
        Err(Error::Read { source, .. }) if source.is_absent() => on_openshift(client, catalog).await,
        // On OpenShift the kind need not be there; who has no permission to list it is denied it all the same.
        Ok(_) => Ok(on_openshift(client, catalog).await.unwrap_or_default()),
        Err(error @ Error::Read { .. }) => match on_openshift(client, catalog).await {
            Ok(asked) if !asked.identities.is_empty() => Ok(asked),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// The nodes that the status of a `CloudControllerManager` lists as deleted.
fn deleted(live: &Value) -> impl Iterator<Item = Deleted> {
    let all: Vec<Deleted> =
        serde_json::from_value(live["status"]["nodeDeletion"]["deleted"].clone()).unwrap_or_default();
    all.into_iter().map(|Deleted { node, uid, at }| Deleted {
        node: observed::sanitized(&node),
        uid: observed::sanitized(&uid),
        at: observed::sanitized(&at),
    })
}

/// That of a live `CloudControllerManager`, or why it cannot be told.
fn asked_for(live: &Value, catalog: &Catalog) -> Result<CcmIdentity, String> {
    // Nothing that depends on the cluster is asked of it.
    let cluster = Cluster { minor: Minor(0), distribution: Distribution::Other, control_plane_nodes: 0 };
    let ccm = ccm::Ccm::of_live(live, cluster).map_err(|error| observed::sanitized(&error.to_string()))?;
    let provider = catalog.kubernetes_of(&ccm.spec.provider).map_err(|why| observed::sanitized(&why))?;
    CcmIdentity::kubernetes(provider, &ccm).ok_or_else(|| "its provider has no workload".to_owned())
}

/// The cloud-controller-manager of an OpenShift cluster; none on other clusters.
async fn on_openshift(client: &Client, catalog: &Catalog) -> Result<Asked, Error> {
    let infrastructures = DOCUMENTS.iter().filter(|document| document.kind.kind == "Infrastructure");
    for document in infrastructures {
        let live = match read::get(client, &document.kind, "", document.name).await {
            Err(Error::NotServed(_)) => None,
            live => live?,
        };
        let Some(live) = live else { continue };
        let mut documents = Documents::default();
        let what = || request::describe_objects(&document.kind, "", document.name);
        documents.take(document, Some(&live)).map_err(|source| Error::Parse { what: what(), source })?;
        let facts = documents.facts(&Settings::default());
        let provider = catalog.provider(&facts);
        let identity = provider.and_then(|provider| CcmIdentity::openshift(provider, &live, DEFAULT_NAMESPACE));
        return Ok(Asked { identities: identity.into_iter().collect(), has_infrastructure: true, ..Asked::default() });
    }
    Ok(Asked::default())
}

/// What is to be seen of a cloud-controller-manager; with `is_thorough` its permissions and the log of the pod that holds its lease,
/// too.
pub async fn ccm(
    client: &Client,
    identity: &CcmIdentity,
    lease: Option<&Lease>,
    is_thorough: bool,
) -> (Ccm, Vec<Unseen>) {
    let namespace = identity.namespace.as_str();
    let mut unseen = Vec::new();
    let kind = Kind::named(&identity.kind);
    let installed = match kind {
        Some(kind) => noted(installed(client, kind, identity).await, &mut unseen),
        None => None,
    };
    let mut ccm = Ccm {
        identity: identity.clone(),
        is_installed: installed.as_ref().map(Option::is_some),
        installed: installed.flatten().unwrap_or_default(),
        ..Ccm::default()
    };
    ccm.pods = noted(pods(client, namespace, &identity.selector, "its pods").await, &mut unseen);
    if let Some(selector) = &identity.node_manager {
        let pods = pods(client, namespace, selector, "the pods of its node manager").await;
        // Without them, none is known to be wrong.
        ccm.node_manager = noted(pods, &mut unseen);
    }
    let is_well = |pods: &Vec<Pod>| !pods.is_empty() && pods.iter().all(|pod| pod.is_ready);
    if !ccm.pods.as_ref().is_some_and(is_well) {
        ccm.pod_events = noted(pod_events(client, identity).await, &mut unseen).unwrap_or_default();
    }
    if is_thorough {
        ccm.missing_permissions = noted(missing_permissions(client, identity).await, &mut unseen);
        let log = log::read::log(client, identity, ccm.pods.as_deref(), lease).await;
        ccm.log = noted(log, &mut unseen).flatten();
    }
    (ccm, unseen)
}

/// When its workload was created, if it exists.
async fn installed(client: &Client, kind: &Kind, identity: &CcmIdentity) -> Seen<Option<String>> {
    let CcmIdentity { workload, namespace, .. } = identity;
    let created = |live: Value| live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    let read = read::get(client, kind, namespace, workload).await.map(|live| live.map(created));
    seen(
        read,
        format!("{} {namespace}/{workload}", kind.kind),
        format!("kubectl get {} -n {namespace} {workload}", kind.plural),
    )
}

async fn pods(client: &Client, namespace: &str, selector: &str, what: &str) -> Seen<Vec<Pod>> {
    let mut pods = Vec::new();
    let params = ListParams::default().limit(PAGE).labels(selector);
    let read = read::each(client, &POD, namespace, &params, |pod| pods.push(Pod::of(&pod))).await;
    let command = format!("kubectl get pods -n {namespace} -l {selector} -o wide");
    seen(read.map(|()| pods), format!("{what} ({selector} in namespace {namespace})"), command)
}

/// What the controllers of workloads and the kubelets complain about.
async fn pod_events(client: &Client, identity: &CcmIdentity) -> Seen<Vec<String>> {
    let CcmIdentity { namespace, workload, .. } = identity;
    let mut events = Vec::new();
    // The names of its ReplicaSets and pods begin with its own.
    let take = |event: Value| {
        if event["involvedObject"]["name"].as_str().is_some_and(|name| name.starts_with(workload.as_str())) {
            events.push(NodeEvent::of(&event));
        }
    };
    let params = ListParams::default().limit(PAGE).fields("type=Warning");
    let read = read::each(client, &EVENT, namespace, &params, take).await;
    let command = format!("kubectl get events -n {namespace} --field-selector type=Warning");
    let mut events = seen(read.map(|()| events), format!("Events about {workload}"), command)?;
    events.sort_by_key(|event| event.last);
    Ok(events.iter().map(|event| format!("{}: {}", event.reason, event.message)).collect())
}

/// The permissions that it needs and does not have.
async fn missing_permissions(client: &Client, identity: &CcmIdentity) -> Seen<Vec<String>> {
    let user = identity.user();
    let may = |need: &Need| access::may(client, Some(&user), need.attributes(), NO_DEADLINE);
    let reviews = futures::future::join_all(identity.needs.iter().map(may)).await;
    let mut missing = Vec::new();
    for (need, may) in identity.needs.iter().zip(reviews) {
        match may {
            Ok(true) => {}
            Ok(false) => missing.push(need.words()),
            Err(cause) => {
                let namespace =
                    if need.namespace.is_empty() { String::new() } else { format!(" -n {}", need.namespace) };
                let resource = need.resource.replacen('/', " --subresource=", 1);
                let command = format!("kubectl auth can-i {} {resource}{namespace} --as={user}", need.verb);
                return Err(unseen(format!("the permissions of {user}"), &cause, command));
            }
        }
    }
    Ok(missing)
}
