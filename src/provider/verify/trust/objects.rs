//! Rules about objects as such: kinds, names, namespaces, references among them, Services (pure).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    SYSTEM,
    metadata::{PLACES, escaped, own},
    never,
};
use crate::{
    error::brief,
    object::POD,
    provider::{
        AUTHENTICATION_READER, Error, Phase,
        folder::Manifest,
        restriction,
        verify::{
            Values,
            parts::{Input, Part, items},
        },
    },
};

/// The namespace of Kubernetes' own components, where the cluster's roles for all of them are.
const KUBE_SYSTEM: &str = "kube-system";

/// How names end that the operator gives, besides those of [`restriction::reserved`]: of the guard of nodes, and of an object that takes
/// the place of another one. The name of the `CloudControllerManager` may follow.
const RESERVED: [&str; 2] = ["-delete-nodes", "-next"];

/// A text of a manifest.
fn text<'a>(manifest: &'a Manifest, pointer: &str) -> &'a str {
    manifest.object.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Of the kinds that are not usual a policy may allow single objects. Webhooks, `CustomResourceDefinition`s, Namespaces and Secrets are
/// refused before any rule is asked: the operator can apply none.
pub(super) fn kinds(input: Input) -> Values {
    let is_usual = |manifest: &&Manifest| {
        let kind = manifest.object.kind();
        if manifest.phase == Phase::Bootstrap { kind == &POD } else { kind.is_usual }
    };
    let others = input.parsed.manifests.iter().filter(|manifest| !is_usual(manifest));
    let defect = |manifest: &Manifest| {
        let value = manifest.title();
        (manifest.defect("/kind", brief(&value)), value)
    };
    others.map(defect).collect()
}

pub(super) fn names(input: Input) -> Values {
    let own = own(input);
    let is_own = |name: &str| {
        let begins =
            [own.as_str(), &format!("authentication-reader-{own}")].iter().any(|start| name.starts_with(start));
        // A rule of its own refuses names of the system.
        let without_instance = name.strip_suffix("-cluster").unwrap_or(name);
        let mut reserved = RESERVED.into_iter().chain(restriction::reserved());
        let is_reserved = reserved.any(|end| without_instance.ends_with(end) || name.ends_with(end));
        name.starts_with(SYSTEM) || begins && !is_reserved
    };
    let others = input.parsed.manifests.iter().filter(|manifest| !is_own(manifest.object.name()));
    let defect = |manifest: &Manifest| {
        let value = manifest.title();
        (
            manifest.defect(
                "/metadata/name",
                format!("{}: the name does not begin with {own}, or ends as those of the operator", brief(&value)),
            ),
            value,
        )
    };
    others.map(defect).collect()
}

pub(super) fn system_names(input: Input) -> Vec<Error> {
    let of_manifest = |manifest: &Manifest| {
        let subjects = 0..items(&manifest.object.value()["subjects"]).len();
        let subjects = subjects.map(|index| format!("/subjects/{index}/name"));
        let places = ["/metadata/name", "/roleRef/name"].map(str::to_owned).into_iter().chain(subjects);
        let system = places.filter(|place| text(manifest, place).starts_with(SYSTEM));
        system
            .map(|place| manifest.defect(&place, format!("the name {}", brief(text(manifest, &place)))))
            .collect::<Vec<_>>()
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

pub(super) fn namespaces(input: Input) -> Values {
    let own = input.parsed.flavor.namespaces();
    let others = input.parsed.manifests.iter().filter(|manifest| {
        let object = &manifest.object;
        object.kind().namespaced && !own.contains(&object.namespace())
    });
    let defect = |manifest: &Manifest| {
        let namespace = manifest.object.namespace();
        (manifest.defect("/metadata/namespace", format!("namespace {}", brief(namespace))), namespace.to_owned())
    };
    others.map(defect).collect()
}

pub(super) fn references(input: Input) -> Values {
    let objects = input.manifests(Phase::Cluster).map(|manifest| &manifest.object);
    let own: BTreeSet<_> = objects.map(|one| (one.kind().kind, one.namespace(), one.name())).collect();
    let is_own = |kind: &str, namespace: &str, name: &str| own.contains(&(kind, namespace, name));
    let mut defects = Vec::new();
    for manifest in &input.parsed.manifests {
        for (pointer, kind, namespace, name) in bound(manifest) {
            // Rules of their own refuse names of the system, and roles that hold everything.
            let is_refused = name.starts_with(SYSTEM) || (kind == "ClusterRole" && never::ROLES.contains(&name));
            if is_own(kind, namespace, name) || is_refused {
                continue;
            }
            let is_reader = (kind, namespace, name) == ("Role", KUBE_SYSTEM, AUTHENTICATION_READER);
            if !is_reader {
                defects.push(reference(manifest.defect(&pointer, ""), kind, namespace, name));
            }
        }
    }
    for pod in input.pods() {
        let namespace = pod.manifest.object.namespace();
        for (field, name) in accounts(&pod) {
            if !is_own("ServiceAccount", namespace, name) {
                defects.push(reference(pod.defect(field, ""), "ServiceAccount", namespace, name));
            }
        }
    }
    defects
}

/// A reference to an object that the provider's folder does not contain.
fn reference(defect: Error, kind: &str, namespace: &str, name: &str) -> (Error, String) {
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let value = format!("{kind} {name}");
    (defect.described(format!("{} is not in the provider's folder", brief(&value))), value)
}

/// The role and the subjects of a binding: JSON pointer, kind, namespace, name.
fn bound(manifest: &Manifest) -> Vec<(String, &str, &str, &str)> {
    if manifest.object.value().get("roleRef").is_none() {
        return Vec::new();
    }
    let role = text(manifest, "/roleRef/kind");
    let of_role = if role == "Role" { manifest.object.namespace() } else { "" };
    let mut bound = vec![("/roleRef/name".to_owned(), role, of_role, text(manifest, "/roleRef/name"))];
    for index in 0..items(&manifest.object.value()["subjects"]).len() {
        let of = |field: &str| text(manifest, &format!("/subjects/{index}/{field}"));
        bound.push((format!("/subjects/{index}/name"), of("kind"), of("namespace"), of("name")));
    }
    bound
}

/// The fields of a pod that name its account. Without one it has that of the namespace; a static Pod has none at all.
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

pub(super) fn aggregation(input: Input) -> Vec<Error> {
    let of_manifest = |manifest: &Manifest| {
        let value = manifest.object.value();
        let rule = value.get("aggregationRule").is_some();
        let rule = rule.then(|| manifest.defect("/aggregationRule", "an aggregated role"));
        // Of pods it gives nothing, but a label of others is none that they need.
        let labels = PLACES.iter().flat_map(|place| {
            let labels = value.pointer(&format!("{place}/labels")).and_then(Value::as_object).into_iter().flatten();
            let labels = labels.map(|(label, _)| label).filter(|label| label.contains("aggregate-to-"));
            labels.map(move |label| {
                let pointer = format!("{place}/labels/{}", escaped(label));
                manifest.defect(&pointer, format!("the label {}", brief(label)))
            })
        });
        rule.into_iter().chain(labels).collect::<Vec<_>>()
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

/// Where else the operator would write the configuration.
pub(super) fn published(input: Input) -> Values {
    let config = input.parsed.of_openshift().and_then(|one| one.cloud_config.as_ref());
    let gate = config.and_then(|config| config.publish_with_feature_gate.as_ref());
    let defect = |gate: &String| {
        let problem = format!("publishWithFeatureGate {}", brief(gate));
        (input.parsed.descriptor_error("/cloudConfig/publishWithFeatureGate", problem), gate.clone())
    };
    gate.map(defect).into_iter().collect()
}

pub(super) fn services(input: Input) -> Values {
    let services = input.parsed.manifests.iter().filter(|manifest| manifest.object.kind().kind == "Service");
    services.flat_map(exposures).collect()
}

fn exposures(manifest: &Manifest) -> Values {
    let spec = &manifest.object.value()["spec"];
    let mut found = Vec::new();
    let mut see = |pointer: String, value: &Value, usual: &[&str]| {
        if let Some(text) = value.as_str().filter(|text| !usual.contains(text)) {
            found.push((pointer, text.to_owned()));
        }
    };
    see("/spec/type".into(), &spec["type"], &["ClusterIP"]);
    for field in ["clusterIP", "loadBalancerIP", "externalName"] {
        see(format!("/spec/{field}"), &spec[field], &["", "None"]);
    }
    for field in ["clusterIPs", "externalIPs"] {
        for (index, address) in items(&spec[field]).iter().enumerate() {
            see(format!("/spec/{field}/{index}"), address, &["None"]);
        }
    }
    let defect = |(pointer, text): (String, String)| {
        let field = pointer.split('/').nth(2).unwrap_or_default();
        let value = format!("{field} {text}");
        (manifest.defect(&pointer, brief(&value)), value)
    };
    found.into_iter().map(defect).collect()
}
