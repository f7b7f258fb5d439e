//! The leader, and the time when it began to lead (pure).
//!
//! The requests of a cloud-controller-manager count only after its leader has led for long enough without a change. The lease holder must
//! be a pod of the current rollout: the container of an old pod may outlive its kubelet and still use the configuration that has just been
//! corrected.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::nodes::{
    evidence::{Lease, Pod},
    observed,
};

/// The labels by which the Deployment and DaemonSet controllers distinguish pods of different templates.
const TEMPLATE_LABELS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// Returns the time when the holder of a live lease acquired it; `pods` are the live pods of the workload.
/// Fails if the lease has no holder or no such time, or if its holder is not known to be a pod of the current rollout.
pub fn leads_since(lease: &Value, pods: &[Value]) -> Result<Timestamp, String> {
    let held = Lease::of(lease);
    if held.holder.is_empty() {
        return Err(format!("nobody holds the lease {}", held.name));
    }
    let since = lease["spec"]["acquireTime"].as_str().and_then(|time| time.parse().ok());
    let since =
        since.ok_or_else(|| format!("the lease {} does not tell since when {} has led", held.name, held.holder))?;
    let holders: Vec<_> = pods.iter().filter(|pod| observed::holds(&held, &Pod::of(pod))).collect();
    let Some(holder) = holders.first() else {
        return Err(format!("{} holds the lease {}, and is none of the pods", held.holder, held.name));
    };
    let current = current_template(pods);
    if current.is_none() || holders.iter().any(|pod| template(pod) != current) {
        let name = Pod::of(holder).name;
        return Err(format!("pod {name} leads, which is not known to be of the current rollout"));
    }
    Ok(since)
}

/// Returns the template of the newest pods: after a workload's controller has seen a template, it creates no pod of an earlier one.
fn current_template(pods: &[Value]) -> Option<&str> {
    let stays = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let newest = stays.clone().filter_map(created).max()?;
    let templates: BTreeSet<_> = stays.filter(|pod| created(pod) == Some(newest)).map(template).collect();
    let mut templates = templates.into_iter();
    templates.next().filter(|_| templates.next().is_none())?
}

fn created(pod: &Value) -> Option<&str> {
    pod["metadata"]["creationTimestamp"].as_str()
}

fn template(pod: &Value) -> Option<&str> {
    TEMPLATE_LABELS.iter().find_map(|label| pod["metadata"]["labels"][*label].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str) -> Value {
        json!({"metadata": {"name": "ccm"}, "spec": {"holderIdentity": holder, "acquireTime": "2026-01-01T00:00:00.000000Z"}})
    }

    fn pod(node: &str, template: &str, created: &str) -> Value {
        json!({
            "metadata": {"name": format!("ccm-{node}-{template}"), "creationTimestamp": format!("2026-01-01T00:{created}Z"),
                "labels": {"controller-revision-hash": template}},
            "spec": {"nodeName": node, "hostNetwork": true},
        })
    }

    #[test]
    fn a_leader_is_a_pod_of_the_newest_template() {
        let since = |holder: &str, pods: &[Value]| leads_since(&lease(holder), pods);
        let rolled_out = [pod("a", "2", "02:00"), pod("b", "2", "01:00")];
        assert_eq!(since("b_1", &rolled_out), Ok("2026-01-01T00:00:00Z".parse().unwrap()));
        let refused = |holder: &str, pods: &[Value], why: &str| {
            let error = since(holder, pods).expect_err(why);
            assert!(error.contains(why), "{error}");
        };
        refused("c_1", &rolled_out, "c_1 holds the lease ccm, and is none of the pods");
        refused("", &rolled_out, "nobody holds the lease ccm");
        // The kubelet is dead, and the container still runs.
        let old = [pod("a", "2", "02:00"), pod("b", "1", "01:00")];
        refused("b_1", &old, "pod ccm-b-1 leads, which is not known to be of the current rollout");
        assert!(since("a_1", &old).is_ok());
        // The name of the node cannot distinguish two of its pods.
        refused("b_1", &[pod("b", "2", "02:00"), pod("b", "1", "01:00")], "is not known to be of the current rollout");
        refused("a_1", &[pod("a", "2", "02:00"), pod("b", "1", "02:00")], "is not known to be of the current rollout");
        let mut going = pod("a", "2", "02:00");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:03:00Z");
        refused(
            "b_1",
            &[going.clone(), pod("b", "1", "01:00"), pod("c", "2", "01:30")],
            "is not known to be of the current rollout",
        );
        assert!(since("a_1", &[going, pod("b", "2", "01:00")]).is_ok());
        let mut bare = pod("a", "1", "01:00");
        bare["metadata"]["labels"] = json!({});
        refused("a_1", &[bare], "is not known to be of the current rollout");
        let mut silent = lease("a_1");
        silent["spec"]["acquireTime"] = Value::Null;
        let error = leads_since(&silent, &rolled_out).expect_err("no time");
        assert!(error.contains("does not tell since when a_1 has led"), "{error}");
    }
}
