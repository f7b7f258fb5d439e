//! The common part of both config-sync controllers (IO): brings ConfigMaps to their desired state.
//!
//! Bad input is a result at once and changes nothing: the last good ConfigMap stays. The controllers decide the
//! content, and [`super::config_sync`] reports their results.

use std::{collections::BTreeSet, time::Instant};

use tracing::{error, info};

use crate::{
    apply::ownership::{Need, need},
    controllers::{Pass, applier::Applier, events::Events, failures::Stopped, view::View},
    object::{Object, reference::Reference},
    process::leadership::Authority,
    status::cluster_operator::{Controller, SyncResult},
};

/// The desired state of a controller's ConfigMaps; empty where there is nothing to do.
pub(super) type Desired = Result<Vec<Object>, Unknown>;

/// Why the desired state is not known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unknown {
    /// These inputs have not been seen yet.
    Waiting(Vec<String>),
    /// A terminal error: only another input can fix it.
    BadInput(String),
    /// A transient error of an input.
    Unreadable(String),
}

impl From<String> for Unknown {
    fn from(error: String) -> Self {
        Self::BadInput(error)
    }
}

/// The shared part of a controller.
pub(super) struct Sync {
    /// The revision of the view that the desired state was computed from; `None` if another input has changed since.
    pub(super) revision: Option<u64>,
    desired: Desired,
    controller: &'static Controller,
    authority: Authority,
    applier: Applier,
    unreadable_since: Option<Instant>,
    last: Option<SyncResult>,
}

impl Sync {
    pub(super) fn new(controller: &'static Controller, authority: Authority, events: Events) -> Self {
        Self {
            revision: None,
            desired: Err(Unknown::Waiting(Vec::new())),
            controller,
            authority,
            applier: Applier::new(events, controller.grace),
            unreadable_since: None,
            last: None,
        }
    }

    /// Whether the controller may write.
    pub(super) fn leads(&self) -> bool {
        self.authority.write_budget().is_some()
    }

    /// Whether the desired state has to be computed again. While one of its `needs` has not been seen it cannot be.
    pub(super) fn is_outdated(&mut self, view: &View, needs: &BTreeSet<Reference>) -> bool {
        if self.revision == Some(view.revision()) && !matches!(self.desired, Err(Unknown::Waiting(_))) {
            return false;
        }
        let pending = view.target.observer.pending_inputs(needs);
        let is_complete = pending.is_empty();
        if !is_complete {
            self.desire(Err(Unknown::Waiting(pending)), view);
        }
        is_complete
    }

    pub(super) fn desire(&mut self, desired: Desired, view: &View) {
        if self.desired != desired {
            self.desired = desired;
            if matches!(self.desired, Err(Unknown::BadInput(_))) {
                self.applier.events.failed("bad_input");
            }
            self.applier.replanned(false);
        }
        self.revision = Some(view.revision());
    }

    /// The controller with its result to report, if there is one yet.
    pub(super) fn result(&self) -> (&'static Controller, Option<&SyncResult>) {
        (self.controller, self.last.as_ref())
    }

    /// Applies the desired state. `needs` are the objects that the state is computed from.
    pub(super) async fn pass(&mut self, view: &mut View, needs: &BTreeSet<Reference>) -> Pass {
        if let Some(problem) = self.authority.problem() {
            return Pass { waiting: vec![problem], ..Pass::default() };
        }
        if !self.leads() {
            return Pass::default();
        }
        let grace = self.controller.grace;
        let is_unreadable = matches!(self.desired, Err(Unknown::Unreadable(_)));
        self.unreadable_since = is_unreadable.then(|| self.unreadable_since.unwrap_or_else(Instant::now));
        let (mut waiting, mut retrying) = (Vec::new(), Vec::new());
        let result = match &self.desired {
            Err(Unknown::Waiting(pending)) => {
                waiting.clone_from(pending);
                view.target.observer.lasting_problem_of_inputs(grace, needs).map(Err)
            }
            Err(Unknown::Unreadable(error)) if self.unreadable_since.is_some_and(|at| at.elapsed() < grace) => {
                retrying.push(error.clone());
                self.last.clone()
            }
            Err(Unknown::Unreadable(error) | Unknown::BadInput(error)) => Some(Err(error.clone())),
            Ok(objects) => match apply(&mut self.applier, &self.authority, view, objects).await {
                Ok(()) => Some(view.target.observer.lasting_problem_of_inputs(grace, needs).map_or(Ok(()), Err)),
                Err(Stopped { error, is_reported: false, .. }) if !matches!(self.last, Some(Err(_))) => {
                    retrying.push(error);
                    self.last.clone()
                }
                Err(Stopped { error, .. }) => Some(Err(error)),
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
        let due =
            [self.unreadable_since.map(|since| since + grace), view.target.observer.watches.problem_lasts_at(grace)];
        let due = due.into_iter().chain(self.applier.due()).flatten().collect();
        let succeeded = matches!(self.last, Some(Ok(()))).then_some(self.controller.word);
        Pass { waiting, retrying, due, held_back: self.applier.contested().len(), succeeded, ..Pass::default() }
    }
}

async fn apply(
    applier: &mut Applier,
    authority: &Authority,
    view: &mut View,
    objects: &[Object],
) -> Result<(), Stopped> {
    applier.begin()?;
    let budget = || authority.write_budget();
    for object in objects {
        let reference = Reference::config_map(object.namespace(), object.name());
        let mut live = view.target.observer.named(&reference);
        // The Go operator copied `immutable` from its source; such a ConfigMap can only be recreated.
        let frozen = live.take_if(|live| live["immutable"] == true && need(object.value(), live) != Need::Nothing);
        if let Some(frozen) = frozen {
            // Without the limit another manager that recreates it would be fought at the speed of the API server.
            if !applier.may_repair(object.key()) {
                continue;
            }
            if applier.delete(&view.target.client, (object.kind(), frozen), "it is immutable", &budget).await.is_none()
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
    match applier.overruled().next() {
        Some((key, fields)) => Err(Stopped {
            error: format!(
                "the API server or an admission plugin changes {key} when it is applied: {}",
                fields.join(", ")
            ),
            is_reported: true,
            is_terminal: false,
            is_denied: false,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kube::Client;
    use tokio::sync::watch;

    use super::*;
    use crate::{controllers::metrics::Metrics, process::leadership::Leadership};

    /// Never leads, and so never writes.
    pub(in crate::controllers) fn sync(controller: &'static Controller, client: Client) -> Sync {
        let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
        let events = Events::start(client, Metrics::default());
        Sync::new(controller, Authority { leadership, shutdown }, events)
    }
}
