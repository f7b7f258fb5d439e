//! Applies a plan (IO): widens the inventory, applies wave after wave, prunes, narrows the inventory.
//!
//! In this order the inventory lists the locations of all our objects at any moment.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::Value;

use crate::{
    apply::{
        change::{Action, Change},
        inventory::{self, Inventory, Location, PruneDecision},
        steps::LiveState,
        write::{self, Pruned},
    },
    cluster::{
        read,
        request::{self, NO_DEADLINE},
    },
    controllers::{
        applier::Applier,
        events::Events,
        failures::PassError,
        observer::{Id, Observer},
        target::Target,
    },
    grace::TRANSIENT_ERROR_GRACE,
    nodes::guard::lists::REFRESH,
    object::{Key, Kind, NAMESPACE, Object, reference::CONFIG_MAP},
    plan::kubernetes::guard::{is_of_guard, is_policy},
    provider::restriction::{self, Account, is_restriction},
    text::list::first,
};

/// The objects that should exist. A failure of one owner does not block the objects of other owners.
#[derive(Clone, Copy)]
pub(super) struct DesiredObjects<'a> {
    /// The objects in the order of their waves.
    pub(super) objects: &'a [Object],
    /// The objects of a lower wave are applied before those of a higher one.
    pub(super) wave: fn(&Kind) -> u8,
    pub(super) owner: fn(&Value) -> &str,
    /// Whether an object that is no longer planned may be deleted, because the plan is based on the current inputs of its owner.
    pub(super) may_prune: &'a dyn Fn(&Value) -> bool,
    /// Whether objects that other clients have created are adopted.
    pub(super) adopts: bool,
    /// The external provider of the objects, on OpenShift.
    pub(super) external: Option<&'a str>,
}

impl DesiredObjects<'_> {
    /// Returns the owners of the chosen objects.
    pub(super) fn owners(
        objects: &[Object],
        owner: fn(&Value) -> &str,
        is_chosen: impl Fn(&Object) -> bool,
    ) -> BTreeSet<&str> {
        objects.iter().filter(|object| is_chosen(object)).map(|object| owner(object.value())).collect()
    }
}

const ACCOUNT: &str = "ServiceAccount";

/// The maximum number of objects that a remark names. Any client may label objects, so there may be many.
const MOST_NAMES: usize = 20;

pub(super) struct PlanApplier {
    own_namespace: String,
    pub(super) applier: Applier,
    /// The inventory as last written; the live one may have been deleted since.
    inventory: Inventory,
    /// Whether nothing was ever installed; `None` until the first pass.
    is_fresh: Option<bool>,
    /// The objects that are no longer planned and are kept, each with the reason.
    kept: BTreeMap<Key, (&'static Kind, &'static str)>,
    /// The time at which the policies that restrict an external provider were last written, by owner.
    restricted: BTreeMap<String, Instant>,
}

impl PlanApplier {
    pub(super) fn new(own_namespace: &str, events: Events) -> Self {
        Self {
            applier: Applier::new(events, TRANSIENT_ERROR_GRACE),
            own_namespace: own_namespace.to_owned(),
            inventory: Inventory::default(),
            is_fresh: None,
            kept: BTreeMap::new(),
            restricted: BTreeMap::new(),
        }
    }

    /// Returns the remarks for people about the objects that the operator leaves alone or keeps; empty if there are none.
    pub(super) fn remarks(&self, counts: impl Fn(&Key) -> bool) -> String {
        let remark = |title, names: Vec<String>| {
            if names.is_empty() { String::new() } else { format!("; {title}: {}", first(MOST_NAMES, names)) }
        };
        let skipped = self.applier.skipped.keys().filter(|key| counts(key)).map(Key::to_string).collect();
        let kept = self.kept.iter().filter(|(key, _)| counts(key));
        let kept = kept.map(|(key, (_, why))| format!("{key} ({why})")).collect();
        let overruled = self.applier.overruled().filter(|(key, _)| counts(key));
        let overruled = overruled.map(|(key, fields)| format!("{key} ({})", fields.join(", "))).collect();
        let contested = self.applier.contested.iter().filter(|(key, _)| counts(key));
        let contested = contested.map(|(key, who)| format!("{key} ({who})")).collect();
        remark("left alone, as annotated", skipped)
            + &remark("no longer needed and kept", kept)
            + &remark("changed by the API server or an admission plugin when applied", overruled)
            + &remark("repaired less often, because others keep changing them", contested)
    }

    /// Returns the error about these objects if the API server has changed one so that it no longer works as planned.
    pub(super) fn overruled(&self, counts: impl Fn(&Key) -> bool) -> Option<String> {
        let mut errors = self.applier.overruled().filter(|(key, _)| counts(key)).filter_map(|(key, fields)| {
            let serious: Vec<_> = fields.iter().filter(|field| is_serious(field)).map(String::as_str).collect();
            (!serious.is_empty()).then(|| format!("{key}: {}", serious.join(", ")))
        });
        let first = errors.next()?;
        let all = errors.fold(first, |all, error| format!("{all}; {error}"));
        Some(format!("the API server or an admission plugin changes objects when they are applied: {all}"))
    }

    /// Returns the times of the next `act`, even without a change: those of the applier, and those at which each API server enforces the
    /// last written policies.
    pub(super) fn due(&self) -> Vec<Instant> {
        let restricted = self.restricted.values().map(|written| *written + REFRESH);
        self.applier.due().into_iter().flatten().chain(restricted).collect()
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.kept.iter().map(|(key, (kind, _))| (*kind, key))
    }

    /// Returns the locations that may contain our objects: those of the last written inventory and of the live one.
    pub(super) fn inventory(&self, observer: &Observer) -> Inventory {
        observer.locations().union(&self.inventory)
    }

    /// Makes the cluster match the plan. `budget` returns the time limit of the next write.
    pub(super) async fn act(
        &mut self,
        target: &mut Target,
        desired: DesiredObjects<'_>,
        budget: impl Fn() -> Option<Duration>,
    ) -> Result<(), PassError> {
        let Target { client, observer, .. } = target;
        let objects = restricting(observer, desired.objects);
        let desired = DesiredObjects { objects: &objects, ..desired };
        let DesiredObjects { objects, owner, wave: wave_of, .. } = desired;
        self.applier.begin()?;
        self.applier.unseen = self.unseen((client, observer), desired).await;
        self.applier.adopts = desired.adopts;
        let planned = Inventory::of(objects);
        let wider = planned.union(&self.inventory(observer));
        // The inventory names the previous external provider until all its objects are deleted.
        let before = inventory::external_provider(observer.inventory()).map(str::to_owned);
        let external = before.as_deref().or(desired.external);
        self.write_inventory((client, observer), wider, external, &budget).await?;
        self.applier.keep_only(objects);
        let mut blocked: BTreeSet<&str> = BTreeSet::new();
        let mut unrestricted: BTreeSet<&str> = BTreeSet::new();
        self.restricted.retain(|_, written| written.elapsed() < REFRESH);
        for wave in objects.chunk_by(|first, second| wave_of(first.kind()) == wave_of(second.kind())) {
            let live = wave.iter().map(|object| (object, observer.live(object)));
            let may_write = |(object, live): &(&Object, Option<&Value>)| {
                let owner = owner(object.value());
                !unrestricted.contains(owner) && (live.is_some() || !blocked.contains(owner))
            };
            let written = self.applier.apply(client, live.filter(may_write), &budget).await;
            for (key, live) in written {
                if let Some(object) = wave.iter().find(|object| object.key() == key) {
                    if is_restriction(object.value()) && observer.live(object) != Some(&live) {
                        self.restricted.insert(owner(object.value()).to_owned(), Instant::now());
                    }
                    observer.put(&Id::Ours(Location::of(object)), &key.name, live);
                }
            }
            if self.applier.failures.is_servers() {
                break;
            }
            if self.applier.has_reached_limit {
                return self.applier.finish();
            }
            // New workloads would fail without their ServiceAccounts and permissions. They must not run without the policy that keeps them
            // from deleting nodes either, unless only the permission to write policies is withheld.
            let lacks_lock = |object: &Object| {
                let failure = self.applier.failures.of_object(&object.key());
                is_policy(object) && is_of_guard(object.value()) && failure.is_some_and(|stopped| !stopped.is_denied)
            };
            let is_missing = |object: &Object| {
                let is_needed = object.kind().is_prerequisite_of_pods() || lacks_lock(object);
                is_needed && observer.live(object).is_none()
            };
            let failed = DesiredObjects::owners(objects, owner, |object| self.applier.failures.has(&object.key()));
            // Without its policies, an external provider gets no further permissions and no other pods.
            unrestricted.extend(DesiredObjects::owners(wave, owner, |object| {
                let has_failed = self.applier.failures.has(&object.key()) || observer.live(object).is_none();
                is_restriction(object.value()) && has_failed && !self.applier.is_skipped(&object.key())
            }));
            // The same holds until each API server has read the policies.
            unrestricted.extend(DesiredObjects::owners(wave, owner, |object| {
                self.restricted.contains_key(owner(object.value()))
            }));
            blocked.extend(DesiredObjects::owners(wave, owner, is_missing).intersection(&failed));
        }
        // A held-back repair means that not everything is applied.
        let unsettled = DesiredObjects::owners(objects, owner, |object| {
            self.applier.is_unsettled(&object.key()) || self.restricted.contains_key(owner(object.value()))
        });
        if !self.applier.failures.is_servers() && !observer.is_awaiting_leftovers() {
            let may_prune = |live: &Value| !unsettled.contains(owner(live)) && (desired.may_prune)(live);
            self.prune((client, observer), DesiredObjects { may_prune: &may_prune, ..desired }, &budget).await;
            if self.applier.failures.is_empty() && unsettled.is_empty() && !self.applier.has_reached_limit {
                let narrower = self.needed((client, observer), &planned).await;
                self.write_inventory((client, observer), narrower, desired.external, &budget).await?;
            }
        }
        if self.applier.failures.is_empty() && unsettled.is_empty() {
            self.is_fresh = Some(false);
        }
        self.applier.finish()
    }

    /// Returns the assumed state of objects that no watch shows.
    async fn unseen(&mut self, of: (&Client, &Observer), desired: DesiredObjects<'_>) -> LiveState<'static> {
        if !desired.adopts {
            return LiveState::Unknown;
        }
        if self.is_fresh.is_none() {
            self.is_fresh = Some(find_fresh(of, desired.objects).await);
        }
        if self.is_fresh == Some(true) { LiveState::Absent } else { LiveState::Unknown }
    }

    /// Deletes our objects that are no longer planned, the last applied first.
    async fn prune(
        &mut self,
        (client, observer): (&Client, &mut Observer),
        desired: DesiredObjects<'_>,
        budget: &impl Fn() -> Option<Duration>,
    ) {
        let DesiredObjects { objects, owner, may_prune, .. } = desired;
        let prune_decisions = observer.prune_decisions(objects).into_iter();
        let prune_decisions: Vec<_> =
            prune_decisions.map(|(location, live, decision)| (location.clone(), live.clone(), decision)).collect();
        let mut kept = BTreeMap::new();
        for (location, live, decision) in &prune_decisions {
            let PruneDecision::Keep(why) = decision else { continue };
            let key = write::key_of(location.kind, live);
            if !self.kept.contains_key(&key) {
                self.applier.events.record(&Change::plain(key.clone(), Action::Keep).because(*why), live);
            }
            kept.insert(key, (location.kind, *why));
        }
        self.kept = kept;
        let mut failed = BTreeSet::new();
        for wave in prune_decisions.chunk_by(|(first, ..), (second, ..)| first.kind.wave == second.kind.wave) {
            let prunable = wave.iter().filter(|(_, live, decision)| {
                *decision == PruneDecision::Prune && may_prune(live) && !failed.contains(owner(live))
            });
            for (location, live, _) in prunable {
                let name = live["metadata"]["name"].as_str().unwrap_or_default();
                // The limit of repairs applies here as well, because another manager may recreate the object each time.
                if !(self.applier.may_write_more() && self.applier.may_repair(write::key_of(location.kind, live))) {
                    continue;
                }
                match self
                    .applier
                    .delete(client, (location.kind, live), (Action::Prune, "it is no longer needed"), budget)
                    .await
                {
                    Some(Pruned::Terminating(live)) => observer.put(&Id::Ours(location.clone()), name, live),
                    Some(Pruned::Gone | Pruned::Absent) => observer.watches.forget(&Id::Ours(location.clone()), name),
                    None => {}
                }
            }
            // Objects that use permissions are deleted before the permissions.
            let failures = &self.applier.failures;
            let has_failed = |(location, live, _): &&(Location, Value, PruneDecision)| {
                failures.has(&write::key_of(location.kind, live))
            };
            failed.extend(wave.iter().filter(has_failed).map(|(_, live, _)| owner(live)));
            if failures.is_servers() {
                return;
            }
        }
    }

    /// Returns the locations of the inventory that have planned or remaining objects, or that cannot be watched. Deleting a namespace also
    /// deletes the permission to watch it, but then its objects are deleted, too.
    async fn needed(&self, (client, observer): (&Client, &Observer), planned: &Inventory) -> Inventory {
        let mut gone = BTreeSet::new();
        for namespace in observer.unwatchable_leftovers() {
            let namespaces = request::api(client, &NAMESPACE, "");
            if request::send(NO_DEADLINE, namespaces.get(&namespace)).await.is_err_and(|cause| cause.is_absent()) {
                gone.insert(namespace);
            }
        }
        let empty: BTreeSet<&Location> = observer
            .ours()
            .filter_map(|(location, mut objects)| objects.next().is_none().then_some(location))
            .collect();
        self.inventory.only(|location| {
            planned.contains(location) || !(empty.contains(location) || gone.contains(&location.namespace))
        })
    }

    async fn write_inventory(
        &mut self,
        (client, observer): (&Client, &mut Observer),
        inventory: Inventory,
        external: Option<&str>,
        budget: &impl Fn() -> Option<Duration>,
    ) -> Result<(), PassError> {
        let live = observer.inventory();
        let config_map = inventory.config_map_of(&self.own_namespace, external, live);
        if !live.is_some_and(|live| inventory::matches(live, &config_map)) {
            let key = write::key_of(&CONFIG_MAP, &config_map);
            if !self.applier.is_due(&key) {
                return self.applier.finish();
            }
            // This process knows the inventory that it has written, so another writer of the ConfigMap is no reason to hold back the
            // rest.
            if self.inventory == inventory && !self.applier.may_repair_again(key, live, false) {
                return Ok(());
            }
            match write::write_inventory(client, &config_map, live, budget()).await {
                Ok(written) => observer.put(&Id::Inventory, inventory::NAME, written),
                Err(error) => {
                    self.applier.fail(&error, live.unwrap_or(&config_map));
                    return self.applier.finish();
                }
            }
        }
        self.inventory = inventory;
        Ok(())
    }
}

/// Whether nothing was ever installed. If so, the objects are not read before their first apply. One request, for the workload, is
/// sufficient.
async fn find_fresh((client, observer): (&Client, &Observer), objects: &[Object]) -> bool {
    if observer.inventory().is_some() || observer.has_report() {
        return false;
    }
    match objects.iter().find(|object| object.pod_spec().is_some()) {
        Some(workload) => matches!(read::live(client, workload).await, Ok(None)),
        None => true,
    }
}

/// Returns the objects, with policies for an external provider that also cover each former ServiceAccount that still exists. It keeps its
/// permissions and its pods until it is pruned.
fn restricting<'a>(observer: &Observer, objects: &'a [Object]) -> Cow<'a, [Object]> {
    if !objects.iter().any(|object| is_restriction(object.value())) {
        return Cow::Borrowed(objects);
    }
    let is_planned = |account: &Account| {
        let is_it = |object: &Object| {
            object.kind().kind == ACCOUNT && (object.namespace(), object.name()) == (&account.0, &account.1)
        };
        objects.iter().any(is_it)
    };
    let accounts = observer.ours().filter(|(location, _)| location.kind.kind == ACCOUNT);
    let left = accounts.flat_map(|(location, accounts)| {
        accounts.filter_map(|live| Some((location.namespace.clone(), live["metadata"]["name"].as_str()?.to_owned())))
    });
    let left: BTreeSet<Account> = left.filter(|account| !is_planned(account)).collect();
    if left.is_empty() {
        return Cow::Borrowed(objects);
    }
    let mut objects = objects.to_vec();
    for object in objects.iter_mut().filter(|object| is_restriction(object.value())) {
        if let Some(live) = observer.live(object) {
            restriction::keep(object, live, &left);
        }
    }
    Cow::Owned(objects)
}

/// Whether a field affects the running processes or their permissions.
fn is_serious(field: &str) -> bool {
    let names = ["image", "command", "args", "env", "serviceAccountName", "roleRef", "subjects", "rules"];
    field.split(['.', '[']).any(|part| names.contains(&part))
}
