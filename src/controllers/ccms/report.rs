//! Reports the result of each pass to each `CloudControllerManager` (IO).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;
use tracing::Level;

use super::{
    KubernetesFleet, Member,
    guard::{Withheld, denied},
    is_common, live_of, owner,
};
use crate::{
    apply::{
        inventory::{self, Inventory, Location, PruneDecision},
        write::key_of,
    },
    cluster::seen::Seen,
    controllers::{
        Pass,
        executor::Executor,
        failures::PassError,
        log_line::LogLine,
        observer::{Id, InputKind, Observer},
        progress::{PassResult, Rollouts},
        view::View,
    },
    facts::cluster::Cluster,
    grace::TRANSIENT_ERROR_GRACE,
    object::{Key, Object, reference::CONFIG_MAP},
    plan::kubernetes::{sources::Named, validation::Validation},
    process::leadership::Authority,
    provider::restriction::is_restriction,
    status::outcome::Outcome,
};

/// The shared input of all reports of a pass.
pub(super) struct Reporter<'a> {
    pub(super) authority: &'a Authority,
    pub(super) executor: &'a Executor,
    pub(super) withheld: &'a Withheld,
    pub(super) cluster: Option<&'a Cluster>,
    /// The locations that may contain objects of removed members.
    leftovers: Inventory,
}

impl KubernetesFleet {
    /// Reports the result of a pass to each `CloudControllerManager`.
    pub(super) async fn report_to_each(&mut self, view: &mut View, acted: &Result<(), PassError>, pass: &mut Pass) {
        let limit = self.work_limit();
        let mut written = 0;
        let (reporter, members) = self.reporter(&view.target.observer);
        for member in members.values_mut() {
            if written >= limit {
                pass.due.push(Instant::now());
                break;
            }
            match reporter.outcome(member, view, acted, pass) {
                PassResult::Outcome(outcome) => {
                    written += usize::from(reporter.report(member, outcome, view, pass).await);
                }
                PassResult::Pending(reason) => pass.retrying.extend(reason),
            }
            pass.due.extend(member.progress.due());
        }
    }

    /// Reports to all `CloudControllerManager`s that a common input cannot be read.
    pub(super) async fn report_to_all(&mut self, view: &mut View, error: &str, pass: &mut Pass) {
        let (reporter, members) = self.reporter(&view.target.observer);
        let live = view.target.observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects);
        let known = |live: &Value| {
            let metadata = &live["metadata"];
            Some((metadata["name"].as_str()?.to_owned(), metadata["generation"].as_i64().unwrap_or_default()))
        };
        for (name, generation) in live.filter_map(known).collect::<Vec<_>>() {
            let member = members.entry(name).or_insert_with_key(|name| Member::new(name));
            if std::mem::replace(&mut member.generation, generation) != generation {
                member.forget_validation();
            }
            member.guard.blind = Some(error.to_owned());
            reporter.report(member, Outcome::failed(error.to_owned()), view, pass).await;
        }
        // They are read and validated again once the watch delivers.
        view.target.observer.mark_changed(InputKind::Ccms);
    }

    fn reporter(&mut self, observer: &Observer) -> (Reporter<'_>, &mut BTreeMap<String, Member>) {
        let is_any_removed = self.members.values().any(Member::is_removed);
        let leftovers = if is_any_removed { self.leftovers(observer) } else { Inventory::default() };
        let Self { authority, executor, withheld, cluster, members, .. } = self;
        (Reporter { authority, executor, withheld, cluster: cluster.as_ref(), leftovers }, members)
    }
}

impl Reporter<'_> {
    /// Returns the outcome of a pass for a member.
    fn outcome(&self, member: &mut Member, view: &View, acted: &Result<(), PassError>, pass: &mut Pass) -> PassResult {
        let Some(validation) = member.validation() else { return PassResult::Pending(None) };
        if validation.objects.is_none() {
            // The running workloads decide which of two members is refused.
            if member.has_valid_inputs() && view.target.observer.is_awaiting_leftovers() {
                return PassResult::Pending(None);
            }
            return PassResult::Outcome(Outcome::BadInput);
        }
        if member.is_paused() {
            return PassResult::Outcome(Outcome::Paused);
        }
        let (observer, origin) = (&view.target.observer, validation.origin.as_ref());
        let needed = NeededWatches::of(member, observer);
        // The observation may be out of date.
        if let Some(error) = observer.watches.lasting_problem(TRANSIENT_ERROR_GRACE, |id| needed.has(id)) {
            let is_denied = needed.restrictions.iter().any(|location| denied(observer, location).is_some());
            let error = PassError { is_denied, ..error.into() }.advised(origin);
            return PassResult::failed(error, true);
        }
        if let Some(pending) = observer.watches.pending(|id| needed.has(id)).into_iter().next() {
            return PassResult::Pending(Some(pending));
        }
        if !member.gate.is_open && !member.is_removed() {
            return member.gate.reconciled();
        }
        let is_own = is_object_of(member, view);
        let counts = |key: &Key| !self.withheld.has(key);
        let settled = match self.executor.settled_member(acted, is_own, counts) {
            Ok(settled) => settled,
            Err(stopped) => {
                let error = stopped.advised(origin);
                return if stopped.is_reported {
                    PassResult::Outcome(Outcome::Failed { error, is_terminal: stopped.is_terminal })
                } else {
                    PassResult::Pending(Some(format!("CloudControllerManager {}: {error}", member.name)))
                };
            }
        };
        if member.is_removed() {
            let left = self.left_of(member, observer);
            return PassResult::Outcome(if left.is_empty() { Outcome::Removed } else { Outcome::Removing(left) });
        }
        let is_left_alone = |key: &Key| self.is_left_alone(member, observer, key);
        let rollouts = Rollouts::of(observer, member.planned(), is_left_alone);
        for (sum, more) in pass.workloads.iter_mut().zip(rollouts.workloads) {
            *sum += more;
        }
        PassResult::Outcome(member.outcome_of_rollouts(observer, settled, rollouts))
    }

    /// Whether the operator leaves a planned object alone: it is annotated, or it is an optional policy that the operator may not read or
    /// write.
    fn is_left_alone(&self, member: &Member, observer: &Observer, key: &Key) -> bool {
        let policy = member.optional_policies().find(|policy| policy.key() == *key);
        let is_unseen = policy.is_some_and(|policy| denied(observer, &Location::of(policy)).is_some());
        is_unseen || self.withheld.has(key) || self.executor.is_skipped(key)
    }

    /// Returns the remaining objects of a removed member, except kept ones, and the locations that may contain unseen objects.
    fn left_of(&self, member: &Member, observer: &Observer) -> Vec<String> {
        let prune_decisions = observer.prune_decisions(&[]).into_iter();
        let own = prune_decisions
            .filter(|(_, live, decision)| owner(live) == member.name && !matches!(decision, PruneDecision::Keep(_)));
        let left = own.map(|(location, live, _)| key_of(location.kind, live));
        let left = left.filter(|key| !self.withheld.has(key)).map(|key| key.to_string());
        // An object of the member may be in any location of the inventory. A location that the operator may not read counts only if an
        // object of the member is known to be in it.
        let own: BTreeSet<Location> = member.removed().iter().map(Location::of).collect();
        let optional: BTreeSet<Location> = member.optional_policies().map(Location::of).collect();
        let counts = |location: &Location| {
            let is_own = own.contains(location);
            let may_be_unseen = !is_own || optional.contains(location);
            (is_own || self.leftovers.contains(location)) && !(may_be_unseen && denied(observer, location).is_some())
        };
        let unknown = observer.watches.pending(|id| matches!(id, Id::Ours(location) if counts(location)));
        left.chain(unknown).collect()
    }

    /// Returns the objects that may be left because the operator may not read or delete them, for the message of the removal.
    pub(super) fn may_be_left(&self, member: &Member, observer: &Observer) -> String {
        let is_unknown =
            |object: &&Object| self.withheld.has(&object.key()) || denied(observer, &Location::of(object)).is_some();
        // The removal does not wait for a location with an optional policy, so other objects there may be unseen, too.
        let locations: BTreeSet<Location> = member.optional_policies().map(Location::of).collect();
        let in_locations = member.removed().iter().filter(|object| locations.contains(&Location::of(object)));
        let names: Vec<_> = in_locations.filter(is_unknown).map(|one| one.key().to_string()).collect();
        if names.is_empty() || !member.is_removed() {
            return String::new();
        }
        format!("; may be left, because the operator may not look at or delete it: {}", names.join(", "))
    }

    /// Logs, keeps and writes the outcome of a member. Returns whether its status was written.
    async fn report(&self, member: &mut Member, outcome: Outcome, view: &mut View, pass: &mut Pass) -> bool {
        self.executor.log(&mut member.progress.logged, log_line(&member.name, &outcome, member.stage.validation()));
        // The guard decides again, because it has used the previous outcome.
        let is_other = member.progress.update(outcome);
        pass.due.extend((is_other && member.has_waiting_nodes()).then(Instant::now));
        let written = self.write(member, view, pass).await;
        pass.retrying.extend(written.as_ref().err().cloned());
        pass.due.extend(member.progress.due());
        written.unwrap_or_default()
    }
}

/// The watches that the status of a member depends on.
struct NeededWatches<'a> {
    observer: &'a Observer,
    named: &'a [Named],
    planned: BTreeSet<Location>,
    /// The locations of the policies that the member does not need.
    optional: BTreeSet<Location>,
    /// The locations of the policies that restrict an external provider, which are applied before its other objects.
    restrictions: BTreeSet<Location>,
}

impl<'a> NeededWatches<'a> {
    fn of(member: &'a Member, observer: &'a Observer) -> Self {
        let restrictions = member.planned().iter().filter(|object| is_restriction(object.value()));
        Self {
            observer,
            named: member.named(),
            planned: member.planned().iter().map(Location::of).collect(),
            optional: member.optional_policies().map(Location::of).collect(),
            restrictions: restrictions.map(Location::of).collect(),
        }
    }

    fn has(&self, id: &Id) -> bool {
        match id {
            // A location with only optional policies does not count while the operator may not look at them.
            Id::Ours(location) if self.optional.contains(location) && !self.restrictions.contains(location) => {
                self.planned.contains(location) && denied(self.observer, location).is_none()
            }
            Id::Ours(location) => self.planned.contains(location),
            Id::Named(reference) => self.named.iter().any(|named| named.reference == *reference),
            other => is_common(other),
        }
    }
}

/// Returns the log line about the outcome of a member.
fn log_line(name: &str, outcome: &Outcome, validation: Option<&Validation>) -> LogLine {
    let problem = match outcome {
        Outcome::BadInput => {
            let problem = validation.and_then(Validation::problem);
            Some(problem.map(|problem| problem.message.clone()).unwrap_or_default())
        }
        other => other.problem(),
    };
    let line = |text: &str| format!("CloudControllerManager {name}: {text}");
    match problem {
        Some(problem) => LogLine::new(Level::WARN, line(&problem)).in_dry_run(&line(&problem)),
        None => LogLine::new(Level::INFO, line(&outcome.summary())),
    }
}

/// Whether an object belongs to a member: it is planned, or it is live with the member's label. The inventory belongs to all members.
pub(super) fn is_object_of(member: &Member, view: &View) -> impl Fn(&Key) -> bool + use<> {
    let inventory = Key::new(&CONFIG_MAP, &view.settings.own_namespace, inventory::NAME);
    let live = live_of(&view.target.observer, &member.name).map(|(location, live)| key_of(location.kind, live));
    let planned = member.planned().iter().map(Object::key);
    let keys: BTreeSet<_> = live.chain(planned).chain([inventory]).collect();
    move |key| keys.contains(key)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn without_an_inventory_nothing_is_said_to_be_gone_that_was_not_looked_for() {
        let client = Client::new(Router::new(), "own");
        let mut ccms = KubernetesFleet::of_a_standby();
        let mut observer = Observer::new(client, "set".into());
        let metadata = json!({"name": "a", "namespace": "kube-system"});
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let removed = vec![Object::new(object).unwrap()];
        observer.watch_objects(&Inventory::default(), &Inventory::of(&removed));
        let validation = Validation { objects: Some(Vec::new()), removed, ..Validation::default() };
        let member = Member::validated(validation);
        ccms.members.insert("cluster".into(), member);
        let (reporter, members) = ccms.reporter(&observer);
        let left = reporter.left_of(&members["cluster"], &observer);
        assert!(
            matches!(&left[..], [location] if location.contains("serviceaccounts in namespace kube-system")),
            "{left:?}"
        );
    }
}
