//! Rules of the flavor kubernetes: mistakes in published manifests that break on one distribution or another (pure).

use serde_json::{Value, json};

use crate::{
    facts::{Fact, ccm::ONLY},
    provider::{
        CCM, FactOrText, Phase,
        folder::Manifest,
        kubernetes::{CONTROL_PLANE_LABEL, INSTANCE_LABEL},
        verify::parts::{Defects, Part, RuleInput, items},
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

/// Taints in addition to those of every flavor: key and effect.
const TAINTS: [(&str, &str); 5] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
    ("node-role.kubernetes.io/etcd", "NoExecute"),
    ("CriticalAddonsOnly", "NoSchedule"),
];

/// Whether a pod does not belong to the node manager, which runs on every node.
fn is_of_control_plane(pod: &Part) -> bool {
    !pod.input.parsed.of_kubernetes().is_some_and(|one| one.is_of_node_manager(&pod.manifest.object))
}

/// Checks that the node manager is a DaemonSet.
pub(super) fn node_manager(input: RuleInput, defects: &mut Defects) {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return };
    let Some(name) = &descriptor.node_manager else { return };
    let is_one = |Manifest { object, .. }: &Manifest| {
        object.kind().kind == "DaemonSet" && object.name() == name && descriptor.is_of_node_manager(object)
    };
    if !input.manifests(Phase::Cluster).any(is_one) {
        let what = format!("no DaemonSet {name} has the label app.kubernetes.io/name: {name}");
        defects.add(input.parsed.descriptor_error("/nodeManager", what));
    }
}

pub(super) fn non_root(pod: &Part, defects: &mut Defects) {
    pod.require("/securityContext/runAsNonRoot", |value| *value == true, "runAsNonRoot is not true", defects);
    // The kubelet refuses an image whose user is a name.
    pod.require("/securityContext/runAsUser", Value::is_u64, "runAsUser is not a number", defects);
}

pub(super) fn node_affinity(pod: &Part, defects: &mut Defects) {
    if !is_of_control_plane(pod) {
        return;
    }
    if pod.value["nodeSelector"].get(CONTROL_PLANE_LABEL).is_some() {
        defects.add(pod.defect("/nodeSelector", "nodeSelector compares the value of the label"));
    } else if !pod.affinity_terms().iter().any(requires_control_plane) {
        defects.add(pod.defect("/affinity", "the label of the control plane is not required by Exists"));
    }
}

/// Whether a term of a node affinity requires the label of the control plane, whatever its value.
pub(super) fn requires_control_plane(term: &Value) -> bool {
    let is_label = |wanted: &Value| wanted["key"] == CONTROL_PLANE_LABEL && wanted["operator"] == "Exists";
    items(&term["matchExpressions"]).iter().any(is_label)
}

pub(super) fn tolerations(pod: &Part, defects: &mut Defects) {
    for (key, effect) in TAINTS {
        require_toleration(pod, key, effect, defects);
    }
}

fn require_toleration(pod: &Part, key: &str, effect: &str, defects: &mut Defects) {
    if !tolerates(items(&pod.value["tolerations"]), key, effect) {
        defects.add(pod.defect("/tolerations", format!("no toleration of the taint {key}:{effect}")));
    }
}

fn tolerates(tolerations: &[Value], key: &str, effect: &str) -> bool {
    tolerations.iter().any(|one| {
        (one["key"] == key || one["key"].is_null())
            && one["operator"] == "Exists"
            && (one["effect"] == effect || one["effect"].is_null())
    })
}

pub(super) fn webhook_port(ccm: &Part, defects: &mut Defects) {
    let flag = "--webhook-secure-port";
    let descriptor = ccm.input.parsed.of_kubernetes();
    if !descriptor.is_some_and(|one| one.absent_flags.iter().any(|one| one == flag)) {
        ccm.require_flag(flag, |value| value == Some("0"), "0", defects);
    }
}

pub(super) fn arguments(input: RuleInput, defects: &mut Defects) {
    let Some(descriptor) = input.parsed.of_kubernetes() else { return };
    let set = descriptor.arguments.get(CCM);
    let mut check = |pointer: &str, (flag, fact): (&str, Fact)| {
        let source = set.and_then(|flags| flags.get(flag));
        let is_it = |value: &FactOrText| {
            *value == FactOrText::Fact(fact)
                || (fact == Fact::Controllers && *value == FactOrText::Fact(Fact::OldControllers))
        };
        if !source.is_some_and(|source| is_it(&source.value)) {
            defects.add(input.parsed.descriptor_error(pointer, format!("{flag} is not the fact {}", fact.name())));
        }
    };
    for flag in FLAGS {
        check("/arguments", flag);
    }
    if descriptor.routes.is_some() {
        check("/routes", ("--cluster-cidr", Fact::PodCidrs));
    }
}

pub(super) fn instance_label(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let labels = [
        "/metadata/labels",
        "/spec/selector/matchLabels",
        "/spec/template/metadata/labels",
        "/spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/\
         matchLabels",
    ];
    for pointer in labels {
        let own = manifest.object.value().pointer(pointer);
        let is_needed = own.is_some() || pointer == "/metadata/labels";
        if is_needed && own.and_then(|labels| labels.get(INSTANCE_LABEL)).is_none_or(|name| name != ONLY) {
            defects.add(manifest.defect(pointer, format!("no label {INSTANCE_LABEL}: {ONLY}")));
        }
    }
}

/// Checks the strategy of a Deployment whose replicas share a host port: the other replicas stay until a new pod is ready.
pub(super) fn deployment_strategy(pod: &Part, defects: &mut Defects) {
    if pod.kind() == "Deployment" && is_of_control_plane(pod) {
        let what = "the strategy is not RollingUpdate with maxSurge 0 and maxUnavailable 1";
        require_strategy(pod, "/spec/strategy", &json!({"maxSurge": 0, "maxUnavailable": 1}), what, defects);
    }
}

/// Checks the strategy of a DaemonSet whose pods share a host port, and the toleration that makes it count dead nodes. Half of three
/// nodes, rounded up, is two, so one may be dead; half of two is one. A node manager has pods on many nodes; several may be dead.
pub(super) fn daemon_set_strategy(pod: &Part, defects: &mut Defects) {
    if pod.kind() == "DaemonSet" {
        let what = "the updateStrategy is not RollingUpdate with maxSurge 0 and maxUnavailable 50%";
        let half = json!({"maxSurge": 0, "maxUnavailable": "50%"});
        require_strategy(pod, "/spec/updateStrategy", &half, what, defects);
        require_toleration(pod, "node.kubernetes.io/unreachable", "NoSchedule", defects);
    }
}

fn require_strategy(pod: &Part, pointer: &str, wanted: &Value, what: &str, defects: &mut Defects) {
    let strategy = pod.manifest.object.value().pointer(pointer).unwrap_or(&Value::Null);
    if strategy["type"] != "RollingUpdate" || strategy["rollingUpdate"] != *wanted {
        defects.add(pod.manifest.defect(pointer, what));
    }
}

/// Checks that a budget does not count broken replicas.
pub(super) fn eviction_policy(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let is_wrong = || manifest.object.value()["spec"]["unhealthyPodEvictionPolicy"] != "AlwaysAllow";
    if manifest.is("PodDisruptionBudget") && is_wrong() {
        defects.add(manifest.defect("/spec", "unhealthyPodEvictionPolicy is not AlwaysAllow"));
    }
}

pub(super) fn disruption_budget(pod: &Part, defects: &mut Defects) {
    let has_budget = || pod.input.manifests(Phase::Cluster).any(|one| one.is("PodDisruptionBudget"));
    if pod.is_deployment() && !has_budget() {
        defects.add(pod.manifest.defect("/spec", "a Deployment without a PodDisruptionBudget"));
    }
}
