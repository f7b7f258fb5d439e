//! The objects that a watch has seen, from its events.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::api::DynamicObject;
use serde_json::Value;

use crate::{cluster::request, grace::DENIED_GRACE};

/// An event of a watch.
#[derive(Debug)]
pub enum Event {
    /// The watch has started: all existing objects follow.
    Started,
    /// An object was created or changed. Between the start and the end of the list, it exists.
    Changed(Box<DynamicObject>),
    /// All existing objects have been listed.
    Synced,
    /// An object was deleted. Holds its last state.
    Deleted(Box<DynamicObject>),
    /// The watch has failed and will be restarted.
    Failed {
        /// The error with its causes.
        error: String,
        /// The HTTP status code of the response; zero without one.
        code: u16,
    },
}

type Objects = BTreeMap<String, Arc<Value>>;

/// The existing objects that a watch has seen, by name.
#[derive(Debug, Default)]
pub struct Seen {
    objects: Objects,
    /// The objects of a list that is not complete yet. Unchanged objects share their memory.
    arriving: Option<Objects>,
    synced: bool,
    problem: Option<Problem>,
}

/// The effect of an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Whether an object has changed, or all objects have been seen for the first time.
    pub is_change: bool,
    /// Whether the state of the watch has changed.
    pub is_about_watch: bool,
    /// An error that differs from the previous one.
    pub error: Option<String>,
}

/// The failure of a watch. It ends when the watch has listed all objects.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The last error, with its causes.
    pub error: String,
    /// The time of the first error.
    pub since: Instant,
    /// The time since which a permission has been missing; `None` if the last error was another one.
    pub denied_since: Option<Instant>,
    /// Whether the API server does not serve the kind.
    pub is_unserved: bool,
    is_answered: bool,
}

impl Problem {
    /// The time at which the failure will have lasted for this long. It is earlier for a missing permission, which is rarely
    /// transient.
    pub fn lasts_at(&self, period: Duration) -> Instant {
        let denied = self.denied_since.map(|since| since + DENIED_GRACE.min(period));
        denied.map_or(self.since + period, |denied| denied.min(self.since + period))
    }
}

impl Seen {
    /// The existing objects.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values().map(Arc::as_ref)
    }

    /// The existing objects, by name, to be kept without a copy.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.values()
    }

    /// The object with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.objects.get(name).map(Arc::as_ref)
    }

    /// Whether all existing objects have been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The failure of the watch, if there is one now.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Applies an event of the watch.
    pub fn take(&mut self, event: Event) -> News {
        let is_change = match event {
            Event::Started => {
                self.arriving = Some(BTreeMap::new());
                false
            }
            Event::Synced => {
                let before = std::mem::replace(&mut self.objects, self.arriving.take().unwrap_or_default());
                let is_news = !self.synced || self.objects != before;
                let is_about_watch = self.problem.take().is_some();
                self.synced = true;
                return News { is_change: is_news, is_about_watch, error: None };
            }
            Event::Changed(object) => {
                let (name, value) = named(&object);
                if let Some(arriving) = &mut self.arriving {
                    if !is_outdated(arriving, &name, &value) {
                        let known = self.objects.get(&name).filter(|known| ***known == value);
                        let value = known.cloned().unwrap_or_else(|| Arc::new(value));
                        arriving.insert(name, value);
                    }
                    return News::default();
                }
                // The response to a write may be newer than the watch.
                let is_news = !is_outdated(&self.objects, &name, &value)
                    && self.objects.get(&name).is_none_or(|known| **known != value);
                if is_news {
                    self.objects.insert(name, Arc::new(value));
                }
                is_news
            }
            Event::Deleted(object) => {
                let (name, value) = named(&object);
                let was_known = self.objects.contains_key(&name);
                for objects in [Some(&mut self.objects), self.arriving.as_mut()].into_iter().flatten() {
                    if !is_outdated(objects, &name, &value) {
                        objects.remove(&name);
                    }
                }
                was_known && !self.objects.contains_key(&name)
            }
            Event::Failed { error, code } => {
                let error = self.fail(error, code);
                return News { is_change: false, is_about_watch: true, error };
            }
        };
        News { is_change, ..News::default() }
    }

    /// Notes a failure. Returns it if it differs from the previous one.
    fn fail(&mut self, error: String, code: u16) -> Option<String> {
        let (known, now) = (self.problem.take(), Instant::now());
        let is_news = known.as_ref().is_none_or(|known| known.error != error);
        let denied_since = known.as_ref().and_then(|known| known.denied_since).unwrap_or(now);
        let (is_answered, was_answered) = (code != 0, known.as_ref().is_some_and(|known| known.is_answered));
        // The first answer ends the time without answers: an API server that starts is a different problem.
        let before = known.filter(|_| was_answered || !is_answered);
        self.problem = Some(Problem {
            error: error.clone(),
            since: before.map_or(now, |before| before.since),
            denied_since: (code == 403).then_some(denied_since),
            is_unserved: code == 404,
            is_answered: is_answered || was_answered,
        });
        is_news.then_some(error)
    }

    /// Stores the response to a request that was sent after the last event. Returns false, and stores nothing, if a newer state of the
    /// object is known: resource versions have gone back.
    #[must_use]
    pub fn put(&mut self, name: &str, value: Value) -> bool {
        if is_outdated(&self.objects, name, &value) {
            return false;
        }
        let value = Arc::new(value);
        if let Some(arriving) = &mut self.arriving {
            arriving.insert(name.to_owned(), Arc::clone(&value));
        }
        self.objects.insert(name.to_owned(), value);
        true
    }

    /// Removes an object that no longer exists.
    pub fn forget(&mut self, name: &str) {
        for objects in [Some(&mut self.objects), self.arriving.as_mut()].into_iter().flatten() {
            objects.remove(name);
        }
    }

    /// Notes that the API server has answered another request. An error without a response then counts from now.
    pub fn has_answered(&mut self) {
        if let Some(problem) = self.problem.as_mut().filter(|problem| !problem.is_answered) {
            problem.since = Instant::now();
        }
    }

    /// Waits for all objects again, because the seen ones may be wrong.
    pub fn doubt(&mut self) {
        (self.synced, self.arriving) = (false, None);
    }
}

fn named(object: &DynamicObject) -> (String, Value) {
    let name = object.metadata.name.clone().unwrap_or_default();
    (name, request::to_value(object))
}

/// Whether a newer state of an object is known. Resource versions grow, even if an object is deleted and recreated. Kubernetes documents
/// this since 1.35, and it is true of all versions.
fn is_outdated(known: &Objects, name: &str, value: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
    known.get(name).and_then(|known| version(known)).zip(version(value)).is_some_and(|(known, new)| known > new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str) -> Box<DynamicObject> {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version}});
        serde_json::from_value(object).unwrap()
    }

    fn version(seen: &Seen) -> Option<&str> {
        seen.get("a").and_then(|object| object["metadata"]["resourceVersion"].as_str())
    }

    fn put(seen: &mut Seen, version: &str) -> bool {
        seen.put("a", serde_json::to_value(object(version)).unwrap())
    }

    #[test]
    fn objects_count_once_all_were_listed() {
        let mut seen = Seen::default();
        seen.take(Event::Started);
        seen.take(Event::Changed(object("1")));
        assert!(!seen.is_synced());
        assert_eq!(version(&seen), None);
        seen.take(Event::Synced);
        assert!(seen.is_synced());
        assert_eq!(version(&seen), Some("1"));
    }

    #[test]
    fn an_old_event_never_undoes_a_newer_state() {
        let mut seen = Seen::default();
        assert!(put(&mut seen, "10"));
        seen.take(Event::Changed(object("9")));
        assert_eq!(version(&seen), Some("10"));
        seen.take(Event::Deleted(object("9")));
        assert_eq!(version(&seen), Some("10"), "deleted before it was recreated");
        seen.take(Event::Deleted(object("11")));
        assert_eq!(version(&seen), None);
    }

    #[test]
    fn a_new_list_replaces_everything_but_the_answers_since_it_has_begun() {
        let mut seen = Seen::default();
        seen.take(Event::Started);
        seen.take(Event::Changed(object("90")));
        seen.take(Event::Synced);
        assert!(!put(&mut seen, "7"), "resource versions have gone back");
        seen.doubt();
        assert!(!seen.is_synced());
        seen.take(Event::Started);
        seen.take(Event::Changed(object("8")));
        seen.take(Event::Synced);
        assert_eq!(version(&seen), Some("8"));
        seen.take(Event::Started);
        assert!(put(&mut seen, "10"));
        seen.take(Event::Changed(object("9")));
        seen.take(Event::Synced);
        assert_eq!(version(&seen), Some("10"));
    }

    #[test]
    fn what_is_seen_again_as_it_was_is_no_news_and_takes_no_memory() {
        let mut seen = Seen::default();
        let is_change = |seen: &mut Seen, event| seen.take(event).is_change;
        let list = |seen: &mut Seen, version: &str| {
            seen.take(Event::Started);
            assert!(!is_change(seen, Event::Changed(object(version))));
            is_change(seen, Event::Synced)
        };
        assert!(list(&mut seen, "1"), "the first time");
        let before = Arc::as_ptr(&seen.objects["a"]);
        assert!(!list(&mut seen, "1"));
        assert_eq!(Arc::as_ptr(&seen.objects["a"]), before);
        assert!(!is_change(&mut seen, Event::Changed(object("1"))));
        assert!(is_change(&mut seen, Event::Changed(object("2"))));
        assert!(list(&mut seen, "3"));
        assert!(is_change(&mut seen, Event::Deleted(object("4"))));
        assert!(!is_change(&mut seen, Event::Deleted(object("4"))));
    }

    #[test]
    fn a_failure_lasts_until_all_objects_were_listed() {
        let mut seen = Seen::default();
        let failed = |error: &str, code| Event::Failed { error: error.into(), code };
        assert_eq!(seen.take(failed("x", 500)).error.as_deref(), Some("x"));
        let since = seen.problem().unwrap().since;
        seen.take(Event::Started);
        seen.take(Event::Changed(object("1")));
        assert_eq!(seen.take(failed("x", 403)).error, None, "no news");
        let denied_since = seen.problem().unwrap().denied_since;
        assert!(denied_since.is_some_and(|denied| denied >= since));
        assert_eq!(seen.take(failed("y", 403)).error.as_deref(), Some("y"));
        assert_eq!((seen.problem().unwrap().since, seen.problem().unwrap().denied_since), (since, denied_since));
        seen.take(failed("z", 0));
        assert_eq!(seen.problem().unwrap().denied_since, None);
        seen.take(Event::Started);
        seen.take(Event::Synced);
        assert!(seen.problem().is_none());
    }

    #[test]
    fn a_time_without_answers_ends_with_the_first_answer() {
        let failed = |code| Event::Failed { error: "x".into(), code };
        let since = |seen: &Seen| seen.problem().unwrap().since;
        let mut seen = Seen::default();
        seen.take(failed(0));
        let first = since(&seen);
        seen.take(failed(0));
        assert_eq!(since(&seen), first);
        seen.has_answered();
        let second = since(&seen);
        assert!(second > first, "another request was answered");
        seen.take(failed(429));
        let third = since(&seen);
        assert!(third > second, "the watch was answered");
        for code in [0, 503, 0] {
            seen.take(failed(code));
            seen.has_answered();
            assert_eq!(since(&seen), third, "an API server that answers now and then does not hide its problem");
        }
    }
}
