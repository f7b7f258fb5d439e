//! A set of watches (IO): what they have seen, what is not seen yet, and which of them fail.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::BoxStream};
use kube::{Client, api::DynamicObject};
use serde_json::Value;
use tracing::warn;

use crate::cluster::watch::{self, Event, Seen, Target};

struct Watched {
    target: Target,
    seen: Seen,
    events: BoxStream<'static, Event>,
}

/// Watches by what the caller knows them by.
pub struct Watches<Id> {
    client: Client,
    watched: BTreeMap<Id, Watched>,
}

impl<Id: Ord + Clone> Watches<Id> {
    /// No watches yet.
    pub fn new(client: Client) -> Self {
        Self { client, watched: BTreeMap::new() }
    }

    /// Starts a watch, unless there is one of this id.
    pub fn start(&mut self, id: Id, target: impl FnOnce() -> Target) {
        if !self.watched.contains_key(&id) {
            let target = target();
            let events = watch::events(self.client.clone(), &target);
            self.watched.insert(id, Watched { target, seen: Seen::default(), events });
        }
    }

    /// Ends every watch that is not to be kept.
    pub fn keep(&mut self, is_kept: impl Fn(&Id) -> bool) {
        self.watched.retain(|id, _| is_kept(id));
    }

    /// Waits until something arrives and takes all that has arrived. `strip` sees each object first, and removes what must
    /// not be kept; `changed` learns which watches have seen a change.
    pub async fn changed(&mut self, strip: impl Fn(&Id, &mut DynamicObject), mut changed: impl FnMut(&Id)) {
        poll_fn(|context| {
            let mut any = false;
            for (id, watched) in &mut self.watched {
                while let Poll::Ready(Some(mut event)) = watched.events.poll_next_unpin(context) {
                    match &mut event {
                        Event::Present(object) | Event::Deleted(object) => strip(id, object),
                        Event::Started | Event::Synced | Event::Failed(_) => {}
                    }
                    if !matches!(event, Event::Failed(_) | Event::Started) {
                        changed(id);
                    }
                    if let Some(error) = watched.seen.take(event) {
                        warn!("failed to watch {}: {error}", watched.target.describe());
                    }
                    any = true;
                }
            }
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What a watch has seen.
    pub fn seen(&self, id: &Id) -> Option<&Seen> {
        self.watched.get(id).map(|watched| &watched.seen)
    }

    /// One object of those that a watch has seen.
    pub fn get(&self, id: &Id, name: &str) -> Option<&Value> {
        self.seen(id)?.get(name)
    }

    /// Every watch with what it has seen.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Seen)> {
        self.watched.iter().map(|(id, watched)| (id, &watched.seen))
    }

    /// Takes the answer to a write; without a watch for it nothing happens.
    pub fn put(&mut self, id: &Id, name: &str, live: Value) {
        if self.watched.get_mut(id).is_some_and(|watched| !watched.seen.put(name, live)) {
            self.restart();
        }
    }

    /// Starts all watches again, because resource versions have gone back: etcd was restored from a backup, and what was seen
    /// may not be there.
    pub fn restart(&mut self) {
        warn!("the API server's resource versions have gone back: restarting all watches");
        for watched in self.watched.values_mut() {
            watched.events = watch::events(self.client.clone(), &watched.target);
            watched.seen.doubt();
        }
    }

    /// Takes the answer that an object is gone.
    pub fn forget(&mut self, id: &Id, name: &str) {
        if let Some(watched) = self.watched.get_mut(id) {
            watched.seen.forget(name);
        }
    }

    /// The watches among these that have not seen everything yet, for people, with the reason where there is one.
    pub fn pending(&self, counts: impl Fn(&Id) -> bool) -> Vec<String> {
        let pending = self.watched.iter().filter(|(id, watched)| counts(id) && !watched.seen.is_synced());
        pending.map(|(_, watched)| watched.describe()).collect()
    }

    /// What has kept a watch among these from working for this long.
    pub fn lasting_trouble(&self, period: Duration, counts: impl Fn(&Id) -> bool) -> Option<String> {
        let has_lasted = |watched: &Watched| watched.seen.trouble().is_some_and(|one| one.since.elapsed() >= period);
        let lasting = self.watched.iter().filter(|(id, watched)| counts(id) && has_lasted(watched));
        let texts: Vec<_> = lasting.map(|(_, watched)| watched.describe()).collect();
        (!texts.is_empty()).then(|| format!("failed to watch {}", texts.join("; ")))
    }

    /// When the first trouble will have lasted for this long.
    pub fn trouble_lasts_at(&self, period: Duration) -> Option<Instant> {
        let troubles = self.watched.values().filter_map(|watched| watched.seen.trouble());
        troubles.map(|trouble| trouble.since + period).filter(|at| *at > Instant::now()).min()
    }
}

impl Watched {
    fn describe(&self) -> String {
        let target = self.target.describe();
        match self.seen.trouble() {
            Some(trouble) => format!("{target}: {}", trouble.error),
            None => target,
        }
    }
}
