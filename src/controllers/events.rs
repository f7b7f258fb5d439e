//! Records changes (IO): in the log, as Events on the changed objects, and in the metrics that count them.
//!
//! Best effort: nothing waits for an Event, and nothing fails without one. Repetitions share one Event with a count, which
//! is written every few seconds at most. These are core Events: unlike those of events.k8s.io their message may follow the
//! last change, and `kubectl describe` shows their count.

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
    controllers::now_in_seconds,
    object::Key,
    process::metrics::Metrics,
    status::write::{KIND, NAME},
};

const REPORTER: &str = "ccm-operator";

/// How many Events may wait to be written; more are lost.
const WAITING: usize = 128;

/// The shortest time between two writes of one Event.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

/// How long after its last repetition an Event is repeated; later a new one is created.
const SERIES_PERIOD: Duration = Duration::from_secs(360);

/// The longest message; the API server accepts 1024 bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Records changes; clones share the recorder.
#[derive(Clone, Debug)]
pub(super) struct Events {
    recorder: mpsc::Sender<Report>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Report {
    object: Key,
    api_version: Option<String>,
    uid: Option<String>,
    reason: String,
    is_warning: bool,
    message: String,
}

/// An Event that was created.
struct Series {
    namespace: String,
    name: String,
    count: i32,
    /// The message and time that are not written yet.
    unwritten: Option<(String, Timestamp)>,
    written: Instant,
    last: Instant,
}

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
        self.send(Report { object, api_version, uid: None, reason, is_warning: true, message });
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
        });
    }

    fn send(&self, mut report: Report) {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| report.message.is_char_boundary(*end));
        report.message.truncate(end.unwrap_or_default());
        // Lost if the queue is full.
        let _ = self.recorder.try_send(report);
    }
}

async fn record(client: Client, mut receiver: mpsc::Receiver<Report>) {
    let mut series: HashMap<(Key, String), Series> = HashMap::new();
    loop {
        let due = series.values().filter(|one| one.unwritten.is_some()).map(|one| one.written + COUNT_PERIOD).min();
        let due = due.unwrap_or_else(|| Instant::now() + SERIES_PERIOD);
        let report = match tokio::time::timeout_at(due.into(), receiver.recv()).await {
            Ok(None) => return,
            Ok(report) => report,
            Err(_) => None,
        };
        let now = Instant::now();
        series.retain(|_, one| one.unwritten.is_some() || now.duration_since(one.last) < SERIES_PERIOD);
        if let Some(report) = report {
            let key = (report.object.clone(), report.reason.clone());
            if let Some(one) = series.get_mut(&key) {
                one.count += 1;
                one.last = now;
                one.unwritten = Some((report.message, now_in_seconds()));
            } else if let Some((namespace, name)) = create(&client, report).await {
                let one = Series { namespace, name, count: 1, unwritten: None, written: now, last: now };
                series.insert(key, one);
            }
        }
        for one in series.values_mut().filter(|one| now.duration_since(one.written) >= COUNT_PERIOD) {
            if let Some((message, at)) = one.unwritten.take() {
                one.written = now;
                count(&client, one, &message, at).await;
            }
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
    is_written(&name, api.create(&PostParams::default(), &event)).await.then_some((namespace, name))
}

async fn count(client: &Client, series: &Series, message: &str, at: Timestamp) {
    let patch = Patch::Merge(json!({"count": series.count, "message": message, "lastTimestamp": at.to_string()}));
    let api: Api<Event> = Api::namespaced(client.clone(), &series.namespace);
    is_written(&series.name, api.patch(&series.name, &PatchParams::default(), &patch)).await;
}

async fn is_written(name: &str, request: impl Future<Output = kube::Result<Event>>) -> bool {
    let written = request::send(Some(REQUEST_TIMEOUT), request).await;
    if let Err(error) = &written {
        debug!("failed to write Event {name}: {error}");
    }
    written.is_ok()
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
    use super::*;

    #[test]
    fn the_api_server_accepts_the_names() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(name("vsphere:role", now), "vsphere-role.0");
        assert!(name(&"a".repeat(250), now).len() < 240);
    }
}
