//! The stored fields of a node (pure): those that the diagnosis, the preflight or the deletion guard reads. Heartbeats do not change them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::placement::Distribution,
    facts::distribution,
    object::{condition, items},
    provider::kubernetes::CONTROL_PLANE_LABEL,
    text::output,
};

/// The taint of a node that waits for its cloud-controller-manager.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The taint of a node whose instance is shut down.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The annotation in which a kubelet requests the address of its `--node-ip` flag.
pub const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The annotation that protects a node from deletion by a cloud-controller-manager.
pub const KEEP: &str = "ccm-operator.dev/keep";

/// The annotation that allows a cloud-controller-manager to delete a control-plane node.
pub const ALLOW_CONTROL_PLANE: &str = "ccm-operator.dev/allow-control-plane-deletion";

/// The annotation of a node that belongs to no cloud and needs no initialization.
pub const NO_CLOUD: &str = "ccm-operator.dev/no-cloud";

/// The label of etcd nodes, for clusters where they are not part of the control plane.
pub const ETCD_LABEL: &str = "node-role.kubernetes.io/etcd";

/// The prefixes of taints that Kubernetes itself adds and removes.
const KUBERNETES_TAINTS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "what it has and what it has not")]
pub struct Node {
    /// The name.
    pub name: String,
    /// The unique id. A recreated node has a different one.
    pub uid: String,
    /// The creation time, RFC 3339. An uninitialized node has waited since then, because the kubelet registers it with the taint.
    pub created: String,
    /// `spec.providerID`; empty if not set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The keys of the taints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// The taints that keep pods away, each as `KEY=VALUE:EFFECT`, except taints that Kubernetes itself adds and removes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_taints: Vec<String>,
    /// The `Ready` condition; `None` if no kubelet has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Whether the node has a subnet for pods (`spec.podCIDR`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_pod_cidr: bool,
    /// The reason of the `NetworkUnavailable` condition, if its status is true.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_unavailable: String,
    /// The address that the kubelet requests ([`PROVIDED_IP`]).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provided_ip: String,
    /// The addresses, such as `InternalIP 10.0.0.1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The region. Region and zone are empty without the labels.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The kubelet version.
    pub kubelet: String,
    /// The distribution, if the node shows it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "named")]
    pub distribution: Option<Distribution>,
    /// The controllers of the built-in cloud controller as a `--controllers` argument, for a k3s server that shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k3s_controllers: Option<String>,
    /// The machine architecture, such as `amd64`.
    pub architecture: String,
    /// Whether the node has the control-plane label.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_control_plane: bool,
    /// Whether the node has the etcd label: k3s and RKE2 remove an etcd member when its node is deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_etcd: bool,
    /// Whether the node is cordoned (`spec.unschedulable`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cordoned: bool,
    /// Whether the node is being deleted but finalizers keep it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_terminating: bool,
    /// Whether the node has the annotation [`KEEP`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_kept: bool,
    /// Whether the node has the annotation [`ALLOW_CONTROL_PLANE`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allows_control_plane_deletion: bool,
    /// Whether the node has the annotation [`NO_CLOUD`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_no_cloud: bool,
}

/// The `Ready` condition without its heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ready {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, such as `KubeletNotReady`.
    pub reason: String,
    /// The time when the status last changed, RFC 3339, as stored.
    pub since: String,
    /// Whether the message names the network plugin (`NetworkPluginNotReady`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lacks_network: bool,
}

#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn named<S: serde::Serializer>(shown: &Option<Distribution>, serializer: S) -> Result<S::Ok, S::Error> {
    shown.map(|shown| shown.properties().name).serialize(serializer)
}

impl Node {
    /// Reads the fields of a live Node.
    pub fn of(live: &Value) -> Self {
        let (metadata, spec, status) = (&live["metadata"], &live["spec"], &live["status"]);
        // The text is untrusted and shown to users.
        let text = |value: &Value| output::printable(value.as_str().unwrap_or_default()).replace(['\n', '\t'], " ");
        let label = |name: &str| text(&metadata["labels"][name]);
        let [ready, unavailable] = ["Ready", "NetworkUnavailable"].map(|type_| condition(live, type_));
        let ready = ready.is_object().then(|| Ready {
            status: text(&ready["status"]),
            reason: text(&ready["reason"]),
            since: text(&ready["lastTransitionTime"]),
            lacks_network: ready["message"].as_str().is_some_and(|text| text.contains("NetworkPluginNotReady")),
        });
        let address = |one: &Value| format!("{} {}", text(&one["type"]), text(&one["address"]));
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let info = &status["nodeInfo"];
        let is_own = |taint: &&Value| {
            let key = taint["key"].as_str().unwrap_or_default();
            taint["effect"] != "PreferNoSchedule" && !KUBERNETES_TAINTS.iter().any(|start| key.starts_with(start))
        };
        let taint = |one: &Value| format!("{}={}:{}", text(&one["key"]), text(&one["value"]), text(&one["effect"]));
        Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            created: text(&metadata["creationTimestamp"]),
            provider_id: text(&spec["providerID"]),
            taints: items(&spec["taints"]).iter().map(|taint| text(&taint["key"])).collect(),
            own_taints: items(&spec["taints"]).iter().filter(is_own).map(taint).collect(),
            ready,
            has_pod_cidr: spec["podCIDR"].as_str().is_some_and(|subnet| !subnet.is_empty()),
            network_unavailable: if unavailable["status"] == "True" {
                text(&unavailable["reason"])
            } else {
                String::new()
            },
            provided_ip: text(&metadata["annotations"][PROVIDED_IP]),
            addresses: items(&status["addresses"]).iter().map(address).collect(),
            region: label("topology.kubernetes.io/region"),
            zone: label("topology.kubernetes.io/zone"),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            kubelet: text(&info["kubeletVersion"]),
            distribution: distribution::of_node(live),
            k3s_controllers: distribution::k3s_controllers(live),
            architecture: text(&info["architecture"]),
            is_control_plane: !metadata["labels"][CONTROL_PLANE_LABEL].is_null(),
            is_etcd: !metadata["labels"][ETCD_LABEL].is_null(),
            is_cordoned: spec["unschedulable"] == true,
            is_terminating: metadata["deletionTimestamp"].is_string(),
            is_kept: !metadata["annotations"][KEEP].is_null(),
            allows_control_plane_deletion: !metadata["annotations"][ALLOW_CONTROL_PLANE].is_null(),
            has_no_cloud: !metadata["annotations"][NO_CLOUD].is_null(),
        }
    }

    /// Whether no cloud-controller-manager has initialized the node yet.
    pub fn is_uninitialized(&self) -> bool {
        self.has_taint(UNINITIALIZED)
    }

    /// Whether the node may wait for a cloud-controller-manager: it has the taint, or its kubelet runs without a cloud and no annotation
    /// says that this is intended.
    pub fn may_wait(&self) -> bool {
        self.is_uninitialized() || (self.provider_id.is_empty() && !self.has_no_cloud)
    }

    /// Whether the node belongs to the control plane or etcd. A k3s or RKE2 server loses its etcd member when its Node is deleted.
    pub fn is_server(&self) -> bool {
        self.is_control_plane || self.is_etcd
    }

    /// Whether the node has a taint with this key.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint == key)
    }

    /// Whether the kubelet reports that the node is ready.
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.status == "True")
    }

    /// Whether the kubelet reports, and so still starts and stops pods, even if the node is not ready. Kubernetes sets the condition to
    /// `Unknown` if the kubelet stops reporting.
    pub fn has_live_kubelet(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.status != "Unknown")
    }

    /// Whether host-network pods run on the node: the node is ready, or waits only for the pod network.
    pub fn runs_pods_of_host(&self) -> bool {
        let lacks_network = |ready: &Ready| ready.status == "False" && ready.lacks_network;
        self.is_ready() || self.ready.as_ref().is_some_and(lacks_network)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_survives_the_way_into_the_store_and_no_heartbeat_changes_it() {
        let live = |heartbeat: &str| {
            json!({
                "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {CONTROL_PLANE_LABEL: "", "topology.kubernetes.io/zone": "z"},
                    "annotations": {PROVIDED_IP: "10.0.0.1", KEEP: "", NO_CLOUD: "edge"}},
                "spec": {"providerID": "aws:///z/i-1", "podCIDR": "10.1.0.0/24",
                    "taints": [
                        {"key": UNINITIALIZED, "effect": "NoSchedule", "value": "true"},
                        {"key": "dedicated", "effect": "NoExecute", "value": "gpu"},
                        {"key": "busy", "effect": "PreferNoSchedule"},
                    ]},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "conditions": [
                        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "lastHeartbeatTime": heartbeat,
                            "lastTransitionTime": "2026-01-01T00:00:01Z",
                            "message": "container runtime network not ready: reason:NetworkPluginNotReady"},
                        {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"},
                    ],
                    "images": [{"names": [heartbeat]}],
                    "nodeInfo": {"kubeletVersion": "v1.35.4+rke2r1", "architecture": "amd64"},
                },
            })
        };
        let node = Node::of(&live("2026-01-01T00:05:00Z"));
        assert_eq!(node, Node::of(&live("2026-01-01T00:10:00Z")));
        assert_eq!(serde_json::from_value::<Node>(serde_json::to_value(&node).unwrap()).unwrap(), node);
        assert!(node.is_uninitialized() && !node.is_ready() && node.is_control_plane && node.is_kept);
        assert!(node.has_no_cloud && node.is_server());
        assert_eq!(
            (&node.own_taints[..], node.distribution),
            (&["dedicated=gpu:NoExecute".to_owned()][..], Some(Distribution::Rke2))
        );
        assert!(node.has_pod_cidr && node.ready.as_ref().unwrap().lacks_network);
        assert_eq!(node.network_unavailable, "NoRouteCreated");
        assert_eq!((node.zone.as_str(), node.addresses[0].as_str()), ("z", "InternalIP 10.0.0.1"));
        let odd = Node::of(&json!({
            "metadata": {"name": "c", "annotations": {PROVIDED_IP: "1\u{9b}2J"}},
            "spec": {"providerID": "aws://\u{202e}a\n", "taints": [{"key": "a\u{1b}"}]},
            "status": {"addresses": [{"type": "Hostname", "address": "a\u{7}"}]},
        }));
        let shown = format!("{}{}{}{}", odd.provided_ip, odd.provider_id, odd.taints[0], odd.addresses[0]);
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        let bare = Node::of(&json!({"metadata": {"name": "b"}}));
        assert_eq!(serde_json::from_value::<Node>(serde_json::to_value(&bare).unwrap()).unwrap(), bare);
        assert!(!bare.is_ready() && !bare.is_uninitialized() && !bare.is_server());
    }

    #[test]
    fn a_kubelet_that_reports_lives_ready_or_not() {
        let lives = |status: &str| {
            let ready = Some(Ready { status: status.to_owned(), ..Ready::default() });
            Node { ready, ..Node::default() }.has_live_kubelet()
        };
        assert!(lives("True") && lives("False") && !lives("Unknown"));
        assert!(!Node::default().has_live_kubelet(), "it has never reported");
    }

    #[test]
    fn a_node_of_no_cloud_waits_for_none_unless_the_taint_keeps_pods_away() {
        let waits = |has_no_cloud: bool, provider_id: &str, taint: &str| {
            let (provider_id, taints) = (provider_id.to_owned(), vec![taint.to_owned()]);
            Node { provider_id, taints, has_no_cloud, ..Node::default() }.may_wait()
        };
        assert!(waits(false, "", "") && !waits(false, "aws:///i-1", "") && waits(false, "aws:///i-1", UNINITIALIZED));
        assert!(!waits(true, "", "") && !waits(true, "aws:///i-1", ""));
        assert!(waits(true, "", UNINITIALIZED) && waits(true, "aws:///i-1", UNINITIALIZED));
    }
}
