//! Reports the result of each pass to each `CloudControllerManager` (IO).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;
use tracing::{info, warn};

use super::{
    Ccms, Member,
    guard::{Withheld, denied},
    is_common, owner,
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
        failures::Stopped,
        observer::{Id, Observer},
        progress::{Rollouts, held_up_by},
        view::View,
    },
    facts::cluster::Cluster,
    grace::TRANSIENT_ERROR_GRACE,
    object::{Key, Object, reference::CONFIG_MAP},
    plan::kubernetes::validation::Validation,
    process::leadership::Authority,
    provider::restriction::is_restriction,
    status::outcome::{Outcome, names},
};

pub(super) struct Reporter<'a> {
    pub(super) authority: &'a Authority,
    pub(super) executor: &'a Executor,
    pub(super) withheld: &'a Withheld,
    pub(super) cluster: Option<&'a Cluster>,
    /// Where objects may be of those that are to go.
    leftovers: Inventory,
}

impl Ccms {
    /// Reports to each `CloudControllerManager`, after a pass that has `acted`.
    pub(super) async fn report_to_each(&mut self, view: &mut View, acted: &Result<(), Stopped>, pass: &mut Pass) {
        let room = self.room();
        let mut written = 0;
        let (reporter, fleet) = self.reporter(&view.target.observer);
        for (name, member) in fleet {
            if written >= room {
                pass.due.push(Instant::now());
                break;
            }
            let before = member.written.as_ref().map(|(at, _)| *at);
            match reporter.outcome(member, name, view, acted, pass) {
                Ok(outcome) => reporter.tell((member, name), outcome, view, pass).await,
                Err(waiting) => pass.retrying.extend(waiting),
            }
            written += usize::from(member.written.as_ref().map(|(at, _)| *at) != before);
            pass.due.extend(member.progress.due());
        }
    }

    /// Reports to all `CloudControllerManager`s that what they depend on cannot be read.
    pub(super) async fn report_to_all(&mut self, view: &mut View, error: &str, pass: &mut Pass) {
        let (reporter, fleet) = self.reporter(&view.target.observer);
        let live = view.target.observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects);
        let known = |live: &Value| {
            let metadata = &live["metadata"];
            Some((metadata["name"].as_str()?.to_owned(), metadata["generation"].as_i64().unwrap_or_default()))
        };
        for (name, generation) in live.filter_map(known).collect::<Vec<_>>() {
            let member = fleet.entry(name.clone()).or_default();
            if std::mem::replace(&mut member.generation, generation) != generation {
                member.validation = None;
            }
            member.guard.blind = Some(error.to_owned());
            reporter.tell((member, &name), Outcome::failed(error.to_owned()), view, pass).await;
        }
        // They are read and validated once the watch is back.
        view.target.observer.ccms_changed = true;
    }

    fn reporter(&mut self, observer: &Observer) -> (Reporter<'_>, &mut BTreeMap<String, Member>) {
        let is_any_removed = self.fleet.values().any(Member::is_removed);
        let leftovers = if is_any_removed { self.leftovers(observer) } else { Inventory::default() };
        let Self { authority, executor, withheld, cluster, fleet, .. } = self;
        let cluster = cluster.as_ref();
        (Reporter { authority, executor, withheld, cluster, leftovers }, fleet)
    }
}

impl Reporter<'_> {
    /// What a pass has come to for one; an error is what is waited for before that is known.
    fn outcome(
        &self,
        member: &mut Member,
        name: &str,
        view: &View,
        acted: &Result<(), Stopped>,
        pass: &mut Pass,
    ) -> Result<Outcome, Option<String>> {
        let Some(validation) = &member.validation else { return Err(None) };
        if validation.objects.is_none() {
            // Which of two is refused depends on what runs.
            if member.is_good() && view.target.observer.awaits_leftovers() {
                return Err(None);
            }
            return Ok(Outcome::BadInput);
        }
        if member.is_paused() {
            return Ok(Outcome::Paused);
        }
        let (observer, origin) = (&view.target.observer, validation.origin.as_ref());
        let locations: BTreeSet<Location> = member.planned().iter().map(Location::of).collect();
        // Without a policy that it may not look at, all else is as it should be, unless nothing else is written before that one.
        let optional: BTreeSet<Location> = member.optional_policies().map(Location::of).collect();
        let restrictions = member.planned().iter().filter(|object| is_restriction(object.value()));
        let required: BTreeSet<Location> = restrictions.map(Location::of).collect();
        let is_withheld = |location: &Location| {
            optional.contains(location) && !required.contains(location) && denied(observer, location).is_some()
        };
        let is_needed = |id: &Id| match id {
            Id::Ours(location) => locations.contains(location) && !is_withheld(location),
            Id::Named(reference) => member.named.iter().any(|named| named.reference == *reference),
            other => is_common(other),
        };
        // What has been seen may be out of date.
        if let Some(error) = observer.watches.lasting_problem(TRANSIENT_ERROR_GRACE, is_needed) {
            let is_denied = required.iter().any(|location| denied(observer, location).is_some());
            let error = Stopped { is_denied, ..error.into() }.advised(origin);
            return Ok(Outcome::failed(error));
        }
        if let Some(pending) = observer.watches.pending(is_needed).into_iter().next() {
            return Err(Some(pending));
        }
        if !member.gate.is_open && !member.is_removed() {
            return match member.gate.refusal() {
                Ok(why) => Ok(Outcome::Refused(why)),
                Err((error, true)) => Ok(Outcome::failed(error)),
                Err((error, false)) => Err(Some(error)),
            };
        }
        let is_of = is_of(member, name, view);
        let counts = |key: &Key| !self.withheld.has(key);
        let settled = match self.executor.settled(acted, &is_of, counts) {
            Ok(settled) => settled,
            Err(stopped) => {
                let (error, Stopped { is_reported, is_terminal, .. }) = (stopped.advised(origin), stopped);
                let waiting = || Some(format!("CloudControllerManager {name}: {error}"));
                return if is_reported { Ok(Outcome::Failed { error, is_terminal }) } else { Err(waiting()) };
            }
        };
        if member.is_removed() {
            let left = self.left_of(member, observer, name);
            return Ok(if left.is_empty() { Outcome::Removed } else { Outcome::Removing(left) });
        }
        let skips = |key: &Key| {
            let is_it = |object: &&Object| object.key() == *key;
            let optional = member.optional_policies().find(is_it);
            let is_unseen = optional.is_some_and(|object| denied(observer, &Location::of(object)).is_some());
            is_unseen || self.withheld.has(key) || self.executor.skips(key)
        };
        let rollouts = Rollouts::of(observer, member.planned(), skips);
        for (sum, more) in pass.workloads.iter_mut().zip(rollouts.workloads) {
            *sum += more;
        }
        let mut progress = std::mem::take(&mut member.progress);
        let held_up_by = |waiting: &[Key]| held_up_by(observer.nodes(), member.planned(), waiting);
        let outcome = progress.of_rollouts(settled, rollouts, held_up_by);
        member.progress = progress;
        Ok(outcome)
    }

    /// What is left of the objects of one, except what is kept, and where that is not known.
    fn left_of(&self, member: &Member, observer: &Observer, name: &str) -> Vec<String> {
        let prune_decisions = observer.prune_decisions(&[]).into_iter();
        let of_one = prune_decisions
            .filter(|(_, live, decision)| owner(live) == name && !matches!(decision, PruneDecision::Keep(_)));
        let left = of_one.map(|(location, live, _)| key_of(location.kind, live));
        let left = left.filter(|key| !self.withheld.has(key)).map(|key| key.to_string());
        // One of its objects may be wherever any has been, but where the operator may not look only its own count.
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

    /// What may be left of one that the operator may neither see nor delete, for the message of its removal.
    pub(super) fn may_be_left(&self, member: &Member, observer: &Observer) -> String {
        let is_unknown =
            |object: &&Object| self.withheld.has(&object.key()) || denied(observer, &Location::of(object)).is_some();
        // A location with a policy that it can do without is not waited for, so what else is there is not seen either.
        let locations: BTreeSet<Location> = member.optional_policies().map(Location::of).collect();
        let in_locations = member.removed().iter().filter(|object| locations.contains(&Location::of(object)));
        let names: Vec<_> = in_locations.filter(is_unknown).map(|one| one.key().to_string()).collect();
        if names.is_empty() || !member.is_removed() {
            return String::new();
        }
        format!("; may be left, because the operator may not look at or delete it: {}", names.join(", "))
    }

    /// Notes, logs and reports what has come of one.
    async fn tell(&self, (member, name): (&mut Member, &str), outcome: Outcome, view: &mut View, pass: &mut Pass) {
        member.log(name, &outcome, !self.executor.writes());
        // The guard has decided by the last outcome.
        let is_other = member.progress.take(outcome);
        pass.due.extend((is_other && member.keeps_nodes()).then(Instant::now));
        let reported = self.write((member, name), view, pass).await;
        pass.retrying.extend(reported.err());
        pass.due.extend(member.progress.due());
    }
}

impl Member {
    fn log(&mut self, name: &str, outcome: &Outcome, is_dry_run: bool) {
        let problem = self.validation.as_ref().and_then(Validation::problem).map(|problem| problem.message.clone());
        let bad = match outcome {
            Outcome::BadInput => Some(problem.unwrap_or_default()),
            other => other.problem(),
        };
        if let Some(text) = bad {
            let dry_run = if is_dry_run { "dry run: " } else { "" };
            self.progress.log(format!("{dry_run}CloudControllerManager {name}: {text}"), |text| warn!("{text}"));
            return;
        }
        let text = match outcome {
            // Nothing of the following is done in a dry run.
            _ if is_dry_run => return,
            Outcome::Paused => "it is paused: nothing is changed".to_owned(),
            Outcome::Removing(left) => format!("removing {}", left.join(", ")),
            Outcome::Removed => "all its objects are deleted".to_owned(),
            Outcome::RollingOut { rollouts, .. } => {
                format!("waiting for the rollout of {}", names(rollouts))
            }
            _ => "everything is applied".to_owned(),
        };
        self.progress.log(format!("CloudControllerManager {name}: {text}"), |text| info!("{text}"));
    }
}

/// Whether an object is of one: it is planned for it, or it exists and says so. The inventory is of all.
pub(super) fn is_of(member: &Member, name: &str, view: &View) -> impl Fn(&Key) -> bool + use<> {
    let inventory = Key::new(&CONFIG_MAP, &view.settings.own_namespace, inventory::NAME);
    let live = live_of(&view.target.observer, name).map(|(location, live)| key_of(location.kind, live));
    let planned = member.planned().iter().map(Object::key);
    let keys: BTreeSet<_> = live.chain(planned).chain([inventory]).collect();
    move |key| keys.contains(key)
}

/// Our objects of one that have been seen, each with its location.
pub(super) fn live_of<'a>(observer: &'a Observer, name: &'a str) -> impl Iterator<Item = (&'a Location, &'a Value)> {
    let objects = observer.ours().flat_map(|(location, objects)| objects.map(move |object| (location, object)));
    objects.filter(move |(_, object)| owner(object) == name)
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
        let mut ccms = Ccms::of_a_standby();
        let mut observer = Observer::new(client, "set".into());
        let metadata = json!({"name": "a", "namespace": "kube-system"});
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let removed = vec![Object::new(object).unwrap()];
        observer.follow(&Inventory::default(), &Inventory::of(&removed));
        let validation = Validation { objects: Some(Vec::new()), removed, ..Validation::default() };
        let mut member = Member::default();
        member.validation = Some(validation);
        ccms.fleet.insert("cluster".into(), member);
        let (reporter, fleet) = ccms.reporter(&observer);
        let left = reporter.left_of(&fleet["cluster"], &observer, "cluster");
        assert!(
            matches!(&left[..], [location] if location.contains("serviceaccounts in namespace kube-system")),
            "{left:?}"
        );
    }
}
