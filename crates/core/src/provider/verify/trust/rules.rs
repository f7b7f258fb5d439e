//! The rules for external providers, as a table (pure).

use super::{accounts, containers, metadata, objects, permissions, pods, secrets};
use crate::provider::verify::{
    Check::{Never, Unless},
    Rule, fields,
    parts::Walk::{Containers, Manifests, Pods, Provider},
    rule,
};

pub(in crate::provider::verify) static RULES: &[Rule] = &[
    rule("external-type", Never(Manifests(fields::misread))),
    rule("external-object-name", Never(Manifests(objects::syntax_of_names))),
    rule("external-kind", Unless(Manifests(objects::kinds))),
    rule("external-name", Unless(Manifests(objects::names))),
    rule("external-system-name", Never(Manifests(objects::system_names))),
    rule("external-namespace", Unless(Manifests(objects::namespaces))),
    rule("external-reference", Unless(Provider(objects::references))),
    rule("external-cluster-role", Never(Provider(accounts::roles))),
    rule("external-aggregation", Never(Manifests(objects::aggregation))),
    rule("external-metadata", Unless(Manifests(metadata::metadata))),
    rule("external-label", Unless(Manifests(metadata::labels))),
    rule("external-selector", Unless(Provider(metadata::selectors))),
    rule("external-pod-label", Unless(Manifests(metadata::pod_labels))),
    rule("external-budget", Unless(Manifests(metadata::budgets))),
    rule("external-service", Unless(Manifests(objects::services))),
    rule("external-cloud-config", Unless(Provider(objects::published))),
    rule("external-host-namespace", Unless(Pods(pods::host_namespaces))),
    rule("external-host-path", Unless(Pods(pods::host_paths))),
    rule("external-host-port", Unless(Containers(pods::host_ports))),
    rule("external-volume", Unless(Pods(pods::volumes))),
    rule("external-field", Unless(Provider(pods::unusual_fields))),
    rule("external-privileged", Never(Provider(containers::privileged))),
    rule("external-security-context", Unless(Provider(containers::security_contexts))),
    rule("external-capability", Unless(Containers(containers::capabilities))),
    rule("external-image", Unless(Containers(containers::images))),
    rule("external-image-digest", Unless(Provider(containers::image_digests))),
    rule("external-secret", Unless(Provider(secrets::secrets))),
    rule("external-rbac", Never(Provider(permissions::rbac))),
    rule("external-permissions", Never(Provider(permissions::too_many))),
    rule("external-node-deletion", Never(Provider(permissions::node_deletion))),
    rule("external-permission", Unless(Provider(permissions::unusual))),
    rule("external-account", Unless(Provider(accounts::shared))),
    rule("external-placement", Unless(Provider(accounts::placement))),
    rule(
        "external-node-metadata",
        Unless(Provider(|input, found| {
            metadata::prefixes(input, "/nodes/metadataPrefixes", |said| said.of_nodes, found);
        })),
    ),
    rule(
        "external-service-metadata",
        Unless(Provider(|input, found| {
            metadata::prefixes(input, "/services/metadataPrefixes", |said| said.of_services, found);
        })),
    ),
    rule("external-root", Unless(Containers(containers::root))),
];
