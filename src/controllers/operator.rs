//! The operator itself: keeps a provider's objects as planned and says how that goes (IO).
//!
//! One loop, woken by whatever changes. A pass costs no request unless something is to be written. Bad input is
//! reported at once and waits for another input; everything else is tried again, later each time, and reported once it
//! has lasted.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::Client;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::{
    apply,
    catalog::Catalog,
    facts::{
        Sources,
        images::{self, Images},
        tls::TlsFlags,
    },
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

/// How long a rollout may take before it is said that there is one, when the version stays: a controller that catches up
/// with a changed annotation is no rollout.
const ROLLOUT_GRACE: Duration = Duration::from_secs(1);

/// The pause after the first failure and the longest one; each is twice the one before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

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
    /// Since when workloads are being rolled out.
    rolling_since: Option<Instant>,
    /// Since when a rollout is stuck.
    stuck_since: Option<Instant>,
    logged: Option<Outcome>,
}

/// What a pass came to.
enum Pass {
    /// Nothing can be said yet: this is waited for.
    Waiting(Vec<String>),
    /// Somebody else leads.
    Standby,
    /// An error lasted not long enough yet to be reported, or the next try is not due.
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
            rolling_since: None,
            stuck_since: None,
            logged: None,
        }
    }

    /// Runs until it is told to stop; a pass that has begun to write ends first.
    pub async fn run(mut self) {
        let mut images_tick = tokio::time::interval(IMAGES_PERIOD);
        images_tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.images.read();
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
        let waiting = match self.pass().await {
            Pass::Waiting(waiting) => waiting,
            Pass::Standby => Vec::new(),
            Pass::Retrying(error) => vec![error],
            Pass::Outcome(outcome) => self.report(outcome).await.err().into_iter().collect(),
        };
        self.connections.health.set(waiting);
        let resync = Instant::now() + RESYNC_PERIOD;
        let later =
            |since: Option<Instant>, period| since.map(|since| since + period).filter(|due| *due > Instant::now());
        let rolling = later(self.rolling_since, ROLLOUT_GRACE);
        let stuck = later(self.stuck_since, TRANSIENT_ERROR_PATIENCE);
        [self.applying.due(), self.reporting.due(), rolling, stuck].into_iter().flatten().fold(resync, Instant::min)
    }

    async fn pass(&mut self) -> Pass {
        if self.observer.knows_documents() {
            self.replan();
        }
        let pending = self.observer.pending();
        if !pending.is_empty() {
            return match self.observer.errors() {
                errors if errors.is_empty() => Pass::Waiting(pending),
                errors => self.transient(format!("failed to watch {}", errors.join("; "))),
            };
        }
        if !self.connections.may_write() {
            return Pass::Standby;
        }
        let pass = match self.plan.clone() {
            None => Pass::Outcome(Outcome::Done),
            Some(plan) => match &*plan {
                Plan::Nothing { why } => Pass::Outcome(Outcome::Nothing { why: why.clone() }),
                Plan::Objects { objects, .. } => self.act(objects).await,
            },
        };
        match (&self.bad_input, pass) {
            (Some(error), Pass::Outcome(_)) => Pass::Outcome(Outcome::Failed { error: error.clone() }),
            (_, pass) => pass,
        }
    }

    /// Plans again when an input has changed, and watches what is planned.
    fn replan(&mut self) {
        let documents_changed = self.observer.update(&mut self.sources);
        if !documents_changed && !self.images.has_changed() {
            return;
        }
        if let Some(images) = self.images.take() {
            self.sources.images = images;
        }
        let single_replica = self.sources.is_single_replica();
        self.connections.single_replica.send_if_modified(|known| known.replace(single_replica) != Some(single_replica));
        match Plan::new(&self.catalog, &self.sources, Phase::Cluster) {
            Err(error) => self.bad_input = Some(crate::chain(&error)),
            Ok(mut plan) => {
                if let Plan::Objects { objects, .. } = &mut plan {
                    for object in objects {
                        object.set_label(apply::PART_OF_LABEL, &self.set_id);
                    }
                }
                self.observer.follow(plan.objects());
                (self.plan, self.bad_input) = (Some(Arc::new(plan)), None);
                // What has failed may have failed because of the old input.
                self.applying = Backoff::default();
            }
        }
    }

    /// Applies what is not as planned, wave after wave, and looks how the rollouts are.
    async fn act(&mut self, objects: &[Object]) -> Pass {
        if let Some(error) = self.applying.waits() {
            return Pass::Retrying(error.to_owned());
        }
        for wave in objects.chunk_by(|first, second| first.kind().wave == second.kind().wave) {
            let (client, observer, connections) = (&self.client, &self.observer, &self.connections);
            let answers: Vec<_> = stream::iter(wave)
                .map(|object| async move {
                    let may_write = || connections.may_write();
                    (object, apply::apply(client, object, observer.live(object), may_write).await)
                })
                .buffer_unordered(CONCURRENCY)
                .collect()
                .await;
            let mut errors = Vec::new();
            for (object, answer) in answers {
                match answer {
                    Ok(None) => {}
                    Ok(Some(live)) => {
                        info!("applied {}", object.key());
                        self.observer.put(object, live);
                    }
                    Err(error) => errors.push(error),
                }
            }
            // Siblings of a failed object were applied; what comes after the wave has to wait.
            if let Some(error) = errors.iter().find(|error| error.source.is_terminal()) {
                let text = crate::chain(error);
                // Tried again all the same: the operator's rights may change, or the object.
                self.applying.failed(&text);
                return Pass::Outcome(Outcome::Failed { error: text });
            }
            if let Some(error) = errors.first() {
                return self.transient(crate::chain(error));
            }
        }
        self.applying = Backoff::default();
        Pass::Outcome(self.rollouts(objects))
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

    /// An error that may pass: it is reported once it has lasted.
    fn transient(&mut self, error: String) -> Pass {
        if self.applying.failed(&error) {
            warn!("{error}; trying again");
        }
        if self.applying.has_lasted() && self.connections.may_write() {
            Pass::Outcome(Outcome::Failed { error })
        } else {
            Pass::Retrying(error)
        }
    }

    /// Says what came of a pass, if it is not said yet.
    async fn report(&mut self, outcome: Outcome) -> Result<(), String> {
        if !self.observer.knows_cluster_operator() {
            return Ok(());
        }
        if let Some(error) = self.reporting.waits() {
            return Err(error.to_owned());
        }
        let live = self.observer.cluster_operator();
        let before = live.map(Status::of).unwrap_or_default();
        if self.is_short_rollout(&outcome, &before) {
            return Ok(());
        }
        self.log(&outcome);
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
        let next = before.next(&outcome, &context);
        let is_well = matches!(outcome, Outcome::Done | Outcome::Nothing { .. });
        match status::write::write(&self.client, live, &next, is_well).await {
            Ok(written) => {
                self.reporting = Backoff::default();
                if let Some(written) = written {
                    self.observer.put_cluster_operator(written);
                }
                Ok(())
            }
            Err(error) => {
                let error = crate::chain(&error);
                warn!("{error}; trying again");
                self.reporting.failed(&error);
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

/// The images file, read again and again.
struct ImagesFile {
    path: PathBuf,
    text: Result<String, String>,
    changed: bool,
}

impl ImagesFile {
    fn new(path: PathBuf) -> Self {
        Self { path, text: Ok(String::new()), changed: true }
    }

    /// Reads the file; answers whether it has changed since it was last read.
    fn read(&mut self) -> bool {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        let changed = text != self.text;
        self.text = text;
        self.changed |= changed;
        changed
    }

    fn has_changed(&self) -> bool {
        self.changed
    }

    /// The images, if they have changed since they were last taken.
    fn take(&mut self) -> Option<Result<Images, images::Error>> {
        let from = self.path.display().to_string();
        std::mem::take(&mut self.changed).then(|| match &self.text {
            Ok(text) => Images::parse(text, &from),
            Err(why) => Err(images::Error::Unreadable { from, why: why.clone() }),
        })
    }
}

impl Connections {
    fn may_write(&self) -> bool {
        !*self.shutdown.borrow() && self.leadership.borrow().is_some_and(|until| Instant::now() < until)
    }
}

/// When to try again what has failed, and for how long it has been failing.
#[derive(Default)]
struct Backoff {
    failing: Option<Failing>,
}

struct Failing {
    since: Instant,
    pause: Duration,
    not_before: Instant,
    error: String,
}

impl Backoff {
    /// Notes a failure; answers whether it is a new one.
    fn failed(&mut self, error: &str) -> bool {
        let now = Instant::now();
        let known = self.failing.take();
        let is_new = known.as_ref().is_none_or(|known| known.error != error);
        let (since, pause, not_before) = match known {
            None => (now, BACKOFF.0, now + BACKOFF.0),
            // Said again before the next try was due: no second failure.
            Some(known) if now < known.not_before => (known.since, known.pause, known.not_before),
            Some(known) => {
                let pause = (known.pause * 2).min(BACKOFF.1);
                (known.since, pause, now + pause)
            }
        };
        self.failing = Some(Failing { since, pause, not_before, error: error.to_owned() });
        is_new
    }

    /// The last error, while the next try is not due.
    fn waits(&self) -> Option<&str> {
        self.failing
            .as_ref()
            .filter(|failing| Instant::now() < failing.not_before)
            .map(|failing| failing.error.as_str())
    }

    fn has_lasted(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.since.elapsed() >= TRANSIENT_ERROR_PATIENCE)
    }

    /// When the next try is due, or the error has lasted.
    fn due(&self) -> Option<Instant> {
        let failing = self.failing.as_ref()?;
        let lasted = failing.since + TRANSIENT_ERROR_PATIENCE;
        let now = Instant::now();
        let next = failing.not_before.max(now);
        Some(if lasted > now { next.min(lasted) } else { next })
    }
}
