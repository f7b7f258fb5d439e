//! The shared part of both config-sync controllers (IO): brings ConfigMaps to their desired state, and reports that in two
//! conditions of their own.
//!
//! Bad input is reported at once and changes nothing: the last good ConfigMap stays. The controllers decide the content.

use std::{collections::BTreeSet, time::Instant};

use k8s_openapi::jiff::{Timestamp, Unit};
use kube::Client;
use tracing::{error, info};

use crate::{
    apply::ownership::{Need, need},
    controllers::{
        Pass,
        applier::{Applier, Stopped},
        backoff::Backoff,
        events::Events,
        view::View,
    },
    object::{Object, reference::Reference},
    process::lease::Authority,
    status::cluster_operator::Controller,
};

/// The desired state of a controller's ConfigMaps.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Desired {
    /// Not known yet; holds what it waits for.
    Waiting(Vec<String>),
    /// These ConfigMaps; none where there is nothing to do.
    Objects(Vec<Object>),
    /// The input is bad.
    Failed {
        error: String,
        /// Whether only another input can fix it.
        is_terminal: bool,
    },
}

/// The part that both controllers share.
pub(super) struct Sync {
    /// The revision of the view that the desired state is for; `None` when another input has changed.
    pub(super) revision: Option<u64>,
    desired: Desired,
    controller: &'static Controller,
    authority: Authority,
    applier: Applier,
    reporting: Backoff,
    /// Since when an input is bad that may become good by itself.
    failing_since: Option<Instant>,
    last: Option<Verdict>,
    logged: Option<Verdict>,
}

/// Whether a controller works, or its trouble.
type Verdict = Result<(), String>;

impl Sync {
    pub(super) fn new(controller: &'static Controller, authority: Authority, client: Client, events: Events) -> Self {
        Self {
            revision: None,
            desired: Desired::Waiting(Vec::new()),
            controller,
            authority,
            applier: Applier::new(client, events, controller.patience),
            reporting: Backoff::default(),
            failing_since: None,
            last: None,
            logged: None,
        }
    }

    /// Whether it may write.
    pub(super) fn leads(&self) -> bool {
        self.authority.write_budget().is_some()
    }

    /// Whether the desired state has to be computed again and can be: without one of its `needs` it waits for that.
    pub(super) fn is_outdated(&mut self, view: &View, needs: &BTreeSet<Reference>) -> bool {
        if self.revision == Some(view.revision()) && !matches!(self.desired, Desired::Waiting(_)) {
            return false;
        }
        let pending = view.pending_inputs(needs);
        let is_complete = pending.is_empty();
        if !is_complete {
            self.desire(Desired::Waiting(pending), view);
        }
        is_complete
    }

    /// Replaces the desired state.
    pub(super) fn desire(&mut self, desired: Desired, view: &View) {
        if self.desired != desired {
            self.desired = desired;
            self.applier.replanned();
        }
        self.revision = Some(view.revision());
    }

    /// Applies the desired state, and reports. `needs` are the objects that it is computed from.
    pub(super) async fn pass(&mut self, view: &mut View, needs: &BTreeSet<Reference>) -> Pass {
        if let Some(trouble) = self.authority.trouble() {
            return Pass { waiting: vec![trouble], due: Vec::new() };
        }
        if !self.leads() {
            return Pass::default();
        }
        let patience = self.controller.patience;
        let mut waiting = Vec::new();
        let verdict = match &self.desired {
            Desired::Waiting(pending) => {
                waiting.clone_from(pending);
                view.observer.lasting_trouble_of_inputs(patience, needs).map(Err)
            }
            Desired::Failed { error, is_terminal } => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if *is_terminal || since.elapsed() >= patience {
                    Some(Err(error.clone()))
                } else {
                    waiting.push(error.clone());
                    self.last.clone()
                }
            }
            Desired::Objects(objects) => match apply(&mut self.applier, &self.authority, view, objects).await {
                Ok(()) => Some(view.observer.lasting_trouble_of_inputs(patience, needs).map_or(Ok(()), Err)),
                Err(Stopped { error, is_reported }) => {
                    if is_reported || matches!(self.last, Some(Err(_))) {
                        Some(Err(error))
                    } else {
                        waiting.push(error);
                        self.last.clone()
                    }
                }
            },
        };
        if !matches!(self.desired, Desired::Failed { .. }) {
            self.failing_since = None;
        }
        if let Some(verdict) = verdict {
            waiting.extend(self.report(view, &verdict).await.err());
            self.last = Some(verdict);
        }
        let due = [
            self.reporting.due(),
            self.failing_since.map(|since| since + patience),
            view.observer.watches.trouble_lasts_at(patience),
        ];
        Pass { waiting, due: due.into_iter().chain(self.applier.due()).flatten().collect() }
    }

    /// Reports a verdict, unless the status has it already.
    async fn report(&mut self, view: &mut View, verdict: &Verdict) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        if let Some(error) = self.reporting.pending_error(Instant::now()) {
            return Err(error.to_owned());
        }
        let trouble = verdict.as_ref().err().map(String::as_str);
        if self.logged.as_ref() != Some(verdict) {
            if let Some(trouble) = trouble {
                error!("{} is degraded: {trouble}", self.controller.name);
            } else {
                info!("{} works as expected", self.controller.name);
            }
            self.logged = Some(verdict.clone());
        }
        let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        let next = view.status().next_of(self.controller, trouble, &now);
        view.report((self.controller.manager, &next), false, &self.authority, &mut self.reporting).await
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
        let live = view.observer.named(&reference);
        // The Go operator copied `immutable` from its source; such a ConfigMap can only be recreated.
        let frozen = live.filter(|live| live["immutable"] == true && need(object.value(), live) != Need::Nothing);
        let live = match frozen {
            None => live,
            // The apply counts as the repair.
            Some(frozen) => match applier.delete((object.kind(), frozen), "it is immutable", &budget).await {
                Ok(_) => None,
                Err(error) => return applier.stop_at(&[error]),
            },
        };
        let (written, outcome) = applier.apply(std::iter::once((object, live)), &budget).await;
        for (_, live) in written {
            view.observer.put_named(&reference, live);
        }
        outcome?;
    }
    applier.succeeded();
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::process::{lease::Leadership, metrics::Metrics};

    /// What never leads, and so never writes.
    pub(in crate::controllers) fn sync(controller: &'static Controller, client: Client) -> Sync {
        let (leadership, shutdown) = (watch::channel(Leadership::Waiting(None)).1, watch::channel(false).1);
        let events = Events::start(client.clone(), Metrics::default());
        Sync::new(controller, Authority { leadership, shutdown }, client, events)
    }
}
