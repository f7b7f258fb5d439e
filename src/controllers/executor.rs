//! Brings about what is wanted (IO), or logs it in a dry run. No other module distinguishes the two.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::{
    apply::{inventory::Inventory, settled::Settled},
    controllers::{
        applier::Applier,
        apply_plan::{ApplyPlan, Wanted},
        dry_run::DryRun,
        events::Events,
        failures::Stopped,
        observer::Observer,
        target::Target,
    },
    object::{Key, Kind},
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

    /// One that only logs.
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

    /// Starts over for a new plan, as [`Applier::replanned`] does.
    pub(super) fn replanned(&mut self, only_restarts: bool) {
        if let Some(applier) = self.applier_mut() {
            applier.replanned(only_restarts);
        }
    }

    /// The same where only these objects are planned in another way.
    pub(super) fn replanned_some(&mut self, changed: &BTreeSet<Key>, only_restarts: bool) {
        if let Some(applier) = self.applier_mut() {
            applier.replanned_some(changed, only_restarts);
        }
    }

    /// Where objects of ours may be.
    pub(super) fn inventory(&self, observer: &Observer) -> Inventory {
        self.writer().map_or_else(|| observer.locations(), |writer| writer.inventory(observer))
    }

    /// When it is to act again, even without a change.
    pub(super) fn due(&self) -> Vec<Instant> {
        match &self.0 {
            Mode::Write(writer) => writer.due(),
            Mode::DryRun(dry_run) => dry_run.backoff.due().into_iter().collect(),
        }
    }

    /// How many objects are repaired less often.
    pub(super) fn held_back(&self) -> usize {
        self.applier().map_or(0, |applier| applier.contested().len())
    }

    /// Whether an object was not written for want of room.
    pub(super) fn is_cut(&self) -> bool {
        self.applier().is_some_and(|applier| applier.is_cut)
    }

    /// Whether an object is annotated to be left alone.
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
