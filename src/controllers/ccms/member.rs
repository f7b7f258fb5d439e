//! One `CloudControllerManager`: its inputs and their plan, and the decision which of two conflicting ones is refused (pure, except for
//! reads of the watches).

use std::{collections::BTreeMap, time::Instant};

use serde_json::Value;

use super::{
    DEFAULT_CCM_NAMESPACE, KubernetesFleet,
    first_installation::{FirstInstallation, is_workload},
    guard::Guarded,
    live_of,
    missing_fields::MissingStatusFields,
    stage::{Grounds, Stage},
};
use crate::{
    api::{
        check,
        spec::{Lifecycle, Management},
        status::Status,
    },
    apply::settled::Settled,
    controllers::{
        observer::Observer,
        progress::{Progress, Rollouts},
        view::ViewSettings,
    },
    facts::{
        ccm::{Ccm, Controller},
        cluster::Cluster,
    },
    nodes::identity::CcmIdentity,
    object::{Object, PART_OF_LABEL},
    plan::kubernetes::{
        conflict::{Running, Standing, as_it_runs, conflict},
        sources::{InputProblem, Named, SourceState, named},
        validation::{self, Validation},
    },
    preflight::pods::running,
    provider::{catalog::Catalog, kubernetes::KubernetesProvider},
    status::{ccm::NotInitializing, outcome::Outcome},
};

/// The spec of a `CloudControllerManager`, as far as it has been read.
#[derive(Default)]
enum SpecState {
    /// The spec has not been read, or has to be read again.
    #[default]
    Unread,
    /// The spec cannot be read, or the installation does not allow it. Holds the reason and the message.
    Unusable(&'static str, String),
    Read(Box<ReadSpec>),
}

/// A spec that was read, and the values derived from it alone.
struct ReadSpec {
    ccm: Ccm,
    /// The identity by which its cloud-controller-manager is found.
    identity: Option<CcmIdentity>,
    /// The ConfigMaps and Secrets that it names.
    named: Vec<Named>,
}

/// One `CloudControllerManager`. Its spec is read, its inputs are validated, and the change to their plan is accepted or refused.
#[derive(Default)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) generation: i64,
    created: String,
    /// The digest of the external provider that its status reports as applied, unless the objects of that provider are removed.
    applied_digest: Option<String>,
    spec: SpecState,
    pub(super) stage: Stage,
    /// The plan in force: the last one that was accepted while nothing was paused. It stays while an input is bad or a change is refused.
    pub(super) accepted: Option<Vec<Object>>,
    /// The image and the controllers of its live workloads.
    pub(super) running: Option<Running>,
    pub(super) gate: FirstInstallation,
    pub(super) progress: Progress,
    /// The status that was last written, and the time of the write.
    pub(super) written: Option<(Instant, Status)>,
    /// The fields of the status that the installed CustomResourceDefinition lacks.
    pub(super) missing_fields: MissingStatusFields,
    pub(super) guard: Guarded,
}

impl KubernetesFleet {
    /// Updates the images and the controllers that the live workloads run. Returns whether one has changed.
    pub(super) fn update_running(&mut self, observer: &Observer) -> bool {
        let mut has_changed = false;
        for member in self.members.values_mut() {
            let workloads = live_of(observer, &member.name).filter(|(location, _)| is_workload(location.kind.kind));
            let running = running(workloads.map(|(_, live)| live));
            has_changed |= member.running != running;
            member.running = running;
        }
        has_changed
    }

    /// Refuses each `CloudControllerManager` that would share an object, a lease or a controller with one that has precedence or runs.
    pub(super) fn exclude_conflicts(&mut self, catalog: &Catalog) {
        let as_it_runs = |member: &Member| Some(as_it_runs(member.ccm()?, member.running.as_ref()?));
        let live: Vec<Ccm> = self.members.values().filter_map(as_it_runs).collect();
        let mut in_order: Vec<_> = self.members.values_mut().collect();
        in_order.sort_by(|one, other| one.order(one.running.as_ref()).cmp(&other.order(other.running.as_ref())));
        let (mut keys, mut first) = (BTreeMap::new(), Vec::new());
        for member in in_order {
            let wanted = member.ccm().filter(|_| !member.is_removed()).cloned();
            let is_change = member.order(member.running.as_ref()).0 != Standing::Runs;
            let running = live.iter().filter(|other| is_change && other.name != member.name);
            let conflict_of_ccm = wanted
                .as_ref()
                .filter(|_| member.has_valid_inputs())
                .and_then(|ccm| first.iter().chain(running).find_map(|other| conflict(catalog, ccm, other)));
            let conflict_of_object = member.planned().iter().find_map(|object| {
                let other: &String = keys.get(&object.key())?;
                Some(format!("metadata.name: {} is an object of the CloudControllerManager {other}", object.key()))
            });
            if let Some(problem) = conflict_of_ccm.or(conflict_of_object) {
                member.exclude(problem);
                continue;
            }
            // Bad inputs do not change the order, so that objects do not move from one to the other and back.
            first.extend(wanted);
            keys.extend(member.planned().iter().map(|object| (object.key(), member.name.clone())));
        }
    }
}

impl Member {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Reads the live object. A changed spec has to be validated again.
    pub(super) fn read(&mut self, live: &Value, cluster: Cluster, settings: &ViewSettings, catalog: &Catalog) {
        self.generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
        live["metadata"]["creationTimestamp"].as_str().unwrap_or_default().clone_into(&mut self.created);
        let digest = live["status"]["provider"]["digest"].as_str().filter(|digest| !digest.is_empty());
        let is_removed = settings.remove_providers.iter().any(|name| live["spec"]["provider"] == **name);
        self.applied_digest = digest.filter(|_| !is_removed).map(str::to_owned);
        let provider = catalog.kubernetes_of(live["spec"]["provider"].as_str().unwrap_or_default()).ok();
        let ccm = ccm((live, cluster), settings, provider, !catalog.refused().is_empty());
        let is_unchanged = match (&self.spec, &ccm) {
            (SpecState::Unusable(reason, message), Err(error)) => (reason, message) == (&error.0, &error.1),
            (SpecState::Read(spec), Ok(ccm)) => spec.ccm == *ccm,
            _ => false,
        };
        if is_unchanged {
            return;
        }
        self.spec = match ccm {
            Ok(ccm) => SpecState::Read(Box::new(ReadSpec::new(ccm, provider))),
            Err((reason, message)) => SpecState::Unusable(reason, message),
        };
        self.stage = Stage::Unvalidated;
        if !self.gate.is_open {
            self.gate = FirstInstallation::default();
        }
    }

    /// Reads the `CloudControllerManager` again at the next pass.
    pub(super) fn forget_spec(&mut self) {
        self.spec = SpecState::Unread;
    }

    /// Validates the inputs again at the next pass.
    pub(super) fn forget_validation(&mut self) {
        self.stage = Stage::Unvalidated;
    }

    /// Returns the identity by which its cloud-controller-manager is found, if it should initialize nodes.
    pub(super) fn initializes(&self) -> Result<&CcmIdentity, NotInitializing> {
        let is_on = |ccm: &Ccm| ccm.controllers().any(|on| on == Controller::CloudNode);
        match self.ccm() {
            _ if self.is_removed() => Err(NotInitializing::Removed),
            Some(ccm) if !is_on(ccm) => Err(NotInitializing::ControllerOff),
            _ => self.identity().ok_or(NotInitializing::BadInput),
        }
    }

    /// Whether the object has been read, even if its spec cannot be used.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.spec, SpecState::Unread)
    }

    fn read_spec(&self) -> Option<&ReadSpec> {
        match &self.spec {
            SpecState::Read(spec) => Some(spec),
            SpecState::Unread | SpecState::Unusable(..) => None,
        }
    }

    /// Returns the spec with its defaults, if it can be used.
    pub(super) fn ccm(&self) -> Option<&Ccm> {
        self.read_spec().map(|spec| &spec.ccm)
    }

    /// Returns the identity by which the cloud-controller-manager is found.
    pub(super) fn identity(&self) -> Option<&CcmIdentity> {
        self.read_spec()?.identity.as_ref()
    }

    /// Returns the ConfigMaps and Secrets that the spec names.
    pub(super) fn named(&self) -> &[Named] {
        self.read_spec().map_or(&[], |spec| &spec.named)
    }

    /// Returns the reason why the spec cannot be read, or is not allowed by the installation.
    pub(super) fn why_unusable(&self) -> Option<&str> {
        match &self.spec {
            SpecState::Unusable(_, message) => Some(message),
            SpecState::Unread | SpecState::Read(_) => None,
        }
    }

    /// Validates the inputs if one has changed, once all of them have been seen.
    pub(super) fn validate(&mut self, catalog: &Catalog, observer: &Observer) {
        let seen: Option<Vec<_>> = self.named().iter().map(|named| observer.source_state(&named.reference)).collect();
        let Some(seen) = seen.filter(|seen| !self.stage.is_current(seen)) else { return };
        let mut validation = match &self.spec {
            SpecState::Unread => return,
            SpecState::Unusable(reason, message) => Validation::refused(reason, message.clone()),
            SpecState::Read(spec) => {
                let of = |reference: &_| {
                    let known = spec.named.iter().zip(&seen).find(|(named, _)| named.reference == *reference);
                    known.map_or(SourceState::Absent, |(_, found)| found.clone())
                };
                let orphaned = self.why_orphaned(&spec.ccm, catalog);
                let refused = orphaned.map(|why| Validation::refused("ProviderNotGiven", why));
                refused.unwrap_or_else(|| validation::validate(catalog, &spec.ccm, of))
            }
        };
        for object in validation.objects.iter_mut().flatten() {
            object.set_label(PART_OF_LABEL, &observer.set_id);
        }
        self.stage = Stage::validated(validation, seen);
    }

    /// Puts the plan in force, unless the member is paused.
    pub(super) fn accept_change(&mut self) {
        self.stage.accept();
        if !self.is_paused() {
            self.accepted = self.stage.planned().map(<[Object]>::to_vec);
        }
    }

    /// Refuses the plan. The plan that was accepted last stays in force.
    pub(super) fn refuse_change(&mut self, grounds: Grounds, problem: InputProblem) {
        let refused = self.stage.refuse(grounds, problem);
        // The same plan may have been accepted when another workload ran.
        self.accepted.take_if(|accepted| refused.as_ref() == Some(accepted));
    }

    /// Refuses the member, because another one has the same object, lease or controller.
    fn exclude(&mut self, problem: String) {
        (self.stage, self.accepted) = (Stage::excluded(problem), None);
    }

    /// Returns the reason why nothing may be planned if the external provider that has installed the objects is not given.
    fn why_orphaned(&self, ccm: &Ccm, catalog: &Catalog) -> Option<String> {
        let name = &ccm.spec.provider;
        let digest = self.applied_digest.as_ref().filter(|_| !self.is_removed())?;
        if catalog.check().is_err() || catalog.is_external(name) {
            return None;
        }
        let of =
            format!("spec.provider: its objects are of the external provider {name:?} ({digest}), which is not given");
        Some(if catalog.is_built_in(name) {
            format!(
                "{of}: the built-in one of this name does not take its place; give it again, or --remove-provider {name} to change to \
                 the built-in one"
            )
        } else {
            format!("{of}: give it again with --provider, or its objects stay as they are")
        })
    }

    /// Returns the order of precedence. Of two members with the same standing, the older one goes first.
    pub(super) fn order(&self, running: Option<&Running>) -> (Standing, (&str, &str)) {
        let standing = match self.ccm() {
            Some(ccm) => Standing::of(ccm, self.gate.is_open, running),
            None => Standing::New,
        };
        (standing, (&self.created, &self.name))
    }

    /// Returns the result of the validation, if the inputs are validated.
    pub(super) fn validation(&self) -> Option<&Validation> {
        self.stage.validation()
    }

    /// Whether its own inputs are validated and good. A conflict with another member does not count.
    pub(super) fn has_valid_inputs(&self) -> bool {
        matches!(self.stage, Stage::Excluded(_)) || self.validation().is_some_and(|valid| valid.problem().is_none())
    }

    pub(super) fn is_paused(&self) -> bool {
        self.ccm().is_some_and(|ccm| ccm.spec.management == Management::Paused)
    }

    pub(super) fn is_removed(&self) -> bool {
        self.ccm().is_some_and(|ccm| ccm.spec.management == Management::Removed)
    }

    /// Returns the planned objects, whether accepted yet or not; while an input is bad, the objects in force.
    pub(super) fn planned(&self) -> &[Object] {
        self.stage.planned().or(self.accepted.as_deref()).unwrap_or_default()
    }

    /// Returns the outcome of the rollouts of its planned objects, which are applied.
    pub(super) fn outcome_of_rollouts(&mut self, observer: &Observer, settled: Settled, rollouts: Rollouts) -> Outcome {
        let planned = self.stage.planned().or(self.accepted.as_deref()).unwrap_or_default();
        self.progress.of_rollouts(settled, (planned, rollouts), observer)
    }

    /// Returns the objects that are deleted if nothing should exist.
    pub(super) fn removed(&self) -> &[Object] {
        self.validation().map_or(&[], |validation| &validation.removed)
    }

    /// Returns the objects that are applied.
    pub(super) fn objects_in_force(&self) -> &[Object] {
        if self.is_paused() { &[] } else { self.accepted.as_deref().unwrap_or_default() }
    }

    /// Whether its objects that are no longer planned are deleted, because the plan in force is based on its current inputs.
    pub(super) fn may_prune(&self) -> bool {
        matches!(self.stage, Stage::Accepted(_)) && !self.is_paused()
    }

    /// Whether there is nothing left to do for it, and no problem.
    pub(super) fn is_well(&self) -> bool {
        self.progress.last.as_ref().is_some_and(Outcome::is_well)
    }
}

#[cfg(test)]
impl Member {
    /// A member whose inputs are validated.
    pub(super) fn validated(validation: Validation) -> Self {
        Self { stage: Stage::validated(validation, Vec::new()), ..Self::new("cluster") }
    }
}

impl ReadSpec {
    fn new(ccm: Ccm, provider: Option<&KubernetesProvider>) -> Self {
        // A removed member needs no input.
        let needing = provider.filter(|_| ccm.spec.management != Management::Removed);
        let named = needing.map(|provider| named(&provider.descriptor, &ccm)).unwrap_or_default();
        let identity = provider.and_then(|provider| CcmIdentity::kubernetes(provider, &ccm));
        Self { ccm, identity, named }
    }
}

/// Returns the spec of a live object with its defaults, or the reason and the message why it cannot be used.
fn ccm(
    (live, cluster): (&Value, Cluster),
    settings: &ViewSettings,
    provider: Option<&KubernetesProvider>,
    is_any_refused: bool,
) -> Result<Ccm, (&'static str, String)> {
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    check::name(name).map_err(|(field, problem)| ("Invalid", format!("{field}: {problem}")))?;
    // The API server has validated the fields, so an unknown field belongs to another version of the operator.
    let ccm = Ccm::of_live(live, cluster);
    let mut ccm = ccm.map_err(|error| ("Unknown", format!("spec: {error}; this may need a newer operator")))?;
    // The deletion of the object also removes the objects that it owns.
    if live["metadata"]["deletionTimestamp"].is_string() {
        ccm.spec.management = Management::Removed;
    }
    // The limits of the installation do not block a removal.
    if ccm.spec.management == Management::Removed {
        return Ok(ccm);
    }
    let default = [DEFAULT_CCM_NAMESPACE.to_owned()];
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
    // The objects of its provider are removed, unless a provider is refused, because that one may have this name.
    if settings.remove_providers.contains(&ccm.spec.provider) && !is_any_refused && provider.is_none() {
        ccm.spec.management = Management::Removed;
        return Ok(ccm);
    }
    settings.limits.check(&ccm, provider.map(|provider| &provider.descriptor))?;
    Ok(ccm)
}
