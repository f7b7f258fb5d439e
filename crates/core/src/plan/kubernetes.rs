//! The objects of the flavor kubernetes, for a `CloudControllerManager` (pure).
//!
//! As for OpenShift, small functions set the facts in the parsed objects, one for each concern.

pub(super) mod check;
pub mod conflict;
mod files;
pub mod flags;
pub mod guard;
pub(super) mod images;
mod placement;
pub mod sources;
pub mod trial;
pub mod validation;

use serde_json::{Map, Value};

use crate::{
    facts::{
        Facts,
        ccm::{Ccm, Controller, LEASE, ONLY},
    },
    object::{
        Object, container_name, each_text,
        reference::{self, Digests, Reference},
    },
    plan::{
        Error, needs,
        substitute::{self, containers_mut, push},
    },
    provider::{
        CCM,
        kubernetes::{INSTANCE_LABEL, KubernetesProvider, NAMESPACE},
        restriction,
    },
};

pub use check::ignored;
pub use images::{choose, reference};

/// The checks. Only the first problem is reported.
const RULES: [fn(&KubernetesProvider, &Ccm) -> Option<check::Unfit>; 15] = [
    check::api,
    check::arguments,
    check::feature_gates,
    check::environment,
    check::proxy,
    check::load_balancers,
    check::routes,
    check::placement,
    check::configuration,
    check::namespace,
    check::node_manager,
    check::credentials,
    images::digest_problem,
    images::containers,
    images::pinned,
];

fn check(provider: &KubernetesProvider, ccm: &Ccm) -> Result<(), Error> {
    let unfit = RULES.iter().find_map(|rule| rule(provider, ccm));
    unfit.map_or(Ok(()), |(field, problem)| Err(check::asked(ccm, &field, problem)))
}

/// Plans the objects that should exist. The digests are of the ConfigMaps and Secrets that it names; `None` without a cluster.
pub(super) fn objects(
    provider: &KubernetesProvider,
    ccm: &Ccm,
    digests: Option<Digests>,
) -> Result<Vec<Object>, Error> {
    check(provider, ccm)?;
    let mut objects = planned(provider, ccm, digests)?;
    objects.extend(guard::objects(provider, ccm)?);
    // The sort is stable, and manifests are in the order of applying already.
    objects.sort_by_key(|object| object.kind().wave);
    Ok(objects)
}

/// Plans the objects of a checked `CloudControllerManager`, without the guard of nodes.
fn planned(provider: &KubernetesProvider, ccm: &Ccm, digests: Option<Digests>) -> Result<Vec<Object>, Error> {
    let descriptor = &provider.descriptor;
    let own: Vec<(&str, &str)> = provider.manifests.iter().map(|one| (one.kind().kind, one.name())).collect();
    let has_budget = placement::replicas(ccm) > 1;
    let initializes = ccm.controllers().any(|controller| controller == Controller::CloudNode);
    let inline = files::inline(descriptor, ccm);
    // Its flags cover only the controllers that it runs itself.
    let mut facts = Facts { digests, ..descriptor.own(ccm).into_owned().facts() };
    if let Some(planned) = &inline {
        // So that its change restarts the pods immediately and only once.
        let reference = Reference::config_map(planned.namespace(), planned.name());
        facts.digests.get_or_insert_default().insert(reference, reference::digest(planned.value()));
    }
    let on_every_node = ccm.api_server_of_every_node();
    let is_planned = |one: &&Object| {
        (has_budget || one.kind().kind != "PodDisruptionBudget") && (initializes || !descriptor.is_of_node_manager(one))
    };
    let mut objects = provider
        .manifests
        .iter()
        .filter(is_planned)
        .map(|manifest| {
            let mut object = manifest.clone();
            names(&mut object, &own, ccm);
            restriction::rename(&mut object, &provider.manifests, |(namespace, name)| {
                let moved = if namespace == NAMESPACE { &ccm.spec.namespace } else { namespace };
                (moved.clone(), ccm.named(name))
            });
            images::set(descriptor, &mut object, ccm)?;
            substitute::values((&descriptor.arguments, &descriptor.environment), &mut object, &facts)?;
            further_settings(&mut object, ccm);
            files::mount(descriptor, &mut object, ccm);
            // The pods of the node manager run on every node.
            if descriptor.is_of_node_manager(manifest) {
                substitute::common_environment(&mut object, on_every_node.as_ref(), &facts.proxy);
            } else {
                substitute::common_environment(&mut object, facts.api_server(), &facts.proxy);
                placement::place(&mut object, ccm, descriptor.images.values())?;
            }
            ports(&mut object, ccm);
            narrow(provider, &mut object, ccm);
            substitute::config_hash(&mut object, &facts)?;
            Ok(object)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    objects.extend(inline);
    Ok(objects)
}

/// Sets the fields that distinguish the objects of several `CloudControllerManager`s: names, instance label, namespace.
fn names(object: &mut Object, own: &[(&str, &str)], ccm: &Ccm) {
    let is_own = |kind: &str, name: &str| own.contains(&(kind, name));
    let namespace = &ccm.spec.namespace;
    let is_binding = object.value().get("roleRef").is_some();
    let kind = object.kind();
    let value = object.value_mut();
    if is_binding {
        for subject in value.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            let name = subject["name"].as_str().unwrap_or_default();
            if is_own("ServiceAccount", name) {
                subject["name"] = ccm.named(name).into();
                subject["namespace"] = namespace.as_str().into();
            }
        }
    }
    // A binding to a role of the cluster itself stays in the role's namespace.
    let mut follows = value["metadata"]["namespace"] == NAMESPACE;
    if is_binding {
        let role = value["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
        if is_own(value["roleRef"]["kind"].as_str().unwrap_or_default(), &role) {
            value["roleRef"]["name"] = ccm.named(&role).into();
        } else {
            follows = false;
        }
    }
    if follows {
        value["metadata"]["namespace"] = namespace.as_str().into();
    }
    let name = ccm.named(value["metadata"]["name"].as_str().unwrap_or_default());
    value["metadata"]["name"] = name.into();
    for (pointer, kind) in kind.names {
        if let Some(named) = value.pointer_mut(pointer)
            && let Some(other) = named.as_str().filter(|other| is_own(kind, other))
        {
            *named = ccm.named(other).into();
        }
    }
    let [before, after] = [NAMESPACE, namespace].map(|namespace| format!("'system:serviceaccount:{namespace}:"));
    each_text(value, &mut |text| {
        // Split once, because a search for each account would scan the text once per account.
        let mut parts = text.split(&before);
        let mut renamed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.split_once('\'').filter(|(name, _)| is_own("ServiceAccount", name)) {
                Some((name, rest)) => renamed.extend([&after, &ccm.named(name), "'", rest]),
                None => renamed.extend([before.as_str(), part]),
            }
        }
        *text = renamed;
    });
    let lease = ccm.lease_name();
    for rule in value.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_of_leases = rule["resources"].as_array().is_some_and(|all| all.iter().any(|one| one == "leases"));
        let names = rule.get_mut("resourceNames").filter(|_| is_of_leases).and_then(Value::as_array_mut);
        // Any other lease belongs to the cloud's own code and has a fixed name.
        for name in names.into_iter().flatten().filter(|name| *name == LEASE) {
            *name = lease.as_str().into();
        }
    }
    instance_label(object.value_mut(), &ccm.name);
}

/// Sets the label wherever the manifest has it: on objects, on pods, in selectors.
fn instance_label(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            if let Some(label) = fields.get_mut(INSTANCE_LABEL).filter(|label| *label == ONLY) {
                *label = name.into();
            }
            fields.values_mut().for_each(|field| instance_label(field, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| instance_label(item, name)),
        _ => {}
    }
}

/// Adds the flags and the environment variables of the administrator.
fn further_settings(object: &mut Object, ccm: &Ccm) {
    let containers = containers_mut(object, &["containers"]);
    for container in containers.filter(|container| container_name(container) == CCM) {
        for (flag, value) in &ccm.spec.arguments {
            push(container, "args", format!("{flag}={value}").into());
        }
        let variables = ccm.spec.environment.iter();
        substitute::set_variables(container, variables.map(|(name, value)| (name.as_str(), value.clone())));
    }
}

/// Sets the port number. The probes refer to the port by name.
fn ports(object: &mut Object, ccm: &Ccm) {
    for container in containers_mut(object, &["containers"]) {
        let ports = container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
        for port in ports.filter(|port| port["name"] == "https") {
            port["containerPort"] = ccm.spec.ports.secure.into();
        }
    }
}

/// Limits the account's ClusterRole to the needs of the enabled controllers.
fn narrow(provider: &KubernetesProvider, object: &mut Object, ccm: &Ccm) {
    let account = provider.account();
    if object.kind().kind == "ClusterRole" && account.is_some_and(|account| ccm.named(account) == object.name()) {
        let controllers: Vec<_> = provider.descriptor.own(ccm).controllers().collect();
        object.value_mut()["rules"] = needs::rules(&controllers, &provider.descriptor.permissions);
    }
}

fn pod_mut(object: &mut Object) -> Option<&mut Map<String, Value>> {
    substitute::pod_mut(object)?.as_object_mut()
}

#[cfg(test)]
mod tests;
