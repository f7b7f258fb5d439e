//! Reports the result of each pass to each `CloudControllerManager` (IO).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;
use tracing::{info, warn};

use super::{
    Managed, Managers,
    guard::{Withheld, denied},
    is_common, owner,
};
use crate::{
    apply::{
        inventory::{self, Place, Scope, Verdict},
        write::key_of,
    },
    cluster::seen::Seen,
    controllers::{
        Pass,
        backoff::RepairLimiter,
        executor::Executor,
        failures::Stopped,
        observer::{Id, Observer},
        rollouts::{Rollouts, held_up_by},
        view::View,
    },
    facts::cluster::Cluster,
    grace::TRANSIENT_ERROR_PATIENCE,
    object::{Key, Object, reference::CONFIG_MAP},
    plan::upstream::judgement::Judgement,
    process::leadership::Authority,
    provider::restriction::is_restriction,
    status::{
        manager::Outcome,
        outcome::{Acted, names},
    },
};

/// What all reports are made with.
pub(super) struct Reporter<'a> {
    pub(super) authority: &'a Authority,
    pub(super) executor: &'a Executor,
    pub(super) withheld: &'a Withheld,
    pub(super) cluster: Option<&'a Cluster>,
    /// Limits the writes of each status.
    pub(super) limiter: &'a mut RepairLimiter,
    own_namespace: &'a str,
    /// Where objects may be of those that are to go.
    leftovers: Scope,
}

impl Managers {
    /// Reports to each `CloudControllerManager`, after a pass that has `acted`.
    pub(super) async fn report_to_each(&mut self, view: &mut View, acted: &Result<(), Stopped>, pass: &mut Pass) {
        let room = self.room();
        let mut written = 0;
        let (mut reporter, fleet) = self.reporter(&view.target.observer);
        for (name, managed) in fleet {
            if written >= room {
                pass.due.push(Instant::now());
                break;
            }
            let before = managed.written.as_ref().map(|(at, _)| *at);
            match reporter.outcome(managed, name, view, acted, pass) {
                Ok(outcome) => reporter.tell((managed, name), outcome, view, pass).await,
                Err(waiting) => pass.retrying.extend(waiting),
            }
            written += usize::from(managed.written.as_ref().map(|(at, _)| *at) != before);
            pass.due.extend(managed.progress.due());
        }
    }

    /// Reports to all `CloudControllerManager`s that what they depend on cannot be read.
    pub(super) async fn report_to_all(&mut self, view: &mut View, error: &str, pass: &mut Pass) {
        let (mut reporter, fleet) = self.reporter(&view.target.observer);
        let live = view.target.observer.watches.seen(&Id::Managers).into_iter().flat_map(Seen::objects);
        let known = |live: &Value| {
            let metadata = &live["metadata"];
            Some((metadata["name"].as_str()?.to_owned(), metadata["generation"].as_i64().unwrap_or_default()))
        };
        for (name, generation) in live.filter_map(known).collect::<Vec<_>>() {
            let managed = fleet.entry(name.clone()).or_default();
            if std::mem::replace(&mut managed.generation, generation) != generation {
                managed.judgement = None;
            }
            managed.guard.blind = Some(error.to_owned());
            reporter.tell((managed, &name), failed(error.to_owned(), false), view, pass).await;
        }
        // They are read and judged once the watch is back.
        view.target.observer.managers_changed = true;
    }

    fn reporter(&mut self, observer: &Observer) -> (Reporter<'_>, &mut BTreeMap<String, Managed>) {
        let is_any_removed = self.fleet.values().any(Managed::is_removed);
        let leftovers = if is_any_removed { self.leftovers(observer) } else { Scope::default() };
        let Self { authority, executor, withheld, cluster, limiter, own_namespace, fleet, .. } = self;
        let cluster = cluster.as_ref();
        (Reporter { authority, executor, withheld, cluster, limiter, own_namespace, leftovers }, fleet)
    }
}

impl Reporter<'_> {
    /// What a pass has come to for one; an error is what is waited for before that is known.
    fn outcome(
        &self,
        managed: &mut Managed,
        name: &str,
        view: &View,
        acted: &Result<(), Stopped>,
        pass: &mut Pass,
    ) -> Result<Outcome, Option<String>> {
        let Some(judgement) = &managed.judgement else { return Err(None) };
        if judgement.objects.is_none() {
            // Which of two is refused depends on what runs.
            if managed.is_good() && view.target.observer.awaits_leftovers() {
                return Err(None);
            }
            return Ok(Outcome::BadInput);
        }
        if managed.is_paused() {
            return Ok(Outcome::Paused);
        }
        let (observer, origin) = (&view.target.observer, judgement.origin.as_ref());
        let places: BTreeSet<Place> = managed.planned().iter().map(Place::of).collect();
        // Without a policy that it may not look at, all else is as it should be, unless nothing else is written before that one.
        let optional: BTreeSet<Place> = managed.optional_policies().map(Place::of).collect();
        let restrictions = managed.planned().iter().filter(|object| is_restriction(object.value()));
        let required: BTreeSet<Place> = restrictions.map(Place::of).collect();
        let is_withheld =
            |place: &Place| optional.contains(place) && !required.contains(place) && denied(observer, place).is_some();
        let is_needed = |id: &Id| match id {
            Id::Ours(place) => places.contains(place) && !is_withheld(place),
            Id::Named(reference) => managed.named.iter().any(|named| named.reference == *reference),
            other => is_common(other),
        };
        // What has been seen may be out of date.
        if let Some(error) = observer.watches.lasting_trouble(TRANSIENT_ERROR_PATIENCE, is_needed) {
            let is_denied = required.iter().any(|place| denied(observer, place).is_some());
            let error = Stopped { is_denied, ..error.into() }.advised(origin);
            return Ok(failed(error, false));
        }
        if let Some(pending) = observer.watches.pending(is_needed).into_iter().next() {
            return Err(Some(pending));
        }
        if managed.is_gated() {
            return match managed.gate.refusal() {
                Ok(why) => Ok(Outcome::Refused(why)),
                Err((error, true)) => Ok(failed(error, false)),
                Err((error, false)) => Err(Some(error)),
            };
        }
        let is_of = self.is_of(managed, name, observer);
        let counts = |key: &Key| !self.withheld.has(key);
        let settled = match self.executor.settled(acted, &is_of, counts) {
            Ok(settled) => settled,
            Err(stopped) => {
                let (error, Stopped { is_reported, is_terminal, .. }) = (stopped.advised(origin), stopped);
                let waiting = || Some(format!("CloudControllerManager {name}: {error}"));
                return if is_reported { Ok(failed(error, is_terminal)) } else { Err(waiting()) };
            }
        };
        if managed.is_removed() {
            let left = self.left_of(managed, observer, name);
            return Ok(if left.is_empty() { Outcome::Removed } else { Outcome::Removing(left) });
        }
        let skips = |key: &Key| {
            let is_it = |object: &&Object| object.key() == *key;
            let optional = managed.optional_policies().find(is_it);
            let is_unseen = optional.is_some_and(|object| denied(observer, &Place::of(object)).is_some());
            is_unseen || self.withheld.has(key) || self.executor.skips(key)
        };
        let rollouts = Rollouts::of(observer, managed.planned(), skips);
        for (sum, more) in pass.workloads.iter_mut().zip(rollouts.workloads) {
            *sum += more;
        }
        let mut progress = std::mem::take(&mut managed.progress);
        let held_up_by = |waiting: &[Key]| held_up_by(observer.nodes(), managed.planned(), waiting);
        let acted = progress.of_rollouts(settled, rollouts, held_up_by);
        managed.progress = progress;
        Ok(Outcome::Acted(acted))
    }

    /// What is left of the objects of one, except what is kept, and where that is not known.
    fn left_of(&self, managed: &Managed, observer: &Observer, name: &str) -> Vec<String> {
        let verdicts = observer.verdicts(&[]).into_iter();
        let of_one = verdicts.filter(|(_, live, verdict)| owner(live) == name && !matches!(verdict, Verdict::Keep(_)));
        let left = of_one.map(|(place, live, _)| key_of(place.kind, live));
        let left = left.filter(|key| !self.withheld.has(key)).map(|key| key.to_string());
        // One of its objects may be wherever any has been, but where the operator may not look only its own count.
        let own: BTreeSet<Place> = managed.removed().iter().map(Place::of).collect();
        let optional: BTreeSet<Place> = managed.optional_policies().map(Place::of).collect();
        let counts = |place: &Place| {
            let is_own = own.contains(place);
            let may_be_unseen = !is_own || optional.contains(place);
            (is_own || self.leftovers.contains(place)) && !(may_be_unseen && denied(observer, place).is_some())
        };
        let unknown = observer.watches.pending(|id| matches!(id, Id::Ours(place) if counts(place)));
        left.chain(unknown).collect()
    }

    /// What may be left of one that the operator may neither see nor delete, for the message of its removal.
    pub(super) fn may_be_left(&self, managed: &Managed, observer: &Observer) -> String {
        let is_unknown =
            |object: &&Object| self.withheld.has(&object.key()) || denied(observer, &Place::of(object)).is_some();
        // A place with a policy that it can do without is not waited for, so what else is there is not seen either.
        let places: BTreeSet<Place> = managed.optional_policies().map(Place::of).collect();
        let in_places = managed.removed().iter().filter(|object| places.contains(&Place::of(object)));
        let names: Vec<_> = in_places.filter(is_unknown).map(|one| one.key().to_string()).collect();
        if names.is_empty() || !managed.is_removed() {
            return String::new();
        }
        format!("; may be left, because the operator may not look at or delete it: {}", names.join(", "))
    }

    /// Whether an object is of one: it is planned for it, or it exists and says so. The inventory is of all.
    pub(super) fn is_of(&self, managed: &Managed, name: &str, observer: &Observer) -> impl Fn(&Key) -> bool + use<> {
        let inventory = Key {
            group: String::new(),
            kind: CONFIG_MAP.kind.to_owned(),
            namespace: self.own_namespace.to_owned(),
            name: inventory::NAME.to_owned(),
        };
        let live = live_of(observer, name).map(|(place, live)| key_of(place.kind, live));
        let planned = managed.planned().iter().map(Object::key);
        let keys: BTreeSet<_> = live.chain(planned).chain([inventory]).collect();
        move |key| keys.contains(key)
    }

    /// Notes, logs and reports what has come of one.
    async fn tell(
        &mut self,
        (managed, name): (&mut Managed, &str),
        outcome: Outcome,
        view: &mut View,
        pass: &mut Pass,
    ) {
        managed.log(name, &outcome, !self.executor.writes());
        // The guard has decided by the last outcome.
        let is_rollout = matches!(&outcome, Outcome::Acted(acted) if acted.is_rollout());
        let is_other = managed.progress.take(outcome, is_rollout);
        pass.due.extend((is_other && managed.keeps_nodes()).then(Instant::now));
        let reported = self.write((managed, name), view, pass).await;
        pass.retrying.extend(reported.err());
        pass.due.extend(managed.progress.due());
    }
}

impl Managed {
    fn log(&mut self, name: &str, outcome: &Outcome, is_dry_run: bool) {
        let trouble = self.judgement.as_ref().and_then(Judgement::trouble).map(|trouble| trouble.message.clone());
        let bad = match outcome {
            Outcome::BadInput => Some(trouble.unwrap_or_default()),
            Outcome::Refused(error) => Some(error.clone()),
            Outcome::Acted(acted) => acted.problem(),
            _ => None,
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
            Outcome::Acted(Acted::RollingOut { rollouts, .. }) => {
                format!("waiting for the rollout of {}", names(rollouts))
            }
            _ => "everything is applied".to_owned(),
        };
        self.progress.log(format!("CloudControllerManager {name}: {text}"), |text| info!("{text}"));
    }
}

fn failed(error: String, is_terminal: bool) -> Outcome {
    Outcome::Acted(Acted::Failed { error, is_terminal })
}

/// Our objects of one that have been seen, each with its place.
pub(super) fn live_of<'a>(observer: &'a Observer, name: &'a str) -> impl Iterator<Item = (&'a Place, &'a Value)> {
    let objects = observer.ours().flat_map(|(place, objects)| objects.map(move |object| (place, object)));
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
        let mut managers = Managers::of_a_standby();
        let mut observer = Observer::new(client, "set".into());
        let metadata = json!({"name": "a", "namespace": "kube-system"});
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let removed = vec![Object::new(object).unwrap()];
        observer.follow(&Scope::default(), &Scope::of(&removed));
        let judgement = Judgement { objects: Some(Vec::new()), removed, ..Judgement::default() };
        let mut managed = Managed::default();
        managed.judgement = Some(judgement);
        managers.fleet.insert("cluster".into(), managed);
        let (reporter, fleet) = managers.reporter(&observer);
        let left = reporter.left_of(&fleet["cluster"], &observer, "cluster");
        assert!(matches!(&left[..], [place] if place.contains("serviceaccounts in namespace kube-system")), "{left:?}");
    }
}
