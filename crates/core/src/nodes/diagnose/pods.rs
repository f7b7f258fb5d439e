//! Evidence from the objects of a cloud-controller-manager: its workload and its pods.

use super::{diagnosed::CcmContext, found, is_young};
use crate::nodes::{
    cause,
    diagnosis::Finding,
    evidence::{Evidence, Pod},
    log,
    node::Node,
    observed::current,
    reason::Reason,
};

/// The kubelet's reason for a container that waits between two runs.
const BETWEEN_RUNS: &str = "CrashLoopBackOff";

pub(super) fn check(diagnosed: &mut CcmContext, evidence: &Evidence) {
    let ccm = diagnosed.ccm;
    let name = diagnosed.name.clone();
    if let Some(is_installed) = ccm.is_installed {
        diagnosed.observe(
            format!("the workload of {name}"),
            if is_installed { "it is installed" } else { "it is not installed" },
        );
        if !is_installed {
            let why = evidence.not_ready.get(&ccm.identity.name);
            let shown =
                why.map_or_else(|| "there is no workload".to_owned(), |why| format!("there is no workload: {why}"));
            diagnosed.find(Reason::NotInstalled, &shown, format!("{name} is not installed"));
            return;
        }
    }
    let Some(pods) = &ccm.pods else { return };
    let ready = pods.iter().filter(|pod| pod.is_ready && !pod.is_terminating).count();
    diagnosed.observe(format!("the pods of {name}"), format!("{ready} of {} are ready{}", pods.len(), names(pods)));
    if pods.is_empty() && is_young(&ccm.installed, evidence) {
        return;
    }
    if pods.is_empty() {
        let shown = ccm.pod_events.last().cloned().unwrap_or_else(|| "there are no pods".to_owned());
        diagnosed.find(Reason::NotInstalled, &shown, format!("{name} has no pods: they are not created"));
        return;
    }
    let (stuck, others): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|pod| is_stuck(evidence, pod));
    if others.iter().any(|pod| pod.is_ready && (pod.terminated.is_none() || leads(diagnosed, evidence, pod))) {
        return;
    }
    // The container may still run although its kubelet is dead.
    let is_led = stuck.iter().any(|pod| diagnosed.is_held_by(evidence, pod));
    if let Some(pod) = stuck.first().filter(|_| others.is_empty() && !is_led) {
        find_stuck(diagnosed, pod);
        return;
    }
    let pods = current(pods);
    if pods.iter().all(|pod| pod.node.is_empty()) {
        unscheduled(diagnosed, evidence, &pods);
        return;
    }
    for pod in pods.into_iter().filter(|pod| !pod.node.is_empty()) {
        ask_pod(diagnosed, evidence, pod);
    }
}

/// Whether a pod is being deleted on a node that is gone or whose kubelet does not report, so that nothing confirms its end.
fn is_stuck(evidence: &Evidence, pod: &Pod) -> bool {
    let is_host = |node: &Node| node.name == pod.node && node.has_live_kubelet();
    pod.is_terminating && !evidence.nodes.iter().any(is_host)
}

fn find_stuck(diagnosed: &mut CcmContext, pod: &Pod) {
    let (Pod { name, namespace, node, .. }, of) = (pod, &diagnosed.name);
    let cause = format!(
        "pod {namespace}/{name} of {of} is being deleted on node {node}, whose kubelet does not report: nobody confirms that it has \
         ended, and no other pod takes its place before"
    );
    diagnosed.find(Reason::PodStuckTerminating, "it is Terminating, and there is no other pod", cause);
}

fn names(pods: &[Pod]) -> String {
    let name = |pod: &Pod| format!("{}{}", pod.name, if pod.is_terminating { " (it is being deleted)" } else { "" });
    let names: Vec<String> = pods.iter().map(name).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

fn unscheduled(diagnosed: &mut CcmContext, evidence: &Evidence, pods: &[&Pod]) {
    let says = pods.iter().find_map(|pod| pod.unschedulable.clone());
    if says.is_some() || pods.iter().any(|pod| !is_young(&pod.created, evidence)) {
        let cause = format!("no node fits the pods of {}", diagnosed.name);
        diagnosed.find(Reason::Unschedulable, &says.unwrap_or_else(|| "the pods are on no node".to_owned()), cause);
    }
}

/// Checks a pod that is scheduled to a node.
fn ask_pod(diagnosed: &mut CcmContext, evidence: &Evidence, pod: &Pod) {
    let (name, full) = (diagnosed.name.clone(), pod.key());
    let (waiting, message) = pod.waiting.clone().unwrap_or_default();
    let is_old = !is_young(&pod.created, evidence);
    if waiting == BETWEEN_RUNS || (pod.restarts > 0 && pod.terminated.is_some()) {
        let (reason, text) = pod.terminated.clone().unwrap_or((waiting, message));
        let last = log::last_words(&text);
        let shown = format!("{reason}: {last}");
        // A leader that loses the lease logs why the renewal failed, and then exits.
        let is_lost = last.contains("leaderelection lost");
        if log::misses_api_server(last) || (is_lost && log::misses_api_server(&text)) {
            let cause = format!("pod {full} of {name} does not reach the API server, and ends");
            diagnosed.find(Reason::ApiServerUnreachable, &shown, cause);
        } else {
            let because = cause::of(last).map(|reason| format!(": {}", reason.title())).unwrap_or_default();
            diagnosed.find(Reason::CrashLoop, &shown, format!("pod {full} of {name} ends again and again{because}"));
        }
        return;
    }
    if pod.is_ready || pod.phase == "Running" {
        return;
    }
    let event = |words: &str| diagnosed.ccm.pod_events.iter().rev().find(|event| event.contains(words)).cloned();
    let sandbox = event("FailedCreatePodSandBox");
    let host = evidence.nodes.iter().find(|node| node.name == pod.node);
    let lacks_network = host.and_then(|host| host.ready.as_ref()).is_some_and(|ready| ready.lacks_network);
    if !pod.is_on_host_network && is_old && (sandbox.is_some() || lacks_network) {
        let cause =
            format!("pod {full} of {name} waits for the network plugin, which waits for the nodes to be initialized");
        diagnosed.find(Reason::NetworkNotReady, &sandbox.unwrap_or_else(|| "NetworkPluginNotReady".to_owned()), cause);
    } else if let Some(mount) = event("FailedMount").filter(|_| is_old) {
        let cause = format!("a volume of pod {full} of {name} cannot be mounted: a Secret or ConfigMap may be missing");
        diagnosed.find(Reason::CrashLoop, &mount, cause);
    } else if !matches!(waiting.as_str(), "" | "ContainerCreating" | "PodInitializing") {
        let cause = format!("a container of pod {full} of {name} cannot be started");
        diagnosed.find(Reason::CrashLoop, &format!("{waiting}: {message}"), cause);
    }
}

/// Whether the pod has recovered: the pod is ready and holds the lease.
fn leads(diagnosed: &CcmContext, evidence: &Evidence, pod: &Pod) -> bool {
    pod.is_ready && (evidence.leases.is_none() || diagnosed.log.leads() || diagnosed.is_held_by(evidence, pod))
}

/// Returns the problem of the node manager on a node, for clouds with a node manager.
pub(super) fn of_node_manager(diagnosed: &CcmContext, node: &Node, evidence: &Evidence) -> Option<Finding> {
    let pods = diagnosed.ccm.node_manager.as_ref()?;
    if is_young(&node.created, evidence) {
        return None;
    }
    let name = &node.name;
    let Some(pod) = pods.iter().filter(|pod| pod.node == node.name).min_by_key(|pod| pod.is_terminating) else {
        let cause = format!("no pod of the node manager is on {name}");
        return Some(found(Reason::NodeManagerNotReady, "there is no pod", cause));
    };
    let why = pod.waiting.as_ref().or(pod.terminated.as_ref());
    let shown = why.map_or_else(|| "it is not ready".to_owned(), |(reason, text)| format!("{reason}: {text}"));
    let cause = format!("pod {}/{} of the node manager on {name} is not ready", pod.namespace, pod.name);
    (!pod.is_ready && !is_young(&pod.created, evidence)).then(|| found(Reason::NodeManagerNotReady, &shown, cause))
}
