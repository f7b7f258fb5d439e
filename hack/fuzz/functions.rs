//! Every function that parses untrusted input, and the properties that must hold for any input. Without imports from the
//! rest of the crate, because the tests in `tests/it` include this file as well.

use std::sync::LazyLock;

use ccm_operator::{
    config::{
        Transform,
        azure::credentials::{Credentials, inject},
        certificates,
    },
    facts::{Facts, Platform},
    nodes::{
        diagnose::diagnose,
        evidence::{CcmEvidence, Evidence},
        node::{Node, UNINITIALIZED},
        observed,
    },
    proposal::credentials::{fits, of_files, of_text},
    provider::{
        self, kubernetes,
        package::{Package, digest},
    },
    text::{mask, yaml},
};
use serde_json::Value;

/// Runs a function on an input, which it may refuse, but must not panic on.
pub(crate) type Function = fn(&[u8]);

/// The functions by the names of the folders of their seeds.
pub(crate) const FUNCTIONS: [(&str, Function); 12] = [
    ("aws", |input| transform(Transform::Aws, input)),
    ("azure", |input| transform(Transform::Azure, input)),
    ("azure_credentials", credentials),
    ("azurestack", |input| transform(Transform::AzureStack, input)),
    ("init_credentials", given_credentials),
    ("mask", masked),
    ("node_log", node_log),
    ("openstack", |input| transform(Transform::OpenStack, input)),
    ("package", package),
    ("package_image", package_image),
    ("trust_bundle", bundle),
    ("vsphere", |input| transform(Transform::VSphere, input)),
];

/// Clusters that differ in every fact that a transform uses.
static CLUSTERS: LazyLock<[Facts; 3]> = LazyLock::new(|| {
    let plain = Facts::default();
    let one = Facts {
        platform: Ok(Some(azure("AzureStackCloud"))),
        feature_gates: vec!["AWSServiceLBNetworkSecurityGroup".into()],
        service_networks: vec!["fd02::/112".into()],
        vsphere: Some(spec("{}")),
        vips: vec!["192.0.2.1".into(), "2001:db8::1".into()],
        ..Facts::default()
    };
    let many = Facts {
        platform: Ok(Some(azure("AzureUSGovernmentCloud"))),
        feature_gates: vec!["VSphereMultiVCenterDay2".into()],
        service_networks: vec!["172.30.0.0/16".into(), "fd02::/112".into()],
        vsphere: Some(spec(
            "vcenters:\n\
             - {server: one.example.com, port: 443, datacenters: [a, b]}\n\
             - {server: two.example.com, datacenters: []}\n\
             failureDomains:\n\
             - {server: one.example.com, topology: {datacenter: c}}\n\
             - {server: three.example.com, topology: {datacenter: d}}\n\
             nodeNetworking:\n\
             \x20 internal: {network: in, networkSubnetCidr: [10.0.0.0/8], excludeNetworkSubnetCidr: ['fd00::/8']}\n\
             \x20 external: {network: out}\n",
        )),
        vips: vec!["192.0.2.1".into()],
        ..Facts::default()
    };
    [plain, one, many]
});

fn azure(cloud: &str) -> Platform {
    Platform { name: "Azure".into(), variant: Some(cloud.into()) }
}

fn spec(text: &str) -> ccm_operator::facts::vsphere::VSphere {
    yaml::from_str(text).expect("a specification")
}

/// What a user gives as credentials has every key, and none of its values is empty.
fn given_credentials(input: &[u8]) {
    let needed = |keys: &[&str]| kubernetes::Credentials {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        optional_keys: vec!["network".to_owned()],
        environment: [("TOKEN".to_owned(), "token".to_owned())].into(),
        optional: false,
        only_with: None,
    };
    let text = String::from_utf8_lossy(input);
    for needed in [needed(&["token"]), needed(&["*.username", "*.password"])] {
        let files = [("token".to_owned(), input.to_vec())].into();
        for values in [of_text(&text, &needed), of_files(files, &needed)].into_iter().flatten() {
            assert!(needed.keys.iter().all(|pattern| values.keys().any(|key| fits(pattern, key))));
            assert!(values.values().all(|value| !value.is_empty()));
        }
    }
}

/// A transform is idempotent.
fn transform(transform: Transform, input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for cluster in &*CLUSTERS {
        let Ok(output) = transform.apply(text, cluster) else { continue };
        let again = transform.apply(&output.text, cluster).expect("its own output");
        assert_eq!(again.text, output.text, "not idempotent");
        assert!(again.changes.is_empty(), "changes its own output: {:?}", again.changes);
        assert_eq!(output.changes.is_empty(), output.text == text, "reports its changes: {:?}", output.changes);
    }
}

/// The input consists of the configuration and, after a NUL, the secret.
fn credentials(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (config, secret) = text.split_once('\0').unwrap_or((text, "secret"));
    let credentials =
        Credentials { client_id: Some("id".into()), client_secret: Some(secret.into()), ..Credentials::default() };
    if let Ok(injected) = inject(config, &credentials, true) {
        let again = inject(&injected.text, &credentials, true).expect("its own output");
        assert_eq!(again.text, injected.text, "not idempotent");
    }
}

/// A merged bundle parses to the same certificates.
fn bundle(input: &[u8]) {
    if let Ok(certificates) = certificates::parse(input)
        && let Ok(merged) = certificates::merge(&certificates, &certificates, &[])
    {
        let again = certificates::parse(merged.as_bytes()).expect("its own output");
        assert_eq!(again, certificates, "other certificates");
    }
}

/// The beginning of a secret in a seed.
const PLANTED: &str = "Zq7";

/// Whether the planted secret is the value of a secret's key, or a part of it.
fn is_planted(value: &Value, is_secret: bool) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(key, value)| is_planted(value, is_secret || mask::is_secret_key(key)))
        }
        Value::Array(items) => items.iter().any(|item| is_planted(item, is_secret)),
        Value::String(text) => is_secret && text.contains(PLANTED),
        _ => false,
    }
}

/// Masking keeps the number of lines, and hides what other parsers find as the value of a secret's key.
fn masked(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let shown = mask::text(text);
    let documents =
        serde_json::from_str(text).map_or_else(|_| yaml::documents(text).unwrap_or_default(), |one| vec![one]);
    if text.matches(PLANTED).count() == 1 && documents.iter().any(|document| is_planted(document, false)) {
        assert!(!shown.contains(PLANTED), "a secret is shown: {shown}");
    }
    assert_eq!(shown.lines().count(), text.lines().count(), "other lines");
}

/// Whatever stands in the log of a cloud-controller-manager: a node that waits has a reason, nothing that is shown controls a
/// terminal, and no cause holds words of others.
fn node_log(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let node = Node {
        name: "worker-1".into(),
        created: "2026-01-01T00:00:00Z".into(),
        taints: vec![UNINITIALIZED.into()],
        ..Node::default()
    };
    let ccm = CcmEvidence { log: Some(observed::lines(text)), is_installed: Some(true), ..CcmEvidence::default() };
    let now = "2026-01-01T01:00:00Z".parse().expect("a time");
    let evidence = Evidence { now, nodes: vec![node], ccms: vec![ccm], ..Evidence::default() };
    for node in diagnose(&evidence) {
        assert!(!node.findings.is_empty(), "no reason");
        for finding in &node.findings {
            assert!(!finding.cause.contains(PLANTED), "words of others: {finding:?}");
            assert!(!finding.evidence.contains(char::is_control), "control characters: {finding:?}");
        }
        assert!(!node.observations.iter().any(|one| one.showed.contains(char::is_control)), "{:?}", node.observations);
    }
}

/// What is read as a package is packed as the same bytes again. The input is a tar, and a manifest in a package.
fn package(input: &[u8]) {
    // With the right checksum, so that other fields are looked at.
    let mut repaired = input.to_vec();
    if let Some((header, _)) = repaired.split_first_chunk_mut::<512>() {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    for tar in [input, &repaired] {
        if let Ok(package) = Package::from_tar(tar) {
            assert!(package.tar() == tar, "another tar");
        }
    }
    let files = [("assets/a.yaml", input), ("assets/kubernetes/provider.yaml", input), ("README.md", input)];
    if let Ok(package) = Package::new("demo", files) {
        assert_eq!(Package::from_tar(&package.tar()).as_ref(), Ok(&package), "another package");
        package.parsed_providers().iter().for_each(|parsed| drop(parsed.misfits()));
    }
}

/// Only the package whose blobs are there comes out of an image. The input is its index, and its manifest.
fn package_image(input: &[u8]) {
    let demo = Package::new("demo", [("assets/a.yaml", "a: 1\n")]).expect("a package");
    let layout = demo.oci_layout();
    let read = |index: &[u8], manifest: &[u8]| {
        Package::from_oci_layout(|path, _| match path {
            "index.json" => Ok(index.to_vec()),
            _ if path.strip_prefix("blobs/sha256/").is_some_and(|hex| digest(manifest).ends_with(hex)) => {
                Ok(manifest.to_vec())
            }
            _ => {
                let file = layout.files.iter().find(|(name, _)| name == path);
                let missing = || provider::Error::new(path, None, "missing");
                file.map(|(_, bytes)| bytes.clone()).ok_or_else(missing)
            }
        })
    };
    if let Ok((package, found)) = read(input, b"") {
        assert_eq!((&package, &found), (&demo, &layout.digest), "another package");
    }
    let pin = digest(input);
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": pin, "size": input.len()},
    ]});
    if let Ok((package, found)) = read(index.to_string().as_bytes(), input) {
        assert_eq!((package, found), (demo, pin), "another package");
    }
}
