//! Objects of other managers that must survive.

use super::*;

/// Creates other objects of each kind in each place of any plan: without our label, with the label of another set, and
/// with a copy of our label.
pub(super) async fn decoys(lab: &Lab, locations: &BTreeSet<Location>) -> Result<Vec<(&'static Kind, Value)>> {
    let labels = [
        ("plain", json!({"app.kubernetes.io/part-of": "ccm-operator"})),
        ("other-set", json!({PART_OF_LABEL: inventory::set_id("another-namespace")})),
        ("copied", json!({PART_OF_LABEL: inventory::set_id(OWN_NAMESPACE)})),
    ];
    let mut made = Vec::new();
    for location in locations {
        for (name, labels) in &labels {
            let mut object = bare(location.kind);
            object["apiVersion"] = location.kind.api_version().into();
            object["kind"] = location.kind.kind.into();
            object["metadata"] = json!({"name": format!("decoy-{name}"), "labels": labels});
            if location.kind.namespaced {
                object["metadata"]["namespace"] = location.namespace.as_str().into();
            }
            let api = request::api(&lab.client, location.kind, &location.namespace);
            let params = PostParams { field_manager: Some("somebody".into()), ..PostParams::default() };
            let live = api.create(&params, &serde_json::from_value(object)?).await?;
            made.push((location.kind, serde_json::to_value(&live)?));
        }
    }
    Ok(made)
}

/// The smallest object of a kind that the API server accepts.
fn bare(kind: &Kind) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let workload = json!({
        "selector": {"matchLabels": {"app": "decoy"}},
        "template": {
            "metadata": {"labels": {"app": "decoy"}},
            "spec": {"containers": [{"name": "decoy", "image": "decoy"}]},
        },
    });
    match kind.kind {
        "Deployment" | "DaemonSet" => json!({"spec": workload}),
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "PodDisruptionBudget" => json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "decoy"}}}}),
        "RoleBinding" | "ClusterRoleBinding" => json!({"roleRef": role}),
        "ValidatingAdmissionPolicy" => json!({"spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["decoy.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["decoys"],
            }]},
            "validations": [{"expression": "true"}],
        }}),
        "ValidatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "decoy", "validationActions": ["Warn"]}}),
        _ => json!({}),
    }
}

/// The parts of an object that only the operator would change.
pub(super) fn untouched(object: &Value) -> Value {
    let mut parts = object.clone();
    if let Some(fields) = parts.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = parts["metadata"].as_object_mut() {
        metadata.retain(|field, _| ["uid", "generation", "labels", "deletionTimestamp"].contains(&field.as_str()));
    }
    parts
}
