//! A Kubernetes object as data, and the kinds that a provider may contain (pure).
//!
//! It reads the identity of an object and the containers of its pods. It has no schema: the API server validates the
//! fields.

mod kinds;
pub mod permissions;
pub mod reference;

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::brief;

pub use kinds::kind;
pub use kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, EVENT, KINDS, Kind, NAMESPACE, NODE, POD, SECRET, SERVICE_ACCOUNT,
};

/// The namespace of the control plane's own objects, where most cloud-controller-managers run.
pub const KUBE_SYSTEM: &str = "kube-system";

/// The label with the set that an object belongs to (KEP-3659). It selects our objects.
pub const PART_OF_LABEL: &str = "applyset.kubernetes.io/part-of";

/// The label that distinguishes the objects of different `CloudControllerManager`s.
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// The name suffix of a temporary object, which the API server has to accept before an object is deleted and recreated. The
/// operator's permissions name the temporary objects.
pub const TEMPORARY: &str = "-next";

/// The maximum length of an object's name in bytes, as in the API server. Many texts contain names, so a longer name would be
/// stored many times.
const LONGEST_NAME: usize = 253;

/// The document is not an object that a provider may contain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{problem}")]
pub struct Error {
    /// The JSON pointer of the field to fix.
    pub pointer: &'static str,
    problem: String,
}

/// The identity of an object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// Creates the key of an object; the namespace of a cluster-scoped object is empty.
    pub fn new(kind: &Kind, namespace: &str, name: &str) -> Self {
        let [group, kind, namespace, name] = [kind.group, kind.kind, namespace, name].map(str::to_owned);
        Self { group, kind, namespace, name }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object of one of the [`KINDS`] with a name and, where its kind needs one, a namespace. Serializes as its manifest. Clones share
/// their memory until one of them changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Object {
    value: Arc<Value>,
    #[serde(skip)]
    kind: &'static Kind,
}

impl Object {
    /// Checks a parsed manifest.
    pub fn new(value: Value) -> Result<Self, Error> {
        let text = |pointer| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let required = |pointer: &'static str| {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let problem = format!("not a Kubernetes object: `{field}` is missing");
            text(pointer).ok_or(Error { pointer, problem })
        };
        let (api_version, kind, name) = (required("/apiVersion")?, required("/kind")?, required("/metadata/name")?);
        let Some(known) = KINDS.iter().find(|known| known.kind == kind && known.api_version() == api_version) else {
            let kinds = KINDS.iter().map(|known| known.kind).collect::<Vec<_>>().join(", ");
            let (api_version, kind) = (brief(api_version), brief(kind));
            let problem = format!("unsupported kind {api_version} {kind}; a provider may contain: {kinds}");
            return Err(Error { pointer: "/kind", problem });
        };
        let namespace = text("/metadata/namespace").unwrap_or_default();
        for (pointer, field, name) in
            [("/metadata/name", "metadata.name", name), ("/metadata/namespace", "metadata.namespace", namespace)]
        {
            if name.len() > LONGEST_NAME {
                let problem = format!("{kind}: {field} has {} bytes; it may have {LONGEST_NAME}", name.len());
                return Err(Error { pointer, problem });
            }
        }
        let problem = match (known.namespaced, !namespace.is_empty()) {
            (true, false) => "needs metadata.namespace",
            (false, true) => "is cluster-scoped and has no namespace",
            _ => return Ok(Self { kind: known, value: Arc::new(value) }),
        };
        Err(Error { pointer: "/metadata/namespace", problem: format!("{kind} {} {problem}", brief(name)) })
    }

    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`, empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Its identity.
    pub fn key(&self) -> Key {
        Key::new(self.kind, self.namespace(), self.name())
    }

    /// The whole manifest.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Sets a label of the object itself (not of its pods).
    pub fn set_label(&mut self, key: &str, value: &str) {
        let metadata = &mut self.value_mut()["metadata"];
        if !metadata["labels"].is_object() {
            metadata["labels"] = Value::Object(Map::new());
        }
        metadata["labels"][key] = value.into();
    }

    /// The specification of its pods, if it is a pod or creates pods.
    pub fn pod_spec(&self) -> Option<&Value> {
        self.value.pointer(self.pod_spec_pointer()?)
    }

    /// The mutable manifest. Its kind and name must stay; the namespace may change.
    pub fn value_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.value)
    }

    /// The JSON pointer of [`Self::pod_spec`].
    pub fn pod_spec_pointer(&self) -> Option<&'static str> {
        self.kind.pods
    }

    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The containers of a pod specification, init containers too.
pub fn containers(pod_spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|list| items(&pod_spec[list]))
}

/// A container's name, empty when it has none.
pub fn container_name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// The items of a list; empty for any other value.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A condition in the status of a live object; null if it has none of this type.
pub fn condition<'a>(live: &'a Value, type_: &str) -> &'a Value {
    let conditions = items(&live["status"]["conditions"]);
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// The container statuses of a live pod in the order of their start, and whether each belongs to an init container.
pub fn container_statuses(pod: &Value) -> impl Iterator<Item = (&Value, bool)> {
    let lists = [("initContainerStatuses", true), ("containerStatuses", false)];
    lists.into_iter().flat_map(|(list, is_init)| items(&pod["status"][list]).iter().map(move |one| (one, is_init)))
}

/// Returns the value at a path of fields. Creates missing mappings. Returns `None` if another value than a mapping is in the way.
pub fn place<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, field| {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        Some(value.as_object_mut()?.entry(*field).or_insert(Value::Null))
    })
}

/// Whether a text can be the name of an object: an RFC 1123 subdomain, as the API server requires.
pub fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        label.bytes().all(|byte| is_inner(byte) || byte == b'-')
            && ends.into_iter().all(|end| end.is_some_and(is_inner))
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

/// Calls a function with every string of a value, without the keys.
pub fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| each_text(member, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_complete_objects_of_known_kinds_are_accepted() {
        let object =
            |value| Object::new(value).map(|object| object.key().to_string()).map_err(|error| error.to_string());
        assert_eq!(
            object(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}})),
            Ok("Deployment b/a".into())
        );
        for (value, error) in [
            (json!("text"), "not a Kubernetes object: `apiVersion` is missing"),
            (
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {}}),
                "not a Kubernetes object: `metadata.name` is missing",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}),
                "Service a needs metadata.namespace",
            ),
        ] {
            assert_eq!(object(value), Err(error.into()));
        }
        let error = object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})).unwrap_err();
        assert!(
            error.starts_with("unsupported kind v1 Secret; a provider may contain: ValidatingAdmissionPolicy,"),
            "{error}"
        );
    }

    #[test]
    fn a_long_name_is_no_object() {
        let object = |name: usize, namespace: usize| {
            let metadata = json!({"name": "a".repeat(name), "namespace": "b".repeat(namespace)});
            Object::new(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata}))
        };
        assert!(object(LONGEST_NAME, LONGEST_NAME).is_ok());
        for (name, namespace, pointer) in [(LONGEST_NAME + 1, 1, "/metadata/name"), (1, 900_000, "/metadata/namespace")]
        {
            let error = object(name, namespace).unwrap_err();
            assert_eq!(error.pointer, pointer);
            assert!(error.to_string().ends_with(" bytes; it may have 253") && error.problem.len() < 100, "{error}");
        }
    }

    #[test]
    fn a_label_is_added_to_the_others() {
        let metadata = json!({"name": "a", "namespace": "n", "labels": {"x": "1"}});
        let mut object = Object::new(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})).unwrap();
        object.set_label("y", "2");
        assert_eq!(object.value()["metadata"]["labels"], json!({"x": "1", "y": "2"}));
    }

    #[test]
    fn names_are_those_of_the_dns() {
        for name in ["a", "a-b.c1", "cloud-controller-manager"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a..b", "A", "a b", "a\n", "$(x)", "a/b", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_place_is_made_where_nothing_is_in_the_way() {
        let mut value = json!({"a": {"b": null}, "c": []});
        *place(&mut value, &["a", "b", "d"]).unwrap() = 1.into();
        *place(&mut value, &["e"]).unwrap() = 2.into();
        assert_eq!(value, json!({"a": {"b": {"d": 1}}, "c": [], "e": 2}));
        assert!(place(&mut value, &["c", "d"]).is_none() && place(&mut value, &["e", "f"]).is_none());
    }
}
