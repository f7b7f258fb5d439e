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
    apply::change::{Action, Change},
    cluster::request::{self, REQUEST_TIMEOUT},
    controllers::{metrics::Metrics, now_in_seconds},
    object::{Key, NODE},
    status::write::{KIND, NAME},
};

const REPORTER: &str = "ccm-operator";

/// How many Events may wait to be written; more are lost.
const WAITING: usize = 128;

/// The shortest time between two writes of one Event.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

/// How long after its last repetition an Event is repeated; later a new one is created.
const SERIES_PERIOD: Duration = Duration::from_secs(360);

/// The same of Events about nodes, which are repeated each hour.
const NODE_SERIES_PERIOD: Duration = Duration::from_secs(7200);

/// The longest message; the API server accepts 1024 bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Records changes; clones share the recorder.
#[derive(Clone, Debug)]
pub(super) struct Events {
    recorder: mpsc::Sender<Report>,
    metrics: Metrics,
}

#[derive(Clone, Debug)]
struct Report {
    object: Key,
    api_version: Option<String>,
    uid: Option<String>,
    reason: String,
    is_warning: bool,
    message: String,
    series_period: Duration,
}

/// An Event that was created.
struct Series {
    namespace: String,
    name: String,
    count: i32,
    /// The last repetition.
    report: Report,
    /// Its time, until it is written.
    unwritten: Option<Timestamp>,
    written: Instant,
    last: Instant,
}

/// What the repetitions of an Event have in common: the object, its uid and the reason. A node that is created again under its name
/// is another one.
type SeriesKey = (Key, Option<String>, String);

impl Events {
    /// Starts the recorder; it ends with the last clone.
    pub(super) fn start(client: Client, metrics: Metrics) -> Self {
        let (recorder, receiver) = mpsc::channel(WAITING);
        tokio::spawn(record(client, receiver));
        Self { recorder, metrics }
    }

    /// Records a warning to the administrators, as an Event on the ClusterOperator.
    pub(super) fn warn(&self, reason: &str, message: String) {
        let object =
            Key { group: KIND.group.into(), kind: KIND.kind.into(), namespace: String::new(), name: NAME.into() };
        let (api_version, reason) = (Some(KIND.api_version()), reason.to_owned());
        let series_period = SERIES_PERIOD;
        self.send(Report { object, api_version, uid: None, reason, is_warning: true, message, series_period });
    }

    /// Records something about a node, given by its name and uid. Returns whether the Event will be written, unless that fails.
    pub(super) fn of_node(&self, (name, uid): (&str, &str), reason: &str, is_warning: bool, message: String) -> bool {
        let object =
            Key { group: String::new(), kind: NODE.kind.into(), namespace: String::new(), name: name.to_owned() };
        let (api_version, uid) = (Some(NODE.api_version()), Some(uid.to_owned()));
        let (reason, series_period) = (reason.to_owned(), NODE_SERIES_PERIOD);
        self.send(Report { object, api_version, uid, reason, is_warning, message, series_period })
    }

    /// Counts a node whose deletion was confirmed.
    pub(super) fn confirmed_deletion(&self) {
        self.metrics.confirmed_deletion();
    }

    /// Counts an error.
    pub(super) fn failed(&self, cause: &'static str) {
        self.metrics.failed(cause);
    }

    /// Counts a repair.
    pub(super) fn repaired(&self, kind: &str) {
        self.metrics.repaired(kind);
    }

    /// Records a change of an object, given as it is now or was last seen. Failures are logged where they are retried.
    pub(super) fn record(&self, change: &Change, object: &Value) {
        match change.action {
            Action::Refuse => {}
            Action::Skip | Action::Keep => warn!("{change}"),
            _ => info!("{change}"),
        }
        let done = change.action.done();
        self.metrics.changed(done, &change.object.kind);
        let mut message = change.details();
        if message.is_empty() {
            message = format!("{done} {}", change.object.kind);
        }
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        self.send(Report {
            object: change.object.clone(),
            api_version: text(&object["apiVersion"]),
            uid: text(&object["metadata"]["uid"]),
            reason: capitalized(done),
            is_warning: change.action == Action::Refuse,
            message,
            series_period: SERIES_PERIOD,
        });
    }

    /// Returns whether there was room in the queue; without it the report is lost.
    fn send(&self, mut report: Report) -> bool {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| report.message.is_char_boundary(*end));
        report.message.truncate(end.unwrap_or_default());
        self.recorder.try_send(report).is_ok()
    }
}

async fn record(client: Client, mut receiver: mpsc::Receiver<Report>) {
    let mut series: HashMap<SeriesKey, Series> = HashMap::new();
    loop {
        let due = series.values().filter(|one| one.unwritten.is_some()).map(|one| one.written + COUNT_PERIOD).min();
        let due = due.unwrap_or_else(|| Instant::now() + SERIES_PERIOD);
        let report = match tokio::time::timeout_at(due.into(), receiver.recv()).await {
            Ok(None) => return,
            Ok(report) => report,
            Err(_) => None,
        };
        let now = Instant::now();
        series.retain(|_, one| one.unwritten.is_some() || now.duration_since(one.last) < one.report.series_period);
        if let Some(report) = report {
            let key = (report.object.clone(), report.uid.clone(), report.reason.clone());
            if let Some(one) = series.get_mut(&key) {
                one.count += 1;
                one.last = now;
                (one.report, one.unwritten) = (report, Some(now_in_seconds()));
            } else if let Some((namespace, name)) = create(&client, report.clone()).await {
                let one = Series { namespace, name, count: 1, report, unwritten: None, written: now, last: now };
                series.insert(key, one);
            }
        }
        for one in series.values_mut().filter(|one| now.duration_since(one.written) >= COUNT_PERIOD) {
            let Some(at) = one.unwritten.take() else { continue };
            one.written = now;
            repeat(&client, one, at).await;
        }
    }
}

/// Creates an Event, and returns its namespace and name.
async fn create(client: &Client, report: Report) -> Option<(String, String)> {
    let Key { kind, namespace, name: object, .. } = report.object;
    let (time, involved_namespace) = (Some(Time(now_in_seconds())), Some(namespace).filter(|one| !one.is_empty()));
    // Events on cluster-scoped objects belong into this namespace.
    let namespace = involved_namespace.clone().unwrap_or_else(|| "default".to_owned());
    let name = name(&object, Timestamp::now());
    let event = Event {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: report.api_version,
            kind: Some(kind),
            namespace: involved_namespace,
            name: Some(object),
            uid: report.uid,
            ..ObjectReference::default()
        },
        reason: Some(report.reason),
        message: Some(report.message),
        type_: Some(if report.is_warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(REPORTER.to_owned()), host: None }),
        reporting_component: Some(REPORTER.to_owned()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    write(&name, api.create(&PostParams::default(), &event)).await.is_ok().then_some((namespace, name))
}

/// Writes the last repetition, as an Event of its own if the API server has forgotten the one before: by default it does after an
/// hour.
async fn repeat(client: &Client, one: &mut Series, at: Timestamp) {
    if !count(client, one, at).await
        && let Some((namespace, name)) = create(client, one.report.clone()).await
    {
        (one.namespace, one.name, one.count) = (namespace, name, 1);
    }
}

/// Writes the last repetition. Returns whether the Event still exists, as far as is known.
async fn count(client: &Client, series: &Series, at: Timestamp) -> bool {
    let message = &series.report.message;
    let patch = Patch::Merge(json!({"count": series.count, "message": message, "lastTimestamp": at.to_string()}));
    let api: Api<Event> = Api::namespaced(client.clone(), &series.namespace);
    let written = write(&series.name, api.patch(&series.name, &PatchParams::default(), &patch)).await;
    !written.is_err_and(|cause| cause.is_absent())
}

async fn write(name: &str, request: impl Future<Output = kube::Result<Event>>) -> Result<(), request::Cause> {
    let written = request::send(Some(REQUEST_TIMEOUT), request).await;
    if let Err(error) = &written {
        debug!("failed to write Event {name}: {error}");
    }
    written.map(drop)
}

/// The reason of an Event: the word of the log, capitalized.
fn capitalized(word: &str) -> String {
    let mut rest = word.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}

/// A unique name. Names of RBAC objects may contain characters that those of Events may not.
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

    fn report(uid: &str) -> Report {
        Report {
            object: Key { group: String::new(), kind: NODE.kind.into(), namespace: String::new(), name: "a".into() },
            api_version: Some(NODE.api_version()),
            uid: Some(uid.into()),
            reason: "CrashLoop".into(),
            is_warning: true,
            message: "why".into(),
            series_period: NODE_SERIES_PERIOD,
        }
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
        let now = Instant::now();
        let (namespace, name) = ("default".into(), "a.0".into());
        let mut one =
            Series { namespace, name, count: 2, report: report("1"), unwritten: None, written: now, last: now };
        repeat(&client, &mut one, Timestamp::UNIX_EPOCH).await;
        assert_eq!((created.lock().unwrap().len(), one.count), (1, 1));
        assert_ne!(one.name, "a.0");
    }

    #[test]
    fn the_api_server_accepts_the_names() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(name("vsphere:role", now), "vsphere-role.0");
        assert!(name(&"a".repeat(250), now).len() < 240);
    }
}
