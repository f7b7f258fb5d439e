//! The rule about fields: it finds fields of a manifest that the API server does not know (pure).

use std::collections::BTreeSet;

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Pod, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::{
    object::Object,
    provider::{
        folder::Manifest,
        verify::parts::{Defects, RuleInput},
    },
    text::yaml::outline::{child, walk},
};

pub(super) fn known(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    for (pointer, what) in unknown(&manifest.object) {
        defects.add(manifest.defect(&pointer, what));
    }
}

/// Reports places that the API server reads differently from the rules: the findings of [`unknown`], and each null, which is an empty
/// value to the API server and absent to the rules.
pub(super) fn misread(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let mut unknown_at = BTreeSet::new();
    for (pointer, what) in unknown(&manifest.object) {
        defects.add(manifest.defect(&pointer, what));
        unknown_at.insert(pointer);
    }
    walk(manifest.object.value(), "", &mut |pointer, value| {
        if value.is_null() && !unknown_at.contains(pointer) {
            defects.add(manifest.defect(pointer, "null, which the API server reads as an empty value"));
        }
    });
}

/// Returns the fields that the kind does not have, or has with another type: JSON pointer and text.
pub(super) fn unknown(object: &Object) -> Vec<(String, String)> {
    let lost = match object.kind().kind {
        "ClusterRole" => lost::<ClusterRole>,
        "ClusterRoleBinding" => lost::<ClusterRoleBinding>,
        "ConfigMap" => lost::<ConfigMap>,
        "DaemonSet" => lost::<DaemonSet>,
        "Deployment" => lost::<Deployment>,
        "Pod" => lost::<Pod>,
        "PodDisruptionBudget" => lost::<PodDisruptionBudget>,
        "Role" => lost::<Role>,
        "RoleBinding" => lost::<RoleBinding>,
        "Service" => lost::<Service>,
        "ServiceAccount" => lost::<ServiceAccount>,
        "ValidatingAdmissionPolicy" => lost::<ValidatingAdmissionPolicy>,
        "ValidatingAdmissionPolicyBinding" => lost::<ValidatingAdmissionPolicyBinding>,
        // A test covers every kind.
        _ => return Vec::new(),
    };
    lost(object.value())
}

/// Returns the fields that a manifest loses when it is read as its kind and written again.
fn lost<T: Serialize + DeserializeOwned>(manifest: &Value) -> Vec<(String, String)> {
    let mut manifest = manifest.clone();
    // The fields of its data are never quantities.
    if manifest["kind"] != "ConfigMap" {
        quote_quantities(&mut manifest);
    }
    let typed: T = match serde_path_to_error::deserialize(&manifest) {
        Ok(typed) => typed,
        Err(error) => return vec![(pointer(error.path()), error.into_inner().to_string())],
    };
    let mut defects = Vec::new();
    compare(&manifest, &serde_json::to_value(&typed).unwrap_or_default(), "", &mut defects);
    defects
}

/// Quotes quantities, because the API server also accepts numbers.
fn quote_quantities(value: &mut Value) {
    let quote = |value: &mut Value| {
        if let Value::Number(number) = value {
            *value = Value::String(number.to_string());
        }
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), &mut *value) {
                    ("limits" | "requests", Value::Object(amounts)) => amounts.values_mut().for_each(quote),
                    ("divisor" | "sizeLimit", amount) => quote(amount),
                    _ => quote_quantities(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quote_quantities),
        _ => {}
    }
}

fn compare(manifest: &Value, typed: &Value, at: &str, defects: &mut Vec<(String, String)>) {
    match (manifest, typed) {
        (Value::Object(fields), typed) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let at = child(at, name);
                match typed.get(name) {
                    Some(typed) => compare(value, typed, &at, defects),
                    None => defects.push((at, format!("unknown field {name}"))),
                }
            }
        }
        (Value::Array(items), Value::Array(typed)) => {
            for (index, (item, typed)) in items.iter().zip(typed).enumerate() {
                compare(item, typed, &child(at, &index.to_string()), defects);
            }
        }
        (value, typed) if value != typed => defects.push((at.to_owned(), format!("is read as {typed}"))),
        _ => {}
    }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    path.iter().fold(String::new(), |at, segment| match segment {
        Segment::Map { key } => child(&at, key),
        Segment::Seq { index } => child(&at, &index.to_string()),
        Segment::Enum { .. } | Segment::Unknown => at,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::KINDS;

    #[test]
    fn every_kind_is_checked() {
        for kind in KINDS {
            let mut manifest =
                json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "a"}, "extra": 1});
            if kind.namespaced {
                manifest["metadata"]["namespace"] = "b".into();
            }
            if kind.kind.ends_with("Binding") && kind.group.starts_with("rbac") {
                manifest["roleRef"] = json!({"apiGroup": kind.group, "kind": "Role", "name": "a"});
            }
            let defects = unknown(&Object::new(manifest).unwrap());
            assert_eq!(defects, [("/extra".to_owned(), "unknown field extra".to_owned())], "{}", kind.kind);
        }
    }

    #[test]
    fn numbers_are_quantities_and_null_is_nothing() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "creationTimestamp": null},
            "spec": {
                "containers": [{"name": "a", "resources": {"requests": {"cpu": 1, "memory": 0.5}}, "args": [], "unknown": null}],
                "volumes": [{"name": "a", "emptyDir": {"sizeLimit": 1}}, {"name": "b", "emptyDir": {}}],
            },
        });
        assert_eq!(unknown(&Object::new(pod).unwrap()), []);
    }
}
