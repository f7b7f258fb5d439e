//! Generates the CustomResourceDefinition from the Rust types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{CLOUD_CONTROLLER_MANAGER, GROUP, spec::Spec, status::Status};
use crate::text::yaml;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../install/00_cloudcontrollermanager.crd.yaml");

/// Returns the schema of a type in the form that API servers accept.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    if let Value::Object(fields) = &mut schema {
        fields.remove("title");
    }
    schema
}

/// Removes null: no field and no default may be null. Merges the values of an enumeration into one list.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            if let Some(Value::Array(values)) = fields.remove("oneOf") {
                let names: Vec<_> = values.iter().map(|value| value["enum"][0].clone()).collect();
                fields.extend([("enum".to_owned(), names.into()), ("type".to_owned(), "string".into())]);
            }
            // A schema, or null.
            if let Some(Value::Array(values)) = fields.remove("anyOf")
                && let Some(Value::Object(first)) = values.into_iter().next()
            {
                fields.extend(first);
            }
            fields.remove("nullable");
            fields.retain(|name, value| match name.as_str() {
                "additionalProperties" => *value != false,
                "default" => !value.is_null(),
                // The API server knows no unsigned formats, and warns about them.
                "format" => !value.as_str().is_some_and(|format| format.starts_with("uint")),
                _ => true,
            });
            if let Some(Value::Object(default)) = fields.get_mut("default") {
                default.retain(|_, value| !value.is_null());
            }
            if let Some(Value::Array(required)) = fields.get_mut("required") {
                required.sort_by_key(Value::to_string);
            }
            for limit in ["minimum", "maximum"] {
                if let Some(number) = fields.get(limit).and_then(Value::as_f64) {
                    fields.insert(limit.to_owned(), number.into());
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Removes the defaults, because the operator writes the status completely.
fn without_defaults(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.remove("default");
        fields.values_mut().for_each(without_defaults);
    }
}

fn definition() -> Value {
    let kind = &CLOUD_CONTROLLER_MANAGER;
    let mut status = schema::<Status>();
    without_defaults(&mut status);
    let root = json!({
        "description": "A cloud-controller-manager that the operator installs and keeps installed. A user who may write this object \
                        decides what runs with the credentials of the cloud and with permissions on every node: that is \
                        cluster-admin in effect.",
        "title": kind.kind,
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": schema::<Spec>(), "status": status},
        "x-kubernetes-validations": [
            {"rule": "self.metadata.name.size() <= 40", "message": "a name has at most 40 characters"},
            {
                "rule": "self.metadata.name != 'next' && !self.metadata.name.endsWith('-next')",
                "message": "a name does not end with next, which stands for objects that replace others",
            },
        ],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{GROUP}", kind.plural)},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.kind,
                "plural": kind.plural,
                "singular": kind.kind.to_lowercase(),
                "shortNames": ["ccm"],
                "categories": ["cloud"],
            },
            "scope": "Cluster",
            "versions": [{
                "name": kind.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": root},
                "additionalPrinterColumns": [
                    {"name": "Provider", "type": "string", "jsonPath": ".spec.provider"},
                    {"name": "Version", "type": "string", "jsonPath": ".status.provider.version"},
                    {"name": "Ready", "type": "string", "jsonPath": r#".status.conditions[?(@.type=="Ready")].status"#},
                    {"name": "Reason", "type": "string", "jsonPath": r#".status.conditions[?(@.type=="Ready")].reason"#},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    {"name": "Distribution", "type": "string", "jsonPath": ".status.cluster.distribution", "priority": 1},
                ],
            }],
        },
    })
}

#[test]
fn the_custom_resource_definition_is_current() {
    let crd = yaml::to_string(&definition()).unwrap();
    let text = format!("# Generated from crates/core/src/api/ by `make generate`.\n{crd}");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(PATH, &text).unwrap();
    }
    assert!(std::fs::read_to_string(PATH).unwrap_or_default() == text, "{PATH} is out of date: run `make generate`");
}
