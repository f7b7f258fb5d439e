//! The environment of an existing cloud-controller-manager (pure).

use serde_json::{Value, json};

use super::{
    existing::{Existing, VariableSource, text},
    keep_inputs::plain,
    proposed::{Handling, Input, ProposedCcm},
    provider::container,
};
use crate::{
    object::{items, reference::SECRET},
    provider::kubernetes::KubernetesProvider,
    text::boolean,
};

/// The proxy variables and their fields.
const PROXY: [(&str, &str); 3] = [("HTTP_PROXY", "httpProxy"), ("HTTPS_PROXY", "httpsProxy"), ("NO_PROXY", "noProxy")];

/// Variables that turn a controller off, with its field.
const SWITCHES: [(&str, &str); 1] = [("HCLOUD_LOAD_BALANCERS_ENABLED", "controllers.service")];

/// Keeps or reports the environment variables.
pub(super) fn environment(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    provider: &KubernetesProvider,
    input: &Input,
) {
    let descriptor = &provider.descriptor;
    let of_credentials =
        |name: &str| descriptor.credentials.as_ref().is_some_and(|one| one.environment.contains_key(name));
    let is_set = |name: &str| descriptor.environment.values().any(|set| set.contains_key(name));
    let ours = |name: &str| {
        let variables = items(container(provider).map_or(&Value::Null, |container| &container["env"]));
        variables.iter().find(|variable| variable["name"] == name).map(|variable| text(&variable["value"]))
    };
    let words = existing.flags.iter().filter_map(|(_, value)| value.as_deref());
    let words: Vec<_> = words.chain(items(&existing.container()["args"]).iter().filter_map(Value::as_str)).collect();
    let is_used = |name: &str| words.iter().any(|word| word.contains(&format!("$({name})")));
    let api_server = |name: &str| match existing.environment.get(name) {
        Some(VariableSource::Literal(value)) => Some(value.clone()),
        _ => None,
    };
    if let Some(host) = api_server("KUBERNETES_SERVICE_HOST") {
        let port = api_server("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse::<u16>().ok()).unwrap_or(443);
        proposed.note(Handling::Kept, format!("KUBERNETES_SERVICE_HOST={host}"), "spec.placement.apiServer");
        proposed.set("placement.apiServer", json!({"host": host, "port": port}));
    }
    for (name, origin) in &existing.variables(input.found) {
        // Programs read variables in upper case. Other keys of an object are for something else.
        let is_inherited = !existing.environment.contains_key(name);
        let is_foreign = is_inherited && !name.contains(|letter: char| letter.is_ascii_uppercase());
        let proxy = PROXY.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, field)| *field);
        let switch = SWITCHES.iter().find(|(known, _)| name == known).map(|(_, field)| *field);
        let what = format!("variable {name}");
        match (origin, proxy, switch) {
            _ if name.starts_with("KUBERNETES_SERVICE_") || of_credentials(name) || is_used(name) || is_foreign => {}
            _ if descriptor.allowed_environment.contains(name) => allowed(proposed, existing, (name, origin), input),
            (VariableSource::Literal(value), Some(field), _) => {
                proposed.set(&format!("proxy.{field}"), value.as_str());
                proposed.note(Handling::Kept, name.as_str(), format!("spec.proxy.{field}"));
            }
            (VariableSource::Literal(value), _, Some(field)) => {
                if boolean(value) == Some(false) {
                    proposed.set(field, "Disabled");
                }
                proposed.note(Handling::Kept, format!("{what}={value}"), format!("spec.{field}"));
            }
            (VariableSource::Literal(value), ..) if ours(name).as_ref() == Some(value) => {}
            (VariableSource::Field, ..) => {}
            _ => {
                let is_ours = is_set(name) || ours(name).is_some();
                let is_empty = *origin == VariableSource::Literal(String::new());
                let (result, verb) = match (is_ours, is_empty) {
                    (true, _) => (Handling::Changed, "sets it"),
                    (false, true) => (Handling::Changed, "has no such variable, and its value is empty"),
                    (false, false) => (Handling::NotKept, "has no such variable"),
                };
                proposed.note(result, what, format!("provider {} {verb}", descriptor.name));
            }
        }
    }
    for (reference, _) in existing.environment_from.iter().filter(|(reference, _)| !input.found.contains_key(reference))
    {
        let how = "it does not exist, or you may not read it: if it exists, look at what the program reads from it";
        proposed.note(Handling::ToDo, format!("the variables of {reference}"), how);
    }
}

/// Keeps a variable that `spec.environment` takes.
fn allowed(proposed: &mut ProposedCcm, existing: &Existing, (name, origin): (&str, &VariableSource), input: &Input) {
    let what = format!("variable {name}");
    let by_hand = "write its value into spec.environment, if everyone who can read the object may read it";
    let (reference, key, is_optional) = match origin {
        VariableSource::Literal(value) => {
            let Some(value) = existing.expanded(value) else {
                return proposed.note(Handling::ToDo, what, format!("its value refers to another variable: {by_hand}"));
            };
            proposed.set_at(&["environment", name], value);
            return proposed.note(Handling::Kept, what, "spec.environment");
        }
        VariableSource::Field => {
            return proposed.note(Handling::NotKept, what, "its value is a field of the pod");
        }
        VariableSource::Key(reference, key, is_optional) => (reference, key, *is_optional),
    };
    let (what, object) = (format!("{what} ({reference}, key {key})"), input.found.get(reference));
    let value = object.and_then(|object| String::from_utf8(plain(object, key)?).ok());
    match value {
        Some(value) if reference.kind != &SECRET => {
            proposed.set_at(&["environment", name], value.as_str());
            proposed.note(Handling::Changed, what, "copied to spec.environment");
        }
        None if is_optional => {}
        _ => proposed.note(Handling::ToDo, what, by_hand),
    }
}
