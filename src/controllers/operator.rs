//! The operator itself: keeps a provider's objects as planned and reports the result (IO).
//!
//! A pass costs no request unless something is to be written. Bad input is reported at once and waits for other input;
//! everything else is retried, later each time, and reported once it has lasted.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{Timestamp, Unit};
use tracing::{error, info};

use crate::{
    apply::{inventory::Scope, ownership::FIELD_MANAGER},
    controllers::{Pass, applier::Stopped, apply_plan::ApplyPlan, backoff::Backoff, dry_run::DryRun, view::View},
    object::Object,
    plan::Plan,
    process::lease::Authority,
    status::{
        cluster_operator::{self, CLOUD_CONFIG, Context, Outcome, Status, TRANSIENT_ERROR_PATIENCE, TRUSTED_CA},
        rollout::{self, Rollout},
    },
};

/// How long a rollout may take before it is reported, when the version stays: a controller that catches up with a changed
/// annotation is no rollout.
const ROLLOUT_GRACE: Duration = Duration::from_secs(1);

/// Acts on a plan.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
pub(super) enum Hands {
    /// Brings the cluster to it, and reports.
    Write(ApplyPlan),
    /// Logs what would be done, and reports nothing.
    DryRun(DryRun),
}

/// The operator and what it remembers.
pub(super) struct Operator {
    authority: Authority,
    set_id: String,
    hands: Hands,
    images_json: PathBuf,
    /// The revision of the view that was last planned for.
    revision: u64,
    /// The last plan that could be made; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    /// The error of the input.
    bad_input: Option<String>,
    /// Whether both config-sync controllers have ever reported that they are available.
    is_gate_open: bool,
    /// Since when the operator waits for that.
    gated_since: Option<Instant>,
    reporting: Backoff,
    /// Since when workloads are being rolled out.
    rolling_since: Option<Instant>,
    /// Since when a rollout is stuck.
    stuck_since: Option<Instant>,
    /// The last outcome; it stays reported while an error is retried.
    last: Option<Outcome>,
    logged: Option<Outcome>,
}

/// The result of a pass.
enum Reconciled {
    /// Nothing can be done or reported yet; holds what it waits for. Empty for a standby, whose work is to wait.
    Waiting(Vec<String>),
    /// An error that has not lasted long enough to be reported, or whose retry is not due.
    Retrying(String),
    /// This is to be reported.
    Outcome(Outcome),
}

impl Operator {
    /// `set_id` marks our objects.
    pub(super) fn new(authority: Authority, set_id: String, hands: Hands, images_json: PathBuf) -> Self {
        Self {
            authority,
            set_id,
            hands,
            images_json,
            revision: 0,
            plan: None,
            bad_input: None,
            is_gate_open: false,
            gated_since: None,
            reporting: Backoff::default(),
            rolling_since: None,
            stuck_since: None,
            last: None,
            logged: None,
        }
    }

    /// Reads the images file again; returns whether it has changed.
    pub(super) fn read_images(&self, view: &mut View) -> bool {
        view.read_images(&self.images_json)
    }

    /// One pass with its report.
    pub(super) async fn pass(&mut self, view: &mut View) -> Pass {
        let (mut waiting, outcome) = match self.reconcile(view).await {
            Reconciled::Waiting(waiting) => (waiting, None),
            // Also when the object that holds the status was deleted meanwhile.
            Reconciled::Retrying(error) => (vec![error], self.last.clone()),
            Reconciled::Outcome(outcome) => (Vec::new(), Some(outcome)),
        };
        if let Some(outcome) = outcome {
            waiting.extend(self.report(view, &outcome).await.err());
            self.last = Some(outcome);
        }
        let acting = match &self.hands {
            Hands::Write(apply_plan) => apply_plan.applier.due(),
            Hands::DryRun(dry_run) => [dry_run.backoff.due(), None],
        };
        let due = [
            self.reporting.due(),
            self.gated_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.rolling_since.map(|since| since + ROLLOUT_GRACE),
            self.stuck_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            view.observer.watches.trouble_lasts_at(TRANSIENT_ERROR_PATIENCE),
        ];
        Pass { waiting, due: due.into_iter().chain(acting).flatten().collect() }
    }

    async fn reconcile(&mut self, view: &mut View) -> Reconciled {
        self.replan(view);
        self.follow(view);
        let pending = view.pending();
        if let Some(trouble) = self.authority.trouble() {
            return Reconciled::Waiting(vec![trouble]);
        }
        let leads = self.authority.write_budget().is_some();
        if pending.is_empty() && !leads {
            return Reconciled::Waiting(Vec::new());
        }
        // A watch that fails for long is reported, and does not keep the rest from being done.
        let trouble = view.lasting_trouble(TRANSIENT_ERROR_PATIENCE).filter(|_| leads);
        let reconciled = if !pending.is_empty() {
            Reconciled::Waiting(pending)
        } else if let Some(gated) = self.gate(view) {
            gated
        } else {
            self.act(view).await
        };
        if matches!(reconciled, Reconciled::Waiting(_)) && trouble.is_none() && self.gated_since.is_none() {
            return reconciled;
        }
        let wrong = self.bad_input.clone().or(trouble).or_else(|| config_trouble(&view.status()));
        wrong.map_or(reconciled, |error| Reconciled::Outcome(Outcome::Failed { error }))
    }

    /// The gate: nothing is applied before the config-sync controllers have succeeded once, or pods would start without their
    /// configuration.
    fn gate(&mut self, view: &View) -> Option<Reconciled> {
        let status = view.status();
        let missing = [&CLOUD_CONFIG, &TRUSTED_CA].into_iter().find(|controller| !status.is_available(controller));
        self.is_gate_open |= missing.is_none() || matches!(self.hands, Hands::DryRun(_));
        let Some(controller) = missing.filter(|_| !self.is_gate_open) else {
            self.gated_since = None;
            return None;
        };
        let since = *self.gated_since.get_or_insert_with(Instant::now);
        let why = format!("nothing is applied before the {} has reported that it is available", controller.name);
        Some(if since.elapsed() >= TRANSIENT_ERROR_PATIENCE {
            Reconciled::Outcome(Outcome::Failed { error: why })
        } else {
            Reconciled::Waiting(vec![why])
        })
    }

    /// Plans again when an input has changed.
    fn replan(&mut self, view: &View) {
        if !view.knows_inputs() || self.revision == view.revision() {
            return;
        }
        self.revision = view.revision();
        match view.plan() {
            Err(error) => self.bad_input = Some(error),
            Ok(plan) => {
                let plan = plan.labelled(&self.set_id);
                self.bad_input = None;
                if self.plan.as_deref() != Some(&plan) {
                    self.plan = Some(Arc::new(plan));
                    if let Hands::Write(apply_plan) = &mut self.hands {
                        apply_plan.applier.replanned();
                    }
                }
            }
        }
    }

    /// Watches planned objects, and those that the inventory lists. Without a plan nothing is pruned, so nothing is watched
    /// for it; the inventory stays as it is until there is a plan.
    fn follow(&self, view: &mut View) {
        let Some(plan) = &self.plan else { return };
        let inventory = match &self.hands {
            _ if plan.objects().is_empty() => Scope::default(),
            Hands::Write(apply_plan) => apply_plan.inventory(&view.observer),
            Hands::DryRun(_) => view.observer.inventory().map(Scope::read).unwrap_or_default(),
        };
        view.observer.follow(&Scope::of(plan.objects()), &inventory);
    }

    /// Acts on the plan, and checks the rollouts.
    async fn act(&mut self, view: &mut View) -> Reconciled {
        let Some(plan) = self.plan.clone() else {
            // Everything was seen, so an input is bad.
            let error = self.bad_input.clone().unwrap_or_default();
            return Reconciled::Outcome(Outcome::Failed { error });
        };
        let objects = match &*plan {
            Plan::Nothing { why } => return Reconciled::Outcome(Outcome::Nothing { why: why.clone() }),
            Plan::Objects { objects, .. } => objects,
        };
        // Nothing is deleted because of bad input.
        let may_prune = self.bad_input.is_none();
        let budget = || self.authority.write_budget();
        let acted = match &mut self.hands {
            Hands::Write(apply_plan) => apply_plan.act(&mut view.observer, objects, may_prune, budget).await,
            Hands::DryRun(dry_run) => dry_run.act(&view.observer, objects).await,
        };
        match acted {
            Ok(()) => Reconciled::Outcome(self.rollouts(view, objects)),
            Err(Stopped { error, is_reported: false }) => Reconciled::Retrying(error),
            Err(Stopped { error, is_reported: true }) => Reconciled::Outcome(Outcome::Failed { error }),
        }
    }

    /// The state of the rollouts, once everything is applied.
    fn rollouts(&mut self, view: &View, objects: &[Object]) -> Outcome {
        let (mut rollouts, mut stuck) = (Vec::new(), None);
        for object in objects {
            match view.observer.live(object).map(rollout::of) {
                Some(Rollout::Done) => {}
                Some(Rollout::Stuck { why }) => {
                    stuck = Some(format!("the rollout of {} is stuck: {why}", object.key()));
                    rollouts.push(object.key());
                }
                Some(Rollout::Progressing) | None => rollouts.push(object.key()),
            }
        }
        match stuck {
            Some(error) => {
                let since = *self.stuck_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= TRANSIENT_ERROR_PATIENCE {
                    return Outcome::Failed { error };
                }
            }
            None => self.stuck_since = None,
        }
        if rollouts.is_empty() { Outcome::Done } else { Outcome::Progressing { rollouts } }
    }

    /// Reports an outcome, unless the status has it already.
    async fn report(&mut self, view: &mut View, outcome: &Outcome) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        let Hands::Write(apply_plan) = &self.hands else {
            self.log_dry_run(outcome);
            return Ok(());
        };
        if let Some(error) = self.reporting.pending_error(Instant::now()) {
            return Err(error.to_owned());
        }
        let before = view.status();
        let version = view.settings.facts.release_version.as_deref().unwrap_or("unknown");
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let (own_namespace, namespace) = (&view.settings.own_namespace, &view.settings.facts.namespace);
        let related_objects = match self.plan {
            // Objects that a previous process has applied are still there.
            None if !before.related_objects.is_empty() => before.related_objects.clone(),
            _ => cluster_operator::related_objects(own_namespace, namespace, objects, apply_plan.kept()),
        };
        let remarks = apply_plan.remarks();
        if self.is_short_rollout(outcome, &before, version) && view.observer.status_object().is_some() {
            return Ok(());
        }
        self.log(outcome);
        let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        let next = before.next(outcome, &Context { version, related_objects, remarks, now: &now });
        let is_well = matches!(outcome, Outcome::Done | Outcome::Nothing { .. });
        view.report((FIELD_MANAGER, &next), is_well, &self.authority, &mut self.reporting).await
    }

    /// Whether workloads have only just begun to roll out, with nothing new to be announced.
    fn is_short_rollout(&mut self, outcome: &Outcome, before: &Status, version: &str) -> bool {
        if !matches!(outcome, Outcome::Progressing { .. }) {
            self.rolling_since = None;
            return false;
        }
        let since = *self.rolling_since.get_or_insert_with(Instant::now);
        before.is_at(version) && since.elapsed() < ROLLOUT_GRACE
    }

    fn log(&mut self, outcome: &Outcome) {
        if self.logged.as_ref() == Some(outcome) {
            return;
        }
        match outcome {
            Outcome::Done => info!("everything is applied and runs"),
            Outcome::Nothing { why } => info!("nothing is to be applied: {why}"),
            Outcome::Progressing { rollouts } => {
                for object in rollouts {
                    info!("waiting for the rollout of {object}");
                }
            }
            Outcome::Failed { error } => error!("degraded: {error}"),
        }
        self.logged = Some(outcome.clone());
    }

    fn log_dry_run(&mut self, outcome: &Outcome) {
        match outcome {
            _ if self.logged.as_ref() == Some(outcome) => {}
            Outcome::Nothing { why } => info!("dry run: nothing would be applied: {why}"),
            Outcome::Failed { error } => error!("dry run: the operator would be degraded: {error}"),
            Outcome::Done | Outcome::Progressing { .. } => {}
        }
        self.logged = Some(outcome.clone());
    }
}

/// The trouble that the config-sync controllers report: applied objects stay, with the last good configuration.
fn config_trouble(status: &Status) -> Option<String> {
    let troubles = [&CLOUD_CONFIG, &TRUSTED_CA].map(|controller| status.trouble_of(controller));
    let troubles: Vec<_> = troubles.into_iter().flatten().collect();
    (!troubles.is_empty()).then(|| troubles.join("; "))
}
