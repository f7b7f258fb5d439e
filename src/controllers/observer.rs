//! The watches of a process (IO): documents of facts, the status object, ConfigMaps and Secrets, the inventory and our own
//! objects, each watched once and no others. It decides nothing.

use std::{collections::BTreeSet, time::Duration};

use kube::{Client, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    apply::inventory::{self, PART_OF_LABEL, Place, Scope},
    cluster::{
        watch::{Seen, Selector, Target},
        watches::Watches,
    },
    facts::{Document, Documents},
    object::{
        Object,
        reference::{self, CONFIG_MAP, Digests, Referable, Reference},
    },
    status,
};

/// A thing that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    /// A document of facts, by its resource.
    Document(&'static str),
    /// The object that holds the status.
    Status,
    /// A ConfigMap or Secret that is read or that pods refer to.
    Named(Reference),
    /// The inventory.
    Inventory,
    /// Our objects of a kind in a namespace.
    Ours(Place),
}

/// Everything that is watched.
pub(super) struct Observer {
    set_id: String,
    pub(super) watches: Watches<Id>,
    documents: Vec<&'static Document>,
    /// Where nothing is planned any more and objects are to be pruned.
    leftovers: BTreeSet<Place>,
    /// Whether a document has changed since documents were last taken.
    documents_changed: bool,
    /// Whether a named object has changed since that was last asked.
    named_changed: bool,
}

impl Observer {
    /// Watches documents and the status object. `set_id` marks our objects.
    pub(super) fn new(client: Client, set_id: String, documents: Vec<&'static Document>) -> Self {
        let mut watches = Watches::new(client);
        let named =
            |kind, name: &str| Target { kind, namespace: String::new(), selector: Selector::Name(name.to_owned()) };
        for document in &documents {
            watches.start(Id::Document(document.kind.plural), || named(&document.kind, document.name));
        }
        watches.start(Id::Status, || named(&status::write::KIND, status::write::NAME));
        Self { set_id, watches, documents, leftovers: BTreeSet::new(), documents_changed: true, named_changed: false }
    }

    /// Watches the inventory, too.
    pub(super) fn watch_inventory(&mut self, own_namespace: &str) {
        self.watches.start(Id::Inventory, || Target {
            kind: &CONFIG_MAP,
            namespace: own_namespace.to_owned(),
            selector: Selector::Name(inventory::NAME.to_owned()),
        });
    }

    /// Waits until something was seen, and takes all that has arrived. Of a Secret only a digest is kept.
    pub(super) async fn changed(&mut self) {
        let (documents_changed, named_changed) = (&mut self.documents_changed, &mut self.named_changed);
        let strip = |id: &Id, object: &mut DynamicObject| {
            if matches!(id, Id::Named(Reference { kind: Referable::Secret, .. })) {
                keep_digest(object);
            }
        };
        let changed = |id: &Id| {
            *documents_changed |= matches!(id, Id::Document(_));
            *named_changed |= matches!(id, Id::Named(_));
        };
        self.watches.changed(strip, changed).await;
    }

    /// What has not been seen yet and has to be before anything is applied, with the reason where there is one; of named
    /// objects only these count.
    pub(super) fn pending(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        let is_leftover = |id: &Id| matches!(id, Id::Ours(place) if self.leftovers.contains(place));
        self.watches.pending(|id| is_relevant(id, named) && !is_leftover(id))
    }

    /// The same, of these named objects alone.
    pub(super) fn pending_named(&self, named: &BTreeSet<Reference>) -> Vec<String> {
        self.watches.pending(|id| matches!(id, Id::Named(reference) if named.contains(reference)))
    }

    /// What has kept a watch from working for this long; of named objects only these count.
    pub(super) fn lasting_trouble(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        self.watches.lasting_trouble(period, |id| is_relevant(id, named))
    }

    /// The same of the documents and these named objects alone, for what reads nothing else.
    pub(super) fn lasting_trouble_of_inputs(&self, period: Duration, named: &BTreeSet<Reference>) -> Option<String> {
        let is_input = |id: &Id| !matches!(id, Id::Inventory | Id::Ours(_));
        self.watches.lasting_trouble(period, |id| is_relevant(id, named) && is_input(id))
    }

    /// Whether every document has been seen, and the status object.
    pub(super) fn knows_documents(&self) -> bool {
        self.watches.iter().all(|(id, seen)| !matches!(id, Id::Document(_) | Id::Status) || seen.is_synced())
    }

    /// Whether the status object has been seen, or seen to be absent.
    pub(super) fn knows_status_object(&self) -> bool {
        self.watches.seen(&Id::Status).is_some_and(Seen::is_synced)
    }

    /// Puts what was seen of the documents into `documents`. `None` when nothing has changed since the last call; an error is
    /// that of a document that cannot be read.
    pub(super) fn update(&mut self, documents: &mut Documents) -> Option<Result<(), String>> {
        if !std::mem::take(&mut self.documents_changed) {
            return None;
        }
        let mut read = Ok(());
        for document in &self.documents {
            let object = self.watches.get(&Id::Document(document.kind.plural), document.name);
            if let Err(error) = documents.take(document, object) {
                let (plural, group) = (document.kind.plural, document.kind.group);
                read = read.and(Err(format!("failed to read {plural}.{group}: {error}")));
            }
        }
        Some(read)
    }

    /// Watches these ConfigMaps and Secrets, and no other.
    pub(super) fn want(&mut self, named: &BTreeSet<Reference>) {
        self.watches.keep(|id| is_relevant(id, named));
        for reference in named {
            self.watches.start(Id::Named(reference.clone()), || Target {
                kind: reference.kind.kind(),
                namespace: reference.namespace.clone(),
                selector: Selector::Name(reference.name.clone()),
            });
        }
        self.named_changed = true;
    }

    /// A ConfigMap that is watched, as it is now.
    pub(super) fn named(&self, reference: &Reference) -> Option<&Value> {
        self.watches.get(&Id::Named(reference.clone()), &reference.name)
    }

    /// Takes the answer to a write of a named object.
    pub(super) fn put_named(&mut self, reference: &Reference, live: Value) {
        self.watches.put(&Id::Named(reference.clone()), &reference.name, live);
        self.named_changed = true;
    }

    /// Whether a named object may have changed since the last call.
    pub(super) fn take_named_changed(&mut self) -> bool {
        std::mem::take(&mut self.named_changed)
    }

    /// The digests of those of the named objects that exist.
    pub(super) fn digests(&self, named: &BTreeSet<Reference>) -> Digests {
        let digest = |reference: &Reference| {
            let value = self.named(reference)?;
            Some(match reference.kind {
                Referable::ConfigMap => reference::digest(value),
                Referable::Secret => value[DIGEST].as_str()?.to_owned(),
            })
        };
        named.iter().filter_map(|reference| Some((reference.clone(), digest(reference)?))).collect()
    }

    /// Watches our objects where they are planned, and where the inventory lists some.
    pub(super) fn follow(&mut self, planned: &Scope, inventory: &Scope) {
        let wanted = planned.union(inventory);
        self.leftovers = inventory.places().filter(|place| !planned.contains(place)).cloned().collect();
        self.watches.keep(|id: &Id| !matches!(id, Id::Ours(place) if !wanted.contains(place)));
        for place in wanted.places() {
            self.watches.start(Id::Ours(place.clone()), || Target {
                kind: place.kind,
                namespace: place.namespace.clone(),
                selector: Selector::Label(format!("{PART_OF_LABEL}={}", self.set_id)),
            });
        }
    }

    /// The places that were seen whole, each with our objects in it.
    pub(super) fn ours(&self) -> impl Iterator<Item = (&Place, impl Iterator<Item = &Value>)> {
        self.watches.iter().filter_map(|(id, seen)| match id {
            Id::Ours(place) if seen.is_synced() => Some((place, seen.objects())),
            _ => None,
        })
    }

    /// Whether a place that may hold leftovers is about to be seen.
    pub(super) fn awaits_leftovers(&self) -> bool {
        self.watches.iter().any(|(id, seen): (&Id, _)| {
            let is_leftover = matches!(id, Id::Ours(place) if self.leftovers.contains(place));
            is_leftover && !seen.is_synced() && seen.trouble().is_none()
        })
    }

    /// The namespaces of places that may hold leftovers and cannot be watched.
    pub(super) fn troubled_leftovers(&self) -> BTreeSet<String> {
        let troubled = self.leftovers.iter().filter(|place| {
            let seen = self.watches.seen(&Id::Ours((*place).clone()));
            place.kind.namespaced && seen.is_some_and(|seen| seen.trouble().is_some())
        });
        troubled.map(|place| place.namespace.clone()).collect()
    }

    pub(super) fn inventory(&self) -> Option<&Value> {
        self.watches.get(&Id::Inventory, inventory::NAME)
    }

    /// The live state of one of our objects.
    pub(super) fn live(&self, object: &Object) -> Option<&Value> {
        self.watches.get(&Id::Ours(Place::of(object)), object.name())
    }

    /// The live object that holds the status.
    pub(super) fn status_object(&self) -> Option<&Value> {
        self.watches.get(&Id::Status, status::write::NAME)
    }
}

/// Whether a watch matters to what needs only these named objects.
fn is_relevant(id: &Id, named: &BTreeSet<Reference>) -> bool {
    !matches!(id, Id::Named(reference) if !named.contains(reference))
}

/// The member that stands for what a Secret holds.
const DIGEST: &str = "digest";

/// Replaces what a Secret holds by its digest, before anything else sees it.
fn keep_digest(secret: &mut DynamicObject) {
    secret.data = json!({DIGEST: reference::digest(&secret.data)});
    // It may repeat the data.
    secret.metadata.annotations = None;
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
    async fn a_failing_watch_is_reported_only_to_what_needs_it() {
        let client = Client::new(Router::new().fallback(answer), "own");
        let mut observer = Observer::new(client, "set".into(), crate::facts::DOCUMENTS.iter().collect());
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
        let ends = observer.watches.trouble_changes_at(now).unwrap();
        assert!(ends > std::time::Instant::now() + Duration::from_secs(20));
    }
}
