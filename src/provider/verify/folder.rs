//! Rules about a provider's folder as a whole: its files, its rights, and how it fits the install payload (pure).

use serde_json::Value;

use crate::provider::verify::{
    Violation,
    pods::{self, Pods, items},
    scalars,
};
use crate::{
    facts::DEFAULT_NAMESPACE,
    provider::{
        Phase,
        folder::{Bundle, Manifest, Payload},
    },
    text::yaml,
};

/// Words that stand for something which is still to be written.
const TO_DO: [&str; 6] = ["TODO", "FIXME", "CHANGEME", "CHANGE_ME", "${", "{{"];

pub(super) fn readable(bundle: &Bundle, payload: Option<&Payload>) -> Vec<Violation> {
    // A container that the descriptor does not know is said better there.
    let said = !super::containers::names(bundle, payload).is_empty();
    let defect = bundle.defect.as_ref().filter(|_| !said);
    let violation = |defect: &crate::provider::Error| Violation {
        file: defect.file.clone(),
        line: defect.line.or_else(|| line_in(&defect.problem)).unwrap_or(1),
        what: defect.problem.clone(),
    };
    defect.map(violation).into_iter().collect()
}

/// The line that an error of the YAML library names.
fn line_in(problem: &str) -> Option<u64> {
    let after = problem.rsplit_once("line ")?.1;
    after.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

pub(super) fn ambiguous_scalars(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let of_file = |(path, text): (&String, &str)| {
        let what = |(line, word)| Violation { file: path.clone(), line, what: format!("the plain word {word}") };
        scalars::ambiguous(text).into_iter().map(what).collect::<Vec<_>>()
    };
    texts(bundle).flat_map(of_file).collect()
}

fn texts(bundle: &Bundle) -> impl Iterator<Item = (&String, &str)> {
    bundle.files.iter().filter_map(|(path, bytes)| Some((path, std::str::from_utf8(bytes).ok()?)))
}

pub(super) fn placeholders(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in texts(bundle) {
        for (document, lines) in yaml::located(text).unwrap_or_default() {
            each_text(&document, "", &mut |pointer, text| {
                if let Some(placeholder) = placeholder(text) {
                    let what = format!("the placeholder {placeholder}");
                    violations.push(Violation { file: path.clone(), line: lines.of(pointer), what });
                }
            });
        }
    }
    violations
}

/// Calls a function with every text of a document, keys too, and its JSON pointer.
fn each_text(value: &Value, pointer: &str, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => see(pointer, text),
        Value::Array(all) => {
            for (index, item) in all.iter().enumerate() {
                each_text(item, &format!("{pointer}/{index}"), see);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                see(&pointer, key);
                each_text(member, &pointer, see);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn placeholder(text: &str) -> Option<&str> {
    let to_do = TO_DO.into_iter().find(|word| text.contains(word));
    to_do.or_else(|| {
        // `<name>`, but not the comparison in `a < b && c > d`.
        text.match_indices('<').find_map(|(start, _)| {
            let end = start + text[start..].find('>')?;
            let name = &text[start + 1..end];
            let is_name = name.starts_with(char::is_alphabetic)
                && name.chars().all(|character| character.is_alphanumeric() || " _-.".contains(character));
            is_name.then_some(&text[start..=end])
        })
    })
}

pub(super) fn image_keys(bundle: &Bundle, payload: Option<&Payload>) -> Vec<Violation> {
    let images = bundle.descriptor.iter().flat_map(|descriptor| &descriptor.images);
    let unknown =
        images.filter(|(_, source)| payload.is_some_and(|payload| !payload.image_keys.contains(&source.value.key)));
    let violation = |(container, source): (&String, &yaml::Spanned<crate::provider::ImageSource>)| Violation {
        file: bundle.descriptor_path(),
        line: source.referenced.line(),
        what: format!("{container}: the images ConfigMap has no key {}", source.value.key),
    };
    unknown.map(violation).collect()
}

pub(super) fn credentials(bundle: &Bundle, payload: Option<&Payload>) -> Vec<Violation> {
    let Some(payload) = payload else { return Vec::new() };
    let of_pods = |pods: Pods<'_>| {
        let namespace = pods.manifest.object.namespace().to_owned();
        let requested = |name: &str| payload.requested_secrets.contains(&(namespace.clone(), name.to_owned()));
        let mut violations = Vec::new();
        each_secret(pods.spec, "", &mut |pointer, name| {
            if !requested(name) {
                violations
                    .push(pods.violation(pointer, format!("no CredentialsRequest asks for Secret {namespace}/{name}")));
            }
        });
        violations
    };
    pods::of_cluster(bundle).flat_map(of_pods).collect()
}

/// Calls a function with every Secret that a pod mounts, reads into its environment, or names in it to read it itself.
fn each_secret(value: &Value, pointer: &str, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Array(all) => {
            for (index, item) in all.iter().enumerate() {
                each_secret(item, &format!("{pointer}/{index}"), see);
            }
        }
        Value::Object(members) => {
            let text = |field: &str| members.get(field).and_then(Value::as_str);
            if let (Some(variable), Some(name)) = (text("name"), text("value"))
                && variable.ends_with("SECRET_NAME")
            {
                see(&format!("{pointer}/value"), name);
            }
            for (key, member) in members {
                let pointer = format!("{pointer}/{key}");
                let name = match key.as_str() {
                    "secret" => member["secretName"].as_str().or(member["name"].as_str()),
                    "secretKeyRef" | "secretRef" => member["name"].as_str(),
                    _ => None,
                };
                match name {
                    Some(name) => see(&pointer, name),
                    None => each_secret(member, &pointer, see),
                }
            }
        }
        _ => {}
    }
}

pub(super) fn rbac_wildcards(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let of_manifest = |manifest: &Manifest| {
        let rules = items(&manifest.object.value()["rules"]).iter().enumerate();
        let fields = rules.flat_map(|(index, rule)| {
            let names = ["apiGroups", "resources", "verbs", "nonResourceURLs"];
            names.map(|name| (format!("/rules/{index}/{name}"), &rule[name]))
        });
        let wild = fields.filter(|(_, list)| items(list).iter().any(is_wild));
        let mut violations: Vec<_> = wild.map(|(pointer, _)| manifest.violation(&pointer, "a wildcard")).collect();
        if manifest.object.value()["roleRef"]["name"] == "cluster-admin" {
            violations.push(manifest.violation("/roleRef/name", "cluster-admin holds every right"));
        }
        violations
    };
    bundle.manifests.iter().flat_map(of_manifest).collect()
}

fn is_wild(item: &Value) -> bool {
    item.as_str().is_some_and(|text| text.contains('*'))
}

pub(super) fn namespaces(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let of_manifest = |manifest: &Manifest| {
        let value = manifest.object.value();
        let subjects = items(&value["subjects"]).iter().enumerate();
        let subjects = subjects.map(|(index, subject)| (format!("/subjects/{index}/namespace"), &subject["namespace"]));
        let own = ("/metadata/namespace".to_owned(), &value["metadata"]["namespace"]);
        let foreign = std::iter::once(own)
            .chain(subjects)
            .filter_map(|(pointer, namespace)| Some((pointer, namespace.as_str()?)))
            .filter(|(_, namespace)| ![DEFAULT_NAMESPACE, "kube-system"].contains(namespace));
        let what =
            |(pointer, namespace): (String, &str)| manifest.violation(&pointer, format!("namespace {namespace}"));
        foreign.map(what).collect::<Vec<_>>()
    };
    let of_cluster = bundle.manifests.iter().filter(|manifest| manifest.phase == Phase::Cluster);
    of_cluster.flat_map(of_manifest).collect()
}
