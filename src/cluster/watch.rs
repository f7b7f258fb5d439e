//! Watches of named or labelled objects, and the objects that they have seen (IO).
//!
//! One request for each watch: the API server streams the existing objects, then their changes. A server that cannot do this
//! gets a list, then a watch.

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
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event},
    },
};
use serde_json::Value;

use crate::{
    cluster::request::{self, describe_objects},
    object::Kind,
};

/// The longest pause between two attempts: nothing is repaired while the watches fail, and there are few of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// After this long without an error a watch counts as working, even if it has sent nothing. Longer than a pause and an
/// attempt.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// What to watch.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// Their namespace, empty for a cluster-scoped kind.
    pub namespace: String,
    /// Which objects of the kind.
    pub selector: Selector,
}

/// Which objects of a kind.
#[derive(Clone, Debug)]
pub enum Selector {
    /// The object of this name.
    Name(String),
    /// The objects with this label, `key=value`.
    Label(String),
}

impl Target {
    /// The name of one object, or the namespace of several, as [`describe_objects`] puts them.
    pub fn describe(&self) -> String {
        match &self.selector {
            Selector::Name(name) => describe_objects(self.kind, "", name),
            Selector::Label(_) => describe_objects(self.kind, &self.namespace, ""),
        }
    }
}

/// What a watch has seen: the existing objects, by name.
#[derive(Debug, Default)]
pub struct Seen {
    objects: BTreeMap<String, Value>,
    /// The objects so far of a list that is not complete yet.
    arriving: Option<BTreeMap<String, Value>>,
    synced: bool,
    trouble: Option<Trouble>,
}

/// The failure of a watch.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The last error, with its causes.
    pub error: String,
    /// The time of the first error.
    pub since: Instant,
    last: Instant,
}

impl Trouble {
    /// The time from which the watch counts as working, unless there is another error before.
    pub fn ends_at(&self) -> Instant {
        self.last + LONGEST_SILENCE
    }
}

impl Seen {
    /// The existing objects.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    /// One object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.objects.get(name)
    }

    /// Whether all existing objects have been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The failure of the watch, if it fails now.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|trouble| Instant::now() < trouble.ends_at())
    }

    /// Takes an event of the watch. Returns an error that differs from the previous one.
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

    /// Takes the state of an object, unless a newer one is known: the answer to a write overtakes the watch.
    pub fn put(&mut self, name: &str, value: Value) {
        if self.objects.get(name).is_none_or(|known| !is_newer(known, &value)) {
            self.objects.insert(name.to_owned(), value);
        }
    }

    /// Removes an object that no longer exists.
    pub fn forget(&mut self, name: &str) {
        self.objects.remove(name);
    }
}

/// The events of a watch. It never ends: after an error it is restarted, after a longer pause each time.
pub fn events(client: &Client, target: &Target) -> BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>> {
    let api = request::api(client, target.kind, &target.namespace);
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

/// kube's pauses between two attempts, none of them longer than [`LONGEST_PAUSE`].
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

/// An error with its causes; for an answer of the API server its message.
fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => request::describe(cause),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Before Kubernetes 1.34 a server without the feature gate refuses `sendInitialEvents` as an invalid field.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn named(object: &DynamicObject) -> (String, Value) {
    let name = object.metadata.name.clone().unwrap_or_default();
    (name, request::to_value(object))
}

/// Whether the first state is newer. Resource versions grow, even if an object is deleted and recreated: Kubernetes documents
/// this since 1.35, and it is true of all versions.
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
    fn objects_are_seen_when_the_list_is_complete() {
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
        assert_eq!(version(&seen), Some("10"), "deleted before it was recreated");
        seen.take(Ok(Event::Delete(event("11"))));
        assert_eq!(version(&seen), None);
    }
}
