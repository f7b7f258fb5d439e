//! The state of a workload's rollout (pure).
//!
//! The state is computed from the workload's own status, by the same rules as in OpenShift's other operators: node reboots and node
//! changes are not rollouts.

use serde_json::Value;

use crate::{apply::steps::finalizers, object::condition};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rollout {
    /// The applied object runs, or has nothing to run.
    Done,
    Progressing,
    /// The rollout waits for an action: the workload's controller has given up waiting, or finalizers block the deletion of the object.
    /// The rollout may still succeed.
    Stuck {
        why: String,
    },
}

/// Returns the rollout of a live object. Other kinds than workloads are done.
pub(crate) fn of(object: &Value) -> Rollout {
    match object["kind"].as_str() {
        // The object is recreated once it is deleted.
        _ if object["metadata"]["deletionTimestamp"].is_string() => {
            let finalizers = finalizers(object);
            if finalizers.is_empty() {
                return Rollout::Progressing;
            }
            Rollout::Stuck { why: format!("deletion is blocked by finalizers: {finalizers}") }
        }
        Some("Deployment" | "DaemonSet") if !is_observed(object) => Rollout::Progressing,
        Some("Deployment") => deployment(object),
        Some("DaemonSet") => daemon_set(object),
        _ => Rollout::Done,
    }
}

fn deployment(object: &Value) -> Rollout {
    let progressing = condition(object, "Progressing");
    match progressing["reason"].as_str() {
        Some("NewReplicaSetAvailable") => Rollout::Done,
        Some("ProgressDeadlineExceeded") => {
            let why = progressing["message"].as_str().unwrap_or("it made no progress within its deadline");
            Rollout::Stuck { why: why.to_owned() }
        }
        _ => Rollout::Progressing,
    }
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

fn daemon_set(object: &Value) -> Rollout {
    let scheduled = number(object, "currentNumberScheduled");
    // No pod is desired if no node matches.
    let is_done = number(object, "desiredNumberScheduled") == 0
        || (scheduled > 0 && number(object, "updatedNumberScheduled") >= scheduled);
    if is_done { Rollout::Done } else { Rollout::Progressing }
}

/// Whether a live object's rollout is done except for at most `pods` pods. No pod of a Deployment may be missing, because its pods
/// move to other nodes.
pub(crate) fn is_done_without(object: &Value, pods: usize) -> bool {
    let is_enough = || {
        let (scheduled, updated) = (number(object, "currentNumberScheduled"), number(object, "updatedNumberScheduled"));
        scheduled > 0 && updated > 0 && updated.saturating_add(i64::try_from(pods).unwrap_or(0)) >= scheduled
    };
    of(object) == Rollout::Done
        || (object["kind"] == "DaemonSet"
            && object["metadata"]["deletionTimestamp"].is_null()
            && is_observed(object)
            && is_enough())
}

fn is_observed(object: &Value) -> bool {
    let generation = object["metadata"]["generation"].as_i64();
    generation.is_some() && object["status"]["observedGeneration"].as_i64() >= generation
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(generation: i64, observed: i64, reason: &str) -> Rollout {
        of(&json!({
            "kind": "Deployment",
            "metadata": {"generation": generation},
            "status": {"observedGeneration": observed, "conditions": [
                {"type": "Available", "status": "False"},
                {"type": "Progressing", "status": "True", "reason": reason, "message": "why"},
            ]},
        }))
    }

    #[test]
    fn a_deployment_is_done_when_its_controller_reports_it_for_this_generation() {
        assert_eq!(deployment(2, 2, "NewReplicaSetAvailable"), Rollout::Done);
        assert_eq!(deployment(2, 1, "NewReplicaSetAvailable"), Rollout::Progressing);
        assert_eq!(deployment(2, 2, "ReplicaSetUpdated"), Rollout::Progressing);
        assert_eq!(deployment(2, 2, "ProgressDeadlineExceeded"), Rollout::Stuck { why: "why".into() });
        assert_eq!(of(&json!({"kind": "Deployment", "metadata": {"generation": 1}})), Rollout::Progressing);
    }

    #[test]
    fn a_daemon_set_is_done_when_its_scheduled_pods_are_updated() {
        let daemon_set = |observed, desired, scheduled, updated| {
            of(&json!({
                "kind": "DaemonSet",
                "metadata": {"generation": 2},
                "status": {
                    "observedGeneration": observed,
                    "currentNumberScheduled": scheduled,
                    "updatedNumberScheduled": updated,
                    "desiredNumberScheduled": desired,
                    "numberUnavailable": 2,
                },
            }))
        };
        assert_eq!(daemon_set(2, 5, 3, 3), Rollout::Done);
        assert_eq!(daemon_set(1, 5, 3, 3), Rollout::Progressing);
        assert_eq!(daemon_set(2, 5, 3, 2), Rollout::Progressing);
        assert_eq!(daemon_set(2, 5, 0, 0), Rollout::Progressing);
        assert_eq!(daemon_set(2, 0, 0, 0), Rollout::Done, "no node matches");
        assert_eq!(daemon_set(1, 0, 0, 0), Rollout::Progressing);
    }

    #[test]
    fn pods_on_nodes_that_are_gone_may_be_missing() {
        let daemon_set = |kind: &str, updated: i64| {
            json!({"kind": kind, "metadata": {"generation": 2}, "status": {"observedGeneration": 2,
                "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": updated}})
        };
        assert!(is_done_without(&daemon_set("DaemonSet", 3), 0));
        assert!(!is_done_without(&daemon_set("DaemonSet", 2), 0));
        assert!(is_done_without(&daemon_set("DaemonSet", 2), 1));
        assert!(!is_done_without(&daemon_set("DaemonSet", 1), 1));
        assert!(!is_done_without(&daemon_set("DaemonSet", 0), 3), "nothing shows that the new template works");
        assert!(!is_done_without(&daemon_set("Deployment", 2), 1));
    }

    #[test]
    fn an_object_that_is_being_deleted_is_not_done() {
        let object = json!({"kind": "Service", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(of(&object), Rollout::Progressing);
        let mut held = object;
        held["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
        let Rollout::Stuck { why } = of(&held) else { panic!("{:?}", of(&held)) };
        assert!(why.ends_with("example.com/a, example.com/b"), "{why}");
    }

    #[test]
    fn other_kinds_are_done() {
        assert_eq!(of(&json!({"kind": "Service"})), Rollout::Done);
    }
}
