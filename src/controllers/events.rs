//! Records changes (IO): in the log, as Events on the changed objects, and in the metrics that count them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    api::CLOUD_CONTROLLER_MANAGER,
    apply::change::{Action, Change},
    cluster::events::{Recorder, Repetition, Report, cluster_scoped},
    controllers::metrics::Metrics,
    object::NODE,
    status::write::{KIND, NAME},
};

const REPORTER: &str = "ccm-operator";

const WRITE_PERIOD: Duration = Duration::from_secs(10);

const REPETITION: Repetition = Repetition { write_period: WRITE_PERIOD, series_period: Duration::from_secs(360) };

/// Events about nodes are repeated each hour.
const NODE_REPETITION: Repetition = Repetition { write_period: WRITE_PERIOD, series_period: Duration::from_secs(7200) };

/// Records changes; clones share the recorder.
#[derive(Clone, Debug)]
pub(super) struct Events {
    recorder: Recorder,
    pub(super) metrics: Metrics,
}

impl Events {
    /// Starts the recorder, which ends with the last clone.
    pub(super) fn start(client: Client, metrics: Metrics) -> Self {
        Self { recorder: Recorder::start(client), metrics }
    }

    /// Records a warning to the administrators, as an Event on the ClusterOperator.
    pub(super) fn warn(&self, reason: &str, message: String) {
        self.send(cluster_scoped(&KIND, NAME, None), reason, true, message, REPETITION);
    }

    /// Records an Event about a node with this name and uid. Returns whether the Event is queued.
    pub(super) fn of_node(&self, (name, uid): (&str, &str), reason: &str, is_warning: bool, message: String) -> bool {
        self.send(cluster_scoped(&NODE, name, Some(uid)), reason, is_warning, message, NODE_REPETITION)
    }

    /// Records a warning about a `CloudControllerManager` with this name and uid.
    pub(super) fn of_ccm(&self, (name, uid): (&str, &str), reason: &str, message: String) {
        self.send(cluster_scoped(&CLOUD_CONTROLLER_MANAGER, name, Some(uid)), reason, true, message, REPETITION);
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
        self.send(object, &capitalized(done), change.action == Action::Refuse, message, REPETITION);
    }

    /// Queues an Event. Returns whether there was room; otherwise the Event is lost.
    fn send(
        &self,
        object: ObjectReference,
        reason: &str,
        is_warning: bool,
        message: String,
        repetition: Repetition,
    ) -> bool {
        let reason = reason.to_owned();
        self.recorder.send(Report { object, component: REPORTER, reason, is_warning, message, repetition })
    }
}

/// Returns the reason of an Event: the word of the log, capitalized.
fn capitalized(word: &str) -> String {
    let mut rest = word.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}
