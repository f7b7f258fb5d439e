//! The rules for external providers, as a table (pure).

use super::{accounts, containers, metadata, objects, permissions, pods, secrets};
use crate::provider::verify::{
    AppliesTo::{External, ExternalUnlessAllowed},
    Rule, fields,
    parts::Scope::{Containers, Manifests, Pods, Provider},
    rule,
};

pub(in crate::provider::verify) static RULES: &[Rule] = &[
    rule("external-type", External, Manifests(fields::misread)),
    rule("external-object-name", External, Manifests(objects::syntax_of_names)),
    rule("external-kind", ExternalUnlessAllowed, Manifests(objects::kinds)),
    rule("external-name", ExternalUnlessAllowed, Manifests(objects::names)),
    rule("external-system-name", External, Manifests(objects::system_names)),
    rule("external-namespace", ExternalUnlessAllowed, Manifests(objects::namespaces)),
    rule("external-reference", ExternalUnlessAllowed, Provider(objects::references)),
    rule("external-cluster-role", External, Provider(accounts::roles)),
    rule("external-aggregation", External, Manifests(objects::aggregation)),
    rule("external-metadata", ExternalUnlessAllowed, Manifests(metadata::metadata)),
    rule("external-label", ExternalUnlessAllowed, Manifests(metadata::labels)),
    rule("external-selector", ExternalUnlessAllowed, Provider(metadata::selectors)),
    rule("external-pod-label", ExternalUnlessAllowed, Manifests(metadata::pod_labels)),
    rule("external-budget", ExternalUnlessAllowed, Manifests(metadata::budgets)),
    rule("external-service", ExternalUnlessAllowed, Manifests(objects::services)),
    rule("external-cloud-config", ExternalUnlessAllowed, Provider(objects::published)),
    rule("external-host-namespace", ExternalUnlessAllowed, Pods(pods::host_namespaces)),
    rule("external-host-path", ExternalUnlessAllowed, Pods(pods::host_paths)),
    rule("external-host-port", ExternalUnlessAllowed, Containers(pods::host_ports)),
    rule("external-volume", ExternalUnlessAllowed, Pods(pods::volumes)),
    rule("external-field", ExternalUnlessAllowed, Provider(pods::unusual_fields)),
    rule("external-privileged", External, Provider(containers::privileged)),
    rule("external-security-context", ExternalUnlessAllowed, Provider(containers::security_contexts)),
    rule("external-capability", ExternalUnlessAllowed, Containers(containers::capabilities)),
    rule("external-image", ExternalUnlessAllowed, Containers(containers::images)),
    rule("external-image-digest", ExternalUnlessAllowed, Provider(containers::image_digests)),
    rule("external-secret", ExternalUnlessAllowed, Provider(secrets::secrets)),
    rule("external-rbac", External, Provider(permissions::rbac)),
    rule("external-permissions", External, Provider(permissions::too_many)),
    rule("external-node-deletion", External, Provider(permissions::node_deletion)),
    rule("external-permission", ExternalUnlessAllowed, Provider(permissions::unusual)),
    rule("external-account", ExternalUnlessAllowed, Provider(accounts::shared)),
    rule("external-placement", ExternalUnlessAllowed, Provider(accounts::placement)),
    rule(
        "external-node-metadata",
        ExternalUnlessAllowed,
        Provider(|input, defects| {
            metadata::prefixes(input, "/nodes/metadataPrefixes", |said| said.node_prefixes, defects);
        }),
    ),
    rule(
        "external-service-metadata",
        ExternalUnlessAllowed,
        Provider(|input, defects| {
            metadata::prefixes(input, "/services/metadataPrefixes", |said| said.service_prefixes, defects);
        }),
    ),
    rule("external-root", ExternalUnlessAllowed, Containers(containers::root)),
];
