//! The rule about Secrets: which ones pods and accounts use, and which ones roles let be read (pure).

use serde_json::Value;

use crate::{
    error::brief,
    facts::DEFAULT_NAMESPACE,
    provider::{
        Error, Flavour, Phase,
        foreign::{Values, rights},
        upstream::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME, Descriptor},
        verify::parts::{Part, Subject, items},
    },
    text::{work, yaml::outline::walk},
};

pub(super) fn secrets(subject: Subject) -> Values {
    let of_pods = subject.pods().flat_map(|pod| {
        let found = in_pod(subject, &pod).into_iter();
        let namespace = pod.manifest.object.namespace();
        found.map(|(pointer, name)| (pod.defect(&pointer, ""), namespace, name)).collect::<Vec<_>>()
    });
    let of_accounts = subject.manifests(Phase::Cluster).filter(|one| one.object.kind().kind == "ServiceAccount");
    let of_accounts = of_accounts.flat_map(|account| {
        let found = in_account(account.object.value()).into_iter();
        found
            .map(|(pointer, name)| (account.defect(&pointer, ""), account.object.namespace(), name))
            .collect::<Vec<_>>()
    });
    let of_roles = rights::of_secrets(subject);
    let used = of_pods.chain(of_accounts).chain(of_roles);
    used.filter(|(_, namespace, name)| !is_declared(subject, namespace, name)).map(undeclared).collect()
}

fn undeclared((defect, namespace, name): (Error, &str, String)) -> (Error, String) {
    let value = format!("{namespace}/{name}");
    (defect.described(format!("Secret {} is not declared", brief(&value))), value)
}

/// Elsewhere the `CloudControllerManager` names the Secret; on OpenShift its name follows from the provider's.
fn is_declared(subject: Subject, namespace: &str, name: &str) -> bool {
    subject.bundle.flavour == Flavour::OpenShift
        && namespace == DEFAULT_NAMESPACE
        && name == format!("{}-cloud-credentials", subject.bundle.name)
}

/// The Secrets that a pod names, each with its JSON pointer. Any field of this form counts, so that no type of volume is
/// forgotten.
fn in_pod(subject: Subject, pod: &Part) -> Vec<(String, String)> {
    let descriptor = subject.bundle.upstream.as_ref().filter(|_| pod.manifest.phase == Phase::Cluster);
    let is_replaced = |volume: &Value| descriptor.is_some_and(|one| is_replaced(one, volume));
    let mut found = Vec::new();
    let mut see = |pointer: String, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            found.push((pointer, name.to_owned()));
        }
    };
    let mut look = |pointer: &str, value: &Value| {
        work::add(1);
        for (field, reference) in value.as_object().into_iter().flatten() {
            let pointer = format!("{pointer}/{field}");
            if field == "secretName" {
                see(pointer, reference);
            } else if field == "imagePullSecrets" {
                for one in items(reference) {
                    see(pointer.clone(), &one["name"]);
                }
            } else if field == "secret" || field == "secretKeyRef" || field.ends_with("ecretRef") {
                see(pointer, &reference["name"]);
            }
        }
    };
    look("", pod.value);
    for (field, value) in pod.value.as_object().into_iter().flatten() {
        let pointer = format!("/{field}");
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
fn in_account(account: &Value) -> Vec<(String, String)> {
    let of_field = |field: &'static str| {
        let names = items(&account[field]).iter().enumerate();
        names.filter_map(move |(index, one)| Some((format!("/{field}/{index}"), one["name"].as_str()?.to_owned())))
    };
    ["secrets", "imagePullSecrets"].into_iter().flat_map(of_field).collect()
}
