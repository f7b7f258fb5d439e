//! The operator itself: keeps a provider's objects as planned and reports the result (IO).
//!
//! Bad input is reported at once and waits for other input; every other error is retried, later each time, and reported
//! once it has lasted.

use std::{sync::Arc, time::Instant};

use tracing::{error, info, warn};

use crate::{
    apply::{inventory::Scope, ownership::FIELD_MANAGER},
    controllers::{
        Pass,
        apply_plan::Wanted,
        backoff::{Backoff, Changes},
        executor::Executor,
        now_in_seconds,
        rollouts::{Rollouts, held_up_by},
        view::{View, external::not_given},
    },
    facts::Facts,
    grace::{ROLLOUT_PATIENCE, TRANSIENT_ERROR_PATIENCE},
    object::{Kind, Object},
    plan::{Plan, only_restarts},
    process::leadership::Authority,
    provider::Origin,
    status::cluster_operator::{self, CLOUD_CONFIG, Context, Outcome, Status, TRUSTED_CA},
};

pub(super) struct Operator {
    authority: Authority,
    executor: Executor,
    /// The changes of inputs that are not planned for yet.
    changes: Changes,
    /// The revision of the view that the last plan was computed from.
    revision: u64,
    /// The last good plan; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    bad_input: Option<String>,
    /// What was logged about the facts.
    notes: Vec<String>,
    /// Whether both config-sync controllers have ever reported that they are available.
    is_gate_open: bool,
    gated_since: Option<Instant>,
    reporting: Backoff,
    rolling_since: Option<Instant>,
    stuck_since: Option<Instant>,
    /// The last outcome; it stays reported while an error is retried.
    last: Option<Outcome>,
    logged: Option<Outcome>,
    /// How many workloads are rolled out, are being rolled out, and are stuck.
    workloads: [usize; 3],
}

/// The result of a pass.
enum Reconciled {
    /// Nothing can be done or reported yet; holds what the operator waits for. Empty for a standby.
    Waiting(Vec<String>),
    /// An error that has not lasted long enough to be reported, or whose retry is not due.
    Retrying(String),
    /// An outcome to report.
    Outcome(Outcome),
}

fn failed(error: String) -> Reconciled {
    Reconciled::Outcome(Outcome::Failed { error })
}

impl Operator {
    pub(super) fn new(authority: Authority, executor: Executor) -> Self {
        Self {
            authority,
            executor,
            changes: Changes::default(),
            revision: 0,
            plan: None,
            bad_input: None,
            notes: Vec::new(),
            is_gate_open: false,
            gated_since: None,
            reporting: Backoff::default(),
            rolling_since: None,
            stuck_since: None,
            last: None,
            logged: None,
            workloads: [0; 3],
        }
    }

    /// What it acts with, for another controller.
    pub(super) fn into_parts(self) -> (Authority, Executor) {
        (self.authority, self.executor)
    }

    /// Whether it may write now.
    pub(super) fn writes(&self) -> bool {
        self.executor.writes() && self.plan.is_some() && self.authority.write_budget().is_some()
    }

    pub(super) async fn pass(&mut self, view: &mut View) -> Pass {
        let (mut waiting, mut retrying) = (Vec::new(), Vec::new());
        let outcome = match self.reconcile(view).await {
            Reconciled::Waiting(pending) if self.gated_since.is_some() => {
                retrying = pending;
                None
            }
            Reconciled::Waiting(pending) => {
                waiting = pending;
                None
            }
            // The last outcome is written again if the ClusterOperator was deleted meanwhile.
            Reconciled::Retrying(error) => {
                retrying.push(error);
                self.last.clone()
            }
            Reconciled::Outcome(outcome) => Some(outcome),
        };
        waiting.extend(view.observer.lasting_trouble(TRANSIENT_ERROR_PATIENCE, &view.references));
        // While inputs change the status stays: it would be that of a plan that is out of date.
        if let Some(outcome) = outcome.filter(|_| self.changes.due().is_none()) {
            retrying.extend(self.report(view, &outcome).await.err());
            self.last = Some(outcome);
        }
        let due = [
            self.reporting.due(),
            self.gated_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.rolling_since.map(|since| since + ROLLOUT_PATIENCE),
            self.rolling_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.stuck_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.changes.due(),
            view.status_due(),
            view.observer.watches.trouble_lasts_at(TRANSIENT_ERROR_PATIENCE),
        ];
        let succeeded = self.executor.writes() && self.last.as_ref().is_some_and(Outcome::is_well);
        let due = due.into_iter().flatten().chain(self.executor.due()).collect();
        Pass {
            waiting,
            retrying,
            due,
            held_back: self.executor.held_back(),
            succeeded: succeeded.then_some("operator"),
            workloads: self.workloads,
        }
    }

    async fn reconcile(&mut self, view: &mut View) -> Reconciled {
        self.replan(view);
        self.follow(view);
        let pending = view.observer.pending(&view.references);
        if let Some(trouble) = self.authority.trouble() {
            return Reconciled::Waiting(vec![trouble]);
        }
        let leads = self.authority.write_budget().is_some();
        if pending.is_empty() && !leads {
            return Reconciled::Waiting(Vec::new());
        }
        // A watch that keeps failing is reported, and does not block the rest.
        let trouble = view.observer.lasting_trouble(TRANSIENT_ERROR_PATIENCE, &view.references).filter(|_| leads);
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
        wrong.map_or(reconciled, failed)
    }

    /// The gate: nothing is applied before the config-sync controllers have succeeded once, because pods would start without
    /// their configuration.
    fn gate(&mut self, view: &View) -> Option<Reconciled> {
        let status = view.status();
        let missing = [&CLOUD_CONFIG, &TRUSTED_CA].into_iter().find(|controller| !status.is_available(controller));
        self.is_gate_open |= missing.is_none() || !self.executor.writes();
        let Some(controller) = missing.filter(|_| !self.is_gate_open) else {
            self.gated_since = None;
            return None;
        };
        let since = *self.gated_since.get_or_insert_with(Instant::now);
        let why = format!("nothing is applied before the {} has reported that it is available", controller.name);
        let has_lasted = since.elapsed() >= TRANSIENT_ERROR_PATIENCE;
        Some(if has_lasted { failed(why) } else { Reconciled::Waiting(vec![why]) })
    }

    /// Plans again if an input has changed.
    fn replan(&mut self, view: &View) {
        if self.revision == view.revision() || !view.observer.pending_inputs(&view.references).is_empty() {
            return;
        }
        let now = Instant::now();
        // Each rollout of a Deployment may interrupt its pods: changes that come together become one. At a start the last
        // inputs arrive one by one, and what runs was started with them.
        if self.last.is_some() && !self.changes.are_over(view.revision(), now) {
            return;
        }
        (self.revision, self.changes) = (view.revision(), Changes::default());
        let plan = view.plan().map(Arc::new);
        self.bad_input = plan.as_ref().err().cloned();
        if let (Some(_), Some(applier)) = (&self.bad_input, self.executor.applier()) {
            applier.events.failed("bad_input");
        }
        let notes = view.facts().map_or(&[][..], Facts::notes);
        if self.notes != notes {
            for note in notes {
                warn!("{note}");
            }
            self.notes = notes.to_vec();
        }
        if let Ok(plan) = plan
            && self.plan.as_ref() != Some(&plan)
        {
            let only_restarts =
                self.plan.as_ref().is_some_and(|before| only_restarts(plan.objects(), before.objects()));
            self.plan = Some(plan);
            self.executor.replanned(only_restarts);
        }
    }

    /// Watches our objects where they are planned and where the inventory lists them. Without planned objects nothing is
    /// pruned, so only a plan with objects needs the inventory.
    fn follow(&self, view: &mut View) {
        let Some(plan) = &self.plan else { return };
        let inventory = if plan.objects().is_empty() && view.gone_provider().is_none() {
            Scope::default()
        } else {
            self.executor.inventory(&view.observer)
        };
        view.observer.follow(&Scope::of(plan.objects()), &inventory);
    }

    /// Acts on the plan, and checks the rollouts.
    async fn act(&mut self, view: &mut View) -> Reconciled {
        let Some(plan) = self.plan.clone() else {
            // Every input was seen, so one is bad.
            return failed(self.bad_input.clone().unwrap_or_default());
        };
        let gone = view.gone_provider();
        if let Some(name) = &gone
            && !view.settings.remove_providers.contains(name)
        {
            return failed(not_given(name));
        }
        if let Plan::Nothing { why } = &*plan
            && gone.is_none()
        {
            return Reconciled::Outcome(Outcome::Nothing { why: why.clone() });
        }
        let objects = plan.objects();
        // Nothing is deleted because of bad input, or without a plan.
        let may_prune = self.bad_input.is_none() && (!objects.is_empty() || gone.is_some());
        let wave = |kind: &Kind| kind.wave;
        let external = view.external_provider().map(str::to_owned);
        let wanted = Wanted {
            objects,
            wave,
            owner: |_| "",
            may_prune: &|_| may_prune,
            // What is not built in takes nothing over that somebody else has made.
            takes_over: external.is_none(),
            external: external.as_deref(),
        };
        let budget = || self.authority.write_budget();
        let acted = self.executor.act(&mut view.observer, wanted, usize::MAX, budget).await;
        match acted {
            Ok(()) => self
                .executor
                .overruled(|_| true)
                .map_or_else(|| Reconciled::Outcome(self.rollouts(view, objects)), failed),
            Err(stopped) => {
                let error = stopped.advised(view.provider().and_then(|provider| provider.origin.as_ref()));
                if stopped.is_reported { failed(error) } else { Reconciled::Retrying(error) }
            }
        }
    }

    /// The state of the rollouts, once everything is applied.
    fn rollouts(&mut self, view: &View, objects: &[Object]) -> Outcome {
        let Rollouts { waiting, stuck, workloads } =
            Rollouts::of(&view.observer, objects, |key| self.executor.skips(key));
        self.workloads = workloads;
        self.stuck_since = stuck.as_ref().map(|_| self.stuck_since.unwrap_or_else(Instant::now));
        if let Some(error) = stuck
            && self.stuck_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE)
        {
            return Outcome::Failed { error: error + &held_up_by(view.observer.nodes(), objects, &waiting) };
        }
        let is_long = self.rolling_since.is_some_and(|since| since.elapsed() >= TRANSIENT_ERROR_PATIENCE);
        let nodes = if is_long { held_up_by(view.observer.nodes(), objects, &waiting) } else { String::new() };
        if waiting.is_empty() { Outcome::Done } else { Outcome::Progressing { rollouts: waiting, nodes } }
    }

    /// Reports an outcome, unless the status has it already.
    async fn report(&mut self, view: &mut View, outcome: &Outcome) -> Result<(), String> {
        if !view.observer.knows_status_object() {
            return Ok(());
        }
        if !self.executor.writes() {
            self.log(outcome);
            return Ok(());
        }
        self.reporting.ready(Instant::now())?;
        let before = view.status();
        let version = view.settings.facts.release_version.as_deref().unwrap_or("unknown");
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let (own_namespace, namespace) = (&view.settings.own_namespace, &view.settings.facts.namespace);
        let related_objects = match self.plan {
            // Objects that a previous process has applied still exist.
            None if !before.related_objects.is_empty() => before.related_objects.clone(),
            // Without an inventory only this list says where objects of an earlier plan are.
            _ if view.observer.inventory().is_none() && !before.related_objects.is_empty() => {
                before.related_objects.clone()
            }
            _ => cluster_operator::related_objects(own_namespace, namespace, objects, self.executor.kept()),
        };
        let notes = view.facts().map_or(&[][..], Facts::notes);
        let origin = view.provider().and_then(|provider| provider.origin.as_ref());
        let notes = notes.iter().cloned().chain(origin.map(Origin::words));
        let remarks = notes.fold(self.executor.remarks(|_| true), |remarks, note| format!("{remarks}; {note}"));
        if self.is_short_rollout(outcome, &before, version) && view.observer.status_object().is_some() {
            return Ok(());
        }
        self.log(outcome);
        let now = now_in_seconds().to_string();
        let next = before.next(outcome, &Context { version, related_objects, remarks, now: &now });
        view.report((FIELD_MANAGER, &next), outcome.is_well(), &self.authority, &mut self.reporting).await
    }

    /// Whether a rollout has only just begun, in a version that was reached before.
    fn is_short_rollout(&mut self, outcome: &Outcome, before: &Status, version: &str) -> bool {
        if !matches!(outcome, Outcome::Progressing { .. }) {
            self.rolling_since = None;
            return false;
        }
        let since = *self.rolling_since.get_or_insert_with(Instant::now);
        before.is_at(version) && since.elapsed() < ROLLOUT_PATIENCE
    }

    fn log(&mut self, outcome: &Outcome) {
        if self.logged.as_ref() == Some(outcome) {
            return;
        }
        let is_dry_run = !self.executor.writes();
        match outcome {
            Outcome::Nothing { why } if is_dry_run => info!("dry run: nothing would be applied: {why}"),
            Outcome::Failed { error } if is_dry_run => error!("dry run: the operator would be degraded: {error}"),
            _ if is_dry_run => {}
            Outcome::Done => info!("everything is applied and runs"),
            Outcome::Nothing { why } => info!("nothing is to be applied: {why}"),
            Outcome::Progressing { rollouts, nodes } => {
                for object in rollouts {
                    info!("waiting for the rollout of {object}{nodes}");
                }
            }
            Outcome::Failed { error } => error!("degraded: {error}"),
        }
        self.logged = Some(outcome.clone());
    }
}

/// The errors that the config-sync controllers report. Applied objects stay, with the last good configuration.
fn config_trouble(status: &Status) -> Option<String> {
    let troubles = [&CLOUD_CONFIG, &TRUSTED_CA].map(|controller| status.trouble_of(controller));
    let troubles: Vec<_> = troubles.into_iter().flatten().collect();
    (!troubles.is_empty()).then(|| troubles.join("; "))
}
