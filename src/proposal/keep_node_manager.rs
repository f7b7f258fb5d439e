//! The settings of an existing node manager, which the operator's own replaces (pure).

use serde_json::Value;

use super::{
    existing::{Existing, VariableSource, text},
    keep_arguments::{given, harmless, is_of_process, loss},
    keep_pod,
    proposed::{Handling, ProposedCcm},
};
use crate::{
    facts::Fact,
    nodes::observed::flags,
    object::{Object, items},
    provider::{FactOrText, kubernetes::KubernetesProvider},
    text::boolean,
};

/// Fields of the pods that decide on which nodes they run.
const PLACEMENT: [&str; 2] = ["nodeSelector", "affinity"];

/// Variables that the operator sets in the pods of both programs.
const OF_BOTH: [&str; 5] =
    ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// Reports what the operator's node manager does not have. The controllers of the proposal have to be final.
pub(crate) fn settings(proposed: &mut ProposedCcm, manager: &Existing, provider: &KubernetesProvider) {
    let of = format!(" of {}", manager.key());
    let ours = own(provider, manager);
    arguments(proposed, manager, provider, ours);
    waits(proposed, manager, provider);
    for (name, source) in &manager.environment {
        let is_set = items(&ours["env"]).iter().any(|variable| variable["name"] == name.as_str());
        if is_set || OF_BOTH.contains(&name.to_uppercase().as_str()) || *source == VariableSource::Field {
            continue;
        }
        let (result, how) = match harmless(provider, name, "") {
            Some(why) => (Handling::Unused, why.to_owned()),
            None => {
                (Handling::NotKept, format!("the operator's node manager has no such variable{}", loss(provider, name)))
            }
        };
        proposed.note(result, format!("variable {name}{of}"), how);
    }
    for field in PLACEMENT {
        let how =
            "the operator's node manager runs on each node with Linux, whose machine then has to be of this cloud";
        if !is_everywhere(&manager.pod[field]) {
            proposed.note(Handling::NotKept, format!("{field}{of}"), how);
        }
    }
    for (reference, _) in &manager.environment_from {
        let how = "the operator's node manager does not have them: look at what the program reads from it";
        proposed.note(Handling::NotKept, format!("the variables of {reference}{of}"), how);
    }
    keep_pod::common_fields(proposed, &manager.pod, &of);
    keep_pod::containers(proposed, manager, provider, &of);
    for volume in items(&manager.pod["volumes"]).iter().filter(|volume| !volume["emptyDir"].is_object()) {
        let what = format!("volume {}{of}", text(&volume["name"]));
        proposed.note(Handling::Changed, what, "not mounted: the program reads only files that its flags name");
    }
}

/// Returns the container of the operator's node manager.
fn own<'a>(provider: &'a KubernetesProvider, manager: &Existing) -> &'a Value {
    let name = provider.descriptor.container_of(&manager.image);
    let pod = provider.node_manager().and_then(Object::pod_spec).unwrap_or(&Value::Null);
    items(&pod["containers"]).iter().find(|one| one["name"].as_str() == name).unwrap_or(&Value::Null)
}

fn arguments(proposed: &mut ProposedCcm, manager: &Existing, provider: &KubernetesProvider, ours: &Value) {
    let Some(name) = provider.descriptor.container_of(&manager.image) else { return };
    let set = provider.descriptor.arguments.get(name);
    let ours = flags(ours);
    for (flag, (value, what)) in given(manager) {
        let named = format!("--{flag}");
        let own = ours.iter().find(|(own, _)| own == flag).map(|(_, value)| value.as_deref().unwrap_or("true"));
        if own == Some(value) || set.is_some_and(|set| set.contains_key(&named)) {
            continue;
        }
        let (result, how) = match (own, harmless(provider, &named, value)) {
            (Some(own), _) => (Handling::Changed, format!("the operator sets it to {own}")),
            (None, Some(why)) => (Handling::Unused, why.to_owned()),
            (None, None) if is_of_process(flag) => (
                Handling::Changed,
                "the operator's node manager does not have it; nodes do not depend on it".to_owned(),
            ),
            (None, None) => {
                let loss = loss(provider, &named);
                (Handling::NotKept, format!("the operator's node manager does not have it{loss}"))
            }
        };
        proposed.note(result, format!("{what} of {}", manager.key()), how);
    }
}

/// Reports a change of the flags that depend on routes.
fn waits(proposed: &mut ProposedCcm, manager: &Existing, provider: &KubernetesProvider) {
    let Some(name) = provider.descriptor.container_of(&manager.image) else { return };
    let has_routes = proposed.spec["controllers"]["route"] == "Enabled";
    let set = provider.descriptor.arguments.get(name).into_iter().flatten();
    for (flag, _) in set.filter(|(_, source)| source.value == FactOrText::Fact(Fact::Routes)) {
        let before = manager.flag(flag.trim_start_matches('-')).and_then(boolean) == Some(true);
        if before != has_routes {
            let routes = if has_routes { "on" } else { "off" };
            let how = format!("{flag}={has_routes}, because routes are {routes}{}", loss(provider, flag));
            proposed.note(Handling::Changed, format!("{flag}={before} of {}", manager.key()), how);
        }
    }
}

/// Whether pods with this field run on each node with Linux.
fn is_everywhere(field: &Value) -> bool {
    let is_system = |name: &str| name == "kubernetes.io/os" || name == "beta.kubernetes.io/os";
    field.as_object().is_none_or(|members| members.keys().all(|name| is_system(name)))
}
