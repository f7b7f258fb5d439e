//! Generates the CustomResourceDefinition from the Rust types.

use kube::{CustomResource, core::CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CLOUD_CONTROLLER_MANAGER, GROUP, spec::Spec, status::Status};
use crate::text::yaml;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install/00_cloudcontrollermanager.crd.yaml");

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "ccm-operator.dev",
    version = "v1alpha1",
    kind = "CloudControllerManager",
    status = "Status",
    shortname = "ccm",
    category = "cloud",
    doc = "A cloud-controller-manager that the operator installs and keeps installed. Who may write this object decides what runs with \
           the credentials of the cloud and with permissions on every node: that is cluster-admin in effect.",
    validation = kube::core::Rule::new("self.metadata.name.size() <= 40").message("a name has at most 40 characters"),
    validation = kube::core::Rule::new("self.metadata.name != 'next' && !self.metadata.name.endsWith('-next')")
        .message("a name does not end with next, which stands for objects that replace others"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.provider.version"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Distribution", type_ = "string", json_path = ".status.cluster.distribution", priority = "1"),
)]
#[serde(transparent)]
struct Specification(Spec);

/// Absent is absent: no field may be null, and no default is.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("nullable");
            // The API server knows no unsigned formats, and warns about them.
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            fields.retain(|name, value| !(name == "default" && value.is_null()));
            if let Some(Value::Object(default)) = fields.get_mut("default") {
                default.retain(|_, value| !value.is_null());
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// What the operator writes has no defaults: it is written whole.
fn without_defaults(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.remove("default");
        fields.values_mut().for_each(without_defaults);
    }
}

#[test]
fn the_custom_resource_definition_is_current() {
    let mut crd = serde_json::to_value(CloudControllerManager::crd()).unwrap();
    tidy(&mut crd);
    let status = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status");
    without_defaults(status.expect("a status"));
    assert_eq!(crd["spec"]["group"], GROUP);
    assert_eq!(crd["spec"]["names"]["plural"], CLOUD_CONTROLLER_MANAGER.plural);
    assert_eq!(crd["spec"]["versions"][0]["name"], CLOUD_CONTROLLER_MANAGER.version);
    let text = format!("# Generated from src/api/ by `make generate`.\n{}", yaml::to_string(&crd).unwrap());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(PATH, &text).unwrap();
    }
    assert!(std::fs::read_to_string(PATH).unwrap_or_default() == text, "{PATH} is out of date: run `make generate`");
}
