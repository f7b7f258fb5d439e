//! The proposal: the object, the Secret, and the migration of what existed before (pure).

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, spec::Spec},
    facts::{
        ccm::{Ccm, SKIP_PREFLIGHT},
        cluster::Cluster,
    },
    object::reference::Reference,
    text::mask::{self, is_secret_key},
};

/// A proposal.
#[derive(Clone, Debug, Default)]
pub struct ProposedCcm {
    /// The name of the `CloudControllerManager`.
    pub name: String,
    /// Its specification, without what has its default.
    pub spec: Map<String, Value>,
    /// The checks that are not to refuse it, comma-separated.
    pub skips: Option<&'static str>,
    /// The Secret that has to be created.
    pub secret: Option<SecretFile>,
    /// What becomes of what there was.
    pub migration_results: Vec<MigrationResult>,
}

/// What becomes of an argument, a variable, or another part of what there was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationResult {
    /// Such as `--cluster-name=prod`.
    pub what: String,
    /// What becomes of it.
    pub result: Outcome,
    /// Where it is from now on, or why it is not.
    pub how: String,
}

/// What becomes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Outcome {
    /// Somebody has to do something.
    ToDo,
    /// It is lost.
    NotKept,
    /// It is different from now on.
    Changed,
    /// It is as it was.
    Kept,
}

impl Outcome {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::ToDo => "TO DO",
            Self::NotKept => "NOT KEPT",
            Self::Changed => "changed",
            Self::Kept => "kept",
        }
    }
}

/// What is known besides the objects of the cloud-controller-manager.
pub struct Input<'a> {
    /// The ConfigMaps and Secrets that it refers to and that exist.
    pub found: &'a BTreeMap<Reference, Value>,
    /// The ports that pods take on the network of the host.
    pub taken_ports: &'a [u16],
    /// The name for the `CloudControllerManager`: one with which its objects have names of their own.
    pub name: &'a str,
    /// The name for a Secret, if one has to be created.
    pub secret_name: &'a str,
    /// Whether the user gives a configuration.
    pub has_cloud_config: bool,
    /// Whether the user gives credentials.
    pub has_credentials: bool,
}

/// A Secret that has to be created.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its values in base64, by key.
    pub data: BTreeMap<String, String>,
}

/// Without the values.
impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{} with {:?}", self.namespace, self.name, self.data.keys())
    }
}

impl SecretFile {
    /// One without keys.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), data: BTreeMap::new() }
    }

    /// Takes a value.
    pub fn put(&mut self, key: &str, value: &[u8]) {
        self.data.insert(key.to_owned(), STANDARD.encode(value));
    }

    /// The manifest.
    pub fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name, "namespace": self.namespace},
            "type": "Opaque", "data": self.data,
        })
    }
}

impl ProposedCcm {
    /// For a provider.
    pub fn new(name: &str, provider: &str, namespace: &str) -> Self {
        let mut spec = Map::new();
        spec.insert("provider".to_owned(), provider.into());
        if namespace != "kube-system" {
            spec.insert("namespace".to_owned(), namespace.into());
        }
        Self { name: name.to_owned(), spec, ..Self::default() }
    }

    /// Sets a field of the specification, such as `image.version`.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) {
        let mut at = &mut self.spec;
        let (parents, last) = path.rsplit_once('.').map_or((None, path), |(parents, last)| (Some(parents), last));
        for parent in parents.into_iter().flat_map(|parents| parents.split('.')) {
            let inner = at.entry(parent).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            let Value::Object(inner) = inner else { return };
            at = inner;
        }
        at.insert(last.to_owned(), value.into());
    }

    /// Takes what becomes of a part.
    pub fn note(&mut self, result: Outcome, what: impl Into<String>, how: impl Into<String>) {
        self.migration_results.push(MigrationResult { what: what.into(), result, how: how.into() });
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.spec.get("namespace").and_then(Value::as_str).unwrap_or("kube-system")
    }

    /// The Secret, which is made if there is none.
    pub fn secret(&mut self, name: &str) -> &mut SecretFile {
        let namespace = self.namespace().to_owned();
        self.secret.get_or_insert_with(|| SecretFile::new(&namespace, name))
    }

    /// The manifest.
    pub fn manifest(&self) -> Value {
        let mut manifest = json!({
            "apiVersion": CLOUD_CONTROLLER_MANAGER.api_version(),
            "kind": CLOUD_CONTROLLER_MANAGER.kind,
            "metadata": {"name": self.name},
            "spec": self.spec,
        });
        if let Some(skips) = self.skips {
            manifest["metadata"]["annotations"] = json!({SKIP_PREFLIGHT: skips});
        }
        manifest
    }

    /// Whether the manifest holds what looks like a secret, such as a password in the URL of a proxy.
    pub fn has_secrets(&self) -> bool {
        self.spec.iter().any(|(key, value)| is_secret(key, value))
    }

    /// Says so.
    pub fn name_secrets(&mut self) {
        if self.has_secrets() {
            let how = "it holds what looks like a secret, such as a password in a URL, and is readable by its owner only: keep it \
                       out of Git; who may read the CloudControllerManager reads it, too";
            self.note(Outcome::ToDo, "the manifest of the CloudControllerManager", how);
        }
    }

    /// As the operator would read it in a cluster.
    pub fn ccm(&self, cluster: Cluster) -> Result<Ccm, serde_json::Error> {
        let spec: Spec = serde_json::from_value(Value::Object(self.spec.clone()))?;
        Ok(Ccm::new(self.name.clone(), spec, cluster).annotated(self.skips))
    }
}

/// Whether a value, or one in it, is a secret. What is called `credentials` only names a Secret.
fn is_secret(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(object) => object.iter().any(|(key, value)| is_secret(key, value)),
        Value::Array(items) => items.iter().any(|item| is_secret(key, item)),
        Value::String(text) => is_secret_key(key) || mask::text(text) != *text,
        _ => false,
    }
}
