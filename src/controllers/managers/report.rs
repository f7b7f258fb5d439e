//! Reports to each `CloudControllerManager` what has come of it (IO).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Managed, Managers, guard::denied, is_common, owner};
use crate::{
    api::{
        CLOUD_CONTROLLER_MANAGER,
        status::{Status, Workload},
    },
    apply::{
        inventory::{self, Place, Verdict},
        ownership::FIELD_MANAGER,
        write::key_of,
    },
    cluster::{request, seen::Seen},
    controllers::{
        Nodes, Pass,
        backoff::Backoff,
        failures::Stopped,
        now_in_seconds,
        observer::{Id, Observer},
        operator::Hands,
        rollouts::{Rollouts, held_up_by},
        view::View,
    },
    nodes::subject::Subject,
    object::{Key, Object, reference::CONFIG_MAP},
    plan::upstream::judgement::Judgement,
    provider::upstream::is_manager,
    status::{
        cluster_operator::TRANSIENT_ERROR_PATIENCE,
        manager::{self, Initialization, Input, NODES_INITIALIZED, Outcome},
    },
};

/// The shortest time between two writes of a status that differ only in how many nodes there are.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

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
        for name in names {
            let Some(mut managed) = self.fleet.remove(&name) else { continue };
            match self.outcome(&mut managed, &name, view, acted, pass) {
                Ok(outcome) => self.tell((&mut managed, &name), outcome, (view, nodes), pass).await,
                Err(waiting) => pass.retrying.extend(waiting),
            }
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
            managed.generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
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
        let observer = &view.observer;
        let places: BTreeSet<Place> = managed.planned().iter().map(Place::of).collect();
        // Without a policy that it may not look at, all else is as it should be.
        let optional: BTreeSet<Place> = managed.optional_policies().map(Place::of).collect();
        let is_withheld = |place: &Place| optional.contains(place) && denied(observer, place).is_some();
        let is_needed = |id: &Id| match id {
            Id::Ours(place) => places.contains(place) && !is_withheld(place),
            Id::Named(reference) => managed.named.iter().any(|named| named.reference == *reference),
            other => is_common(other),
        };
        // What has been seen may be out of date.
        if let Some(error) = observer.watches.lasting_trouble(TRANSIENT_ERROR_PATIENCE, is_needed) {
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
        let failure = match (&self.hands, acted) {
            (Hands::Write(apply_plan), _) => apply_plan.applier.failures.of(counts).cloned(),
            (Hands::DryRun(_), Ok(())) => None,
            (Hands::DryRun(_), Err(stopped)) => Some(stopped.clone()),
        };
        if let Some(stopped) = failure {
            let origin = managed.judgement.as_ref().and_then(|judgement| judgement.origin.as_ref());
            let (error, Stopped { is_reported, is_terminal, .. }) = (stopped.advised(origin), stopped);
            let waiting = || Some(format!("CloudControllerManager {name}: {error}"));
            return if is_reported { Ok(Outcome::Failed { error, is_terminal }) } else { Err(waiting()) };
        }
        if let Hands::Write(apply_plan) = &self.hands
            && let Some(error) = apply_plan.overruled(&is_of)
        {
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
            is_unseen || self.withheld.has(key) || matches!(&self.hands, Hands::Write(plan) if plan.applier.skips(key))
        };
        let rollouts = Rollouts::of(observer, managed.planned(), skips);
        for (sum, more) in pass.workloads.iter_mut().zip(rollouts.workloads) {
            *sum += more;
        }
        managed.stuck_since = rollouts.stuck.as_ref().map(|_| managed.stuck_since.unwrap_or_else(Instant::now));
        if let Some(why) = rollouts.stuck
            && managed.stuck_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE)
        {
            return Ok(Outcome::Stuck(why + &held_up_by(observer, managed.planned(), &rollouts.waiting)));
        }
        let waiting: Vec<_> = rollouts.waiting.iter().map(Key::to_string).collect();
        managed.rolling_since = (!waiting.is_empty()).then(|| managed.rolling_since.unwrap_or_else(Instant::now));
        if managed.rolling_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE) {
            let nodes = held_up_by(observer, managed.planned(), &rollouts.waiting);
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
        let scope = self.leftovers(observer);
        let own: BTreeSet<Place> = managed.removed().iter().map(Place::of).collect();
        let optional: BTreeSet<Place> = managed.optional_policies().map(Place::of).collect();
        let counts = |place: &Place| {
            let is_own = own.contains(place) && !optional.contains(place);
            scope.contains(place) && (is_own || denied(observer, place).is_none())
        };
        let unknown = observer.watches.pending(|id| matches!(id, Id::Ours(place) if counts(place)));
        left.chain(unknown).collect()
    }

    /// What may be left of one that the operator may neither see nor delete, for the message of its removal.
    fn may_be_left(&self, managed: &Managed, observer: &Observer) -> String {
        let is_unknown =
            |object: &&Object| self.withheld.has(&object.key()) || denied(observer, &Place::of(object)).is_some();
        let names: Vec<_> = managed.optional_policies().filter(is_unknown).map(|one| one.key().to_string()).collect();
        if names.is_empty() || !managed.is_removed() {
            return String::new();
        }
        format!("; may be left, because the operator may not look at or delete it: {}", names.join(", "))
    }

    /// Whether an object is of one: it is planned for it, or it exists and says so. The inventory is of all.
    fn is_of(&self, managed: &Managed, name: &str, observer: &Observer) -> impl Fn(&Key) -> bool + use<> {
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
        managed.log(name, &outcome, matches!(self.hands, Hands::DryRun(_)));
        // The guard has decided by the last outcome.
        let is_other = managed.last.as_ref() != Some(&outcome);
        pass.due.extend((is_other && managed.keeps_nodes()).then(Instant::now));
        managed.last = Some(outcome);
        let reported = self.write((managed, name), (view, nodes), pass).await;
        pass.retrying.extend(reported.err());
        pass.due.extend(managed.reporting.due());
    }

    /// Writes the status of one, unless it is so already.
    async fn write(
        &mut self,
        (managed, name): (&mut Managed, &str),
        (view, nodes): (&mut View, &Nodes),
        pass: &mut Pass,
    ) -> Result<(), String> {
        let Some(outcome) = &managed.last else { return Ok(()) };
        let Hands::Write(apply_plan) = &self.hands else { return Ok(()) };
        let Some(live) = view.observer.watches.get(&Id::Managers, name) else { return Ok(()) };
        let previous = manager::of(live);
        let annotations = live["metadata"]["annotations"].clone();
        let not_judged = Judgement::default();
        let withheld = self.withheld.why(managed, &view.observer);
        let guard = managed.guard_report(name, view, &previous, withheld.as_deref());
        // Until the Events have been seen, the previous answer stays: no start of the operator changes it back and forth.
        let gone_nodes = managed.gone_nodes().unwrap_or_else(|| previous.nodes.gone.iter().cloned().collect());
        let now = now_in_seconds().to_string();
        let is_seen = view.observer.watches.seen(&Id::Nodes).is_some_and(Seen::is_synced);
        let initialization = (is_seen && managed.manager().is_some()).then(|| managed.initialization(nodes));
        let input = Input {
            generation: managed.generation,
            judgement: managed.judgement.as_ref().unwrap_or(&not_judged),
            cluster: managed.manager().map(|manager| &manager.cluster),
            outcome,
            preflight: managed.gate.rows.as_deref(),
            workload: workload(managed, name, &view.observer),
            nodes: initialization.as_ref(),
            gone_nodes: &gone_nodes,
            guard: Some(&guard),
            remarks: &(apply_plan.remarks(self.is_of(managed, name, &view.observer))
                + &self.may_be_left(managed, &view.observer)),
            now: &now,
        };
        let next = manager::next(&previous, &input);
        if next == previous {
            managed.reporting = Backoff::default();
            return Ok(());
        }
        // Nodes come and go by the hundred, and others watch the status, too.
        let free = managed.written.map(|written| written + COUNT_PERIOD).filter(|free| *free > Instant::now());
        if let Some(free) = free.filter(|_| counts_only(&previous, &next)) {
            pass.due.push(free);
            return Ok(());
        }
        managed.reporting.ready(Instant::now())?;
        let key = Key {
            group: CLOUD_CONTROLLER_MANAGER.group.into(),
            kind: CLOUD_CONTROLLER_MANAGER.kind.into(),
            namespace: String::new(),
            name: name.to_owned(),
        };
        if let Err(free) = self.limiter.repair(key, Instant::now()) {
            pass.due.push(free);
            return Err(format!("another writer keeps changing the status of CloudControllerManager {name}"));
        }
        let object = json!({
            "apiVersion": CLOUD_CONTROLLER_MANAGER.api_version(),
            "kind": CLOUD_CONTROLLER_MANAGER.kind,
            "metadata": {"name": name},
            "status": next,
        });
        let api = request::api(&view.client, &CLOUD_CONTROLLER_MANAGER, "");
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(object);
        match request::send(self.authority.write_budget(), api.patch_status(name, &params, &patch)).await {
            Ok(written) => {
                managed.written = Some(Instant::now());
                // The answer may hold a change of somebody else's, which the watch then does not tell any more.
                let written = request::to_value(&written);
                let is_same = written["metadata"]["generation"].as_i64() == Some(managed.generation)
                    && written["metadata"]["annotations"] == annotations;
                if !is_same {
                    view.observer.managers_changed = true;
                    pass.due.push(Instant::now());
                }
                view.observer.watches.put(&Id::Managers, name, written);
                self.record_deletions(name, (&previous.deletion, &next.deletion), &gone_nodes);
                Ok(())
            }
            // It has just been deleted.
            Err(cause) if cause.is_absent() => Ok(()),
            Err(cause) => {
                let text = format!("failed to write the status of CloudControllerManager {name}: {cause}");
                if managed.reporting.failed(&text, TRANSIENT_ERROR_PATIENCE, cause.retry_after(), Instant::now()) {
                    warn!("{text}; retrying");
                }
                Err(text)
            }
        }
    }
}

impl Managed {
    /// The nodes, as far as it initialises them.
    fn initialization(&self, nodes: &Nodes) -> Initialization {
        let Nodes { census, diagnoser } = nodes;
        let waiting = |subject: &Subject| diagnoser.waiting(&subject.provider).cloned().collect();
        Initialization {
            total: census.total,
            uninitialized: census.uninitialized,
            is_judged: self.initializes().is_none_or(|subject| diagnoser.knows(subject, census)),
            waiting: self.initializes().map(waiting),
        }
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

/// Whether nothing but how many nodes there are, or wait, tells two of them apart.
fn counts_only(previous: &Status, next: &Status) -> bool {
    let mut same = next.clone();
    (same.nodes.total, same.nodes.uninitialized) = (previous.nodes.total, previous.nodes.uninitialized);
    same.stuck.clone_from(&previous.stuck);
    let of_nodes = |status: &Status| status.conditions.iter().position(|one| one.type_ == NODES_INITIALIZED);
    if let (Some(at), Some(before)) = (of_nodes(&same), of_nodes(previous)) {
        same.conditions[at].message.clone_from(&previous.conditions[before].message);
    }
    same == *previous
}

/// Our objects of one that have been seen, each with its place.
pub(super) fn live_of<'a>(observer: &'a Observer, name: &'a str) -> impl Iterator<Item = (&'a Place, &'a Value)> {
    let objects = observer.ours().flat_map(|(place, objects)| objects.map(move |object| (place, object)));
    objects.filter(move |(_, object)| owner(object) == name)
}

/// The pods of one: those of the planned workload, or else of one that it has.
fn workload(managed: &Managed, name: &str, observer: &Observer) -> Workload {
    if let Some(planned) = managed.planned().iter().find(|object| object.pod_spec().is_some_and(is_manager)) {
        return manager::workload(planned.kind().kind, observer.live(planned).unwrap_or(&Value::Null));
    }
    let mut live = live_of(observer, name);
    let live = live.find(|(_, live)| is_manager(&live["spec"]["template"]["spec"]));
    live.map(|(place, live)| manager::workload(place.kind.kind, live)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::Condition;

    #[test]
    fn a_change_of_more_than_counts_is_written_at_once() {
        let condition = |status: &str, message: &str| Condition {
            type_: NODES_INITIALIZED.into(),
            status: status.into(),
            observed_generation: 1,
            last_transition_time: "1".into(),
            reason: "CrashLoop".into(),
            message: message.into(),
        };
        let of = |status: &str, message: &str, total: u32| {
            let mut one = Status { conditions: vec![condition(status, message)], ..Status::default() };
            one.nodes.total = total;
            one
        };
        let before = of("False", "1 of 2", 2);
        assert!(counts_only(&before, &of("False", "2 of 3", 3)));
        assert!(!counts_only(&before, &of("True", "", 2)));
        let mut gone = before.clone();
        gone.nodes.gone = vec!["a".into()];
        assert!(!counts_only(&before, &gone));
    }
}
