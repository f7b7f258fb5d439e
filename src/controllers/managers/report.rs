//! Reports to each `CloudControllerManager` what has come of it (IO).

use std::{collections::BTreeSet, time::Instant};

use serde_json::Value;
use tracing::{info, warn};

use super::{Managed, Managers, guard::denied, is_common, owner};
use crate::{
    apply::{
        inventory::{self, Place, Verdict},
        write::key_of,
    },
    cluster::seen::Seen,
    controllers::{
        Nodes, Pass,
        failures::Stopped,
        observer::{Id, Observer},
        rollouts::{Rollouts, held_up_by},
        view::View,
    },
    grace::TRANSIENT_ERROR_PATIENCE,
    object::{Key, Object, reference::CONFIG_MAP},
    plan::upstream::judgement::Judgement,
    provider::restriction::is_restriction,
    status::manager::Outcome,
};

impl Managers {
    /// Reports to each `CloudControllerManager`, after a pass that has `acted`.
    pub(super) async fn report(
        &mut self,
        view: &mut View,
        nodes: &Nodes,
        acted: &Result<(), Stopped>,
        pass: &mut Pass,
    ) {
        let names: Vec<_> = self.fleet.keys().cloned().collect();
        let mut written = 0;
        for name in names {
            if written >= self.room() {
                pass.due.push(Instant::now());
                break;
            }
            let Some(mut managed) = self.fleet.remove(&name) else { continue };
            let before = managed.written.as_ref().map(|(at, _)| *at);
            match self.outcome(&mut managed, &name, view, acted, pass) {
                Ok(outcome) => self.tell((&mut managed, &name), outcome, (view, nodes), pass).await,
                Err(waiting) => pass.retrying.extend(waiting),
            }
            written += usize::from(managed.written.as_ref().map(|(at, _)| *at) != before);
            let since = [managed.stuck_since, managed.rolling_since].into_iter().flatten();
            pass.due.extend(since.map(|since| since + TRANSIENT_ERROR_PATIENCE));
            self.fleet.insert(name, managed);
        }
    }

    /// Reports to each `CloudControllerManager` that what all depend on cannot be read.
    pub(super) async fn report_blindness(&mut self, view: &mut View, nodes: &Nodes, error: String, pass: &mut Pass) {
        let live: Vec<_> =
            view.observer.watches.seen(&Id::Managers).into_iter().flat_map(Seen::objects).cloned().collect();
        for live in live {
            let name = live["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut managed = self.fleet.remove(&name).unwrap_or_default();
            let generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
            if std::mem::replace(&mut managed.generation, generation) != generation {
                managed.judgement = None;
            }
            managed.guard.blind = Some(error.clone());
            let outcome = Outcome::Failed { error: error.clone(), is_terminal: false };
            self.tell((&mut managed, &name), outcome, (view, nodes), pass).await;
            self.fleet.insert(name, managed);
        }
        // They are read and judged once the watch is back.
        view.observer.managers_changed = true;
    }

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
            if managed.is_good() && view.observer.awaits_leftovers() {
                return Err(None);
            }
            return Ok(Outcome::BadInput);
        }
        if managed.is_paused() {
            return Ok(Outcome::Paused);
        }
        let (observer, origin) = (&view.observer, judgement.origin.as_ref());
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
            return Ok(Outcome::Failed { error, is_terminal: false });
        }
        if let Some(pending) = observer.watches.pending(is_needed).into_iter().next() {
            return Err(Some(pending));
        }
        if managed.is_gated() {
            return match managed.gate.refusal() {
                Ok(why) => Ok(Outcome::Refused(why)),
                Err((error, true)) => Ok(Outcome::Failed { error, is_terminal: false }),
                Err((error, false)) => Err(Some(error)),
            };
        }
        let is_of = self.is_of(managed, name, observer);
        let counts = |key: &Key| is_of(key) && !self.withheld.has(key);
        if let Some(stopped) = self.executor.failure(acted, counts) {
            let (error, Stopped { is_reported, is_terminal, .. }) = (stopped.advised(origin), stopped);
            let waiting = || Some(format!("CloudControllerManager {name}: {error}"));
            return if is_reported { Ok(Outcome::Failed { error, is_terminal }) } else { Err(waiting()) };
        }
        if let Some(error) = self.executor.overruled(&is_of) {
            return Ok(Outcome::Failed { error, is_terminal: false });
        }
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
        managed.stuck_since = rollouts.stuck.as_ref().map(|_| managed.stuck_since.unwrap_or_else(Instant::now));
        if let Some(why) = rollouts.stuck
            && managed.stuck_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE)
        {
            return Ok(Outcome::Stuck(why + &held_up_by(observer.nodes(), managed.planned(), &rollouts.waiting)));
        }
        let waiting: Vec<_> = rollouts.waiting.iter().map(Key::to_string).collect();
        managed.rolling_since = (!waiting.is_empty()).then(|| managed.rolling_since.unwrap_or_else(Instant::now));
        if managed.rolling_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE) {
            let nodes = held_up_by(observer.nodes(), managed.planned(), &rollouts.waiting);
            if !nodes.is_empty() {
                return Ok(Outcome::Stuck(format!("the rollout of {} does not end{nodes}", waiting.join(", "))));
            }
        }
        Ok(if waiting.is_empty() { Outcome::Applied } else { Outcome::RollingOut(waiting) })
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
        let scope = self.leftovers(observer);
        let counts = |place: &Place| {
            let is_own = own.contains(place);
            let may_be_unseen = !is_own || optional.contains(place);
            (is_own || scope.contains(place)) && !(may_be_unseen && denied(observer, place).is_some())
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
            namespace: self.own_namespace.clone(),
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
        (view, nodes): (&mut View, &Nodes),
        pass: &mut Pass,
    ) {
        managed.log(name, &outcome, !self.executor.writes());
        // The guard has decided by the last outcome.
        let is_other = managed.take(outcome);
        pass.due.extend((is_other && managed.keeps_nodes()).then(Instant::now));
        let reported = self.write((managed, name), (view, nodes), pass).await;
        pass.retrying.extend(reported.err());
        pass.due.extend(managed.reporting.due());
    }
}

impl Managed {
    /// Takes what a pass has come to. Returns whether that is another outcome than the last one.
    fn take(&mut self, outcome: Outcome) -> bool {
        // A rollout has its own time: what was waited for before an error, a bad input or a pause does not count for the next one.
        if !matches!(outcome, Outcome::RollingOut(_) | Outcome::Stuck(_)) {
            (self.stuck_since, self.rolling_since) = (None, None);
        }
        let is_other = self.last.as_ref() != Some(&outcome);
        self.last = Some(outcome);
        is_other
    }

    fn log(&mut self, name: &str, outcome: &Outcome, is_dry_run: bool) {
        let trouble = self.judgement.as_ref().and_then(Judgement::trouble).map(|trouble| trouble.message.as_str());
        let (text, is_bad) = match outcome {
            Outcome::BadInput => (trouble.unwrap_or_default().to_owned(), true),
            Outcome::Failed { error, .. } | Outcome::Stuck(error) | Outcome::Refused(error) => (error.clone(), true),
            // Nothing of the following is done in a dry run.
            _ if is_dry_run => return,
            Outcome::Paused => ("it is paused: nothing is changed".to_owned(), false),
            Outcome::Removing(left) => (format!("removing {}", left.join(", ")), false),
            Outcome::Removed => ("all its objects are deleted".to_owned(), false),
            Outcome::RollingOut(rollouts) => (format!("waiting for the rollout of {}", rollouts.join(", ")), false),
            Outcome::Applied => ("everything is applied".to_owned(), false),
        };
        if self.logged == text {
            return;
        }
        let dry_run = if is_dry_run { "dry run: " } else { "" };
        if is_bad {
            warn!("{dry_run}CloudControllerManager {name}: {text}");
        } else {
            info!("CloudControllerManager {name}: {text}");
        }
        self.logged = text;
    }
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
    use crate::apply::inventory::Scope;

    #[tokio::test]
    async fn without_an_inventory_nothing_is_said_to_be_gone_that_was_not_looked_for() {
        let client = Client::new(Router::new(), "own");
        let managers = Managers::of_a_standby(&client);
        let mut observer = Observer::new(client, "set".into());
        let metadata = json!({"name": "a", "namespace": "kube-system"});
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let removed = vec![Object::new(object).unwrap()];
        observer.follow(&Scope::default(), &Scope::of(&removed));
        let judgement = Judgement { objects: Some(Vec::new()), removed, ..Judgement::default() };
        let mut managed = Managed::default();
        managed.judgement = Some(judgement);
        // Which is not in the fleet while it is reported to.
        let left = managers.left_of(&managed, &observer, "cluster");
        assert!(matches!(&left[..], [place] if place.contains("serviceaccounts in namespace kube-system")), "{left:?}");
    }

    #[test]
    fn a_rollout_after_something_else_has_its_whole_time() {
        let mut managed = Managed::default();
        let since = Some(Instant::now());
        for (outcome, left) in [
            (Outcome::RollingOut(vec!["DaemonSet n/a".into()]), since),
            (Outcome::Stuck("why".into()), since),
            (Outcome::BadInput, None),
            (Outcome::Refused("why".into()), None),
            (Outcome::Paused, None),
            (Outcome::Removing(Vec::new()), None),
            (Outcome::Removed, None),
            (Outcome::Failed { error: "no".into(), is_terminal: false }, None),
            (Outcome::Applied, None),
        ] {
            (managed.stuck_since, managed.rolling_since) = (since, since);
            assert!(managed.take(outcome.clone()), "{outcome:?}");
            assert_eq!((managed.stuck_since, managed.rolling_since), (left, left), "{outcome:?}");
            assert!(!managed.take(outcome), "it is the same");
        }
    }
}
