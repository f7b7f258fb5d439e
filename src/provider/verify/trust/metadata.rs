//! Rules about metadata (pure): labels, annotations, and the selectors that use them.

use serde_json::Value;

use super::pods::{each, fields};
use crate::{
    error::brief,
    provider::{
        Phase,
        folder::Manifest,
        verify::{
            Values,
            parts::{Input, items},
        },
    },
};

/// The fields of metadata that a manifest needs.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Annotations without power.
const ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/default-container", "target.workload.openshift.io/management"];

/// Labels whose value is the provider's own.
const OWN: [&str; 2] = ["app.kubernetes.io/name", "k8s-app"];

/// Labels that say nothing to programs.
const FREE: [&str; 5] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "infrastructure.openshift.io/cloud-controller-manager",
];

/// The label by which the operator tells objects of several `CloudControllerManager`s apart, and its value in a manifest.
const INSTANCE: (&str, &str) = ("app.kubernetes.io/instance", "cluster");

/// Where an object, and the pods of one, have metadata.
pub(super) const PLACES: [&str; 2] = ["/metadata", "/spec/template/metadata"];

pub(super) fn metadata(input: Input) -> Values {
    let of_manifest = |manifest: &Manifest| -> Values {
        let mut found = Vec::new();
        for place in PLACES {
            let Some(metadata) = manifest.object.value().pointer(place) else { continue };
            for field in fields(metadata).filter(|field| !METADATA.contains(field)) {
                found.push((
                    manifest.defect(&format!("{place}/{field}"), format!("metadata.{}", brief(field))),
                    field.to_owned(),
                ));
            }
            let annotations = &metadata["annotations"];
            // A rule of its own refuses AppArmor's.
            let is_usual = |key: &&str| {
                ANNOTATIONS.contains(key) || key.starts_with("container.apparmor.security.beta.kubernetes.io/")
            };
            for key in fields(annotations).filter(|key| !is_usual(key)) {
                let pointer = format!("{place}/annotations/{}", escaped(key));
                found.push((manifest.defect(&pointer, format!("the annotation {}", brief(key))), key.to_owned()));
            }
        }
        found
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

pub(super) fn labels(input: Input) -> Values {
    let own = own(input);
    let is_usual = |key: &str, value: &str| {
        FREE.contains(&key)
            || (key, value) == INSTANCE
            || (OWN.contains(&key) && value.starts_with(&own))
            // A rule of its own refuses these.
            || key.contains("aggregate-to-")
    };
    let of_manifest = |manifest: &Manifest| -> Values {
        let mut found = Vec::new();
        for place in PLACES {
            let Some(Value::Object(labels)) = manifest.object.value().pointer(&format!("{place}/labels")) else {
                continue;
            };
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default();
                if !is_usual(key, value) {
                    let pointer = format!("{place}/labels/{}", escaped(key));
                    found.push((
                        manifest.defect(&pointer, format!("the label {}={}", brief(key), brief(value))),
                        format!("{key}={value}"),
                    ));
                }
            }
        }
        found
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

pub(super) fn selectors(input: Input) -> Values {
    let own = own(input);
    let of_manifest = |manifest: &Manifest| {
        let place = match manifest.object.kind().kind {
            "PodDisruptionBudget" => "/spec/selector/matchLabels",
            "Service" => "/spec/selector",
            _ => return None,
        };
        if has_own(manifest.object.value().pointer(place), &own) {
            return None;
        }
        let value = manifest.title();
        let problem = format!(
            "{}: its selector has no label {} with a value that begins with {own}",
            brief(&value),
            OWN.join(" or ")
        );
        Some((manifest.defect("/spec", problem), value))
    };
    let of_pods = each(input.pods(), |pod| others(&pod.value["affinity"], &own));
    input.parsed.manifests.iter().filter_map(of_manifest).chain(of_pods).collect()
}

/// The workloads whose pods, or the selector that they find them by, have no label of the provider's own.
pub(super) fn pod_labels(input: Input) -> Values {
    let own = own(input);
    let of_manifest = |manifest: &Manifest| {
        let object = manifest.object.value();
        // What is of another phase is refused as such.
        if manifest.phase != Phase::Cluster || manifest.object.pod_spec_pointer() != Some("/spec/template/spec") {
            return None;
        }
        let without = |pointer: &&str| !has_own(object.pointer(pointer), &own);
        let place = ["/spec/selector/matchLabels", "/spec/template/metadata/labels"].into_iter().find(without)?;
        let value = manifest.title();
        let field = place.trim_start_matches('/').replace('/', ".");
        let problem = format!("{value}: {field} has no label {} with a value that begins with {own}", OWN.join(" or "));
        Some((manifest.defect("/spec", problem), value))
    };
    input.parsed.manifests.iter().filter_map(of_manifest).collect()
}

/// The budgets that let no pod be evicted, or may: how many pods there are follows from the cluster.
pub(super) fn budgets(input: Input) -> Values {
    let of_manifest = |manifest: &Manifest| {
        let spec = &manifest.object.value()["spec"];
        let (field, why) = if !spec["minAvailable"].is_null() {
            ("minAvailable", "lets no pod be evicted where there are no more")
        } else if !spec["maxUnavailable"].is_null() && number(&spec["maxUnavailable"]) < 1.0 {
            ("maxUnavailable", "lets no pod be evicted")
        } else {
            return None;
        };
        let value = manifest.title();
        let problem = format!("{}: {field} {why}", brief(&value));
        Some((manifest.defect(&format!("/spec/{field}"), problem), value))
    };
    let is_budget = |manifest: &&Manifest| manifest.object.kind().kind == "PodDisruptionBudget";
    input.parsed.manifests.iter().filter(is_budget).filter_map(of_manifest).collect()
}

/// A number of pods or a percentage of them, without the sign; 0 if it is neither.
fn number(value: &Value) -> f64 {
    let of_text = |text: &str| text.trim_end_matches('%').parse::<u32>().ok().map(f64::from);
    value.as_f64().or_else(|| value.as_str().and_then(of_text)).unwrap_or_default()
}

/// The terms of an affinity that are about the pods of others: a pod that must not be beside them keeps them away from its place.
fn others(affinity: &Value, own: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, term) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
        ] {
            for (index, one) in items(&affinity[kind][list]).iter().enumerate() {
                let one = one.pointer(term).unwrap_or(&Value::Null);
                let is_elsewhere = ["namespaces", "namespaceSelector"].iter().any(|field| !one[field].is_null());
                if is_elsewhere || !has_own(one.pointer("/labelSelector/matchLabels"), own) {
                    let pointer = format!("/affinity/{kind}/{list}/{index}");
                    found.push((pointer, format!("{kind} for the pods of others"), kind.to_owned()));
                }
            }
        }
    }
    found
}

/// Whether labels have one of the provider's own, whose value begins so.
fn has_own(labels: Option<&Value>, own: &str) -> bool {
    let has = |labels: &Value| OWN.iter().any(|key| labels[*key].as_str().is_some_and(|value| value.starts_with(own)));
    labels.is_some_and(has)
}

/// How names of a provider's own begin.
pub(super) fn own(input: Input) -> String {
    format!("{}-cloud-", input.parsed.name)
}

/// A key in a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
