//! OpenShift as a fleet of one (IO): keeps the objects of the platform's provider as planned, and reports to the
//! ClusterOperator.
//!
//! Bad input is reported at once, and is not retried until it changes. Every other error is retried, less and less often, and reported
//! once it has lasted.

use std::{sync::Arc, time::Instant};

use tracing::{Level, warn};

use crate::{
    apply::{inventory::Inventory, ownership::FIELD_MANAGER},
    controllers::{
        Pass,
        apply_plan::DesiredObjects,
        backoff::Debounce,
        engine::Fleet,
        executor::Executor,
        log_line::LogLine,
        now_in_seconds,
        progress::{PassResult, Progress, Rollouts},
        view::{View, not_given},
    },
    facts::Facts,
    grace::{ROLLOUT_GRACE, TRANSIENT_ERROR_GRACE},
    plan::{Plan, only_restarts},
    process::leadership::Authority,
    provider::Origin,
    status::{
        cluster_operator::{self, CLOUD_CONFIG, Context, Status, TRUSTED_CA},
        outcome::Outcome,
    },
};

pub(super) struct OpenShiftFleet {
    authority: Authority,
    executor: Executor,
    /// Delays planning until the inputs stop changing.
    debounce: Debounce,
    /// The last good plan; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    bad_input: Option<String>,
    notes: Vec<String>,
    /// Whether objects may be applied: both config-sync controllers have reported that they are available, or nothing is written.
    is_gate_open: bool,
    gated_since: Option<Instant>,
    progress: Progress,
    workloads: [usize; 3],
}

impl Fleet for OpenShiftFleet {
    type Acted = PassResult;

    fn authority(&self) -> &Authority {
        &self.authority
    }

    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        view.refresh();
        let observer = &view.target.observer;
        pass.due.extend(observer.watches.problem_lasts_at(TRANSIENT_ERROR_GRACE));
        observer.pending_inputs(&view.references)
    }

    fn plan(&mut self, view: &mut View, pass: &mut Pass) {
        self.replan(view);
        pass.due.extend(self.debounce.due());
    }

    /// Without planned objects nothing is pruned, so only a plan with objects needs the inventory.
    fn watch_objects(&mut self, view: &mut View, _: &mut Pass) -> Vec<String> {
        if let Some(plan) = &self.plan {
            let inventory = if plan.objects().is_empty() && view.gone_provider().is_none() {
                Inventory::default()
            } else {
                self.executor.inventory(&view.target.observer)
            };
            view.target.observer.watch_objects(&Inventory::of(plan.objects()), &inventory);
        }
        view.target.observer.pending(&view.references)
    }

    fn lasting_problem(&self, view: &View, _: &mut Pass) -> Option<String> {
        view.target.observer.lasting_problem(TRANSIENT_ERROR_GRACE, &view.references)
    }

    async fn report_pending(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass) {
        let is_gated = self.gated_since.is_some();
        match self.problem(view, pass).filter(|_| pass.watch_problem.is_some() || is_gated) {
            Some(problem) => self.report_outcome(view, Outcome::failed(problem), pass).await,
            None if is_gated => pass.retrying.extend(pending),
            None => pass.waiting.extend(pending),
        }
        self.conclude(view, pass);
    }

    async fn act(&mut self, view: &mut View, _: &mut Pass) -> Option<PassResult> {
        Some(match self.gate(view) {
            Some(gated) => gated,
            None => self.apply(view).await,
        })
    }

    /// Reports the result of the pass, unless a problem takes precedence. Such a problem does not prevent the pass from acting.
    async fn report(&mut self, view: &mut View, acted: PassResult, pass: &mut Pass) {
        let problem = self.problem(view, pass).map(|error| PassResult::Outcome(Outcome::failed(error)));
        let outcome = match problem.unwrap_or(acted) {
            PassResult::Outcome(outcome) => Some(outcome),
            // The last outcome is written again if the ClusterOperator was deleted meanwhile.
            PassResult::Pending(reason) => {
                pass.retrying.extend(reason);
                self.progress.last.clone()
            }
        };
        if let Some(outcome) = outcome {
            self.report_outcome(view, outcome, pass).await;
        }
        self.conclude(view, pass);
    }
}

impl OpenShiftFleet {
    pub(super) fn new(authority: Authority, executor: Executor) -> Self {
        Self {
            authority,
            debounce: Debounce::default(),
            plan: None,
            bad_input: None,
            notes: Vec::new(),
            is_gate_open: executor.is_dry_run(),
            executor,
            gated_since: None,
            progress: Progress::default(),
            workloads: [0; 3],
        }
    }

    /// Returns the problem that takes precedence: a bad input, else the problem of a watch, else that of the config-sync controllers.
    fn problem(&self, view: &View, pass: &Pass) -> Option<String> {
        let input_or_watch = self.bad_input.as_ref().or(pass.watch_problem.as_ref()).cloned();
        input_or_watch.or_else(|| config_problem(&view.status()))
    }

    /// Completes the pass of a leader, whatever its outcome is.
    fn conclude(&mut self, view: &mut View, pass: &mut Pass) {
        let Self { progress, executor, gated_since, .. } = self;
        let rolling_since = progress.rolling_since.map(|since| since + ROLLOUT_GRACE);
        let due = [gated_since.map(|since| since + TRANSIENT_ERROR_GRACE), rolling_since];
        pass.due.extend(due.into_iter().flatten().chain(progress.due()));
        executor.conclude(pass, progress.last.as_ref().is_some_and(Outcome::is_well));
        pass.workloads = self.workloads;
        if self.plan.is_some() {
            let identity = view.identity();
            pass.due.extend(executor.diagnose(&mut view.target, identity.as_slice()));
        }
    }

    /// The gate: nothing is applied before the config-sync controllers have succeeded once, because pods would start without
    /// their configuration.
    fn gate(&mut self, view: &View) -> Option<PassResult> {
        let status = view.status();
        let missing = [&CLOUD_CONFIG, &TRUSTED_CA].into_iter().find(|controller| !status.is_available(controller));
        self.is_gate_open |= missing.is_none();
        let Some(controller) = missing.filter(|_| !self.is_gate_open) else {
            self.gated_since = None;
            return None;
        };
        let since = *self.gated_since.get_or_insert_with(Instant::now);
        let why = format!("nothing is applied before the {} has reported that it is available", controller.name);
        let has_lasted = since.elapsed() >= TRANSIENT_ERROR_GRACE;
        Some(PassResult::failed(why, has_lasted))
    }

    fn replan(&mut self, view: &View) {
        if self.debounce.is_planned(view.revision) || !view.target.observer.pending_inputs(&view.references).is_empty()
        {
            return;
        }
        // Each rollout of a Deployment may interrupt its pods, so changes in quick succession become one. At startup, the last inputs
        // arrive one by one, and the running pods were started with them.
        if self.progress.last.is_some() && !self.debounce.is_quiet(view.revision, Instant::now()) {
            return;
        }
        self.debounce.planned(view.revision);
        let plan = view.plan().map(Arc::new);
        self.bad_input = plan.as_ref().err().cloned();
        if self.bad_input.is_some() {
            view.target.metrics.errors.of(["bad_input"]).inc();
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
            if let Some(applier) = self.executor.applier_mut() {
                applier.replanned(only_restarts);
            }
        }
    }

    async fn apply(&mut self, view: &mut View) -> PassResult {
        let Some(plan) = self.plan.clone() else {
            // Every input was seen, so one is bad: a problem, which takes precedence.
            return PassResult::Pending(None);
        };
        let gone = view.gone_provider();
        if let Some(name) = &gone
            && !view.settings.remove_providers.contains(name)
        {
            return PassResult::failed(not_given(name), true);
        }
        if let Plan::Nothing { why } = &*plan
            && gone.is_none()
        {
            return PassResult::Outcome(Outcome::Nothing(why.clone()));
        }
        let objects = plan.objects();
        // Nothing is deleted because of bad input, or without a plan.
        let may_prune = self.bad_input.is_none() && (!objects.is_empty() || gone.is_some());
        let external = view.external_provider().map(str::to_owned);
        let desired = DesiredObjects {
            objects,
            wave: |kind| kind.wave,
            owner: |_| "",
            may_prune: &|_| may_prune,
            // An external provider does not take over objects that another client has created.
            adopts: external.is_none(),
            external: external.as_deref(),
        };
        let budget = || self.authority.write_budget();
        let acted = self.executor.act(&mut view.target, desired, usize::MAX, budget).await;
        match self.executor.settled(acted) {
            Ok(settled) => {
                let observer = &view.target.observer;
                let rollouts = Rollouts::of(observer, objects, |key| self.executor.is_skipped(key));
                self.workloads = rollouts.workloads;
                PassResult::Outcome(self.progress.of_rollouts(settled, (objects, rollouts), observer))
            }
            Err(stopped) => {
                let error = stopped.advised(view.provider().and_then(|provider| provider.origin.as_ref()));
                PassResult::failed(error, stopped.is_reported)
            }
        }
    }

    /// Logs, keeps and writes an outcome. The status stays while inputs change, because the plan is out of date.
    async fn report_outcome(&mut self, view: &mut View, outcome: Outcome, pass: &mut Pass) {
        if self.debounce.due().is_some() {
            return;
        }
        self.progress.update(outcome.clone());
        pass.retrying.extend(self.write_status(view, &outcome).await.err());
    }

    /// Writes the ClusterOperator, unless it shows the outcome already.
    async fn write_status(&mut self, view: &mut View, outcome: &Outcome) -> Result<(), String> {
        if !view.target.observer.has_seen_status_object() {
            return Ok(());
        }
        if self.executor.is_dry_run() {
            self.log(outcome);
            return Ok(());
        }
        let before = view.status();
        let version = view.settings.cluster.release_version.as_deref().unwrap_or("unknown");
        if self.is_short_rollout(outcome, &before, version) && view.target.observer.status_object().is_some() {
            return Ok(());
        }
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let (own_namespace, namespace) = (&view.settings.own_namespace, &view.settings.cluster.namespace);
        // Without a plan the objects that a previous process has applied still exist. Without an inventory only this list shows the
        // locations of objects of an earlier plan.
        let keeps_list = self.plan.is_none() || view.target.observer.inventory().is_none();
        let related_objects = if keeps_list && !before.related_objects.is_empty() {
            before.related_objects.clone()
        } else {
            cluster_operator::related_objects(own_namespace, namespace, objects, self.executor.kept())
        };
        let notes = view.facts().map_or(&[][..], Facts::notes);
        let origin = view.provider().and_then(|provider| provider.origin.as_ref());
        let notes = notes.iter().cloned().chain(origin.map(Origin::words));
        let remarks = notes.fold(self.executor.remarks(|_| true), |remarks, note| format!("{remarks}; {note}"));
        self.log(outcome);
        let now = now_in_seconds().to_string();
        let next = before.next(outcome, &Context { version, related_objects, remarks, now: &now });
        self.progress.writer.write(view, (FIELD_MANAGER, &next), outcome.is_well(), &self.authority).await
    }

    /// Whether a rollout has only just begun, in a version that was reached before.
    fn is_short_rollout(&self, outcome: &Outcome, before: &Status, version: &str) -> bool {
        let is_rolling_out = matches!(outcome, Outcome::RollingOut { .. });
        let is_short = || self.progress.rolling_since.is_some_and(|since| since.elapsed() < ROLLOUT_GRACE);
        is_rolling_out && before.is_at(version) && is_short()
    }

    fn log(&mut self, outcome: &Outcome) {
        let line = match outcome {
            Outcome::Nothing(why) => {
                LogLine::new(Level::INFO, outcome.summary()).in_dry_run(&format!("nothing would be applied: {why}"))
            }
            Outcome::Failed { error, .. } | Outcome::Stuck(_, error) => {
                LogLine::new(Level::ERROR, format!("degraded: {error}"))
                    .in_dry_run(&format!("the operator would be degraded: {error}"))
            }
            _ => LogLine::new(Level::INFO, outcome.summary()),
        };
        self.executor.log(&mut self.progress.logged, line);
    }
}

/// Returns the errors that the config-sync controllers report. Applied objects stay, with the last good configuration.
fn config_problem(status: &Status) -> Option<String> {
    let problems = [&CLOUD_CONFIG, &TRUSTED_CA].map(|controller| status.problem_of(controller));
    let problems: Vec<_> = problems.into_iter().flatten().collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
