//! Watches of named or labelled objects, and what was seen through them (IO).
//!
//! One request a watch: the API server streams the objects that are there and then their changes. A server that does not
//! know how is asked to list, then to watch. A watch never resumes at an earlier resource version: each start begins with
//! all objects, so that whatever made the last one blind is over, be it an API server whose etcd was restored from a backup.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    channel::mpsc::{self, UnboundedSender},
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams},
};
use serde_json::Value;

use crate::cluster::request::{self, Cause, REQUEST_TIMEOUT};

/// How long a watch lives before the API server ends it and the next begins with all objects, in seconds.
const LIFETIME: u32 = 290;

/// How long the API server may send nothing while it still owes objects.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// How long it may send nothing afterwards. It sends a bookmark each minute, the first one after up to two minutes where
/// etcd reports its progress as seldom as by default; without a watch cache it never does, so silence is no error.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);

/// The pauses between two starts, each twice the one before: few watches need no longer ones, and nothing is repaired while
/// they are blind.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// A watch that has lived for this long is restarted without a pause.
const STABLE: Duration = Duration::from_secs(10);

/// What to watch.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub resource: ApiResource,
    /// The namespace; `None` watches a cluster-scoped resource.
    pub namespace: Option<String>,
    /// Which of its objects.
    pub selector: Selector,
}

/// Which objects of a resource.
#[derive(Clone, Debug)]
pub enum Selector {
    /// The one of this name.
    Name(String),
    /// Those with this label, `key=value`.
    Label(String),
}

impl Target {
    /// The resource as RBAC and kubectl name it, such as `deployments.apps in namespace x`.
    pub fn describe(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        match (&self.selector, &self.namespace) {
            (Selector::Name(name), _) => format!("{resource} {name}"),
            (Selector::Label(_), Some(namespace)) => format!("{resource} in namespace {namespace}"),
            (Selector::Label(_), None) => resource,
        }
    }
}

/// What a watch delivers.
#[derive(Debug)]
pub enum Event {
    /// It has (re)started: all objects that are there follow.
    Started,
    /// An object that is there, or has changed.
    Present(Box<DynamicObject>),
    /// An object was deleted; its last state.
    Deleted(Box<DynamicObject>),
    /// All objects that are there have been delivered.
    Synced,
    /// It has failed, and will be restarted.
    Failed(String),
}

/// What a watch has seen: the objects that are there, by name.
#[derive(Debug, Default)]
pub struct Seen {
    objects: BTreeMap<String, Value>,
    /// The objects of a (re)start that is not complete yet.
    arriving: Option<BTreeMap<String, Value>>,
    synced: bool,
    trouble: Option<Trouble>,
}

/// A watch that does not work.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The last error, with its causes.
    pub error: String,
    /// When it began.
    pub since: Instant,
}

impl Seen {
    /// The objects that are there.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    /// One object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.objects.get(name)
    }

    /// Whether everything that is there has been seen.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// What keeps the watch from working; until it has delivered all objects.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Takes what the watch delivered. Returns an error that is not the same as the last one.
    pub fn take(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Started => self.arriving = Some(BTreeMap::new()),
            Event::Present(object) => {
                let (name, value) = named(&object);
                if is_outdated(self.current(), &name, &value) {
                    return None;
                }
                self.current().insert(name, value);
            }
            Event::Deleted(object) => {
                let (name, value) = named(&object);
                if !is_outdated(self.current(), &name, &value) {
                    self.current().remove(&name);
                }
            }
            Event::Synced => {
                self.objects = self.arriving.take().unwrap_or_default();
                (self.synced, self.trouble) = (true, None);
            }
            Event::Failed(error) => {
                let is_news = self.trouble.as_ref().is_none_or(|known| known.error != error);
                let since = self.trouble.take().map_or_else(Instant::now, |known| known.since);
                self.trouble = Some(Trouble { error: error.clone(), since });
                return is_news.then_some(error);
            }
        }
        None
    }

    /// Takes the answer to a write: it overtakes the watch. Returns false if an object that is newer was seen already, which
    /// means that the resource versions have gone back.
    #[must_use]
    pub fn put(&mut self, name: &str, value: Value) -> bool {
        if is_outdated(&self.objects, name, &value) {
            return false;
        }
        if let Some(arriving) = &mut self.arriving {
            arriving.insert(name.to_owned(), value.clone());
        }
        self.objects.insert(name.to_owned(), value);
        true
    }

    /// Takes an object away that is known to be gone.
    pub fn forget(&mut self, name: &str) {
        self.objects.remove(name);
        if let Some(arriving) = &mut self.arriving {
            arriving.remove(name);
        }
    }

    /// Doubts everything that was seen, until the watch has delivered it again.
    pub fn doubt(&mut self) {
        (self.synced, self.arriving) = (false, None);
    }

    /// The objects that events are about.
    fn current(&mut self) -> &mut BTreeMap<String, Value> {
        self.arriving.as_mut().unwrap_or(&mut self.objects)
    }
}

/// Whether a later state of an object is known. Resource versions grow (documented since Kubernetes 1.35, and true of all
/// versions), also across a deletion and a new creation.
fn is_outdated(known: &BTreeMap<String, Value>, name: &str, value: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
    known.get(name).and_then(version).zip(version(value)).is_some_and(|(known, new)| known > new)
}

/// The events of a watch. It never ends: after an error it waits, longer each time, and starts again.
pub fn events(client: Client, target: &Target) -> BoxStream<'static, Event> {
    let api: Api<DynamicObject> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &target.resource),
        None => Api::all_with(client, &target.resource),
    };
    let ApiResource { api_version, kind, .. } = &target.resource;
    let types = TypeMeta { api_version: api_version.clone(), kind: kind.clone() };
    let list = match &target.selector {
        Selector::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
        Selector::Label(label) => ListParams::default().labels(label),
    };
    let (sender, receiver) = mpsc::unbounded();
    let run = stream::once(Watch { api, types, list, events: sender }.run());
    stream::select(receiver, run.map(|never| match never {})).boxed()
}

struct Watch {
    api: Api<DynamicObject>,
    types: TypeMeta,
    /// Which objects.
    list: ListParams,
    events: UnboundedSender<Event>,
}

/// The events of one request.
type Events = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

/// The annotation of the bookmark after all objects that were there when the watch started.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Why a watch failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The API server refused, or did not answer.
    #[error(transparent)]
    Request(#[from] Cause),
    /// The API server owes objects.
    #[error("the API server has not sent all objects: {0}")]
    Incomplete(&'static str),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Request(Cause::Api(error))
    }
}

impl Watch {
    async fn run(self) -> Infallible {
        let mut can_stream = true;
        let mut pause = PAUSE.0;
        loop {
            let started = Instant::now();
            let ended = match self.start(&mut can_stream).await {
                Ok(watch) => self.deliver(watch).await,
                Err(error) => Err(error),
            };
            let mut asked = Duration::ZERO;
            if let Err(error) = ended {
                if let Error::Request(cause) = &error {
                    asked = cause.retry_after();
                }
                self.send(Event::Failed(error.to_string()));
            }
            if started.elapsed() >= STABLE {
                pause = PAUSE.0;
            } else {
                tokio::time::sleep(pause.max(asked).min(PAUSE.1)).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    /// Starts a watch; returns its events, and whether all objects that are there have been delivered.
    async fn start(&self, can_stream: &mut bool) -> Result<(Events, bool), Error> {
        let params = WatchParams {
            label_selector: self.list.label_selector.clone(),
            field_selector: self.list.field_selector.clone(),
            timeout: Some(LIFETIME),
            ..WatchParams::default()
        };
        if *can_stream {
            // An empty resource version asks for what is there now, not for what the API server remembers.
            match self.api.watch(&params.clone().initial_events(), "").await {
                // Servers before Kubernetes 1.34, unless set so, answer `sendInitialEvents` with "forbidden".
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => *can_stream = false,
                started => {
                    let events = started?.boxed();
                    self.send(Event::Started);
                    return Ok((events, false));
                }
            }
        }
        let list = request::send(Some(REQUEST_TIMEOUT), self.api.list(&self.list)).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = self.api.watch(&params, &version).await?.boxed();
        self.send(Event::Started);
        for mut object in list.items {
            // The items of a list have no types of their own.
            object.types.get_or_insert_with(|| self.types.clone());
            self.send(Event::Present(Box::new(object)));
        }
        self.send(Event::Synced);
        Ok((events, true))
    }

    /// Delivers events until the watch ends.
    async fn deliver(&self, (mut events, mut is_synced): (Events, bool)) -> Result<(), Error> {
        loop {
            let limit = if is_synced { LONGEST_SILENCE } else { LONGEST_DELAY };
            let event = match tokio::time::timeout(limit, events.next()).await {
                Ok(Some(event)) => event?,
                Ok(None) if !is_synced => return Err(Error::Incomplete("it has ended the watch")),
                Err(_) if !is_synced => return Err(Error::Incomplete("the watch is silent")),
                Ok(None) | Err(_) => return Ok(()),
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.send(Event::Present(Box::new(object))),
                WatchEvent::Deleted(object) => self.send(Event::Deleted(Box::new(object))),
                WatchEvent::Bookmark(bookmark) => {
                    if !is_synced && bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        is_synced = true;
                        self.send(Event::Synced);
                    }
                }
                // The version is too old: the next watch begins with all objects.
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
        }
    }

    fn send(&self, event: Event) {
        // Nobody listens only while the watch is being dropped.
        drop(self.events.unbounded_send(event));
    }
}

fn named(object: &DynamicObject) -> (String, Value) {
    let name = object.metadata.name.clone().unwrap_or_default();
    (name, request::to_value(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(version: &str) -> Box<DynamicObject> {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version}});
        serde_json::from_value(object).unwrap()
    }

    fn version(seen: &Seen) -> Option<&str> {
        seen.get("a").and_then(|object| object["metadata"]["resourceVersion"].as_str())
    }

    #[test]
    fn objects_count_once_all_were_seen() {
        let mut seen = Seen::default();
        seen.take(Event::Started);
        seen.take(Event::Present(event("1")));
        assert!(!seen.is_synced());
        assert_eq!(version(&seen), None);
        seen.take(Event::Synced);
        assert!(seen.is_synced());
        assert_eq!(version(&seen), Some("1"));
    }

    #[test]
    fn an_old_event_never_undoes_a_newer_state() {
        let mut seen = Seen::default();
        seen.put("a", serde_json::to_value(event("10")).unwrap());
        seen.take(Event::Present(event("9")));
        assert_eq!(version(&seen), Some("10"));
        seen.take(Event::Deleted(event("9")));
        assert_eq!(version(&seen), Some("10"), "deleted before it was made again");
        seen.take(Event::Deleted(event("11")));
        assert_eq!(version(&seen), None);
    }
}
