//! The configuration and the credentials of an existing cloud-controller-manager (pure).

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    credentials::fits,
    existing::{Existing, VariableSource, text},
    proposed::{Handling, Input, ProposedCcm},
    values::{VariableValue, plain},
};
use crate::{
    object::{
        items,
        reference::{Reference, SECRET},
    },
    provider::kubernetes::{Credentials, KubernetesProvider},
};

/// The annotation of objects that `helm uninstall` deletes.
const OF_HELM: &str = "meta.helm.sh/release-name";

/// The ConfigMap or Secret and the key with a file; otherwise the path of the file, and how to provide it.
pub(super) type Source = Result<(Reference, String), (String, &'static str)>;

/// Keeps the file of `--cloud-config`.
pub(super) fn cloud_config(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    provider: &KubernetesProvider,
    input: &Input,
) {
    let Some(found) = config_of(existing) else { return };
    let name = &provider.descriptor.name;
    if let Some(secret) = existing.config_secret().filter(|_| config_path(existing).is_some()) {
        let what = format!("--cloud-config-secret-name={}", secret.name);
        proposed.note(Handling::Unused, what, "the program reads the file of --cloud-config instead");
    }
    let Some(file) = &provider.descriptor.cloud_config else {
        return proposed.note(Handling::NotKept, "--cloud-config", format!("provider {name} reads no configuration"));
    };
    let (reference, key) = match found {
        Ok(found) => found,
        Err((file, how)) => {
            return proposed.note(Handling::ToDo, format!("the file {file} (--cloud-config)"), how);
        }
    };
    let what = format!("{reference}, key {key} (--cloud-config)");
    let Some(value) = input.found.get(&reference).and_then(|object| plain(object, &key)) else {
        return proposed.note(Handling::ToDo, what, "it cannot be read: give the configuration with --cloud-config");
    };
    if let Some(why) = unusable(proposed, &reference, input) {
        proposed.secret(input.secret_name).put(&file.file, &value);
        proposed.set("cloudConfig.secretRef", json!({"name": input.secret_name, "key": file.file}));
        let how = format!("copied to Secret {}/{}: {why}", proposed.namespace(), input.secret_name);
        return proposed.note(Handling::Changed, what, how);
    }
    let field = if reference.kind == &SECRET { "secretRef" } else { "configMapRef" };
    proposed.set(&format!("cloudConfig.{field}"), json!({"name": reference.name, "key": key}));
    proposed.note(Handling::Kept, what, format!("spec.cloudConfig.{field}"));
}

/// Returns the reason why the proposal cannot reference an object.
fn unusable(proposed: &ProposedCcm, reference: &Reference, input: &Input) -> Option<String> {
    let annotations = input.found.get(reference).map(|object| &object["metadata"]["annotations"]);
    if reference.namespace != proposed.namespace() {
        return Some(format!("it has to be in the namespace {}, that of the lease", proposed.namespace()));
    }
    annotations.is_some_and(|all| !all[OF_HELM].is_null()).then(|| "helm uninstall deletes it".to_owned())
}

/// Returns the path of the configuration.
pub(super) fn config_path(existing: &Existing) -> Option<&str> {
    existing.flag("cloud-config").filter(|path| !path.is_empty())
}

/// Returns the source of the configuration. A program that can read a Secret does so only without a file.
pub(super) fn config_of(existing: &Existing) -> Option<Source> {
    let Some(path) = config_path(existing) else {
        let key = existing.flag("cloud-config-key").unwrap_or("cloud-config");
        return Some(Ok((existing.config_secret()?, key.to_owned())));
    };
    let unknown = || Err((path.to_owned(), "no volume holds it that the API shows: give it with --cloud-config"));
    Some(mounted(existing, path).unwrap_or_else(unknown))
}

/// Returns the text of the configuration, which is empty if there is none; `None` if the API does not show it.
pub(super) fn config_text(existing: &Existing, input: &Input) -> Option<String> {
    if let Some(given) = input.cloud_config {
        return Some(given.to_owned());
    }
    let Some(source) = config_of(existing) else { return Some(String::new()) };
    let (reference, key) = source.ok()?;
    String::from_utf8(plain(input.found.get(&reference)?, &key)?).ok()
}

/// Returns the mount of the container that holds a path, and the rest of the path.
pub(super) fn mount_of<'a>(existing: &'a Existing, path: &str) -> Option<(&'a Value, String)> {
    let inside = |mount: &Value| {
        let at = text(&mount["mountPath"]);
        let rest = path.strip_prefix(at.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| (at.len(), rest.trim_start_matches('/').to_owned()))
    };
    let mounts = items(&existing.container["volumeMounts"]).iter();
    let inner = mounts.filter_map(|mount| Some((mount, inside(mount)?))).max_by_key(|(_, (length, _))| *length);
    inner.map(|(mount, (_, rest))| (mount, rest))
}

/// Returns the ConfigMap or the Secret of a volume, or of a source of a projected volume, with its field there.
pub(super) fn object_of<'a>(existing: &Existing, source: &'a Value) -> Option<(Reference, &'a Value)> {
    let (map, secret) = (&source["configMap"], &source["secret"]);
    if map.is_object() {
        return Some((Reference::config_map(&existing.namespace, map["name"].as_str()?), map));
    }
    // A projected volume has another field for the name.
    let name = secret["secretName"].as_str().or_else(|| secret["name"].as_str())?;
    Some((Reference::secret(&existing.namespace, name), secret))
}

/// Returns the source of a file of the container.
pub(super) fn mounted(existing: &Existing, path: &str) -> Option<Source> {
    let (mount, rest) = mount_of(existing, path)?;
    let sub = text(&mount["subPath"]);
    let file = [sub, rest].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let volume = items(&existing.pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"])?;
    if let Some(host) = volume["hostPath"]["path"].as_str() {
        let file = if file.is_empty() { String::new() } else { format!("/{file}") };
        let how = "the API does not show it: copy it from a node of the control plane, and give it with --cloud-config";
        return Some(Err((format!("{}{file} of the machine", host.trim_end_matches('/')), how)));
    }
    let projected = items(&volume["projected"]["sources"]);
    std::iter::once(volume).chain(projected).find_map(|source| {
        let (reference, source) = object_of(existing, source)?;
        let key = match source["items"].as_array() {
            Some(all) => text(&all.iter().find(|item| item["path"] == file.as_str())?["key"]),
            None => file.clone(),
        };
        Some(Ok((reference, key)))
    })
}

/// Returns the source of a credential in a file that a variable names, such as `HCLOUD_TOKEN_FILE`.
pub(super) fn credential_file(existing: &Existing, name: &str, input: &Input) -> Option<(Reference, String)> {
    let VariableValue::Known(path) = existing.value(&format!("{name}_FILE"), input.found) else { return None };
    mounted(existing, &path)?.ok()
}

/// Whether a variable names the file of a credential that is kept or given.
pub(super) fn is_file_of_credentials(
    existing: &Existing,
    provider: &KubernetesProvider,
    name: &str,
    input: &Input,
) -> bool {
    let known = provider.descriptor.credentials.as_ref().map(|credentials| &credentials.environment);
    let is_there = |name: &str| input.has_credentials || of_file(existing, name, input).is_some();
    name.strip_suffix("_FILE").is_some_and(|name| known.is_some_and(|known| known.contains_key(name)) && is_there(name))
}

/// Returns the value of a credential in a file, with its Secret. Programs omit the spaces around it.
fn of_file(existing: &Existing, name: &str, input: &Input) -> Option<(Option<Reference>, Vec<u8>)> {
    let (reference, key) = credential_file(existing, name, input)?;
    let value = plain(input.found.get(&reference)?, &key)?;
    Some((Some(reference), value.trim_ascii().to_vec()))
}

/// Keeps the Secret with the credentials.
pub(super) fn credentials(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    provider: &KubernetesProvider,
    input: &Input,
) {
    let Some(needed) = &provider.descriptor.credentials else { return };
    let mut values = in_environment(needed, existing, input);
    let nearest = values.values().filter_map(|(place, _)| place.clone()).collect();
    values.extend(in_files(needed, existing, input, &nearest));
    let missing = needed.keys.iter().find(|pattern| !values.keys().any(|key| fits(pattern, key)));
    if values.is_empty() && needed.optional {
        return;
    }
    if let Some(missing) = missing {
        let what = format!("the credentials: nothing that the API shows holds {missing}");
        return proposed.note(Handling::ToDo, what, "give them with --credentials");
    }
    let places: BTreeSet<_> = values.values().map(|(place, _)| place.clone()).collect();
    let known = |key: &str| needed.keys.iter().chain(&needed.optional_keys).any(|pattern| fits(pattern, key));
    if let Some(Some(reference)) = places.iter().next().filter(|_| places.len() == 1) {
        // The new pods read these keys, whichever keys the old ones read.
        let is_same = |object: &Value| {
            let keys = object["data"].as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| known(key));
            let mut keys = keys.chain(values.keys());
            keys.all(|key| plain(object, key).as_ref() == values.get(key).map(|(_, value)| value))
        };
        if input.found.get(reference).is_some_and(is_same) && unusable(proposed, reference, input).is_none() {
            proposed.set("credentials.secretRef.name", reference.name.as_str());
            return proposed.note(Handling::Kept, reference.to_string(), "spec.credentials.secretRef");
        }
    }
    let secret = proposed.secret(input.secret_name);
    secret.data.extend(values.iter().map(|(key, (_, value))| (key.clone(), STANDARD.encode(value))));
    proposed.set("credentials.secretRef.name", input.secret_name);
    let from =
        places.iter().map(|place| place.as_ref().map_or_else(|| "its environment".to_owned(), ToString::to_string));
    let keys = values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let how = format!("copied to Secret {}/{}, with the keys {keys}", proposed.namespace(), input.secret_name);
    proposed.note(Handling::Changed, from.collect::<Vec<_>>().join(" and "), how);
}

/// The values by provider key, each with its Secret (`None` for a value in the manifest).
type Values = BTreeMap<String, (Option<Reference>, Vec<u8>)>;

fn in_environment(needed: &Credentials, existing: &Existing, input: &Input) -> Values {
    let of_key = |reference: &Reference, key: &str| {
        let value = plain(input.found.get(reference)?, key)?;
        Some((Some(reference.clone()), value))
    };
    let variables = existing.variables(input.found);
    let of_variable = |name: &String| match variables.get(name)? {
        VariableSource::Literal(text) if !text.is_empty() => Some((None, existing.expanded(text)?.into_bytes())),
        VariableSource::Key(reference, key, _) => of_key(reference, key),
        _ => None,
    };
    let value = |name: &String| of_variable(name).or_else(|| of_file(existing, name, input));
    needed.environment.iter().filter_map(|(name, key)| Some((key.clone(), value(name)?))).collect()
}

/// Returns the patterns of the keys that a cloud-controller-manager reads from files: those that no variable has. There are none if
/// variables have all that it needs.
pub(super) fn keys_of_files(needed: &Credentials) -> Vec<&String> {
    let is_of_file = |key: &&String| !needed.environment.values().any(|of_variable| of_variable == *key);
    let keys: Vec<_> = needed.keys.iter().filter(is_of_file).collect();
    if keys.is_empty() && !needed.environment.is_empty() {
        return keys;
    }
    keys.into_iter().chain(needed.optional_keys.iter().filter(is_of_file)).collect()
}

/// Returns the credentials in files of a Secret that has all of them: of one that has other credentials, otherwise of one that the
/// container mounts, otherwise of the first that is named anywhere.
fn in_files(needed: &Credentials, existing: &Existing, input: &Input, nearest: &BTreeSet<Reference>) -> Values {
    let patterns = keys_of_files(needed);
    if patterns.is_empty() {
        return Values::new();
    }
    let known = |key: &str| patterns.iter().any(|pattern| fits(pattern, key));
    let secrets = input.found.iter().filter(|(reference, _)| reference.kind == &SECRET);
    let all = secrets.map(|(reference, object)| -> (&Reference, Values) {
        let keys = object["data"].as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| known(key));
        (
            reference,
            keys.filter_map(|key| Some((key.clone(), (Some(reference.clone()), plain(object, key)?)))).collect(),
        )
    });
    let required = || patterns.iter().filter(|pattern| needed.keys.contains(pattern));
    let has_all = |values: &Values| required().all(|pattern| values.keys().any(|key| fits(pattern, key)));
    let mounted = mounted_objects(existing);
    let complete = all.filter(|(_, values)| has_all(values));
    let first = complete.min_by_key(|(reference, _)| (!nearest.contains(reference), !mounted.contains(reference)));
    first.map(|(_, values)| values).unwrap_or_default()
}

/// Returns the ConfigMaps and Secrets of the volumes that the container mounts.
fn mounted_objects(existing: &Existing) -> BTreeSet<Reference> {
    let mounts = items(&existing.container["volumeMounts"]);
    let is_mounted = |volume: &&Value| mounts.iter().any(|mount| mount["name"] == volume["name"]);
    let volumes = items(&existing.pod["volumes"]).iter().filter(is_mounted);
    let sources = volumes.flat_map(|volume| std::iter::once(volume).chain(items(&volume["projected"]["sources"])));
    sources.filter_map(|source| Some(object_of(existing, source)?.0)).collect()
}
