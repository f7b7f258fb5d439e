//! A set of watches (IO): the objects that they have seen, the watches that are pending, and those that fail.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::BoxStream};
use kube::{Client, api::DynamicObject};
use serde_json::Value;
use tracing::{debug, warn};

use crate::cluster::{
    seen::{Event, Seen},
    watch::{self, Collection, LastEventTime},
};

struct Watched {
    target: Collection,
    heard: LastEventTime,
    seen: Seen,
    events: BoxStream<'static, Event>,
}

/// A set of watches, each with an id chosen by the caller.
pub struct Watches<Id> {
    client: Client,
    watched: BTreeMap<Id, Watched>,
}

impl<Id: Ord + Clone> Watches<Id> {
    /// A set without watches.
    pub fn new(client: Client) -> Self {
        Self { client, watched: BTreeMap::new() }
    }

    /// Starts a watch, unless there is one with this id.
    pub fn start(&mut self, id: Id, target: impl FnOnce() -> Collection) {
        if !self.watched.contains_key(&id) {
            let target = target();
            let heard = LastEventTime::default();
            let events = watch::events(&self.client, &target, heard.clone());
            self.watched.insert(id, Watched { target, heard, seen: Seen::default(), events });
        }
    }

    /// Ends the watches that the predicate refuses.
    pub fn keep(&mut self, is_kept: impl Fn(&Id) -> bool) {
        self.watched.retain(|id, _| is_kept(id));
    }

    /// Waits for events that change something, and handles all that have arrived. `strip` removes the fields of each object that must not
    /// be kept. `changed` is called for each watch with a change. If `is_optional` holds for a watch, the API server need not serve its
    /// kind.
    pub async fn changed(
        &mut self,
        strip: impl Fn(&Id, &mut DynamicObject),
        is_optional: impl Fn(&Id) -> bool,
        mut changed: impl FnMut(&Id),
    ) {
        poll_fn(|context| {
            let mut any = false;
            for (id, watched) in &mut self.watched {
                while let Poll::Ready(Some(mut event)) = watched.events.poll_next_unpin(context) {
                    if let Event::Changed(object) | Event::Deleted(object) = &mut event {
                        strip(id, object);
                    }
                    let news = watched.seen.take(event);
                    if news.is_change {
                        changed(id);
                    }
                    any |= news.is_change || news.is_about_watch;
                    if let Some(error) = news.error {
                        let what = watched.target.describe();
                        let is_unserved = watched.seen.problem().is_some_and(|problem| problem.is_unserved);
                        if is_unserved && is_optional(id) {
                            debug!("failed to watch {what}: {error}");
                        } else {
                            warn!("failed to watch {what}: {error}");
                        }
                    }
                }
            }
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The objects that a watch has seen.
    pub fn seen(&self, id: &Id) -> Option<&Seen> {
        self.watched.get(id).map(|watched| &watched.seen)
    }

    /// An object that a watch has seen.
    pub fn get(&self, id: &Id, name: &str) -> Option<&Value> {
        self.seen(id)?.get(name)
    }

    /// Every watch with its objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Seen)> {
        self.watched.iter().map(|(id, watched)| (id, &watched.seen))
    }

    /// Stores the response to a write. Does nothing if the watch does not exist.
    pub fn put(&mut self, id: &Id, name: &str, live: Value) {
        if self.watched.get_mut(id).is_some_and(|watched| !watched.seen.put(name, live)) {
            self.restart();
        }
    }

    /// Starts all watches again, because resource versions have gone back, as after a restore of etcd. The seen objects may be wrong.
    pub fn restart(&mut self) {
        warn!("the resource versions of the API server have gone back: restarting all watches");
        for watched in self.watched.values_mut() {
            watched.events = watch::events(&self.client, &watched.target, watched.heard.clone());
            watched.seen.doubt();
        }
    }

    /// Notes that the API server has answered another request. Errors without a response then count from now.
    pub fn have_answered(&mut self) {
        self.watched.values_mut().for_each(|watched| watched.seen.has_answered());
    }

    /// The time of the last event of each watch, by kind.
    pub fn heard(&self) -> Vec<(&'static str, LastEventTime)> {
        self.watched.values().map(|watched| (watched.target.kind.kind, watched.heard.clone())).collect()
    }

    /// Removes an object that no longer exists.
    pub fn forget(&mut self, id: &Id, name: &str) {
        if let Some(watched) = self.watched.get_mut(id) {
            watched.seen.forget(name);
        }
    }

    /// The chosen watches that have not seen all existing objects yet, for people, each with its error.
    pub fn pending(&self, counts: impl Fn(&Id) -> bool) -> Vec<String> {
        let pending = self.watched.iter().filter(|(id, watched)| counts(id) && !watched.seen.is_synced());
        pending.map(|(_, watched)| watched.describe()).collect()
    }

    /// The errors of the chosen watches that have failed for this long.
    pub fn lasting_problem(&self, period: Duration, counts: impl Fn(&Id) -> bool) -> Option<String> {
        let now = Instant::now();
        let has_lasted = |watched: &Watched| watched.seen.problem().is_some_and(|one| one.lasts_at(period) <= now);
        let lasting = self.watched.iter().filter(|(id, watched)| counts(id) && has_lasted(watched));
        let texts: Vec<_> = lasting.map(|(_, watched)| watched.describe()).collect();
        (!texts.is_empty()).then(|| format!("failed to watch {}", texts.join("; ")))
    }

    /// The time at which the first failure will have lasted for this long.
    pub fn problem_lasts_at(&self, period: Duration) -> Option<Instant> {
        let problems = self.watched.values().filter_map(|watched| watched.seen.problem());
        problems.map(|problem| problem.lasts_at(period)).filter(|at| *at > Instant::now()).min()
    }
}

impl Watched {
    fn describe(&self) -> String {
        let target = self.target.describe();
        match self.seen.problem() {
            Some(problem) => format!("{target}: {}", problem.error),
            None => target,
        }
    }
}
