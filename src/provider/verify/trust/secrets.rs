//! The rule about Secrets: those that pods and accounts use, and those that roles allow to read (pure).

use std::borrow::Cow;

use serde_json::Value;

use super::permissions;
use crate::{
    error::brief,
    facts::DEFAULT_NAMESPACE,
    provider::{
        Error, Flavor, Phase,
        kubernetes::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME, Descriptor},
        verify::{
            Values,
            parts::{Input, Part, items},
        },
    },
    text::{
        work,
        yaml::outline::{child, walk},
    },
};

/// Where a Secret is named, and its namespace and name.
type Used<'a> = (Error, &'a str, Cow<'a, str>);

pub(super) fn secrets(input: Input) -> Values {
    let of_pods = input.pods().flat_map(|pod| {
        let found = in_pod(input, &pod).into_iter();
        let namespace = pod.manifest.object.namespace();
        found.map(|(pointer, name)| -> Used { (pod.defect(&pointer, ""), namespace, name.into()) }).collect::<Vec<_>>()
    });
    let of_accounts = input.manifests(Phase::Cluster).filter(|one| one.object.kind().kind == "ServiceAccount");
    let of_accounts = of_accounts.flat_map(|account| {
        let (found, namespace) = (in_account(account.object.value()).into_iter(), account.object.namespace());
        found
            .map(|(pointer, name)| -> Used { (account.defect(&pointer, ""), namespace, name.into()) })
            .collect::<Vec<_>>()
    });
    let of_roles = permissions::of_secrets(input).into_iter();
    let of_roles = of_roles.map(|(defect, namespace, name)| -> Used { (defect, namespace, name.into()) });
    let used = of_pods.chain(of_accounts).chain(of_roles);
    used.filter(|(_, namespace, name)| !is_declared(input, namespace, name)).map(undeclared).collect()
}

fn undeclared((defect, namespace, name): Used) -> (Error, String) {
    let value = format!("{namespace}/{name}");
    work::add(value.len());
    (defect.described(format!("Secret {} is not declared", brief(&value))), value)
}

/// Elsewhere the `CloudControllerManager` names the Secret; on OpenShift its name follows from the provider's.
fn is_declared(input: Input, namespace: &str, name: &str) -> bool {
    input.parsed.flavor == Flavor::OpenShift
        && namespace == DEFAULT_NAMESPACE
        && name == format!("{}-cloud-credentials", input.parsed.name)
}

/// The Secrets that a pod names, each with its JSON pointer. Any field of this form counts, so that no type of volume is
/// forgotten.
fn in_pod<'a>(input: Input, pod: &Part<'a>) -> Vec<(String, &'a str)> {
    let descriptor = input.parsed.of_kubernetes().filter(|_| pod.manifest.phase == Phase::Cluster);
    let is_replaced = |volume: &Value| descriptor.is_some_and(|one| is_replaced(one, volume));
    let mut found = Vec::new();
    let mut see = |pointer: String, name: &'a Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            found.push((pointer, name));
        }
    };
    let mut look = |pointer: &str, value: &'a Value| {
        work::add(1);
        for (field, reference) in value.as_object().into_iter().flatten() {
            let at = || child(pointer, field);
            if field == "secretName" {
                see(at(), reference);
            } else if field == "imagePullSecrets" {
                for one in items(reference) {
                    see(at(), &one["name"]);
                }
            } else if field == "secret" || field == "secretKeyRef" || field.ends_with("ecretRef") {
                see(at(), &reference["name"]);
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
    found
}

/// Whether the operator gives a volume the source that the `CloudControllerManager` names, or removes it.
fn is_replaced(descriptor: &Descriptor, volume: &Value) -> bool {
    match volume["name"].as_str() {
        Some(CLOUD_CONFIG_VOLUME) => descriptor.cloud_config.is_some(),
        Some(CREDENTIALS_VOLUME) => descriptor.credentials.is_some(),
        _ => false,
    }
}

/// The Secrets that pods of an account may mount, and those with which their images are pulled.
fn in_account(account: &Value) -> Vec<(String, &str)> {
    let of_field = |field: &'static str| {
        let names = items(&account[field]).iter().enumerate();
        names.filter_map(move |(index, one)| Some((format!("/{field}/{index}"), one["name"].as_str()?)))
    };
    ["secrets", "imagePullSecrets"].into_iter().flat_map(of_field).collect()
}
