//! What both config-sync controllers do alike (IO): bring ConfigMaps to their desired state, and report that in two conditions
//! of their own.
//!
//! Bad input is reported at once and changes nothing: the last good ConfigMap stays. What a ConfigMap is to hold, the
//! controllers decide.

use std::{collections::BTreeSet, time::Instant};

use k8s_openapi::jiff::{Timestamp, Unit};
use kube::Client;
use tracing::{error, info};

use crate::{
    apply::{
        ownership::{Need, need},
        write::Pruned,
    },
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

/// What a controller wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Desired {
    /// Not known yet: this is waited for.
    Waiting(Vec<String>),
    /// These ConfigMaps; none where there is nothing to do.
    Objects(Vec<Object>),
    /// It cannot be known: something is wrong with the input.
    Failed {
        /// What, for people.
        error: String,
        /// Whether only another input can mend it.
        is_terminal: bool,
    },
}

/// The part of a controller that writes.
pub(super) struct Sync {
    controller: &'static Controller,
    authority: Authority,
    applier: Applier,
    reporting: Backoff,
    /// Since when an input is wrong that may become right by itself.
    failing_since: Option<Instant>,
    last: Option<Verdict>,
    logged: Option<Verdict>,
}

/// How a controller's work goes.
#[derive(Clone, PartialEq, Eq)]
enum Verdict {
    Fine,
    Trouble(String),
}

impl Sync {
    /// Nothing has been written yet.
    pub(super) fn new(controller: &'static Controller, authority: Authority, client: Client, events: Events) -> Self {
        Self {
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

    /// Begins with a new desired state.
    pub(super) fn replanned(&mut self) {
        self.applier.replanned();
    }

    /// Writes what is not as desired, and reports. `needs` are the objects without which nothing can be known.
    pub(super) async fn pass(&mut self, view: &mut View, desired: &Desired, needs: &BTreeSet<Reference>) -> Pass {
        if let Some(trouble) = self.authority.trouble() {
            return Pass { waiting: vec![trouble], due: Vec::new() };
        }
        if !self.leads() {
            return Pass::default();
        }
        let patience = self.controller.patience;
        let mut waiting = Vec::new();
        let verdict = match desired {
            Desired::Waiting(pending) => {
                waiting.clone_from(pending);
                view.observer.lasting_trouble_of_inputs(patience, needs).map(Verdict::Trouble)
            }
            Desired::Failed { error, is_terminal } => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if *is_terminal || since.elapsed() >= patience {
                    Some(Verdict::Trouble(error.clone()))
                } else {
                    waiting.push(error.clone());
                    self.last.clone()
                }
            }
            Desired::Objects(objects) => match self.apply(view, objects).await {
                Ok(()) => {
                    let lasting = view.observer.lasting_trouble_of_inputs(patience, needs);
                    Some(lasting.map_or(Verdict::Fine, Verdict::Trouble))
                }
                Err(Stopped { error, is_reported }) => {
                    if is_reported || matches!(self.last, Some(Verdict::Trouble(_))) {
                        Some(Verdict::Trouble(error))
                    } else {
                        waiting.push(error);
                        self.last.clone()
                    }
                }
            },
        };
        if !matches!(desired, Desired::Failed { .. }) {
            self.failing_since = None;
        }
        if let Some(verdict) = verdict {
            waiting.extend(self.report(view, &verdict).await.err());
            self.last = Some(verdict);
        }
        let [applying, held] = self.applier.due();
        let due = [
            applying,
            held,
            self.reporting.due(),
            self.failing_since.map(|since| since + patience),
            view.observer.trouble_changes_at(patience),
        ];
        Pass { waiting, due: due.into_iter().flatten().collect() }
    }

    async fn apply(&mut self, view: &mut View, objects: &[Object]) -> Result<(), Stopped> {
        self.applier.begin()?;
        let budget = || self.authority.write_budget();
        for object in objects {
            let reference = Reference::config_map(object.namespace(), object.name());
            let live = view.observer.named(&reference);
            // The Go operator copied `immutable` from its source; such a ConfigMap can only be recreated.
            let frozen = live.filter(|live| live["immutable"] == true && need(object.value(), live) != Need::Nothing);
            let live = match frozen {
                None => live,
                Some(frozen) => match self.applier.delete((object.kind(), frozen), "it is immutable", &budget).await {
                    Ok(Some(Pruned::Gone | Pruned::Absent)) => None,
                    Ok(None | Some(Pruned::Terminating(_))) => continue,
                    Err(error) => return self.applier.stop_at(&[error]),
                },
            };
            let (written, applied) = self.applier.apply(std::iter::once((object, live)), &budget).await;
            for (_, live) in written {
                view.observer.put_named(&reference, live);
            }
            applied?;
        }
        self.applier.succeeded();
        Ok(())
    }

    /// Says what is wrong, if anything is, unless it is said already.
    async fn report(&mut self, view: &mut View, verdict: &Verdict) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        if let Some(error) = self.reporting.pending_error(Instant::now()) {
            return Err(error.to_owned());
        }
        let trouble = match verdict {
            Verdict::Fine => None,
            Verdict::Trouble(trouble) => Some(trouble.as_str()),
        };
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
