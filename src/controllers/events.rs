//! Records changes (IO): in the log, as Events on the changed objects, and in the metrics that count them.
//!
//! Events are best effort: nothing waits for an Event or fails without it. Repetitions share one Event with a count,
//! which is written every few seconds at most. These are core Events: unlike those of events.k8s.io, they can change
//! their message with the last change, and `kubectl describe` shows their count.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::{
    api::CLOUD_CONTROLLER_MANAGER,
    apply::change::{Action, Change},
    cluster::request::{self, REQUEST_TIMEOUT},
    controllers::{metrics::Metrics, now_in_seconds},
    object::{Kind, NODE},
    status::write::{KIND, NAME},
};

const REPORTER: &str = "ccm-operator";

/// The number of Events that may wait to be written. Further Events are lost.
const WAITING: usize = 128;

/// The shortest time between two writes of one Event.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

/// The time since the last repetition of an Event after which a new Event is created.
const SERIES_PERIOD: Duration = Duration::from_secs(360);

/// The same time for Events about nodes, which are repeated each hour.
const NODE_SERIES_PERIOD: Duration = Duration::from_secs(7200);

/// The longest message; the API server accepts 1024 bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Records changes; clones share the recorder.
#[derive(Clone, Debug)]
pub(super) struct Events {
    recorder: mpsc::Sender<QueuedEvent>,
    pub(super) metrics: Metrics,
}

#[derive(Debug)]
struct QueuedEvent {
    /// The Event without the fields that are set at its creation.
    event: Event,
    period: Duration,
}

struct Series {
    /// The Event as it was created, with its last repetition.
    event: Event,
    period: Duration,
    is_written: bool,
    written: Instant,
    /// The time of the last repetition.
    last: Instant,
}

/// The common part of the repetitions of an Event: kind, namespace, name and uid of the object, and the reason. A recreated node has
/// another uid.
type SeriesKey = [Option<String>; 5];

fn cluster_scoped(kind: &Kind, name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

impl Events {
    /// Starts the recorder, which ends with the last clone.
    pub(super) fn start(client: Client, metrics: Metrics) -> Self {
        let (recorder, receiver) = mpsc::channel(WAITING);
        tokio::spawn(record(client, receiver));
        Self { recorder, metrics }
    }

    /// Records a warning to the administrators, as an Event on the ClusterOperator.
    pub(super) fn warn(&self, reason: &str, message: String) {
        self.send(cluster_scoped(&KIND, NAME, None), reason, true, message, SERIES_PERIOD);
    }

    /// Records an Event about a node with this name and uid. Returns whether the Event is queued.
    pub(super) fn of_node(&self, (name, uid): (&str, &str), reason: &str, is_warning: bool, message: String) -> bool {
        self.send(cluster_scoped(&NODE, name, Some(uid)), reason, is_warning, message, NODE_SERIES_PERIOD)
    }

    /// Records a warning about a `CloudControllerManager` with this name and uid.
    pub(super) fn of_ccm(&self, (name, uid): (&str, &str), reason: &str, message: String) {
        self.send(cluster_scoped(&CLOUD_CONTROLLER_MANAGER, name, Some(uid)), reason, true, message, SERIES_PERIOD);
    }

    /// Logs and counts a change. Failures are logged where they are retried.
    pub(super) fn count(&self, change: &Change) {
        match change.action {
            Action::Refuse => {}
            Action::Skip | Action::Keep => warn!("{change}"),
            _ => info!("{change}"),
        }
        self.metrics.changes.of([change.action.done(), &change.object.kind]).inc();
    }

    /// Records a change of an object in its current or last seen state.
    pub(super) fn record(&self, change: &Change, object: &Value) {
        self.count(change);
        let (done, key) = (change.action.done(), &change.object);
        let mut message = change.details();
        if message.is_empty() {
            message = format!("{done} {}", key.kind);
        }
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let object = ObjectReference {
            api_version: text(&object["apiVersion"]),
            kind: Some(key.kind.clone()),
            namespace: Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(key.name.clone()),
            uid: text(&object["metadata"]["uid"]),
            ..ObjectReference::default()
        };
        self.send(object, &capitalized(done), change.action == Action::Refuse, message, SERIES_PERIOD);
    }

    /// Queues an Event. Returns whether there was room; otherwise the Event is lost.
    fn send(
        &self,
        involved_object: ObjectReference,
        reason: &str,
        is_warning: bool,
        mut message: String,
        period: Duration,
    ) -> bool {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        let event = Event {
            involved_object,
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource { component: Some(REPORTER.to_owned()), host: None }),
            reporting_component: Some(REPORTER.to_owned()),
            ..Event::default()
        };
        self.recorder.try_send(QueuedEvent { event, period }).is_ok()
    }
}

async fn record(client: Client, mut receiver: mpsc::Receiver<QueuedEvent>) {
    let mut series: HashMap<SeriesKey, Series> = HashMap::new();
    loop {
        let due = series.values().filter(|one| !one.is_written).map(|one| one.written + COUNT_PERIOD).min();
        let due = due.unwrap_or_else(|| Instant::now() + SERIES_PERIOD);
        let report = match tokio::time::timeout_at(due.into(), receiver.recv()).await {
            Ok(None) => return,
            Ok(report) => report,
            Err(_) => None,
        };
        let now = Instant::now();
        series.retain(|_, one| !one.is_written || now.duration_since(one.last) < one.period);
        if let Some(QueuedEvent { event, period }) = report {
            let ObjectReference { kind, namespace, name, uid, .. } = &event.involved_object;
            let key = [kind, namespace, name, uid, &event.reason].map(Clone::clone);
            if let Some(one) = series.get_mut(&key) {
                one.event.count = one.event.count.map(|count| count + 1);
                (one.event.message, one.event.last_timestamp) = (event.message, Some(Time(now_in_seconds())));
                (one.is_written, one.last) = (false, now);
            } else if let Some(event) = create(&client, event).await {
                series.insert(key, Series { event, period, is_written: true, written: now, last: now });
            }
        }
        for one in series.values_mut().filter(|one| !one.is_written && now.duration_since(one.written) >= COUNT_PERIOD)
        {
            (one.is_written, one.written) = (true, now);
            repeat(&client, &mut one.event).await;
        }
    }
}

async fn create(client: &Client, event: Event) -> Option<Event> {
    let (object, time) = (&event.involved_object, Some(Time(now_in_seconds())));
    // Events on cluster-scoped objects belong in this namespace.
    let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let name = name(object.name.as_deref().unwrap_or_default(), Timestamp::now());
    let metadata = ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() };
    let event = Event { metadata, count: Some(1), first_timestamp: time.clone(), last_timestamp: time, ..event };
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    write(&name, api.create(&PostParams::default(), &event)).await.is_ok().then_some(event)
}

/// Writes the last repetition. If the API server has deleted the previous Event, by default after an hour, creates a new one.
async fn repeat(client: &Client, event: &mut Event) {
    let Event { metadata: ObjectMeta { name, namespace, .. }, count, message, last_timestamp, .. } = &*event;
    let (name, namespace) = (name.as_deref().unwrap_or_default(), namespace.as_deref().unwrap_or_default());
    let patch = Patch::Merge(json!({"count": count, "message": message, "lastTimestamp": last_timestamp}));
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let written = write(name, api.patch(name, &PatchParams::default(), &patch)).await;
    if written.is_err_and(|cause| cause.is_absent())
        && let Some(created) = create(client, event.clone()).await
    {
        *event = created;
    }
}

async fn write(name: &str, request: impl Future<Output = kube::Result<Event>>) -> Result<(), request::Cause> {
    let written = request::send(Some(REQUEST_TIMEOUT), request).await;
    if let Err(error) = &written {
        debug!("failed to write Event {name}: {error}");
    }
    written.map(drop)
}

/// Returns the reason of an Event: the word of the log, capitalized.
fn capitalized(word: &str) -> String {
    let mut rest = word.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}

/// Returns a unique name. The names of RBAC objects may contain characters that names of Events may not.
fn name(object: &str, now: Timestamp) -> String {
    let plain: String =
        object.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).take(200).collect();
    format!("{}.{:x}", plain.trim_matches('-'), now.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{Router, http::StatusCode, routing};

    use super::*;

    /// An API server that has forgotten every Event, and the uids of those that are created.
    fn forgetful() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let created = Arc::<Mutex<Vec<Value>>>::default();
        let seen = Arc::clone(&created);
        let create = |body: String| async move {
            let event: Value = serde_json::from_str(&body).unwrap();
            seen.lock().unwrap().push(event["involvedObject"]["uid"].clone());
            (StatusCode::CREATED, body)
        };
        let forgotten =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"});
        let count = || async move { (StatusCode::NOT_FOUND, forgotten.to_string()) };
        let router = Router::new()
            .route("/api/v1/namespaces/default/events", routing::post(create))
            .route("/api/v1/namespaces/default/events/{name}", routing::patch(count));
        (Client::new(router, "own"), created)
    }

    fn report(uid: &str) -> QueuedEvent {
        let event = Event {
            involved_object: cluster_scoped(&NODE, "a", Some(uid)),
            reason: Some("CrashLoop".into()),
            message: Some("why".into()),
            ..Event::default()
        };
        QueuedEvent { event, period: NODE_SERIES_PERIOD }
    }

    #[tokio::test]
    async fn a_node_that_is_created_again_under_its_name_has_events_of_its_own() {
        let (client, created) = forgetful();
        let (sender, receiver) = mpsc::channel(WAITING);
        for uid in ["1", "1", "2"] {
            sender.send(report(uid)).await.unwrap();
        }
        drop(sender);
        record(client, receiver).await;
        assert_eq!(*created.lock().unwrap(), ["1", "2"]);
    }

    #[tokio::test]
    async fn an_event_that_the_api_server_has_forgotten_is_created_anew() {
        let (client, created) = forgetful();
        let metadata =
            ObjectMeta { name: Some("a.0".into()), namespace: Some("default".into()), ..ObjectMeta::default() };
        let mut one = Event { metadata, count: Some(2), ..report("1").event };
        repeat(&client, &mut one).await;
        assert_eq!((created.lock().unwrap().len(), one.count), (1, Some(1)));
        assert_ne!(one.metadata.name.as_deref(), Some("a.0"));
    }

    #[test]
    fn the_api_server_accepts_the_names() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(name("vsphere:role", now), "vsphere-role.0");
        assert!(name(&"a".repeat(250), now).len() < 240);
    }
}
