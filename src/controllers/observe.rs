//! What the cluster looks like now (IO): the documents that facts are taken from, and the live state of what is planned.
//!
//! Everything is seen through watches of exactly what is needed, nothing is asked for twice, and foreign objects cost
//! nothing. It decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use crate::cluster::request;
use crate::{
    apply::inventory::{self, Place, Scope},
    cluster::watch::{self, Seen, Selector, Target},
    facts::Sources,
    object::{
        Object,
        reference::{self, Digests, Referable, Reference},
    },
    status::cluster_operator::CLUSTER_OPERATOR,
};

/// A thing that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    /// A document that facts are taken from, by its resource.
    Document(&'static str),
    /// The ClusterOperator.
    ClusterOperator,
    /// A ConfigMap or Secret that is read or that pods refer to.
    Named(Reference),
    /// The inventory.
    Inventory,
    /// Our objects of a kind in a namespace.
    Ours(Place),
}

struct Watched {
    target: Target,
    seen: Seen,
    events: BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>>,
}

/// Documents that not every process needs.
#[derive(Clone, Copy, Debug)]
pub struct OptionalDocuments {
    /// `ClusterVersion/version`.
    pub cluster_version: bool,
    /// `Network/cluster`.
    pub network: bool,
}

/// Everything that is watched.
pub struct Observer {
    client: Client,
    set_id: String,
    watches: BTreeMap<Id, Watched>,
    /// Where nothing is planned any more: what is there is to be pruned.
    leftovers: BTreeSet<Place>,
    /// Whether a document has changed since the sources were last taken.
    documents_changed: bool,
    /// Whether a named object has changed since that was last asked.
    named_changed: bool,
}

impl Observer {
    /// Watches the documents that facts are taken from, and the ClusterOperator. `set_id` marks our objects.
    pub fn new(client: Client, set_id: String, optional: OptionalDocuments) -> Self {
        let mut observer = Self {
            client,
            set_id,
            watches: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            documents_changed: true,
            named_changed: false,
        };
        let documents = [
            ("Infrastructure", "infrastructures", "cluster"),
            ("Proxy", "proxies", "cluster"),
            ("FeatureGate", "featuregates", "cluster"),
            ("APIServer", "apiservers", "cluster"),
        ];
        let cluster_version = optional.cluster_version.then_some(("ClusterVersion", "clusterversions", "version"));
        let network = optional.network.then_some(("Network", "networks", "cluster"));
        for (kind, plural, name) in documents.into_iter().chain(cluster_version).chain(network) {
            let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            observer.start(Id::Document(plural), resource, None, Selector::Name(name.to_owned()));
        }
        let selector = Selector::Name(CLUSTER_OPERATOR.to_owned());
        observer.start(Id::ClusterOperator, crate::status::write::resource(), None, selector);
        observer
    }

    /// Watches the inventory, too.
    pub fn watch_inventory(&mut self, own_namespace: &str) {
        let selector = Selector::Name(inventory::NAME.to_owned());
        self.start(Id::Inventory, request::config_map_resource(), Some(own_namespace.to_owned()), selector);
    }

    /// Waits until something was seen, and takes all that has arrived.
    pub async fn changed(&mut self) {
        poll_fn(|context| {
            let mut any = false;
            for (id, watched) in &mut self.watches {
                while let Poll::Ready(Some(mut event)) = watched.events.poll_next_unpin(context) {
                    let changes = matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone));
                    self.documents_changed |= changes && matches!(id, Id::Document(_));
                    self.named_changed |= changes && matches!(id, Id::Named(_));
                    if matches!(id, Id::Named(Reference { kind: Referable::Secret, .. })) {
                        event = event.map(|event| event.modify(forget_secret));
                    }
                    if let Some(error) = watched.seen.take(event) {
                        warn!("failed to watch {}: {error}", watched.target.describe());
                    }
                    any = true;
                }
            }
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What has not been seen yet and has to be before anything is applied, with the reason where there is one; of named
    /// objects only these count.
    pub fn pending(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        let is_leftover = |id: &Id| matches!(id, Id::Ours(place) if self.leftovers.contains(place));
        let pending = self.relevant(named).filter(|(id, watched)| !watched.seen.is_synced() && !is_leftover(id));
        pending.map(|(_, watched)| describe_pending(watched)).collect()
    }

    /// The same, of these named objects alone.
    pub fn pending_named(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        let watched = named.iter().filter_map(|reference| self.watches.get(&Id::Named(reference.clone())));
        watched.filter(|watched| !watched.seen.is_synced()).map(describe_pending).collect()
    }

    /// What has kept a watch from working for this long; of named objects only these count.
    pub fn lasting_trouble(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        lasting(self.relevant(named).map(|(_, watched)| watched), period)
    }

    /// The same of the documents and these named objects alone: who reads nothing else has no other trouble.
    pub fn lasting_trouble_of_inputs(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        let is_input = |id: &Id| !matches!(id, Id::Inventory | Id::Ours(_));
        lasting(self.relevant(named).filter(|(id, _)| is_input(id)).map(|(_, watched)| watched), period)
    }

    fn relevant(&self, named: &BTreeSet<Reference>) -> impl Iterator<Item = (&Id, &Watched)> {
        let is_relevant = |id: &Id| !matches!(id, Id::Named(reference) if !named.contains(reference));
        self.watches.iter().filter(move |(id, _)| is_relevant(id))
    }

    /// When the first trouble that there is will have lasted for this long, or be over: a watch that works again where it
    /// broke off says nothing before something happens.
    pub fn trouble_changes_at(&self, period: Duration) -> Option<Instant> {
        let troubles = self.watches.values().filter_map(|watched| watched.seen.trouble());
        let changes = troubles.flat_map(|trouble| [trouble.since + period, trouble.ends_at()]);
        changes.filter(|at| *at > Instant::now()).min()
    }

    /// Whether every document has been seen, and the ClusterOperator.
    pub fn knows_documents(&self) -> bool {
        let is_document = |id: &Id| matches!(id, Id::Document(_) | Id::ClusterOperator);
        self.watches.iter().all(|(id, watched)| !is_document(id) || watched.seen.is_synced())
    }

    /// Whether the ClusterOperator has been seen, or seen to be absent.
    pub fn knows_cluster_operator(&self) -> bool {
        self.watches.get(&Id::ClusterOperator).is_some_and(|watched| watched.seen.is_synced())
    }

    /// Puts what was seen of the documents into the sources. Answers whether anything may have changed since the last
    /// call; an error is that of a document that cannot be read.
    pub fn update(&mut self, sources: &mut Sources) -> Result<bool, String> {
        if !self.documents_changed {
            return Ok(false);
        }
        sources.infrastructure = self.document("infrastructures")?;
        sources.proxy = self.document("proxies")?;
        sources.feature_gate = self.document("featuregates")?;
        sources.api_server = self.document("apiservers")?;
        sources.network = self.document("networks")?;
        sources.cluster_version = self.document("clusterversions")?;
        self.documents_changed = false;
        Ok(true)
    }

    /// Watches these ConfigMaps and Secrets, and no other. Of a Secret only a digest is kept.
    pub fn want(&mut self, named: &BTreeSet<Reference>) {
        self.watches.retain(|id, _| !matches!(id, Id::Named(reference) if !named.contains(reference)));
        for reference in named {
            let id = Id::Named(reference.clone());
            if self.watches.contains_key(&id) {
                continue;
            }
            let resource = request::resource_of(reference.kind);
            self.start(id, resource, Some(reference.namespace.clone()), Selector::Name(reference.name.clone()));
        }
        self.named_changed = true;
    }

    /// A ConfigMap that is watched, as it is now.
    pub fn named(&self, reference: &Reference) -> Option<&Value> {
        self.watches.get(&Id::Named(reference.clone()))?.seen.get(&reference.name)
    }

    /// Takes the answer to a write of a named object.
    pub fn put_named(&mut self, reference: &Reference, live: Value) {
        if let Some(watched) = self.watches.get_mut(&Id::Named(reference.clone())) {
            watched.seen.put(&reference.name, live);
            self.named_changed = true;
        }
    }

    /// Whether a named object may have changed since the last call.
    pub fn take_named_changed(&mut self) -> bool {
        std::mem::take(&mut self.named_changed)
    }

    /// The digests of those of the named objects that are there.
    pub fn digests(&self, named: &BTreeSet<Reference>) -> Digests {
        let digest = |reference: &Reference| {
            let value = self.named(reference)?;
            Some(match reference.kind {
                Referable::ConfigMap => reference::digest(value),
                Referable::Secret => value[DIGEST].as_str()?.to_owned(),
            })
        };
        named.iter().filter_map(|reference| Some((reference.clone(), digest(reference)?))).collect()
    }

    /// Watches our objects where they are planned, and where the inventory says that some may be left.
    pub fn follow(&mut self, planned: &Scope, inventory: &Scope) {
        let wanted = planned.union(inventory);
        self.leftovers = inventory.places().filter(|place| !planned.contains(place)).cloned().collect();
        self.watches.retain(|id, _| !matches!(id, Id::Ours(place) if !wanted.contains(place)));
        for place in wanted.places() {
            let id = Id::Ours(place.clone());
            if self.watches.contains_key(&id) {
                continue;
            }
            let namespace = place.kind.namespaced.then(|| place.namespace.clone());
            let selector = Selector::Label(format!("{}={}", inventory::PART_OF_LABEL, self.set_id));
            self.start(id, request::resource(place.kind), namespace, selector);
        }
    }

    /// The places that were seen whole, each with our objects in it.
    pub fn ours(&self) -> impl Iterator<Item = (&Place, impl Iterator<Item = &Value>)> {
        self.watches.iter().filter_map(|(id, watched)| match id {
            Id::Ours(place) if watched.seen.is_synced() => Some((place, watched.seen.objects())),
            _ => None,
        })
    }

    /// Whether a place that something may be left in is about to be seen.
    pub fn awaits_leftovers(&self) -> bool {
        self.watches.iter().any(|(id, watched)| {
            let is_leftover = matches!(id, Id::Ours(place) if self.leftovers.contains(place));
            is_leftover && !watched.seen.is_synced() && watched.seen.trouble().is_none()
        })
    }

    /// The namespaces of places that something may be left in and that cannot be watched.
    pub fn troubled_leftovers(&self) -> BTreeSet<String> {
        let troubled = self.leftovers.iter().filter(|place| {
            let watched = self.watches.get(&Id::Ours((*place).clone()));
            place.kind.namespaced && watched.is_some_and(|watched| watched.seen.trouble().is_some())
        });
        troubled.map(|place| place.namespace.clone()).collect()
    }

    /// The live inventory.
    pub fn inventory(&self) -> Option<&Value> {
        self.watches.get(&Id::Inventory)?.seen.get(inventory::NAME)
    }

    /// Takes the answer to a write of the inventory.
    pub fn put_inventory(&mut self, live: Value) {
        if let Some(watched) = self.watches.get_mut(&Id::Inventory) {
            watched.seen.put(inventory::NAME, live);
        }
    }

    /// The live state of one of our objects.
    pub fn live(&self, object: &Object) -> Option<&Value> {
        self.planned(object)?.seen.get(object.name())
    }

    /// Takes the answer to a write.
    pub fn put(&mut self, object: &Object, live: Value) {
        self.put_ours(&Place::of(object), object.name(), live);
    }

    /// Takes the answer to a write of an object that is not planned.
    pub fn put_ours(&mut self, place: &Place, name: &str, live: Value) {
        if let Some(watched) = self.watches.get_mut(&Id::Ours(place.clone())) {
            watched.seen.put(name, live);
        }
    }

    /// Takes the answer that an object is gone.
    pub fn forget(&mut self, place: &Place, name: &str) {
        if let Some(watched) = self.watches.get_mut(&Id::Ours(place.clone())) {
            watched.seen.forget(name);
        }
    }

    /// The live ClusterOperator.
    pub fn cluster_operator(&self) -> Option<&Value> {
        self.watches.get(&Id::ClusterOperator)?.seen.get(CLUSTER_OPERATOR)
    }

    /// Takes the answer to a write of the ClusterOperator.
    pub fn put_cluster_operator(&mut self, live: Value) {
        if let Some(watched) = self.watches.get_mut(&Id::ClusterOperator) {
            watched.seen.put(CLUSTER_OPERATOR, live);
        }
    }

    fn planned(&self, object: &Object) -> Option<&Watched> {
        self.watches.get(&Id::Ours(Place::of(object)))
    }

    fn document<T: DeserializeOwned>(&self, plural: &'static str) -> Result<Option<T>, String> {
        let object = self.watches.get(&Id::Document(plural)).and_then(|watched| watched.seen.objects().next());
        let read = object.map(T::deserialize).transpose();
        read.map_err(|error| format!("failed to read {plural}.config.openshift.io: {error}"))
    }

    fn start(&mut self, id: Id, resource: ApiResource, namespace: Option<String>, selector: Selector) {
        let target = Target { resource, namespace, selector };
        let events = watch::events(self.client.clone(), &target);
        self.watches.insert(id, Watched { target, seen: Seen::default(), events });
    }
}

/// The member that stands for what a Secret holds.
const DIGEST: &str = "digest";

/// Replaces what a Secret holds by its digest, before anything else sees it.
fn forget_secret(secret: &mut DynamicObject) {
    secret.data = json!({DIGEST: reference::digest(&secret.data)});
    // It may repeat the data.
    secret.metadata.annotations = None;
}

fn lasting<'a>(watches: impl Iterator<Item = &'a Watched>, period: Duration) -> Option<String> {
    let has_lasted = |watched: &&Watched| watched.seen.trouble().is_some_and(|one| one.since.elapsed() >= period);
    let texts: Vec<_> = watches.filter(has_lasted).map(describe_pending).collect();
    (!texts.is_empty()).then(|| format!("failed to watch {}", texts.join("; ")))
}

fn describe_pending(watched: &Watched) -> String {
    let target = watched.target.describe();
    match watched.seen.trouble() {
        Some(trouble) => format!("{target}: {}", trouble.error),
        None => target,
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{StatusCode, Uri},
    };

    use super::*;
    use crate::object::KINDS;

    /// A cluster whose Deployments may not be seen, and that never answers about anything else.
    async fn answer(uri: Uri) -> (StatusCode, String) {
        if !uri.path().ends_with("/deployments") {
            std::future::pending::<()>().await;
        }
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403});
        (StatusCode::FORBIDDEN, status.to_string())
    }

    #[tokio::test]
    async fn a_watch_that_fails_is_the_trouble_of_who_needs_it() {
        let client = Client::new(Router::new().fallback(answer), "own");
        let optional = OptionalDocuments { cluster_version: false, network: false };
        let mut observer = Observer::new(client, "set".into(), optional);
        let deployments = KINDS.iter().find(|kind| kind.kind == "Deployment").unwrap();
        let config_map = json!({"data": {"scope": "Deployment.apps managed\n"}});
        let scope = Scope::read(&config_map);
        assert!(scope.contains(&Place { kind: deployments, namespace: "managed".into() }));
        observer.follow(&scope, &Scope::default());
        observer.changed().await;
        let (now, named) = (Duration::ZERO, BTreeSet::new());
        let trouble = observer.lasting_trouble(now, &named).unwrap();
        assert!(trouble.contains("deployments.apps in namespace managed"), "{trouble}");
        assert_eq!(observer.lasting_trouble_of_inputs(now, &named), None);
        // It has lasted already; what is left to wait for is its end.
        let ends = observer.trouble_changes_at(now).unwrap();
        assert!(ends > Instant::now() + Duration::from_secs(20));
    }
}
