//! What the operator would do, logged (IO): the operator without its hands.
//!
//! Sees what the operator sees, through the same watches, plans the same, and asks the API server by dry runs what would
//! change. It takes no lease and writes nothing. An object is asked about again only when it or the plan has changed:
//! idle costs no request.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::Value;
use tracing::{error, info, warn};

use super::{backoff::Backoff, images_file::ImagesFile, operator::Settings};
use crate::{
    apply,
    catalog::Catalog,
    cluster::{Place, Reader},
    diff::{self, Action},
    facts::{Sources, images::Images},
    object::{Key, Object},
    observe::Observer,
    plan::{Phase, Plan},
    server::Health,
};

/// How often the images file is read again.
const IMAGES_PERIOD: Duration = Duration::from_millis(500);

/// How long without a trigger before everything is looked at again.
const RESYNC_PERIOD: Duration = Duration::from_secs(600);

/// An object as it was when it was last asked about: the plan for it, and what was there.
type Asked = (Object, Option<Value>);

/// The loop and what it knows.
pub struct DryRun {
    reader: Reader,
    catalog: Catalog,
    observer: Observer,
    sources: Sources,
    set_id: String,
    images: ImagesFile,
    plan: Plan,
    /// Whether it was asked what of ours is not planned any more.
    knows_left_over: bool,
    asked: BTreeMap<Key, Asked>,
    /// What was said last of each object.
    said: BTreeMap<Key, String>,
    trying: Backoff,
    health: Health,
}

impl DryRun {
    /// One that has seen nothing yet.
    pub fn new(client: Client, catalog: Catalog, settings: Settings, health: Health) -> Self {
        let set_id = apply::set_id(&settings.own_namespace);
        let with_cluster_version = Sources::needs_cluster_version(settings.release_version.as_deref());
        let mut sources = Sources::new(&settings.namespace, Ok(Images::default()));
        let place = Place { namespace: settings.namespace, own_namespace: settings.own_namespace };
        let reader = Reader::new(client.clone(), place);
        sources.release_version = settings.release_version;
        sources.tls_flags = settings.tls_flags;
        Self {
            observer: Observer::new(client, set_id.clone(), with_cluster_version),
            reader,
            catalog,
            sources,
            set_id,
            images: ImagesFile::new(settings.images_json),
            plan: Plan::Nothing { why: String::new() },
            knows_left_over: false,
            asked: BTreeMap::new(),
            said: BTreeMap::new(),
            trying: Backoff::default(),
            health,
        }
    }

    /// Runs for ever: there is nothing to be ended in order.
    pub async fn run(mut self) {
        let mut images_tick = tokio::time::interval(IMAGES_PERIOD);
        images_tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.images.read();
        info!("dry run: what the operator would do is logged, nothing is written");
        loop {
            self.look().await;
            let wake = self.trying.due().unwrap_or_else(|| Instant::now() + RESYNC_PERIOD);
            loop {
                tokio::select! {
                    () = self.observer.changed() => break,
                    _ = images_tick.tick() => if self.images.read() { break },
                    () = tokio::time::sleep_until(wake.into()) => break,
                }
            }
        }
    }

    async fn look(&mut self) {
        if self.observer.knows_documents() {
            self.replan();
        }
        let pending = self.observer.pending();
        let is_ready = pending.is_empty();
        self.health.set(pending);
        if !is_ready || self.trying.waits(Instant::now()).is_some() {
            return;
        }
        for object in self.plan.objects().to_vec() {
            let live = self.observer.live(&object);
            let now = (object.clone(), live.map(diff::essence));
            if self.asked.get(&object.key()) == Some(&now) {
                continue;
            }
            match self.ask(&object, live.cloned()).await {
                Ok(change) => {
                    self.asked.insert(object.key(), now);
                    self.say(object.key(), &change);
                }
                Err(error) => return self.try_again(&error),
            }
        }
        if !std::mem::replace(&mut self.knows_left_over, true) {
            match self.reader.left_over(self.plan.objects()).await {
                Ok(left_over) => {
                    for change in left_over.iter().filter_map(|live| diff::cluster::removal(live).ok()) {
                        self.say(change.object.clone(), &change);
                    }
                }
                Err(error) if error.is_an_answer() => {
                    warn!("dry run: what would be removed is not known: {}", crate::chain(&error));
                }
                Err(error) => {
                    self.knows_left_over = false;
                    return self.try_again(&error);
                }
            }
        }
        self.trying = Backoff::default();
    }

    fn try_again(&mut self, error: &(dyn std::error::Error + 'static)) {
        let error = crate::chain(error);
        if self.trying.failed(&error, Instant::now()) {
            warn!("{error}; trying again");
        }
    }

    /// What would become of an object. One that does not carry our label is seen by no watch.
    async fn ask(&self, object: &Object, live: Option<Value>) -> Result<diff::Change, diff::cluster::Error> {
        let live = match live {
            Some(live) => Some(live),
            None => self.reader.live(object).await?,
        };
        diff::cluster::change(self.reader.client(), object, live.as_ref()).await
    }

    fn say(&mut self, object: Key, change: &diff::Change) {
        let line = change.line();
        if self.said.get(&object) == Some(&line) {
            return;
        }
        match change.action {
            // Worth a word only where something else was said before.
            Action::Unchanged if !self.said.contains_key(&object) => {}
            Action::Refuse => warn!("dry run: {line}"),
            _ => info!("dry run: {line}"),
        }
        self.said.insert(object, line);
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
        let plan = documents.and_then(|_| {
            Plan::new(&self.catalog, &self.sources, Phase::Cluster).map_err(|error| crate::chain(&error))
        });
        match plan {
            Err(error) => error!("dry run: the operator would be degraded: {error}"),
            Ok(plan) => {
                let plan = plan.labelled(&self.set_id);
                if self.plan != plan {
                    match &plan {
                        Plan::Nothing { why } => info!("dry run: nothing would be applied: {why}"),
                        Plan::Objects { provider, objects } => {
                            info!("dry run: provider {provider} has {} objects", objects.len());
                        }
                    }
                    self.observer.follow(plan.objects());
                    self.plan = plan;
                    self.knows_left_over = false;
                }
            }
        }
    }
}
