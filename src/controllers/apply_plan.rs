//! Brings a cluster to a plan (IO): widens the inventory, applies wave after wave, prunes, narrows the inventory.
//!
//! In this order, so that at any moment all our objects are where the inventory lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::Client;
use serde_json::Value;

use crate::{
    apply::{
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

/// Applies plans.
pub(super) struct ApplyPlan {
    client: Client,
    own_namespace: String,
    set_id: String,
    pub(super) applier: Applier,
    /// Where our objects may be, as was last written; the live inventory may have been deleted since.
    scope: Scope,
    /// Objects that are not planned and stay, and why.
    kept: BTreeMap<Key, (&'static Kind, &'static str)>,
}

impl ApplyPlan {
    /// `set_id` marks our objects.
    pub(super) fn new(client: Client, own_namespace: &str, set_id: String, events: Events) -> Self {
        Self {
            applier: Applier::new(client.clone(), events, TRANSIENT_ERROR_PATIENCE),
            client,
            own_namespace: own_namespace.to_owned(),
            set_id,
            scope: Scope::default(),
            kept: BTreeMap::new(),
        }
    }

    /// Objects that the operator leaves alone or keeps, for people; empty when there are none.
    pub(super) fn remarks(&self) -> String {
        let mut text = String::new();
        if !self.applier.skipped().is_empty() {
            let names: Vec<_> = self.applier.skipped().iter().map(Key::to_string).collect();
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

    /// Where our objects may be, as was written and as the live inventory has it.
    pub(super) fn inventory(&self, observer: &Observer) -> Scope {
        observer.inventory().map(Scope::read).unwrap_or_default().union(&self.scope)
    }

    /// Brings the cluster to the plan, as far as it is not there. `may_prune`: the plan is that of the present
    /// input; `budget` returns how long the next write may take.
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
        self.applier.forget_skipped(objects);
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            let live = wave.iter().map(|object| (object, observer.live(object)));
            let (written, applied) = self.applier.apply(live, &budget).await;
            for (object, live) in written {
                let place = wave.iter().find(|planned| planned.key() == object).map(Place::of);
                if let Some(place) = place {
                    observer.watches.put(&Id::Ours(place), &object.name, live);
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

    /// Deletes what is ours and no longer planned, the last applied first.
    async fn prune(
        &mut self,
        observer: &mut Observer,
        objects: &[Object],
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        let verdicts: Vec<_> = verdicts(observer, objects, &self.set_id)
            .into_iter()
            .map(|(place, live, verdict)| (place.clone(), live.clone(), verdict))
            .collect();
        let mut kept = BTreeMap::new();
        for (place, live, verdict) in &verdicts {
            let Verdict::Keep(why) = verdict else { continue };
            let key = write::key_of(place.kind, live);
            if !self.kept.contains_key(&key) {
                self.applier.record_kept(key.clone(), why, live);
            }
            kept.insert(key, (place.kind, *why));
        }
        self.kept = kept;
        for wave in verdicts.chunk_by(|(first, ..), (second, ..)| first.kind.wave == second.kind.wave) {
            let mut errors = Vec::new();
            for (place, live, _) in wave.iter().filter(|(.., verdict)| *verdict == Verdict::Prune) {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                // Other managers that recreate the object are held up as well.
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

    /// The places of the inventory in which something is planned or left, or that cannot be seen. Deleting a namespace deletes
    /// the right to look into it, too: its objects are gone.
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

/// Our objects that are not planned, with what becomes of each.
pub(super) fn verdicts<'a>(
    observer: &'a Observer,
    planned: &[Object],
    set_id: &str,
) -> Vec<(&'a Place, &'a Value, Verdict)> {
    let seen = observer.ours().flat_map(|(place, objects)| objects.map(move |object| (place, object)));
    inventory::verdicts(seen, planned, set_id)
}
