//! Rules of the flavor kubernetes: mistakes in published manifests that break on one distribution or another (pure).

use serde_json::{Value, json};

use crate::{
    facts::{Fact, ccm::ONLY},
    object::Object,
    provider::{
        CCM, Error, FactOrText, Phase,
        kubernetes::{CONTROL_PLANE_LABEL, INSTANCE_LABEL},
        verify::parts::{Input, Part, items, report, require, require_flag},
    },
};

/// The flags that the descriptor sets from facts.
const FLAGS: [(&str, Fact); 7] = [
    ("--cluster-name", Fact::ClusterName),
    ("--configure-cloud-routes", Fact::Routes),
    ("--controllers", Fact::Controllers),
    ("--leader-elect-resource-name", Fact::LeaseName),
    ("--leader-elect-resource-namespace", Fact::Namespace),
    ("--secure-port", Fact::SecurePort),
    ("--v", Fact::Verbosity),
];

/// Taints besides those of every flavor: key and effect.
const TAINTS: [(&str, &str); 5] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
    ("node-role.kubernetes.io/etcd", "NoExecute"),
    ("CriticalAddonsOnly", "NoSchedule"),
];

/// The pods of the cloud-controller-manager itself; a node manager is on every node.
fn pods_of_control_plane(input: Input) -> impl Iterator<Item = Part> {
    let descriptor = input.parsed.of_kubernetes();
    input.pods().filter(move |pod| !descriptor.is_some_and(|one| one.is_of_node_manager(&pod.manifest.object)))
}

/// The node manager is a DaemonSet.
pub(super) fn node_manager(input: Input) -> Vec<Error> {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return Vec::new() };
    let Some(name) = &descriptor.node_manager else { return Vec::new() };
    let is_one = |object: &Object| {
        object.kind().kind == "DaemonSet" && object.name() == name && descriptor.is_of_node_manager(object)
    };
    if input.manifests(Phase::Cluster).any(|manifest| is_one(&manifest.object)) {
        return Vec::new();
    }
    let what = format!("no DaemonSet {name} has the label app.kubernetes.io/name: {name}");
    vec![input.parsed.descriptor_error("/nodeManager", what)]
}

pub(super) fn dns_policy(input: Input) -> Vec<Error> {
    require(input.pods(), "/dnsPolicy", |policy| policy == "Default", "dnsPolicy is not Default")
}

pub(super) fn non_root(input: Input) -> Vec<Error> {
    let root =
        require(input.pods(), "/securityContext/runAsNonRoot", |value| *value == true, "runAsNonRoot is not true");
    // The kubelet refuses an image whose user is a name.
    let named = require(input.pods(), "/securityContext/runAsUser", Value::is_u64, "runAsUser is not a number");
    root.into_iter().chain(named).collect()
}

pub(super) fn node_affinity(input: Input) -> Vec<Error> {
    report(pods_of_control_plane(input), |pod| {
        let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = items(pod.value.pointer(required).unwrap_or(&Value::Null));
        let is_permission = |wanted: &Value| wanted["key"] == CONTROL_PLANE_LABEL && wanted["operator"] == "Exists";
        let exists = terms.iter().any(|term| items(&term["matchExpressions"]).iter().any(is_permission));
        let selector = pod.value["nodeSelector"].get(CONTROL_PLANE_LABEL).is_some();
        let by_value = selector.then_some(("/nodeSelector", "nodeSelector compares the value of the label"));
        by_value
            .or_else(|| (!exists).then_some(("/affinity", "the label of the control plane is not required by Exists")))
    })
}

pub(super) fn tolerations(input: Input) -> Vec<Error> {
    report(input.pods(), |pod| {
        let tolerations = items(&pod.value["tolerations"]);
        let missing = TAINTS.into_iter().filter(move |(key, effect)| !tolerates(tolerations, key, effect));
        missing.map(|(key, effect)| ("/tolerations", format!("no toleration of the taint {key}:{effect}")))
    })
}

fn tolerates(tolerations: &[Value], key: &str, effect: &str) -> bool {
    tolerations.iter().any(|one| {
        (one["key"] == key || one["key"].is_null())
            && one["operator"] == "Exists"
            && (one["effect"] == effect || one["effect"].is_null())
    })
}

pub(super) fn single_identity(input: Input) -> Vec<Error> {
    let containers = input.ccms(Phase::Cluster);
    require_flag(containers, "--use-service-account-credentials", |value| value == Some("false"), "false")
}

pub(super) fn webhook_port(input: Input) -> Vec<Error> {
    let flag = "--webhook-secure-port";
    let is_absent = input.parsed.of_kubernetes().is_some_and(|one| one.absent_flags.iter().any(|one| one == flag));
    let containers = input.ccms(Phase::Cluster).filter(|_| !is_absent);
    require_flag(containers, flag, |value| value == Some("0"), "0")
}

pub(super) fn arguments(input: Input) -> Vec<Error> {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return Vec::new() };
    let set = descriptor.arguments.get(CCM);
    let is_set = |(flag, fact): &&(&str, Fact)| {
        set.and_then(|flags| flags.get(*flag)).is_some_and(|source| source.value == FactOrText::Fact(*fact))
    };
    let missing = FLAGS.iter().filter(|flag| !is_set(flag));
    let what = |(flag, fact): &(&str, Fact)| format!("{flag} is not the fact {}", fact.name());
    let missing = missing.map(|flag| input.parsed.descriptor_error("/arguments", what(flag)));
    let subnets = Fact::PodCidrs;
    let has_subnets = set.is_some_and(|flags| {
        flags.get("--cluster-cidr").is_some_and(|source| source.value == FactOrText::Fact(subnets))
    });
    let without = (descriptor.routes.is_some() && !has_subnets)
        .then(|| input.parsed.descriptor_error("/routes", what(&("--cluster-cidr", subnets))));
    missing.chain(without).collect()
}

pub(super) fn instance_label(input: Input) -> Vec<Error> {
    let wrong = input.manifests(Phase::Cluster).flat_map(|manifest| {
        let value = manifest.object.value();
        let labels = [
            "/metadata/labels",
            "/spec/selector/matchLabels",
            "/spec/template/metadata/labels",
            "/spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/\
             matchLabels",
        ];
        let wrong = labels.into_iter().filter(move |pointer| {
            let is_needed = *pointer == "/metadata/labels" || value.pointer(pointer).is_some();
            is_needed && value.pointer(pointer).and_then(|labels| labels.get(INSTANCE_LABEL)).is_none_or(|name| name != ONLY)
        });
        wrong.map(|pointer| manifest.defect(pointer, format!("no label {INSTANCE_LABEL}: {ONLY}")))
    });
    wrong.collect()
}

/// The strategy of a Deployment whose replicas share a port of the host: the others stay until a new pod is ready.
pub(super) fn deployment_strategy(input: Input) -> Vec<Error> {
    let one_at_a_time = json!({"maxSurge": 0, "maxUnavailable": 1});
    not_updated_by(
        pods_of_control_plane(input).filter(|pod| pod.kind() == "Deployment"),
        "/spec/strategy",
        &one_at_a_time,
        "the strategy is not RollingUpdate with maxSurge 0 and maxUnavailable 1",
    )
}

/// The strategy of a DaemonSet whose pods share a port of the host, and what makes it count a dead node: half of three nodes, rounded
/// up, are two, so that one may be dead; half of two are one. A node manager has pods on many nodes, of which several may be dead.
pub(super) fn daemon_set_strategy(input: Input) -> Vec<Error> {
    let half = json!({"maxSurge": 0, "maxUnavailable": "50%"});
    let daemon_sets = || input.pods().filter(|pod| pod.kind() == "DaemonSet");
    let strategy = not_updated_by(
        daemon_sets(),
        "/spec/updateStrategy",
        &half,
        "the updateStrategy is not RollingUpdate with maxSurge 0 and maxUnavailable 50%",
    );
    let key = "node.kubernetes.io/unreachable";
    let uncounted = report(daemon_sets(), |pod| {
        let is_tolerated = tolerates(items(&pod.value["tolerations"]), key, "NoSchedule");
        (!is_tolerated).then(|| ("/tolerations", format!("no toleration of the taint {key}:NoSchedule")))
    });
    strategy.into_iter().chain(uncounted).collect()
}

/// Those workloads that are not updated in this way.
fn not_updated_by<'a>(
    workloads: impl Iterator<Item = Part<'a>>,
    pointer: &str,
    wanted: &Value,
    what: &str,
) -> Vec<Error> {
    let wrong = workloads.filter_map(|pod| {
        let strategy = pod.manifest.object.value().pointer(pointer).unwrap_or(&Value::Null);
        let is_permission = strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"] == *wanted;
        (!is_permission).then(|| pod.manifest.defect(pointer, what))
    });
    wrong.collect()
}

/// A budget that does not count replicas that do not work.
pub(super) fn eviction_policy(input: Input) -> Vec<Error> {
    let budgets = input.manifests(Phase::Cluster).filter(|one| one.object.kind().kind == "PodDisruptionBudget");
    let wrong = budgets.filter(|one| one.object.value()["spec"]["unhealthyPodEvictionPolicy"] != "AlwaysAllow");
    wrong.map(|one| one.defect("/spec", "unhealthyPodEvictionPolicy is not AlwaysAllow")).collect()
}

pub(super) fn disruption_budget(input: Input) -> Vec<Error> {
    let has_budget = input.manifests(Phase::Cluster).any(|one| one.object.kind().kind == "PodDisruptionBudget");
    let deployments = input.deployments().filter(|_| !has_budget);
    deployments.map(|pod| pod.manifest.defect("/spec", "a Deployment without a PodDisruptionBudget")).collect()
}
