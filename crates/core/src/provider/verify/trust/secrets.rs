//! The rule about Secrets: those that pods and accounts use, and those that roles allow to read (pure).

use serde_json::Value;

use super::never::READ;
use crate::{
    error::brief,
    facts::DEFAULT_NAMESPACE,
    provider::{
        Error, Flavor, Phase,
        folder::Manifest,
        kubernetes::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME, Descriptor},
        verify::parts::{Defects, Part, RuleInput, items},
    },
    text::{
        work,
        yaml::outline::{child, walk},
    },
};

pub(super) fn secrets(input: RuleInput, defects: &mut Defects) {
    for pod in input.pods() {
        let mut see = |pointer: &str, name: &str| report(input, pod.manifest, pod.defect(pointer, ""), name, defects);
        in_pod(&pod, &mut see);
    }
    for account in input.manifests(Phase::Cluster).filter(|one| one.is("ServiceAccount")) {
        for (pointer, name) in in_account(account.object.value()) {
            report(input, account, account.defect(&pointer, ""), name, defects);
        }
    }
    for role in input.manifests(Phase::Cluster).filter(|one| one.is("Role")) {
        for (pointer, rule) in role.rules() {
            let reads = rule.groups.contains(&"")
                && rule.resources.contains(&"secrets")
                && rule.verbs.iter().any(|verb| READ.contains(verb));
            for name in rule.names.iter().filter(|name| reads && !name.is_empty()) {
                report(input, role, role.defect(&pointer, ""), name, defects);
            }
        }
    }
}

/// Reports a Secret that is not declared, in the namespace of the manifest that names it.
fn report(input: RuleInput, manifest: &Manifest, defect: Error, name: &str, defects: &mut Defects) {
    let namespace = manifest.object.namespace();
    if !is_declared(input, namespace, name) {
        let value = format!("{namespace}/{name}");
        work::add(value.len());
        let problem = format!("Secret {} is not declared", brief(&value));
        defects.add_unless(value, defect.described(problem));
    }
}

/// Whether a Secret is declared. On OpenShift its name depends on the provider's; elsewhere the `CloudControllerManager` names it.
fn is_declared(input: RuleInput, namespace: &str, name: &str) -> bool {
    input.parsed.flavor == Flavor::OpenShift
        && namespace == DEFAULT_NAMESPACE
        && name == format!("{}-cloud-credentials", input.parsed.name)
}

/// Finds the Secrets that a pod names, each with its JSON pointer. Any field of this form counts, so that no type of volume
/// is missed.
fn in_pod(pod: &Part, see: &mut impl FnMut(&str, &str)) {
    let descriptor = pod.input.parsed.of_kubernetes().filter(|_| pod.manifest.phase == Phase::Cluster);
    let is_replaced = |volume: &Value| descriptor.is_some_and(|one| is_replaced(one, volume));
    let mut look = |pointer: &str, value: &Value| {
        work::add(1);
        for (field, reference) in value.as_object().into_iter().flatten() {
            let names: Vec<_> = match field.as_str() {
                "secretName" => vec![reference],
                "imagePullSecrets" => items(reference).iter().map(|one| &one["name"]).collect(),
                "secret" | "secretKeyRef" => vec![&reference["name"]],
                field if field.ends_with("ecretRef") => vec![&reference["name"]],
                _ => continue,
            };
            for name in names.into_iter().filter_map(Value::as_str).filter(|name| !name.is_empty()) {
                see(&child(pointer, field), name);
            }
        }
    };
    look("", pod.value);
    for (field, value) in pod.value.as_object().into_iter().flatten() {
        let pointer = child("", field);
        if field != "volumes" {
            walk(value, &pointer, &mut look);
            continue;
        }
        for (index, volume) in items(value).iter().enumerate().filter(|(_, volume)| !is_replaced(volume)) {
            walk(volume, &format!("{pointer}/{index}"), &mut look);
        }
    }
}

/// Whether the operator sets a volume's source from the `CloudControllerManager`, or removes the volume.
fn is_replaced(descriptor: &Descriptor, volume: &Value) -> bool {
    match volume["name"].as_str() {
        Some(CLOUD_CONFIG_VOLUME) => descriptor.cloud_config.is_some(),
        Some(CREDENTIALS_VOLUME) => descriptor.credentials.is_some(),
        _ => false,
    }
}

/// Returns the Secrets that pods of an account may mount, and those for pulling their images.
fn in_account(account: &Value) -> Vec<(String, &str)> {
    let of_field = |field: &'static str| {
        let names = items(&account[field]).iter().enumerate();
        names.filter_map(move |(index, one)| Some((format!("/{field}/{index}"), one["name"].as_str()?)))
    };
    ["secrets", "imagePullSecrets"].into_iter().flat_map(of_field).collect()
}
