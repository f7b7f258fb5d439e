//! The result of a trial of a cloud-controller-manager: the output of its pods (pure).
//!
//! Untrusted text from pods and Events is masked and made printable here, as soon as it arrives.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::screen::{
    pods::{is_selected, waits_for},
    text::section,
};
use crate::{
    nodes::observed::{lines, sanitized},
    object::{condition, container_statuses},
    text::output::{printable, wrap},
};

const WIDTH: usize = 100;

const MOST_EVENTS: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrialReport {
    pub test: String,
    pub provider: String,
    pub namespace: String,
    pub kubernetes: String,
    pub images: Vec<String>,
    pub controllers: Vec<&'static str>,
    pub ready: bool,
    /// The number of seconds until the pods were ready, or until the wait ended.
    pub seconds: u64,
    pub pods: Vec<TrialPod>,
    /// The Events about the trial's objects, newest last.
    pub events: Vec<Event>,
    pub left: Vec<LeftoverObject>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrialPod {
    pub name: String,
    pub node: String,
    /// The reason why the pod is not ready; `None` if it is ready.
    pub waits_for: Option<String>,
    /// The containers of the pod, init containers first.
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pub name: String,
    /// The state of the container, such as `running` or `waiting (ImagePullBackOff)`.
    pub state: String,
    pub restarts: i64,
    pub log: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub type_: String,
    pub reason: String,
    pub object: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftoverObject {
    pub object: String,
    pub why: String,
    pub command: String,
}

impl TrialPod {
    pub(crate) fn of(live: &Value, events: &[Value]) -> Self {
        Self {
            name: text(&live["metadata"]["name"]),
            node: text(&live["spec"]["nodeName"]),
            waits_for: waits_for(live, events).map(|why| sanitized(&why)),
            containers: container_statuses(live).map(|(container, _)| Container::of(container)).collect(),
        }
    }

    pub(crate) fn log(&mut self, container: &str, log: &str) {
        if let Some(container) = self.containers.iter_mut().find(|one| one.name == container) {
            container.log = lines(log);
        }
    }
}

impl Container {
    fn of(live: &Value) -> Self {
        let state = live["state"].as_object().and_then(|states| states.iter().next());
        let state = state.map_or_else(
            || "not started".to_owned(),
            |(state, detail)| {
                let reason = text(&detail["reason"]);
                if reason.is_empty() { state.clone() } else { format!("{state} ({reason})") }
            },
        );
        let restarts = live["restartCount"].as_i64().unwrap_or_default();
        Self { name: text(&live["name"]), state, restarts, log: Vec::new() }
    }

    /// Whether the last output is in the log of the previous run.
    pub(crate) fn has_ended(&self) -> bool {
        self.restarts > 0 && !self.state.starts_with("terminated")
    }
}

/// Whether a live pod belongs to a workload and is ready.
pub(crate) fn is_ready(workload: &Value, pod: &Value) -> bool {
    is_selected(workload, pod)
        && pod["metadata"]["deletionTimestamp"].is_null()
        && condition(pod, "Ready")["status"] == "True"
}

/// Returns the last Events about objects whose names contain `end`, oldest first.
pub(crate) fn events(live: &[Value], end: &str) -> Vec<Event> {
    let is_about = |event: &&Value| event["involvedObject"]["name"].as_str().is_some_and(|name| name.contains(end));
    let mut about: Vec<_> = live.iter().filter(is_about).collect();
    let time = |event: &Value| {
        ["lastTimestamp", "eventTime"].iter().find_map(|field| event[field].as_str()).unwrap_or_default().to_owned()
    };
    about.sort_by_key(|event| time(event));
    let skipped = about.len().saturating_sub(MOST_EVENTS);
    let of = |event: &Value| Event {
        type_: text(&event["type"]),
        reason: text(&event["reason"]),
        object: format!("{} {}", text(&event["involvedObject"]["kind"]), text(&event["involvedObject"]["name"])),
        message: text(&event["message"]),
    };
    about.into_iter().skip(skipped).map(of).collect()
}

/// Sanitizes untrusted text to one line.
fn text(value: &Value) -> String {
    value.as_str().map(sanitized).unwrap_or_default()
}

impl TrialReport {
    pub(crate) fn text(&self) -> String {
        let outcome = if self.ready {
            format!("a pod was ready after {} seconds", self.seconds)
        } else {
            format!("NO POD WAS READY within {} seconds", self.seconds)
        };
        let controllers = if self.controllers.is_empty() { "none".to_owned() } else { self.controllers.join(", ") };
        let facts = [
            ("Outcome", outcome),
            ("Provider", format!("{} on Kubernetes {}", self.provider, self.kubernetes)),
            ("Test", format!("{} in namespace {}", self.test, self.namespace)),
            ("Images", self.images.join(", ")),
            ("Controllers", controllers),
        ];
        let mut text = facts.map(|(name, value)| format!("{name:<13}{value}\n")).concat();
        text += &self.pods();
        let events = self.events.iter();
        let events = events.map(|event| [event.reason.clone(), format!("{}: {}", event.object, event.message)]);
        text += &section(WIDTH, ["EVENT", "MESSAGE"], &events.collect::<Vec<_>>());
        printable(&text)
    }

    fn pods(&self) -> String {
        if self.pods.is_empty() {
            return "\nno pod was created\n".to_owned();
        }
        let of_pod = |pod: &TrialPod| -> Vec<_> {
            let of =
                |one: &Container| [one.state.clone(), one.restarts.to_string(), format!("{}/{}", pod.name, one.name)];
            pod.containers.iter().map(of).collect()
        };
        let mut text =
            section(WIDTH, ["STATE", "RESTARTS", "CONTAINER"], &self.pods.iter().flat_map(of_pod).collect::<Vec<_>>());
        for why in self.pods.iter().filter_map(|pod| pod.waits_for.as_ref()) {
            let _ = write!(text, "\n{}\n", wrap(why, WIDTH).join("\n"));
        }
        for (pod, container) in self.pods.iter().flat_map(|pod| pod.containers.iter().map(move |one| (pod, one))) {
            if !container.log.is_empty() {
                let lines =
                    container.log.iter().flat_map(|line| wrap(line, WIDTH - 2)).map(|line| format!("  {line}\n"));
                let lines: String = lines.collect();
                let _ = write!(text, "\nLast lines of the log of {}/{}:\n{lines}", pod.name, container.name);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(state: &Value) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1"}},
            "spec": {"nodeName": "node"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [{"name": "ccm", "ready": false, "restartCount": 2, "state": state}],
            },
        })
    }

    #[test]
    fn a_pod_says_in_its_own_words_what_is_wrong_without_its_secrets() {
        let mut pod = TrialPod::of(&live(&json!({"waiting": {"reason": "CrashLoopBackOff"}})), &[]);
        assert_eq!(pod.containers[0].state, "waiting (CrashLoopBackOff)");
        assert!(pod.containers[0].has_ended() && pod.waits_for.as_ref().unwrap().contains("crashes"), "{pod:?}");
        pod.log("ccm", "starting\n\u{1b}[2Jno access: --client-secret=abc\n");
        let report = TrialReport {
            test: "ccm-test-abcde".into(),
            provider: "acme".into(),
            namespace: "ccm-test-abcde".into(),
            kubernetes: "1.35".into(),
            images: vec!["a/b:1".into()],
            controllers: Vec::new(),
            ready: false,
            seconds: 120,
            pods: vec![pod],
            events: Vec::new(),
            left: Vec::new(),
        };
        let text = report.text();
        assert!(text.contains("NO POD WAS READY within 120 seconds") && text.contains("no access"), "{text}");
        assert!(!text.contains("abc\n") && !text.contains('\u{1b}') && !text.contains("client-secret=abc"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(TrialReport { pods: Vec::new(), ..report }.text().contains("no pod was created"));
    }

    #[test]
    fn only_a_pod_of_the_workload_counts() {
        let workload = |value: &str| json!({"spec": {"selector": {"matchLabels": {"a": value}}}});
        let mut pod = live(&json!({"running": {}}));
        assert!(!is_ready(&workload("1"), &pod));
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        assert!(is_ready(&workload("1"), &pod));
        assert!(!is_ready(&workload("2"), &pod));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!is_ready(&workload("1"), &pod));
    }

    #[test]
    fn the_newest_events_about_its_objects_are_reported() {
        let event = |name: &str, time: usize| {
            json!({"type": "Warning", "reason": "FailedCreate", "message": format!("{time}"),
                "lastTimestamp": format!("2026-01-01T00:00:{time:02}Z"),
                "involvedObject": {"kind": "ReplicaSet", "name": name}})
        };
        let mut live: Vec<_> = (0..20).rev().map(|time| event("acme-ccm-test-abcde-1", time)).collect();
        live.push(event("other", 30));
        let events = events(&live, "ccm-test-abcde");
        assert_eq!(events.len(), MOST_EVENTS);
        assert_eq!((events[0].message.as_str(), events[11].message.as_str()), ("8", "19"));
        assert_eq!(events[0].object, "ReplicaSet acme-ccm-test-abcde-1");
    }
}
