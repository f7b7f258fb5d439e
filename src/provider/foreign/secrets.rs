//! The rule about Secrets: which ones pods and accounts use, and which ones roles let be read (pure).

use serde_json::Value;

use crate::{
    facts::DEFAULT_NAMESPACE,
    provider::{
        Error, Flavour, Phase,
        foreign::{Values, rights},
        upstream::{CLOUD_CONFIG_VOLUME, CREDENTIALS_VOLUME},
        verify::{
            folder::walk,
            parts::{Part, Subject, items},
        },
    },
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
    (Error { problem: format!("Secret {value} is not declared"), ..defect }, value)
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
    let replaced = replaced(subject, pod);
    let mut found = Vec::new();
    let mut see = |pointer: String, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            found.push((pointer, name.to_owned()));
        }
    };
    walk(pod.value, "", &mut |pointer, value| {
        if replaced.iter().any(|volume| pointer == volume || pointer.starts_with(&format!("{volume}/"))) {
            return;
        }
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
    });
    found
}

/// The volumes that the operator gives the source that the `CloudControllerManager` names, or removes.
fn replaced(subject: Subject, pod: &Part) -> Vec<String> {
    let Some(descriptor) = subject.bundle.upstream.as_ref().filter(|_| pod.manifest.phase == Phase::Cluster) else {
        return Vec::new();
    };
    let is_declared = |name: &str| match name {
        CLOUD_CONFIG_VOLUME => descriptor.cloud_config.is_some(),
        CREDENTIALS_VOLUME => descriptor.credentials.is_some(),
        _ => false,
    };
    let volumes = items(&pod.value["volumes"]).iter().enumerate();
    let replaced = volumes.filter(|(_, volume)| volume["name"].as_str().is_some_and(is_declared));
    replaced.map(|(index, _)| format!("/volumes/{index}")).collect()
}

/// The Secrets that pods of an account may mount, and those with which their images are pulled.
fn in_account(account: &Value) -> Vec<(String, String)> {
    let of_field = |field: &'static str| {
        let names = items(&account[field]).iter().enumerate();
        names.filter_map(move |(index, one)| Some((format!("/{field}/{index}"), one["name"].as_str()?.to_owned())))
    };
    ["secrets", "imagePullSecrets"].into_iter().flat_map(of_field).collect()
}
