//! Sets facts in a manifest (pure): small functions on the parsed object, one for each concern.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    facts::{DEFAULT_NAMESPACE, Fact, Facts},
    object::{Object, container_name, each_text, place, reference},
    plan::Error,
    provider::{FactOrText, ImageSource, OpenShiftProvider, ValueSource},
    text::work,
};

/// The flag with the namespace of a cloud-controller-manager's lease.
const LEASE_NAMESPACE_FLAG: &str = "--leader-elect-resource-namespace=";

/// Completes a manifest of `assets/`.
pub(super) fn cluster(provider: &OpenShiftProvider, manifest: &Object, facts: &Facts) -> Result<Object, Error> {
    let mut object = manifest.clone();
    let descriptor = &provider.descriptor;
    namespace(&mut object, &facts.namespace);
    images(provider, &mut object, facts)?;
    values((&descriptor.arguments, &descriptor.environment), &mut object, facts)?;
    common_environment(&mut object, facts.api_server(), &facts.proxy);
    replicas(&mut object, facts);
    config_hash(&mut object, facts)?;
    Ok(object)
}

/// Completes a manifest of `bootstrap/`, in which only the images depend on the cluster.
pub(super) fn bootstrap(provider: &OpenShiftProvider, manifest: &Object, facts: &Facts) -> Result<Object, Error> {
    let mut object = manifest.clone();
    images(provider, &mut object, facts)?;
    Ok(object)
}

/// Replaces the default namespace with the managed one. Other namespaces are unchanged.
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
    each_text(value, &mut |text| *text = text_in(namespace, text).unwrap_or_else(|| std::mem::take(text)));
}

/// Returns the text for another namespace, or `None` if it does not name the managed one.
pub(super) fn text_in(namespace: &str, text: &str) -> Option<String> {
    if text.strip_prefix(LEASE_NAMESPACE_FLAG) == Some(DEFAULT_NAMESPACE) {
        return Some(format!("{LEASE_NAMESPACE_FLAG}{namespace}"));
    }
    let [user, to] = [DEFAULT_NAMESPACE, namespace].map(|namespace| format!("system:serviceaccount:{namespace}:"));
    text.contains(&user).then(|| text.replace(&user, &to))
}

fn images(provider: &OpenShiftProvider, object: &mut Object, facts: &Facts) -> Result<(), Error> {
    let key = object.key().to_string();
    // A release has no image of an external provider, so the image of its manifest stays. The rules require it to be pinned.
    let is_own = |source: &ImageSource| {
        provider.origin.is_some() && facts.images.as_ref().is_ok_and(|images| !images.has(&source.key))
    };
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        if let Some(source) = provider.descriptor.images.get(&name).filter(|source| !is_own(source)) {
            let image = facts.images.as_ref().map_err(Clone::clone).and_then(|images| images.get(&source.key, &name));
            container["image"] =
                image.map_err(|source| Error::Image { object: key.clone(), source: source.into() })?.into();
        }
    }
    Ok(())
}

/// The sources of values, by the container's name and the target's.
type Sources = BTreeMap<String, BTreeMap<String, ValueSource>>;

/// Sets the descriptor's arguments and environment variables.
pub(super) fn values(
    (arguments, environment): (&Sources, &Sources),
    object: &mut Object,
    facts: &Facts,
) -> Result<(), Error> {
    let key = object.key().to_string();
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        let resolve = |kind: &str, target: &str, source: &ValueSource| {
            resolve(source, facts).map_err(|fact| Error::NoValue {
                object: key.clone(),
                container: name.clone(),
                what: format!("{kind} {target}"),
                fact: fact.name(),
            })
        };
        for (flag, source) in arguments.get(&name).into_iter().flatten() {
            if let Some(value) = resolve("argument", flag, source)? {
                push(container, "args", format!("{flag}={value}").into());
            }
        }
        let mut variables = Vec::new();
        for (variable, source) in environment.get(&name).into_iter().flatten() {
            variables.extend(resolve("variable", variable, source)?.map(|value| (variable.as_str(), value)));
        }
        set_variables(container, variables);
    }
    Ok(())
}

/// Sets an annotation of the pod template that changes with mounted files, because pods read these only when they start.
pub(super) fn config_hash(object: &mut Object, facts: &Facts) -> Result<(), Error> {
    let (Some(digests), Some("/spec/template/spec")) = (&facts.digests, object.pod_spec_pointer()) else {
        return Ok(());
    };
    let references = object.pod_spec().map(|pod| reference::references(pod, object.namespace())).unwrap_or_default();
    if !references.is_empty() {
        let hash = reference::hash(&references, digests);
        let name = if facts.ccm.is_some() { reference::KUBERNETES_ANNOTATION } else { reference::ANNOTATION };
        let path = ["spec", "template", "metadata", "annotations", name];
        let shape = Error::Shape { object: object.key().to_string(), field: "spec.template.metadata.annotations" };
        *place(object.value_mut(), &path).ok_or(shape)? = hash.into();
    }
    Ok(())
}

/// Sets the API server's internal name and the proxy. Pods on the host's network cannot use the Service's address: it
/// needs a pod network, which needs initialized nodes, which need these pods.
pub(super) fn common_environment(
    object: &mut Object,
    api_server: Option<&(String, String)>,
    proxy: &[(&'static str, String)],
) {
    let endpoint =
        api_server.map(|(host, port)| [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)]);
    for container in containers_mut(object, &["containers"]) {
        let proxy = proxy.iter().map(|(name, value)| (*name, value));
        let variables = endpoint.into_iter().flatten().chain(proxy);
        set_variables(container, variables.map(|(name, value)| (name, value.clone())));
    }
}

fn replicas(object: &mut Object, facts: &Facts) {
    let single = facts.single_replica && object.kind().kind == "Deployment";
    if single && let Some(spec) = object.value_mut().get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas".into(), 1.into());
    }
}

/// Returns the value of an argument or variable, `None` to leave it out, or the missing fact as the error.
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

/// Returns the pod specification of an object.
pub(super) fn pod_mut(object: &mut Object) -> Option<&mut Value> {
    let pointer = object.pod_spec_pointer()?;
    object.value_mut().pointer_mut(pointer)
}

/// Mounts a volume in every container, and adds it to the pods.
pub(super) fn mount(object: &mut Object, path: &str, volume: Value) {
    for container in containers_mut(object, &["containers"]) {
        push(container, "volumeMounts", json!({"name": volume["name"], "mountPath": path, "readOnly": true}));
    }
    if let Some(pod) = pod_mut(object) {
        push(pod, "volumes", volume);
    }
}

/// Returns the containers in these lists of a pod that are mappings.
pub(super) fn containers_mut<'a>(object: &'a mut Object, lists: &'a [&str]) -> impl Iterator<Item = &'a mut Value> {
    let fields = pod_mut(object).and_then(Value::as_object_mut).into_iter().flatten();
    let lists = fields.filter(|(field, _)| lists.contains(&field.as_str()));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().filter(|container| container.is_object())
}

/// Sets variables: each replaces the first one with the same name, or is appended.
pub(super) fn set_variables<'a>(container: &mut Value, variables: impl IntoIterator<Item = (&'a str, String)>) {
    let existing = container["env"].as_array().into_iter().flatten().enumerate();
    let mut places = BTreeMap::<String, usize>::new();
    for (index, name) in existing.filter_map(|(index, one)| Some((index, one["name"].as_str()?))) {
        places.entry(name.to_owned()).or_insert(index);
    }
    for (name, value) in variables {
        work::add(1);
        let variable = json!({"name": name, "value": value});
        if let Some(existing) = places.get(name).and_then(|index| container["env"].get_mut(*index)) {
            *existing = variable;
        } else {
            let end = container["env"].as_array().map_or(0, Vec::len);
            places.insert(name.to_owned(), end);
            push(container, "env", variable);
        }
    }
}

/// Appends an item to a list of a container or a pod. The list may be absent.
pub(super) fn push(parent: &mut Value, key: &str, item: Value) {
    match place(parent, &[key]) {
        Some(Value::Array(items)) => items.push(item),
        Some(list) => *list = Value::Array(vec![item]),
        None => {}
    }
}
