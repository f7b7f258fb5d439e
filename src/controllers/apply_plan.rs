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
    cluster::{read, request},
    controllers::{
        applier::{Applier, Stopped},
        events::Events,
        observer::{Id, Observer},
    },
    object::{Key, Kind, Object, reference::CONFIG_MAP},
    status::cluster_operator::TRANSIENT_ERROR_PATIENCE,
};

pub(super) struct ApplyPlan {
    client: Client,
    own_namespace: String,
    pub(super) applier: Applier,
    /// The inventory as last written; the live one may have been deleted since.
    scope: Scope,
    /// Whether nobody has ever installed anything; `None` until the first pass.
    is_fresh: Option<bool>,
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
            is_fresh: None,
            kept: BTreeMap::new(),
        }
    }

    /// The objects that the operator leaves alone or keeps, for people; empty if there are none.
    pub(super) fn remarks(&self) -> String {
        let remark = |title, names: Vec<_>| {
            if names.is_empty() { String::new() } else { format!("; {title}: {}", names.join(", ")) }
        };
        let skipped = self.applier.skipped().map(Key::to_string).collect();
        let kept = self.kept.iter().map(|(key, (_, why))| format!("{key} ({why})")).collect();
        let overruled =
            self.applier.overruled().map(|(key, fields)| format!("{key} ({})", fields.join(", "))).collect();
        let contested = self.applier.contested().iter().map(|(key, who)| format!("{key} ({who})")).collect();
        remark("left alone, as annotated", skipped)
            + &remark("no longer needed and kept", kept)
            + &remark("changed by the API server or an admission plugin when applied", overruled)
            + &remark("repaired less often, because others keep changing them", contested)
    }

    /// The error of objects that the API server has changed so that they do not do what is planned.
    pub(super) fn overruled(&self) -> Option<String> {
        let mut errors = self.applier.overruled().filter_map(|(key, fields)| {
            let serious: Vec<_> = fields.iter().filter(|field| is_serious(field)).map(String::as_str).collect();
            (!serious.is_empty()).then(|| format!("{key}: {}", serious.join(", ")))
        });
        let first = errors.next()?;
        let all = errors.fold(first, |all, error| format!("{all}; {error}"));
        Some(format!("the API server or an admission plugin changes objects when they are applied: {all}"))
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.kept.iter().map(|(key, (kind, _))| (*kind, key))
    }

    /// Where our objects may be: the last written and the live inventory.
    pub(super) fn inventory(&self, observer: &Observer) -> Scope {
        observer.scope().union(&self.scope)
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
        if self.is_fresh.is_none() {
            self.is_fresh = Some(self.find_fresh(observer, objects).await);
        }
        self.applier.looks = self.is_fresh == Some(false);
        let planned = Scope::of(objects);
        let wider = planned.union(&self.inventory(observer));
        self.write_inventory(observer, wider, &budget).await?;
        self.applier.keep_only(objects);
        let mut may_create = true;
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            let live = wave.iter().map(|object| (object, observer.live(object)));
            let written = self.applier.apply(live.filter(|(_, live)| may_create || live.is_some()), &budget).await;
            for (key, live) in written {
                if let Some(object) = wave.iter().find(|object| object.key() == key) {
                    observer.watches.put(&Id::Ours(Place::of(object)), &key.name, live);
                }
            }
            if self.applier.server_fails() {
                break;
            }
            // Without their accounts and rights new workloads would only fail.
            let is_missing = |object: &Object| object.kind().is_identity() && observer.live(object).is_none();
            may_create &= !(self.applier.has_failed() && wave.iter().any(is_missing));
        }
        // Not everything is applied while repairs are held back.
        let is_applied = !self.applier.has_failed() && !self.applier.holds_back();
        if may_prune && is_applied && !objects.is_empty() && !observer.awaits_leftovers() {
            self.prune(observer, objects, &budget).await;
            if !self.applier.has_failed() {
                let narrower = self.needed(observer, &planned).await;
                self.write_inventory(observer, narrower, &budget).await?;
            }
        }
        if is_applied {
            self.is_fresh = Some(false);
        }
        self.applier.finish()
    }

    /// Whether nobody has ever installed anything: then it is not looked for each object whether others have it. One request
    /// tells, for the object that everything else is for.
    async fn find_fresh(&self, observer: &Observer, objects: &[Object]) -> bool {
        if observer.inventory().is_some() || observer.has_report() {
            return false;
        }
        match objects.iter().find(|object| object.pod_spec().is_some()) {
            Some(workload) => matches!(read::live(&self.client, workload).await, Ok(None)),
            None => true,
        }
    }

    /// Deletes our objects that are no longer planned, the last applied first.
    async fn prune(&mut self, observer: &mut Observer, objects: &[Object], budget: &impl Fn() -> Option<Duration>) {
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
            for (place, live, _) in wave.iter().filter(|(.., verdict)| *verdict == Verdict::Prune) {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                // Limited as well: another manager may recreate the object each time.
                if !self.applier.may_repair(write::key_of(place.kind, live)) {
                    continue;
                }
                match self.applier.delete((place.kind, live), "it is no longer needed", budget).await {
                    Some(Pruned::Terminating(live)) => observer.watches.put(&Id::Ours(place.clone()), name, live),
                    Some(Pruned::Gone | Pruned::Absent) => observer.watches.forget(&Id::Ours(place.clone()), name),
                    None => {}
                }
            }
            if self.applier.has_failed() {
                return;
            }
        }
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
            let key = write::key_of(&CONFIG_MAP, &config_map);
            if !self.applier.is_due(&key) {
                return self.applier.finish();
            }
            // What is written by this process is known to it: another writer of the same object is no reason to hold back the rest.
            if self.scope == scope && !self.applier.may_repair_again(key, live, false) {
                return Ok(());
            }
            match write::write_inventory(&self.client, &config_map, live, budget()).await {
                Ok(written) => observer.watches.put(&Id::Inventory, inventory::NAME, written),
                Err(error) => {
                    self.applier.fail(&error, live.unwrap_or(&config_map));
                    return self.applier.finish();
                }
            }
        }
        self.scope = scope;
        Ok(())
    }
}

/// Whether a field decides what runs, or with which rights.
fn is_serious(field: &str) -> bool {
    let names = ["image", "command", "args", "env", "serviceAccountName", "roleRef", "subjects", "rules"];
    field.split(['.', '[']).any(|part| names.contains(&part))
}
