//! One `CloudControllerManager`: its inputs and their result, and which of several that exclude each other is refused (pure, but for
//! what it asks of the watches).

use std::{collections::BTreeMap, time::Instant};

use serde_json::Value;

use super::{
    Ccms, DEFAULT_NAMESPACE,
    change::{Change, Grounds},
    definition::Definition,
    first::{Gate, is_workload},
    guard::Guarded,
    report::live_of,
};
use crate::{
    api::{
        check,
        spec::{Lifecycle, Management},
        status::Status,
    },
    controllers::{observer::Observer, progress::Progress, view::ViewSettings},
    facts::{
        ccm::{Ccm, Controller},
        cluster::Cluster,
    },
    nodes::identity::CcmIdentity,
    object::Object,
    plan::kubernetes::{
        conflict::{Running, Standing, as_it_runs, conflict},
        sources::{Found, InputProblem, Named},
        validation::{self, Validation},
    },
    preflight::pods::running,
    provider::catalog::Catalog,
    status::{ccm::NotInitializing, outcome::Outcome},
};

/// The reason of one that another one excludes.
const CONFLICT: &str = "Conflict";

#[derive(Default)]
pub(super) struct Member {
    pub(super) generation: i64,
    /// What it asks for, or why that cannot be read.
    ccm: Option<Result<Ccm, (&'static str, String)>>,
    /// The digest of the external provider that its objects are of, as its status says, unless they are to go.
    applied_digest: Option<String>,
    /// Where its cloud-controller-manager is to be looked for.
    pub(super) identity: Option<CcmIdentity>,
    /// What its workloads run.
    pub(super) running: Option<Running>,
    pub(super) named: Vec<Named>,
    /// What was seen of that at the last validation, unless it has to be validated again.
    found: Option<Vec<Found>>,
    created: String,
    /// What the inputs come to; `None` until all of them have been looked at.
    pub(super) validation: Option<Validation>,
    /// The plan in force: the last one that was accepted while nothing was paused. It stays while an input is bad or a change refused.
    pub(super) accepted: Option<Vec<Object>>,
    /// Whether what runs may become what the inputs come to.
    pub(super) change: Change,
    pub(super) gate: Gate,
    pub(super) progress: Progress,
    /// When the status was last written, and what.
    pub(super) written: Option<(Instant, Status)>,
    /// What the installed definition lacks of it.
    pub(super) definition: Definition,
    pub(super) guard: Guarded,
}

impl Ccms {
    /// Notes what the workloads run. Returns whether that has changed.
    pub(super) fn see_running(&mut self, observer: &Observer) -> bool {
        let mut has_changed = false;
        for (name, member) in &mut self.fleet {
            let workloads = live_of(observer, name).filter(|(location, _)| is_workload(location.kind.kind));
            let running = running(workloads.map(|(_, live)| live));
            has_changed |= member.running != running;
            member.running = running;
        }
        has_changed
    }

    /// Refuses a `CloudControllerManager` that would have an object, a lease or a controller of one that goes first, or that runs.
    pub(super) fn exclude_conflicts(&mut self, catalog: &Catalog) {
        let as_it_runs = |(name, member): (&String, &Member)| {
            Some((name.clone(), as_it_runs(member.ccm()?, member.running.as_ref()?)))
        };
        let live: Vec<(String, Ccm)> = self.fleet.iter().filter_map(as_it_runs).collect();
        let mut in_order: Vec<_> = self.fleet.iter_mut().collect();
        in_order.sort_by(|(name, one), (other_name, other)| {
            one.order(name, one.running.as_ref()).cmp(&other.order(other_name, other.running.as_ref()))
        });
        let (mut keys, mut first) = (BTreeMap::new(), Vec::new());
        for (name, member) in in_order {
            let wanted = member.ccm().filter(|_| !member.is_removed()).cloned();
            let is_change = member.order(name, member.running.as_ref()).0 != Standing::Runs;
            let running = live.iter().filter(|(other, _)| is_change && other != name).map(|(_, other)| other);
            let of_ccm = wanted
                .as_ref()
                .filter(|_| member.is_good())
                .and_then(|ccm| first.iter().chain(running).find_map(|other| conflict(catalog, ccm, other)));
            let of_object = member.planned().iter().find_map(|object| {
                let other: &String = keys.get(&object.key())?;
                Some(format!("metadata.name: {} is an object of the CloudControllerManager {other}", object.key()))
            });
            if let Some(problem) = of_ccm.or(of_object) {
                member.exclude(problem);
                continue;
            }
            // Whether its inputs are good does not count: nothing is to go from one to the other and back.
            first.extend(wanted);
            keys.extend(member.planned().iter().map(|object| (object.key(), name.clone())));
        }
    }
}

impl Member {
    pub(super) fn read(&mut self, live: &Value, cluster: Cluster, settings: &ViewSettings, catalog: &Catalog) {
        self.generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
        live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().clone_into(&mut self.created);
        let digest = live["status"]["provider"]["digest"].as_str().filter(|digest| !digest.is_empty());
        let is_removed = settings.remove_providers.iter().any(|name| live["spec"]["provider"] == **name);
        self.applied_digest = digest.filter(|_| !is_removed).map(str::to_owned);
        let ccm = ccm(live, cluster, settings, catalog);
        if self.ccm.as_ref() == Some(&ccm) {
            return;
        }
        (self.ccm, self.validation) = (Some(ccm), None);
        if !self.gate.is_open {
            self.gate = Gate::default();
        }
        // What is to go reads nothing.
        let reads = self.ccm().filter(|_| !self.is_removed());
        self.named = reads.map(|ccm| validation::needs(catalog, ccm)).unwrap_or_default();
        self.identity =
            self.ccm().and_then(|ccm| CcmIdentity::kubernetes(catalog.kubernetes_of(&ccm.spec.provider).ok()?, ccm));
    }

    /// Has it read again.
    pub(super) fn forget(&mut self) {
        self.ccm = None;
    }

    /// Where its cloud-controller-manager is to be looked for, if that should initialize nodes.
    pub(super) fn initializes(&self) -> Result<&CcmIdentity, NotInitializing> {
        let is_on = |ccm: &Ccm| ccm.controllers().any(|on| on == Controller::CloudNode);
        match self.ccm() {
            _ if self.is_removed() => Err(NotInitializing::Removed),
            Some(ccm) if !is_on(ccm) => Err(NotInitializing::ControllerOff),
            _ => self.identity.as_ref().ok_or(NotInitializing::BadInput),
        }
    }

    /// Whether the object has been read, be it to no avail.
    pub(super) fn is_read(&self) -> bool {
        self.ccm.is_some()
    }

    /// What it asks for, if that can be read.
    pub(super) fn ccm(&self) -> Option<&Ccm> {
        self.ccm.as_ref()?.as_ref().ok()
    }

    /// Why what it asks for cannot be read, or is not allowed by the installation, if so.
    pub(super) fn why_unreadable(&self) -> Option<&str> {
        self.ccm.as_ref()?.as_ref().err().map(|(_, message)| message.as_str())
    }

    /// Validates the inputs, once all have been looked at, if one has changed.
    pub(super) fn validate(&mut self, catalog: &Catalog, observer: &Observer) {
        let found: Option<Vec<_>> = self.named.iter().map(|named| observer.found(&named.reference)).collect();
        let (Some(found), Some(ccm)) = (found, &self.ccm) else { return };
        if self.validation.is_some() && self.found.as_ref() == Some(&found) {
            return;
        }
        let validated = match ccm {
            Ok(ccm) => {
                let of = |reference: &_| {
                    let known = self.named.iter().zip(&found).find(|(named, _)| named.reference == *reference);
                    known.map_or(Found::Absent, |(_, found)| found.clone())
                };
                let orphaned = self.why_orphaned(ccm, catalog);
                let refused = orphaned.map(|why| Validation::refused("ProviderNotGiven", why));
                refused.unwrap_or_else(|| validation::validate(catalog, ccm, of))
            }
            Err((reason, message)) => Validation::refused(reason, message.clone()),
        };
        (self.validation, self.found, self.change) = (Some(validated), Some(found), Change::Unknown);
    }

    pub(super) fn forget_validation(&mut self) {
        (self.validation, self.change) = (None, Change::Unknown);
    }

    /// Puts in force what its inputs come to, unless it is paused.
    pub(super) fn accept_change(&mut self) {
        self.change = Change::Accepted;
        if !self.is_paused() {
            self.accepted = self.validation.as_ref().and_then(|validation| validation.objects.clone());
        }
    }

    /// Refuses what its inputs come to; the plan that was accepted last stays in force.
    pub(super) fn refuse_change(&mut self, grounds: Grounds, problem: InputProblem) {
        self.change = Change::Refused(Box::new(grounds));
        let Some(validation) = &mut self.validation else { return };
        let refused = validation.objects.take();
        validation.configuration = Some(Err(problem));
        // The same plan may have been accepted when something else ran.
        self.accepted.take_if(|accepted| refused.as_ref() == Some(accepted));
    }

    /// Why no other provider may take the place of the external one that its objects are of.
    fn why_orphaned(&self, ccm: &Ccm, catalog: &Catalog) -> Option<String> {
        let name = &ccm.spec.provider;
        let digest = self.applied_digest.as_ref().filter(|_| !self.is_removed())?;
        let is_built_in = catalog.kubernetes_of(name).is_ok_and(|provider| provider.origin.is_none());
        is_built_in.then(|| {
            format!(
                "spec.provider: its objects are of the external provider {name:?} ({digest}), which is not given: the built-in one of \
                 this name does not take its place; give it again, or --remove-provider {name} to change to the built-in one"
            )
        })
    }

    /// Refuses it for what another one has.
    pub(super) fn exclude(&mut self, problem: String) {
        self.validation = Some(Validation::refused(CONFLICT, problem));
        self.accepted = None;
        // The other one may go.
        self.found = None;
    }

    /// The order of precedence: of two that stand alike, the older one goes first.
    pub(super) fn order<'a>(&'a self, name: &'a str, running: Option<&Running>) -> (Standing, (&'a str, &'a str)) {
        let standing = match self.ccm() {
            Some(ccm) => Standing::of(ccm, self.gate.is_open, running),
            None => Standing::New,
        };
        (standing, (&self.created, name))
    }

    pub(super) fn is_validated(&self) -> bool {
        self.validation.is_some()
    }

    /// Whether its own inputs are known, and good: what is wrong with them is reported first.
    pub(super) fn is_good(&self) -> bool {
        let is_own = |problem: &InputProblem| problem.reason != CONFLICT;
        self.validation.as_ref().is_some_and(|validation| !validation.problem().is_some_and(is_own))
    }

    pub(super) fn is_paused(&self) -> bool {
        self.ccm().is_some_and(|ccm| ccm.spec.management == Management::Paused)
    }

    pub(super) fn is_removed(&self) -> bool {
        self.ccm().is_some_and(|ccm| ccm.spec.management == Management::Removed)
    }

    /// The objects that its inputs come to, whether or not they are accepted yet; while an input is bad, those in force.
    pub(super) fn planned(&self) -> &[Object] {
        let validated = self.validation.as_ref().and_then(|validation| validation.objects.as_deref());
        validated.or(self.accepted.as_deref()).unwrap_or_default()
    }

    /// The objects that are to go, where nothing should exist.
    pub(super) fn removed(&self) -> &[Object] {
        self.validation.as_ref().map_or(&[], |validation| &validation.removed)
    }

    /// Those that are to be applied.
    pub(super) fn objects(&self) -> &[Object] {
        if self.is_paused() { &[] } else { self.accepted.as_deref().unwrap_or_default() }
    }

    /// Whether what it has and should not have is to go: the plan in force was made of its current inputs.
    pub(super) fn may_prune(&self) -> bool {
        let is_good = self.validation.as_ref().is_some_and(|validation| validation.objects.is_some());
        is_good && self.change == Change::Accepted && !self.is_paused()
    }

    /// Whether nothing more is to be done for it, and nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        self.progress.last.as_ref().is_some_and(Outcome::is_well)
    }
}

/// What a live object asks for; else a reason and a message.
fn ccm(
    live: &Value,
    cluster: Cluster,
    settings: &ViewSettings,
    catalog: &Catalog,
) -> Result<Ccm, (&'static str, String)> {
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    check::name(name).map_err(|(field, problem)| ("Invalid", format!("{field}: {problem}")))?;
    // The API server knows the fields: what is unknown here is of another version of the operator.
    let ccm = Ccm::of_live(live, cluster);
    let mut ccm = ccm.map_err(|error| ("Unknown", format!("spec: {error}; this may need a newer operator")))?;
    // It goes with everything that it has.
    if live["metadata"]["deletionTimestamp"].is_string() {
        ccm.spec.management = Management::Removed;
    }
    // Nothing that the installation does not allow any more keeps one from going.
    if ccm.spec.management == Management::Removed {
        return Ok(ccm);
    }
    let default = [DEFAULT_NAMESPACE.to_owned()];
    let given = settings.namespaces.as_slice();
    let namespaces = if given.is_empty() { &default } else { given };
    if !namespaces.contains(&ccm.spec.namespace) {
        let message = format!(
            "spec.namespace: the operator may not manage {}; its installation (--namespaces) lists {}",
            ccm.spec.namespace,
            namespaces.join(", ")
        );
        return Err(("NamespaceNotAllowed", message));
    }
    if ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled && !settings.node_deletion {
        let message = "spec.controllers.cloudNodeLifecycle: the operator may not let nodes be deleted; its installation needs \
                       the flag --node-deletion (ccm-operator render install --node-deletion)";
        return Err(("NodeDeletionNotAllowed", message.to_owned()));
    }
    let provider = catalog.kubernetes_of(&ccm.spec.provider);
    // The objects of its provider are to go. One that is refused may only be mistyped.
    if settings.remove_providers.contains(&ccm.spec.provider) && catalog.refused().is_empty() && provider.is_err() {
        ccm.spec.management = Management::Removed;
        return Ok(ccm);
    }
    settings.limits.check(&ccm, provider.ok().map(|provider| &provider.descriptor))?;
    Ok(ccm)
}
