//! The proposal: the object, the Secret, and the migration of the existing cloud-controller-manager (pure).

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, spec::Spec},
    facts::version::Minor,
    facts::{
        ccm::{Ccm, SKIP_PREFLIGHT},
        cluster::Cluster,
    },
    object::{KUBE_SYSTEM, place, reference::Reference},
    text::{
        boolean,
        mask::{self, is_secret_key},
    },
};

#[derive(Clone, Debug, Default)]
pub(crate) struct ProposedCcm {
    pub(crate) name: String,
    /// The specification, without default values.
    pub(crate) spec: Value,
    /// The skipped checks, comma-separated.
    pub(crate) skips: Option<&'static str>,
    /// The Secret to create.
    pub(crate) secret: Option<SecretFile>,
    pub(crate) migration_results: Vec<MigrationResult>,
}

/// The handling of an argument, a variable, or another part of the existing cloud-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationResult {
    /// The part, such as `--cluster-name=prod`.
    pub(crate) what: String,
    pub(crate) result: Handling,
    /// The new location, or the reason why there is none.
    pub(crate) how: String,
}

/// The handling of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Handling {
    ToDo,
    /// It matters for nodes or load balancers, or may, and is lost.
    NotKept,
    Changed,
    Kept,
    /// Neither nodes nor load balancers depended on it.
    Unused,
}

impl Handling {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ToDo => "TO DO",
            Self::NotKept => "NOT KEPT",
            Self::Changed => "changed",
            Self::Kept => "kept",
            Self::Unused => "unused",
        }
    }
}

/// The inputs besides the objects of the existing cloud-controller-manager.
pub(crate) struct Input<'a> {
    /// The existing ConfigMaps and Secrets that the pods reference.
    pub(crate) found: &'a BTreeMap<Reference, Value>,
    /// The ports that pods use on the host network.
    pub(crate) taken_ports: &'a [u16],
    /// The cluster's version of Kubernetes, which determines the image's.
    pub(crate) minor: Minor,
    /// The name for the `CloudControllerManager`, which makes the names of its objects unique.
    pub(crate) name: &'a str,
    /// The name of the Secret, if the proposal needs one.
    pub(crate) secret_name: &'a str,
    /// The configuration, if a flag gives it.
    pub(crate) cloud_config: Option<&'a str>,
    pub(crate) has_credentials: bool,
}

/// A Secret to create.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretFile {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The base64-encoded values, by key.
    pub(crate) data: BTreeMap<String, String>,
}

/// Omits the values.
impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{} with {:?}", self.namespace, self.name, self.data.keys())
    }
}

impl SecretFile {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), data: BTreeMap::new() }
    }

    pub(crate) fn put(&mut self, key: &str, value: &[u8]) {
        self.data.insert(key.to_owned(), STANDARD.encode(value));
    }

    pub(crate) fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name, "namespace": self.namespace},
            "type": "Opaque", "data": self.data,
        })
    }
}

impl ProposedCcm {
    pub(crate) fn new(name: &str, provider: &str, namespace: &str) -> Self {
        let mut proposed = Self { name: name.to_owned(), ..Self::default() };
        proposed.set("provider", provider);
        if namespace != KUBE_SYSTEM {
            proposed.set("namespace", namespace);
        }
        proposed
    }

    /// Sets a field of the specification, such as `image.version`.
    pub(crate) fn set(&mut self, path: &str, value: impl Into<Value>) {
        self.set_at(&path.split('.').collect::<Vec<_>>(), value);
    }

    /// Sets a field whose name may have dots.
    pub(crate) fn set_at(&mut self, path: &[&str], value: impl Into<Value>) {
        if let Some(field) = place(&mut self.spec, path) {
            *field = value.into();
        }
    }

    pub(crate) fn note(&mut self, result: Handling, what: impl Into<String>, how: impl Into<String>) {
        self.migration_results.push(MigrationResult { what: what.into(), result, how: how.into() });
    }

    pub(crate) fn namespace(&self) -> &str {
        self.spec["namespace"].as_str().unwrap_or(KUBE_SYSTEM)
    }

    /// Returns the Secret, creating it if necessary.
    pub(crate) fn secret(&mut self, name: &str) -> &mut SecretFile {
        let namespace = self.namespace().to_owned();
        self.secret.get_or_insert_with(|| SecretFile::new(&namespace, name))
    }

    pub(crate) fn manifest(&self) -> Value {
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

    /// Whether the manifest contains a value that looks like a secret, such as a password in a proxy URL.
    pub(crate) fn has_secrets(&self) -> bool {
        is_secret("", &self.spec)
    }

    /// Records a note if the manifest contains a value that looks like a secret.
    pub(crate) fn name_secrets(&mut self) {
        if self.has_secrets() {
            let how = "it holds what looks like a secret, such as a password in a URL, and is readable by its owner only: keep it \
                       out of Git; who may read the CloudControllerManager reads it, too";
            self.note(Handling::ToDo, "the manifest of the CloudControllerManager", how);
        }
    }

    /// Returns the object as the operator would read it from a cluster.
    pub(crate) fn ccm(&self, cluster: Cluster) -> Result<Ccm, serde_json::Error> {
        let spec: Spec = serde_json::from_value(self.spec.clone())?;
        Ok(Ccm::new(self.name.clone(), spec, cluster).annotated(self.skips))
    }
}

/// Whether a value contains a secret. A field named `credentials` only refers to a Secret.
fn is_secret(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(object) => object.iter().any(|(key, value)| is_secret(key, value)),
        Value::Array(items) => items.iter().any(|item| is_secret(key, item)),
        // A switch such as --enable-token-health-checker is none.
        Value::String(text) => (is_secret_key(key) && boolean(text).is_none()) || mask::text(text) != *text,
        _ => false,
    }
}
