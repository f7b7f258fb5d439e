//! The watches of a process (IO): the documents of facts, the status object, ConfigMaps and Secrets, the inventory and
//! our own objects. Each object is watched once. This module decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use kube::{Client, api::DynamicObject};
use serde_json::Value;

use crate::{
    apply::{
        inventory::{self, Inventory, Location, PruneDecision},
        ownership::FIELD_MANAGER,
    },
    cluster::{seen::Seen, watch::Collection, watches::Watches},
    facts::{Document, Documents},
    grace::TRANSIENT_ERROR_GRACE,
    object::{
        Object, condition,
        reference::{self, CONFIG_MAP, Digests, Reference, SECRET},
    },
    plan::kubernetes::sources::{Checkers, SourceState},
    status,
};

pub(super) use cluster_type::ClusterType;

mod cluster_type;
mod keep;

/// The identity of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    /// A document of facts, by its resource.
    Document(&'static str),
    Status,
    /// A ConfigMap or Secret that is read or that pods refer to.
    Named(Reference),
    Inventory,
    /// Our objects of a kind in a namespace.
    Ours(Location),
    /// Every `CloudControllerManager`.
    Ccms,
    /// Every node.
    Nodes,
    /// The Events of cloud-controller-managers about nodes that they may not delete.
    RefusedDeletions,
}

/// The watched inputs of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InputKind {
    /// The documents of facts.
    Documents,
    /// The ConfigMaps and Secrets that are read or that pods refer to.
    NamedObjects,
    /// The `CloudControllerManager`s.
    Ccms,
    /// The fields of the nodes that are kept.
    Nodes,
}

impl Id {
    /// Returns the input that the watched objects belong to.
    fn input(&self) -> Option<InputKind> {
        match self {
            Self::Document(_) => Some(InputKind::Documents),
            Self::Named(_) => Some(InputKind::NamedObjects),
            Self::Ccms => Some(InputKind::Ccms),
            Self::Nodes => Some(InputKind::Nodes),
            Self::Status | Self::Inventory | Self::Ours(_) | Self::RefusedDeletions => None,
        }
    }
}

pub(super) struct Observer {
    /// The value of the label that marks our objects.
    pub(super) set_id: String,
    pub(super) watches: Watches<Id>,
    pub(super) cluster_type: ClusterType,
    /// Whether the command line says that the cluster is not OpenShift.
    is_kubernetes_given: bool,
    /// The watched documents; at first only the Infrastructure, which decides whether the others are watched.
    documents: Vec<&'static Document>,
    /// The locations that no longer have planned objects but may have objects to prune.
    leftovers: BTreeSet<Location>,
    /// The inputs that may have changed since they were last read.
    changed_inputs: BTreeSet<InputKind>,
    /// The checks of each object that a `CloudControllerManager` names. Only the fields that they read are kept.
    checks: BTreeMap<Reference, Checkers>,
}

impl Observer {
    pub(super) fn new(client: Client, set_id: String) -> Self {
        Self {
            set_id,
            watches: Watches::new(client),
            cluster_type: ClusterType::Unknown,
            is_kubernetes_given: false,
            documents: Vec::new(),
            leftovers: BTreeSet::new(),
            changed_inputs: BTreeSet::from([InputKind::Documents]),
            checks: BTreeMap::new(),
        }
    }

    /// Watches these documents, and no others.
    pub(super) fn want_documents(&mut self, documents: Vec<&'static Document>) {
        if self.documents == documents {
            return;
        }
        let is_wanted = |plural: &str| documents.iter().any(|document| document.kind.plural == plural);
        self.watches.keep(|id| !matches!(id, Id::Document(plural) if !is_wanted(plural)));
        for document in &documents {
            self.watches
                .start(Id::Document(document.kind.plural), || Collection::named(&document.kind, "", document.name));
        }
        self.documents = documents;
    }

    pub(super) fn watch_inventory(&mut self, own_namespace: &str) {
        self.watches.start(Id::Inventory, || Collection::named(&CONFIG_MAP, own_namespace, inventory::NAME));
    }

    /// Records that an input may have changed.
    pub(super) fn mark_changed(&mut self, input: InputKind) {
        self.changed_inputs.insert(input);
    }

    /// Returns whether an input may have changed since the last call, and counts the change as read.
    pub(super) fn take_change(&mut self, input: InputKind) -> bool {
        self.changed_inputs.remove(&input)
    }

    /// Waits for events, and handles all that have arrived. Only a digest of a Secret is kept.
    pub(super) async fn changed(&mut self) {
        let is_known = matches!(self.cluster_type, ClusterType::OpenShift | ClusterType::Kubernetes);
        let Self { changed_inputs, checks, .. } = self;
        let is_optional = |id: &Id| !is_known && cluster_type::is_of_one_cluster_type(id);
        let strip = |id: &Id, object: &mut DynamicObject| keep::only_what_is_read(id, object, checks);
        let changed = |id: &Id| changed_inputs.extend(id.input());
        self.watches.changed(strip, is_optional, changed).await;
    }

    /// Returns the watches that must deliver before anything is applied. Only these named objects count.
    pub(super) fn pending(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        self.watches.pending(|id| is_relevant(id, named) && !self.is_leftover(id))
    }

    fn is_leftover(&self, id: &Id) -> bool {
        matches!(id, Id::Ours(location) if self.leftovers.contains(location))
    }

    /// Returns the watches of inputs that have not delivered yet: the documents, the status object and these named objects.
    pub(super) fn pending_inputs(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        self.watches.pending(|id| is_input(id, named))
    }

    /// Returns the errors of watches that have failed for this long. A location that may only have leftovers does not count.
    pub(super) fn lasting_problem(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        self.watches.lasting_problem(period, |id| is_relevant(id, named) && !self.is_leftover(id))
    }

    /// Returns the errors of watches of inputs that have failed for this long.
    pub(super) fn lasting_problem_of_inputs(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        self.watches.lasting_problem(period, |id| is_input(id, named))
    }

    /// Whether every document and the status object have been seen.
    pub(super) fn has_documents(&self) -> bool {
        self.watches.iter().all(|(id, seen)| !matches!(id, Id::Document(_) | Id::Status) || seen.is_synced())
    }

    /// Whether the status object has been seen, or seen to be absent.
    pub(super) fn has_seen_status_object(&self) -> bool {
        self.watches.seen(&Id::Status).is_some_and(Seen::is_synced)
    }

    /// Returns the documents that have been seen so far.
    pub(super) fn documents_so_far(&self) -> Documents {
        let mut documents = Documents::default();
        // A document that cannot be read is reported once all have been seen.
        let _ = self.read(&mut documents);
        documents
    }

    /// Updates the documents if one may have changed. The error is that of the first unreadable document.
    pub(super) fn update(&mut self, documents: &mut Documents) -> Option<Result<(), String>> {
        self.take_change(InputKind::Documents).then(|| self.read(documents))
    }

    fn read(&self, documents: &mut Documents) -> Result<(), String> {
        let mut read = Ok(());
        for document in &self.documents {
            let object = self.watches.get(&Id::Document(document.kind.plural), document.name);
            if let Err(error) = documents.take(document, object) {
                let (plural, group) = (document.kind.plural, document.kind.group);
                read = read.and(Err(format!("failed to read {plural}.{group}: {error}")));
            }
        }
        read
    }

    /// Watches these ConfigMaps and Secrets, and no others.
    pub(super) fn watch_named(&mut self, named: &BTreeSet<Reference>) {
        self.watches.keep(|id| is_relevant(id, named));
        for reference in named {
            let Reference { kind, namespace, name } = reference;
            self.watches.start(Id::Named(reference.clone()), || Collection::named(kind, namespace, name));
        }
        self.mark_changed(InputKind::NamedObjects);
    }

    /// Watches the objects that `CloudControllerManager`s name, and no others.
    pub(super) fn want_sources(&mut self, wanted: BTreeMap<Reference, Checkers>) {
        if self.checks == wanted {
            return;
        }
        // The kept fields of an object depend on its checks.
        let (before, now) = (std::mem::take(&mut self.checks), &wanted);
        self.watches.keep(|id| !matches!(id, Id::Named(named) if before.get(named) != now.get(named)));
        self.watch_named(&wanted.keys().cloned().collect());
        self.checks = wanted;
    }

    /// Returns the state of an object that a `CloudControllerManager` names, or `None` while it has not been seen.
    pub(super) fn source_state(&self, reference: &Reference) -> Option<SourceState> {
        let seen = self.watches.seen(&Id::Named(reference.clone()))?;
        if !seen.is_synced() {
            let problem = seen.problem().filter(|problem| problem.lasts_at(TRANSIENT_ERROR_GRACE) <= Instant::now())?;
            let is_denied = problem.denied_since.is_some();
            let help = if is_denied { ": grant the operator list and watch of it (--secrets)" } else { "" };
            return Some(SourceState::Unreadable(format!("{}{help}", problem.error)));
        }
        let source = seen.get(&reference.name).map(|kept| serde_json::from_value(kept.clone()).unwrap_or_default());
        Some(source.map_or(SourceState::Absent, SourceState::Present))
    }

    /// Returns the live state of a watched ConfigMap.
    pub(super) fn named(&self, reference: &Reference) -> Option<&Value> {
        self.watches.get(&Id::Named(reference.clone()), &reference.name)
    }

    /// Stores the response to a write. Does nothing if the watch does not exist.
    pub(super) fn put(&mut self, id: &Id, name: &str, live: Value) {
        self.watches.put(id, name, keep::response(live));
    }

    /// Stores the response to a write of a named object.
    pub(super) fn put_named(&mut self, reference: &Reference, live: Value) {
        self.put(&Id::Named(reference.clone()), &reference.name, live);
        self.mark_changed(InputKind::NamedObjects);
    }

    /// Returns the digests of the named objects that exist.
    pub(super) fn digests(&self, named: &BTreeSet<Reference>) -> Digests {
        let digest = |reference: &Reference| {
            let value = self.named(reference)?;
            if reference.kind == &SECRET {
                Some(value[keep::DIGEST].as_str()?.to_owned())
            } else {
                Some(reference::digest(value))
            }
        };
        named.iter().filter_map(|reference| Some((reference.clone(), digest(reference)?))).collect()
    }

    /// Watches our objects in the planned locations and in those that the inventory lists.
    pub(super) fn watch_objects(&mut self, planned: &Inventory, inventory: &Inventory) {
        let wanted = planned.union(inventory);
        self.leftovers = inventory.locations().filter(|location| !planned.contains(location)).cloned().collect();
        self.watches.keep(|id: &Id| !matches!(id, Id::Ours(location) if !wanted.contains(location)));
        for location in wanted.locations() {
            self.watch_location(location);
        }
    }

    /// Returns the completely seen locations, each with our objects in it.
    pub(super) fn ours(&self) -> impl Iterator<Item = (&Location, impl Iterator<Item = &Value>)> {
        self.watches.iter().filter_map(|(id, seen)| match id {
            Id::Ours(location) if seen.is_synced() => Some((location, seen.objects())),
            _ => None,
        })
    }

    /// Returns our objects that are not planned, each with its decision.
    pub(super) fn prune_decisions(&self, planned: &[Object]) -> Vec<(&Location, &Value, PruneDecision)> {
        let seen = self.ours().flat_map(|(location, objects)| objects.map(move |object| (location, object)));
        inventory::prune_decisions(seen, planned, &self.set_id)
    }

    fn leftovers(&self) -> impl Iterator<Item = (&Location, &Seen)> {
        self.leftovers.iter().filter_map(|location| Some((location, self.watches.seen(&Id::Ours(location.clone()))?)))
    }

    /// Whether a location that may hold leftovers has not been seen yet, although its watch does not fail.
    pub(super) fn is_awaiting_leftovers(&self) -> bool {
        self.leftovers().any(|(_, seen)| !seen.is_synced() && seen.problem().is_none())
    }

    /// Returns the namespaces of locations that may hold leftovers and cannot be watched.
    pub(super) fn unwatchable_leftovers(&self) -> BTreeSet<String> {
        let with_problem =
            self.leftovers().filter(|(location, seen)| location.kind.namespaced && seen.problem().is_some());
        with_problem.map(|(location, _)| location.namespace.clone()).collect()
    }

    pub(super) fn inventory(&self) -> Option<&Value> {
        self.watches.get(&Id::Inventory, inventory::NAME)
    }

    /// Whether an operator has reported a status before, this one or OpenShift's own.
    pub(super) fn has_report(&self) -> bool {
        self.status_object().is_some_and(|object| !condition(object, "Available").is_null())
    }

    /// Returns the locations that may contain our objects: those of the inventory or, if it was deleted, of the status.
    pub(super) fn locations(&self) -> Inventory {
        if let Some(inventory) = self.inventory() {
            return Inventory::read(inventory);
        }
        let status_object = self.status_object().filter(|object| {
            let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
            let is_deleted = self.watches.seen(&Id::Inventory).is_some_and(Seen::is_synced);
            is_deleted && entries.into_iter().any(|entry| entry["manager"] == FIELD_MANAGER)
        });
        let related = status_object.and_then(|object| object["status"]["relatedObjects"].as_array());
        Inventory::of_references(related.into_iter().flatten().map(|object| {
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            (text("group"), text("resource"), text("namespace"))
        }))
    }

    /// Returns the live state of one of our objects.
    pub(super) fn live(&self, object: &Object) -> Option<&Value> {
        self.watches.get(&Id::Ours(Location::of(object)), object.name())
    }

    pub(super) fn status_object(&self) -> Option<&Value> {
        self.watches.get(&Id::Status, status::write::NAME)
    }
}

/// Whether the controllers need a watch, given the named objects that they need. The nodes only explain problems.
fn is_relevant(id: &Id, named: &BTreeSet<Reference>) -> bool {
    match id {
        Id::Named(reference) => named.contains(reference),
        Id::Nodes => false,
        _ => true,
    }
}

fn is_input(id: &Id, named: &BTreeSet<Reference>) -> bool {
    is_relevant(id, named) && !matches!(id, Id::Inventory | Id::Ours(_))
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{StatusCode, Uri},
    };

    use serde_json::json;

    use super::*;
    use crate::object::KINDS;

    /// An API server that forbids access to Deployments and does not answer any other request.
    async fn answer(uri: Uri) -> (StatusCode, String) {
        if !uri.path().ends_with("/deployments") {
            std::future::pending::<()>().await;
        }
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403});
        (StatusCode::FORBIDDEN, status.to_string())
    }

    #[tokio::test]
    async fn a_failing_watch_is_reported_only_where_it_is_needed() {
        let client = Client::new(Router::new().fallback(answer), "own");
        let mut observer = Observer::new(client, "set".into());
        observer.want_documents(crate::facts::DOCUMENTS.iter().collect());
        observer.watch_status();
        let deployments = KINDS.iter().find(|kind| kind.kind == "Deployment").unwrap();
        let config_map = json!({"data": {"scope": "Deployment.apps managed\n"}});
        let inventory = Inventory::read(&config_map);
        assert!(inventory.contains(&Location { kind: deployments, namespace: "managed".into() }));
        observer.watch_objects(&inventory, &Inventory::default());
        observer.changed().await;
        let (now, named) = (Duration::ZERO, BTreeSet::new());
        let problem = observer.lasting_problem(now, &named).unwrap();
        assert!(problem.contains("deployments.apps in namespace managed"), "{problem}");
        assert_eq!(observer.lasting_problem_of_inputs(now, &named), None);
        let hour = Duration::from_secs(3600);
        assert!(observer.watches.problem_lasts_at(hour).is_some_and(|at| at > std::time::Instant::now()));
    }
}
