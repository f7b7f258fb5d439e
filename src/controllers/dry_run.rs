//! What the operator would do, logged (IO): the operator without its hands.
//!
//! Sees what the operator sees, through the same watches, plans the same, and asks the API server by dry runs what would
//! change. It takes no lease and writes nothing. An object is asked about again only when it or the plan has changed:
//! idle costs no request.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use serde_json::Value;
use tracing::{error, info, warn};

use crate::controllers::{FILES_PERIOD, backoff::Backoff, images_file::ImagesFile, next_turn, view::View};
use crate::{
    apply::{
        diff::{self, Action},
        dry_run,
        inventory::{self, Scope},
    },
    cluster::read::Reader,
    object::{Key, Object},
    plan::Plan,
    process::http::Health,
};

/// An object as it was when it was last asked about: the plan for it, and what was there.
type Asked = (Object, Option<Value>);

/// The loop and what it knows.
pub struct DryRun {
    view: View,
    reader: Reader,
    set_id: String,
    images: ImagesFile,
    /// The state of the cluster's documents that the plan is made of.
    revision: u64,
    plan: Plan,
    bad_input: Option<String>,
    asked: BTreeMap<Key, Asked>,
    /// What was said last of each object.
    said: BTreeMap<Key, String>,
    trying: Backoff,
    health: Health,
}

impl DryRun {
    /// One that has seen nothing yet; `set_id` marks our objects, `images_json` is the images file.
    pub fn new(view: View, set_id: String, images_json: PathBuf, health: Health) -> Self {
        Self {
            reader: Reader::new(view.client.clone()),
            view,
            set_id,
            images: ImagesFile::new(images_json),
            revision: 0,
            plan: Plan::Nothing { why: String::new() },
            bad_input: None,
            asked: BTreeMap::new(),
            said: BTreeMap::new(),
            trying: Backoff::default(),
            health,
        }
    }

    /// Runs for ever: there is nothing to be ended in order.
    pub async fn run(mut self) {
        let mut images_tick = tokio::time::interval(FILES_PERIOD);
        images_tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.images.read();
        info!("dry run: what the operator would do is logged, nothing is written");
        loop {
            let started = Instant::now();
            self.look().await;
            let wake = next_turn(self.trying.due(), started);
            loop {
                tokio::select! {
                    () = self.view.observer.changed() => break,
                    _ = images_tick.tick() => if self.images.read() { break },
                    () = tokio::time::sleep_until(wake.into()) => break,
                }
            }
        }
    }

    async fn look(&mut self) {
        self.view.refresh();
        self.replan();
        self.follow();
        let pending = self.view.pending();
        let is_ready = pending.is_empty();
        self.health.set(pending);
        if !is_ready || self.trying.waits(Instant::now()).is_some() {
            return;
        }
        for object in self.plan.objects().to_vec() {
            let live = self.view.observer.live(&object);
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
        if !self.view.observer.awaits_leftovers() {
            self.say_left_over();
        }
        self.trying = Backoff::default();
    }

    /// Watches what is planned, and what the inventory lists besides.
    fn follow(&mut self) {
        let observer = &mut self.view.observer;
        let planned = Scope::of(self.plan.objects());
        let inventory = observer.inventory().filter(|_| !self.plan.objects().is_empty()).map(Scope::read);
        observer.follow(&planned, &inventory.unwrap_or_default());
    }

    /// What is ours and not planned any more; without a plan the operator does nothing with it.
    fn say_left_over(&mut self) {
        if self.plan.objects().is_empty() {
            return;
        }
        let observer = &self.view.observer;
        let seen = observer.ours().flat_map(|(place, objects)| objects.map(move |object| (place, object)));
        let verdicts = inventory::verdicts(seen, self.plan.objects(), &self.set_id);
        let changes = verdicts.into_iter().map(|(_, live, verdict)| dry_run::removal(live, verdict));
        let changes: Vec<_> = changes.filter_map(Result::ok).flatten().collect();
        for change in changes {
            self.say(change.object.clone(), &change);
        }
    }

    fn try_again(&mut self, error: &dry_run::Error) {
        let text = crate::error::chain(error);
        if self.trying.failed(&text, error.retry_after(), Instant::now()) {
            warn!("{text}; trying again");
        }
    }

    /// What would become of an object. One that does not carry our label is seen by no watch.
    async fn ask(&self, object: &Object, live: Option<Value>) -> Result<diff::Change, dry_run::Error> {
        let live = match live {
            Some(live) => Some(live),
            None => self.reader.live(object).await?,
        };
        dry_run::change(self.reader.client(), object, live.as_ref()).await
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
        if !self.view.knows_inputs() || (self.revision == self.view.revision() && !self.images.has_changed()) {
            return;
        }
        self.revision = self.view.revision();
        if let Some(images) = self.images.take() {
            self.view.set_images(images);
        }
        match self.view.plan() {
            Err(error) => {
                if self.bad_input.as_ref() != Some(&error) {
                    error!("dry run: the operator would be degraded: {error}");
                }
                self.bad_input = Some(error);
            }
            Ok(plan) => {
                self.bad_input = None;
                let plan = plan.labelled(&self.set_id);
                if self.plan != plan {
                    match &plan {
                        Plan::Nothing { why } => info!("dry run: nothing would be applied: {why}"),
                        Plan::Objects { provider, objects } => {
                            info!("dry run: provider {provider} has {} objects", objects.len());
                        }
                    }
                    self.plan = plan;
                }
            }
        }
    }
}
