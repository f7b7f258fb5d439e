//! Makes a cluster match its plan (IO), or logs the changes in a dry run.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    apply::{
        change::{Action, essence},
        diff::Diff,
        dry_run::{self, Error},
        inventory::Inventory,
        settled::Settled,
        steps::{LiveState, Steps},
    },
    cluster::read,
    controllers::{
        Pass,
        applier::Applier,
        apply_plan::{DesiredObjects, PlanApplier},
        backoff::Backoff,
        events::Events,
        failures::PassError,
        log_line::LogLine,
        observer::Observer,
        target::Target,
    },
    error::chain,
    nodes::identity::CcmIdentity,
    object::{Key, Kind, Object},
};

/// Applies the plan of a fleet, or logs the changes in a dry run.
pub(super) struct Executor(Mode);

#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
enum Mode {
    /// Objects and statuses are written.
    Write(PlanApplier),
    /// Nothing is written.
    DryRun(DryRun),
}

impl Executor {
    /// Creates an executor that writes. Its inventory is in this namespace.
    pub(super) fn writing(own_namespace: &str, events: Events) -> Self {
        Self(Mode::Write(PlanApplier::new(own_namespace, events)))
    }

    pub(super) fn dry_run() -> Self {
        Self(Mode::DryRun(DryRun::default()))
    }

    /// Whether the process writes nothing, and logs what it would do.
    pub(super) fn is_dry_run(&self) -> bool {
        self.writer().is_none()
    }

    /// Returns the applier, or `None` in a dry run.
    pub(super) fn applier(&self) -> Option<&Applier> {
        self.writer().map(|writer| &writer.applier)
    }

    /// Returns the applier for a write apart from the rest of the plan, or `None` in a dry run.
    pub(super) fn applier_mut(&mut self) -> Option<&mut Applier> {
        match &mut self.0 {
            Mode::Write(writer) => Some(&mut writer.applier),
            Mode::DryRun(_) => None,
        }
    }

    fn writer(&self) -> Option<&PlanApplier> {
        match &self.0 {
            Mode::Write(writer) => Some(writer),
            Mode::DryRun(_) => None,
        }
    }

    /// Makes the cluster match the plan, with at most this many writes. `budget` returns the time limit of the next write.
    pub(super) async fn act(
        &mut self,
        target: &mut Target,
        desired: DesiredObjects<'_>,
        most_writes: usize,
        budget: impl Fn() -> Option<Duration>,
    ) -> Result<(), PassError> {
        match &mut self.0 {
            Mode::Write(writer) => {
                writer.applier.limit_writes(most_writes);
                writer.act(target, desired, budget).await
            }
            Mode::DryRun(dry_run) => dry_run.act(target, desired).await,
        }
    }

    pub(super) fn inventory(&self, observer: &Observer) -> Inventory {
        self.writer().map_or_else(|| observer.locations(), |writer| writer.inventory(observer))
    }

    pub(super) fn is_skipped(&self, key: &Key) -> bool {
        self.applier().is_some_and(|applier| applier.is_skipped(key))
    }

    /// Returns the proof that all objects are as planned after a pass with this result, or the error of the pass.
    pub(super) fn settled(&self, acted: Result<(), PassError>) -> Result<Settled, PassError> {
        acted?;
        self.settled_unless_overruled(|_| true)
    }

    /// Returns the proof that a member's own objects are as planned after a pass with this result, or the error of one of them. Only the
    /// failures of objects for which `counts` holds are errors.
    pub(super) fn settled_member(
        &self,
        acted: &Result<(), PassError>,
        is_own: impl Fn(&Key) -> bool,
        counts: impl Fn(&Key) -> bool,
    ) -> Result<Settled, PassError> {
        match self.applier() {
            Some(applier) => applier.failures.of(|key| is_own(key) && counts(key)).cloned().map_or(Ok(()), Err)?,
            // A dry run ends with its first error, whichever object has it.
            None => acted.clone()?,
        }
        self.settled_unless_overruled(is_own)
    }

    /// Fails if the API server has changed one of these objects so that it no longer works as planned.
    fn settled_unless_overruled(&self, is_own: impl Fn(&Key) -> bool) -> Result<Settled, PassError> {
        match self.writer().and_then(|writer| writer.overruled(is_own)) {
            Some(error) => Err(PassError { is_reported: true, ..error.into() }),
            None => Ok(Settled::after_pass()),
        }
    }

    /// Logs a line about the outcome of a pass, unless it equals the last logged line.
    pub(super) fn log(&self, last: &mut String, line: LogLine) {
        line.write(self.is_dry_run(), last);
    }

    /// Completes the pass of a leader. A dry run never counts as a success.
    pub(super) fn conclude(&self, pass: &mut Pass, is_well: bool) {
        pass.due.extend(match &self.0 {
            Mode::Write(writer) => writer.due(),
            Mode::DryRun(dry_run) => dry_run.backoff.due().into_iter().collect(),
        });
        pass.contested = self.applier().map_or(0, |applier| applier.contested.len());
        pass.succeeded = (is_well && !self.is_dry_run()).then_some("operator");
    }

    /// Determines why nodes wait for these cloud-controller-managers, and records the reasons in Events. Returns the time of the next call,
    /// even without a change. A dry run does nothing.
    pub(super) fn diagnose(&self, target: &mut Target, identities: &[CcmIdentity]) -> Option<Instant> {
        if self.is_dry_run() { None } else { target.diagnose(identities) }
    }

    /// Returns the remarks for people about the objects that are left alone or kept; empty if there are none.
    pub(super) fn remarks(&self, counts: impl Fn(&Key) -> bool) -> String {
        self.writer().map(|writer| writer.remarks(counts)).unwrap_or_default()
    }

    /// Returns the kept objects that are no longer planned.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.writer().into_iter().flat_map(PlanApplier::kept)
    }
}

/// Logs what the operator would do. An object is sent as a dry run only if the object or its plan has changed, so an idle process sends
/// no requests.
#[derive(Default)]
struct DryRun {
    /// The plan and the live state of each object at its last dry run.
    asked: BTreeMap<Key, (Object, Option<Value>)>,
    logged: BTreeMap<Key, String>,
    backoff: Backoff,
}

impl DryRun {
    async fn act(&mut self, target: &Target, desired: DesiredObjects<'_>) -> Result<(), PassError> {
        let Target { client, observer, .. } = target;
        let DesiredObjects { objects, may_prune, adopts, .. } = desired;
        self.backoff.ready(Instant::now())?;
        for object in objects {
            let live = observer.live(object);
            let now = (object.clone(), live.map(essence));
            if self.asked.get(&object.key()) == Some(&now) {
                continue;
            }
            match ask(client, (object, live), adopts).await {
                Ok(diff) => {
                    self.asked.insert(object.key(), now);
                    self.log(&diff);
                }
                Err(error) => {
                    return Err(self.backoff.retrying(chain(&error), Duration::ZERO, error.retry_after()).into());
                }
            }
        }
        if !observer.is_awaiting_leftovers() {
            for (_, live, decision) in
                observer.prune_decisions(objects).into_iter().filter(|(_, live, _)| may_prune(live))
            {
                if let Some(diff) = dry_run::removal(live, decision) {
                    self.log(&diff);
                }
            }
        }
        self.backoff = Backoff::default();
        Ok(())
    }

    fn log(&mut self, diff: &Diff) {
        let (key, line) = (&diff.change.object, diff.line());
        if self.logged.get(key) == Some(&line) {
            return;
        }
        match diff.change.action {
            // Logged only after another line about the object.
            Action::Unchanged if !self.logged.contains_key(key) => {}
            Action::Refuse => warn!("dry run: {line}"),
            _ => info!("dry run: {line}"),
        }
        self.logged.insert(key.clone(), line);
    }
}

/// Returns the change that the operator would make. An object that no watch shows is read, because it may lack our label.
async fn ask(client: &Client, (object, live): (&Object, Option<&Value>), adopts: bool) -> Result<Diff, Error> {
    let read = match live {
        None if adopts => read::live(client, object).await?,
        _ => None,
    };
    let live_state = match live.or(read.as_ref()) {
        None if !adopts => LiveState::Unknown,
        live => LiveState::of(live),
    };
    dry_run::change(client, Steps::new(object, live_state).adopting(adopts)).await
}
