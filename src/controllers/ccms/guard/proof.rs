//! The inputs of a decision that no watch shows (IO): the permissions of the ServiceAccount, and the leading pod.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use tracing::debug;

use super::{Known, guard_of, phase, status};
use crate::{
    api::spec::Lifecycle,
    cluster::{
        access_review,
        read::Error,
        request::{self, NO_DEADLINE, REQUEST_TIMEOUT, describe_objects},
    },
    controllers::{Pass, ccms::Member, observer::Observer, view::View},
    error::chain,
    nodes::{guard::leader, identity::CcmIdentity},
    object::{Kind, POD},
    plan::kubernetes::guard::{Guard, granted},
    process::lease::LEASE,
    provider::owns,
    status::ccm,
};

/// The lifetime of an answer of the API server while nodes are about to be deleted.
const ANSWER_LIFETIME: Duration = Duration::from_secs(60);

fn is_old(asked: Option<Instant>) -> bool {
    asked.is_none_or(|asked| asked.elapsed() >= ANSWER_LIFETIME)
}

impl Member {
    /// Asks the API server if necessary, and decides again with its answers. Returns whether it has asked.
    pub(super) async fn prove(&mut self, view: &View, known: &Known<'_>, pass: &mut Pass) -> bool {
        let Some(ccm) = self.ccm().cloned() else { return false };
        let Some(decision) = &self.guard.decision else { return false };
        let (lifecycle, Some(guard)) = (ccm.spec.controllers.cloud_node_lifecycle, guard_of(view, &ccm)) else {
            return false;
        };
        if lifecycle == Lifecycle::Disabled {
            return false;
        }
        let has_candidates = !(decision.confirmed.is_empty() && decision.waiting.is_empty());
        let previous = status(&view.target.observer, &self.name);
        let is_known = previous.node_deletion.phase == phase(lifecycle) && ccm::is_guard_known(&previous);
        let is_own = |id: &String| owns(&guard.provider_ids, id);
        // A problem is checked again until it is fixed, and a possible problem is checked while it matters.
        let is_pressing = has_candidates
            || view.target.node_counts.unready.iter().any(is_own)
            || self.deletes_unguarded() == Some(true);
        let mut is_news = self.ask_for_permissions(view, &guard, (is_pressing, is_known)).await;
        if is_pressing || self.deletes_unguarded() == Some(true) {
            pass.due.push(Instant::now() + ANSWER_LIFETIME);
        }
        if has_candidates
            && (is_old(self.guard.leads_since.as_ref().map(|(_, asked)| *asked)) || self.is_leader_needed(view))
        {
            is_news = true;
            let leads_since = match self.identity() {
                Some(identity) => leads_since(&view.target.client, identity).await,
                None => Err("its provider has no workload".to_owned()),
            };
            self.guard.leads_since = Some((leads_since, Instant::now()));
        }
        if is_news {
            let decision = self.decide(&ccm, &guard, known);
            self.settle((view, &ccm), decision, known.now, pass);
        }
        is_news
    }

    /// Whether the leader must be read again, because a node is about to be confirmed or granted for the first time.
    fn is_leader_needed(&self, view: &View) -> bool {
        let granted = self.live_grants(&view.target.observer);
        let confirmed = self.guard.decision.iter().flat_map(|decision| &decision.confirmed);
        let is_new = confirmed.clone().any(|entry| !self.guard.before.contains(entry));
        is_new || self.guard.deletable.granted.difference(&granted).next().is_some()
    }

    pub(super) fn grant_nothing_new(&mut self, observer: &Observer) {
        let granted = self.live_grants(observer);
        self.guard.deletable.granted.retain(|name| granted.contains(name));
    }

    pub(super) fn live_grants(&self, observer: &Observer) -> BTreeSet<String> {
        let role = self.planned_of_guard("ClusterRole").and_then(|role| observer.live(role));
        role.map(granted).unwrap_or_default()
    }

    /// Checks for a permission to delete nodes that the operator has not granted. Returns whether there is a new answer.
    async fn ask_for_permissions(&mut self, view: &View, guard: &Guard, (is_pressing, is_known): (bool, bool)) -> bool {
        let permissions = self.live_permissions(&view.target.observer);
        let have_changed =
            permissions.is_some() && self.guard.permissions.is_some() && self.guard.permissions != permissions;
        let is_due = is_old(self.guard.deletes_unguarded.map(|(_, asked)| asked));
        let is_needed = is_pressing || (permissions.is_some() && !is_known);
        self.guard.permissions = permissions.or(self.guard.permissions.take());
        if !(have_changed || (is_needed && is_due)) {
            return false;
        }
        let answer =
            access_review::may_delete_any_node(&view.target.client, Some(&guard.user), Some(REQUEST_TIMEOUT)).await;
        let answer = answer.inspect_err(|error| debug!("failed to ask for the permissions of {}: {error}", guard.user));
        self.guard.deletes_unguarded = Some((answer.ok(), Instant::now()));
        true
    }
}

/// Returns the time since which the leading pod of the current rollout has led.
async fn leads_since(client: &Client, identity: &CcmIdentity) -> Result<Timestamp, String> {
    let (namespace, name) = (identity.namespace.as_str(), identity.lease_name.as_str());
    let lease = once(&LEASE, namespace, name, request::api(client, &LEASE, namespace).get_opt(name)).await?;
    let lease = lease.ok_or_else(|| format!("there is no lease {namespace}/{name}"))?;
    let params = ListParams::default().labels(&identity.selector);
    let pods = once(&POD, namespace, "", request::api(client, &POD, namespace).list(&params)).await?;
    let pods: Vec<_> = pods.items.iter().map(request::to_value).collect();
    leader::leads_since(&request::to_value(&lease), &pods)
}

/// Reads once, without the pause that a refusal may ask for, because a withdrawal may wait for this pass.
async fn once<T>(
    kind: &Kind,
    namespace: &str,
    name: &str,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, String> {
    let answer = request::send(NO_DEADLINE, answer).await;
    answer.map_err(|source| chain(&Error::Read { what: describe_objects(kind, namespace, name), source }))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use serde_json::json;

    use super::*;
    use crate::{
        api::placement::Distribution,
        apply::inventory::{Inventory, Location},
        controllers::observer::Id,
        facts::{ccm::Ccm, cluster::Cluster, version::Minor},
        plan::kubernetes::{sources::SourceState, validation},
        provider::embedded,
    };

    /// A member that may delete nodes.
    fn enabled() -> Member {
        let spec = json!({"provider": "aws", "controllers": {"cloudNodeLifecycle": "Enabled"}});
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 1 };
        let asked = Ccm::new("cluster".into(), serde_json::from_value(spec).unwrap(), cluster);
        let validated = validation::validate(&embedded::catalog().unwrap(), &asked, |_| SourceState::Absent);
        Member::validated(validated)
    }

    #[tokio::test]
    async fn until_the_next_pass_asks_nothing_is_granted_that_is_not_granted_already() {
        let mut member = enabled();
        let role = member.planned_of_guard("ClusterRole").unwrap().clone();
        let silent = Router::new().fallback(std::future::pending::<()>);
        let mut observer = Observer::new(Client::new(silent, "own"), "set".into());
        observer.watch_objects(&Inventory::of(std::slice::from_ref(&role)), &Inventory::default());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let mut grant = |member: &mut Member, live: Option<&[&str]>| {
            if let Some(live) = live {
                let mut object = role.value().clone();
                object["rules"] = json!([{"resources": ["nodes"], "verbs": ["delete"], "resourceNames": live}]);
                observer.put(&Id::Ours(Location::of(&role)), role.name(), object);
            }
            member.guard.deletable.granted = names(&["a", "b"]);
            member.grant_nothing_new(&observer);
            member.guard.deletable.granted.clone()
        };
        assert_eq!(grant(&mut member, None), names(&[]), "there is no role");
        assert_eq!(grant(&mut member, Some(&["b", "c"])), names(&["b"]));
    }
}
