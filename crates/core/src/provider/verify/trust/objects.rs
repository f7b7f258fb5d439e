//! Rules about objects as such: kinds, names, namespaces, references among them, Services (pure).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    SYSTEM,
    metadata::{labels_of, own},
    never,
};
use crate::{
    error::brief,
    object::{KUBE_SYSTEM, POD, is_name},
    provider::{
        AUTHENTICATION_READER, Error, Phase,
        folder::Manifest,
        restriction,
        verify::parts::{Defects, Part, RuleInput, items},
    },
};

/// The suffixes of the operator's names, in addition to [`restriction::reserved`]: those of the guard of nodes and of temporary objects.
/// The name of the `CloudControllerManager` may follow.
const RESERVED: [&str; 2] = ["-delete-nodes", "-next"];

/// Checks names, because they are parts of API paths, of written files, and of other names.
pub(super) fn syntax_of_names(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let object = &manifest.object;
    // Names of RBAC objects may have colons. Another rule refuses system names.
    let is_of_rbac = object.kind().group == "rbac.authorization.k8s.io";
    let is_bad = |name: &str| match name {
        name if is_of_rbac => !name.split(':').all(is_name),
        name => !is_name(name) && !name.starts_with(SYSTEM),
    };
    for (pointer, name) in [("/metadata/name", object.name()), ("/metadata/namespace", object.namespace())] {
        if !name.is_empty() && is_bad(name) {
            defects.add(manifest.defect(pointer, format!("the name {name:?}")));
        }
    }
}

/// Reports objects of unusual kinds. A policy may allow single objects. Webhooks, `CustomResourceDefinition`s, Namespaces and Secrets
/// are refused before any rule runs, because the operator cannot apply them.
pub(super) fn kinds(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let kind = manifest.object.kind();
    let is_usual = if manifest.phase == Phase::Bootstrap { kind == &POD } else { kind.is_usual };
    if !is_usual {
        let value = manifest.title();
        defects.add_unless(&value, manifest.defect("/kind", brief(&value)));
    }
}

pub(super) fn names(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let (own, name) = (own(input), manifest.object.name());
    let begins = [own.as_str(), &format!("authentication-reader-{own}")].iter().any(|start| name.starts_with(start));
    let without_instance = name.strip_suffix("-cluster").unwrap_or(name);
    let mut reserved = RESERVED.into_iter().chain(restriction::reserved());
    let is_reserved = reserved.any(|end| without_instance.ends_with(end) || name.ends_with(end));
    // Another rule refuses system names.
    if !name.starts_with(SYSTEM) && (!begins || is_reserved) {
        let value = manifest.title();
        let problem =
            format!("{}: the name does not begin with {own}, or ends as those of the operator", brief(&value));
        defects.add_unless(&value, manifest.defect("/metadata/name", problem));
    }
}

pub(super) fn system_names(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let subjects = manifest.subjects().map(|(pointer, _)| format!("{pointer}/name"));
    for place in ["/metadata/name", "/roleRef/name"].map(str::to_owned).into_iter().chain(subjects) {
        let name = manifest.text(&place);
        if name.starts_with(SYSTEM) {
            defects.add(manifest.defect(&place, format!("the name {}", brief(name))));
        }
    }
}

pub(super) fn namespaces(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let namespace = manifest.object.namespace();
    if manifest.object.kind().namespaced && !input.parsed.flavor.namespaces().contains(&namespace) {
        let problem = format!("namespace {}", brief(namespace));
        defects.add_unless(namespace, manifest.defect("/metadata/namespace", problem));
    }
}

/// Reports references to objects that the provider's folder does not contain.
pub(super) fn references(input: RuleInput, defects: &mut Defects) {
    let objects = input.manifests(Phase::Cluster).map(|manifest| &manifest.object);
    let own: BTreeSet<_> = objects.map(|one| (one.kind().kind, one.namespace(), one.name())).collect();
    let mut check = |defect: Error, (kind, namespace, name): (&str, &str, &str)| {
        if !own.contains(&(kind, namespace, name)) {
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            let value = format!("{kind} {name}");
            let problem = format!("{} is not in the provider's folder", brief(&value));
            defects.add_unless(value, defect.described(problem));
        }
    };
    for manifest in &input.parsed.manifests {
        for (pointer, bound) in bound(manifest) {
            let (kind, _, name) = bound;
            // Other rules refuse system names, and roles that hold all permissions.
            let is_refused = name.starts_with(SYSTEM) || (kind == "ClusterRole" && never::ROLES.contains(&name));
            if !is_refused && bound != ("Role", KUBE_SYSTEM, AUTHENTICATION_READER) {
                check(manifest.defect(&pointer, ""), bound);
            }
        }
    }
    for pod in input.pods() {
        for (field, name) in accounts(&pod) {
            check(pod.defect(field, ""), ("ServiceAccount", pod.manifest.object.namespace(), name));
        }
    }
}

/// Returns the role and the subjects of a binding: JSON pointer, and kind, namespace and name.
fn bound(manifest: &Manifest) -> Vec<(String, (&str, &str, &str))> {
    if manifest.object.value().get("roleRef").is_none() {
        return Vec::new();
    }
    let role = manifest.text("/roleRef/kind");
    let of_role = if role == "Role" { manifest.object.namespace() } else { "" };
    let mut bound = vec![("/roleRef/name".to_owned(), (role, of_role, manifest.text("/roleRef/name")))];
    for (pointer, _) in manifest.subjects() {
        let of = |field: &str| manifest.text(&format!("{pointer}/{field}"));
        bound.push((format!("{pointer}/name"), (of("kind"), of("namespace"), of("name"))));
    }
    bound
}

/// Returns the fields of a pod that name its account. Without one, it has that of the namespace; a static Pod has none.
fn accounts<'a>(pod: &Part<'a>) -> Vec<(&'static str, &'a str)> {
    let name = |field: &str| pod.value[field].as_str().filter(|name| !name.is_empty());
    let named: Vec<_> =
        [("/serviceAccountName", name("serviceAccountName")), ("/serviceAccount", name("serviceAccount"))]
            .into_iter()
            .filter_map(|(field, name)| Some((field, name?)))
            .collect();
    let is_static = pod.manifest.phase == Phase::Bootstrap;
    if named.is_empty() && !is_static { vec![("/serviceAccountName", "default")] } else { named }
}

pub(super) fn aggregation(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    if manifest.object.value().get("aggregationRule").is_some() {
        defects.add(manifest.defect("/aggregationRule", "an aggregated role"));
    }
    // On pods the label has no effect, but they do not need it either.
    for (pointer, label, _) in labels_of(manifest).filter(|(_, label, _)| label.contains("aggregate-to-")) {
        defects.add(manifest.defect(&pointer, format!("the label {}", brief(label))));
    }
}

/// Reports another place to which the operator would write the configuration.
pub(super) fn published(input: RuleInput, defects: &mut Defects) {
    let config = input.parsed.of_openshift().and_then(|one| one.cloud_config.as_ref());
    if let Some(gate) = config.and_then(|config| config.publish_with_feature_gate.as_ref()) {
        let problem = format!("publishWithFeatureGate {}", brief(gate));
        defects.add_unless(gate, input.parsed.descriptor_error("/cloudConfig/publishWithFeatureGate", problem));
    }
}

pub(super) fn services(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let spec = &manifest.object.value()["spec"];
    let mut check = |field: &str, pointer: &str, value: &Value, usual: &[&str]| {
        if let Some(text) = value.as_str().filter(|text| !usual.contains(text) && manifest.is("Service")) {
            let value = format!("{field} {text}");
            defects.add_unless(&value, manifest.defect(pointer, brief(&value)));
        }
    };
    check("type", "/spec/type", &spec["type"], &["ClusterIP"]);
    for field in ["clusterIP", "loadBalancerIP", "externalName"] {
        check(field, &format!("/spec/{field}"), &spec[field], &["", "None"]);
    }
    for field in ["clusterIPs", "externalIPs"] {
        for (index, address) in items(&spec[field]).iter().enumerate() {
            check(field, &format!("/spec/{field}/{index}"), address, &["None"]);
        }
    }
}
