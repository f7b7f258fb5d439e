//! Watches of named or labelled objects, and what was seen through them (IO).
//!
//! One request for each watch: the server streams what is there and then what changes. A server that does not know how
//! is asked the old way, list then watch. Owns no opinion of what is seen.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event},
    },
};
use serde_json::Value;

use crate::cluster::request;

/// The longest pause between two tries: nothing is repaired while the watches are blind, and there are few of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// A watch that works again need not say so: after this long without an error it does. Longer than a pause and a try.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

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

/// What a watch has seen: the objects that are there, by name.
#[derive(Debug, Default)]
pub struct Seen {
    objects: BTreeMap<String, Value>,
    /// The objects of a (re)start that is not complete yet.
    arriving: Option<BTreeMap<String, Value>>,
    synced: bool,
    trouble: Option<Trouble>,
}

/// A watch that fails again and again.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The last error, with its causes.
    pub error: String,
    /// When the first one came.
    pub since: Instant,
    last: Instant,
}

impl Trouble {
    /// When it counts no longer, unless there is another error before.
    pub fn ends_at(&self) -> Instant {
        self.last + LONGEST_SILENCE
    }
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

    /// Whether everything that is there has been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// What keeps the watch from working now.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|trouble| Instant::now() < trouble.ends_at())
    }

    /// Takes what the watch delivered. Answers an error that is not the same as the last one.
    pub fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<String> {
        match event {
            Ok(Event::Init) => self.arriving = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                let (name, value) = named(&object);
                self.arriving.get_or_insert_default().insert(name, value);
            }
            Ok(Event::InitDone) => {
                self.objects = self.arriving.take().unwrap_or_default();
                (self.synced, self.trouble) = (true, None);
            }
            Ok(Event::Apply(object)) => {
                let (name, value) = named(&object);
                self.put(&name, value);
                self.trouble = None;
            }
            Ok(Event::Delete(object)) => {
                self.trouble = None;
                let (name, value) = named(&object);
                if self.objects.get(&name).is_none_or(|known| !is_newer(known, &value)) {
                    self.objects.remove(&name);
                }
            }
            Err(error) => {
                let (error, now) = (describe(&error), Instant::now());
                let before = self.trouble().cloned();
                let since = before.as_ref().map_or(now, |trouble| trouble.since);
                self.trouble = Some(Trouble { error: error.clone(), since, last: now });
                return before.is_none_or(|before| before.error != error).then_some(error);
            }
        }
        None
    }

    /// Takes an object as it is now, unless a newer state of it is known: an answer to a write overtakes the watch.
    pub fn put(&mut self, name: &str, value: Value) {
        if self.objects.get(name).is_none_or(|known| !is_newer(known, &value)) {
            self.objects.insert(name.to_owned(), value);
        }
    }

    /// Takes an object away that is known to be gone.
    pub fn forget(&mut self, name: &str) {
        self.objects.remove(name);
    }
}

/// The events of a watch. It never ends: after an error it waits, longer each time, and starts again.
pub fn events(client: Client, target: &Target) -> BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>> {
    let api: Api<DynamicObject> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &target.resource),
        None => Api::all_with(client, &target.resource),
    };
    let config = match &target.selector {
        Selector::Name(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        Selector::Label(label) => watcher::Config::default().labels(label),
    };
    let start = |api: &Api<_>, config| watcher::watcher(api.clone(), config).backoff(Capped::default()).boxed();
    let streaming = start(&api, config.clone().streaming_lists());
    stream::unfold((streaming, Some((api, config))), move |(mut events, mut fallback)| async move {
        let mut event = events.next().await?;
        if matches!(&event, Err(error) if refuses_streaming(error))
            && let Some((api, config)) = fallback.take()
        {
            events = start(&api, config);
            event = events.next().await?;
        }
        Some((event, (events, fallback)))
    })
    .boxed()
}

/// kube's pauses between two tries, none of them longer than [`LONGEST_PAUSE`].
#[derive(Default)]
struct Capped(DefaultBackoff);

impl Iterator for Capped {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(LONGEST_PAUSE))
    }
}

impl Backoff for Capped {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// The error, in the API server's own words where it has answered.
fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => request::describe(cause),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Servers before Kubernetes 1.34, unless set so, answer `sendInitialEvents` with "forbidden" as an invalid field.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn named(object: &DynamicObject) -> (String, Value) {
    let name = object.metadata.name.clone().unwrap_or_default();
    (name, request::to_value(object))
}

/// Whether the first is a later state than the second. Resource versions grow (documented since Kubernetes 1.35, and true of all
/// versions), also across a deletion and a new creation.
fn is_newer(first: &Value, second: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
    version(first).zip(version(second)).is_some_and(|(first, second)| first > second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(version: &str) -> DynamicObject {
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
        seen.take(Ok(Event::Init));
        seen.take(Ok(Event::InitApply(event("1"))));
        assert!(!seen.is_synced());
        assert_eq!(version(&seen), None);
        seen.take(Ok(Event::InitDone));
        assert!(seen.is_synced());
        assert_eq!(version(&seen), Some("1"));
    }

    #[test]
    fn an_old_event_never_undoes_a_newer_state() {
        let mut seen = Seen::default();
        seen.put("a", serde_json::to_value(event("10")).unwrap());
        seen.take(Ok(Event::Apply(event("9"))));
        assert_eq!(version(&seen), Some("10"));
        seen.take(Ok(Event::Delete(event("9"))));
        assert_eq!(version(&seen), Some("10"), "deleted before it was made again");
        seen.take(Ok(Event::Delete(event("11"))));
        assert_eq!(version(&seen), None);
    }
}
