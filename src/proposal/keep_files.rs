//! The files of an existing cloud-controller-manager, besides its configuration and its credentials (pure).
//!
//! A lost file matters if something names it. Where programs read files by default is not known, so that most volumes may matter.

use serde_json::Value;

use super::{
    credentials::fits,
    existing::{Existing, VariableSource, text},
    keep_arguments::{harmless, is_of_process, loss},
    keep_inputs::{config_of, config_path, config_text, credential_file, keys_of_files, mount_of, object_of},
    proposed::{Handling, Input, ProposedCcm},
};
use crate::{
    object::{items, reference::Reference},
    provider::kubernetes::KubernetesProvider,
};

/// The folder of a machine whose files programs read only if a flag or the configuration names them.
const OF_KUBERNETES: &str = "/etc/kubernetes";

/// The characters around a path in a text.
const SEPARATORS: &[char] = &['"', '\'', '=', ',', ';', '(', ')', '[', ']', '{', '}', '<', '>'];

/// Reports the volumes of the container that the operator's pods do not have.
pub(super) fn volumes(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider, input: &Input) {
    let config = config_text(existing, input);
    let paths = paths(existing, input, provider, config.as_deref());
    let kept = kept(existing, input, provider);
    for volume in items(&existing.pod["volumes"]) {
        let is_its = |mount: &Value| mount["name"] == volume["name"];
        if !items(&existing.container["volumeMounts"]).iter().any(is_its) {
            continue;
        }
        let named = paths.iter().find(|(path, _)| mount_of(existing, path).is_some_and(|(mount, _)| is_its(mount)));
        let Some(lost) = Lost::of(volume, existing, provider, input, &kept) else { continue };
        let (result, how) = match named {
            Some((path, who)) => {
                (Handling::NotKept, format!("not mounted, although {who} names {path}{}", lost.effect))
            }
            None => lost.unnamed(config.is_some()),
        };
        proposed.note(result, lost.what, how);
    }
}

/// Returns the paths that the flags, the variables and the configuration name, each with its place; without those of files that are kept.
fn paths(
    existing: &Existing,
    input: &Input,
    provider: &KubernetesProvider,
    config: Option<&str>,
) -> Vec<(String, String)> {
    let mut kept: Vec<String> = config_path(existing).into_iter().map(str::to_owned).collect();
    for name in variables_of_credentials(provider) {
        if credential_file(existing, name, input).is_some()
            && let Some(VariableSource::Literal(path)) = existing.environment.get(&format!("{name}_FILE"))
        {
            kept.push(path.clone());
        }
    }
    let flags = existing.flags.iter().filter(|(flag, _)| !is_of_process(flag));
    let flags = flags.filter_map(|(flag, value)| Some((value.clone()?, format!("--{flag}"))));
    let variables = existing.environment.iter().filter_map(|(name, source)| match source {
        VariableSource::Literal(value) => Some((existing.expanded(value)?, format!("variable {name}"))),
        _ => None,
    });
    let config = config.map(|config| (config.to_owned(), "the configuration".to_owned()));
    let mut found = Vec::new();
    for (text, place) in flags.chain(variables).chain(config) {
        let words = text.split(|one: char| one.is_whitespace() || SEPARATORS.contains(&one));
        let words = words.filter(|word| word.starts_with('/') && !kept.iter().any(|path| path == word));
        found.extend(words.map(|word| (word.to_owned(), place.clone())));
    }
    found
}

fn variables_of_credentials(provider: &KubernetesProvider) -> impl Iterator<Item = &String> {
    provider.descriptor.credentials.iter().flat_map(|credentials| credentials.environment.keys())
}

/// Returns the objects and keys that are kept as configuration or credentials.
fn kept(existing: &Existing, input: &Input, provider: &KubernetesProvider) -> Vec<(Reference, String)> {
    let config = config_of(existing).and_then(Result::ok);
    let credentials = variables_of_credentials(provider).filter_map(|name| credential_file(existing, name, input));
    config.into_iter().chain(credentials).collect()
}

/// The kind of a volume that is lost.
enum Kind {
    /// A folder or a file of the machine, and the reason why nothing depends on it.
    Host(String, Option<String>),
    /// A token of the account.
    Token,
    /// The object with the configuration or the credentials, with further keys.
    Further,
    Other,
}

/// A volume that is lost.
struct Lost {
    what: String,
    kind: Kind,
    /// The effect, as the end of a sentence.
    effect: String,
}

impl Lost {
    /// Returns `None` for a volume without anything to lose.
    fn of(
        volume: &Value,
        existing: &Existing,
        provider: &KubernetesProvider,
        input: &Input,
        kept: &[(Reference, String)],
    ) -> Option<Self> {
        let name = text(&volume["name"]);
        let effect = loss(provider, &name);
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let why = harmless(provider, path, "").map(ToOwned::to_owned);
            let kind = Kind::Host(path.to_owned(), why);
            return Some(Self { what: format!("hostPath {path}"), kind, effect });
        }
        // The API server adds a volume of this name to each pod.
        let is_empty = volume["emptyDir"].is_object() || volume["downwardAPI"].is_object();
        if is_empty || name.starts_with("kube-api-access-") {
            return None;
        }
        let sources = items(&volume["projected"]["sources"]);
        if sources.iter().any(|source| source["serviceAccountToken"].is_object()) {
            return Some(Self {
                what: format!("volume {name} (a token of its ServiceAccount)"),
                kind: Kind::Token,
                effect,
            });
        }
        let is_kept_object = |source: &Value| {
            object_of(existing, source).is_some_and(|(reference, source)| {
                let keys = keys_of(source, input, &reference);
                !keys.is_empty() && keys.iter().all(|key| kept.contains(&(reference.clone(), key.clone())))
            })
        };
        if !sources.is_empty() && sources.iter().all(is_kept_object) {
            return None;
        }
        let Some((reference, source)) = object_of(existing, volume) else {
            return Some(Self { what: format!("volume {name}"), kind: Kind::Other, effect });
        };
        let what = format!("volume {name} ({reference})");
        let is_kept = |key: &String| is_credential(provider, key) || kept.contains(&(reference.clone(), key.clone()));
        let keys = keys_of(source, input, &reference);
        if keys.is_empty() && kept.iter().any(|(other, _)| *other == reference) {
            return None;
        }
        let further: Vec<_> = keys.iter().filter(|key| !is_kept(key)).map(String::as_str).collect();
        match further.len() {
            0 if !keys.is_empty() => None,
            lost if lost < keys.len() => {
                let what = format!("{what}, further keys {}", further.join(", "));
                Some(Self { what, kind: Kind::Further, effect })
            }
            _ => Some(Self { what, kind: Kind::Other, effect }),
        }
    }

    /// Returns what happens to the volume if nothing is known to name a file of it. The configuration may be hidden.
    fn unnamed(&self, is_config_known: bool) -> (Handling, String) {
        let effect = &self.effect;
        match &self.kind {
            Kind::Host(_, Some(why)) => (Handling::Unused, why.clone()),
            Kind::Host(path, None) if is_of_certificates(path) => {
                let how =
                    "the certificates of the image are used; others go into a ConfigMap, named in spec.trustBundle";
                (Handling::Changed, how.to_owned())
            }
            Kind::Host(path, None) if path.starts_with(OF_KUBERNETES) => {
                let how = "no file of the machine is mounted, and no flag names one";
                let unless = if is_config_known { "" } else { ": the configuration must not name one either" };
                (Handling::Changed, format!("{how}{unless}"))
            }
            Kind::Host(..) => (Handling::NotKept, format!("no file of the machine is mounted{effect}")),
            Kind::Token if is_config_known => {
                (Handling::Changed, "it is not mounted, and nothing names its file".to_owned())
            }
            Kind::Token => (Handling::NotKept, format!("it is not mounted{effect}")),
            Kind::Further => (Handling::Changed, "they are not mounted, and nothing names their files".to_owned()),
            Kind::Other => (Handling::NotKept, format!("no file of it is mounted{effect}")),
        }
    }
}

fn is_of_certificates(path: &str) -> bool {
    path.contains("/ssl") || path.contains("/pki") || path.contains("ca-certificates")
}

/// Whether a key is one of a Secret that the operator mounts.
fn is_credential(provider: &KubernetesProvider, key: &str) -> bool {
    provider.descriptor.credentials.as_ref().is_some_and(|needed| {
        !keys_of_files(needed).is_empty()
            && needed.keys.iter().chain(&needed.optional_keys).any(|pattern| fits(pattern, key))
    })
}

/// Returns the keys of an object that a volume mounts.
fn keys_of(source: &Value, input: &Input, reference: &Reference) -> Vec<String> {
    if let Some(items) = source["items"].as_array() {
        return items.iter().map(|item| text(&item["key"])).collect();
    }
    let data = input.found.get(reference).and_then(|object| object["data"].as_object());
    data.into_iter().flatten().map(|(key, _)| key.clone()).collect()
}
