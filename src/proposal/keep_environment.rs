//! The environment of an existing cloud-controller-manager (pure).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    existing::{Existing, VariableSource, text},
    keep_arguments::{harmless, loss},
    keep_controllers::{is_of_routes, off},
    keep_inputs::is_file_of_credentials,
    proposed::{Handling, Input, ProposedCcm},
    provider::container,
    values::{VariableValue, plain},
};
use crate::{
    facts::ccm::Controller,
    object::{items, reference::SECRET},
    provider::kubernetes::KubernetesProvider,
};

/// The proxy variables and their fields.
const PROXY: [(&str, &str); 3] = [("HTTP_PROXY", "httpProxy"), ("HTTPS_PROXY", "httpsProxy"), ("NO_PROXY", "noProxy")];

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
    let ours = |name: &str| {
        let variables = items(container(provider).map_or(&Value::Null, |container| &container["env"]));
        variables.iter().find(|variable| variable["name"] == name).map(|variable| text(&variable["value"]))
    };
    let ccm = &existing.container;
    let words = existing.flags.iter().filter_map(|(_, value)| value.as_deref());
    let written = items(&ccm["command"]).iter().chain(items(&ccm["args"])).filter_map(Value::as_str);
    let words: Vec<_> = words.chain(written).collect();
    let is_used = |name: &str| words.iter().any(|word| word.contains(&format!("$({name})")));
    api_server(proposed, existing);
    for (name, origin) in &existing.variables(input.found) {
        // Programs read variables in upper case. Other keys of an object are for something else.
        let is_inherited = !existing.environment.contains_key(name);
        let is_foreign = is_inherited && !name.contains(|letter: char| letter.is_ascii_uppercase());
        let proxy = PROXY.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, field)| *field);
        let what = format!("variable {name}");
        match (origin, proxy, descriptor.migration.switches.get(name)) {
            _ if name.starts_with("KUBERNETES_SERVICE_") || of_credentials(name) || is_used(name) || is_foreign => {}
            _ if is_of_routes(provider, name) || is_file_of_credentials(existing, provider, name, input) => {}
            _ if descriptor.allowed_environment.contains(name) => allowed(proposed, existing, (name, origin), input),
            (VariableSource::Literal(value), Some(field), _) => {
                if let Some(value) = existing.expanded(value) {
                    proposed.set(&format!("proxy.{field}"), value);
                    proposed.note(Handling::Kept, name.as_str(), format!("spec.proxy.{field}"));
                } else {
                    let how = format!("its value refers to another variable: write the text into spec.proxy.{field}");
                    proposed.note(Handling::ToDo, what, how);
                }
            }
            (VariableSource::Key(reference, ..), Some(field), _) => {
                let how = format!("write its value into spec.proxy.{field}, if it is no secret");
                proposed.note(Handling::ToDo, format!("{what} ({reference})"), how);
            }
            (_, _, Some(states)) => switch(proposed, existing, (name, origin), states, input),
            (VariableSource::Literal(value), ..) if ours(name).as_ref() == Some(value) => {}
            (VariableSource::Field, ..) => {}
            _ => {
                let is_set = descriptor.environment.values().any(|set| set.contains_key(name)) || ours(name).is_some();
                let is_empty = *origin == VariableSource::Literal(String::new());
                let (result, how) = match (is_set, harmless(provider, name, ""), is_empty) {
                    (true, ..) => (Handling::Changed, format!("provider {} sets it", descriptor.name)),
                    (_, Some(why), _) => (Handling::Unused, why.to_owned()),
                    (_, _, true) => {
                        let how = format!("provider {} has no such variable, and its value is empty", descriptor.name);
                        (Handling::Changed, how)
                    }
                    _ => {
                        let loss = loss(provider, name);
                        (Handling::NotKept, format!("provider {} has no such variable{loss}", descriptor.name))
                    }
                };
                proposed.note(result, what, how);
            }
        }
    }
    for (reference, _) in existing.environment_from.iter().filter(|(reference, _)| !input.found.contains_key(reference))
    {
        let how = "it does not exist, or you may not read it: if it exists, look at what the program reads from it";
        proposed.note(Handling::ToDo, format!("the variables of {reference}"), how);
    }
}

/// Keeps the address of the API server.
fn api_server(proposed: &mut ProposedCcm, existing: &Existing) {
    let given = |name: &str| match existing.environment.get(name) {
        Some(VariableSource::Literal(value)) => existing.expanded(value),
        _ => None,
    };
    if let Some(host) = given("KUBERNETES_SERVICE_HOST") {
        let port = given("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse::<u16>().ok()).unwrap_or(443);
        proposed.note(Handling::Kept, format!("KUBERNETES_SERVICE_HOST={host}"), "spec.placement.apiServer");
        proposed.set("placement.apiServer", json!({"host": host, "port": port}));
    }
}

/// Keeps a variable that turns controllers off with one of these values.
fn switch(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    (name, origin): (&str, &VariableSource),
    states: &BTreeMap<String, Vec<Controller>>,
    input: &Input,
) {
    let what = format!("variable {name}");
    let value = match existing.value(name, input.found) {
        VariableValue::Absent => return,
        VariableValue::Known(value) => value,
        VariableValue::Unknown => {
            let how = "it may turn controllers off, and the API does not show its value: look at spec.controllers";
            return proposed.note(Handling::NotKept, what, how);
        }
    };
    let off = off(states, &value);
    for controller in &off {
        proposed.set(&format!("controllers.{}", controller.field()), "Disabled");
    }
    let fields: Vec<_> = off.iter().map(|one| format!("spec.controllers.{}: Disabled", one.field())).collect();
    let how = if fields.is_empty() { "it turns no controller off".to_owned() } else { fields.join(", ") };
    // A value of a Secret is not shown.
    let shown = if matches!(origin, VariableSource::Literal(_)) { format!("={value}") } else { String::new() };
    proposed.note(Handling::Kept, format!("{what}{shown}"), how);
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
