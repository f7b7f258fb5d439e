//! The checks before a first installation (IO). A failed check prevents the installation, and never affects a
//! cloud-controller-manager that is installed.
//!
//! The live Deployment or DaemonSet, or else the status, shows whether one is installed, so a restart of the operator
//! changes nothing. The checks are not made for one that is installed. For one that is refused they are repeated, less
//! and less often.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use tracing::warn;

use super::{
    Managed, Managers,
    report::live_of,
    survey::{Answer, Found, Question},
};
use crate::{
    apply::inventory::Place,
    cluster::{read::Error, seen},
    controllers::{
        Pass,
        backoff::Backoff,
        observer::{Id, Observer},
        view::View,
    },
    error::chain,
    grace::TRANSIENT_ERROR_PATIENCE,
    nodes::{
        evidence::Seen,
        node::Node,
        subject::{Need, Subject},
    },
    object::Object,
    plan::upstream::conflict::as_it_runs,
    preflight::{
        self,
        check::{Outcome, Row, line, refusal},
        evidence::{Evidence, Other, Reader},
        inputs, rights,
    },
    status::manager::was_installed,
};

/// The first and the longest pause after a refusal; each is twice the one before. Of a large cluster a survey is many requests.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(600));

/// What stands before the first installation of one.
#[derive(Default)]
pub(super) struct Gate {
    /// Whether it is installed, or may be.
    pub(super) is_open: bool,
    /// What the checks have shown, if this process has made them.
    pub(super) rows: Option<Vec<Row>>,
    /// After a failure.
    backoff: Backoff,
    /// After a refusal: the pause, and its end.
    refused: Option<(Duration, Instant)>,
}

impl Gate {
    /// Why it is closed, once that is known; an error is what is waited for, and whether that is to be reported.
    pub(super) fn refusal(&self) -> Result<String, (String, bool)> {
        match &self.rows {
            Some(rows) if refusal(rows).is_some() => Ok(line(rows, Outcome::Refused)),
            _ => {
                let error = self.backoff.error().unwrap_or("the checks before the first installation");
                Err((error.to_owned(), self.backoff.has_lasted(Instant::now())))
            }
        }
    }

    /// Whether the checks are to be made now.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        self.backoff.ready(now).is_ok() && self.refused.is_none_or(|(_, until)| until <= now)
    }

    fn due(&self) -> Option<Instant> {
        self.backoff.due().max(self.refused.map(|(_, until)| until))
    }

    fn take(&mut self, rows: Vec<Row>) {
        self.is_open = refusal(&rows).is_none();
        self.backoff = Backoff::default();
        let pause = self.refused.map_or(PAUSE.0, |(pause, _)| (pause * 2).min(PAUSE.1));
        self.refused = (!self.is_open).then(|| (pause, Instant::now() + pause));
        self.rows = Some(rows);
    }

    fn failed(&mut self, error: &Error) {
        let text = format!("the checks before the first installation have failed: {}", chain(error));
        if self.backoff.failed(&text, TRANSIENT_ERROR_PATIENCE, error.retry_after(), Instant::now()) {
            warn!("{text}; retrying");
        }
        self.rows = None;
    }
}

impl Managers {
    /// Checks those that are to be installed for the first time.
    pub(super) fn check_first(&mut self, view: &View, pass: &mut Pass) {
        if let Some(answer) = self.surveyor.take() {
            self.take_survey(view, answer);
        }
        let mut due = BTreeMap::new();
        for (name, managed) in &mut self.fleet {
            if managed.is_removed() {
                managed.gate = Gate::default();
                continue;
            }
            if managed.gate.is_open || !is_seen(&view.target.observer, managed.planned()) {
                continue;
            }
            // Also one whose inputs are bad, or that is paused: what it has is kept as it should be.
            if is_installed(&view.target.observer, name) {
                managed.gate.is_open = true;
            } else if let Some(bad) = managed.judgement.as_ref().filter(|judgement| judgement.objects.is_none()) {
                managed.gate.rows = Some(inputs::rows(bad, Reader::Operator).into());
            } else if !managed.objects().is_empty() && managed.gate.is_due() {
                due.extend(managed.question().map(|question| (name.clone(), question)));
            }
        }
        self.surveyor.ask(&view.target.client, &view.catalog, due);
        let closed = self.fleet.values().filter(|managed| !managed.gate.is_open);
        pass.due.extend(closed.filter_map(|managed| managed.gate.due()));
    }

    /// The names of those that may not be installed yet.
    pub(super) fn closed(&self) -> impl Iterator<Item = &str> {
        self.fleet.iter().filter(|(_, managed)| !managed.gate.is_open).map(|(name, _)| name.as_str())
    }

    /// Judges those that a survey was about, unless they ask for something else by now.
    fn take_survey(&mut self, view: &View, (questions, found): Answer) {
        let is_current = |name: &str, question: &Question| {
            let managed = self.fleet.get(name).filter(|managed| !managed.gate.is_open && !managed.is_removed());
            managed.and_then(Managed::question).is_some_and(|now| now == *question)
        };
        let current: Vec<_> = questions.into_iter().filter(|(name, question)| is_current(name, question)).collect();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                for (name, _) in current {
                    self.fleet.entry(name).and_modify(|managed| managed.gate.failed(&error));
                }
                return;
            }
        };
        let nodes: Vec<_> = view.target.observer.nodes().collect();
        for (name, question) in current {
            let right = question.user.as_ref().and_then(|user| found.deletion_rights.get(user)).cloned();
            let right = right.unwrap_or(Ok(None));
            let Some(rows) = self.rows(view, &name, &nodes, (&question, &found, right.clone())) else { continue };
            self.fleet.entry(name).and_modify(|managed| {
                managed.gate.take(rows);
                managed.guard.was_asked(right);
            });
        }
    }

    fn rows(
        &self,
        view: &View,
        name: &str,
        nodes: &[Node],
        (question, found, deletion_right): (&Question, &Found, Seen<Option<Vec<String>>>),
    ) -> Option<Vec<Row>> {
        let managed = self.fleet.get(name)?;
        let wanted = managed.manager()?;
        let others = self.fleet.iter().filter(|(other, _)| *other != name).filter_map(|(other_name, other)| {
            let running = self.running.get(other_name);
            Some(Other {
                manager: other.manager()?,
                goes_first: other.order(other_name, running) < managed.order(name, None),
                runs: running.and_then(|running| Some(as_it_runs(other.manager()?, running))),
            })
        });
        let missing = found.missing.as_ref().map_err(Clone::clone);
        Some(preflight::rows(&Evidence {
            now: Timestamp::now(),
            by: Reader::Operator,
            catalog: &view.catalog,
            manager: wanted,
            provider: view.catalog.upstream_of(&wanted.spec.provider).ok()?,
            judgement: managed.judgement.as_ref()?,
            is_installed: Ok(false),
            others: Ok(others.collect()),
            nodes: Ok(nodes),
            survey: &found.survey,
            missing_rights: missing.map(|missing| missing.intersection(&question.needs).map(Need::words).collect()),
            deletion_right,
        }))
    }
}

/// Whether a kind of objects runs pods for long.
pub(super) fn is_workload(kind: &str) -> bool {
    matches!(kind, "Deployment" | "DaemonSet")
}

/// Whether all places have been seen in which a workload is planned, or may be left.
fn is_seen(observer: &Observer, planned: &[Object]) -> bool {
    let mut places = planned.iter().filter(|object| is_workload(object.kind().kind)).map(Place::of);
    let is_synced = |place| observer.watches.seen(&Id::Ours(place)).is_some_and(seen::Seen::is_synced);
    places.all(is_synced) && !observer.awaits_leftovers()
}

/// Whether it has a workload, or had one when its status was last written: somebody has deleted that since.
fn is_installed(observer: &Observer, name: &str) -> bool {
    live_of(observer, name).any(|(place, _)| is_workload(place.kind.kind))
        || observer.watches.get(&Id::Managers, name).is_some_and(was_installed)
}

impl Managed {
    /// What is asked before its first installation.
    fn question(&self) -> Option<Question> {
        let namespace = self.manager()?.spec.namespace.clone();
        let user = self.subject.as_ref().map(Subject::user);
        Some(Question { namespace, user, needs: rights::needs(self.objects()) })
    }

    /// Whether the checks before its first installation keep it from being installed, and are to be heard.
    pub(super) fn is_gated(&self) -> bool {
        !self.gate.is_open && !self.is_removed()
    }
}
