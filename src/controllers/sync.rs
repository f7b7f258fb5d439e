//! The common part of both config-sync controllers (IO): brings ConfigMaps to their desired state.
//!
//! Bad input is a result at once and changes nothing: the last good ConfigMap stays. The controllers decide the
//! content, and [`super::config_sync`] reports their results.

use std::{collections::BTreeSet, time::Instant};

use tracing::{error, info};

use crate::{
    apply::{
        change::Action,
        ownership::{RequiredWrites, required_writes},
    },
    controllers::{Pass, applier::Applier, events::Events, failures::PassError, view::View},
    grace::SYNC_GRACE,
    object::{Object, reference::Reference},
    process::leadership::Authority,
    status::cluster_operator::{SyncController, SyncResult},
};

/// The desired ConfigMaps of a controller; empty if there is nothing to do.
pub(super) type DesiredConfigMaps = Result<Vec<Object>, Unknown>;

/// The reason why the desired state is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unknown {
    /// These inputs have not been seen yet.
    Waiting(Vec<String>),
    /// A terminal error, which only a changed input can fix.
    BadInput(String),
    /// A transient error of an input.
    Unreadable(String),
}

impl From<String> for Unknown {
    fn from(error: String) -> Self {
        Self::BadInput(error)
    }
}

/// The source of the ConfigMaps that a controller syncs.
pub(super) trait Source {
    fn desire(&mut self, view: &View) -> DesiredConfigMaps;

    /// Logs warnings that are not errors, in every pass of a leader.
    fn warn(&mut self, _: &View) {}
}

pub(super) struct ConfigMapSync<S> {
    pub(super) source: S,
    /// The objects that the desired state is computed from.
    needs: fn(&View) -> BTreeSet<Reference>,
    /// The revision of the view that the desired state was computed from; `None` if another input has changed since.
    pub(super) revision: Option<u64>,
    desired: DesiredConfigMaps,
    controller: &'static SyncController,
    authority: Authority,
    applier: Applier,
    unreadable_since: Option<Instant>,
    last: Option<SyncResult>,
}

impl<S: Source> ConfigMapSync<S> {
    pub(super) fn new(
        source: S,
        needs: fn(&View) -> BTreeSet<Reference>,
        controller: &'static SyncController,
        (authority, events): (Authority, Events),
    ) -> Self {
        Self {
            source,
            needs,
            revision: None,
            desired: Err(Unknown::Waiting(Vec::new())),
            controller,
            authority,
            applier: Applier::new(events, SYNC_GRACE),
            unreadable_since: None,
            last: None,
        }
    }

    /// Computes the desired state again if an input has changed. It is unknown while one of its `needs` has not been seen.
    fn update(&mut self, view: &View, needs: &BTreeSet<Reference>) {
        if self.revision == Some(view.revision) && !matches!(self.desired, Err(Unknown::Waiting(_))) {
            return;
        }
        let pending = view.target.observer.pending_inputs(needs);
        let desired = if pending.is_empty() { self.source.desire(view) } else { Err(Unknown::Waiting(pending)) };
        if self.desired != desired {
            self.desired = desired;
            if matches!(self.desired, Err(Unknown::BadInput(_))) {
                view.target.metrics.errors.of(["bad_input"]).inc();
            }
            self.applier.replanned(false);
        }
        self.revision = Some(view.revision);
    }

    /// Returns the controller with its last result, if there is one yet.
    pub(super) fn result(&self) -> (&'static SyncController, Option<&SyncResult>) {
        (self.controller, self.last.as_ref())
    }

    pub(super) async fn pass(&mut self, view: &mut View) -> Pass {
        view.refresh();
        let needs = &(self.needs)(view);
        self.update(view, needs);
        if let Some(problem) = self.authority.problem() {
            return Pass { waiting: vec![problem], ..Pass::default() };
        }
        if self.authority.write_budget().is_none() {
            return Pass::default();
        }
        self.source.warn(view);
        let is_unreadable = matches!(self.desired, Err(Unknown::Unreadable(_)));
        self.unreadable_since = is_unreadable.then(|| self.unreadable_since.unwrap_or_else(Instant::now));
        let (mut waiting, mut retrying) = (Vec::new(), Vec::new());
        let result = match &self.desired {
            Err(Unknown::Waiting(pending)) => {
                waiting.clone_from(pending);
                view.target.observer.lasting_problem_of_inputs(SYNC_GRACE, needs).map(Err)
            }
            Err(Unknown::Unreadable(error)) if self.unreadable_since.is_some_and(|at| at.elapsed() < SYNC_GRACE) => {
                retrying.push(error.clone());
                self.last.clone()
            }
            Err(Unknown::Unreadable(error) | Unknown::BadInput(error)) => Some(Err(error.clone())),
            Ok(objects) => match apply(&mut self.applier, &self.authority, view, objects).await {
                Ok(()) => Some(view.target.observer.lasting_problem_of_inputs(SYNC_GRACE, needs).map_or(Ok(()), Err)),
                Err(PassError { error, is_reported: false, .. }) if !matches!(self.last, Some(Err(_))) => {
                    retrying.push(error);
                    self.last.clone()
                }
                Err(PassError { error, .. }) => Some(Err(error)),
            },
        };
        if let Some(result) = result
            && self.last.as_ref() != Some(&result)
        {
            match &result {
                Ok(()) => info!("{} works as expected", self.controller.name),
                Err(problem) => error!("{} is degraded: {problem}", self.controller.name),
            }
            self.last = Some(result);
        }
        let due = [
            self.unreadable_since.map(|since| since + SYNC_GRACE),
            view.target.observer.watches.problem_lasts_at(SYNC_GRACE),
        ];
        let due = due.into_iter().chain(self.applier.due()).flatten().collect();
        let succeeded = matches!(self.last, Some(Ok(()))).then_some(self.controller.word);
        Pass { waiting, retrying, due, contested: self.applier.contested.len(), succeeded, ..Pass::default() }
    }
}

async fn apply(
    applier: &mut Applier,
    authority: &Authority,
    view: &mut View,
    objects: &[Object],
) -> Result<(), PassError> {
    applier.begin()?;
    let budget = || authority.write_budget();
    for object in objects {
        let reference = Reference::config_map(object.namespace(), object.name());
        let mut live = view.target.observer.named(&reference);
        // The Go operator copied `immutable` from its source; such a ConfigMap can only be recreated.
        let frozen = live.take_if(|live| {
            live["immutable"] == true && required_writes(object.value(), live) != RequiredWrites::Nothing
        });
        if let Some(frozen) = frozen {
            // The limit of repairs applies, in case another manager recreates the ConfigMap each time.
            if !applier.may_repair(object.key()) {
                continue;
            }
            if applier
                .delete(&view.target.client, (object.kind(), frozen), (Action::Recreate, "it is immutable"), &budget)
                .await
                .is_none()
            {
                break;
            }
        }
        let written = applier.apply(&view.target.client, std::iter::once((object, live)), &budget).await;
        for (_, live) in written {
            view.target.observer.put_named(&reference, live);
        }
        if !applier.failures.is_empty() {
            break;
        }
    }
    applier.finish()?;
    let Some((key, fields)) = applier.overruled().next() else { return Ok(()) };
    let error =
        format!("the API server or an admission plugin changes {key} when it is applied: {}", fields.join(", "));
    Err(PassError { is_reported: true, ..error.into() })
}
