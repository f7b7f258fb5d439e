//! How facts enter a manifest: small functions on the parsed object, one for each concern (pure).

use serde_json::{Value, json};

use crate::object::each_text;
use crate::{
    facts::{DEFAULT_NAMESPACE, Fact, Facts, images},
    object::{Object, container_name, reference},
    provider::{Descriptor, FactOrText, ValueSource},
};

/// The flag that names the namespace of a cloud-controller-manager's lease.
const LEASE_NAMESPACE_FLAG: &str = "--leader-elect-resource-namespace=";

/// Why a manifest cannot be completed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A container's image is not known.
    #[error("failed to set an image of {object}")]
    Image {
        /// The object.
        object: String,
        /// The cause.
        source: Box<images::Error>,
    },
    /// A fact that the manifest needs has no value.
    #[error("{object}: {what} of container {container} needs the fact {fact}, which this cluster does not have")]
    NoValue {
        /// The object.
        object: String,
        /// The container.
        container: String,
        /// The argument or variable.
        what: String,
        /// The fact's name.
        fact: &'static str,
    },
}

/// Completes a manifest of `assets/`.
pub(super) fn cluster(descriptor: &Descriptor, manifest: &Object, facts: &Facts) -> Result<Object, Error> {
    let mut object = manifest.clone();
    namespace(&mut object, &facts.namespace);
    images(descriptor, &mut object, facts)?;
    arguments(descriptor, &mut object, facts)?;
    environment(descriptor, &mut object, facts)?;
    api_server_endpoint(&mut object, facts);
    proxy(&mut object, facts);
    replicas(&mut object, facts);
    config_hash(&mut object, facts);
    Ok(object)
}

/// Completes a manifest of `bootstrap/`: what differs from cluster to cluster there is the image alone.
pub(super) fn bootstrap(descriptor: &Descriptor, manifest: &Object, facts: &Facts) -> Result<Object, Error> {
    let mut object = manifest.clone();
    images(descriptor, &mut object, facts)?;
    Ok(object)
}

/// What was written for the default namespace follows the managed one; what was written for another stays there.
fn namespace(object: &mut Object, namespace: &str) {
    if namespace == DEFAULT_NAMESPACE {
        return;
    }
    let value = object.value_mut();
    let subjects = value["subjects"].as_array().map_or(0, Vec::len);
    let subjects = (0..subjects).map(|index| format!("/subjects/{index}/namespace"));
    for pointer in std::iter::once("/metadata/namespace".to_owned()).chain(subjects) {
        if let Some(place) = value.pointer_mut(&pointer).filter(|place| *place == DEFAULT_NAMESPACE) {
            *place = namespace.into();
        }
    }
    let (user, to) =
        (format!("system:serviceaccount:{DEFAULT_NAMESPACE}:"), format!("system:serviceaccount:{namespace}:"));
    each_text(value, &mut |text| {
        if text.strip_prefix(LEASE_NAMESPACE_FLAG) == Some(DEFAULT_NAMESPACE) {
            *text = format!("{LEASE_NAMESPACE_FLAG}{namespace}");
        } else if text.contains(&user) {
            *text = text.replace(&user, &to);
        }
    });
}

fn images(descriptor: &Descriptor, object: &mut Object, facts: &Facts) -> Result<(), Error> {
    let key = object.key().to_string();
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        if let Some(source) = descriptor.images.get(&name) {
            let image = facts.images.as_ref().map_err(Clone::clone).and_then(|images| images.get(&source.key, &name));
            container["image"] =
                image.map_err(|source| Error::Image { object: key.clone(), source: source.into() })?.into();
        }
    }
    Ok(())
}

fn arguments(descriptor: &Descriptor, object: &mut Object, facts: &Facts) -> Result<(), Error> {
    let key = object.key().to_string();
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        for (flag, source) in descriptor.arguments.get(&name).into_iter().flatten() {
            let missing = |fact| no_value(&key, &name, format!("argument {flag}"), fact);
            if let Some(value) = resolve(source, facts).map_err(missing)? {
                push(container, "args", format!("{flag}={value}").into());
            }
        }
    }
    Ok(())
}

fn environment(descriptor: &Descriptor, object: &mut Object, facts: &Facts) -> Result<(), Error> {
    let key = object.key().to_string();
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        for (variable, source) in descriptor.environment.get(&name).into_iter().flatten() {
            let missing = |fact| no_value(&key, &name, format!("variable {variable}"), fact);
            if let Some(value) = resolve(source, facts).map_err(missing)? {
                set_variable(container, variable, &value);
            }
        }
    }
    Ok(())
}

/// Pods read what they mount once, when they start: their template changes with it, so that they are started again.
fn config_hash(object: &mut Object, facts: &Facts) {
    let (Some(digests), Some("/spec/template/spec")) = (&facts.digests, object.pod_spec_pointer()) else { return };
    let references = object.pod_spec().map(|pod| reference::references(pod, object.namespace())).unwrap_or_default();
    if !references.is_empty() {
        let hash = reference::hash(&references, digests);
        object.value_mut()["spec"]["template"]["metadata"]["annotations"][reference::ANNOTATION] = hash.into();
    }
}

/// Pods on the host's network reach the API server by its internal name: the Service's address needs a pod network,
/// which needs initialised nodes, which need these pods.
fn api_server_endpoint(object: &mut Object, facts: &Facts) {
    let Ok(Some((host, port))) = &facts.api_server else { return };
    for container in containers_mut(object, &["containers"]) {
        set_variable(container, "KUBERNETES_SERVICE_HOST", host);
        set_variable(container, "KUBERNETES_SERVICE_PORT", port);
    }
}

fn proxy(object: &mut Object, facts: &Facts) {
    for container in containers_mut(object, &["containers"]) {
        for (variable, value) in &facts.proxy {
            set_variable(container, variable, value);
        }
    }
}

fn replicas(object: &mut Object, facts: &Facts) {
    let single = facts.single_replica && object.kind().kind == "Deployment";
    if single && let Some(spec) = object.value_mut().get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas".into(), 1.into());
    }
}

/// The value of an argument or variable, `None` when it is to be left out, or the fact that is missing.
fn resolve(source: &ValueSource, facts: &Facts) -> Result<Option<String>, Fact> {
    if source.feature_gate.as_deref().is_some_and(|gate| !facts.has_feature_gate(gate)) {
        return Ok(None);
    }
    match &source.value {
        FactOrText::Text(text) => Ok(Some(text.clone())),
        FactOrText::Fact(fact) => match facts.value(*fact) {
            None if !source.optional => Err(*fact),
            value => Ok(value),
        },
    }
}

fn no_value(object: &str, container: &str, what: String, fact: Fact) -> Error {
    Error::NoValue { object: object.to_owned(), container: container.to_owned(), what, fact: fact.name() }
}

fn containers_mut<'a>(object: &'a mut Object, lists: &'a [&str]) -> impl Iterator<Item = &'a mut Value> {
    object
        .pod_spec_mut()
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(|spec| spec.iter_mut())
        .filter(|(list, _)| lists.contains(&list.as_str()))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
}

fn set_variable(container: &mut Value, name: &str, value: &str) {
    let variable = json!({"name": name, "value": value});
    let existing = container["env"].as_array_mut().and_then(|all| all.iter_mut().find(|one| one["name"] == name));
    match existing {
        Some(existing) => *existing = variable,
        None => push(container, "env", variable),
    }
}

/// Appends to the list under a key of a container, which is made when it is absent.
fn push(container: &mut Value, key: &str, item: Value) {
    match &mut container[key] {
        Value::Array(items) => items.push(item),
        place => *place = Value::Array(vec![item]),
    }
}
