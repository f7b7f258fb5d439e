//! Brings a cluster to a plan (IO): widens the inventory, applies wave after wave, prunes, narrows the inventory.
//!
//! In this order, so that at any moment everything of ours is where the inventory says. Tells of each change once, in
//! the log and as an Event. What is planned, and what is said of it all, others decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use crate::cluster::request;
use crate::controllers::backoff::{Backoff, Brake};
use crate::{
    apply::{
        self, Pruned,
        change::{Action, Change},
        inventory::{self, Place, Scope, Verdict},
        ownership::{self, Need},
    },
    controllers::{events::Events, observer::Observer},
    object::{Key, Kind, Object},
    status::cluster_operator::TRANSIENT_ERROR_PATIENCE,
};

/// How many objects of a wave are applied at once; over HTTP/1.1 each needs a connection of its own.
const CONCURRENCY: usize = 4;

/// Why a cluster is not as planned.
pub(super) enum Stopped {
    /// An error that has not lasted long enough to be reported, or whose next try is not due.
    Retrying(String),
    /// An error that is to be reported.
    Failed(String),
}

/// What applies, and what it remembers from one pass to the next.
pub(super) struct Applying {
    client: Client,
    own_namespace: String,
    set_id: String,
    events: Events,
    backoff: Backoff,
    brake: Brake,
    /// When an object may be repaired again that somebody keeps changing.
    brake_until: Option<Instant>,
    /// Where our objects may be, as was last written; the live inventory may have been deleted since.
    scope: Scope,
    /// What is annotated to be left alone.
    skipped: BTreeSet<Key>,
    /// What is not planned and stays, and why.
    kept: BTreeMap<Key, (&'static Kind, &'static str)>,
}

impl Applying {
    /// One that has applied nothing yet; `set_id` marks our objects.
    pub(super) fn new(client: Client, own_namespace: &str, set_id: String, events: Events) -> Self {
        Self {
            events,
            client,
            own_namespace: own_namespace.to_owned(),
            set_id,
            backoff: Backoff::default(),
            brake: Brake::default(),
            brake_until: None,
            scope: Scope::default(),
            skipped: BTreeSet::new(),
            kept: BTreeMap::new(),
        }
    }

    /// The id that marks our objects.
    pub(super) fn set_id(&self) -> &str {
        &self.set_id
    }

    /// What has failed may have failed because of the old plan; and what is written now puts nothing back.
    pub(super) fn replanned(&mut self) {
        self.backoff = Backoff::default();
        self.brake = Brake::default();
    }

    /// When it is to act again, if nothing happens before.
    pub(super) fn due(&self) -> [Option<Instant>; 2] {
        [self.backoff.due(), self.brake_until]
    }

    /// Watches what is planned, and what the inventory lists besides. Without a plan nothing is pruned, so that nothing is
    /// watched for it; the inventory stays as it is until there is one.
    pub(super) fn follow(&self, observer: &mut Observer, objects: &[Object]) {
        let inventory = if objects.is_empty() { Scope::default() } else { self.inventory(observer) };
        observer.follow(&Scope::of(objects), &inventory);
    }

    /// What an administrator has taken out of the operator's hands, in words; empty when there is nothing.
    pub(super) fn remarks(&self) -> String {
        let mut text = String::new();
        if !self.skipped.is_empty() {
            let names: Vec<_> = self.skipped.iter().map(Key::to_string).collect();
            text = format!("; left alone, as annotated: {}", names.join(", "));
        }
        if !self.kept.is_empty() {
            let names: Vec<_> = self.kept.iter().map(|(key, (_, why))| format!("{key} ({why})")).collect();
            text = format!("{text}; no longer needed and kept: {}", names.join(", "));
        }
        text
    }

    /// The objects that are not planned and stay.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.kept.iter().map(|(key, (kind, _))| (*kind, key))
    }

    /// Brings the cluster to the plan, as far as it is not there. `may_prune` says that the plan is that of the present
    /// input; `budget` is asked before each write how long it may take.
    pub(super) async fn act(
        &mut self,
        observer: &mut Observer,
        objects: &[Object],
        may_prune: bool,
        budget: impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        if let Some(error) = self.backoff.waits(Instant::now()) {
            return Err(Stopped::Retrying(error.to_owned()));
        }
        self.brake_until = None;
        let planned = Scope::of(objects);
        let wider = planned.union(&self.inventory(observer));
        self.write_inventory(observer, wider, &budget).await?;
        self.skipped.retain(|key| objects.iter().any(|object| object.key() == *key));
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            self.apply_wave(observer, wave, &budget).await?;
        }
        // Not all is applied while the brake holds something back.
        if may_prune && self.brake_until.is_none() && !objects.is_empty() && !observer.awaits_leftovers() {
            self.prune(observer, objects, &budget).await?;
            let narrower = self.needed(observer, &planned).await;
            self.write_inventory(observer, narrower, &budget).await?;
        }
        self.backoff = Backoff::default();
        Ok(())
    }

    async fn apply_wave(
        &mut self,
        observer: &mut Observer,
        wave: &[Object],
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        let mut due = Vec::new();
        for object in wave {
            if let Some(need) = self.need(observer, object) {
                due.push((object, observer.live(object).map(|live| (live, need))));
            }
        }
        let client = &self.client;
        let answers: Vec<_> = stream::iter(due)
            .map(|(object, live)| async move { (object, apply::apply(client, object, live, budget).await) })
            // In order, so that of two errors it is always the same that is told.
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let mut errors = Vec::new();
        for (object, answer) in answers {
            match answer {
                Ok(applied) => {
                    if applied.change.action != Action::Unchanged {
                        info!("{}", applied.change);
                        self.events.tell(&applied.change, &applied.live, None);
                    }
                    observer.put(&Place::of(object), object.name(), applied.live);
                }
                Err(error) => {
                    let live = observer.live(object).unwrap_or(object.value());
                    self.tell_failure(&error, live);
                    errors.push(error);
                }
            }
        }
        // Siblings of a failed object were applied; what comes after the wave has to wait.
        self.stop_at(&errors)
    }

    /// What an object needs now; `None` when it is as planned, or must not be written now.
    fn need(&mut self, observer: &Observer, object: &Object) -> Option<Need> {
        let live = observer.live(object);
        if let Some(live) = live.filter(|live| inventory::is_left_alone(live)) {
            if self.skipped.insert(object.key()) {
                let change = Change::plain(object.key(), Action::Skipped);
                warn!("{change}: it is annotated to be left alone");
                self.events.tell(&change, live, Some("it is annotated to be left alone"));
            }
            return None;
        }
        self.skipped.remove(&object.key());
        let need = live.map_or(Need::Apply, |live| ownership::need(object.value(), live));
        if need == Need::Nothing {
            return None;
        }
        let Err(free) = self.brake.repair(object.key(), Instant::now()) else { return Some(need) };
        let who = live.and_then(ownership::last_foreign_manager).unwrap_or("somebody");
        if self.brake_until.is_none() {
            warn!("{who} keeps changing {}: it is repaired twice a second at most", object.key());
        }
        self.hold_until(free);
        None
    }

    /// Deletes what is ours and no longer planned, the last applied first.
    async fn prune(
        &mut self,
        observer: &mut Observer,
        objects: &[Object],
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        let seen = observer.ours().flat_map(|(place, objects)| objects.map(move |object| (place, object)));
        let verdicts: Vec<_> = inventory::verdicts(seen, objects, &self.set_id)
            .into_iter()
            .map(|(place, live, verdict)| (place.clone(), live.clone(), verdict))
            .collect();
        let mut kept = BTreeMap::new();
        for (place, live, verdict) in &verdicts {
            let Verdict::Keep(why) = verdict else { continue };
            let key = apply::key_of(place.kind, live);
            if !self.kept.contains_key(&key) {
                let change = Change::plain(key.clone(), Action::Kept);
                warn!("{change}: {why}");
                self.events.tell(&change, live, Some(why));
            }
            kept.insert(key, (place.kind, *why));
        }
        self.kept = kept;
        for wave in verdicts.chunk_by(|(first, ..), (second, ..)| first.kind.wave == second.kind.wave) {
            let mut errors = Vec::new();
            for (place, live, _) in wave.iter().filter(|(.., verdict)| *verdict == Verdict::Prune) {
                let key = apply::key_of(place.kind, live);
                // Who makes again what is deleted is held up as well.
                if let Err(free) = self.brake.repair(key.clone(), Instant::now()) {
                    self.hold_until(free);
                    continue;
                }
                match apply::prune(&self.client, place.kind, live, budget()).await {
                    Ok(Pruned::Absent) => observer.forget(place, &key.name),
                    Ok(pruned) => {
                        let change = Change::plain(key, Action::Pruned);
                        info!("{change}");
                        self.events.tell(&change, live, Some("it is no longer needed"));
                        match pruned {
                            Pruned::Going(live) => observer.put(place, &change.object.name, live),
                            _ => observer.forget(place, &change.object.name),
                        }
                    }
                    Err(error) => {
                        self.tell_failure(&error, live);
                        errors.push(error);
                    }
                }
            }
            self.stop_at(&errors)?;
        }
        Ok(())
    }

    /// Where our objects may be, by what was written and by what is there.
    fn inventory(&self, observer: &Observer) -> Scope {
        observer.inventory().map(Scope::read).unwrap_or_default().union(&self.scope)
    }

    /// The places of the inventory in which something is planned or left, or that cannot be seen. Who deletes a namespace
    /// deletes the right to look into it, too: what was in there is gone.
    async fn needed(&self, observer: &Observer, planned: &Scope) -> Scope {
        let mut gone = BTreeSet::new();
        for namespace in observer.troubled_leftovers() {
            if request::is_namespace_gone(&self.client, &namespace).await {
                gone.insert(namespace);
            }
        }
        let empty: BTreeSet<&Place> =
            observer.ours().filter_map(|(place, mut objects)| objects.next().is_none().then_some(place)).collect();
        self.scope.only(|place| planned.contains(place) || !(empty.contains(place) || gone.contains(&place.namespace)))
    }

    async fn write_inventory(
        &mut self,
        observer: &mut Observer,
        scope: Scope,
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        let config_map = scope.config_map(&self.own_namespace);
        let live = observer.inventory();
        if live.is_some_and(|live| inventory::says(live, &config_map)) {
            self.scope = scope;
            return Ok(());
        }
        match apply::write_inventory(&self.client, config_map, live, budget()).await {
            Ok(written) => {
                observer.put_inventory(written);
                self.scope = scope;
                Ok(())
            }
            Err(error) => self.stop_at(&[error]),
        }
    }

    fn tell_failure(&self, error: &apply::Error, object: &Value) {
        let change = Change::plain(error.object.clone(), Action::Failed);
        self.events.tell(&change, object, Some(&crate::error::chain(error)));
    }

    /// Stops when there are errors: the first terminal one is told, else the first.
    fn stop_at(&mut self, errors: &[apply::Error]) -> Result<(), Stopped> {
        let Some(error) = errors.iter().find(|error| error.source.is_terminal()).or(errors.first()) else {
            return Ok(());
        };
        let text = crate::error::chain(error);
        let is_terminal = error.source.is_terminal();
        let asked = errors.iter().map(|error| error.retry_after()).max().unwrap_or_default();
        let now = Instant::now();
        // Also what is refused for good is tried again: the operator's rights may change, or the object.
        if self.backoff.failed(&text, asked, now) && !is_terminal {
            warn!("{text}; trying again");
        }
        let is_reported = self.backoff.has_lasted(error.source.patience(TRANSIENT_ERROR_PATIENCE), now);
        Err(if is_reported { Stopped::Failed(text) } else { Stopped::Retrying(text) })
    }

    fn hold_until(&mut self, free: Instant) {
        self.brake_until = Some(self.brake_until.map_or(free, |until| until.min(free)));
    }
}
