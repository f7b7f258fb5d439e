//! The tables of a cloud's page.

use std::collections::BTreeMap;

use ccm_operator::{
    facts::{ccm::Ccm, version::Minor},
    object::{Object, permissions},
    provider::{
        kubernetes::{KubernetesProvider, ProviderImage},
        versions::{Tag, VersionRule},
    },
};
use serde_json::Value;

use crate::pages::{
    markdown::{coded, table},
    needs,
};

/// The tags of images.
pub(crate) fn versions(images: &BTreeMap<String, ProviderImage>) -> String {
    let mut lines = Vec::new();
    for (container, image) in images {
        let rule = match image.versions.rule {
            VersionRule::SameMinor | VersionRule::MajorIsMinor => {
                "has separate versions for each minor version of Kubernetes"
            }
            VersionRule::OneLine => "has common versions for all supported versions of Kubernetes",
        };
        lines.push(format!("The image of `{container}` {rule}. Newest tags as of {}:", image.versions.as_of));
        let row = |(minor, tag): (&Minor, &Tag)| {
            let is_verified = image.versions.verified.contains(&tag.name);
            let verified = if is_verified { "pulled and run" } else { "not pulled by this project" };
            [minor.to_string(), format!("`{}`", tag.name), verified.to_owned()]
        };
        let rows: Vec<_> = image.versions.tags.iter().map(row).collect();
        lines.push(table(["Kubernetes", "tag", "verified"], &rows));
    }
    lines.push(
        "For a version of Kubernetes without a tag the operator uses the tag of the next lower version, and warns. `spec.image.version` \
         sets another one. [Images](../any-kubernetes.md#images) describes how to fill a mirror."
            .to_owned(),
    );
    lines.join("\n\n")
}

/// The table of the permissions of the accounts.
pub(crate) fn permissions(provider: &KubernetesProvider, planned: &[Object], ccm: &Ccm) -> String {
    let on: Vec<_> = ccm.controllers().collect();
    let account = provider.manifests.iter().find_map(|one| one.pod_spec()?["serviceAccountName"].as_str());
    let is_of_account = |object: &&Object| object.kind().kind == "ClusterRole" && Some(object.name()) == account;
    let role = planned
        .iter()
        .find(is_of_account)
        .map(|role| permissions::of_role(role.value()).unwrap_or_default())
        .unwrap_or_default();
    let is_granted = |resource: &str, verb: &str| {
        role.iter().any(|one| one.verb == verb && needs::full_name(one.group, one.resource) == resource)
    };
    // A node manager may have what its CCM does not need.
    let rows: Vec<_> = needs::reasons(&on, &provider.descriptor.permissions)
        .into_iter()
        .filter_map(|[resource, verbs, whom, why]| {
            let verbs: Vec<_> = verbs.split(", ").filter(|verb| is_granted(&resource, verb)).collect();
            (!verbs.is_empty()).then(|| [format!("`{resource}`"), verbs.join(", "), whom, why])
        })
        .collect();
    let mut parts = vec![
        "In the whole cluster, with the controllers of the example. If you turn a controller off, its permissions go, too."
            .to_owned(),
        table(["resource", "verbs", "needed by", "what for"], &rows),
    ];
    let others =
        planned.iter().filter(|object| matches!(object.kind().kind, "Role" | "ClusterRole") && !is_of_account(object));
    let rows: Vec<_> = others.flat_map(of_role).collect();
    parts.push("By other roles:".to_owned());
    parts.push(table(["role", "resource", "names", "verbs"], &rows));
    let roles = planned.iter().filter(|object| matches!(object.kind().kind, "Role" | "ClusterRole"));
    let mut granted = roles.flat_map(|role| permissions::of_role(role.value()).unwrap_or_default());
    let secrets = if granted.any(|grant| grant.resource == "secrets") {
        "The table above has the Secrets that the CCM can read."
    } else {
        "The CCM can read no Secret through the API: the kubelet gives its pods the one that you name."
    };
    parts.push(format!(
        "The CCM can delete no node: with `cloudNodeLifecycle: Enabled` the operator grants it for [confirmed \
         nodes](../node-deletion.md), by name. {secrets}"
    ));
    parts.join("\n\n")
}

/// The rules of a role, for a table.
fn of_role(role: &Object) -> Vec<[String; 4]> {
    let texts = |list: &Value| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let rules = role.value()["rules"].as_array().into_iter().flatten();
    let row = |rule: &Value| {
        let names = texts(&rule["resourceNames"]);
        let names = if names.is_empty() { "any".to_owned() } else { coded(&names).join(", ") };
        [
            format!("`{}`", role.key()),
            coded(&texts(&rule["resources"])).join(", "),
            names,
            texts(&rule["verbs"]).join(", "),
        ]
    };
    rules.map(row).collect()
}
