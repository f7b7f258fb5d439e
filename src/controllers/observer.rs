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
    cluster::{seen::Seen, watch::Target, watches::Watches},
    facts::{Document, Documents},
    grace::TRANSIENT_ERROR_GRACE,
    object::{
        Object, condition,
        reference::{self, CONFIG_MAP, Digests, Reference, SECRET},
    },
    plan::kubernetes::sources::{Checks, Found},
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
    Deletions,
}

#[allow(clippy::struct_excessive_bools, reason = "each says of one input whether it has changed")]
pub(super) struct Observer {
    /// Marks our objects.
    pub(super) set_id: String,
    pub(super) watches: Watches<Id>,
    pub(super) cluster_type: ClusterType,
    /// Whether the process is told that the cluster is no OpenShift.
    is_told: bool,
    /// At first only the one that decides whether others are watched.
    pub(super) documents: Vec<&'static Document>,
    /// Where nothing is planned any more and objects may have to be pruned.
    leftovers: BTreeSet<Location>,
    /// Whether a document may have changed since the last update.
    documents_changed: bool,
    /// Whether a named object may have changed since the digests were last computed.
    pub(super) named_changed: bool,
    /// Whether a `CloudControllerManager` may have changed since this was last unset.
    pub(super) ccms_changed: bool,
    /// Whether something that is kept of a node has changed since this was last unset.
    pub(super) nodes_changed: bool,
    /// The objects that `CloudControllerManager`s name: only what is read of each is kept.
    checks: BTreeMap<Reference, Checks>,
}

impl Observer {
    pub(super) fn new(client: Client, set_id: String) -> Self {
        Self {
            set_id,
            watches: Watches::new(client),
            cluster_type: ClusterType::Unknown,
            is_told: false,
            documents: Vec::new(),
            leftovers: BTreeSet::new(),
            documents_changed: true,
            named_changed: false,
            ccms_changed: false,
            nodes_changed: false,
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
            self.watches.start(Id::Document(document.kind.plural), || Target::named(&document.kind, "", document.name));
        }
        self.documents = documents;
    }

    pub(super) fn watch_inventory(&mut self, own_namespace: &str) {
        self.watches.start(Id::Inventory, || Target::named(&CONFIG_MAP, own_namespace, inventory::NAME));
    }

    /// Waits for events, and takes all that have arrived. Of a Secret only a digest is kept.
    pub(super) async fn changed(&mut self) {
        let is_known = matches!(self.cluster_type, ClusterType::OpenShift | ClusterType::Kubernetes);
        let Self { documents_changed, named_changed, ccms_changed, nodes_changed, checks, .. } = self;
        let is_question = |id: &Id| !is_known && cluster_type::is_question(id);
        let strip = |id: &Id, object: &mut DynamicObject| keep::only_what_is_read(id, object, checks);
        let changed = |id: &Id| {
            *documents_changed |= matches!(id, Id::Document(_));
            *named_changed |= matches!(id, Id::Named(_));
            *ccms_changed |= matches!(id, Id::Ccms);
            *nodes_changed |= matches!(id, Id::Nodes);
        };
        self.watches.changed(strip, is_question, changed).await;
    }

    /// The watches that have to deliver before anything is applied; of named objects only these count.
    pub(super) fn pending(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        self.watches.pending(|id| is_relevant(id, named) && !self.is_leftover(id))
    }

    fn is_leftover(&self, id: &Id) -> bool {
        matches!(id, Id::Ours(location) if self.leftovers.contains(location))
    }

    /// The same, of the inputs alone: the documents, the status object and these named objects.
    pub(super) fn pending_inputs(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        self.watches.pending(|id| is_input(id, named))
    }

    /// The errors of watches that have failed for this long; of named objects only these count. Where only leftovers may be, all
    /// that is planned is well without.
    pub(super) fn lasting_problem(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        self.watches.lasting_problem(period, |id| is_relevant(id, named) && !self.is_leftover(id))
    }

    /// The same, of the inputs alone.
    pub(super) fn lasting_problem_of_inputs(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        self.watches.lasting_problem(period, |id| is_input(id, named))
    }

    /// Whether every document and the status object have been seen.
    pub(super) fn knows_documents(&self) -> bool {
        self.watches.iter().all(|(id, seen)| !matches!(id, Id::Document(_) | Id::Status) || seen.is_synced())
    }

    /// Whether the status object has been seen, or seen to be absent.
    pub(super) fn knows_status_object(&self) -> bool {
        self.watches.seen(&Id::Status).is_some_and(Seen::is_synced)
    }

    /// The documents that were seen, while others were not.
    pub(super) fn documents_so_far(&self) -> Documents {
        let mut documents = Documents::default();
        // What cannot be read is reported when all were seen.
        let _ = self.read(&mut documents);
        documents
    }

    /// Updates the documents, if one may have changed since the last call; the error is that of a document that cannot be
    /// read.
    pub(super) fn update(&mut self, documents: &mut Documents) -> Option<Result<(), String>> {
        std::mem::take(&mut self.documents_changed).then(|| self.read(documents))
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
    pub(super) fn want(&mut self, named: &BTreeSet<Reference>) {
        self.watches.keep(|id| is_relevant(id, named));
        for reference in named {
            let Reference { kind, namespace, name } = reference;
            self.watches.start(Id::Named(reference.clone()), || Target::named(kind, namespace, name));
        }
        self.named_changed = true;
    }

    /// Watches the objects that `CloudControllerManager`s name, and no others.
    pub(super) fn want_sources(&mut self, wanted: BTreeMap<Reference, Checks>) {
        if self.checks == wanted {
            return;
        }
        // What is kept of an object depends on its checks.
        let (before, now) = (std::mem::take(&mut self.checks), &wanted);
        self.watches.keep(|id| !matches!(id, Id::Named(named) if before.get(named) != now.get(named)));
        self.want(&wanted.keys().cloned().collect());
        self.checks = wanted;
    }

    /// What is seen of an object that a `CloudControllerManager` names; `None` while that is not known.
    pub(super) fn found(&self, reference: &Reference) -> Option<Found> {
        let seen = self.watches.seen(&Id::Named(reference.clone()))?;
        if !seen.is_synced() {
            let problem = seen.problem().filter(|problem| problem.lasts_at(TRANSIENT_ERROR_GRACE) <= Instant::now())?;
            let help = if problem.denied_since.is_some() {
                ": grant the operator list and watch of it (--secrets)"
            } else {
                ""
            };
            return Some(Found::Unreadable(format!("{}{help}", problem.error)));
        }
        let source = seen.get(&reference.name).map(|kept| serde_json::from_value(kept.clone()).unwrap_or_default());
        Some(source.map_or(Found::Absent, Found::Present))
    }

    /// The live state of a watched ConfigMap.
    pub(super) fn named(&self, reference: &Reference) -> Option<&Value> {
        self.watches.get(&Id::Named(reference.clone()), &reference.name)
    }

    /// Takes the result of a write of a named object.
    pub(super) fn put_named(&mut self, reference: &Reference, live: Value) {
        self.watches.put(&Id::Named(reference.clone()), &reference.name, live);
        self.named_changed = true;
    }

    /// The digests of the named objects that exist.
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

    /// Watches our objects where they are planned and where the inventory lists them.
    pub(super) fn follow(&mut self, planned: &Inventory, inventory: &Inventory) {
        let wanted = planned.union(inventory);
        self.leftovers = inventory.locations().filter(|location| !planned.contains(location)).cloned().collect();
        self.watches.keep(|id: &Id| !matches!(id, Id::Ours(location) if !wanted.contains(location)));
        for location in wanted.locations() {
            self.watch_location(location);
        }
    }

    /// The locations that were seen completely, each with our objects in it.
    pub(super) fn ours(&self) -> impl Iterator<Item = (&Location, impl Iterator<Item = &Value>)> {
        self.watches.iter().filter_map(|(id, seen)| match id {
            Id::Ours(location) if seen.is_synced() => Some((location, seen.objects())),
            _ => None,
        })
    }

    /// Our objects that are not planned, each with its decision.
    pub(super) fn prune_decisions(&self, planned: &[Object]) -> Vec<(&Location, &Value, PruneDecision)> {
        let seen = self.ours().flat_map(|(location, objects)| objects.map(move |object| (location, object)));
        inventory::prune_decisions(seen, planned, &self.set_id)
    }

    fn leftovers(&self) -> impl Iterator<Item = (&Location, &Seen)> {
        self.leftovers.iter().filter_map(|location| Some((location, self.watches.seen(&Id::Ours(location.clone()))?)))
    }

    /// Whether a location that may hold leftovers has not been seen yet, though its watch works.
    pub(super) fn awaits_leftovers(&self) -> bool {
        self.leftovers().any(|(_, seen)| !seen.is_synced() && seen.problem().is_none())
    }

    /// The namespaces of locations that may hold leftovers and cannot be watched.
    pub(super) fn unwatchable_leftovers(&self) -> BTreeSet<String> {
        let with_problem =
            self.leftovers().filter(|(location, seen)| location.kind.namespaced && seen.problem().is_some());
        with_problem.map(|(location, _)| location.namespace.clone()).collect()
    }

    pub(super) fn inventory(&self) -> Option<&Value> {
        self.watches.get(&Id::Inventory, inventory::NAME)
    }

    /// Whether an operator has reported before, of this or of another program.
    pub(super) fn has_report(&self) -> bool {
        self.status_object().is_some_and(|object| !condition(object, "Available").is_null())
    }

    /// Where our objects may be: the locations of the inventory; where it was deleted, those of the objects that our status
    /// lists.
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

    /// The live state of one of our objects.
    pub(super) fn live(&self, object: &Object) -> Option<&Value> {
        self.watches.get(&Id::Ours(Location::of(object)), object.name())
    }

    pub(super) fn status_object(&self) -> Option<&Value> {
        self.watches.get(&Id::Status, status::write::NAME)
    }
}

/// Whether a watch is relevant if only these named objects are. Without the nodes nothing is explained, and everything else done.
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
        observer.follow(&inventory, &Inventory::default());
        observer.changed().await;
        let (now, named) = (Duration::ZERO, BTreeSet::new());
        let problem = observer.lasting_problem(now, &named).unwrap();
        assert!(problem.contains("deployments.apps in namespace managed"), "{problem}");
        assert_eq!(observer.lasting_problem_of_inputs(now, &named), None);
        let hour = Duration::from_secs(3600);
        assert!(observer.watches.problem_lasts_at(hour).is_some_and(|at| at > std::time::Instant::now()));
    }
}
