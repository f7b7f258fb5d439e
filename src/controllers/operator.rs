//! The operator itself: keeps a provider's objects as planned and says how that goes (IO).
//!
//! One loop, woken by whatever changes. A pass costs no request unless something is to be written. Bad input is
//! reported at once and waits for another input; everything else is tried again, later each time, and reported once it
//! has lasted.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{Timestamp, Unit};
use tracing::{error, info};

use crate::{
    apply::ownership::FIELD_MANAGER,
    object::Object,
    plan::Plan,
    status::{
        cluster_operator::{self, CLOUD_CONFIG, Context, Outcome, Status, TRANSIENT_ERROR_PATIENCE, TRUSTED_CA},
        rollout::{self, Rollout},
    },
};
use crate::{
    controllers::{
        Round,
        apply_plan::{Applying, Stopped},
        backoff::Backoff,
        images_file::ImagesFile,
        view::View,
    },
    process::lease::Authority,
};

/// How long a rollout may take before it is said that there is one, when the version stays: a controller that catches up
/// with a changed annotation is no rollout.
const ROLLOUT_GRACE: Duration = Duration::from_secs(1);

/// The operator and what it knows.
pub(super) struct Operator {
    authority: Authority,
    images: ImagesFile,
    /// The revision of the cluster that was last planned for.
    revision: u64,
    /// The last plan that could be made; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    /// What is wrong with the input.
    bad_input: Option<String>,
    /// Whether both config-sync controllers have ever said that they are available.
    is_gate_open: bool,
    /// Since when that is waited for.
    gated_since: Option<Instant>,
    applying: Applying,
    reporting: Backoff,
    /// Since when workloads are being rolled out.
    rolling_since: Option<Instant>,
    /// Since when a rollout is stuck.
    stuck_since: Option<Instant>,
    /// What the last pass came to that came to anything.
    last: Option<Outcome>,
    logged: Option<Outcome>,
}

/// What a pass came to.
enum Pass {
    /// Nothing can be said or done yet: this is waited for. Empty for a standby, whose work it is to wait.
    Waiting(Vec<String>),
    /// An error that has not lasted long enough to be reported, or whose next try is not due.
    Retrying(String),
    /// This is to be reported.
    Outcome(Outcome),
}

impl Operator {
    /// An operator that has seen nothing yet.
    pub(super) fn new(authority: Authority, applying: Applying, images_json: PathBuf) -> Self {
        Self {
            authority,
            images: ImagesFile::new(images_json),
            revision: 0,
            plan: None,
            bad_input: None,
            is_gate_open: false,
            gated_since: None,
            applying,
            reporting: Backoff::default(),
            rolling_since: None,
            stuck_since: None,
            last: None,
            logged: None,
        }
    }

    /// Reads the images file again; answers whether it has changed.
    pub(super) fn read_images(&mut self) -> bool {
        self.images.read()
    }

    /// One pass with its report.
    pub(super) async fn pass(&mut self, view: &mut View) -> Round {
        let (mut waiting, outcome) = match self.reconcile(view).await {
            Pass::Waiting(waiting) => (waiting, None),
            // What was said stays said, also when the ClusterOperator was deleted meanwhile.
            Pass::Retrying(error) => (vec![error], self.last.clone()),
            Pass::Outcome(outcome) => (Vec::new(), Some(outcome)),
        };
        if let Some(outcome) = outcome {
            waiting.extend(self.report(view, &outcome).await.err());
            self.last = Some(outcome);
        }
        let [applying, braked] = self.applying.due();
        let due = [
            applying,
            braked,
            self.reporting.due(),
            self.gated_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.rolling_since.map(|since| since + ROLLOUT_GRACE),
            self.stuck_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            view.observer.trouble_changes_at(TRANSIENT_ERROR_PATIENCE),
        ];
        Round { waiting, due: due.into_iter().flatten().collect() }
    }

    async fn reconcile(&mut self, view: &mut View) -> Pass {
        self.replan(view);
        if let Some(plan) = &self.plan {
            self.applying.follow(&mut view.observer, plan.objects());
        }
        let pending = view.pending();
        if let Some(trouble) = self.authority.trouble() {
            return Pass::Waiting(vec![trouble]);
        }
        let leads = self.authority.write_budget().is_some();
        if pending.is_empty() && !leads {
            return Pass::Waiting(Vec::new());
        }
        // A watch that fails for long is said, and does not keep the rest from being done.
        let trouble = view.lasting_trouble(TRANSIENT_ERROR_PATIENCE);
        let trouble = trouble.filter(|_| leads);
        let pass = if !pending.is_empty() {
            Pass::Waiting(pending)
        } else if let Some(gated) = self.gate(view) {
            gated
        } else {
            match self.plan.clone() {
                None => Pass::Outcome(Outcome::Done),
                Some(plan) => match &*plan {
                    Plan::Nothing { why } => Pass::Outcome(Outcome::Nothing { why: why.clone() }),
                    Plan::Objects { objects, .. } => self.act(view, objects).await,
                },
            }
        };
        let has_lasted = trouble.is_some();
        let wrong = self.bad_input.clone().or(trouble).or_else(|| config_trouble(&view.status()));
        match (wrong, pass) {
            (_, Pass::Waiting(waiting)) if !has_lasted && self.gated_since.is_none() => Pass::Waiting(waiting),
            (Some(error), _) => Pass::Outcome(Outcome::Failed { error }),
            (None, pass) => pass,
        }
    }

    /// What keeps the operator from applying anything: the config-sync controllers have to have done their work once, or
    /// pods would start without their configuration.
    fn gate(&mut self, view: &View) -> Option<Pass> {
        let status = view.status();
        let missing = [&CLOUD_CONFIG, &TRUSTED_CA].into_iter().find(|controller| !status.is_available(controller));
        self.is_gate_open |= missing.is_none();
        let controller = missing.filter(|_| !self.is_gate_open);
        let Some(controller) = controller else {
            self.gated_since = None;
            return None;
        };
        let since = *self.gated_since.get_or_insert_with(Instant::now);
        let why = format!("nothing is applied before the {} has reported that it is available", controller.name);
        Some(if since.elapsed() >= TRANSIENT_ERROR_PATIENCE {
            Pass::Outcome(Outcome::Failed { error: why })
        } else {
            Pass::Waiting(vec![why])
        })
    }

    /// Plans again when an input has changed.
    fn replan(&mut self, view: &mut View) {
        if !view.knows_inputs() || (self.revision == view.revision() && !self.images.has_changed()) {
            return;
        }
        self.revision = view.revision();
        if let Some(images) = self.images.take() {
            view.set_images(images);
        }
        match view.plan() {
            Err(error) => self.bad_input = Some(error),
            Ok(plan) => {
                let plan = plan.labelled(self.applying.set_id());
                self.bad_input = None;
                if self.plan.as_deref() != Some(&plan) {
                    self.plan = Some(Arc::new(plan));
                    self.applying.replanned();
                }
            }
        }
    }

    /// Brings the cluster to the plan, and looks how the rollouts are.
    async fn act(&mut self, view: &mut View, objects: &[Object]) -> Pass {
        // What a bad input means is not known: nothing is deleted for it.
        let may_prune = self.bad_input.is_none();
        let budget = || self.authority.write_budget();
        match self.applying.act(&mut view.observer, objects, may_prune, budget).await {
            Ok(()) => Pass::Outcome(self.rollouts(view, objects)),
            Err(Stopped::Retrying(error)) => Pass::Retrying(error),
            Err(Stopped::Failed(error)) => Pass::Outcome(Outcome::Failed { error }),
        }
    }

    /// How the rollouts are, once everything is applied.
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

    /// Says what came of a pass, if it is not said yet.
    async fn report(&mut self, view: &mut View, outcome: &Outcome) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        if let Some(error) = self.reporting.waits(Instant::now()) {
            return Err(error.to_owned());
        }
        let before = view.status();
        let version = view.settings.facts.release_version.as_deref().unwrap_or("unknown");
        let live = view.observer.status_object();
        if self.is_short_rollout(outcome, &before, version) && live.is_some() {
            return Ok(());
        }
        self.log(outcome);
        let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let (own_namespace, namespace) = (&view.settings.own_namespace, &view.settings.facts.namespace);
        let context = Context {
            version,
            related_objects: match self.plan {
                // What a process before this one has applied is still there.
                None if !before.related_objects.is_empty() => before.related_objects.clone(),
                _ => cluster_operator::related_objects(own_namespace, namespace, objects, self.applying.kept()),
            },
            remarks: self.applying.remarks(),
            now: &now,
        };
        let next = before.next(outcome, &context);
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
}

/// What the config-sync controllers say is wrong: what was applied stays as it is, with the last good configuration.
fn config_trouble(status: &Status) -> Option<String> {
    let troubles = [&CLOUD_CONFIG, &TRUSTED_CA].map(|controller| status.trouble_of(controller));
    let troubles: Vec<_> = troubles.into_iter().flatten().collect();
    (!troubles.is_empty()).then(|| troubles.join("; "))
}
