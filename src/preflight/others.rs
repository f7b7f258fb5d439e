//! The checks for other cloud-controller-managers (pure).

use std::collections::BTreeSet;

use super::{
    check::{Check, Row, names},
    check_input::{CheckInput, Other, Snapshot},
    pods::ObservedPod,
};
use crate::{
    api::{placement::Distribution, spec::Management},
    facts::{
        ccm::{Ccm, Controller, LEASE},
        distribution::{BuiltIn, K0S, K3S, RKE2},
    },
    nodes::evidence::{self, Lease, ReadResult},
    object::KUBE_SYSTEM,
    plan::{Plan, kubernetes::conflict::conflict},
};

/// The lease of the built-in cloud-controller-manager of k3s.
const K3S_LEASE: &str = "k3s-cloud-controller-manager";

/// The tolerated clock skew, in seconds. Any tolerance would let an expired lease delay an installation.
const SKEW: i64 = 0;

pub(super) fn additional_ccms(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let others = input.others.as_ref().map_err(Clone::clone)?;
    let first = others.iter().filter(|other| other.goes_first && !is_removed(other.ccm)).map(|other| other.ccm);
    let running = others.iter().filter_map(|other| other.runs.as_ref());
    let problem = first.chain(running).find_map(|other| conflict(input.catalog, input.ccm, other));
    Ok(problem.map_or_else(|| check.passed(""), |problem| check.refused(problem, "")))
}

/// A cloud-controller-manager that the operator has not installed.
struct ForeignCcm {
    who: String,
    controllers: Vec<Controller>,
    state: Activity,
    /// Set if the distribution includes it.
    built_in: Option<BuiltIn>,
}

/// The activity of a foreign cloud-controller-manager.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// The cloud-controller-manager acts.
    Acts,
    /// The pod is being deleted, and may act until it is gone.
    Leaves,
    /// The pod is being deleted, and the API shows no activity.
    Ended,
    /// Only its name identifies it as a cloud-controller-manager.
    Named,
}

impl ForeignCcm {
    /// Returns the built-in cloud-controller-manager of a distribution; `by` is the evidence.
    fn built_in(one: BuiltIn, by: &str, controllers: Vec<Controller>) -> Self {
        Self { who: format!("{} ({by})", one.name), controllers, state: Activity::Acts, built_in: Some(one) }
    }

    /// Describes the shared controllers; `None` if there are none.
    fn clash(&self, own: &[Controller]) -> Option<String> {
        let shared: Vec<_> = self.controllers.iter().filter(|one| own.contains(one)).map(|one| one.field()).collect();
        let verb = if self.state == Activity::Ended { "ran" } else { "runs" };
        (!shared.is_empty()).then(|| format!("{} {verb} {}", self.who, shared.join(", ")))
    }
}

pub(super) fn other_ccm(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let own: Vec<_> = input.ccm.controllers().collect();
    let Snapshot { pods, unseen_pods, leases, unseen_leases, .. } = input.snapshot;
    let of_pods = pods.iter().filter_map(|pod| foreign_ccm_of_pod(input, pod));
    let of_leases = leases.iter().filter_map(|lease| foreign_ccm_of_lease(input, lease));
    let all = of_k3s(input).into_iter().chain(of_pods).chain(of_leases);
    let clashing: Vec<_> = all.filter_map(|external| Some((external.clash(&own)?, external))).collect();
    let texts = |states: &[Activity]| {
        let of = clashing.iter().filter(|(_, external)| states.contains(&external.state));
        let texts: Vec<_> = of.map(|(text, _)| text.as_str()).collect();
        (!texts.is_empty()).then(|| names(texts))
    };
    if let Some(message) = texts(&[Activity::Acts, Activity::Leaves]) {
        let remove = match clashing.iter().find_map(|(_, external)| external.built_in) {
            Some(one) => one.off,
            None if texts(&[Activity::Acts]).is_some() => "remove the other cloud-controller-manager",
            None => "wait until it is gone, as it may act until then; if its kubelet does not report, stop its machine",
        };
        let fix = format!(
            "{remove}, or disable these controllers in one of the two; if it is not a cloud-controller-manager, give the CloudControllerManager the \
             annotation ccm-operator.dev/skip-preflight: other-ccm"
        );
        return Ok(check.refused(message, fix));
    }
    let named = texts(&[Activity::Named]).map(|text| {
        let fix = "if it is a cloud-controller-manager remove it, or disable these controllers in one of the two";
        (format!("by its name, {text}"), fix)
    });
    let ended = texts(&[Activity::Ended]).map(|text| {
        let fix = "see that its machine is off, then delete the pod by force, or its Node if the machine is gone for good: a k3s or RKE2 \
                   server is removed from etcd with its Node";
        (text, fix)
    });
    let (warnings, fixes): (Vec<_>, Vec<_>) = named.into_iter().chain(ended).unzip();
    if !warnings.is_empty() {
        return Ok(check.warned(warnings.join("; "), fixes.join("; ")));
    }
    // The holder of its own lease cannot be distinguished from another cloud-controller-manager.
    if let Err(unseen) = &input.is_installed
        && input.snapshot.leases.iter().any(|lease| is_held(input, lease) && is_of(input.ccm, lease))
    {
        return Err(unseen.clone());
    }
    match unseen_pods.as_ref().or(unseen_leases.as_ref()) {
        Some(unseen) => Err(unseen.clone()),
        None => Ok(check.passed(seen_in(&input.snapshot.places))),
    }
}

/// Describes the namespaces without such pods and leases.
fn seen_in(places: &BTreeSet<String>) -> String {
    // The empty name means all namespaces.
    if places.contains("") {
        return "none in any namespace".to_owned();
    }
    format!("none in {}; no other namespace was looked at", names(places))
}

fn is_removed(ccm: &Ccm) -> bool {
    ccm.spec.management == Management::Removed
}

/// Returns the other `CloudControllerManager`s, except those being removed: their remaining pods count as foreign pods.
fn others<'a>(input: &'a CheckInput) -> impl Iterator<Item = &'a Other<'a>> {
    input.others.iter().flatten().filter(|other| !is_removed(other.ccm))
}

/// Whether a pod belongs to the workload or the node manager of any `CloudControllerManager`, including this one. The ServiceAccount
/// proves nothing, because other manifests may use the same account.
fn is_ours(input: &CheckInput, pod: &ObservedPod) -> bool {
    let is_of = |ccm: &Ccm| {
        let Some(identity) = input.identity(ccm) else { return false };
        let mut selectors = std::iter::once(&identity.selector).chain(&identity.node_manager);
        pod.seen.namespace == identity.namespace && selectors.any(|selector| pod.is_selected(selector))
    };
    others(input).map(|other| other.ccm).chain([input.ccm]).any(is_of)
}

fn is_held(input: &CheckInput, lease: &Lease) -> bool {
    lease.is_held(input.now, SKEW)
}

fn is_of(ccm: &Ccm, lease: &Lease) -> bool {
    ccm.spec.namespace == lease.namespace && ccm.lease_name() == lease.name
}

/// Whether a pod that is being deleted has ended, according to the API: the kubelet of its node does not report, and the pod holds no
/// lease. If nodes or leases cannot be read, the pod counts as running.
fn has_ended(input: &CheckInput, pod: &ObservedPod) -> bool {
    let Ok(nodes) = input.nodes else { return false };
    let is_hosted = nodes.iter().any(|node| node.name == pod.seen.node && node.has_live_kubelet());
    pod.seen.is_terminating && !is_hosted && input.snapshot.unseen_leases.is_none() && !leads(input, pod)
}

/// Whether a pod holds a lease and still renews it.
fn leads(input: &CheckInput, pod: &ObservedPod) -> bool {
    input.snapshot.leases.iter().any(|lease| is_held(input, lease) && pod.holds(lease))
}

/// Returns a human-readable description.
fn describe(input: &CheckInput, pod: &ObservedPod) -> String {
    match pod.seen.is_terminating {
        false => format!("pod {}", pod.key()),
        true if has_ended(input, pod) => {
            format!("pod {} (being deleted on node {}, whose kubelet does not report)", pod.key(), pod.seen.node)
        }
        true => format!("pod {} (being deleted)", pod.key()),
    }
}

fn foreign_ccm_of_pod(input: &CheckInput, pod: &ObservedPod) -> Option<ForeignCcm> {
    let controllers = pod.controllers.clone()?;
    if is_ours(input, pod) {
        return None;
    }
    let who = describe(input, pod);
    // The name of a static pod consists of the name in its manifest and the name of its node.
    let evidence::Pod { namespace, name, node, .. } = &pod.seen;
    let is_static = namespace == KUBE_SYSTEM && *name == format!("cloud-controller-manager-{node}");
    if is_static && input.ccm.cluster.distribution == Distribution::Rke2 {
        return Some(ForeignCcm::built_in(RKE2, &who, controllers));
    }
    let state = match () {
        () if has_ended(input, pod) => Activity::Ended,
        () if !pod.is_certain && !leads(input, pod) => Activity::Named,
        () if pod.seen.is_terminating => Activity::Leaves,
        () => Activity::Acts,
    };
    Some(ForeignCcm { who, controllers, state, built_in: None })
}

/// Returns the built-in cloud-controller-manager of k3s. It runs in the k3s server, not in a pod, and the server nodes show it.
fn of_k3s(input: &CheckInput) -> Option<ForeignCcm> {
    let nodes = input.nodes.as_deref().unwrap_or_default();
    let servers = || nodes.iter().filter(|node| node.k3s_controllers.is_some());
    let runs = |controller: &Controller| {
        servers().any(|node| Controller::of_argument(node.k3s_controllers.as_deref()).contains(controller))
    };
    let controllers: Vec<_> = Controller::ALL.into_iter().filter(runs).collect();
    let by = format!("on the servers {}", names(servers().map(|node| node.name.as_str())));
    (!controllers.is_empty()).then(|| ForeignCcm::built_in(K3S, &by, controllers))
}

fn foreign_ccm_of_lease(input: &CheckInput, lease: &Lease) -> Option<ForeignCcm> {
    if !is_held(input, lease) || others(input).any(|other| is_of(other.ccm, lease)) {
        return None;
    }
    // A pod shows its controllers, but a lease does not.
    let mut holders = input.snapshot.pods.iter().filter(|pod| pod.controllers.is_some() && pod.holds(lease));
    if holders.clone().any(|pod| !is_ours(input, pod)) {
        return None;
    }
    // The pods may outlive the workload.
    let mut is_own = || !matches!(input.is_installed, Ok(false)) || holders.next().is_some();
    if is_of(input.ccm, lease) && is_own() {
        return None;
    }
    let who = format!("the holder {} of the lease {}/{}", lease.holder, lease.namespace, lease.name);
    let nodes = input.nodes.as_deref().unwrap_or_default();
    if lease.name == K3S_LEASE {
        if nodes.iter().any(|node| node.k3s_controllers.is_some()) {
            return None;
        }
        // k3s still serves its own load balancers with --disable-cloud-controller.
        let only_services = nodes.iter().all(|node| !node.provider_id.starts_with(K3S.scheme));
        let controllers = if only_services { vec![Controller::Service] } else { Controller::ALL.to_vec() };
        return Some(ForeignCcm::built_in(K3S, &who, controllers));
    }
    let is_k0s = input.ccm.cluster.distribution == Distribution::K0s && holders.next().is_none();
    if is_k0s && lease.namespace == KUBE_SYSTEM && lease.name == LEASE {
        // Only one of two cloud-controller-managers with the same lease acts, regardless of its controllers.
        let is_shared = is_of(input.ccm, lease);
        let of_nodes = vec![Controller::CloudNode, Controller::CloudNodeLifecycle];
        return Some(ForeignCcm::built_in(K0S, &who, if is_shared { Controller::ALL.to_vec() } else { of_nodes }));
    }
    let controllers = Controller::ALL.to_vec();
    Some(ForeignCcm { who, controllers, state: Activity::Acts, built_in: None })
}

/// Returns the ports of the pods on the host network.
fn own_ports(input: &CheckInput, ccm: &Ccm) -> Vec<u16> {
    let plan = Plan::of_ccm(input.catalog, ccm);
    let objects = plan.as_ref().map(Plan::objects).unwrap_or_default();
    let pods = objects.iter().filter_map(|object| {
        let spec = object.pod_spec()?;
        ObservedPod::of(&serde_json::json!({"spec": spec}), input.catalog)
    });
    pods.flat_map(|pod| pod.ports).collect()
}

pub(super) fn ports(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let own = own_ports(input, input.ccm);
    let shared = |ports: &[u16]| {
        let shared: Vec<_> = ports.iter().filter(|port| own.contains(port)).map(u16::to_string).collect();
        (!shared.is_empty()).then(|| shared.join(", "))
    };
    let of_others = others(input).filter(|other| other.goes_first).filter_map(|other| {
        let ports = shared(&own_ports(input, other.ccm))?;
        Some(format!("{ports} of the CloudControllerManager {}", other.ccm.name))
    });
    let nodes = input.nodes.as_deref().unwrap_or_default();
    let hosts = input.hosts(nodes);
    let is_host = |node: &str| node.is_empty() || hosts.iter().any(|host| host.name == node);
    let pods = input.snapshot.pods.iter().filter(|pod| is_host(&pod.seen.node) && !is_ours(input, pod));
    let of_pods = pods.filter_map(|pod| Some(format!("{} of {}", shared(&pod.ports)?, describe(input, pod))));
    let taken: Vec<_> = of_others.chain(of_pods).collect();
    if !taken.is_empty() {
        let message = format!("taken on nodes that the pods would run on: {}", names(&taken));
        let fix = "choose another one in spec.ports.secure: pods with the same port wait for each other";
        return Ok(check.warned(message, fix));
    }
    match input.snapshot.unseen_pods.as_ref().or(input.others.as_ref().err()) {
        Some(unseen) => Err(unseen.clone()),
        None => Ok(check.passed("")),
    }
}
