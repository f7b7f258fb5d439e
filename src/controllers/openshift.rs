//! OpenShift as a fleet of one (IO): keeps the objects of the platform's provider as planned, and reports to the
//! ClusterOperator.
//!
//! Bad input is reported at once, and is not retried until it changes. Every other error is retried, less and less
//! often, and reported once it has lasted.

use std::{sync::Arc, time::Instant};

use tracing::{error, info, warn};

use crate::{
    apply::{inventory::Inventory, ownership::FIELD_MANAGER},
    controllers::{
        Pass,
        apply_plan::Wanted,
        backoff::Changes,
        engine::Fleet,
        executor::Executor,
        now_in_seconds,
        progress::{Progress, Rollouts, held_up_by},
        view::{View, not_given},
    },
    facts::Facts,
    grace::{ROLLOUT_GRACE, TRANSIENT_ERROR_GRACE},
    object::Kind,
    plan::{Plan, only_restarts},
    process::leadership::Authority,
    provider::Origin,
    status::{
        cluster_operator::{self, CLOUD_CONFIG, Context, Status, TRUSTED_CA},
        outcome::{Outcome, names},
    },
};

pub(super) struct OpenShift {
    pub(super) authority: Authority,
    pub(super) executor: Executor,
    /// The changes of inputs that are not planned for yet.
    changes: Changes,
    /// The revision of the view that the last plan was computed from.
    revision: u64,
    /// The last good plan; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    bad_input: Option<String>,
    notes: Vec<String>,
    /// Whether both config-sync controllers have ever reported that they are available.
    is_gate_open: bool,
    gated_since: Option<Instant>,
    progress: Progress,
    workloads: [usize; 3],
}

/// An outcome to report, or what keeps the operator from one: it has not lasted long enough to be reported, or its retry is not due.
type Reconciled = Result<Outcome, String>;

impl Fleet for OpenShift {
    type Acted = Reconciled;

    fn authority(&self) -> &Authority {
        &self.authority
    }

    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String> {
        let observer = &view.target.observer;
        pass.waiting.extend(observer.lasting_problem(TRANSIENT_ERROR_GRACE, &view.references));
        pass.due.extend(observer.watches.problem_lasts_at(TRANSIENT_ERROR_GRACE));
        observer.pending_inputs(&view.references)
    }

    fn plan(&mut self, view: &mut View, pass: &mut Pass) {
        self.replan(view);
        pass.due.extend(self.changes.due());
    }

    /// Without planned objects nothing is pruned, so only a plan with objects needs the inventory.
    fn follow(&mut self, view: &mut View, _: &mut Pass) -> Vec<String> {
        if let Some(plan) = &self.plan {
            let inventory = if plan.objects().is_empty() && view.gone_provider().is_none() {
                Inventory::default()
            } else {
                self.executor.inventory(&view.target.observer)
            };
            view.target.observer.follow(&Inventory::of(plan.objects()), &inventory);
        }
        view.target.observer.pending(&view.references)
    }

    async fn report_blindness(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass) {
        let problem = view.target.observer.lasting_problem(TRANSIENT_ERROR_GRACE, &view.references);
        let is_gated = self.gated_since.is_some();
        let wrong = if problem.is_some() || is_gated { self.wrong(view, problem) } else { None };
        match wrong {
            Some(error) => self.tell(view, Outcome::failed(error), pass).await,
            None if is_gated => pass.retrying.extend(pending),
            None => pass.waiting.extend(pending),
        }
        self.conclude(view, pass);
    }

    async fn act(&mut self, view: &mut View, _: &mut Pass) -> Option<Reconciled> {
        // A watch that keeps failing is reported, and does not block the rest.
        let problem = view.target.observer.lasting_problem(TRANSIENT_ERROR_GRACE, &view.references);
        let reconciled = match self.gate(view) {
            Some(gated) => gated,
            None => self.apply(view).await,
        };
        Some(self.wrong(view, problem).map_or(reconciled, |error| Ok(Outcome::failed(error))))
    }

    async fn report(&mut self, view: &mut View, acted: Reconciled, pass: &mut Pass) {
        // The last outcome is written again if the ClusterOperator was deleted meanwhile.
        let retrying = |error| {
            pass.retrying.push(error);
            self.progress.last.clone()
        };
        if let Some(outcome) = acted.map_or_else(retrying, Some) {
            self.tell(view, outcome, pass).await;
        }
        self.conclude(view, pass);
    }
}

impl OpenShift {
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
            progress: Progress::default(),
            workloads: [0; 3],
        }
    }

    /// What has to be reported whatever else is done: a bad input, else the problem of a watch, else that of the config-sync controllers.
    fn wrong(&self, view: &View, problem: Option<String>) -> Option<String> {
        self.bad_input.clone().or(problem).or_else(|| config_problem(&view.status()))
    }

    /// What holds after each pass of a leader, whatever it has come to.
    fn conclude(&mut self, view: &mut View, pass: &mut Pass) {
        let Self { progress, executor, gated_since, .. } = self;
        let rolling_since = progress.rolling_since.map(|since| since + ROLLOUT_GRACE);
        let due = [gated_since.map(|since| since + TRANSIENT_ERROR_GRACE), rolling_since];
        pass.due.extend(due.into_iter().flatten().chain(progress.due()).chain(executor.due()));
        pass.held_back = executor.held_back();
        let succeeded = executor.writes() && progress.last.as_ref().is_some_and(Outcome::is_well);
        pass.succeeded = succeeded.then_some("operator");
        pass.workloads = self.workloads;
        if executor.writes() && self.plan.is_some() {
            let identity = view.identity();
            pass.due.extend(view.target.diagnose(identity.as_slice()));
        }
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
        let has_lasted = since.elapsed() >= TRANSIENT_ERROR_GRACE;
        Some(if has_lasted { Ok(Outcome::failed(why)) } else { Err(why) })
    }

    fn replan(&mut self, view: &View) {
        if self.revision == view.revision || !view.target.observer.pending_inputs(&view.references).is_empty() {
            return;
        }
        let now = Instant::now();
        // Each rollout of a Deployment may interrupt its pods: changes that come together become one. At a start the last
        // inputs arrive one by one, and what runs was started with them.
        if self.progress.last.is_some() && !self.changes.are_over(view.revision, now) {
            return;
        }
        (self.revision, self.changes) = (view.revision, Changes::default());
        let plan = view.plan().map(Arc::new);
        self.bad_input = plan.as_ref().err().cloned();
        if let (Some(_), Some(applier)) = (&self.bad_input, self.executor.applier()) {
            applier.events.metrics.errors.of(["bad_input"]).inc();
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

    async fn apply(&mut self, view: &mut View) -> Reconciled {
        let Some(plan) = self.plan.clone() else {
            // Every input was seen, so one is bad.
            return Ok(Outcome::failed(self.bad_input.clone().unwrap_or_default()));
        };
        let gone = view.gone_provider();
        if let Some(name) = &gone
            && !view.settings.remove_providers.contains(name)
        {
            return Ok(Outcome::failed(not_given(name)));
        }
        if let Plan::Nothing { why } = &*plan
            && gone.is_none()
        {
            return Ok(Outcome::Nothing(why.clone()));
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
            adopts: external.is_none(),
            external: external.as_deref(),
        };
        let budget = || self.authority.write_budget();
        let acted = self.executor.act(&mut view.target, wanted, usize::MAX, budget).await;
        match acted.and_then(|()| self.executor.settled(&Ok(()), |_| true, |_| true)) {
            Ok(settled) => {
                let observer = &view.target.observer;
                let rollouts = Rollouts::of(observer, objects, |key| self.executor.skips(key));
                self.workloads = rollouts.workloads;
                let held_up_by = |waiting: &[_]| held_up_by(observer.nodes(), objects, waiting);
                Ok(self.progress.of_rollouts(settled, rollouts, held_up_by))
            }
            Err(stopped) => {
                let error = stopped.advised(view.provider().and_then(|provider| provider.origin.as_ref()));
                if stopped.is_reported { Ok(Outcome::failed(error)) } else { Err(error) }
            }
        }
    }

    /// Takes and reports an outcome. While inputs change the status stays: it would be that of a plan that is out of date.
    async fn tell(&mut self, view: &mut View, outcome: Outcome, pass: &mut Pass) {
        if self.changes.due().is_some() {
            return;
        }
        pass.retrying.extend(self.write(view, &outcome).await.err());
        self.progress.take(outcome);
    }

    /// Writes an outcome, unless the status has it already.
    async fn write(&mut self, view: &mut View, outcome: &Outcome) -> Result<(), String> {
        if !view.target.observer.knows_status_object() {
            return Ok(());
        }
        if !self.executor.writes() {
            self.log(outcome);
            return Ok(());
        }
        self.progress.writer.ready()?;
        let before = view.status();
        let version = view.settings.facts.release_version.as_deref().unwrap_or("unknown");
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let (own_namespace, namespace) = (&view.settings.own_namespace, &view.settings.facts.namespace);
        // Without a plan the objects that a previous process has applied still exist. Without an inventory only this list says where
        // objects of an earlier plan are.
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
        if self.is_short_rollout(outcome, &before, version) && view.target.observer.status_object().is_some() {
            return Ok(());
        }
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
        let is_dry_run = !self.executor.writes();
        let (text, is_degraded) = match outcome {
            Outcome::Nothing(why) if is_dry_run => (format!("dry run: nothing would be applied: {why}"), false),
            Outcome::Nothing(why) => (format!("nothing is to be applied: {why}"), false),
            Outcome::Failed { error, .. } | Outcome::Stuck(_, error) if is_dry_run => {
                (format!("dry run: the operator would be degraded: {error}"), true)
            }
            Outcome::Failed { error, .. } | Outcome::Stuck(_, error) => (format!("degraded: {error}"), true),
            _ if is_dry_run => return,
            Outcome::RollingOut { rollouts, nodes, .. } => {
                (format!("waiting for the rollout of {}{nodes}", names(rollouts)), false)
            }
            _ => ("everything is applied and runs".to_owned(), false),
        };
        self.progress.log(text, |text| if is_degraded { error!("{text}") } else { info!("{text}") });
    }
}

/// The errors that the config-sync controllers report. Applied objects stay, with the last good configuration.
fn config_problem(status: &Status) -> Option<String> {
    let problems = [&CLOUD_CONFIG, &TRUSTED_CA].map(|controller| status.problem_of(controller));
    let problems: Vec<_> = problems.into_iter().flatten().collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
