//! The objects with which AWS publishes its cloud-controller-manager, as a user's cluster has them: their kinds, names and permissions.

use serde_json::{Value, json};

/// The DaemonSet.
pub(crate) const DAEMON_SET: &str = "aws-cloud-controller-manager";
/// The account of the published cloud-controller-manager.
pub(crate) const ACCOUNT: &str = "cloud-controller-manager";
/// The names of the ClusterRole and its binding.
pub(crate) const PERMISSIONS: &str = "system:cloud-controller-manager";

const RBAC: &str = "rbac.authorization.k8s.io";

/// All of them, the DaemonSet with these arguments last.
pub(crate) fn objects(arguments: &[&str]) -> Vec<Value> {
    let namespaced = |name: &str| json!({"name": name, "namespace": "kube-system"});
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let all = ["get", "list", "watch", "create", "patch", "update", "delete"];
    let rules = [
        rule("", &["events"], &["create", "patch", "update"]),
        rule("", &["nodes", "nodes/status", "services", "services/status"], &all),
        rule("", &["serviceaccounts", "serviceaccounts/token"], &["create", "get", "list", "watch"]),
        rule("coordination.k8s.io", &["leases"], &all),
    ];
    let binding = |kind: &str, metadata: Value, role: (&str, &str)| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": role.0, "name": role.1},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
        })
    };
    let reader = "extension-apiserver-authentication-reader";
    let labels = json!({"k8s-app": DAEMON_SET});
    let pod = json!({
        "hostNetwork": true, "serviceAccountName": ACCOUNT,
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [{
            "name": DAEMON_SET, "image": "registry.k8s.io/provider-aws/cloud-controller-manager:v1.34.0", "args": arguments,
        }],
    });
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": namespaced(ACCOUNT)}),
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": PERMISSIONS}, "rules": rules}),
        binding("ClusterRoleBinding", json!({"name": PERMISSIONS}), ("ClusterRole", PERMISSIONS)),
        binding("RoleBinding", namespaced(&format!("{ACCOUNT}:apiserver-authentication-reader")), ("Role", reader)),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": DAEMON_SET, "namespace": "kube-system", "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        }),
    ]
}
