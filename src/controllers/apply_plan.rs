//! Brings a cluster to a plan (IO): widens the inventory, applies wave after wave, prunes, narrows the inventory.
//!
//! This order guarantees that at any moment the inventory lists the places of all our objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::Client;

use crate::{
    apply::{
        change::{Action, Change},
        inventory::{self, Place, Scope, Verdict},
        write::{self, Pruned},
    },
    cluster::request,
    controllers::{
        applier::{Applier, Stopped},
        events::Events,
        observer::{Id, Observer},
    },
    object::{Key, Kind, Object},
    status::cluster_operator::TRANSIENT_ERROR_PATIENCE,
};

pub(super) struct ApplyPlan {
    client: Client,
    own_namespace: String,
    pub(super) applier: Applier,
    /// The inventory as last written; the live one may have been deleted since.
    scope: Scope,
    /// Objects that are no longer planned and stay, and why.
    kept: BTreeMap<Key, (&'static Kind, &'static str)>,
}

impl ApplyPlan {
    pub(super) fn new(client: Client, own_namespace: &str, events: Events) -> Self {
        Self {
            applier: Applier::new(client.clone(), events, TRANSIENT_ERROR_PATIENCE),
            client,
            own_namespace: own_namespace.to_owned(),
            scope: Scope::default(),
            kept: BTreeMap::new(),
        }
    }

    /// The objects that the operator leaves alone or keeps, for people; empty if there are none.
    pub(super) fn remarks(&self) -> String {
        let remark = |title, names: Vec<_>| {
            if names.is_empty() { String::new() } else { format!("; {title}: {}", names.join(", ")) }
        };
        let skipped = self.applier.skipped.iter().map(Key::to_string).collect();
        let kept = self.kept.iter().map(|(key, (_, why))| format!("{key} ({why})")).collect();
        remark("left alone, as annotated", skipped) + &remark("no longer needed and kept", kept)
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.kept.iter().map(|(key, (kind, _))| (*kind, key))
    }

    /// Where our objects may be: the last written and the live inventory.
    pub(super) fn inventory(&self, observer: &Observer) -> Scope {
        observer.inventory().map(Scope::read).unwrap_or_default().union(&self.scope)
    }

    /// Brings the cluster to the plan. `may_prune`: the plan was made from the current input; `budget` returns how long the
    /// next write may take.
    pub(super) async fn act(
        &mut self,
        observer: &mut Observer,
        objects: &[Object],
        may_prune: bool,
        budget: impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        self.applier.begin()?;
        let planned = Scope::of(objects);
        let wider = planned.union(&self.inventory(observer));
        self.write_inventory(observer, wider, &budget).await?;
        self.applier.skipped.retain(|key| objects.iter().any(|object| object.key() == *key));
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            let live = wave.iter().map(|object| (object, observer.live(object)));
            let (written, applied) = self.applier.apply(live, &budget).await;
            for (key, live) in written {
                if let Some(object) = wave.iter().find(|object| object.key() == key) {
                    observer.watches.put(&Id::Ours(Place::of(object)), &key.name, live);
                }
            }
            // Later waves have to wait.
            applied?;
        }
        // Not everything is applied while repairs are held back.
        if may_prune && !self.applier.holds_back() && !objects.is_empty() && !observer.awaits_leftovers() {
            self.prune(observer, objects, &budget).await?;
            let narrower = self.needed(observer, &planned).await;
            self.write_inventory(observer, narrower, &budget).await?;
        }
        self.applier.succeeded();
        Ok(())
    }

    /// Deletes our objects that are no longer planned, the last applied first.
    async fn prune(
        &mut self,
        observer: &mut Observer,
        objects: &[Object],
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        let verdicts = observer.verdicts(objects).into_iter();
        let verdicts: Vec<_> = verdicts.map(|(place, live, verdict)| (place.clone(), live.clone(), verdict)).collect();
        let mut kept = BTreeMap::new();
        for (place, live, verdict) in &verdicts {
            let Verdict::Keep(why) = verdict else { continue };
            let key = write::key_of(place.kind, live);
            if !self.kept.contains_key(&key) {
                self.applier.events.record(&Change::plain(key.clone(), Action::Keep).because(*why), live);
            }
            kept.insert(key, (place.kind, *why));
        }
        self.kept = kept;
        for wave in verdicts.chunk_by(|(first, ..), (second, ..)| first.kind.wave == second.kind.wave) {
            let mut errors = Vec::new();
            for (place, live, _) in wave.iter().filter(|(.., verdict)| *verdict == Verdict::Prune) {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                // Limited as well: another manager may recreate the object each time.
                if !self.applier.may_repair(write::key_of(place.kind, live)) {
                    continue;
                }
                match self.applier.delete((place.kind, live), "it is no longer needed", budget).await {
                    Ok(Pruned::Terminating(live)) => observer.watches.put(&Id::Ours(place.clone()), name, live),
                    Ok(Pruned::Gone | Pruned::Absent) => observer.watches.forget(&Id::Ours(place.clone()), name),
                    Err(error) => errors.push(error),
                }
            }
            self.applier.stop_at(&errors)?;
        }
        Ok(())
    }

    /// The places of the inventory in which objects are planned or left, or that cannot be watched. Deleting a namespace
    /// also deletes the right to watch it, but then its objects are gone.
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
        if !live.is_some_and(|live| inventory::matches(live, &config_map)) {
            match write::write_inventory(&self.client, config_map, live, budget()).await {
                Ok(written) => observer.watches.put(&Id::Inventory, inventory::NAME, written),
                Err(error) => return self.applier.stop_at(&[error]),
            }
        }
        self.scope = scope;
        Ok(())
    }
}
