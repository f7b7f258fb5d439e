//! What the pods read besides their arguments: the cloud's configuration, credentials, trusted certificates (pure).
//!
//! The manifests mount volumes with fixed names. Their source is what the `CloudControllerManager` names; a volume without a
//! source is left out, with its mounts.

use std::path::Path;

use serde_json::{Value, json};

use super::pod_mut;
use crate::{
    api::spec::{CloudConfig, KeyReference},
    facts::manager::Manager,
    object::Object,
    plan::substitute::{containers_mut, push},
    provider::upstream::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME, Descriptor, INSTANCE_LABEL},
};

const TRUST_BUNDLE: &str = "trust-bundle";

/// The file of the trusted certificates, where programs look for them.
const CERTIFICATES: &str = "ca-certificates.crt";

/// Sets the sources of the volumes, and the variables with credentials.
pub(super) fn mount(descriptor: &Descriptor, object: &mut Object, manager: &Manager) {
    let spec = &manager.spec;
    let file = descriptor.cloud_config.as_ref().map(|config| config.file.as_str());
    let config = file.zip(spec.cloud_config.as_ref()).map(|(file, config)| config_source(file, config, manager));
    source(object, CLOUD_CONFIG_VOLUME, config.as_ref());
    if config.is_none() {
        for container in containers_mut(object, &["containers"]) {
            if let Some(args) = container.get_mut("args").and_then(Value::as_array_mut) {
                args.retain(|argument| !argument.as_str().is_some_and(|text| text.starts_with("--cloud-config=")));
            }
        }
    }
    let bundle = spec.trust_bundle.as_ref().map(|bundle| of_config_map(&bundle.config_map_ref, CERTIFICATES));
    source(object, TRUST_BUNDLE, bundle.as_ref());
    let secret = spec.credentials.as_ref().map(|credentials| credentials.secret_ref.name.as_str());
    let needed = descriptor.credentials.as_ref();
    let variables = needed.map(|needed| &needed.environment).filter(|variables| !variables.is_empty());
    let is_volume = needed.is_some() && variables.is_none();
    let volume = secret.filter(|_| is_volume).map(|secret| json!({"secret": {"secretName": secret}}));
    source(object, CREDENTIALS_VOLUME, volume.as_ref());
    let (Some(secret), Some(needed), Some(variables)) = (secret, needed, variables) else { return };
    for container in containers_mut(object, &["containers"]) {
        for (variable, key) in variables {
            let mut reference = json!({"name": secret, "key": key});
            if needed.optional_keys.contains(key) {
                reference["optional"] = true.into();
            }
            push(container, "env", json!({"name": variable, "valueFrom": {"secretKeyRef": reference}}));
        }
    }
}

/// Gives a volume its source, or takes it out with its mounts, and with the variables that name a file in it.
fn source(object: &mut Object, name: &str, source: Option<&Value>) {
    let Some(volumes) = pod_mut(object).and_then(|pod| pod.get_mut("volumes")).and_then(Value::as_array_mut) else {
        return;
    };
    if let Some(source) = source {
        for volume in volumes.iter_mut().filter(|volume| volume["name"] == name) {
            *volume = source.clone();
            volume["name"] = name.into();
        }
        return;
    }
    volumes.retain(|volume| volume["name"] != name);
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) else { continue };
        let left_out: Vec<_> = mounts.extract_if(.., |mount| mount["name"] == name).collect();
        let folders: Vec<_> = left_out.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
        let is_in = |path: &str| folders.iter().any(|folder| Path::new(path).starts_with(folder));
        if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
            variables.retain(|variable| !variable["value"].as_str().is_some_and(is_in));
        }
        if let Some(fields) = container.as_object_mut() {
            fields.retain(|name, value| name != "env" || *value != json!([]));
        }
    }
}

fn config_source(file: &str, config: &CloudConfig, manager: &Manager) -> Value {
    match config {
        CloudConfig { config_map_ref: Some(named), .. } => of_config_map(named, file),
        CloudConfig { secret_ref: Some(named), .. } => {
            json!({"secret": {"secretName": named.name, "items": [{"key": named.key, "path": file}]}})
        }
        CloudConfig { .. } => of_config_map(&KeyReference { name: inline_name(manager), key: file.to_owned() }, file),
    }
}

fn of_config_map(named: &KeyReference, file: &str) -> Value {
    json!({"configMap": {"name": named.name, "items": [{"key": named.key, "path": file}]}})
}

/// The ConfigMap with a configuration that stands in the object itself.
fn inline_name(manager: &Manager) -> String {
    manager.named("cloud-controller-manager-config")
}

/// The ConfigMap with a configuration that stands in the object itself, if one does.
pub(super) fn inline(descriptor: &Descriptor, manager: &Manager) -> Option<Object> {
    let file = &descriptor.cloud_config.as_ref()?.file;
    let text = manager.spec.cloud_config.as_ref()?.inline.as_ref()?;
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": inline_name(manager),
            "namespace": manager.spec.namespace,
            "labels": {INSTANCE_LABEL: manager.name},
        },
        "data": {file: text},
    });
    Object::new(config_map).ok()
}
