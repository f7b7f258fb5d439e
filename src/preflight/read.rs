//! Reads the input of the checks (IO). Writes nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    check_input::{CheckInput, Other, Reader, Snapshot},
    inputs,
    permissions::{self, Bound},
    pods::{self, ObservedPod, is_kube_proxy},
    rows,
    screen::PreflightReport,
};
use crate::{
    api::placement::Distribution,
    cluster::{
        access_review,
        read::{self, Error},
        request::{self, Cause, NO_DEADLINE},
    },
    error::chain,
    evidence,
    facts::{ccm::Ccm, cluster::Cluster, version::Minor},
    nodes::{
        evidence::{Lease, ReadResult, Unseen},
        identity::{CcmIdentity, Need},
        node::Node,
        observed::sanitized,
    },
    object::{
        CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, PART_OF_LABEL, POD, SERVICE_ACCOUNT,
        reference::{Reference, SECRET},
    },
    plan::{
        Plan,
        install::NAME,
        kubernetes::{
            conflict::{Running, Standing, as_it_runs},
            sources::{self, Named, Source, SourceState, named},
            validation,
        },
    },
    process::lease::LEASE,
    provider::catalog::Catalog,
};

/// The number of pods in one request.
const PAGE: u32 = 250;

/// The number of concurrent access reviews.
const AT_ONCE: usize = 8;

/// The cluster state that is read before the checked `CloudControllerManager` is known.
pub struct Overview {
    /// Every node.
    pub nodes: ReadResult<Vec<Node>>,
    /// The facts of the cluster that plans depend on.
    pub cluster: Cluster,
    /// Every live `CloudControllerManager`.
    pub ccms: ReadResult<Vec<Value>>,
}

impl Overview {
    /// Reads the nodes, the version and the `CloudControllerManager`s; a forbidden read becomes [`Unseen`].
    pub async fn at(client: &Client) -> anyhow::Result<Self> {
        let nodes = seen(evidence::nodes(client).await, "nodes", "kubectl get nodes".to_owned())?;
        let cluster = cluster(client, nodes.as_deref().ok()).await?;
        Ok(Self { nodes, cluster, ccms: ccms(client).await? })
    }
}

/// Runs the checks for a `CloudControllerManager`. `secret` is checked as if it were already applied.
pub async fn check(
    client: &Client,
    catalog: &Catalog,
    ccm: &Ccm,
    overview: &Overview,
    secret: Option<&Value>,
    operator_namespace: &str,
) -> anyhow::Result<PreflightReport> {
    let Overview { nodes, cluster, ccms: live } = overview;
    let all = live.as_deref().unwrap_or_default();
    let spec = &ccm.spec;
    let provider = catalog.kubernetes_of(&spec.provider).ok();
    let named = provider.map(|provider| named(&provider.descriptor, ccm)).unwrap_or_default();
    let found = found(client, &named, secret).await?;
    let validation =
        validation::validate(catalog, ccm, |reference| found.get(reference).cloned().unwrap_or(SourceState::Absent));
    let Some(provider) = provider else {
        let rows = inputs::rows(&validation, Reader::Caller).into();
        return Ok(PreflightReport::new(&ccm.name, &spec.provider, rows));
    };
    let workload = running(client, catalog, ccm).await?;
    let standing = |ccm: &Ccm, running: Option<&Running>| Standing::of(ccm, running.is_some(), running);
    let own = workload.as_ref().ok().and_then(Option::as_ref);
    let own_standing = standing(ccm, own);
    // An object that does not exist yet will be the youngest.
    let own_age = all.iter().find(|one| one["metadata"]["name"] == ccm.name.as_str()).map(age);
    let mut other_ccms = Vec::new();
    for live in all {
        let Ok(other) = Ccm::of_live(live, *cluster) else { continue };
        if other.name != ccm.name {
            let running = running(client, catalog, &other).await?.ok().flatten();
            other_ccms.push((other, running, age(live)));
        }
    }
    let others = other_ccms.iter().map(|(other, running, age)| {
        let order = standing(other, running.as_ref()).cmp(&own_standing);
        Other {
            ccm: other,
            goes_first: order.then_with(|| own_age.as_ref().map_or(Ordering::Less, |own| age.cmp(own))).is_lt(),
            runs: running.as_ref().filter(|_| own_standing != Standing::Runs).map(|running| as_it_runs(other, running)),
        }
    });
    let snapshot = snapshot(client, catalog, &BTreeSet::from([""]), &BTreeSet::from([spec.namespace.as_str()])).await?;
    let input = CheckInput {
        now: Timestamp::now(),
        by: Reader::Caller,
        catalog,
        ccm,
        provider,
        validation: &validation,
        is_installed: workload.as_ref().map(Option::is_some).map_err(Clone::clone),
        others: live.as_ref().map(|_| others.collect()).map_err(Clone::clone),
        nodes: nodes.as_deref().map_err(Clone::clone),
        snapshot: &snapshot,
        missing_permissions: missing_permissions(client, catalog, ccm, &named, operator_namespace).await?,
        deletion_permission: match CcmIdentity::kubernetes(provider, ccm) {
            Some(identity) => deletion_permission(client, &identity.user()).await?,
            None => Ok(None),
        },
    };
    Ok(PreflightReport::new(&ccm.name, &spec.provider, rows(&input)))
}

/// Reads the facts of the cluster that plans depend on. If reading nodes is forbidden, assumes three control-plane nodes.
pub async fn cluster(client: &Client, nodes: Option<&[Node]>) -> anyhow::Result<Cluster> {
    let control_plane = nodes.unwrap_or_default().iter().filter(|node| node.is_control_plane);
    let control_plane: Vec<_> = control_plane.map(|node| (node.kubelet.clone(), node.distribution)).collect();
    if let Some(cluster) = Cluster::of(&control_plane, None) {
        return Ok(cluster);
    }
    let version = request::send(NO_DEADLINE, client.apiserver_version()).await;
    let version = version.context("failed to ask the API server for its version")?.git_version;
    if nodes.is_none() {
        let minor: Minor = version.parse().ok().context("the version of the API server cannot be read")?;
        return Ok(Cluster { minor, distribution: Distribution::Other, control_plane_nodes: 3 });
    }
    Cluster::of(&control_plane, Some(&version)).context("the version of the API server cannot be read")
}

/// Reads every `CloudControllerManager`; returns none if the API server does not serve the kind yet.
async fn ccms(client: &Client) -> Result<ReadResult<Vec<Value>>, Error> {
    let ccms = evidence::ccms(client).await.map(Option::unwrap_or_default);
    seen(ccms, "CloudControllerManagers", "kubectl get ccm".to_owned())
}

/// Returns a sort key: the time of creation, then the name.
fn age(live: &Value) -> (String, String) {
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("creationTimestamp"), text("name"))
}

/// Reads the ConfigMaps and Secrets that a `CloudControllerManager` names. `secret` replaces the live Secret of the same name.
async fn found(
    client: &Client,
    named: &[Named],
    secret: Option<&Value>,
) -> Result<BTreeMap<Reference, SourceState>, Error> {
    let mut all = BTreeMap::new();
    for (reference, checks) in sources::checks(named.iter()) {
        let Reference { kind, namespace, name } = &reference;
        let is_it = |metadata: &Value| metadata["name"] == name.as_str() && metadata["namespace"] == namespace.as_str();
        let live = match secret.filter(|secret| *kind == &SECRET && is_it(&secret["metadata"])) {
            Some(secret) => Ok(Some(secret.clone())),
            None => seen(read::get(client, kind, namespace, name).await, name, String::new())?,
        };
        let found = match live {
            Ok(Some(live)) => SourceState::Present(Source::of(&live, &reference, &checks)),
            Ok(None) => SourceState::Absent,
            Err(unseen) => SourceState::Unreadable(unseen.why),
        };
        all.insert(reference, found);
    }
    Ok(all)
}

/// Reads the running configuration of a `CloudControllerManager`, if the operator has created its workload.
async fn running(client: &Client, catalog: &Catalog, ccm: &Ccm) -> Result<ReadResult<Option<Running>>, Error> {
    let Ok(provider) = catalog.kubernetes_of(&ccm.spec.provider) else { return Ok(Ok(None)) };
    let namespace = &ccm.spec.namespace;
    let is_ours = |live: &Value| !live["metadata"]["labels"][PART_OF_LABEL].is_null();
    let mut live = Vec::new();
    for workload in provider.workload().map(|(workload, _)| workload).into_iter().chain(provider.node_manager()) {
        let (kind, name) = (workload.kind(), ccm.named(workload.name()));
        let command = format!("kubectl --namespace {namespace} get {} {name}", kind.plural);
        match seen(read::get(client, kind, namespace, &name).await, &name, command)? {
            Ok(found) => live.extend(found.filter(is_ours)),
            Err(unseen) => return Ok(Err(unseen)),
        }
    }
    Ok(Ok(pods::running(live.iter())))
}

/// Returns the permissions that the operator lacks for the objects of a `CloudControllerManager`, and for reading its Secrets.
async fn missing_permissions(
    client: &Client,
    catalog: &Catalog,
    ccm: &Ccm,
    named: &[Named],
    operator_namespace: &str,
) -> Result<ReadResult<Vec<String>>, Error> {
    let unseen = |why: String, command: String| Ok(Err(Unseen { what: "permissions".to_owned(), why, command }));
    if let Ok(None) = seen(read::get(client, &SERVICE_ACCOUNT, operator_namespace, NAME).await, NAME, String::new())? {
        let why = format!("the operator is not installed: there is no ServiceAccount {operator_namespace}/{NAME}");
        let command = format!("install the operator: ccm-operator render install --providers {}", ccm.spec.provider);
        return unseen(why, command);
    }
    let plan = Plan::of_ccm(catalog, ccm);
    let Ok(plan) = plan else { return unseen("another problem comes first".to_owned(), "cure that".to_owned()) };
    let account = format!("system:serviceaccount:{operator_namespace}:{NAME}");
    let secrets = named.iter().map(|one| &one.reference).filter(|reference| reference.kind == &SECRET);
    let mut needs = permissions::needs(plan.objects());
    needs.extend(secrets.flat_map(permissions::to_watch));
    let missing = missing(client, Some(&account), needs).await?;
    Ok(missing.map(|needs| needs.iter().map(Need::words).collect()))
}

/// Reads the pods and leases in `places` (namespaces; an empty name means all), and the Namespace objects in `namespaces`. A forbidden
/// read becomes [`Unseen`]; any other error is returned.
pub async fn snapshot(
    client: &Client,
    catalog: &Catalog,
    places: &BTreeSet<&str>,
    namespaces: &BTreeSet<&str>,
) -> Result<Snapshot, Error> {
    let places_read = places.iter().map(|place| (*place).to_owned()).collect();
    let mut found = Snapshot { places: places_read, ..Snapshot::default() };
    for name in namespaces {
        let read = read::get(client, &NAMESPACE, "", name).await.map(Option::unwrap_or_default);
        let seen = seen(read, &format!("namespace {name}"), format!("kubectl get namespace {name} --show-labels"))?;
        found.namespaces.insert((*name).to_owned(), seen);
    }
    for place in places {
        let flag = if place.is_empty() { "--all-namespaces".to_owned() } else { format!("--namespace {place}") };
        match seen(pods(client, catalog, place).await, "pods", format!("kubectl get pods {flag}"))? {
            Ok((pods, has_kube_proxy)) => {
                found.pods.extend(pods);
                found.has_kube_proxy |= has_kube_proxy;
            }
            Err(unseen) => found.unseen_pods = Some(unseen),
        }
        match seen(leases(client, place).await, "leases", format!("kubectl get leases {flag}"))? {
            Ok(leases) => found.leases.extend(leases),
            Err(unseen) => found.unseen_leases = Some(unseen),
        }
    }
    Ok(found)
}

/// Converts a forbidden read into [`Unseen`]; returns any other error.
pub fn seen<T>(read: Result<T, Error>, what: &str, command: String) -> Result<ReadResult<T>, Error> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(Error::Read { source, .. }) if source.is_denied() => {
            Ok(Err(Unseen { what: what.to_owned(), why: sanitized(&chain(&source)), command }))
        }
        Err(error) => Err(error),
    }
}

/// Returns the relevant pods, and whether a kube-proxy pod exists. Reads in pages, because few pods of a large cluster are relevant.
async fn pods(client: &Client, catalog: &Catalog, namespace: &str) -> Result<(Vec<ObservedPod>, bool), Error> {
    let (mut found, mut has_kube_proxy) = (Vec::new(), false);
    let take = |pod: Value| {
        has_kube_proxy |= is_kube_proxy(&pod);
        found.extend(ObservedPod::of(&pod, catalog));
    };
    read::each(client, &POD, namespace, &ListParams::default().limit(PAGE), take).await?;
    Ok((found, has_kube_proxy))
}

async fn leases(client: &Client, namespace: &str) -> Result<Vec<Lease>, Error> {
    let mut found = Vec::new();
    let take = |lease: Value| found.push(Lease::of(&lease));
    read::each(client, &LEASE, namespace, &ListParams::default().limit(PAGE), take).await?;
    found.retain(Lease::is_ccms);
    Ok(found)
}

/// Returns the missing permissions of the caller.
pub async fn own_missing(client: &Client, needs: &BTreeSet<Need>) -> Result<ReadResult<BTreeSet<Need>>, Error> {
    let namespaces: BTreeSet<_> = needs.iter().map(|need| need.namespace.as_str()).collect();
    let (mut missing, mut is_complete) = (BTreeSet::new(), true);
    for namespace in namespaces {
        let rules = access_review::own_rules(client, namespace).await;
        let rules = rules.map_err(|source| Error::Read { what: "the permissions of the operator".to_owned(), source });
        let (rules, may_be_more) = match seen(rules, "permissions", "kubectl auth can-i --list".to_owned())? {
            Ok(rules) => rules,
            Err(unseen) => return Ok(Err(unseen)),
        };
        is_complete &= !may_be_more;
        let here = needs.iter().filter(|need| need.namespace == namespace);
        missing.extend(here.filter(|need| !rules.iter().any(|rule| need.is_granted_by(rule))).cloned());
    }
    // An authorization webhook may grant more, but does not list permissions.
    if is_complete || missing.is_empty() { Ok(Ok(missing)) } else { self::missing(client, None, missing).await }
}

/// Returns the readable bindings of other managers that allow a ServiceAccount to delete every node, in the format of [`Bound`]; `None` if
/// the account lacks the permission.
pub async fn deletion_permission(client: &Client, user: &str) -> Result<ReadResult<Option<Vec<String>>>, Error> {
    let held = access_review::may_delete_any_node(client, Some(user), NO_DEADLINE).await;
    let held = held.map_err(|source| Error::Read { what: format!("the permissions of {user}"), source });
    let command = format!("kubectl auth can-i delete nodes --as={user}");
    match seen(held, "permissions", command)? {
        Err(unseen) => Ok(Err(unseen)),
        Ok(false) => Ok(Ok(None)),
        Ok(true) => Ok(Ok(Some(bindings(client, user).await.unwrap_or_default()))),
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Reads the bindings that allow a ServiceAccount to delete every node.
async fn bindings(client: &Client, user: &str) -> Result<Vec<String>, Error> {
    // The operator may list all roles, but get only its own.
    let roles = read::list(client, &CLUSTER_ROLE, "", &ListParams::default()).await?;
    let deleters: BTreeSet<_> =
        roles.iter().filter(|role| permissions::lets_delete_any_node(role)).map(name_of).collect();
    let bindings = read::list(client, &CLUSTER_ROLE_BINDING, "", &ListParams::default()).await?;
    let is_of_deleter = |binding: &&Value| deleters.contains(binding["roleRef"]["name"].as_str().unwrap_or_default());
    let groups = access_review::groups(user);
    let theirs = bindings.iter().filter(is_of_deleter).filter_map(|binding| Bound::of(binding, user, &groups));
    Ok(theirs.map(|bound| bound.to_string()).collect())
}

/// Returns the missing permissions of an account; of the caller if `account` is `None`.
pub async fn missing(
    client: &Client,
    account: Option<&str>,
    needs: BTreeSet<Need>,
) -> Result<ReadResult<BTreeSet<Need>>, Error> {
    let reviews = stream::iter(needs).map(async |need| {
        let is_held = access_review::may(client, account, need.attributes(), NO_DEADLINE).await?;
        Ok((!is_held).then_some(need))
    });
    let missing: Result<Vec<_>, Cause> = reviews.buffered(AT_ONCE).try_collect().await;
    let account = account.map_or_else(String::new, |account| format!(" --as={account}"));
    let missing = missing.map(|all| all.into_iter().flatten().collect());
    let missing = missing.map_err(|source| Error::Read { what: "the permissions of the operator".to_owned(), source });
    seen(missing, "permissions", format!("kubectl auth can-i --list{account}"))
}
