//! Rules about a provider's folder as a whole: its files, its RBAC rules, and its agreement with the install payload
//! (pure).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    error::brief,
    provider::{
        Error, Flavor, ImageSource, Phase,
        folder::Manifest,
        verify::{
            containers,
            parts::{Defects, Part, RuleInput, Scope, items},
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

/// Words that mark unfinished text.
const TO_DO: [&str; 6] = ["TODO", "FIXME", "CHANGEME", "CHANGE_ME", "${", "{{"];

pub(super) fn readable(input: RuleInput, defects: &mut Defects) {
    input.parsed.defects.iter().for_each(|defect| defects.add(defect.clone()));
    // The rule of container names reports a missing entry of `images` at the container.
    if Scope::Provider(containers::names).defects(input).is_empty() {
        input.parsed.misfits().into_iter().for_each(|defect| defects.add(defect));
    }
}

pub(super) fn ambiguous_scalars(input: RuleInput, defects: &mut Defects) {
    for (path, text) in texts(input) {
        for (line, word) in plain_scalars(text).into_iter().filter(|(_, word)| is_ambiguous(word)) {
            defects.add(Error::new(path, Some(Place::line(line)), format!("the plain word {word}")));
        }
    }
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

fn texts(input: RuleInput<'_>) -> impl Iterator<Item = (&str, &str)> {
    input.parsed.files.iter().filter_map(|(path, bytes)| Some((path.as_str(), std::str::from_utf8(bytes).ok()?)))
}

pub(super) fn placeholders(input: RuleInput, defects: &mut Defects) {
    for (path, text) in texts(input) {
        for (document, lines) in yaml::documents_with_lines(text).unwrap_or_default() {
            let mut check = |pointer: &str, text: &str| {
                if let Some(placeholder) = placeholder(text) {
                    let place = Place::line(lines.of(pointer));
                    defects.add(Error::new(path, Some(place), format!("the placeholder {placeholder}")));
                }
            };
            walk(&document, "", &mut |pointer, value| match value {
                Value::String(text) => check(pointer, text),
                Value::Object(members) => members.keys().for_each(|key| check(&child(pointer, key), key)),
                _ => {}
            });
        }
    }
}

fn placeholder(text: &str) -> Option<String> {
    let to_do = TO_DO.into_iter().find(|word| text.contains(word));
    to_do.map(str::to_owned).or_else(|| {
        // `<name>`, but not the comparison in `a < b && c > d`.
        // Each part ends before the next `<`, so that no byte is scanned twice.
        text.split('<').skip(1).find_map(|part| {
            work::add(part.len());
            let name = &part[..part.find('>')?];
            let is_name = name.starts_with(char::is_alphabetic)
                && name.chars().all(|character| character.is_alphanumeric() || " _-.".contains(character));
            is_name.then(|| format!("<{}>", brief(name)))
        })
    })
}

pub(super) fn image_keys(RuleInput { parsed, payload }: RuleInput, defects: &mut Defects) {
    let Some(payload) = payload else { return };
    for (container, ImageSource { key, .. }) in parsed.of_openshift().into_iter().flat_map(|one| &one.images) {
        if !payload.image_keys.contains(key) {
            let what = format!("the images ConfigMap has no key {key}");
            defects.add(parsed.descriptor_error(&format!("{}/key", child("/images", container)), what));
        }
    }
}

/// Checks only OpenShift. Elsewhere, users create the Secret.
pub(super) fn credentials(pod: &Part, defects: &mut Defects) {
    let is_asked = pod.input.parsed.flavor == Flavor::OpenShift && pod.manifest.phase == Phase::Cluster;
    let Some(payload) = pod.input.payload.filter(|_| is_asked) else { return };
    let namespace = pod.manifest.object.namespace();
    for (pointer, name) in secrets(pod.value) {
        let what = format!("no CredentialsRequest asks for Secret {namespace}/{name}");
        if !payload.requested_secrets.contains(&(namespace.to_owned(), name)) {
            defects.add(pod.defect(&pointer, what));
        }
    }
}

/// Returns the Secrets that a pod mounts, has in its environment, or reads by the name in a variable, each with its JSON pointer.
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

pub(super) fn duplicates(input: RuleInput, defects: &mut Defects) {
    for phase in [Phase::Cluster, Phase::Bootstrap] {
        let mut seen = BTreeSet::new();
        for manifest in input.manifests(phase) {
            if !seen.insert(manifest.object.key()) {
                defects.add(manifest.defect("", format!("{} is there already", manifest.object.key())));
            }
        }
    }
}

pub(super) fn rbac_wildcards(_: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    for (pointer, rule) in manifest.rules() {
        let lists = [
            ("apiGroups", &rule.groups),
            ("resources", &rule.resources),
            ("verbs", &rule.verbs),
            ("nonResourceURLs", &rule.urls),
        ];
        for (field, _) in lists.into_iter().filter(|(_, texts)| texts.iter().any(|text| text.contains('*'))) {
            defects.add(manifest.defect(&format!("{pointer}/{field}"), "a wildcard"));
        }
    }
    if manifest.object.value()["roleRef"]["name"] == "cluster-admin" {
        defects.add(manifest.defect("/roleRef/name", "cluster-admin grants every permission"));
    }
}

pub(super) fn namespaces(input: RuleInput, manifest: &Manifest, defects: &mut Defects) {
    let value = manifest.object.value();
    let mut check = |pointer: &str, namespace: &Value| {
        let is_other = |name: &&str| !input.parsed.flavor.namespaces().contains(name);
        if let Some(other) = namespace.as_str().filter(is_other) {
            defects.add(manifest.defect(pointer, format!("namespace {other}")));
        }
    };
    if manifest.phase == Phase::Cluster {
        check("/metadata/namespace", &value["metadata"]["namespace"]);
        for (index, subject) in items(&value["subjects"]).iter().enumerate() {
            check(&format!("/subjects/{index}/namespace"), &subject["namespace"]);
        }
    }
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
