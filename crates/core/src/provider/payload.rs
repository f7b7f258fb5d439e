//! The install payload: the manifests that the cluster's version operator installs before the operator runs (pure).
//!
//! It adapts `manifests/` to another namespace, and keeps the descriptors, the images ConfigMap and `image-references`
//! consistent: both files are generated from the descriptors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde_json::Value;

use crate::{
    facts::{DEFAULT_NAMESPACE, VERSION_PLACEHOLDER},
    object::each_text,
    provider::catalog::Catalog,
    text::yaml,
};

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

const OPERATOR_DEPLOYMENT: &str = "cluster-cloud-controller-manager-operator";

/// The registry of the images in manifests, until the release tooling replaces them.
const REPOSITORY: &str = "quay.io/openshift/origin-";

/// The line of the images ConfigMap before the images.
const IMAGES_KEY: &str = "  images.json: |\n";

/// Returns the images of all providers as (key of images.json, tag of image-references): the operator's first, then by provider.
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

/// Returns `image-references`: the `ImageStream` in which release tooling finds the images.
pub fn image_references(catalog: &Catalog) -> String {
    let mut text = String::from(
        "# The images of the release payload: release tooling replaces each reference with the payload's image of that tag.\n\
         # Generated from the providers' descriptors by `make generate`.\n\
         kind: ImageStream\napiVersion: image.openshift.io/v1\nspec:\n  tags:\n",
    );
    for (_, tag) in images(catalog) {
        // Writing into a String does not fail.
        let _ = write!(text, "  - name: {tag}\n    from:\n      kind: DockerImage\n      name: {REPOSITORY}{tag}\n");
    }
    text
}

/// Returns the images ConfigMap with the images of the descriptors, or `None` for another manifest.
pub fn images_config_map(manifest: &str, catalog: &Catalog) -> Option<String> {
    let (head, _) = manifest.split_once(IMAGES_KEY)?;
    let images = images(catalog).into_iter().map(|(key, tag)| format!("      \"{key}\": \"{REPOSITORY}{tag}\""));
    let images = images.collect::<Vec<_>>().join(",\n");
    Some(format!("{head}{IMAGES_KEY}    {{\n{images}\n    }}\n"))
}

/// The values that an installation replaces in the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// The namespace to manage.
    pub namespace: String,
    /// The operator's own image.
    pub image: Option<String>,
    /// The version of the release.
    pub version: Option<String>,
    /// The images of the providers: `images.json`.
    pub images: Option<String>,
}

impl Installation {
    /// Fills in a file of the payload. It is unchanged if nothing is replaced.
    pub fn of(&self, file: &str) -> Result<String, yaml::Error> {
        let other_namespace = (self.namespace != DEFAULT_NAMESPACE).then_some(self.namespace.as_str());
        let mut documents = yaml::documents(file)?;
        let before = documents.clone();
        for document in &mut documents {
            each_text(document, &mut |text| match (text.as_str(), other_namespace, &self.version) {
                (DEFAULT_NAMESPACE, Some(namespace), _) => namespace.clone_into(text),
                (VERSION_PLACEHOLDER, _, Some(version)) => version.clone_into(text),
                _ => {}
            });
            self.replace_images(document);
            if let Some(container) = operator_container(document) {
                if let Some(namespace) = other_namespace
                    && let Some(arguments) = container["args"].as_array_mut()
                {
                    arguments.push(format!("--namespace={namespace}").into());
                }
                if let Some(image) = &self.image {
                    container["image"] = image.as_str().into();
                }
            }
        }
        if documents == before {
            return Ok(file.to_owned());
        }
        let texts = documents.iter().map(|document| Ok(format!("---\n{}", yaml::to_string(document)?)));
        texts.collect()
    }

    fn replace_images(&self, document: &mut Value) {
        let Some(Value::String(json)) = document.pointer_mut("/data/images.json") else { return };
        if let Some(images) = &self.images {
            json.clone_from(images);
        }
        if let Some(image) = &self.image
            && let Ok(mut images) = serde_json::from_str::<BTreeMap<String, Value>>(json)
        {
            images.insert(OPERATOR_IMAGE.0.to_owned(), image.as_str().into());
            *json = serde_json::to_string_pretty(&images).unwrap_or_default();
        }
    }

    /// Returns the flags of `render` that would replace the remaining placeholders.
    pub fn placeholders(&self) -> Vec<&'static str> {
        let flags = [("--image", &self.image), ("--release-version", &self.version), ("--images-file", &self.images)];
        flags.into_iter().filter(|(_, given)| given.is_none()).map(|(flag, _)| flag).collect()
    }
}

fn operator_container(document: &mut Value) -> Option<&mut Value> {
    let is_operator = document["kind"] == "Deployment" && document["metadata"]["name"] == OPERATOR_DEPLOYMENT;
    document.pointer_mut("/spec/template/spec/containers/0").filter(|_| is_operator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    #[test]
    fn the_generated_files_match_the_descriptors() {
        let catalog = embedded::catalog().unwrap();
        let file =
            |path: &str| std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(file("image-references"), image_references(&catalog), "run `make generate`");
        let config_map = file("manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml");
        assert_eq!(Some(config_map.clone()), images_config_map(&config_map, &catalog), "run `make generate`");
    }

    #[test]
    fn an_installation_replaces_every_placeholder() {
        let default = Installation { namespace: DEFAULT_NAMESPACE.into(), ..Installation::default() };
        let other = Installation {
            namespace: "other".into(),
            image: Some("registry/operator@sha256:0".into()),
            version: Some("4.99.0".into()),
            images: Some(r#"{"aws": "registry/aws:1"}"#.into()),
        };
        assert_eq!(default.placeholders(), ["--image", "--release-version", "--images-file"]);
        assert!(other.placeholders().is_empty());
        let (mut operators, mut images) = (0, 0);
        for (path, bytes) in embedded::manifests().into_iter().filter(|(path, _)| path != "image-references") {
            let file = std::str::from_utf8(bytes).unwrap();
            assert_eq!(default.of(file).unwrap(), file);
            let other = other.of(file).unwrap();
            let left = other.lines().find(|line| {
                let names = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
                let has_namespace = names.into_iter().any(|name| name == DEFAULT_NAMESPACE);
                has_namespace || line.contains(VERSION_PLACEHOLDER) || line.contains(REPOSITORY)
            });
            assert_eq!(left, None, "{path}");
            operators += other.matches("--namespace=other").count();
            images += other.matches("registry/operator@sha256:0").count() + other.matches("registry/aws:1").count();
        }
        assert_eq!((operators, images), (1, 3), "the Deployment, and two keys of the images ConfigMap");
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
