//! The install payload: what the cluster's version operator installs before the operator runs (pure).
//!
//! Owns `manifests/` for another namespace, and the agreement between the descriptors, the images ConfigMap and
//! `image-references`: the two files are made of the descriptors, never the other way round.

use std::fmt::Write;

use serde_json::Value;

use crate::{facts::DEFAULT_NAMESPACE, object::each_text, provider::catalog::Catalog, text::yaml};

/// The operator's own image, which belongs to no provider.
const OPERATOR_IMAGE: (&str, &str) = ("cloudControllerManagerOperator", "cluster-cloud-controller-manager-operator");

/// The Deployment of the operator, which has to be told of another namespace.
const OPERATOR_DEPLOYMENT: &str = "cluster-cloud-controller-manager-operator";

/// Where the images are that manifests name, until the release tooling replaces them.
const REPOSITORY: &str = "quay.io/openshift/origin-";

/// What stands in the images ConfigMap before the images.
const IMAGES_KEY: &str = "  images.json: |\n";

/// The images of all providers as (key of images.json, tag of image-references): the operator's first, then by provider.
pub fn images(catalog: &Catalog) -> Vec<(&str, &str)> {
    let mut images = vec![OPERATOR_IMAGE];
    for source in catalog.providers().flat_map(|provider| provider.descriptor.images.values()) {
        let image = (source.value.key.as_str(), source.value.tag.as_str());
        if !images.contains(&image) {
            images.push(image);
        }
    }
    images
}

/// `image-references`: the `ImageStream` by which release tooling finds the images.
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

/// The images ConfigMap with the images of the descriptors in place of those that stand in it; `None` when it is not one.
pub fn images_config_map(manifest: &str, catalog: &Catalog) -> Option<String> {
    let (head, _) = manifest.split_once(IMAGES_KEY)?;
    let images = images(catalog).into_iter().map(|(key, tag)| format!("      \"{key}\": \"{REPOSITORY}{tag}\""));
    let images = images.collect::<Vec<_>>().join(",\n");
    Some(format!("{head}{IMAGES_KEY}    {{\n{images}\n    }}\n"))
}

/// A file of the payload for a namespace. For the default one it is the file as it stands.
pub fn for_namespace(file: &str, namespace: &str) -> Result<String, yaml::Error> {
    if namespace == DEFAULT_NAMESPACE {
        return Ok(file.to_owned());
    }
    let (user, to) =
        (format!("system:serviceaccount:{DEFAULT_NAMESPACE}:"), format!("system:serviceaccount:{namespace}:"));
    let mut text = String::new();
    for mut document in yaml::documents(file)? {
        each_text(&mut document, &mut |text| {
            if text == DEFAULT_NAMESPACE {
                namespace.clone_into(text);
            } else if text.contains(&user) {
                *text = text.replace(&user, &to);
            }
        });
        tell_the_operator(&mut document, namespace);
        text.push_str("---\n");
        text.push_str(&yaml::to_string(&document)?);
    }
    Ok(text)
}

fn tell_the_operator(document: &mut Value, namespace: &str) {
    if document["kind"] != "Deployment" || document["metadata"]["name"] != OPERATOR_DEPLOYMENT {
        return;
    }
    if let Some(arguments) = document.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut)
    {
        arguments.push(format!("--namespace={namespace}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    #[test]
    fn the_files_are_those_that_the_descriptors_make() {
        let catalog = embedded::catalog().unwrap();
        let file = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(file("image-references"), image_references(&catalog), "run `make generate`");
        let config_map = file("manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml");
        assert_eq!(Some(config_map.clone()), images_config_map(&config_map, &catalog), "run `make generate`");
    }

    #[test]
    fn another_namespace_stands_wherever_the_default_one_stood() {
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
}
