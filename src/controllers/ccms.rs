//! The fleet of all `CloudControllerManager`s (IO): keeps their objects as planned, and reports to each.
//!
//! All these objects are one set, with one inventory and one watch for each kind and namespace. A problem of one
//! `CloudControllerManager` is reported there, and does not affect the objects of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;

use crate::{
    apply::inventory::{Inventory, Location},
    cluster::seen::Seen,
    controllers::{
        Pass,
        background::Background,
        backoff::Debounce,
        engine::Fleet,
        executor::Executor,
        failures::PassError,
        observer::{Id, InputKind, Observer},
        view::View,
    },
    facts::{cluster::Cluster, version::Minor},
    grace::TRANSIENT_ERROR_GRACE,
    object::{KUBE_SYSTEM, Object},
    plan::{kubernetes::sources, only_restarts},
    process::leadership::Authority,
    provider::kubernetes::INSTANCE_LABEL,
};
use guard::{Grants, Withheld};
use member::Member;
use version_reader::VersionReader;

mod act;
mod change;
mod first_installation;
mod guard;
mod member;
mod missing_fields;
mod report;
mod stage;
mod version_reader;
mod write;

pub(super) struct KubernetesFleet {
    authority: Authority,
    executor: Executor,
    /// Every `CloudControllerManager`, by name.
    members: BTreeMap<String, Member>,
    cluster: Option<Cluster>,
    version_reader: VersionReader,
    /// The objects in force, in the order of application.
    objects: Vec<Object>,
    /// Delays planning until the ConfigMaps and Secrets that pods mount stop changing.
    debounce: Debounce,
    /// The number of changes of the ConfigMaps and Secrets that pods mount.
    revision: u64,
    /// The nodes that may be deleted now, according to the live roles.
    grants: Grants,
    /// The policies that the operator is not allowed to write.
    withheld: Withheld,
    /// The reads of the cluster before a first installation.
    pub(super) snapshots: Background<first_installation::SnapshotResult>,
}

/// The namespace that `CloudControllerManager`s may name if the command line gives none.
const DEFAULT_CCM_NAMESPACE: &str = KUBE_SYSTEM;

impl Fleet for KubernetesFleet {
    type Acted = Result<(), PassError>;

    fn authority(&self) -> &Authority {
        &self.authority
    }

    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        view.target.observer.watch_refused_deletions();
        // Watched from the start, so that a granted permission is withdrawn even if nothing else has been seen.
        if view.settings.node_deletion {
            view.target.observer.watch_location(&guard::location());
        }
        // A standby also updates the grants, because it must know recent grants when it takes over.
        self.grants.update(&view.target.observer);
        view.target.count_nodes();
        let watches = &view.target.observer.watches;
        pass.due.extend(watches.problem_lasts_at(TRANSIENT_ERROR_GRACE));
        let mut pending = watches.pending(is_common);
        if pending.is_empty() {
            pending.extend(self.observe_cluster(view).await.err());
        }
        pass.due.extend(self.version_reader.due(self.cluster.as_ref()));
        pending
    }

    fn plan(&mut self, view: &mut View, _: &mut Pass) {
        self.members.values_mut().for_each(|member| member.reconsider_refusal(&view.target));
        self.replan(view);
        self.members.values_mut().for_each(|member| member.decide_change(&view.target));
    }

    async fn guard(&mut self, view: &mut View, pass: &mut Pass) {
        self.guard_nodes(view, pass).await;
    }

    fn assemble(&mut self) {
        let mut objects = self.confirmed_objects();
        objects.sort_by_key(|object| object.kind().wave_after_roles());
        if objects == self.objects {
            return;
        }
        let before = std::mem::replace(&mut self.objects, objects);
        let changed = |object: &&Object| !before.contains(object);
        let changed: BTreeSet<_> = self.objects.iter().filter(changed).map(Object::key).collect();
        if let Some(applier) = self.executor.applier_mut() {
            applier.replanned_some(&changed, only_restarts(&self.objects, &before));
        }
    }

    /// Watches our objects in the planned locations and in those that the inventory lists. A location that has not been seen delays only
    /// its own objects.
    fn watch_objects(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        let roles = view.settings.node_deletion.then(guard::location);
        let leftovers = self.leftovers(&view.target.observer).union(&roles.into_iter().collect());
        // The running workload has to be seen before a change is accepted.
        let planned = self.members.values().map(Member::locations);
        let planned = planned.fold(Inventory::of(&self.objects), |all, one| all.union(&one));
        view.target.observer.watch_objects(&planned, &leftovers);
        pass.due.extend(self.debounce.due());
        Vec::new()
    }

    /// A watch that keeps failing may hide changes, even if it has delivered before.
    fn lasting_problem(&self, view: &View, pass: &mut Pass) -> Option<String> {
        let watches = &view.target.observer.watches;
        pass.retrying.extend(watches.lasting_problem(TRANSIENT_ERROR_GRACE, |id| !is_common(id)));
        watches.lasting_problem(TRANSIENT_ERROR_GRACE, is_common)
    }

    async fn report_pending(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass) {
        pass.waiting.extend(pending);
        self.withdraw_all_grants(view).await;
        if let Some(error) = pass.watch_problem.clone().or_else(|| self.version_reader.lasting_problem()) {
            self.report_to_all(view, &error, pass).await;
        }
    }

    async fn act(&mut self, view: &mut View, pass: &mut Pass) -> Option<Result<(), PassError>> {
        // The guard withdraws before it asks the API server, whose answers may confirm fewer nodes.
        self.withdraw_grants(view).await;
        self.check_first_installations(view, pass);
        let acted = self.apply(view).await;
        // The next pass checks the nodes before it writes more.
        if self.executor.applier().is_some_and(|applier| applier.has_reached_limit) {
            pass.due.push(Instant::now());
            return None;
        }
        Some(acted)
    }

    async fn report(&mut self, view: &mut View, acted: Result<(), PassError>, pass: &mut Pass) {
        pass.due.extend(self.grants.due());
        for member in self.members.values_mut() {
            pass.due.extend(member.see_guard(&view.target.observer).then(Instant::now));
        }
        let identities: Vec<_> = self.members.values().flat_map(Member::initializes).cloned().collect();
        pass.due.extend(self.executor.diagnose(&mut view.target, &identities));
        self.report_to_each(view, &acted, pass).await;
        let is_well = self.members.values().all(Member::is_well);
        self.executor.conclude(pass, acted.is_ok() && is_well);
        pass.retrying.extend(acted.err().map(|stopped| stopped.error));
    }
}

impl KubernetesFleet {
    pub(super) fn new(authority: Authority, executor: Executor) -> Self {
        Self {
            authority,
            executor,
            members: BTreeMap::new(),
            cluster: None,
            version_reader: VersionReader::default(),
            objects: Vec::new(),
            debounce: Debounce::default(),
            revision: 0,
            grants: Grants::default(),
            withheld: Withheld::default(),
            snapshots: Background::default(),
        }
    }

    /// Determines the version and the distribution of the cluster, which all plans depend on.
    async fn observe_cluster(&mut self, view: &mut View) -> Result<(), String> {
        let control_plane = &view.target.node_counts.control_plane;
        let mut cluster = Cluster::of(control_plane, None);
        if cluster.is_none() {
            let asked = self.version_reader.ask(&view.target.client, || reported_version(&view.target.observer)).await;
            cluster = self.version_reader.cluster(control_plane);
            if cluster.is_none() {
                asked?;
            }
        }
        let cluster = cluster.ok_or("the version of Kubernetes cannot be read from the nodes or the API server")?;
        view.publish_topology(cluster.control_plane_nodes == 1);
        if self.cluster.replace(cluster) != Some(cluster) {
            view.target.observer.mark_changed(InputKind::Ccms);
        }
        Ok(())
    }

    fn replan(&mut self, view: &mut View) {
        let Some(cluster) = self.cluster else { return };
        let catalog_changed = view.take_catalog_change();
        if catalog_changed {
            self.members.values_mut().for_each(Member::forget_spec);
        }
        let ccms_changed = view.target.observer.take_change(InputKind::Ccms) || catalog_changed;
        if ccms_changed {
            self.read(view, cluster);
        }
        self.revision += u64::from(view.target.observer.take_change(InputKind::NamedObjects));
        let are_validated = self.members.values().all(|member| member.validation().is_some());
        // An excluded member may have waited for the change.
        let running_changed = self.update_running(&view.target.observer);
        if !ccms_changed && !running_changed && are_validated {
            let is_planned = self.debounce.is_planned(self.revision);
            // Each rollout may interrupt pods, so changes of mounted objects in quick succession become one.
            if is_planned || !self.debounce.is_quiet(self.revision, Instant::now()) {
                return;
            }
        }
        self.debounce.planned(self.revision);
        for member in self.members.values_mut() {
            member.validate(&view.catalog, &view.target.observer);
        }
        self.exclude_conflicts(&view.catalog);
    }

    /// Reads the `CloudControllerManager`s, and watches the ConfigMaps and Secrets that they name.
    fn read(&mut self, view: &mut View, cluster: Cluster) {
        let live: Vec<&Value> =
            view.target.observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects).collect();
        let name = |live: &Value| live["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<_> = live.iter().map(|live| name(live)).collect();
        self.members.retain(|name, _| names.contains(name));
        for live in live {
            let member = self.members.entry(name(live)).or_insert_with_key(|name| Member::new(name));
            member.read(live, cluster, &view.settings, &view.catalog);
        }
        let wanted = sources::checks(self.members.values().flat_map(Member::named));
        view.target.observer.want_sources(wanted);
    }

    /// Returns the locations that may contain our objects: those of the inventory and, because another client may have deleted it, those of
    /// the objects of removed members.
    fn leftovers(&self, observer: &Observer) -> Inventory {
        let removed = self.members.values().map(|member| Inventory::of(member.removed()));
        removed.fold(self.executor.inventory(observer), |inventory, removed| inventory.union(&removed))
    }
}

/// Returns the version of Kubernetes that an earlier process has reported.
fn reported_version(observer: &Observer) -> Option<Minor> {
    let mut live = observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects);
    live.find_map(|live| live["status"]["cluster"]["kubernetes"].as_str()?.parse().ok())
}

/// Whether all members depend on a watch.
fn is_common(id: &Id) -> bool {
    matches!(id, Id::Ccms | Id::Nodes | Id::Inventory)
}

/// Returns the name of the `CloudControllerManager` that owns an object.
fn owner(object: &Value) -> &str {
    object["metadata"]["labels"][INSTANCE_LABEL].as_str().unwrap_or_default()
}

/// The live objects of a member, each with its location.
fn live_of<'a>(observer: &'a Observer, name: &'a str) -> impl Iterator<Item = (&'a Location, &'a Value)> {
    let objects = observer.ours().flat_map(|(location, objects)| objects.map(move |object| (location, object)));
    objects.filter(move |(_, object)| owner(object) == name)
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::process::leadership::Leadership;

    impl KubernetesFleet {
        /// The fleet of a process that neither leads nor writes.
        pub(super) fn of_a_standby() -> Self {
            let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
            Self::new(Authority { leadership, shutdown }, Executor::dry_run())
        }
    }
}
