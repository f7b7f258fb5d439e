//! What both config-sync controllers do alike (IO): bring ConfigMaps to what they are to hold, and say how that goes in two
//! conditions of the ClusterOperator.
//!
//! Bad input is said at once and changes nothing: the last good ConfigMap stays. It never decides what a ConfigMap is to hold.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{Timestamp, Unit};
use tracing::{error, info, warn};

use crate::{
    apply::{self, ownership},
    controllers::events::Events,
    object::{Object, reference::Reference},
    status::cluster_operator::Controller,
};
use crate::{
    controllers::{
        Round,
        backoff::{Backoff, Brake},
        view::View,
    },
    process::lease::Authority,
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
pub(super) struct Syncer {
    controller: &'static Controller,
    authority: Authority,
    events: Events,
    applying: Backoff,
    reporting: Backoff,
    brake: Brake,
    brake_until: Option<Instant>,
    /// Since when an input is wrong that may mend itself.
    failing_since: Option<Instant>,
    last: Option<Verdict>,
    logged: Option<Verdict>,
}

/// What is said of a controller's work.
#[derive(Clone, PartialEq, Eq)]
enum Verdict {
    Fine,
    Trouble(String),
}

impl Syncer {
    /// One that has written nothing yet.
    pub(super) fn new(controller: &'static Controller, authority: Authority, events: Events) -> Self {
        Self {
            controller,
            authority,
            events,
            applying: Backoff::default(),
            reporting: Backoff::default(),
            brake: Brake::default(),
            brake_until: None,
            failing_since: None,
            last: None,
            logged: None,
        }
    }

    /// Whether it may write.
    pub(super) fn leads(&self) -> bool {
        self.authority.write_budget().is_some()
    }

    /// What has failed may have failed because of what was wanted before; and what is written now puts nothing back.
    pub(super) fn replanned(&mut self) {
        self.applying = Backoff::default();
        self.brake = Brake::default();
    }

    /// Writes what is not as wanted, and says how it went. `needs` are the objects without which nothing can be known.
    pub(super) async fn pass(&mut self, view: &mut View, desired: &Desired, needs: &BTreeSet<Reference>) -> Round {
        if let Some(trouble) = self.authority.trouble() {
            return Round { waiting: vec![trouble], due: Vec::new() };
        }
        if self.authority.write_budget().is_none() {
            return Round::default();
        }
        let patience = self.controller.patience;
        let mut waiting = Vec::new();
        let verdict = match desired {
            Desired::Waiting(pending) => {
                let lasting = view.observer.lasting_trouble_of_inputs(patience, needs);
                waiting.clone_from(pending);
                lasting.map(Verdict::Trouble)
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
            Desired::Objects(objects) => match self.apply_all(view, objects).await {
                Ok(()) => {
                    let lasting = view.observer.lasting_trouble_of_inputs(patience, needs);
                    Some(lasting.map_or(Verdict::Fine, Verdict::Trouble))
                }
                Err(Failure { error, is_reported: true }) => Some(Verdict::Trouble(error)),
                Err(Failure { error, is_reported: false }) => {
                    waiting.push(error);
                    self.last.clone()
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
        let due = [
            self.applying.due(),
            self.reporting.due(),
            self.brake_until,
            self.failing_since.map(|since| since + patience),
            view.observer.trouble_changes_at(patience),
        ];
        Round { waiting, due: due.into_iter().flatten().collect() }
    }

    async fn apply_all(&mut self, view: &mut View, objects: &[Object]) -> Result<(), Failure> {
        if let Some(error) = self.applying.waits(Instant::now()) {
            return Err(Failure { error: error.to_owned(), is_reported: self.is_reported(self.controller.patience) });
        }
        self.brake_until = None;
        for object in objects {
            if let Err(error) = self.apply(view, object).await {
                let (text, is_terminal) = (crate::error::chain(&error), error.source.is_terminal());
                // Also what is refused for good is tried again: the process's rights may change, or the object.
                if self.applying.failed(&text, error.retry_after(), Instant::now()) && !is_terminal {
                    warn!("{text}; trying again");
                }
                let is_reported = self.is_reported(error.source.patience(self.controller.patience));
                return Err(Failure { error: text, is_reported });
            }
        }
        self.applying = Backoff::default();
        Ok(())
    }

    fn is_reported(&self, patience: Duration) -> bool {
        let said = matches!(self.last, Some(Verdict::Trouble(_)));
        said || self.applying.has_lasted(patience, Instant::now())
    }

    async fn apply(&mut self, view: &mut View, object: &Object) -> Result<(), apply::Error> {
        let reference = Reference::config_map(object.namespace(), object.name());
        let live = view.observer.named(&reference);
        let live = live.map(|live| (live, ownership::need(object.value(), live)));
        if live.is_some_and(|(_, need)| need == ownership::Need::Nothing) {
            return Ok(());
        }
        if let Err(free) = self.brake.repair(object.key(), Instant::now()) {
            self.brake_until = Some(free);
            return Ok(());
        }
        let budget = || self.authority.write_budget();
        // The Go operator copied this from its source; what is so can only be made anew.
        let frozen = live.filter(|(live, _)| live["immutable"] == true);
        if let Some((frozen, _)) = frozen {
            apply::prune(&view.client, object.kind(), frozen, budget()).await?;
        }
        let live = if frozen.is_some() { None } else { live };
        let applied = apply::apply(&view.client, object, live, budget).await?;
        info!("{}", applied.change);
        self.events.tell(&applied.change, &applied.live, None);
        view.observer.put_named(&reference, applied.live);
        Ok(())
    }

    /// Says what is wrong, if anything is, unless it is said already.
    async fn report(&mut self, view: &mut View, verdict: &Verdict) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        if let Some(error) = self.reporting.waits(Instant::now()) {
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

struct Failure {
    error: String,
    is_reported: bool,
}
