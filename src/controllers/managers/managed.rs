//! One `CloudControllerManager`: its inputs, and what they come to (pure, but for what it asks of the watches).

use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::{
        check,
        spec::{Management, Spec},
    },
    controllers::{backoff::Backoff, observer::Observer},
    facts::{cluster::Cluster, manager::Manager},
    object::Object,
    plan::upstream::{
        judgement::{self, Judgement},
        sources::{Found, Named},
    },
    provider::catalog::Catalog,
    status::manager::Outcome,
};

/// A `CloudControllerManager`.
#[derive(Default)]
pub(super) struct Managed {
    /// The generation of the object.
    pub(super) generation: i64,
    /// What it asks for, or why that cannot be read.
    manager: Option<Result<Manager, (&'static str, String)>>,
    /// What it names.
    pub(super) named: Vec<Named>,
    /// What was seen of that at the last judgement, unless it has to be judged again.
    found: Option<Vec<Found>>,
    /// When the object was created.
    created: String,
    /// What the inputs come to; `None` until all of them have been looked at.
    pub(super) judgement: Option<Judgement>,
    /// The last good plan; it stays in force while an input is bad.
    objects: Option<Vec<Object>>,
    /// What the last pass has come to.
    pub(super) last: Option<Outcome>,
    /// What of that was logged last.
    pub(super) logged: String,
    pub(super) reporting: Backoff,
    pub(super) stuck_since: Option<Instant>,
}

impl Managed {
    /// Reads the live object.
    pub(super) fn read(&mut self, live: &Value, cluster: Cluster, namespaces: &[String], catalog: &Catalog) {
        self.generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
        live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().clone_into(&mut self.created);
        let manager = manager(live, cluster, namespaces);
        if self.manager.as_ref() == Some(&manager) {
            return;
        }
        (self.manager, self.judgement) = (Some(manager), None);
        // What is to go reads nothing.
        let reads = self.manager().filter(|_| !self.is_removed());
        self.named = reads.map(|manager| judgement::needs(catalog, manager)).unwrap_or_default();
    }

    /// What it asks for, if that can be read.
    pub(super) fn manager(&self) -> Option<&Manager> {
        self.manager.as_ref()?.as_ref().ok()
    }

    /// Judges the inputs, once all have been looked at, if one has changed.
    pub(super) fn judge(&mut self, catalog: &Catalog, observer: &Observer) {
        let found: Option<Vec<_>> = self.named.iter().map(|named| observer.found(&named.reference)).collect();
        let (Some(found), Some(manager)) = (found, &self.manager) else { return };
        if self.judgement.is_some() && self.found.as_ref() == Some(&found) {
            return;
        }
        let judged = match manager {
            Ok(manager) => {
                let of = |reference: &_| {
                    let known = self.named.iter().zip(&found).find(|(named, _)| named.reference == *reference);
                    known.map_or(Found::Absent, |(_, found)| found.clone())
                };
                judgement::judge(catalog, manager, of)
            }
            Err((reason, message)) => Judgement::refused(reason, message.clone()),
        };
        if judged.objects.is_some() {
            self.objects.clone_from(&judged.objects);
        }
        (self.judgement, self.found) = (Some(judged), Some(found));
    }

    /// Refuses it for what another one has.
    pub(super) fn exclude(&mut self, problem: String) {
        self.judgement = Some(Judgement::refused("Conflict", problem));
        self.objects = None;
        // The other one may go.
        self.found = None;
    }

    /// What tells which of two was there first.
    pub(super) fn age<'a>(&'a self, name: &'a str) -> (&'a str, &'a str) {
        (&self.created, name)
    }

    /// Whether its inputs have been judged.
    pub(super) fn is_judged(&self) -> bool {
        self.judgement.is_some()
    }

    /// Whether it wants nothing changed.
    pub(super) fn is_paused(&self) -> bool {
        self.manager().is_some_and(|manager| manager.spec.management == Management::Paused)
    }

    /// Whether it wants nothing to exist.
    pub(super) fn is_removed(&self) -> bool {
        self.manager().is_some_and(|manager| manager.spec.management == Management::Removed)
    }

    /// The objects of its last good plan.
    pub(super) fn planned(&self) -> &[Object] {
        self.objects.as_deref().unwrap_or_default()
    }

    /// The objects that are to go, where nothing should exist.
    pub(super) fn removed(&self) -> &[Object] {
        self.judgement.as_ref().map_or(&[], |judgement| &judgement.removed)
    }

    /// Those that are to be applied.
    pub(super) fn objects(&self) -> &[Object] {
        if self.is_paused() { &[] } else { self.planned() }
    }

    /// Whether what it has and should not have is to go: its plan was made of its current inputs.
    pub(super) fn may_prune(&self) -> bool {
        !self.is_paused() && self.judgement.as_ref().is_some_and(|judgement| judgement.objects.is_some())
    }

    /// The namespace and the name of its lease, unless it is to go. Whether its inputs are good does not count: the lease is not to
    /// go from one to the other and back.
    pub(super) fn lease(&self) -> Option<(String, String)> {
        let manager = self.manager().filter(|_| !self.is_removed())?;
        Some((manager.spec.namespace.clone(), manager.lease_name()))
    }

    /// Whether nothing more is to be done for it, and nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        matches!(self.last, Some(Outcome::Applied | Outcome::Paused | Outcome::Removed))
    }
}

/// What a live object asks for; else a reason and a message.
fn manager(live: &Value, cluster: Cluster, namespaces: &[String]) -> Result<Manager, (&'static str, String)> {
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    check::name(name).map_err(|(field, problem)| ("Invalid", format!("{field}: {problem}")))?;
    // The API server knows the fields: what is unknown here is of another version of the operator.
    let spec = Spec::deserialize(&live["spec"]);
    let mut spec = spec.map_err(|error| ("Unknown", format!("spec: {error}; this may need a newer operator")))?;
    if !namespaces.contains(&spec.namespace) {
        let message = format!(
            "spec.namespace: the operator may not manage {}; its installation (--namespaces) lists {}",
            spec.namespace,
            namespaces.join(", ")
        );
        return Err(("NamespaceNotAllowed", message));
    }
    // It goes with everything that it has.
    if live["metadata"]["deletionTimestamp"].is_string() {
        spec.management = Management::Removed;
    }
    Ok(Manager::new(name.to_owned(), spec, cluster))
}
