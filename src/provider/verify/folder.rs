//! Rules about a provider's folder as a whole: its files, its RBAC rules, and its agreement with the install payload
//! (pure).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    error::brief,
    object::permissions,
    provider::{
        Error, Flavor, ImageSource, Phase,
        folder::Manifest,
        verify::{
            containers,
            parts::{Input, items, report},
        },
    },
    text::{
        Place, work,
        yaml::{
            self,
            outline::{child, plain_scalars, walk},
        },
    },
};

/// Words of text that is still to be written.
const TO_DO: [&str; 6] = ["TODO", "FIXME", "CHANGEME", "CHANGE_ME", "${", "{{"];

pub(super) fn readable(input: Input) -> Vec<Error> {
    let mut defects = input.parsed.defects.clone();
    // The rule of container names reports a missing entry of `images` at the container.
    if containers::names(input).is_empty() {
        defects.extend(input.parsed.misfits());
    }
    defects
}

pub(super) fn ambiguous_scalars(input: Input) -> Vec<Error> {
    let of_file = |(path, text)| {
        let ambiguous = plain_scalars(text).into_iter().filter(|(_, word)| is_ambiguous(word));
        ambiguous.map(move |(line, word)| Error::new(path, Some(Place::line(line)), format!("the plain word {word}")))
    };
    texts(input).flat_map(of_file).collect()
}

/// Whether YAML 1.1 and 1.2 read a plain word as different types.
fn is_ambiguous(word: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let truth = ["y", "yes", "n", "no", "on", "off"].contains(&word.to_lowercase().as_str());
    let octal = word.len() > 1 && word.starts_with('0') && is_digits(word);
    // 12:30:45 is a number of seconds in YAML 1.1.
    let mut parts = word.split(':');
    let first = parts.next().is_some_and(|part| is_digits(part.trim_start_matches(['+', '-'])));
    let sixtieths: Vec<_> = parts.collect();
    let is_sixtieth = |part: &&str| is_digits(part) && part.parse::<u8>().is_ok_and(|number| number < 60);
    truth || octal || (first && !sixtieths.is_empty() && sixtieths.iter().all(is_sixtieth))
}

fn texts(input: Input<'_>) -> impl Iterator<Item = (&str, &str)> {
    input.parsed.files.iter().filter_map(|(path, bytes)| Some((path.as_str(), std::str::from_utf8(bytes).ok()?)))
}

pub(super) fn placeholders(input: Input) -> Vec<Error> {
    let mut defects = Vec::new();
    for (path, text) in texts(input) {
        for (document, lines) in yaml::documents_with_lines(text).unwrap_or_default() {
            let mut check = |pointer: &str, text: &str| {
                if let Some(placeholder) = placeholder(text) {
                    let place = Place::line(lines.of(pointer));
                    defects.push(Error::new(path, Some(place), format!("the placeholder {placeholder}")));
                }
            };
            walk(&document, "", &mut |pointer, value| match value {
                Value::String(text) => check(pointer, text),
                Value::Object(members) => members.keys().for_each(|key| check(&child(pointer, key), key)),
                _ => {}
            });
        }
    }
    defects
}

fn placeholder(text: &str) -> Option<String> {
    let to_do = TO_DO.into_iter().find(|word| text.contains(word));
    to_do.map(str::to_owned).or_else(|| {
        // `<name>`, but not the comparison in `a < b && c > d`.
        // Each part ends before the next `<`, so that no byte is looked at twice.
        text.split('<').skip(1).find_map(|part| {
            work::add(part.len());
            let name = &part[..part.find('>')?];
            let is_name = name.starts_with(char::is_alphabetic)
                && name.chars().all(|character| character.is_alphanumeric() || " _-.".contains(character));
            is_name.then(|| format!("<{}>", brief(name)))
        })
    })
}

pub(super) fn image_keys(Input { parsed, payload }: Input) -> Vec<Error> {
    let images = parsed.of_openshift().into_iter().flat_map(|descriptor| &descriptor.images);
    let unknown = images.filter(|(_, source)| payload.is_some_and(|payload| !payload.image_keys.contains(&source.key)));
    let defect = |(container, source): (&String, &ImageSource)| {
        let what = format!("the images ConfigMap has no key {}", source.key);
        parsed.descriptor_error(&format!("{}/key", child("/images", container)), what)
    };
    unknown.map(defect).collect()
}

pub(super) fn credentials(input: Input) -> Vec<Error> {
    // Elsewhere than on OpenShift people create the Secret.
    let Some(payload) = input.payload.filter(|_| input.parsed.flavor == Flavor::OpenShift) else {
        return Vec::new();
    };
    report(input.pods_of(Phase::Cluster), |pod| {
        let namespace = pod.manifest.object.namespace();
        let is_requested =
            move |name: &String| payload.requested_secrets.contains(&(namespace.to_owned(), name.clone()));
        let missing = secrets(pod.value).into_iter().filter(move |(_, name)| !is_requested(name));
        missing
            .map(move |(pointer, name)| (pointer, format!("no CredentialsRequest asks for Secret {namespace}/{name}")))
    })
}

/// The Secrets that a pod mounts, has in its environment, or reads by the name in a variable, each with its JSON pointer.
fn secrets(pod: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(pod, "", &mut |pointer, value| {
        if value["name"].as_str().is_some_and(|variable| variable.ends_with("SECRET_NAME")) {
            found.push((format!("{pointer}/value"), &value["value"]));
        }
        let fields = [("secret", "secretName"), ("secret", "name"), ("secretKeyRef", "name"), ("secretRef", "name")];
        found.extend(fields.map(|(field, name)| (format!("{pointer}/{field}"), &value[field][name])));
    });
    found.into_iter().filter_map(|(pointer, name)| Some((pointer, name.as_str()?.to_owned()))).collect()
}

pub(super) fn duplicates(input: Input) -> Vec<Error> {
    [Phase::Cluster, Phase::Bootstrap].into_iter().flat_map(|phase| duplicates_of(input, phase)).collect()
}

fn duplicates_of(input: Input, phase: Phase) -> Vec<Error> {
    let mut seen = BTreeSet::new();
    let repeated = input.manifests(phase).filter(|manifest| !seen.insert(manifest.object.key()));
    repeated.map(|manifest| manifest.defect("", format!("{} is there already", manifest.object.key()))).collect()
}

pub(super) fn rbac_wildcards(input: Input) -> Vec<Error> {
    let of_manifest = |manifest: &Manifest| {
        let object = manifest.object.value();
        let mut defects = Vec::new();
        // Rules that cannot be read are a defect of their own.
        for (index, rule) in permissions::rules(object).unwrap_or_default().iter().enumerate() {
            let lists = [
                ("apiGroups", &rule.groups),
                ("resources", &rule.resources),
                ("verbs", &rule.verbs),
                ("nonResourceURLs", &rule.urls),
            ];
            let wildcards = lists.into_iter().filter(|(_, texts)| texts.iter().any(|text| text.contains('*')));
            let defect = |(field, _)| manifest.defect(&format!("/rules/{index}/{field}"), "a wildcard");
            defects.extend(wildcards.map(defect));
        }
        if object["roleRef"]["name"] == "cluster-admin" {
            defects.push(manifest.defect("/roleRef/name", "cluster-admin grants every permission"));
        }
        defects
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

pub(super) fn namespaces(input: Input) -> Vec<Error> {
    let allowed = input.parsed.flavor.namespaces();
    let of_manifest = |manifest: &Manifest| {
        let value = manifest.object.value();
        let subjects = items(&value["subjects"]).iter().enumerate();
        let subjects = subjects.map(|(index, input)| (format!("/subjects/{index}/namespace"), &input["namespace"]));
        let own = ("/metadata/namespace".to_owned(), &value["metadata"]["namespace"]);
        let defect = |(pointer, namespace): (String, &Value)| {
            let other = namespace.as_str().filter(|name| !allowed.contains(name))?;
            Some(manifest.defect(&pointer, format!("namespace {other}")))
        };
        std::iter::once(own).chain(subjects).filter_map(defect).collect::<Vec<_>>()
    };
    input.manifests(Phase::Cluster).flat_map(of_manifest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_words_are_found_where_they_are_plain() {
        for (text, expected) in [
            ("a: yes", &[(1, "yes")][..]),
            ("a: Off # why", &[(1, "Off")]),
            ("- on\n- [n, {b: y}]", &[(1, "on"), (2, "n"), (2, "y")]),
            ("on: 1", &[(1, "on")]),
            ("defaultMode: 0644", &[(1, "0644")]),
            ("time: 12:30:45", &[(1, "12:30:45")]),
            ("a: [\n  no,\n]", &[(2, "no")]),
            ("- key: |\n    yes\n  other: no", &[(3, "no")]),
            ("- >-\n  yes\n- no", &[(3, "no")]),
            ("a: 'it''s'\nb: no", &[(2, "no")]),
            ("a: no\n---\nb: [", &[(1, "no")]),
            ("a: \"b \\\" no\"", &[]),
            ("a: \"b\n  no\"", &[]),
            ("a: 'yes'\nb: \"no\" # off", &[]),
            ("a: !!str yes", &[]),
            ("a: true\nb: 10\nc: 0\nd: 0.5", &[]),
            ("a: 8080:80\nb: ::1\nc: host:443\nd: sha256:00", &[]),
            ("a: yes, that\nb: don't\nc: n/a", &[]),
            ("args: --controllers=*,-cloud-node,no", &[]),
        ] {
            let found = plain_scalars(text);
            let found = found.iter().map(|(line, word)| (*line, word.as_str())).filter(|(_, word)| is_ambiguous(word));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
