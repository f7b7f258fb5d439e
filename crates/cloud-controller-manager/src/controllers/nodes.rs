//! All nodes, as the watch has seen them (IO).

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ccm_base::object::NODE;
use ccm_kit::cluster::{
    request,
    seen::{Event, Seen},
    watch::{self, Collection, LastEventTime},
};
use futures::{StreamExt, future::pending};
use kube::{Client, api::DynamicObject};
use serde_json::Value;
use tokio::sync::{mpsc::UnboundedSender, watch as channel};
use tracing::warn;

/// The nodes that exist.
pub(super) struct Nodes {
    seen: Mutex<Seen>,
    /// Whether all of them have been seen once.
    is_synced: channel::Sender<bool>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { seen: Mutex::default(), is_synced: channel::Sender::new(false) }
    }
}

impl Nodes {
    /// Watches all nodes. The name of each node that is new or has changed goes to `changed`.
    pub(super) async fn run(&self, client: &Client, changed: Option<UnboundedSender<String>>) -> Infallible {
        let all = Collection::labeled(&NODE, "", "");
        let mut events = watch::events(client, &all, LastEventTime::default());
        while let Some(mut event) = events.next().await {
            let names = match &mut event {
                Event::Changed(node) => {
                    strip(node);
                    node.metadata.name.clone()
                }
                _ => None,
            };
            let is_list = matches!(event, Event::Synced);
            let news = self.seen().take(event);
            if let Some(error) = news.error {
                warn!("failed to watch {}: {error}", all.describe());
            }
            if is_list {
                self.is_synced.send_replace(true);
            }
            let Some(changed) = changed.as_ref().filter(|_| news.is_change) else { continue };
            let names = if is_list { self.names() } else { names.into_iter().collect() };
            for name in names {
                // The receiver ends together with this watch.
                let _ = changed.send(name);
            }
        }
        // A watch never ends.
        pending().await
    }

    /// Waits until all nodes have been seen once.
    pub(super) async fn synced(&self) {
        // The sender lives as long as this value.
        let _ = self.is_synced.subscribe().wait_for(|is_synced| *is_synced).await;
    }

    /// Why the watch fails, if it does: what is known may be out of date.
    pub(super) fn problem(&self) -> Option<String> {
        self.seen().problem().map(|problem| problem.error.clone())
    }

    /// The node of this name.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.seen().get(name).cloned()
    }

    /// Stores the answer to a change, unless the watch has seen the end of the node, or a newer state.
    pub(super) fn put(&self, mut node: DynamicObject) {
        strip(&mut node);
        let (name, node) = (node.metadata.name.clone().unwrap_or_default(), request::to_value(&node));
        let mut seen = self.seen();
        if seen.get(&name).is_some_and(|known| known["metadata"]["uid"] == node["metadata"]["uid"]) {
            // A newer state that is known stays.
            let _ = seen.put(&name, node);
        }
    }

    /// The nodes that fit. They share their memory with what is known.
    pub(super) fn select(&self, fits: impl Fn(&Value) -> bool) -> Vec<Arc<Value>> {
        self.seen().shared().filter(|node| fits(node)).cloned().collect()
    }

    /// What a function makes of each node.
    pub(super) fn map<T>(&self, make: impl Fn(&Value) -> T) -> Vec<T> {
        self.seen().objects().map(make).collect()
    }

    /// Whether at least this many nodes fit.
    pub(super) fn are_many(&self, count: usize, fits: impl Fn(&Value) -> bool) -> bool {
        self.seen().objects().filter(|node| fits(node)).take(count).count() == count
    }

    fn names(&self) -> Vec<String> {
        self.map(|node| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what is never read, which takes most of the memory of a node.
fn strip(node: &mut DynamicObject) {
    node.metadata.managed_fields = None;
    if let Some(status) = node.data["status"].as_object_mut() {
        status.retain(|field, _| matches!(field.as_str(), "addresses" | "conditions"));
    }
    if let Some(conditions) = node.data["status"]["conditions"].as_array_mut() {
        // The others are about memory, disks and processes.
        conditions.retain(|condition| condition["type"] == "Ready" || condition["type"] == "NetworkUnavailable");
    }
}
