//! Records changes (IO): in the log, as Events on the changed objects, and in the metrics that count them.
//!
//! Best effort, after the fact: nothing waits for an Event and nothing fails for want of one. Repetitions are one Event
//! with a count, which is written every few seconds at most. Core Events: unlike the newer kind their message may
//! follow what was done last, and `kubectl describe` shows their count.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::{Timestamp, Unit},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::cluster::request;
use crate::{
    apply::change::{Action, Change},
    cluster::request::REQUEST_TIMEOUT,
    process::metrics::Metrics,
    status,
};

/// The reporting component.
const REPORTER: &str = "ccm-operator";

/// How many Events may wait to be written; more are lost.
const WAITING: usize = 128;

/// How long the next count waits after one was written.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

/// For how long the same is the same Event: after this long without it, another one is made.
const SERIES_PERIOD: Duration = Duration::from_secs(360);

/// The longest message; the API server takes 1024 bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Records changes; clones share the recorder.
#[derive(Clone, Debug)]
pub struct Events {
    recorder: mpsc::Sender<Report>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Report {
    regarding: ObjectReference,
    reason: &'static str,
    is_warning: bool,
    message: String,
}

/// An Event that stands in the cluster.
struct Series {
    namespace: String,
    name: String,
    count: i32,
    /// What is not written yet.
    unwritten: Option<(String, Timestamp)>,
    written: Instant,
    last: Instant,
}

impl Events {
    /// Starts the recorder; it ends with the last of its clones.
    pub fn start(client: Client, metrics: Metrics) -> Self {
        let (recorder, receiver) = mpsc::channel(WAITING);
        tokio::spawn(record(client, receiver));
        Self { recorder, metrics }
    }

    /// Warns about the ClusterOperator: of what its administrators have to see to.
    pub fn warn(&self, reason: &'static str, message: String) {
        let regarding = ObjectReference {
            api_version: Some(status::write::KIND.api_version()),
            kind: Some(status::write::KIND.kind.to_owned()),
            name: Some(status::write::NAME.to_owned()),
            ..ObjectReference::default()
        };
        self.send(Report { regarding, reason, is_warning: true, message });
    }

    /// Records a change to an object, as it is now or was last seen: in the log, as an Event and in the metrics. Failures are
    /// logged by what retries.
    pub fn record(&self, change: &Change, object: &Value) {
        match change.action {
            Action::Refuse => {}
            Action::Skip | Action::Keep => warn!("{change}"),
            _ => info!("{change}"),
        }
        self.metrics.changed(change.action.done(), &change.object.kind);
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let metadata = &object["metadata"];
        let mut message = change.details();
        if message.is_empty() {
            message = format!("{} {}", change.action.done(), change.object.kind);
        }
        let regarding = ObjectReference {
            api_version: text(&object["apiVersion"]),
            kind: Some(change.object.kind.clone()),
            namespace: text(&metadata["namespace"]),
            name: Some(change.object.name.clone()),
            uid: text(&metadata["uid"]),
            ..ObjectReference::default()
        };
        let (reason, is_warning) = (reason(change.action), change.action == Action::Refuse);
        self.send(Report { regarding, reason, is_warning, message });
    }

    fn send(&self, mut report: Report) {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| report.message.is_char_boundary(*end));
        report.message.truncate(end.unwrap_or_default());
        // A full queue loses it.
        let _ = self.recorder.try_send(report);
    }
}

async fn record(client: Client, mut receiver: mpsc::Receiver<Report>) {
    let mut series: HashMap<(ObjectKey, &'static str), Series> = HashMap::new();
    loop {
        let due = series.values().filter(|one| one.unwritten.is_some()).map(|one| one.written + COUNT_PERIOD).min();
        let report = tokio::select! {
            report = receiver.recv() => match report {
                Some(report) => Some(report),
                None => return,
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => None,
        };
        let now = Instant::now();
        if let Some(report) = report {
            series.retain(|_, one| one.unwritten.is_some() || now.duration_since(one.last) < SERIES_PERIOD);
            let key = (object_key(&report.regarding), report.reason);
            if let Some(one) = series.get_mut(&key) {
                one.count += 1;
                one.last = now;
                one.unwritten = Some((report.message, Timestamp::now()));
            } else if let Some((namespace, name)) = create(&client, &report).await {
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

/// What an Event is about, whichever incarnation of it.
type ObjectKey = (Option<String>, Option<String>, Option<String>, Option<String>);

fn object_key(object: &ObjectReference) -> ObjectKey {
    (object.api_version.clone(), object.kind.clone(), object.namespace.clone(), object.name.clone())
}

async fn create(client: &Client, report: &Report) -> Option<(String, String)> {
    let now = Timestamp::now();
    let time = Some(Time(now.round(Unit::Second).unwrap_or(now)));
    // Events of what is in no namespace are in this one.
    let namespace = report.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let name = name(report.regarding.name.as_deref().unwrap_or_default(), now);
    let event = Event {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        involved_object: report.regarding.clone(),
        reason: Some(report.reason.to_owned()),
        message: Some(report.message.clone()),
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
    let at = at.round(Unit::Second).unwrap_or(at).to_string();
    let patch = Patch::Merge(json!({"count": series.count, "message": message, "lastTimestamp": at}));
    let api: Api<Event> = Api::namespaced(client.clone(), &series.namespace);
    is_written(&series.name, api.patch(&series.name, &PatchParams::default(), &patch)).await;
}

async fn is_written(name: &str, request: impl Future<Output = kube::Result<Event>>) -> bool {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            debug!("failed to write Event {name}: {}", request::describe(&error));
            false
        }
        Err(_) => {
            debug!("failed to write Event {name}: no answer in time");
            false
        }
    }
}

/// The reason of an Event: the word of the log, with a capital.
fn reason(action: Action) -> &'static str {
    match action {
        Action::Create => "Created",
        Action::Configure => "Configured",
        Action::Unchanged => "Unchanged",
        Action::Recreate => "Recreated",
        Action::Prune => "Pruned",
        Action::Skip => "Skipped",
        Action::Keep => "Kept",
        Action::Refuse => "Failed",
    }
}

/// A name of its own. Names of RBAC objects hold what names of Events may not.
fn name(object: &str, now: Timestamp) -> String {
    let plain: String =
        object.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).take(200).collect();
    format!("{}.{:x}", plain.trim_matches('-'), now.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_that_the_api_server_takes() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(name("vsphere:role", now), "vsphere-role.0");
        assert!(name(&"a".repeat(250), now).len() < 240);
    }
}
