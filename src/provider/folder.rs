//! A provider's folder as its author wrote it: the files, what each document of them holds and on which line (pure).
//!
//! [`crate::provider::catalog`] answers a provider or the first error. Here every file that can be read is there, whatever is
//! wrong with the others, so that all that is wrong can be said at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    object::Object,
    provider::{self, Descriptor, Phase, catalog::Catalog},
    text::yaml::{self, Lines},
};

/// One provider's files.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The name of its folder.
    pub name: String,
    /// Its files, by path from the common root of `assets/` and `bootstrap/`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Every manifest that can be read, in the order of the files.
    pub manifests: Vec<Manifest>,
    /// The descriptor, when it can be read.
    pub descriptor: Option<Descriptor>,
    /// Why the operator would refuse the folder.
    pub defect: Option<provider::Error>,
}

/// A manifest with the place where it stands.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its file.
    pub file: String,
    /// Where it is for.
    pub phase: Phase,
    /// What it says.
    pub object: Object,
    /// The line of each of its values.
    pub lines: Lines,
}

/// What the install payload (`manifests/`) gives to providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The keys of `images.json`.
    pub image_keys: BTreeSet<String>,
    /// The Secrets that `CredentialsRequest`s ask for, as (namespace, name).
    pub requested_secrets: BTreeSet<(String, String)>,
}

/// Puts files of `assets/` and `bootstrap/`, given as (path from their common root, bytes), together by provider.
pub fn bundles<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<Bundle> {
    let mut folders = BTreeMap::<&str, BTreeMap<String, Vec<u8>>>::new();
    for (path, bytes) in files {
        let name = path.split('/').nth(1).unwrap_or_default();
        folders.entry(name).or_default().insert(path.to_owned(), bytes.to_owned());
    }
    let mut bundles: Vec<_> = folders.into_iter().map(|(name, files)| Bundle::read(name, files)).collect();
    if bundles.iter().all(|bundle| bundle.defect.is_none()) {
        mark_twins(&mut bundles);
    }
    bundles
}

/// Providers that are sound each may still serve the same platform.
fn mark_twins(bundles: &mut [Bundle]) {
    let files = bundles.iter().flat_map(|bundle| &bundle.files);
    let Err(error) = Catalog::new(files.map(|(path, bytes)| (path.as_str(), bytes.as_slice()))) else { return };
    if let Some(bundle) = bundles.iter_mut().find(|bundle| bundle.files.contains_key(&error.file)) {
        bundle.defect = Some(error);
    }
}

impl Bundle {
    fn read(name: &str, files: BTreeMap<String, Vec<u8>>) -> Self {
        let descriptor_path = descriptor_path(name);
        let descriptor = files
            .get(&descriptor_path)
            .and_then(|bytes| Descriptor::parse(std::str::from_utf8(bytes).ok()?, &descriptor_path).ok());
        let manifests = files
            .iter()
            .filter(|(path, _)| **path != descriptor_path)
            .flat_map(|(path, bytes)| manifests(path, bytes))
            .collect();
        let defect = Catalog::new(files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))).err();
        Self { name: name.to_owned(), files, manifests, descriptor, defect }
    }

    /// Where its descriptor stands, or should.
    pub fn descriptor_path(&self) -> String {
        descriptor_path(&self.name)
    }

    /// The manifests for one place, in the order in which they are applied there.
    pub fn of_phase(&self, phase: Phase) -> Vec<&Manifest> {
        let mut manifests: Vec<_> = self.manifests.iter().filter(|manifest| manifest.phase == phase).collect();
        manifests.sort_by_key(|manifest| manifest.object.kind().wave);
        manifests
    }

    /// The SHA-256 of its files in a canonical form: for each file, sorted by path, its path, a zero byte, its length in
    /// bytes as a decimal number, a zero byte, its bytes.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (path, bytes) in &self.files {
            hash.update(format!("{path}\0{}\0", bytes.len()));
            hash.update(bytes);
        }
        hash.finalize().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}

impl Payload {
    /// Finds them in the manifests of the payload; what is something else is passed over.
    pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut payload = Self::default();
        let texts = files.into_iter().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
        for document in texts.filter_map(|text| yaml::documents(text).ok()).flatten() {
            payload.add(&document);
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

fn descriptor_path(name: &str) -> String {
    format!("assets/{name}/provider.yaml")
}

fn manifests(path: &str, bytes: &[u8]) -> Vec<Manifest> {
    let phase = if path.starts_with("bootstrap/") { Phase::Bootstrap } else { Phase::Cluster };
    let documents = std::str::from_utf8(bytes).ok().and_then(|text| yaml::located(text).ok());
    documents
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(value, lines)| {
            Some(Manifest { file: path.to_owned(), phase, object: Object::new(value).ok()?, lines })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: a\n";

    #[test]
    fn a_digest_depends_on_names_and_contents_and_nothing_else() {
        let digest =
            |files: &[(&str, &str)]| bundles(files.iter().map(|(path, text)| (*path, text.as_bytes())))[0].digest();
        let one = digest(&[("assets/a/b.yaml", "x"), ("assets/a/c.yaml", "y")]);
        assert_eq!(one, digest(&[("assets/a/c.yaml", "y"), ("assets/a/b.yaml", "x")]));
        assert_ne!(one, digest(&[("assets/a/b.yaml", "y"), ("assets/a/c.yaml", "x")]));
        assert_ne!(one, digest(&[("assets/a/b.yaml", "xy"), ("assets/a/c.yaml", "")]));
        // printf 'assets/a/b.yaml\0001\000x' | sha256sum
        let known = "sha256:ab1e432fbb0aa137860b8996632a8108911a6dc2691c1a7e77e34072606eb676";
        assert_eq!(digest(&[("assets/a/b.yaml", "x")]), known);
    }

    #[test]
    fn what_can_be_read_is_there_whatever_is_wrong_with_the_rest() {
        let files = [("assets/a/bad.yaml", "a: ["), ("assets/a/role.yaml", ROLE), ("bootstrap/b/pod.yaml", "1")];
        let bundles = bundles(files.map(|(path, text)| (path, text.as_bytes())));
        assert_eq!(bundles.iter().map(|bundle| bundle.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(bundles[0].manifests.len(), 1);
        assert!(bundles.iter().all(|bundle| bundle.defect.is_some() && bundle.descriptor.is_none()));
    }

    #[test]
    fn one_of_two_providers_of_a_platform_is_refused() {
        let files = ["a", "b"].map(|name| {
            (format!("assets/{name}/provider.yaml"), format!("name: {name}\nplatform: {{type: Demo}}\nimages: {{}}\n"))
        });
        let bundles = bundles(files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())));
        let defects: Vec<_> = bundles.iter().map(|bundle| bundle.defect.as_ref().map(ToString::to_string)).collect();
        assert_eq!(defects[0], None);
        assert!(defects[1].as_ref().is_some_and(|text| text.contains("serves the same platform")), "{defects:?}");
    }

    #[test]
    fn the_payload_has_images_and_credentials() {
        let payload = Payload::read([
            ("manifests/a.yaml", "kind: ConfigMap\ndata: {images.json: '{\"key\": \"image\"}'}\n".as_bytes()),
            ("manifests/b.yaml", "kind: CredentialsRequest\nspec: {secretRef: {name: a, namespace: b}}\n".as_bytes()),
            ("manifests/c.yaml", "a: [".as_bytes()),
        ]);
        assert_eq!(payload.image_keys, BTreeSet::from(["key".to_owned()]));
        assert_eq!(payload.requested_secrets, BTreeSet::from([("b".to_owned(), "a".to_owned())]));
    }
}
