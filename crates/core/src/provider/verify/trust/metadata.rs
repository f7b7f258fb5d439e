//! Rules about metadata (pure): labels, annotations, and the selectors that use them.

use serde_json::Value;

use super::pods::fields;
use crate::{
    error::brief,
    provider::{
        Common, DescriptorFields, Phase,
        folder::Manifest,
        restriction,
        verify::parts::{Defects, Part, RuleInput, items},
    },
    text::yaml::outline::child,
};

/// The fields of metadata that a manifest needs.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Harmless annotations.
const ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/default-container", "target.workload.openshift.io/management"];

/// Labels whose value is the provider's own.
const OWN: [&str; 2] = ["app.kubernetes.io/name", "k8s-app"];

/// Labels that no program evaluates.
const FREE: [&str; 5] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "infrastructure.openshift.io/cloud-controller-manager",
];

/// The label that distinguishes the objects of several `CloudControllerManager`s, and its value in a manifest.
const INSTANCE: (&str, &str) = ("app.kubernetes.io/instance", "cluster");

/// The JSON pointers to the metadata of an object and of its pods.
const PLACES: [&str; 2] = ["/metadata", "/spec/template/metadata"];

pub(super) fn metadata(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    // Another rule refuses the annotations of AppArmor.
    let is_usual =
        |key: &str| ANNOTATIONS.contains(&key) || key.starts_with("container.apparmor.security.beta.kubernetes.io/");
    for place in PLACES {
        let metadata = manifest.object.value().pointer(place).unwrap_or(&Value::Null);
        for field in fields(metadata).filter(|field| !METADATA.contains(field)) {
            let problem = format!("metadata.{}", brief(field));
            defects.add_unless(field, manifest.defect(&format!("{place}/{field}"), problem));
        }
        for key in fields(&metadata["annotations"]).filter(|key| !is_usual(key)) {
            let pointer = child(&format!("{place}/annotations"), key);
            defects.add_unless(key, manifest.defect(&pointer, format!("the annotation {}", brief(key))));
        }
    }
}

pub(super) fn labels(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let own = own(input);
    for (pointer, key, value) in labels_of(manifest) {
        let is_usual = FREE.contains(&key)
            || (key, value) == INSTANCE
            || (OWN.contains(&key) && value.starts_with(&own))
            // Another rule refuses these.
            || key.contains("aggregate-to-");
        if !is_usual {
            let problem = format!("the label {}={}", brief(key), brief(value));
            defects.add_unless(format!("{key}={value}"), manifest.defect(&pointer, problem));
        }
    }
}

/// Returns the labels of an object and of its pods: JSON pointer, key and value.
pub(super) fn labels_of(manifest: &Manifest) -> impl Iterator<Item = (String, &str, &str)> {
    PLACES.iter().flat_map(move |place| {
        let at = format!("{place}/labels");
        let labels = manifest.object.value().pointer(&at).and_then(Value::as_object).into_iter().flatten();
        labels.map(move |(key, value)| (child(&at, key), key.as_str(), value.as_str().unwrap_or_default()))
    })
}

pub(super) fn selectors(input: RuleInput, defects: &mut Defects) {
    input.parsed.manifests.iter().for_each(|manifest| selector(input, manifest, defects));
    input.pods().for_each(|pod| affinity(&pod, defects));
}

fn selector(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let (own, value) = (own(input), manifest.title());
    let place = match manifest.object.kind().kind {
        "PodDisruptionBudget" => "/spec/selector/matchLabels",
        "Service" => "/spec/selector",
        _ => return,
    };
    if !has_own(manifest.object.value().pointer(place), &own) {
        let keys = OWN.join(" or ");
        let problem =
            format!("{}: its selector has no label {keys} with a value that begins with {own}", brief(&value));
        defects.add_unless(&value, manifest.defect("/spec", problem));
    }
}

/// Reports workloads whose pods or selector have no label of the provider's own.
pub(super) fn pod_labels(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let own = own(input);
    // Objects of another phase are refused as such.
    if manifest.phase != Phase::Cluster || manifest.object.pod_spec_pointer() != Some("/spec/template/spec") {
        return;
    }
    let without = |pointer: &&str| !has_own(manifest.object.value().pointer(pointer), &own);
    let mut places = ["/spec/selector/matchLabels", "/spec/template/metadata/labels"].into_iter();
    if let Some(place) = places.find(without) {
        let (value, keys) = (manifest.title(), OWN.join(" or "));
        let field = place.trim_start_matches('/').replace('/', ".");
        let problem = format!("{value}: {field} has no label {keys} with a value that begins with {own}");
        defects.add_unless(value, manifest.defect("/spec", problem));
    }
}

/// Reports budgets that block every eviction, or may do so because the number of pods depends on the cluster.
pub(super) fn budgets(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let spec = &manifest.object.value()["spec"];
    let (field, why) = if !manifest.is("PodDisruptionBudget") {
        return;
    } else if !spec["minAvailable"].is_null() {
        ("minAvailable", "lets no pod be evicted where there are no more")
    } else if !spec["maxUnavailable"].is_null() && number(&spec["maxUnavailable"]) < 1.0 {
        ("maxUnavailable", "lets no pod be evicted")
    } else {
        return;
    };
    let value = manifest.title();
    let problem = format!("{}: {field} {why}", brief(&value));
    defects.add_unless(&value, manifest.defect(&format!("/spec/{field}"), problem));
}

/// Returns a number of pods, or a percentage of them without the sign; 0 if it is neither.
fn number(value: &Value) -> f64 {
    let of_text = |text: &str| text.trim_end_matches('%').parse::<u32>().ok().map(f64::from);
    value.as_f64().or_else(|| value.as_str().and_then(of_text)).unwrap_or_default()
}

/// Reports affinity terms about pods of other owners: a pod with an anti-affinity to them keeps them away from its node.
fn affinity(pod: &Part, defects: &mut Defects) {
    let own = own(pod.input);
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, term) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
        ] {
            for (index, one) in items(&pod.value["affinity"][kind][list]).iter().enumerate() {
                let one = one.pointer(term).unwrap_or(&Value::Null);
                let is_elsewhere = ["namespaces", "namespaceSelector"].iter().any(|field| !one[field].is_null());
                if is_elsewhere || !has_own(one.pointer("/labelSelector/matchLabels"), &own) {
                    let pointer = format!("/affinity/{kind}/{list}/{index}");
                    defects.add_unless(kind, pod.defect(&pointer, format!("{kind} for the pods of others")));
                }
            }
        }
    }
}

/// Whether labels include one of the provider's own, with this prefix in its value.
fn has_own(labels: Option<&Value>, own: &str) -> bool {
    let has = |labels: &Value| OWN.iter().any(|key| labels[*key].as_str().is_some_and(|value| value.starts_with(own)));
    labels.is_some_and(has)
}

/// Returns the prefix of a provider's own names.
pub(super) fn own(input: RuleInput) -> String {
    format!("{}-cloud-", input.parsed.name)
}

/// Reports prefixes in the descriptor that are not a domain, or are one that controls Kubernetes, networks or machines.
pub(super) fn prefixes(input: RuleInput, pointer: &str, of: fn(Common<'_>) -> &[String], defects: &mut Defects) {
    let is_own = |prefix: &str| {
        let domain = prefix.strip_suffix('/').filter(|domain| domain.contains('.') && !domain.contains('/'));
        let mut others = restriction::KUBERNETES.into_iter().chain(restriction::SHARED);
        let is_within = |domain: &str, other: &str| {
            domain.strip_suffix(other).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        domain.is_some_and(|domain| !others.any(|other| is_within(domain, other)))
    };
    let prefixes = input.parsed.descriptor.as_ref().map(|descriptor| of(descriptor.common())).unwrap_or_default();
    for (index, prefix) in prefixes.iter().enumerate().filter(|(_, prefix)| !is_own(prefix)) {
        let problem = format!("the prefix {:?}", brief(prefix));
        defects.add_unless(prefix, input.parsed.descriptor_error(&format!("{pointer}/{index}"), problem));
    }
}
