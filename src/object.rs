//! A Kubernetes object as data, and the kinds that a provider may bring (pure).
//!
//! Owns what every part needs to know of an object: its identity and where its pods' containers are. It knows no
//! schema: whether the fields are right is the API server's to say.

pub mod reference;

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// A kind that providers may bring: what discovery would answer, without asking.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version inside the group.
    pub version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// The resource's name in URLs and RBAC rules.
    pub plural: &'static str,
    /// Whether objects of this kind live in a namespace.
    pub namespaced: bool,
    /// Objects of a lower wave are applied before those of a higher one.
    pub wave: u8,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    wave: u8,
) -> Kind {
    Kind { group, version, kind, plural, namespaced, wave }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Every kind that a provider may bring. Identities come before what runs as them, policies before what they guard,
/// a disruption budget after the pods that it counts.
pub static KINDS: [Kind; 13] = [
    kind("", "v1", "ServiceAccount", "serviceaccounts", true, 1),
    kind(RBAC, "v1", "ClusterRole", "clusterroles", false, 1),
    kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", false, 1),
    kind(RBAC, "v1", "Role", "roles", true, 1),
    kind(RBAC, "v1", "RoleBinding", "rolebindings", true, 1),
    kind("", "v1", "ConfigMap", "configmaps", true, 2),
    kind("", "v1", "Service", "services", true, 2),
    kind(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false, 2),
    kind(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false, 2),
    kind("apps", "v1", "Deployment", "deployments", true, 3),
    kind("apps", "v1", "DaemonSet", "daemonsets", true, 3),
    kind("", "v1", "Pod", "pods", true, 3),
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true, 4),
];

impl Kind {
    /// `apiVersion` as manifests write it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.kind == kind && known.api_version() == api_version)
    }
}

/// Why a document is no object that a provider may bring.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Not a mapping with `apiVersion`, `kind` and `metadata.name`.
    #[error("not a Kubernetes object: `{0}` is missing")]
    Missing(&'static str),
    /// A kind, or a version of it, that is not in [`KINDS`].
    #[error("{kind} of {api_version} is none of the kinds that a provider may bring ({})", known_kinds())]
    UnknownKind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// A namespaced object without a namespace, or the other way round.
    #[error("{kind} {name} {problem}")]
    Namespace {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
}

fn known_kinds() -> String {
    KINDS.iter().map(|known| known.kind).collect::<Vec<_>>().join(", ")
}

/// What an object is known by in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for a cluster-scoped object.
    pub namespace: String,
    /// Name.
    pub name: String,
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

/// An object of one of the [`KINDS`], named and placed. Serialises as the manifest that it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Object {
    value: Value,
    #[serde(skip)]
    kind: &'static Kind,
}

impl Object {
    /// Takes a parsed manifest.
    pub fn new(value: Value) -> Result<Self, Error> {
        let text = |pointer: &'static str| match value.pointer(pointer).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(Error::Missing(pointer.trim_start_matches('/'))),
        };
        let (api_version, kind, name) = (text("/apiVersion")?, text("/kind")?, text("/metadata/name")?);
        let known = Kind::find(api_version, kind)
            .ok_or_else(|| Error::UnknownKind { kind: kind.to_owned(), api_version: api_version.to_owned() })?;
        let problem = match (known.namespaced, text("/metadata/namespace").is_ok()) {
            (true, false) => Some("needs metadata.namespace"),
            (false, true) => Some("is cluster-scoped and has no namespace"),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Error::Namespace { kind: known.kind, name: name.to_owned(), problem });
        }
        Ok(Self { kind: known, value })
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

    /// What it is known by.
    pub fn key(&self) -> Key {
        Key {
            group: self.kind.group.to_owned(),
            kind: self.kind.kind.to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// The whole manifest.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Sets a label of the object itself (not of its pods).
    pub fn set_label(&mut self, key: &str, value: &str) {
        let metadata = &mut self.value["metadata"];
        if !metadata["labels"].is_object() {
            metadata["labels"] = Value::Object(Map::new());
        }
        metadata["labels"][key] = value.into();
    }

    /// The specification of its pods, when it is or makes pods.
    pub fn pod_spec(&self) -> Option<&Value> {
        self.value.pointer(self.pod_spec_pointer()?)
    }

    /// The same, to change it.
    pub fn pod_spec_mut(&mut self) -> Option<&mut Value> {
        let pointer = self.pod_spec_pointer()?;
        self.value.pointer_mut(pointer)
    }

    /// The manifest, to change it; identity and kind must stay what they are, but for the namespace.
    pub(crate) fn value_mut(&mut self) -> &mut Value {
        &mut self.value
    }

    /// The JSON pointer of [`Self::pod_spec`].
    pub fn pod_spec_pointer(&self) -> Option<&'static str> {
        match self.kind.kind {
            "Deployment" | "DaemonSet" => Some("/spec/template/spec"),
            "Pod" => Some("/spec"),
            _ => None,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The containers of a pod specification, init containers too.
pub fn containers(pod_spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().filter_map(|list| pod_spec[list].as_array()).flatten()
}

/// A container's name, empty when it has none.
pub fn container_name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// Shows every string of a value, to change it; names of members are none.
pub(crate) fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
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
    fn only_whole_objects_of_known_kinds_are_taken() {
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
                "not a Kubernetes object: `metadata/name` is missing",
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
            error.starts_with("Secret of v1 is none of the kinds that a provider may bring (ServiceAccount,"),
            "{error}"
        );
    }
}
