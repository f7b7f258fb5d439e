//! Brings about what is wanted (IO), or logs it in a dry run. No other module distinguishes the two.

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
        steps::{Sight, Steps},
    },
    cluster::read,
    controllers::{
        applier::Applier,
        apply_plan::{ApplyPlan, Wanted},
        backoff::Backoff,
        events::Events,
        failures::Stopped,
        observer::Observer,
        target::Target,
    },
    error::chain,
    object::{Key, Kind, Object},
};

/// Brings a cluster to what is wanted, or logs what that would take.
pub(super) struct Executor(Mode);

#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
enum Mode {
    /// Writes, and lets others report.
    Write(ApplyPlan),
    /// Writes and reports nothing.
    DryRun(DryRun),
}

impl Executor {
    /// One that writes; its inventory is in this namespace.
    pub(super) fn writing(own_namespace: &str, events: Events) -> Self {
        Self(Mode::Write(ApplyPlan::new(own_namespace, events)))
    }

    pub(super) fn dry_run() -> Self {
        Self(Mode::DryRun(DryRun::default()))
    }

    /// Whether it writes, so that what comes of it can be reported.
    pub(super) fn writes(&self) -> bool {
        self.applier().is_some()
    }

    /// What it writes with, if it does.
    pub(super) fn applier(&self) -> Option<&Applier> {
        self.writer().map(|writer| &writer.applier)
    }

    /// The same, for a write that does not wait for the rest of what is wanted.
    pub(super) fn applier_mut(&mut self) -> Option<&mut Applier> {
        match &mut self.0 {
            Mode::Write(writer) => Some(&mut writer.applier),
            Mode::DryRun(_) => None,
        }
    }

    fn writer(&self) -> Option<&ApplyPlan> {
        match &self.0 {
            Mode::Write(writer) => Some(writer),
            Mode::DryRun(_) => None,
        }
    }

    /// Brings the cluster to what is wanted; writes at most this many objects. `budget` returns how long the next write may take.
    pub(super) async fn act(
        &mut self,
        target: &mut Target,
        wanted: Wanted<'_>,
        room: usize,
        budget: impl Fn() -> Option<Duration>,
    ) -> Result<(), Stopped> {
        match &mut self.0 {
            Mode::Write(writer) => {
                writer.applier.make_room(room);
                writer.act(target, wanted, budget).await
            }
            Mode::DryRun(dry_run) => dry_run.act(target, wanted).await,
        }
    }

    pub(super) fn inventory(&self, observer: &Observer) -> Inventory {
        self.writer().map_or_else(|| observer.locations(), |writer| writer.inventory(observer))
    }

    pub(super) fn due(&self) -> Vec<Instant> {
        match &self.0 {
            Mode::Write(writer) => writer.due(),
            Mode::DryRun(dry_run) => dry_run.backoff.due().into_iter().collect(),
        }
    }

    pub(super) fn held_back(&self) -> usize {
        self.applier().map_or(0, |applier| applier.contested.len())
    }

    pub(super) fn skips(&self, key: &Key) -> bool {
        self.applier().is_some_and(|applier| applier.skips(key))
    }

    /// That these objects are as planned after a pass that has `acted`, else what has failed: an error of one of those that `counts`,
    /// or that the API server has changed one of them so that it does not do what is planned. A dry run ends with its first error,
    /// whatever that is of.
    pub(super) fn settled(
        &self,
        acted: &Result<(), Stopped>,
        is_of: impl Fn(&Key) -> bool,
        counts: impl Fn(&Key) -> bool,
    ) -> Result<Settled, Stopped> {
        let Some(writer) = self.writer() else { return acted.clone().map(|()| Settled::after_pass()) };
        if let Some(stopped) = writer.applier.failures.of(|key| is_of(key) && counts(key)) {
            return Err(stopped.clone());
        }
        match writer.overruled(is_of) {
            Some(error) => Err(Stopped { is_reported: true, ..error.into() }),
            None => Ok(Settled::after_pass()),
        }
    }

    /// Which of these objects are left alone or kept, for people; empty if there are none.
    pub(super) fn remarks(&self, counts: impl Fn(&Key) -> bool) -> String {
        self.writer().map(|writer| writer.remarks(counts)).unwrap_or_default()
    }

    /// The objects that are no longer planned and stay.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&'static Kind, &Key)> {
        self.writer().into_iter().flat_map(ApplyPlan::kept)
    }
}

/// Logs what the operator would do. It sends a dry run for an object only when the object or the plan has changed, so an idle process
/// sends no requests.
#[derive(Default)]
struct DryRun {
    /// The plan and the live state of each object at its last dry run.
    asked: BTreeMap<Key, (Object, Option<Value>)>,
    logged: BTreeMap<Key, String>,
    backoff: Backoff,
}

impl DryRun {
    async fn act(&mut self, target: &Target, wanted: Wanted<'_>) -> Result<(), Stopped> {
        let Target { client, observer, .. } = target;
        let Wanted { objects, may_prune, adopts, .. } = wanted;
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
        if !observer.awaits_leftovers() {
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
            // Logged only after something else.
            Action::Unchanged if !self.logged.contains_key(key) => {}
            Action::Refuse => warn!("dry run: {line}"),
            _ => info!("dry run: {line}"),
        }
        self.logged.insert(key.clone(), line);
    }
}

/// The change that the operator would make. An object without our label is seen by no watch, so it is read.
async fn ask(client: &Client, (object, live): (&Object, Option<&Value>), adopts: bool) -> Result<Diff, Error> {
    let read = match live {
        None if adopts => read::live(client, object).await?,
        _ => None,
    };
    let sight = match live.or(read.as_ref()) {
        None if !adopts => Sight::Unknown,
        live => Sight::of(live),
    };
    dry_run::change(client, Steps::new(object, sight).adopting(adopts)).await
}
