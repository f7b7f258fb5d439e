//! The install payload: the manifests that the cluster's version operator installs before the operator runs (pure).
//!
//! Owns `manifests/` for another namespace, and the agreement between the descriptors, the images ConfigMap and
//! `image-references`: both files are generated from the descriptors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde_json::Value;

use crate::{facts::DEFAULT_NAMESPACE, object::each_text, provider::catalog::Catalog, text::yaml};

/// The part of the install payload (`manifests/`) that providers depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The keys of `images.json`.
    pub image_keys: BTreeSet<String>,
    /// The Secrets that `CredentialsRequest`s ask for, as (namespace, name).
    pub requested_secrets: BTreeSet<(String, String)>,
}

impl Payload {
    /// Reads the manifests of the payload; other kinds are skipped.
    pub fn read(files: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<[u8]>)>) -> Self {
        let mut payload = Self::default();
        for (_, bytes) in files {
            let text = std::str::from_utf8(bytes.as_ref()).unwrap_or_default();
            yaml::documents(text).unwrap_or_default().iter().for_each(|document| payload.add(document));
        }
        payload
    }

    fn add(&mut self, document: &Value) {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match text("/kind") {
            "ConfigMap" => {
                let images = serde_json::from_str::<BTreeMap<String, Value>>(text("/data/images.json"));
                self.image_keys.extend(images.unwrap_or_default().into_keys());
            }
            "CredentialsRequest" => {
                let secret = (text("/spec/secretRef/namespace").to_owned(), text("/spec/secretRef/name").to_owned());
                self.requested_secrets.insert(secret);
            }
            _ => {}
        }
    }
}

/// The operator's own image, which belongs to no provider.
const OPERATOR_IMAGE: (&str, &str) = ("cloudControllerManagerOperator", "cluster-cloud-controller-manager-operator");

/// The Deployment of the operator, which needs an argument for another namespace.
const OPERATOR_DEPLOYMENT: &str = "cluster-cloud-controller-manager-operator";

/// The registry of the images in manifests, until the release tooling replaces them.
const REPOSITORY: &str = "quay.io/openshift/origin-";

/// The line of the images ConfigMap before the images.
const IMAGES_KEY: &str = "  images.json: |\n";

/// The images of all providers as (key of images.json, tag of image-references): the operator's first, then by provider.
pub fn images(catalog: &Catalog) -> Vec<(&str, &str)> {
    let mut images = vec![OPERATOR_IMAGE];
    for source in catalog.providers().flat_map(|provider| provider.descriptor.images.values()) {
        let image = (source.key.as_str(), source.tag.as_str());
        if !images.contains(&image) {
            images.push(image);
        }
    }
    images
}

/// `image-references`: the `ImageStream` in which release tooling finds the images.
pub fn image_references(catalog: &Catalog) -> String {
    let mut text = String::from(
        "# The images of the release payload: release tooling replaces each reference with the payload's image of that tag.\n\
         # Made of the providers' descriptors by `make generate`.\n\
         kind: ImageStream\napiVersion: image.openshift.io/v1\nspec:\n  tags:\n",
    );
    for (_, tag) in images(catalog) {
        // Writing into a String does not fail.
        let _ = write!(text, "  - name: {tag}\n    from:\n      kind: DockerImage\n      name: {REPOSITORY}{tag}\n");
    }
    text
}

/// The images ConfigMap with its images replaced by those of the descriptors; `None` for another manifest.
pub fn images_config_map(manifest: &str, catalog: &Catalog) -> Option<String> {
    let (head, _) = manifest.split_once(IMAGES_KEY)?;
    let images = images(catalog).into_iter().map(|(key, tag)| format!("      \"{key}\": \"{REPOSITORY}{tag}\""));
    let images = images.collect::<Vec<_>>().join(",\n");
    Some(format!("{head}{IMAGES_KEY}    {{\n{images}\n    }}\n"))
}

/// A file of the payload for a namespace; unchanged for the default one.
pub fn for_namespace(file: &str, namespace: &str) -> Result<String, yaml::Error> {
    if namespace == DEFAULT_NAMESPACE {
        return Ok(file.to_owned());
    }
    let mut text = String::new();
    for mut document in yaml::documents(file)? {
        each_text(&mut document, &mut |text| {
            if text == DEFAULT_NAMESPACE {
                namespace.clone_into(text);
            }
        });
        set_namespace_argument(&mut document, namespace);
        text.extend(["---\n", &yaml::to_string(&document)?]);
    }
    Ok(text)
}

fn set_namespace_argument(document: &mut Value, namespace: &str) {
    let is_operator = document["kind"] == "Deployment" && document["metadata"]["name"] == OPERATOR_DEPLOYMENT;
    let arguments = document.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut);
    if let Some(arguments) = arguments.filter(|_| is_operator) {
        arguments.push(format!("--namespace={namespace}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    #[test]
    fn the_generated_files_match_the_descriptors() {
        let catalog = embedded::catalog().unwrap();
        let file = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(file("image-references"), image_references(&catalog), "run `make generate`");
        let config_map = file("manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml");
        assert_eq!(Some(config_map.clone()), images_config_map(&config_map, &catalog), "run `make generate`");
    }

    #[test]
    fn another_namespace_replaces_every_default_one() {
        let mut operators = 0;
        for (path, bytes) in embedded::manifests() {
            let file = std::str::from_utf8(bytes).unwrap();
            assert_eq!(for_namespace(file, DEFAULT_NAMESPACE).unwrap(), file);
            let other = for_namespace(file, "other").unwrap();
            let left = other.lines().find(|line| {
                let names = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
                names.into_iter().any(|name| name == DEFAULT_NAMESPACE)
            });
            assert_eq!(left, None, "{path}");
            operators += other.matches("--namespace=other").count();
        }
        assert_eq!(operators, 1);
    }

    #[test]
    fn a_payload_has_image_keys_and_requested_secrets() {
        let payload = Payload::read([
            ("manifests/a.yaml", "kind: ConfigMap\ndata: {images.json: '{\"key\": \"image\"}'}\n".as_bytes()),
            ("manifests/b.yaml", "kind: CredentialsRequest\nspec: {secretRef: {name: a, namespace: b}}\n".as_bytes()),
            ("manifests/c.yaml", "a: [".as_bytes()),
        ]);
        assert_eq!(payload.image_keys, BTreeSet::from(["key".to_owned()]));
        assert_eq!(payload.requested_secrets, BTreeSet::from([("b".to_owned(), "a".to_owned())]));
    }
}
