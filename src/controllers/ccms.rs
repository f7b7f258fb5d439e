//! Keeps the objects of all `CloudControllerManager`s as planned (IO), and reports to each.
//!
//! All these objects are one set, with one inventory and one watch for each kind and namespace. A problem of one
//! `CloudControllerManager` is reported there, and does not affect the objects of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use serde_json::Value;

use crate::{
    apply::inventory::Inventory,
    cluster::seen::Seen,
    controllers::{
        Pass,
        background::Background,
        backoff::Changes,
        engine::Fleet,
        executor::Executor,
        failures::Stopped,
        observer::{Id, Observer},
        view::View,
    },
    facts::{cluster::Cluster, version::Minor},
    grace::TRANSIENT_ERROR_GRACE,
    object::{Object, PART_OF_LABEL},
    plan::{kubernetes::sources, only_restarts},
    process::leadership::Authority,
    provider::kubernetes::INSTANCE_LABEL,
};
use act::wave;
use api_server::ApiServer;
use guard::{Grants, Withheld};
use member::Member;

mod act;
mod api_server;
mod change;
mod definition;
mod first;
mod guard;
mod member;
mod report;
mod write;

pub(super) struct Ccms {
    authority: Authority,
    executor: Executor,
    /// Every `CloudControllerManager`, by name.
    fleet: BTreeMap<String, Member>,
    cluster: Option<Cluster>,
    api_server: ApiServer,
    /// The objects in force, in the order of applying.
    objects: Vec<Object>,
    /// The changes of what pods mount that are not planned for yet.
    changes: Changes,
    /// How often what pods mount has changed.
    revision: u64,
    planned_revision: u64,
    /// The nodes that may be deleted now, by the live roles.
    grants: Grants,
    /// The policies that the operator may not keep.
    withheld: Withheld,
    /// What is asked before a first installation.
    pub(super) snapshots: Background<first::Answer>,
}

/// Where `CloudControllerManager`s may be unless namespaces are given.
const DEFAULT_NAMESPACE: &str = "kube-system";

impl Fleet for Ccms {
    type Acted = Result<(), Stopped>;

    fn authority(&self) -> &Authority {
        &self.authority
    }

    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        view.target.observer.watch_deletions();
        // From the start: what is granted is taken back even if nothing else is seen.
        if self.executor.writes() && view.settings.node_deletion {
            view.target.observer.watch_location(&guard::location());
        }
        // A standby as well: if it takes over, it has to know what was granted a moment ago.
        self.grants.see(&view.target.observer);
        view.target.count_nodes();
        let watches = &view.target.observer.watches;
        pass.due.extend(watches.problem_lasts_at(TRANSIENT_ERROR_GRACE));
        // A watch that keeps failing leaves this process blind, even if it has delivered before.
        let is_other = |id: &Id| !is_common(id);
        pass.waiting.extend(watches.lasting_problem(TRANSIENT_ERROR_GRACE, is_common));
        pass.retrying.extend(watches.lasting_problem(TRANSIENT_ERROR_GRACE, is_other));
        let mut pending = watches.pending(is_common);
        if pending.is_empty() {
            pending.extend(self.observe_cluster(view).await.err());
        }
        pass.due.extend(self.api_server.due(self.cluster.as_ref()));
        pending
    }

    fn plan(&mut self, view: &mut View, _: &mut Pass) {
        self.fleet.values_mut().for_each(|member| member.reconsider(&view.target));
        self.replan(view);
        self.fleet.values_mut().for_each(|member| member.weigh(&view.target));
    }

    async fn guard(&mut self, view: &mut View, pass: &mut Pass) {
        self.guard_nodes(view, pass).await;
    }

    /// Our objects are watched where they are planned and where the inventory lists them. What has not been seen there keeps nothing
    /// back but what is there.
    fn follow(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        self.assemble(view);
        let roles = view.settings.node_deletion.then(guard::location);
        let leftovers = self.leftovers(&view.target.observer).union(&roles.into_iter().collect());
        // What runs has to be seen before a change is accepted.
        let planned = self.fleet.values().map(Member::locations);
        let planned = planned.fold(Inventory::of(&self.objects), |all, one| all.union(&one));
        view.target.observer.follow(&planned, &leftovers);
        pass.due.extend(self.changes.due());
        Vec::new()
    }

    async fn report_blindness(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass) {
        pass.waiting.extend(pending);
        self.take_back_all(view).await;
        let error = view.target.observer.watches.lasting_problem(TRANSIENT_ERROR_GRACE, is_common);
        if let Some(error) = error.or_else(|| self.api_server.lasting_problem()) {
            self.report_to_all(view, &error, pass).await;
        }
    }

    async fn act(&mut self, view: &mut View, pass: &mut Pass) -> Option<Result<(), Stopped>> {
        self.take_back(view).await;
        self.check_first(view, pass);
        let acted = self.apply(view).await;
        // Before more is written the nodes are looked at.
        if self.executor.applier().is_some_and(|applier| applier.is_cut) {
            pass.due.push(Instant::now());
            return None;
        }
        Some(acted)
    }

    async fn report(&mut self, view: &mut View, acted: Result<(), Stopped>, pass: &mut Pass) {
        pass.due.extend(self.grants.due());
        for member in self.fleet.values_mut() {
            pass.due.extend(member.see_guard(&view.target.observer).then(Instant::now));
        }
        if self.executor.writes() {
            let identities: Vec<_> = self.fleet.values().flat_map(Member::initializes).cloned().collect();
            pass.due.extend(view.target.diagnose(&identities));
        }
        self.report_to_each(view, &acted, pass).await;
        pass.held_back = self.executor.held_back();
        pass.due.extend(self.executor.due());
        let is_well = self.fleet.values().all(Member::is_well);
        pass.succeeded = (acted.is_ok() && is_well).then_some("operator");
        pass.retrying.extend(acted.err().map(|stopped| stopped.error));
    }
}

impl Ccms {
    pub(super) fn new(authority: Authority, executor: Executor) -> Self {
        Self {
            authority,
            executor,
            fleet: BTreeMap::new(),
            cluster: None,
            api_server: ApiServer::default(),
            objects: Vec::new(),
            changes: Changes::default(),
            revision: 0,
            planned_revision: 0,
            grants: Grants::default(),
            withheld: Withheld::default(),
            snapshots: Background::default(),
        }
    }

    /// Finds out what all plans depend on.
    async fn observe_cluster(&mut self, view: &mut View) -> Result<(), String> {
        let control_plane = &view.target.node_counts.control_plane;
        let mut cluster = Cluster::of(control_plane, None);
        if cluster.is_none() {
            let asked = self.api_server.ask(&view.target.client, || version_before(&view.target.observer)).await;
            cluster = self.api_server.cluster(control_plane);
            if cluster.is_none() {
                asked?;
            }
        }
        let cluster = cluster.ok_or("the version of Kubernetes cannot be read from the nodes or the API server")?;
        view.topology_is(cluster.control_plane_nodes == 1);
        view.target.observer.ccms_changed |= self.cluster != Some(cluster);
        self.cluster = Some(cluster);
        Ok(())
    }

    fn replan(&mut self, view: &mut View) {
        let Some(cluster) = self.cluster else { return };
        let catalog_changed = view.take_catalog_change();
        if catalog_changed {
            self.fleet.values_mut().for_each(Member::forget);
        }
        let ccms_changed = std::mem::take(&mut view.target.observer.ccms_changed) || catalog_changed;
        if ccms_changed {
            self.read(view, cluster);
        }
        self.revision += u64::from(std::mem::take(&mut view.target.observer.named_changed));
        let are_validated = self.fleet.values().all(Member::is_validated);
        // Another one may have waited for that.
        let running_changed = self.see_running(&view.target.observer);
        if !ccms_changed && !running_changed && are_validated {
            let is_planned = self.revision == self.planned_revision;
            // Each rollout may interrupt pods: changes of what they mount that come together become one.
            if is_planned || !self.changes.are_over(self.revision, Instant::now()) {
                return;
            }
        }
        (self.planned_revision, self.changes) = (self.revision, Changes::default());
        for member in self.fleet.values_mut() {
            member.validate(&view.catalog, &view.target.observer);
        }
        self.exclude_conflicts(&view.catalog);
    }

    fn assemble(&mut self, view: &View) {
        let mut objects = self.confirmed_objects();
        for object in &mut objects {
            object.set_label(PART_OF_LABEL, &view.target.observer.set_id);
        }
        objects.sort_by_key(|object| wave(object.kind()));
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

    /// Reads the `CloudControllerManager`s, and watches what they name.
    fn read(&mut self, view: &mut View, cluster: Cluster) {
        let live: Vec<&Value> =
            view.target.observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects).collect();
        let name = |live: &Value| live["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<_> = live.iter().map(|live| name(live)).collect();
        self.fleet.retain(|name, _| names.contains(name));
        for live in live {
            self.fleet.entry(name(live)).or_default().read(live, cluster, &view.settings, &view.catalog);
        }
        let wanted = sources::checks(self.fleet.values().flat_map(|member| &member.named));
        view.target.observer.want_sources(wanted);
    }

    /// Where our objects may be: where the inventory says, and, as somebody may have deleted that, where those are that are to go.
    fn leftovers(&self, observer: &Observer) -> Inventory {
        let removed = self.fleet.values().map(|member| Inventory::of(member.removed()));
        removed.fold(self.executor.inventory(observer), |inventory, removed| inventory.union(&removed))
    }
}

/// The version of Kubernetes that an earlier process has reported.
fn version_before(observer: &Observer) -> Option<Minor> {
    let mut live = observer.watches.seen(&Id::Ccms).into_iter().flat_map(Seen::objects);
    live.find_map(|live| live["status"]["cluster"]["kubernetes"].as_str()?.parse().ok())
}

/// Whether a watch is one that all depend on.
fn is_common(id: &Id) -> bool {
    matches!(id, Id::Ccms | Id::Nodes | Id::Inventory)
}

/// The name of the `CloudControllerManager` that an object is of.
fn owner(object: &Value) -> &str {
    object["metadata"]["labels"][INSTANCE_LABEL].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::process::leadership::Leadership;

    impl Ccms {
        /// Those of a process that neither leads nor writes.
        pub(super) fn of_a_standby() -> Self {
            let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
            Self::new(Authority { leadership, shutdown }, Executor::dry_run())
        }
    }
}
