//! Reads the input of the checks (IO). Writes nothing.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    evidence::Snapshot,
    permissions::{self, Bound},
    pods::{Pod, is_kube_proxy},
};
use crate::{
    cluster::{
        access,
        read::{self, Error},
        request::{Cause, NO_DEADLINE},
    },
    error::chain,
    nodes::{
        evidence::{Lease, Seen, Unseen},
        identity::Need,
        observed::sanitized,
    },
    object::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, POD},
    process::lease::LEASE,
    provider::catalog::Catalog,
};

/// How many pods are read at once.
const PAGE: u32 = 250;

/// How many reviews are asked for at the same time.
const AT_ONCE: usize = 8;

/// Reads the pods and leases of these places, namespaces or all of them for an empty one, and these namespaces. What is forbidden is
/// not seen; any other error is one.
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

/// What was read; what is forbidden is not seen.
pub fn seen<T>(read: Result<T, Error>, what: &str, command: String) -> Result<Seen<T>, Error> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(Error::Read { source, .. }) if source.is_denied() => {
            Ok(Err(Unseen { what: what.to_owned(), why: sanitized(&chain(&source)), command }))
        }
        Err(error) => Err(error),
    }
}

/// The pods that matter, and whether there is one of kube-proxy. A page at a time: of a large cluster few pods matter.
async fn pods(client: &Client, catalog: &Catalog, namespace: &str) -> Result<(Vec<Pod>, bool), Error> {
    let (mut found, mut has_kube_proxy) = (Vec::new(), false);
    let take = |pod: Value| {
        has_kube_proxy |= is_kube_proxy(&pod);
        found.extend(Pod::of(&pod, catalog));
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

/// The needs that the caller lacks.
pub async fn own_missing(client: &Client, needs: &BTreeSet<Need>) -> Result<Seen<BTreeSet<Need>>, Error> {
    let namespaces: BTreeSet<_> = needs.iter().map(|need| need.namespace.as_str()).collect();
    let (mut missing, mut is_complete) = (BTreeSet::new(), true);
    for namespace in namespaces {
        let rules = access::own_rules(client, namespace).await;
        let rules = rules.map_err(|source| Error::Read { what: "the permissions of the operator".to_owned(), source });
        let (rules, may_be_more) = match seen(rules, "permissions", "kubectl auth can-i --list".to_owned())? {
            Ok(rules) => rules,
            Err(unseen) => return Ok(Err(unseen)),
        };
        is_complete &= !may_be_more;
        let here = needs.iter().filter(|need| need.namespace == namespace);
        missing.extend(here.filter(|need| !rules.iter().any(|rule| need.is_granted_by(rule))).cloned());
    }
    // A webhook may grant more, and lists nothing.
    if is_complete || missing.is_empty() { Ok(Ok(missing)) } else { self::missing(client, None, missing).await }
}

/// The bindings by which others let a ServiceAccount delete every node, each as [`Bound`] writes it, as far as they may be read; `None`
/// if it may not.
pub async fn deletion_permission(client: &Client, user: &str) -> Result<Seen<Option<Vec<String>>>, Error> {
    let held = access::may_delete_any_node(client, user, NO_DEADLINE).await;
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

/// The bindings that let a ServiceAccount delete every node.
async fn bindings(client: &Client, user: &str) -> Result<Vec<String>, Error> {
    // The operator may list roles, and get only its own.
    let roles = read::list(client, &CLUSTER_ROLE, "", &ListParams::default()).await?;
    let deleters: BTreeSet<_> =
        roles.iter().filter(|role| permissions::lets_delete_any_node(role)).map(name_of).collect();
    let bindings = read::list(client, &CLUSTER_ROLE_BINDING, "", &ListParams::default()).await?;
    let is_of_deleter = |binding: &&Value| deleters.contains(binding["roleRef"]["name"].as_str().unwrap_or_default());
    let groups = access::groups(user);
    let theirs = bindings.iter().filter(is_of_deleter).filter_map(|binding| Bound::of(binding, user, &groups));
    Ok(theirs.map(|bound| bound.to_string()).collect())
}

/// The needs that an account lacks, or that the caller lacks for `None`.
pub async fn missing(
    client: &Client,
    account: Option<&str>,
    needs: BTreeSet<Need>,
) -> Result<Seen<BTreeSet<Need>>, Error> {
    let reviews = stream::iter(needs).map(async |need| {
        let is_held = access::may(client, account, need.attributes(), NO_DEADLINE).await?;
        Ok((!is_held).then_some(need))
    });
    let missing: Result<Vec<_>, Cause> = reviews.buffered(AT_ONCE).try_collect().await;
    let account = account.map_or_else(String::new, |account| format!(" --as={account}"));
    let missing = missing.map(|all| all.into_iter().flatten().collect());
    let missing = missing.map_err(|source| Error::Read { what: "the permissions of the operator".to_owned(), source });
    seen(missing, "permissions", format!("kubectl auth can-i --list{account}"))
}
