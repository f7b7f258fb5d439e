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

use futures::{StreamExt, stream};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::Client;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{
    backoff::{Backoff, Brake},
    images_file::ImagesFile,
};
use crate::{
    apply::{self, ownership},
    catalog::Catalog,
    facts::{Sources, images::Images, tls::TlsFlags},
    lease::Leadership,
    object::Object,
    observe::Observer,
    plan::{Phase, Plan},
    rollout::{self, Rollout},
    server::Health,
    status::{self, Context, Outcome, Status, TRANSIENT_ERROR_PATIENCE},
};

/// How many objects of a wave are applied at once; over HTTP/1.1 each needs a connection of its own.
const CONCURRENCY: usize = 4;

/// How often the images file is read again: kubelets swap it without a sign that every file system gives.
const IMAGES_PERIOD: Duration = Duration::from_millis(500);

/// How long without a trigger before everything is looked at again. It costs no request.
const RESYNC_PERIOD: Duration = Duration::from_secs(600);

/// The shortest time between two passes that nothing but the clock has asked for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// How long a rollout may take before it is said that there is one, when the version stays: a controller that catches up
/// with a changed annotation is no rollout.
const ROLLOUT_GRACE: Duration = Duration::from_secs(1);

/// What the operator is told when it is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace to be managed.
    pub namespace: String,
    /// The namespace that the operator runs in.
    pub own_namespace: String,
    /// The images file.
    pub images_json: PathBuf,
    /// The version that the operator brings.
    pub release_version: Option<String>,
    /// TLS settings that win over the cluster's.
    pub tls_flags: TlsFlags,
}

/// The operator's loop and what it knows.
pub struct Operator {
    client: Client,
    catalog: Catalog,
    observer: Observer,
    sources: Sources,
    settings: Settings,
    set_id: String,
    images: ImagesFile,
    /// The last plan that could be made; it stays in force while an input is bad.
    plan: Option<Arc<Plan>>,
    /// What is wrong with the input.
    bad_input: Option<String>,
    connections: Connections,
    applying: Backoff,
    reporting: Backoff,
    brake: Brake,
    /// When an object may be repaired again that somebody keeps changing.
    brake_until: Option<Instant>,
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

/// What an operator is connected to.
pub struct Connections {
    /// Whether, and until when, it leads.
    pub leadership: watch::Receiver<Leadership>,
    /// Told whether the control plane is one node, once that is known.
    pub single_replica: watch::Sender<Option<bool>>,
    /// Becomes true when it is to stop.
    pub shutdown: watch::Receiver<bool>,
    /// Told what it waits for.
    pub health: Health,
}

impl Operator {
    /// An operator that has seen nothing yet.
    pub fn new(client: Client, catalog: Catalog, settings: Settings, connections: Connections) -> Self {
        let set_id = apply::set_id(&settings.own_namespace);
        let with_cluster_version = Sources::needs_cluster_version(settings.release_version.as_deref());
        let mut sources = Sources::new(&settings.namespace, Ok(Images::default()));
        sources.release_version.clone_from(&settings.release_version);
        sources.tls_flags = settings.tls_flags.clone();
        let images = ImagesFile::new(settings.images_json.clone());
        Self {
            images,
            observer: Observer::new(client.clone(), set_id.clone(), with_cluster_version),
            client,
            catalog,
            sources,
            settings,
            set_id,
            plan: None,
            bad_input: None,
            connections,
            applying: Backoff::default(),
            reporting: Backoff::default(),
            brake: Brake::default(),
            brake_until: None,
            rolling_since: None,
            stuck_since: None,
            last: None,
            logged: None,
        }
    }

    /// Runs until it is told to stop; a pass that has begun to write ends first.
    pub async fn run(mut self) {
        let mut images_tick = tokio::time::interval(IMAGES_PERIOD);
        images_tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.images.read();
        loop {
            let wake = self.pass_and_report().await;
            loop {
                tokio::select! {
                    () = self.observer.changed() => break,
                    _ = images_tick.tick() => if self.images.read() { break },
                    _ = self.connections.leadership.changed() => break,
                    () = tokio::time::sleep_until(wake.into()) => break,
                    _ = self.connections.shutdown.wait_for(|stop| *stop) => return,
                }
            }
        }
    }

    /// One pass with its report. Answers when the next one is due, if nothing happens before.
    async fn pass_and_report(&mut self) -> Instant {
        let started = Instant::now();
        let (mut waiting, outcome) = match self.pass().await {
            Pass::Waiting(waiting) => (waiting, None),
            // What was said stays said, also when the ClusterOperator was deleted meanwhile.
            Pass::Retrying(error) => (vec![error], self.last.clone()),
            Pass::Outcome(outcome) => (Vec::new(), Some(outcome)),
        };
        if let Some(outcome) = outcome {
            waiting.extend(self.report(&outcome).await.err());
            self.last = Some(outcome);
        }
        self.connections.health.set(waiting);
        let due = [
            self.applying.due(),
            self.reporting.due(),
            self.brake_until,
            self.rolling_since.map(|since| since + ROLLOUT_GRACE),
            self.stuck_since.map(|since| since + TRANSIENT_ERROR_PATIENCE),
            self.observer.trouble_lasts_at(TRANSIENT_ERROR_PATIENCE),
        ];
        // What was due when the pass began has had its turn.
        let due = due.into_iter().flatten().filter(|due| *due > started);
        let now = Instant::now();
        due.fold(now + RESYNC_PERIOD, Instant::min).max(now + SHORTEST_PAUSE)
    }

    async fn pass(&mut self) -> Pass {
        if self.observer.knows_documents() {
            self.replan();
        }
        let pending = self.observer.pending();
        if let Some(trouble) = self.connections.leadership.borrow().trouble() {
            return Pass::Waiting(vec![trouble.to_owned()]);
        }
        if pending.is_empty() && self.connections.write_budget().is_none() {
            return Pass::Waiting(Vec::new());
        }
        // A watch that fails for long is said, and does not keep the rest from being done.
        let trouble = self.observer.lasting_trouble(TRANSIENT_ERROR_PATIENCE);
        let trouble = trouble.filter(|_| self.connections.write_budget().is_some());
        let pass = match (pending.is_empty(), self.plan.clone()) {
            (false, _) => Pass::Waiting(pending),
            (true, None) => Pass::Outcome(Outcome::Done),
            (true, Some(plan)) => match &*plan {
                Plan::Nothing { why } => Pass::Outcome(Outcome::Nothing { why: why.clone() }),
                Plan::Objects { objects, .. } => self.act(objects).await,
            },
        };
        let has_lasted = trouble.is_some();
        match (self.bad_input.clone().or(trouble), pass) {
            (_, Pass::Waiting(waiting)) if !has_lasted => Pass::Waiting(waiting),
            (Some(error), _) => Pass::Outcome(Outcome::Failed { error }),
            (None, pass) => pass,
        }
    }

    /// Plans again when an input has changed, and watches what is planned.
    fn replan(&mut self) {
        let documents = self.observer.update(&mut self.sources);
        if documents == Ok(false) && !self.images.has_changed() {
            return;
        }
        if let Some(images) = self.images.take() {
            self.sources.images = images;
        }
        let single_replica = self.sources.is_single_replica();
        self.connections.single_replica.send_if_modified(|known| known.replace(single_replica) != Some(single_replica));
        let plan = documents.and_then(|_| {
            Plan::new(&self.catalog, &self.sources, Phase::Cluster).map_err(|error| crate::chain(&error))
        });
        match plan {
            Err(error) => self.bad_input = Some(error),
            Ok(plan) => {
                let plan = plan.labelled(&self.set_id);
                self.bad_input = None;
                if self.plan.as_deref() != Some(&plan) {
                    self.observer.follow(plan.objects());
                    self.plan = Some(Arc::new(plan));
                    // What has failed may have failed because of the old plan.
                    self.applying = Backoff::default();
                }
            }
        }
    }

    /// Applies what is not as planned, wave after wave, and looks how the rollouts are.
    async fn act(&mut self, objects: &[Object]) -> Pass {
        if let Some(error) = self.applying.waits(Instant::now()) {
            return Pass::Retrying(error.to_owned());
        }
        self.brake_until = None;
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            let due: Vec<_> = wave.iter().filter(|object| self.is_due(object)).collect();
            let (client, observer, connections) = (&self.client, &self.observer, &self.connections);
            let answers: Vec<_> = stream::iter(due)
                .map(|object| async move {
                    let budget = || connections.write_budget();
                    (object, apply::apply(client, object, observer.live(object), budget).await)
                })
                // In order, so that of two errors it is always the same that is told.
                .buffered(CONCURRENCY)
                .collect()
                .await;
            let mut errors = Vec::new();
            for (object, answer) in answers {
                match answer {
                    Ok(live) => {
                        info!("applied {}", object.key());
                        self.observer.put(object, live);
                    }
                    Err(error) => errors.push(error),
                }
            }
            // Siblings of a failed object were applied; what comes after the wave has to wait.
            let Some(error) = errors.iter().find(|error| error.source.is_terminal()).or(errors.first()) else {
                continue;
            };
            let text = crate::chain(error);
            let is_terminal = error.source.is_terminal();
            let now = Instant::now();
            // Also what is refused for good is tried again: the operator's rights may change, or the object.
            if self.applying.failed(&text, now) && !is_terminal {
                warn!("{text}; trying again");
            }
            let is_reported = is_terminal || self.applying.has_lasted(TRANSIENT_ERROR_PATIENCE, now);
            return if is_reported { Pass::Outcome(Outcome::Failed { error: text }) } else { Pass::Retrying(text) };
        }
        self.applying = Backoff::default();
        Pass::Outcome(self.rollouts(objects))
    }

    /// Whether an object is not as planned, and may be written now.
    fn is_due(&mut self, object: &Object) -> bool {
        let live = self.observer.live(object);
        if live.is_some_and(|live| ownership::need(object.value(), live) == ownership::Need::Nothing) {
            return false;
        }
        let Err(free) = self.brake.repair(object.key(), Instant::now()) else { return true };
        let who = live.and_then(ownership::last_foreign_manager).unwrap_or("somebody");
        if self.brake_until.is_none() {
            warn!("{who} keeps changing {}: it is repaired twice a second at most", object.key());
        }
        self.brake_until = Some(self.brake_until.map_or(free, |until| until.min(free)));
        false
    }

    /// How the rollouts are, once everything is applied.
    fn rollouts(&mut self, objects: &[Object]) -> Outcome {
        let (mut rollouts, mut stuck) = (Vec::new(), None);
        for object in objects {
            match self.observer.live(object).map(rollout::of) {
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
    async fn report(&mut self, outcome: &Outcome) -> Result<(), String> {
        if !self.observer.knows_cluster_operator() {
            return Ok(());
        }
        if let Some(error) = self.reporting.waits(Instant::now()) {
            return Err(error.to_owned());
        }
        let live = self.observer.cluster_operator();
        let before = live.map(Status::of).unwrap_or_default();
        if self.is_short_rollout(outcome, &before) {
            return Ok(());
        }
        self.log(outcome);
        let live = self.observer.cluster_operator();
        let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        let objects = self.plan.as_ref().map_or(&[][..], |plan| plan.objects());
        let Settings { own_namespace, namespace, .. } = &self.settings;
        let context = Context {
            version: self.version(),
            related_objects: match self.plan {
                // What a process before this one has applied is still there.
                None if !before.related_objects.is_empty() => before.related_objects.clone(),
                _ => status::related_objects(own_namespace, namespace, objects),
            },
            now: &now,
        };
        let next = before.next(outcome, &context);
        let is_well = matches!(outcome, Outcome::Done | Outcome::Nothing { .. });
        let budget = || self.connections.write_budget();
        match status::write::write(&self.client, live, &next, is_well, budget).await {
            Ok(written) => {
                self.reporting = Backoff::default();
                if let Some(written) = written {
                    self.observer.put_cluster_operator(written);
                }
                Ok(())
            }
            Err(error) => {
                let error = crate::chain(&error);
                if self.reporting.failed(&error, Instant::now()) {
                    warn!("{error}; trying again");
                }
                Err(error)
            }
        }
    }

    /// Whether workloads have only just begun to roll out, with nothing new to be announced.
    fn is_short_rollout(&mut self, outcome: &Outcome, before: &Status) -> bool {
        if !matches!(outcome, Outcome::Progressing { .. }) {
            self.rolling_since = None;
            return false;
        }
        let since = *self.rolling_since.get_or_insert_with(Instant::now);
        before.is_at(self.version()) && since.elapsed() < ROLLOUT_GRACE
    }

    fn version(&self) -> &str {
        self.settings.release_version.as_deref().unwrap_or("unknown")
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

impl Connections {
    /// How long a write may take, `None` when there may be none: it has to end while this process still leads.
    fn write_budget(&self) -> Option<Duration> {
        if *self.shutdown.borrow() {
            return None;
        }
        self.leadership.borrow().remaining(Instant::now())
    }
}
