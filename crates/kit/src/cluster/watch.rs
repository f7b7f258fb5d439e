//! Watches of named or labeled objects (IO).
//!
//! Each watch is one request: the API server streams the existing objects, then their changes. For a server without this feature, it is
//! a list, then a watch. A watch never resumes at an earlier resource version: each start begins with all objects. So no watch misses
//! changes, even if etcd was restored from a backup and the earlier resource version is in the future.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    channel::mpsc::{self, UnboundedSender},
    stream::{self, BoxStream},
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams},
};

use crate::{
    cluster::{
        request::{self, Cause, REQUEST_TIMEOUT, describe_objects},
        seen::Event,
    },
    object::Kind,
};

const PAGE: u32 = 500;

/// The time after which the API server ends a watch, in seconds.
const LIFETIME: u32 = 290;

/// The longest silence before all existing objects have been sent.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The longest silence afterwards. The API server sends a bookmark each minute. After a start it may take two minutes, if etcd reports
/// its progress at its default interval. Without a watch cache it sends none, so a longer silence is no error.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// The first and the longest pause between two starts, with a jitter of half of it. Each pause is twice the previous one. Nothing is
/// repaired while the watches fail, and there are few of them.
const PAUSE: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(6));

/// A watch that has lasted this long and was ended is restarted without a pause.
const STABLE: Duration = Duration::from_secs(10);

/// The annotation of the bookmark that follows the existing objects.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The objects that are watched.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// The namespace of the objects; empty for a cluster-scoped kind.
    pub namespace: String,
    /// The selector of the objects.
    pub selector: Selector,
}

/// The time of the last event of a watch, including bookmarks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LastEventTime(Arc<AtomicI64>);

impl LastEventTime {
    /// The time in seconds since 1970; zero without an event.
    pub fn last(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn now(&self) {
        self.0.store(Timestamp::now().as_second(), Ordering::Relaxed);
    }
}

/// A selector of objects of a kind.
#[derive(Clone, Debug)]
pub enum Selector {
    /// The object of this name.
    Name(String),
    /// The objects with this label, `key=value`.
    Label(String),
    /// The objects with these fields, `path=value,…`.
    Fields(&'static str),
}

impl Collection {
    /// The object of this name.
    pub fn named(kind: &'static Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), selector: Selector::Name(name.to_owned()) }
    }

    /// The objects with this label, `key=value`. An empty label means all objects.
    pub fn labeled(kind: &'static Kind, namespace: &str, label: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), selector: Selector::Label(label.to_owned()) }
    }

    /// The name of one object, or the namespace of several, in the words of [`describe_objects`].
    pub fn describe(&self) -> String {
        match &self.selector {
            Selector::Name(name) => describe_objects(self.kind, "", name),
            Selector::Label(_) | Selector::Fields(_) => describe_objects(self.kind, &self.namespace, ""),
        }
    }
}

/// Returns the events of a watch. The stream never ends: an ended watch is restarted, after an error with a growing pause.
pub fn events(client: &Client, target: &Collection, heard: LastEventTime) -> BoxStream<'static, Event> {
    let (sender, receiver) = mpsc::unbounded();
    let watch = Watch {
        api: request::api(client, target.kind, &target.namespace),
        types: TypeMeta { api_version: target.kind.api_version(), kind: target.kind.kind.to_owned() },
        objects: match &target.selector {
            Selector::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
            Selector::Label(label) => ListParams::default().labels(label),
            Selector::Fields(fields) => ListParams::default().fields(fields),
        },
        can_stream: true,
        heard,
        events: sender,
    };
    let run = stream::once(watch.run()).map(|never| match never {});
    stream::select(receiver, run).boxed()
}

/// A started watch, and whether all existing objects have been sent.
type Started = (BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>, bool);

struct Watch {
    api: Api<DynamicObject>,
    types: TypeMeta,
    objects: ListParams,
    /// Whether the API server streams existing objects, as far as is known.
    can_stream: bool,
    heard: LastEventTime,
    events: UnboundedSender<Event>,
}

impl Watch {
    async fn run(mut self) -> Infallible {
        let mut pause = PAUSE.0;
        loop {
            let started = Instant::now();
            let over = match self.start().await {
                Ok(watch) => self.deliver(watch).await,
                Err(error) => Err(error),
            };
            if started.elapsed() >= STABLE {
                pause = PAUSE.0;
                if over.is_ok() {
                    continue;
                }
            }
            let mut asked = Duration::ZERO;
            if let Err(error) = over {
                asked = error.retry_after().min(PAUSE.1);
                self.send(Event::Failed { error: error.to_string(), code: error.code() });
            }
            // All watches end together with the API server, and should not restart together.
            let jitter = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
            tokio::time::sleep(asked.max(pause / 2 + pause * jitter / 1000)).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn start(&mut self) -> Result<Started, Cause> {
        let params = WatchParams {
            label_selector: self.objects.label_selector.clone(),
            field_selector: self.objects.field_selector.clone(),
            timeout: Some(LIFETIME),
            ..WatchParams::default()
        };
        if self.can_stream {
            // Without a resource version the API server sends the current objects, and not the ones of its cache.
            let params = params.clone().initial_events();
            match request::send(Some(REQUEST_TIMEOUT), self.api.watch(&params, "")).await {
                // Before Kubernetes 1.34 a server without the feature gate refuses `sendInitialEvents` as an invalid field.
                Err(Cause::Api(kube::Error::Api(status))) if matches!(status.code, 400 | 422) => {
                    self.can_stream = false;
                }
                started => {
                    let events = started?.boxed();
                    self.send(Event::Started);
                    return Ok((events, false));
                }
            }
        }
        let mut page = self.objects.clone().limit(PAGE);
        self.send(Event::Started);
        // All pages have the resource version of the first one. If the API server no longer has that version, the next start begins
        // again.
        let version = loop {
            let list = request::send(Some(REQUEST_TIMEOUT), self.api.list(&page)).await?;
            for mut object in list.items {
                // The items of a list have no types of their own.
                object.types.get_or_insert_with(|| self.types.clone());
                self.send(Event::Changed(Box::new(object)));
            }
            page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                break list.metadata.resource_version.unwrap_or_default();
            }
        };
        let events = request::send(Some(REQUEST_TIMEOUT), self.api.watch(&params, &version)).await?.boxed();
        self.send(Event::Synced);
        Ok((events, true))
    }

    /// Sends the events of a watch until it is over.
    async fn deliver(&self, (mut events, mut is_synced): Started) -> Result<(), Cause> {
        loop {
            let limit = if is_synced { LONGEST_SILENCE } else { LONGEST_DELAY };
            let event = match tokio::time::timeout(limit, events.next()).await {
                Ok(Some(event)) => {
                    self.heard.now();
                    event.map_err(Cause::Api)?
                }
                Ok(None) if !is_synced => return Err(Cause::Incomplete("it has ended the watch")),
                Err(_) if !is_synced => return Err(Cause::Incomplete("the watch is silent")),
                Ok(None) | Err(_) => return Ok(()),
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.send(Event::Changed(Box::new(object))),
                WatchEvent::Deleted(object) => self.send(Event::Deleted(Box::new(object))),
                WatchEvent::Bookmark(bookmark) => {
                    if !is_synced && bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        is_synced = true;
                        self.send(Event::Synced);
                    }
                }
                // The resource version is too old: the next watch begins with all objects.
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => return Err(Cause::Api(kube::Error::Api(status))),
            }
        }
    }

    fn send(&self, event: Event) {
        // There is no receiver while the watch is being dropped.
        drop(self.events.unbounded_send(event));
    }
}
