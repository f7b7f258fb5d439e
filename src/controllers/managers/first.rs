//! The checks before a first installation (IO): what refuses keeps a cloud-controller-manager from being installed, and never touches
//! one that is.
//!
//! Whether one is installed, its live Deployment or DaemonSet tells, so a restart of the operator changes nothing. Nothing is asked
//! for one that is installed; for one that is refused the questions are repeated, later each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use k8s_openapi::jiff::Timestamp;
use tracing::warn;

use super::{DEFAULT_NAMESPACE, Managed, Managers, report::live_of};
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
    nodes::{evidence::Unseen, node::Node, subject::Need},
    object::Object,
    plan::upstream::conflict::as_it_runs,
    preflight::{
        self,
        check::{Outcome, Row, line, refusal},
        evidence::{Evidence, Other, Reader, Seen, Survey},
        inputs, read, rights,
    },
    status::cluster_operator::TRANSIENT_ERROR_PATIENCE,
};

/// What stands before the first installation of one.
#[derive(Default)]
pub(super) struct Gate {
    /// Whether it is installed, or may be.
    pub(super) is_open: bool,
    /// What the checks have shown, if this process has made them.
    pub(super) rows: Option<Vec<Row>>,
    /// After a refusal or a failure.
    backoff: Backoff,
}

impl Gate {
    /// Why it is closed, once that is known; an error is what is waited for, and whether that is to be reported.
    pub(super) fn refusal(&self) -> Result<String, (String, bool)> {
        let now = Instant::now();
        match &self.rows {
            Some(rows) if refusal(rows).is_some() => Ok(line(rows, Outcome::Refused)),
            _ => {
                let error = self.backoff.error().unwrap_or("the checks before the first installation");
                Err((error.to_owned(), self.backoff.has_lasted(now)))
            }
        }
    }

    fn take(&mut self, rows: Vec<Row>) {
        self.is_open = refusal(&rows).is_none();
        if self.is_open {
            self.backoff = Backoff::default();
        } else {
            let now = Instant::now();
            self.backoff.failed("refused", TRANSIENT_ERROR_PATIENCE, std::time::Duration::ZERO, now);
        }
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
    pub(super) async fn check_first(&mut self, view: &View, pass: &mut Pass) {
        let mut due = BTreeSet::new();
        for (name, managed) in &mut self.fleet {
            if managed.is_removed() {
                managed.gate = Gate::default();
                continue;
            }
            if managed.gate.is_open || !is_seen(&view.observer, managed.objects()) {
                continue;
            }
            // Also one whose inputs are bad, or that is paused: what it has is kept as it should be.
            if is_installed(&view.observer, name) {
                managed.gate.is_open = true;
            } else if let Some(bad) = managed.judgement.as_ref().filter(|judgement| judgement.objects.is_none()) {
                managed.gate.rows = Some(inputs::rows(bad, Reader::Operator).into());
            } else if !managed.objects().is_empty() && managed.gate.backoff.ready(Instant::now()).is_ok() {
                due.insert(name.clone());
            }
        }
        if !due.is_empty()
            && let Err(error) = self.ask(view, &due).await
        {
            for name in &due {
                self.fleet.entry(name.clone()).and_modify(|managed| managed.gate.failed(&error));
            }
        }
        let closed = self.fleet.values().filter(|managed| !managed.gate.is_open);
        pass.due.extend(closed.filter_map(|managed| managed.gate.backoff.due()));
    }

    /// The names of those that may not be installed yet.
    pub(super) fn closed(&self) -> impl Iterator<Item = &str> {
        self.fleet.iter().filter(|(_, managed)| !managed.gate.is_open).map(|(name, _)| name.as_str())
    }

    async fn ask(&mut self, view: &View, due: &BTreeSet<String>) -> Result<(), Error> {
        let managers = self.fleet.iter().filter(|(name, _)| due.contains(*name));
        let managers: Vec<_> = managers.filter_map(|(_, managed)| managed.manager()).collect();
        let namespaces: BTreeSet<_> = managers.iter().map(|manager| manager.spec.namespace.as_str()).collect();
        // Others are in kube-system, or where ours are: there the operator may look.
        let places = namespaces.iter().copied().chain([DEFAULT_NAMESPACE]).collect();
        let survey = read::survey(&view.client, &view.catalog, &places, &namespaces).await?;
        let nodes: Vec<_> = view.observer.nodes().collect();
        // Rights are many questions: they are asked when nothing else refuses.
        let mut needs: BTreeMap<&str, BTreeSet<Need>> = BTreeMap::new();
        for name in due {
            let rows = self.rows(view, name, &nodes, &survey, not_asked());
            if rows.is_some_and(|rows| refusal(&rows).is_none()) {
                needs.insert(name, self.fleet.get(name).map(|one| rights::needs(one.objects())).unwrap_or_default());
            }
        }
        let all = needs.values().flatten().cloned().collect();
        let missing = read::missing(&view.client, None, all).await?;
        for name in due {
            let own = match needs.get(name.as_str()) {
                None => not_asked(),
                Some(needs) => missing.as_ref().map_err(Clone::clone).map(|missing| words(missing.intersection(needs))),
            };
            if let Some(rows) = self.rows(view, name, &nodes, &survey, own) {
                self.fleet.entry(name.clone()).and_modify(|managed| managed.gate.take(rows));
            }
        }
        Ok(())
    }

    fn rows(
        &self,
        view: &View,
        name: &str,
        nodes: &[Node],
        survey: &Survey,
        missing_rights: Seen<Vec<String>>,
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
            survey,
            missing_rights,
        }))
    }
}

fn words<'a>(needs: impl Iterator<Item = &'a Need>) -> Vec<String> {
    needs.map(Need::words).collect()
}

fn not_asked() -> Seen<Vec<String>> {
    let why = "another check refuses".to_owned();
    Err(Unseen { what: "rights".to_owned(), why, command: "cure that first".to_owned() })
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

/// Whether it has a workload.
fn is_installed(observer: &Observer, name: &str) -> bool {
    live_of(observer, name).any(|(place, _)| is_workload(place.kind.kind))
}

impl Managed {
    /// Whether the checks before its first installation keep it from being installed, and are to be heard.
    pub(super) fn is_gated(&self) -> bool {
        !self.gate.is_open && !self.is_removed()
    }
}
