//! Writes Events about objects (IO).
//!
//! Events are best effort: nothing waits for an Event or fails without it. Repetitions share one Event with a count,
//! which is written now and then. These are core Events: unlike those of events.k8s.io, they can change
//! their message with the last change, and `kubectl describe` shows their count.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::{Timestamp, Unit},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use crate::{
    cluster::request::{self, REQUEST_TIMEOUT},
    object::Kind,
};

/// The number of Events that may wait to be written. Further Events are lost. A pass over thousands of nodes may report one for each of
/// them at once, and if the same ones were lost in each pass, some nodes would never have any.
const WAITING: usize = 8192;

/// The longest wait for a new Event before series that have ended are dropped.
const SWEEP_PERIOD: Duration = Duration::from_secs(360);

/// The longest message; the API server accepts 1024 bytes.
const LONGEST_MESSAGE: usize = 1000;

/// How repetitions of an Event are written.
#[derive(Clone, Copy, Debug)]
pub struct Repetition {
    /// The shortest time between two writes of one Event.
    pub write_period: Duration,
    /// The time since the last repetition of an Event after which a new Event is created.
    pub series_period: Duration,
}

/// An Event about an object.
#[derive(Clone, Debug)]
pub struct Report {
    /// The object.
    pub object: ObjectReference,
    /// The component that reports it.
    pub component: &'static str,
    /// The reason, one word.
    pub reason: String,
    /// Whether its type is `Warning`, and not `Normal`.
    pub is_warning: bool,
    /// The message, of which the first 1000 bytes are kept.
    pub message: String,
    /// How its repetitions are written. Those of the first report of a series count.
    pub repetition: Repetition,
}

/// Writes Events; clones share the recorder, which ends with the last one.
#[derive(Clone, Debug)]
pub struct Recorder(mpsc::Sender<QueuedEvent>);

#[derive(Debug)]
struct QueuedEvent {
    /// The Event without the fields that are set at its creation.
    event: Event,
    repetition: Repetition,
}

struct Series {
    /// The Event as it was created, with its last repetition.
    event: Event,
    repetition: Repetition,
    is_written: bool,
    written: Instant,
    /// The time of the last repetition.
    last: Instant,
}

impl Series {
    fn due(&self) -> Instant {
        self.written + self.repetition.write_period
    }
}

/// The common part of the repetitions of an Event: kind, namespace, name and uid of the object, the reason and the component. A
/// recreated node has another uid.
type SeriesKey = [Option<String>; 6];

/// Returns the reference to a cluster-scoped object.
pub fn cluster_scoped(kind: &Kind, name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

impl Recorder {
    /// Starts a recorder.
    pub fn start(client: Client) -> Self {
        let (recorder, receiver) = mpsc::channel(WAITING);
        tokio::spawn(record(client, receiver));
        Self(recorder)
    }

    /// Queues an Event. Returns whether there was room; otherwise the Event is lost.
    pub fn send(&self, report: Report) -> bool {
        let Report { object, component, reason, is_warning, mut message, repetition } = report;
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        let event = Event {
            involved_object: object,
            reason: Some(reason),
            message: Some(message),
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource { component: Some(component.to_owned()), host: None }),
            reporting_component: Some(component.to_owned()),
            ..Event::default()
        };
        self.0.try_send(QueuedEvent { event, repetition }).is_ok()
    }
}

async fn record(client: Client, mut receiver: mpsc::Receiver<QueuedEvent>) {
    let mut series: HashMap<SeriesKey, Series> = HashMap::new();
    loop {
        let due = series.values().filter(|one| !one.is_written).map(Series::due).min();
        let due = due.unwrap_or_else(|| Instant::now() + SWEEP_PERIOD);
        let report = match tokio::time::timeout_at(due, receiver.recv()).await {
            Ok(None) => return,
            Ok(report) => report,
            Err(_) => None,
        };
        let now = Instant::now();
        series.retain(|_, one| !one.is_written || now.duration_since(one.last) < one.repetition.series_period);
        if let Some(QueuedEvent { event, repetition }) = report {
            let key = key(&event);
            if let Some(one) = series.get_mut(&key) {
                one.event.count = one.event.count.map(|count| count + 1);
                (one.event.message, one.event.last_timestamp) = (event.message, Some(Time(now_in_seconds())));
                (one.is_written, one.last) = (false, now);
            } else if let Some(event) = create(&client, event).await {
                series.insert(key, Series { event, repetition, is_written: true, written: now, last: now });
            }
        }
        for one in series.values_mut().filter(|one| !one.is_written && one.due() <= now) {
            (one.is_written, one.written) = (true, now);
            repeat(&client, &mut one.event).await;
        }
    }
}

fn key(event: &Event) -> SeriesKey {
    let ObjectReference { kind, namespace, name, uid, .. } = &event.involved_object;
    [kind, namespace, name, uid, &event.reason, &event.reporting_component].map(Clone::clone)
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

fn now_in_seconds() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now)
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
    use serde_json::Value;

    use super::*;
    use crate::object::NODE;

    const REPETITION: Repetition =
        Repetition { write_period: Duration::from_secs(10), series_period: Duration::from_secs(7200) };

    /// An API server that has forgotten every Event, and the uids and components of those that are created.
    fn forgetful() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let created = Arc::<Mutex<Vec<Value>>>::default();
        let seen = Arc::clone(&created);
        let create = |body: String| async move {
            let event: Value = serde_json::from_str(&body).unwrap();
            seen.lock().unwrap().push(json!([event["involvedObject"]["uid"], event["reportingComponent"]]));
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

    fn report(uid: &str, component: &str) -> QueuedEvent {
        let event = Event {
            involved_object: cluster_scoped(&NODE, "a", Some(uid)),
            reason: Some("CrashLoop".into()),
            message: Some("why".into()),
            reporting_component: Some(component.into()),
            ..Event::default()
        };
        QueuedEvent { event, repetition: REPETITION }
    }

    #[tokio::test]
    async fn each_component_has_events_of_its_own_and_so_has_a_node_that_is_created_again_under_its_name() {
        let (client, created) = forgetful();
        let (sender, receiver) = mpsc::channel(WAITING);
        for (uid, component) in [("1", "x"), ("1", "x"), ("2", "x"), ("1", "y")] {
            sender.send(report(uid, component)).await.unwrap();
        }
        drop(sender);
        record(client, receiver).await;
        assert_eq!(json!(*created.lock().unwrap()), json!([["1", "x"], ["2", "x"], ["1", "y"]]));
    }

    #[tokio::test]
    async fn a_pass_over_thousands_of_nodes_loses_no_event() {
        let (client, created) = forgetful();
        let recorder = Recorder::start(client);
        let report = |uid: usize| Report {
            object: cluster_scoped(&NODE, "a", Some(&uid.to_string())),
            component: "x",
            reason: "NodeKept".to_owned(),
            is_warning: true,
            message: String::new(),
            repetition: REPETITION,
        };
        assert!((0..5000).all(|uid| recorder.send(report(uid))));
        while created.lock().unwrap().len() < 5000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn an_event_that_the_api_server_has_forgotten_is_created_anew() {
        let (client, created) = forgetful();
        let metadata =
            ObjectMeta { name: Some("a.0".into()), namespace: Some("default".into()), ..ObjectMeta::default() };
        let mut one = Event { metadata, count: Some(2), ..report("1", "x").event };
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
