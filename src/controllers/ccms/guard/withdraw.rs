//! Withdraws names from the roles that allow the deletion of nodes (IO), before and independently of the rest of the plan. No failure of
//! the rest may keep a permission alive.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tracing::warn;

use super::{confirmed, owner};
use crate::{
    apply::{inventory::Location, write::key_of},
    controllers::{
        ccms::KubernetesFleet,
        failures::Failures,
        observer::{Id, Observer},
        target::Target,
        view::View,
    },
    facts::ccm::Deletable,
    nodes::guard::lists::REFRESH,
    object::{CLUSTER_ROLE, Key, Object},
    plan::kubernetes::guard::{confirm, granted, is_of_guard},
    process::leadership::Authority,
};

/// The prefix of the kinds of policies and their bindings.
const POLICY: &str = "ValidatingAdmissionPolicy";

/// The number of attempts at the end of the process.
const TRIES: usize = 3;

const PAUSE: Duration = Duration::from_millis(500);

pub(in super::super) fn location() -> Location {
    Location { kind: &CLUSTER_ROLE, namespace: String::new() }
}

/// The live roles of all guards.
fn roles(observer: &Observer) -> impl Iterator<Item = &Value> {
    let of_kind = observer.ours().filter(|(location, _)| location.kind.kind == CLUSTER_ROLE.kind);
    of_kind.flat_map(|(_, live)| live).filter(|live| is_of_guard(live))
}

/// Returns the names that the live roles of a member grant, or `None` while the roles have not been seen.
pub(super) fn granted_to(observer: &Observer, name: &str) -> Option<BTreeSet<String>> {
    let is_seen = observer.ours().any(|(location, _)| location.kind.kind == CLUSTER_ROLE.kind);
    is_seen.then(|| roles(observer).filter(|live| owner(live) == name).flat_map(granted).collect())
}

/// The members whose roles allow the deletion of nodes now, or did so recently.
pub(in super::super) struct Grants {
    /// The time at which the role of each `CloudControllerManager` was last known to grant a name.
    seen: BTreeMap<String, Instant>,
    /// The members whose roles grant names now.
    granting: BTreeSet<String>,
    /// The start of the process. Earlier grants are not known.
    started: Instant,
    /// The names that the last attempt has left in each role.
    narrowed: BTreeMap<Key, BTreeSet<String>>,
}

impl Default for Grants {
    fn default() -> Self {
        Self { seen: BTreeMap::new(), granting: BTreeSet::new(), started: Instant::now(), narrowed: BTreeMap::new() }
    }
}

impl Grants {
    /// Updates the grants from the live roles.
    pub(in super::super) fn update(&mut self, observer: &Observer) {
        let granting = roles(observer).filter(|live| !granted(live).is_empty());
        self.note(granting.map(|live| owner(live).to_owned()).collect());
    }

    /// Stores the members whose roles grant names. A previous grant may stay in force for a little longer, because the time of its
    /// withdrawal is not known.
    fn note(&mut self, granting: BTreeSet<String>) {
        let before = std::mem::replace(&mut self.granting, granting);
        let now = Instant::now();
        self.seen.extend(before.union(&self.granting).map(|owner| (owner.clone(), now)));
        self.seen.retain(|_, seen| seen.elapsed() < REFRESH);
    }

    /// Whether no node may be deleted.
    pub(in super::super) fn is_none(&self) -> bool {
        self.granting.is_empty()
    }

    /// Whether an object is a policy that must be kept, because an API server may still know the previous state of its role.
    pub(in super::super) fn may_lag(&self, live: &Value) -> bool {
        let is_recent = self.seen.contains_key(owner(live)) || self.started.elapsed() < REFRESH;
        is_recent && live["kind"].as_str().is_some_and(|kind| kind.starts_with(POLICY)) && is_of_guard(live)
    }

    /// The times at which these policies may be deleted.
    pub(in super::super) fn due(&self) -> impl Iterator<Item = Instant> {
        self.seen.values().chain([&self.started]).map(|seen| *seen + REFRESH).filter(|due| *due > Instant::now())
    }
}

impl KubernetesFleet {
    /// Withdraws each name that is not confirmed now, including the names of members that are paused or removed, or have no plan.
    pub(in super::super) async fn withdraw_grants(&mut self, view: &mut View) {
        let wanted: BTreeMap<_, _> =
            self.members.iter().map(|(name, member)| (name.clone(), member.guard.deletable.granted.clone())).collect();
        let budget = |authority: &Authority| authority.write_budget();
        self.narrow(&mut view.target, &wanted, budget).await;
    }

    /// Withdraws all names, because the nodes or Events that the decisions depend on cannot be seen.
    pub(in super::super) async fn withdraw_all_grants(&mut self, view: &mut View) {
        for member in self.members.values_mut() {
            member.guard.forget();
        }
        self.withdraw_grants(view).await;
    }

    /// Withdraws all grants at the end of a process that leads, and then the lists of the policies. The next leader decides again.
    pub(in crate::controllers) async fn withdraw(&mut self, view: &mut View) {
        // A process that does not lead has granted nothing.
        if self.authority.last_budget().is_none() {
            return;
        }
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(applier) = self.executor.applier_mut() {
                let stray = roles(&view.target.observer).map(|live| key_of(&CLUSTER_ROLE, live));
                let keys: BTreeSet<Key> = self.objects.iter().map(Object::key).chain(stray).collect();
                applier.replanned_some(&keys, false);
            }
            self.narrow(&mut view.target, &BTreeMap::new(), Authority::last_budget).await;
            if roles(&view.target.observer).all(|live| granted(live).is_empty()) {
                break;
            }
        }
        self.warn_of_permissions(view);
        let Some(applier) = self.executor.applier_mut() else { return };
        let left = roles(&view.target.observer).flat_map(granted).count();
        let policies = self.objects.iter().filter(|one| one.kind().kind == "ValidatingAdmissionPolicy");
        let empty: Vec<_> = policies
            .filter(|one| is_of_guard(one.value()) && left == 0)
            .map(|one| confirmed(one.clone(), &Deletable::default()))
            .collect();
        let live = empty.iter().map(|object| (object, view.target.observer.live(object)));
        let live: Vec<_> = live.filter(|(_, live)| live.is_some()).collect();
        let budget = || self.authority.last_budget();
        applier.apply(&view.target.client, live.into_iter(), &budget).await;
    }

    /// Logs the nodes that may still be deleted, if this process should have withdrawn the permission.
    pub(in crate::controllers) fn warn_of_permissions(&self, view: &View) {
        let left: Vec<_> = roles(&view.target.observer).flat_map(granted).collect();
        if !left.is_empty() && self.authority.last_budget().is_some() {
            warn!("the permission to delete these nodes could not be withdrawn: {}", left.join(", "));
        }
    }

    /// Reduces each live role to the wanted names of its owner.
    async fn narrow(
        &mut self,
        target: &mut Target,
        wanted: &BTreeMap<String, BTreeSet<String>>,
        budget: impl Fn(&Authority) -> Option<Duration>,
    ) {
        let Some(applier) = self.executor.applier_mut() else { return };
        let Target { client, observer, .. } = target;
        let none = BTreeSet::new();
        let narrowed = |live: &Value| {
            let (before, wanted) = (granted(live), wanted.get(owner(live)).unwrap_or(&none));
            let left: BTreeSet<_> = before.intersection(wanted).cloned().collect();
            if left == before {
                return None;
            }
            let is_it = |one: &&Object| {
                one.kind().kind == CLUSTER_ROLE.kind && live["metadata"]["name"].as_str() == Some(one.name())
            };
            let planned = self.objects.iter().find(is_it).cloned();
            let mut role = planned.or_else(|| minimal(live))?;
            confirm(&mut role, &Deletable { granted: left, ..Deletable::default() });
            Some((role, live.clone()))
        };
        let due: Vec<_> = roles(observer).filter_map(narrowed).collect();
        let attempt: BTreeMap<_, _> = due.iter().map(|(role, _)| (role.key(), granted(role.value()))).collect();
        // An earlier failure does not delay the withdrawal of another name.
        let news = attempt.iter().filter(|(key, left)| self.grants.narrowed.get(key) != Some(left));
        applier.replanned_some(&news.map(|(key, _)| key.clone()).collect(), false);
        self.grants.narrowed = attempt;
        if due.is_empty() {
            return;
        }
        applier.failures = Failures::default();
        applier.limit_writes(usize::MAX);
        let objects = due.iter().map(|(role, live)| (role, Some(live)));
        let written = applier.apply(client, objects, &|| budget(&self.authority)).await;
        for (key, live) in written {
            // The name was granted until now, however long the request took.
            self.grants.seen.insert(owner(&live).to_owned(), Instant::now());
            if let Some((role, _)) = due.iter().find(|(role, _)| role.key() == key) {
                observer.put(&Id::Ours(Location::of(role)), &key.name, live);
            }
        }
    }
}

/// Returns a live role without its rules, for a role that is not planned.
fn minimal(live: &Value) -> Option<Object> {
    let metadata = json!({"name": live["metadata"]["name"], "labels": live["metadata"]["labels"]});
    let (version, kind) = (&live["apiVersion"], &live["kind"]);
    Object::new(json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": []})).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    };

    use axum::{
        Router,
        http::{Method, StatusCode},
    };
    use kube::Client;
    use tokio::sync::watch;

    use super::*;
    use crate::{
        controllers::{executor::Executor, metrics::Metrics},
        process::leadership::{Deadline, Leadership, Now},
        provider::kubernetes::INSTANCE_LABEL,
    };

    const RBAC: &str = "rbac.authorization.k8s.io/v1";

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_was_granted_until_a_moment_ago_may_still_be_in_force() {
        let long_ago = Instant::now().checked_sub(REFRESH).unwrap();
        let mut grants = Grants { started: long_ago, ..Grants::default() };
        let metadata = json!({"name": "ccm-delete-nodes", "labels": {INSTANCE_LABEL: "cluster"}});
        let policy = json!({"kind": POLICY, "metadata": metadata});
        assert!(grants.is_none() && !grants.may_lag(&policy));
        grants.note(names(&["cluster"]));
        assert!(!grants.is_none() && grants.may_lag(&policy));
        // As a standby observes it: granted long ago, and withdrawn by another process since the last pass.
        grants.seen.values_mut().for_each(|seen| *seen = long_ago);
        grants.note(BTreeSet::new());
        assert!(grants.is_none() && grants.may_lag(&policy));
        grants.seen.values_mut().for_each(|seen| *seen = long_ago);
        grants.note(BTreeSet::new());
        assert!(!grants.may_lag(&policy));
    }

    /// The managed fields of an object that only the operator has written.
    fn ours() -> Value {
        json!([{"manager": "ccm-operator", "operation": "Apply", "apiVersion": RBAC, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:rules": {}}}])
    }

    /// An API server with a role that grants two names. It refuses changes until `accepts` is set.
    #[derive(Clone, Default)]
    struct Server {
        /// The names that each attempt leaves.
        attempts: Arc<Mutex<Vec<BTreeSet<String>>>>,
        accepts: Arc<AtomicBool>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let answer = move |method: Method, body: String| std::future::ready(server.answer(&method, &body));
            Client::new(Router::new().fallback(answer), "own")
        }

        fn answer(&self, method: &Method, body: &str) -> (StatusCode, String) {
            if method == Method::GET {
                let metadata = json!({"name": "ccm-delete-nodes", "labels": {INSTANCE_LABEL: "cluster"},
                    "resourceVersion": "1", "managedFields": ours()});
                let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": ["a", "b"]}]);
                let role = json!({"apiVersion": RBAC, "kind": CLUSTER_ROLE.kind, "metadata": metadata, "rules": rules});
                let end = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
                let end = json!({"apiVersion": RBAC, "kind": CLUSTER_ROLE.kind, "metadata": end});
                let events = [("ADDED", role), ("BOOKMARK", end)];
                let events = events.map(|(type_, object)| format!("{}\n", json!({"type": type_, "object": object})));
                return (StatusCode::OK, events.concat());
            }
            let mut object: Value = serde_json::from_str(body).unwrap();
            if method == Method::PATCH {
                self.attempts.lock().unwrap().push(granted(&object));
                if !self.accepts.load(Ordering::Relaxed) {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                        "reason": "InternalError", "message": "no"});
                    return (StatusCode::INTERNAL_SERVER_ERROR, status.to_string());
                }
                object["metadata"]["resourceVersion"] = json!("2");
                object["metadata"]["managedFields"] = ours();
            }
            (StatusCode::OK, object.to_string())
        }
    }

    fn leading(target: &Target) -> KubernetesFleet {
        let executor = Executor::writing("own", target.events.clone());
        let until = Deadline::after(Now::read(), Duration::from_secs(3600));
        let (leadership, shutdown) = (watch::channel(Leadership::Leading(until)).1, watch::channel(false).1);
        KubernetesFleet::new(Authority { leadership, shutdown }, executor)
    }

    #[tokio::test]
    async fn a_name_that_is_to_go_waits_for_no_retry_of_another_and_counts_until_its_role_is_written() {
        let server = Server::default();
        let mut target = Target::new(server.client(), "set".into(), Metrics::default());
        target.observer.watch_location(&location());
        while target.observer.ours().next().is_none() {
            target.observer.changed().await;
        }
        let mut ccms = leading(&target);
        let mut keep = async |kept: &[&str]| {
            let wanted = BTreeMap::from([("cluster".to_owned(), names(kept))]);
            ccms.narrow(&mut target, &wanted, Authority::write_budget).await;
            (ccms.grants.seen.contains_key("cluster"), granted_to(&target.observer, "cluster"))
        };
        // Each attempt is refused, and the next one does not wait for the retry of the previous one.
        let both = Some(names(&["a", "b"]));
        assert_eq!((keep(&["a"]).await, keep(&[]).await), ((false, both.clone()), (false, both)));
        assert_eq!(*server.attempts.lock().unwrap(), [names(&["a"]), names(&[])]);
        server.accepts.store(true, Ordering::Relaxed);
        assert_eq!(keep(&["b"]).await, (true, Some(names(&["b"]))));
    }
}
