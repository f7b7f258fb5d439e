//! The files that the pods read: the cloud's configuration, credentials, trusted certificates (pure).
//!
//! The manifests mount volumes with fixed names. The `CloudControllerManager` names their sources. A volume without a
//! source is left out, with its mounts.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use super::pod_mut;
use crate::{
    api::spec::{CloudConfig, KeyReference},
    facts::ccm::Ccm,
    object::Object,
    plan::substitute::{containers_mut, push},
    provider::kubernetes::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME, Descriptor, INSTANCE_LABEL},
    text::work,
};

const TRUST_BUNDLE: &str = "trust-bundle";

/// The file name under which programs look for trusted certificates.
const CERTIFICATES: &str = "ca-certificates.crt";

/// Sets the sources of the volumes, and the variables with credentials.
pub(super) fn mount(descriptor: &Descriptor, object: &mut Object, ccm: &Ccm) {
    let spec = &ccm.spec;
    let file = descriptor.cloud_config.as_ref().map(|config| config.file.as_str());
    let config = file.zip(spec.cloud_config.as_ref()).map(|(file, config)| config_source(file, config, ccm));
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
    let volume = secret.filter(|_| needed.is_some()).map(|secret| json!({"secret": {"secretName": secret}}));
    source(object, CREDENTIALS_VOLUME, volume.as_ref());
    let (Some(secret), Some(needed)) = (secret, needed) else { return };
    let optional: BTreeSet<_> = needed.optional_keys.iter().collect();
    for container in containers_mut(object, &["containers"]) {
        for (variable, key) in &needed.environment {
            work::add(1);
            let mut reference = json!({"name": secret, "key": key});
            if optional.contains(key) {
                reference["optional"] = true.into();
            }
            push(container, "env", json!({"name": variable, "valueFrom": {"secretKeyRef": reference}}));
        }
    }
}

/// Sets the source of a volume, or removes the volume with its mounts and the variables that name a file in it.
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
        let folders = Folders::new(left_out.iter().filter_map(|mount| mount["mountPath"].as_str()));
        if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
            variables.retain(|variable| !variable["value"].as_str().is_some_and(|path| folders.contain(path)));
        }
        if let Some(fields) = container.as_object_mut() {
            fields.retain(|name, value| name != "env" || *value != json!([]));
        }
    }
}

/// Sorted folders, none of which contains another one. A path in a folder sorts directly after that folder, so that few comparisons
/// find it.
struct Folders<'a>(Vec<&'a Path>);

impl<'a> Folders<'a> {
    fn new(folders: impl Iterator<Item = &'a str>) -> Self {
        let mut folders: Vec<_> = folders.map(Path::new).collect();
        folders.sort_unstable();
        // Paths sort by component, so the subfolders of a folder follow it.
        folders.dedup_by(|inner, outer| inner.starts_with(outer));
        Self(folders)
    }

    /// Whether a path is one of the folders or in one of them.
    fn contain(&self, path: &str) -> bool {
        let path = Path::new(path);
        let behind = self.0.partition_point(|folder| {
            work::add(1);
            *folder <= path
        });
        behind.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|folder| path.starts_with(folder))
    }
}

fn config_source(file: &str, config: &CloudConfig, ccm: &Ccm) -> Value {
    match config {
        CloudConfig { config_map_ref: Some(named), .. } => of_config_map(named, file),
        CloudConfig { secret_ref: Some(named), .. } => {
            json!({"secret": {"secretName": named.name, "items": [{"key": named.key, "path": file}]}})
        }
        CloudConfig { .. } => of_config_map(&KeyReference { name: inline_name(ccm), key: file.to_owned() }, file),
    }
}

fn of_config_map(named: &KeyReference, file: &str) -> Value {
    json!({"configMap": {"name": named.name, "items": [{"key": named.key, "path": file}]}})
}

/// Returns the name of the ConfigMap for an inline configuration.
fn inline_name(ccm: &Ccm) -> String {
    ccm.named("cloud-controller-manager-config")
}

/// Returns the ConfigMap for an inline configuration, if there is one.
pub(super) fn inline(descriptor: &Descriptor, ccm: &Ccm) -> Option<Object> {
    let file = &descriptor.cloud_config.as_ref()?.file;
    let text = ccm.spec.cloud_config.as_ref()?.inline.as_ref()?;
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": inline_name(ccm),
            "namespace": ccm.spec.namespace,
            "labels": {INSTANCE_LABEL: ccm.name},
        },
        "data": {file: text},
    });
    Object::new(config_map).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_a_folder_by_its_parts() {
        let folders = ["/etc/a", "/etc/a/b", "/etc/a-b", "/etc/a", "/z//y/", "relative"];
        let is_in = |path: &str| folders.iter().any(|folder| Path::new(path).starts_with(folder));
        let set = Folders::new(folders.into_iter());
        for path in [
            "/etc/a",
            "/etc/a/",
            "/etc/a/b/c",
            "/etc/a/bc",
            "/etc/a-b/c",
            "/etc/a-c",
            "/etc/ab",
            "/etc",
            "/",
            "",
            "/z/y",
            "/z/y/x",
            "/z",
            "relative/a",
            "relatively",
            "text",
            "\u{10ffff}",
        ] {
            assert_eq!(set.contain(path), is_in(path), "{path}");
        }
        assert_eq!(set.0.len(), 4);
        assert!(!Folders::new([].into_iter()).contain("/a"));
    }

    #[test]
    fn the_work_for_paths_grows_with_their_number() {
        let steps = |count: usize| {
            let folders: Vec<_> = (0..count).map(|n| format!("/a/{n:05}")).collect();
            let set = Folders::new(folders.iter().map(String::as_str));
            work::of(|| assert!(folders.iter().all(|path| set.contain(&format!("{path}/x")))))
        };
        let (small, large) = (steps(400), steps(4_000));
        assert!(large < 15 * small, "{small} steps, and {large} for ten times the number");
    }
}
