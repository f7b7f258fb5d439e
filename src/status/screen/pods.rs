//! The reason why a pod is not ready (pure).
//!
//! The reason is only for people: the operator judges rollouts by the workload's status ([`crate::status::rollout`]),
//! and watches no pods. Secrets in the last output of a container are masked.

use serde_json::Value;

use super::{first_line, text};
use crate::{
    object::{condition, container_statuses},
    text::mask,
};

pub(in crate::status) fn is_selected(workload: &Value, pod: &Value) -> bool {
    let labels = workload["spec"]["selector"]["matchLabels"].as_object();
    labels.is_some_and(|labels| labels.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value))
}

/// Returns the reason why a pod is not ready; `None` if it is ready or has succeeded.
pub(in crate::status) fn waits_for(pod: &Value, events: &[Value]) -> Option<String> {
    let why = if pod["metadata"]["deletionTimestamp"].is_string() {
        "is being deleted".to_owned()
    } else if condition(pod, "Ready")["status"] == "True" || pod["status"]["phase"] == "Succeeded" {
        return None;
    } else {
        unscheduled(pod)
            .or_else(|| evicted(pod))
            .or_else(|| {
                container_statuses(pod).find_map(|(container, is_init)| of_container(pod, container, is_init, events))
            })
            .or_else(|| warning(pod, events))
            .unwrap_or_else(|| {
                let is_scheduled = condition(pod, "PodScheduled")["status"] == "True";
                if is_scheduled { "waits for the kubelet of its node" } else { "waits for a node" }.to_owned()
            })
    };
    Some(format!("Pod {} {why}", text(&pod["metadata"]["name"])))
}

fn unscheduled(pod: &Value) -> Option<String> {
    let scheduled = condition(pod, "PodScheduled");
    (scheduled["status"] == "False").then(|| format!("cannot be scheduled: {}", first_line(&scheduled["message"])))
}

/// Describes a pod that has failed as a whole, such as an evicted pod.
fn evicted(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    let reason = status["reason"].as_str().filter(|_| status["phase"] == "Failed")?;
    Some(format!("has failed ({reason}): {}", first_line(&status["message"])))
}

fn of_container(pod: &Value, container: &Value, is_init: bool, events: &[Value]) -> Option<String> {
    let name = text(&container["name"]);
    let state = &container["state"];
    if is_init && state["terminated"]["exitCode"] == 0 || !is_init && container["ready"] == true {
        return None;
    }
    let waiting = &state["waiting"];
    if waiting.is_object() {
        let message = first_line(&waiting["message"]);
        let reason = waiting["reason"].as_str().unwrap_or_default();
        return Some(match reason {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                format!("cannot pull the image {} of container {name} ({reason}): {message}", text(&container["image"]))
            }
            "CrashLoopBackOff" => crashed(pod, container, &container["lastState"]["terminated"]),
            // The kubelet reports the reason only in events.
            "ContainerCreating" | "PodInitializing" | "" => return warning(pod, events),
            reason if message.is_empty() => format!("waits: container {name}: {reason}"),
            reason => format!("waits: container {name}: {reason}: {message}"),
        });
    }
    let ends = [&state["terminated"], &container["lastState"]["terminated"]];
    if let Some(end) = ends.into_iter().find(|end| end.is_object()) {
        return Some(crashed(pod, container, end));
    }
    let is_running = state["running"].is_object();
    (is_running && !is_init).then(|| format!("is not ready yet: container {name} runs and its probe does not succeed"))
}

/// Describes a terminated container: its exit code, its last output, and the command for its log.
fn crashed(pod: &Value, container: &Value, end: &Value) -> String {
    let (name, metadata) = (text(&container["name"]), &pod["metadata"]);
    let cause = match (end["reason"].as_str(), end["exitCode"].as_i64()) {
        (Some(reason), Some(code)) if reason != "Error" => format!("{reason}, exit code {code}"),
        (_, Some(code)) => format!("exit code {code}"),
        _ => "exit code unknown".to_owned(),
    };
    let restarts = container["restartCount"].as_i64().unwrap_or_default();
    let output = last_line(&end["message"]);
    let output = if output.is_empty() { output } else { format!(", last output: {output}") };
    // The output of a container that has been or will be restarted is in its previous log.
    let is_restarted = ["waiting", "running"].iter().any(|state| container["state"][state].is_object());
    let previous = if is_restarted { " --previous" } else { "" };
    let (namespace, pod) = (text(&metadata["namespace"]), text(&metadata["name"]));
    format!(
        "crashes: container {name} ended with {cause}, {restarts} restarts{output}; see kubectl logs -n {namespace} {pod} \
         -c {name}{previous}"
    )
}

/// Returns the last line of a termination message, which may be from the log.
fn last_line(message: &Value) -> String {
    let lines = message.as_str().unwrap_or_default().lines().map(str::trim);
    mask::message(lines.rev().find(|line| !line.is_empty()).unwrap_or_default())
}

fn warning(pod: &Value, events: &[Value]) -> Option<String> {
    let about = |event: &&Value| {
        event["type"] == "Warning"
            && event["involvedObject"]["kind"] == "Pod"
            && event["involvedObject"]["name"] == pod["metadata"]["name"]
    };
    let newest = events.iter().filter(about).max_by_key(|event| event["lastTimestamp"].as_str())?;
    Some(format!("waits: {}: {}", text(&newest["reason"]), first_line(&newest["message"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Value {
        json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1"}}, "status": status})
    }

    fn container(state: &Value, last: &Value) -> Value {
        json!({"phase": "Pending", "containerStatuses": [
            {"name": "ccm", "image": "i:1", "ready": false, "restartCount": 3, "state": state, "lastState": last},
        ]})
    }

    #[test]
    fn every_reason_is_reported() {
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        let end = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "starting\nno cloud config\n"}});
        for (status, expected) in [
            (json!({"conditions": [{"type": "Ready", "status": "True"}]}), None),
            (json!({"phase": "Succeeded"}), None),
            (json!({"phase": "Pending"}), Some("waits for a node")),
            (json!({"phase": "Pending", "conditions": scheduled}), Some("waits for the kubelet of its node")),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 had a taint."}]}),
                Some("cannot be scheduled: 0/3 nodes are available: 3 had a taint."),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
                Some("has failed (Evicted): low on memory"),
            ),
            (
                container(&json!({"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}), &json!({})),
                Some("cannot pull the image i:1 of container ccm (ImagePullBackOff): back-off"),
            ),
            (
                container(
                    &json!({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret x"}}),
                    &json!({}),
                ),
                Some("waits: container ccm: CreateContainerConfigError: no secret x"),
            ),
            (
                container(&json!({"waiting": {"reason": "CrashLoopBackOff"}}), &end),
                Some(
                    "crashes: container ccm ended with exit code 1, 3 restarts, last output: no cloud config; see \
                     kubectl logs -n n p -c ccm --previous",
                ),
            ),
            (
                container(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), &json!({})),
                Some(
                    "crashes: container ccm ended with OOMKilled, exit code 137, 3 restarts; see kubectl logs -n n p -c ccm",
                ),
            ),
            (
                container(&json!({"running": {}}), &json!({})),
                Some("is not ready yet: container ccm runs and its probe does not succeed"),
            ),
        ] {
            let expected = expected.map(|text| format!("Pod p {text}"));
            assert_eq!(waits_for(&pod(&status), &[]), expected, "{status}");
        }
    }

    #[test]
    fn the_blocking_init_container_is_reported_and_not_the_containers_after_it() {
        let status = json!({
            "initContainerStatuses": [
                {"name": "done", "state": {"terminated": {"exitCode": 0}}},
                {"name": "inject", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"exitCode": 2, "message": "no credentials"}}},
            ],
            "containerStatuses": [{"name": "ccm", "ready": false, "state": {"waiting": {"reason": "PodInitializing"}}}],
        });
        let reason = waits_for(&pod(&status), &[]).unwrap();
        assert!(reason.contains("container inject ended with exit code 2") && !reason.contains("ccm "), "{reason}");
    }

    #[test]
    fn a_pod_that_is_being_created_is_reported_with_its_newest_warning() {
        let event = |time: &str, message: &str| {
            json!({"type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": time,
                "involvedObject": {"kind": "Pod", "name": "p"}})
        };
        let events = [event("2026-01-02T00:00:00Z", "secret x not found"), event("2026-01-01T00:00:00Z", "old")];
        let status = container(&json!({"waiting": {"reason": "ContainerCreating"}}), &json!({}));
        let reason = waits_for(&pod(&status), &events);
        assert_eq!(reason.as_deref(), Some("Pod p waits: FailedMount: secret x not found"));
    }

    #[test]
    fn secrets_in_the_last_output_are_masked() {
        let end = json!({"terminated": {"exitCode": 1, "message": "cannot use --client-secret=abc"}});
        let status = container(&json!({"waiting": {"reason": "CrashLoopBackOff"}}), &end);
        let reason = waits_for(&pod(&status), &[]).unwrap();
        assert!(!reason.contains("abc"), "{reason}");
    }

    #[test]
    fn pods_belong_to_a_workload_by_its_selector() {
        let workload = |value: &str| json!({"spec": {"selector": {"matchLabels": {"a": value}}}});
        assert!(is_selected(&workload("1"), &pod(&json!({}))));
        assert!(!is_selected(&workload("2"), &pod(&json!({}))));
        assert!(!is_selected(&json!({}), &pod(&json!({}))));
    }
}
