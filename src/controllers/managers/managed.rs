//! One `CloudControllerManager`: its inputs and their result (pure, but for what it asks of the watches).

use std::time::Instant;

use serde_json::Value;

use super::{
    DEFAULT_NAMESPACE,
    change::{Change, Grounds},
    definition::Definition,
    first::Gate,
    guard::Guarded,
};
use crate::{
    api::{
        check,
        spec::{Lifecycle, Management},
        status::Status,
    },
    controllers::{observer::Observer, progress::Progress, view::ViewSettings},
    facts::{
        cluster::Cluster,
        manager::{Controller, Manager},
    },
    nodes::subject::Subject,
    object::Object,
    plan::upstream::{
        judgement::{self, Judgement},
        sources::{Found, Named, Trouble},
    },
    provider::catalog::Catalog,
    status::manager::{NotInitializing, Outcome},
};

/// The reason of one that another one excludes.
const CONFLICT: &str = "Conflict";

/// A `CloudControllerManager`.
#[derive(Default)]
pub(super) struct Managed {
    /// The generation of the object.
    pub(super) generation: i64,
    /// What it asks for, or why that cannot be read.
    manager: Option<Result<Manager, (&'static str, String)>>,
    /// What it names.
    pub(super) named: Vec<Named>,
    /// The digest of the external provider that its objects are of, as its status says, unless they are to go.
    applied_digest: Option<String>,
    /// Where its cloud-controller-manager is to be looked for.
    pub(super) subject: Option<Subject>,
    /// What was seen of that at the last judgement, unless it has to be judged again.
    found: Option<Vec<Found>>,
    /// When the object was created.
    created: String,
    /// What the inputs come to; `None` until all of them have been looked at.
    pub(super) judgement: Option<Judgement>,
    /// The plan in force: the last one that was accepted while nothing was paused. It stays while an input is bad or a change refused.
    pub(super) accepted: Option<Vec<Object>>,
    /// Whether what runs may become what the inputs come to.
    pub(super) change: Change,
    /// The checks before its first installation.
    pub(super) gate: Gate,
    /// What the passes have come to.
    pub(super) progress: Progress<Outcome>,
    /// When the status was last written, and what.
    pub(super) written: Option<(Instant, Status)>,
    /// What the installed definition lacks of it.
    pub(super) definition: Definition,
    /// Which nodes it may delete.
    pub(super) guard: Guarded,
}

impl Managed {
    /// Reads the live object.
    pub(super) fn read(&mut self, live: &Value, cluster: Cluster, settings: &ViewSettings, catalog: &Catalog) {
        self.generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
        live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().clone_into(&mut self.created);
        let digest = live["status"]["provider"]["digest"].as_str().filter(|digest| !digest.is_empty());
        let is_removed = settings.remove_providers.iter().any(|name| live["spec"]["provider"] == **name);
        self.applied_digest = digest.filter(|_| !is_removed).map(str::to_owned);
        let manager = manager(live, cluster, settings).map(|manager| unless_removed(manager, settings, catalog));
        let manager = manager.and_then(|manager| within_limits(manager, settings, catalog));
        if self.manager.as_ref() == Some(&manager) {
            return;
        }
        (self.manager, self.judgement) = (Some(manager), None);
        if !self.gate.is_open {
            self.gate = Gate::default();
        }
        // What is to go reads nothing.
        let reads = self.manager().filter(|_| !self.is_removed());
        self.named = reads.map(|manager| judgement::needs(catalog, manager)).unwrap_or_default();
        self.subject = self
            .manager()
            .and_then(|manager| Subject::upstream(catalog.upstream_of(&manager.spec.provider).ok()?, manager));
    }

    /// Has it read again.
    pub(super) fn forget(&mut self) {
        self.manager = None;
    }

    /// Where its cloud-controller-manager is to be looked for, if that should initialize nodes.
    pub(super) fn initializes(&self) -> Result<&Subject, NotInitializing> {
        let is_on = |manager: &Manager| manager.controllers().any(|on| on == Controller::CloudNode);
        match self.manager() {
            _ if self.is_removed() => Err(NotInitializing::Removed),
            Some(manager) if !is_on(manager) => Err(NotInitializing::ControllerOff),
            _ => self.subject.as_ref().ok_or(NotInitializing::BadInput),
        }
    }

    /// Whether the object has been read, be it to no avail.
    pub(super) fn is_read(&self) -> bool {
        self.manager.is_some()
    }

    /// What it asks for, if that can be read.
    pub(super) fn manager(&self) -> Option<&Manager> {
        self.manager.as_ref()?.as_ref().ok()
    }

    /// Why what it asks for cannot be read, or is not allowed by the installation, if so.
    pub(super) fn why_unreadable(&self) -> Option<&str> {
        self.manager.as_ref()?.as_ref().err().map(|(_, message)| message.as_str())
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
                let orphaned = self.why_orphaned(manager, catalog);
                let refused = orphaned.map(|why| Judgement::refused("ProviderNotGiven", why));
                refused.unwrap_or_else(|| judgement::judge(catalog, manager, of))
            }
            Err((reason, message)) => Judgement::refused(reason, message.clone()),
        };
        (self.judgement, self.found, self.change) = (Some(judged), Some(found), Change::Unknown);
    }

    /// Has its inputs judged again.
    pub(super) fn forget_judgement(&mut self) {
        (self.judgement, self.change) = (None, Change::Unknown);
    }

    /// Puts in force what its inputs come to, unless it is paused.
    pub(super) fn accept_change(&mut self) {
        self.change = Change::Accepted;
        if !self.is_paused() {
            self.accepted = self.judgement.as_ref().and_then(|judgement| judgement.objects.clone());
        }
    }

    /// Refuses what its inputs come to; the plan that was accepted last stays in force.
    pub(super) fn refuse_change(&mut self, grounds: Grounds, trouble: Trouble) {
        self.change = Change::Refused(Box::new(grounds));
        let Some(judgement) = &mut self.judgement else { return };
        let refused = judgement.objects.take();
        judgement.configuration = Some(Err(trouble));
        // The same plan may have been accepted when something else ran.
        self.accepted.take_if(|accepted| refused.as_ref() == Some(accepted));
    }

    /// Why no other provider may take the place of the external one that its objects are of.
    fn why_orphaned(&self, manager: &Manager, catalog: &Catalog) -> Option<String> {
        let name = &manager.spec.provider;
        let digest = self.applied_digest.as_ref().filter(|_| !self.is_removed())?;
        let is_built_in = catalog.upstream_of(name).is_ok_and(|provider| provider.origin.is_none());
        is_built_in.then(|| {
            format!(
                "spec.provider: its objects are of the external provider {name:?} ({digest}), which is not given: the built-in one of \
                 this name does not take its place; give it again, or --remove-provider {name} to change to the built-in one"
            )
        })
    }

    /// Refuses it for what another one has.
    pub(super) fn exclude(&mut self, problem: String) {
        self.judgement = Some(Judgement::refused(CONFLICT, problem));
        self.accepted = None;
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

    /// Whether its own inputs are known, and good: what is wrong with them is reported first.
    pub(super) fn is_good(&self) -> bool {
        let is_own = |trouble: &Trouble| trouble.reason != CONFLICT;
        self.judgement.as_ref().is_some_and(|judgement| !judgement.trouble().is_some_and(is_own))
    }

    /// Whether it wants nothing changed.
    pub(super) fn is_paused(&self) -> bool {
        self.manager().is_some_and(|manager| manager.spec.management == Management::Paused)
    }

    /// Whether it wants nothing to exist.
    pub(super) fn is_removed(&self) -> bool {
        self.manager().is_some_and(|manager| manager.spec.management == Management::Removed)
    }

    /// The objects that its inputs come to, whether or not they are accepted yet; while an input is bad, those in force.
    pub(super) fn planned(&self) -> &[Object] {
        let judged = self.judgement.as_ref().and_then(|judgement| judgement.objects.as_deref());
        judged.or(self.accepted.as_deref()).unwrap_or_default()
    }

    /// The objects that are to go, where nothing should exist.
    pub(super) fn removed(&self) -> &[Object] {
        self.judgement.as_ref().map_or(&[], |judgement| &judgement.removed)
    }

    /// Those that are to be applied.
    pub(super) fn objects(&self) -> &[Object] {
        if self.is_paused() { &[] } else { self.accepted.as_deref().unwrap_or_default() }
    }

    /// Whether what it has and should not have is to go: the plan in force was made of its current inputs.
    pub(super) fn may_prune(&self) -> bool {
        let is_good = self.judgement.as_ref().is_some_and(|judgement| judgement.objects.is_some());
        is_good && self.change == Change::Accepted && !self.is_paused()
    }

    /// Whether nothing more is to be done for it, and nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        self.progress.last.as_ref().is_some_and(Outcome::is_well)
    }
}

/// What it asks for, but for its removal where the installation wants the objects of its provider to go.
fn unless_removed(mut manager: Manager, settings: &ViewSettings, catalog: &Catalog) -> Manager {
    let name = &manager.spec.provider;
    // One that is refused may only be mistyped.
    let is_gone = catalog.refused().is_empty() && catalog.upstream_of(name).is_err();
    if settings.remove_providers.contains(name) && is_gone {
        manager.spec.management = Management::Removed;
    }
    manager
}

/// What it asks for, if the installation allows that. Nothing that it does not allow any more keeps one from going.
fn within_limits(
    manager: Manager,
    settings: &ViewSettings,
    catalog: &Catalog,
) -> Result<Manager, (&'static str, String)> {
    let descriptor = catalog.upstream_of(&manager.spec.provider).ok().map(|provider| &provider.descriptor);
    match settings.limits.check(&manager, descriptor) {
        Err(refusal) if manager.spec.management != Management::Removed => Err(refusal),
        _ => Ok(manager),
    }
}

/// What a live object asks for; else a reason and a message.
fn manager(live: &Value, cluster: Cluster, settings: &ViewSettings) -> Result<Manager, (&'static str, String)> {
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    check::name(name).map_err(|(field, problem)| ("Invalid", format!("{field}: {problem}")))?;
    // The API server knows the fields: what is unknown here is of another version of the operator.
    let manager = Manager::of_live(live, cluster);
    let mut manager = manager.map_err(|error| ("Unknown", format!("spec: {error}; this may need a newer operator")))?;
    // It goes with everything that it has.
    if live["metadata"]["deletionTimestamp"].is_string() {
        manager.spec.management = Management::Removed;
    }
    // Nothing that the installation does not allow any more keeps one from going.
    if manager.spec.management == Management::Removed {
        return Ok(manager);
    }
    let default = [DEFAULT_NAMESPACE.to_owned()];
    let given = settings.namespaces.as_slice();
    let namespaces = if given.is_empty() { &default } else { given };
    if !namespaces.contains(&manager.spec.namespace) {
        let message = format!(
            "spec.namespace: the operator may not manage {}; its installation (--namespaces) lists {}",
            manager.spec.namespace,
            namespaces.join(", ")
        );
        return Err(("NamespaceNotAllowed", message));
    }
    if manager.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled && !settings.node_deletion {
        let message = "spec.controllers.cloudNodeLifecycle: the operator may not let nodes be deleted; its installation needs \
                       the flag --node-deletion (ccm-operator render install --node-deletion)";
        return Err(("NodeDeletionNotAllowed", message.to_owned()));
    }
    Ok(manager)
}
