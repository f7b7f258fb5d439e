//! Reads what the checks are made from (IO). Writes nothing.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    evidence::{Seen, Survey},
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
        evidence::{Lease, Unseen},
        observed::words,
        subject::Need,
    },
    object::{NAMESPACE, POD},
    process::lease::LEASE,
    provider::catalog::Catalog,
};

/// How many pods are read at once.
const PAGE: u32 = 250;

/// How many reviews are asked for at the same time.
const AT_ONCE: usize = 8;

/// Reads the pods and leases of these places, namespaces or all of them for an empty one, and these namespaces. What is forbidden is
/// not seen; any other error is one.
pub async fn survey(
    client: &Client,
    catalog: &Catalog,
    places: &BTreeSet<&str>,
    namespaces: &BTreeSet<&str>,
) -> Result<Survey, Error> {
    let mut found = Survey::default();
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
            Ok(Err(Unseen { what: what.to_owned(), why: words(&chain(&source)), command }))
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
    found.retain(Lease::is_managers);
    Ok(found)
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
    let missing = missing.map_err(|source| Error::Read { what: "the rights of the operator".to_owned(), source });
    seen(missing, "rights", format!("kubectl auth can-i --list{account}"))
}
