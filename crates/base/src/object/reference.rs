//! The ConfigMaps and Secrets that pods refer to, and the hash that restarts the pods when one changes (pure).
//!
//! It keeps digests only, and no secret data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::object::{self, Kind, items};

pub use crate::object::{CONFIG_MAP, SECRET};

/// The annotation of pod templates that holds the hash; the name is part of the contract with the Go operator.
pub const ANNOTATION: &str = "operator.openshift.io/config-hash";

/// The annotation on clusters other than OpenShift.
pub const KUBERNETES_ANNOTATION: &str = "ccm-operator.dev/config-hash";

/// The hash in the annotation of a workload's pod template; null if it has none.
pub fn hash_of(workload: &Value) -> &Value {
    let annotations = &workload["spec"]["template"]["metadata"]["annotations"];
    [ANNOTATION, KUBERNETES_ANNOTATION]
        .map(|name| &annotations[name])
        .into_iter()
        .find(|hash| !hash.is_null())
        .unwrap_or(&Value::Null)
}

/// A ConfigMap or a Secret, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// [`CONFIG_MAP`] or [`SECRET`].
    pub kind: &'static Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// A ConfigMap.
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self { kind: &CONFIG_MAP, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// A Secret.
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self { kind: &SECRET, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}

/// The digests of existing objects.
pub type Digests = BTreeMap<Reference, String>;

/// Returns the references of a pod specification in a namespace: in volumes, also projected ones, and in the environment
/// of all containers.
pub fn references(pod_spec: &Value, namespace: &str) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    let mut add = |kind, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            found.insert(Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() });
        }
    };
    for volume in items(&pod_spec["volumes"]) {
        add(&CONFIG_MAP, &volume["configMap"]["name"]);
        // The only field that names a Secret differently.
        add(&SECRET, &volume["secret"]["secretName"]);
        for source in items(&volume["projected"]["sources"]) {
            add(&CONFIG_MAP, &source["configMap"]["name"]);
            add(&SECRET, &source["secret"]["name"]);
        }
    }
    for container in object::containers(pod_spec) {
        for variable in items(&container["env"]) {
            add(&CONFIG_MAP, &variable["valueFrom"]["configMapKeyRef"]["name"]);
            add(&SECRET, &variable["valueFrom"]["secretKeyRef"]["name"]);
        }
        for source in items(&container["envFrom"]) {
            add(&CONFIG_MAP, &source["configMapRef"]["name"]);
            add(&SECRET, &source["secretRef"]["name"]);
        }
    }
    found
}

/// Returns the digest of a live ConfigMap, or of a live Secret with its `metadata.uid`, for [`hash`].
pub fn live_digest(kind: &Kind, live: &Value) -> String {
    if kind == &SECRET {
        secret_digest(live, live["metadata"]["uid"].as_str().unwrap_or_default())
    } else {
        digest(live)
    }
}

/// Returns the digest of a Secret's data and its `metadata.uid`. A user who may see a pod sees the hash derived from it. Only readers
/// of the Secret know the uid; without it, other users could try passwords until one has this hash.
pub fn secret_digest(secret: &Value, uid: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update((uid.len() as u64).to_be_bytes());
    hasher.update(uid);
    hasher.update(digest(secret));
    hex(&hasher.finalize())
}

/// The digest of a ConfigMap's or a Secret's data, without its metadata.
pub fn digest(object: &Value) -> String {
    let mut hasher = Sha256::new();
    for root in ["data", "binaryData"] {
        for (key, value) in object[root].as_object().into_iter().flatten() {
            for part in [root, key, value.as_str().unwrap_or_default()] {
                // The length keeps different data from giving the same bytes.
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
        }
    }
    hex(&hasher.finalize())
}

/// The hash over the existing references; a missing object changes it once it is created.
pub fn hash(references: &BTreeSet<Reference>, digests: &Digests) -> String {
    let mut hasher = Sha256::new();
    for (reference, digest) in references.iter().filter_map(|reference| Some((reference, digests.get(reference)?))) {
        // Without the namespace: the same configuration in another namespace is no change.
        hasher.update(format!("{}/{}={digest}\n", reference.kind.kind, reference.name));
    }
    hex(&hasher.finalize())
}

/// Bytes as lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Whether a text is a digest in the format of images and packages: `sha256:` and 64 lowercase hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_reference_is_found() {
        let pod = json!({
            "volumes": [
                {"configMap": {"name": "a"}},
                {"secret": {"secretName": "b"}},
                {"projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "d"}}, {"downwardAPI": {}}]}},
                {"emptyDir": {}},
            ],
            "initContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "e"}}}]}],
            "containers": [{
                "env": [{"name": "X", "value": "y"}, {"valueFrom": {"secretKeyRef": {"name": "f"}}}],
                "envFrom": [{"configMapRef": {"name": "g"}}, {"secretRef": {"name": "h"}}],
            }],
        });
        let found: Vec<_> = references(&pod, "n").into_iter().map(|reference| reference.to_string()).collect();
        let expected = [
            "ConfigMap n/a",
            "ConfigMap n/c",
            "ConfigMap n/e",
            "ConfigMap n/g",
            "Secret n/b",
            "Secret n/d",
            "Secret n/f",
            "Secret n/h",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_data_changes_a_digest() {
        let object = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}, "binaryData": {"c": "ZA=="}});
        let mut other = object.clone();
        other["metadata"]["resourceVersion"] = "2".into();
        assert_eq!(digest(&object), digest(&other));
        for (root, key, value) in [("data", "a", "x"), ("data", "b", "b"), ("binaryData", "c", "ZQ==")] {
            let mut other = object.clone();
            other[root][key] = value.into();
            assert_ne!(digest(&object), digest(&other), "{root} {key}");
        }
        assert_ne!(digest(&json!({"data": {"a": "bc"}})), digest(&json!({"data": {"ab": "c"}})));
    }

    #[test]
    fn the_hash_of_a_password_is_another_one_in_each_secret() {
        let secret = json!({"data": {"password": "cGFzcw=="}});
        assert_ne!(secret_digest(&secret, "1"), secret_digest(&secret, "2"));
        assert_ne!(secret_digest(&secret, "1"), digest(&secret));
        assert_eq!(secret_digest(&secret, "1"), secret_digest(&secret.clone(), "1"));
        assert_ne!(secret_digest(&secret, "1"), secret_digest(&json!({"data": {}}), "1"));
    }

    #[test]
    fn a_missing_object_does_not_disable_the_hash() {
        let pod = json!({"volumes": [{"configMap": {"name": "a"}}, {"secret": {"secretName": "b"}}]});
        let references = references(&pod, "n");
        let mut digests = Digests::from([(Reference::config_map("n", "a"), "1".to_owned())]);
        let one = hash(&references, &digests);
        digests.insert(Reference::config_map("n", "a"), "2".to_owned());
        let changed = hash(&references, &digests);
        digests.insert(Reference { kind: &SECRET, namespace: "n".into(), name: "b".into() }, "1".to_owned());
        let both = hash(&references, &digests);
        assert!(one != changed && changed != both && one != both);
        digests.insert(Reference::config_map("n", "other"), "3".to_owned());
        assert_eq!(hash(&references, &digests), both, "an object without a reference does not count");
    }
}
