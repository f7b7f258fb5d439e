//! Rules about permissions: those that roles grant, and those in the descriptor of the flavor kubernetes (pure).

use super::{
    metadata::own,
    never::{self, READ, is_mighty},
};
use crate::{
    object::permissions::{self, Rule},
    provider::{
        CCM, Error, Flavor, Phase,
        folder::Manifest,
        verify::{Values, parts::Input},
    },
};

/// A group and a resource with the verbs that are usual.
type Usual = (&'static str, &'static str, &'static [&'static str]);

/// What cloud-controller-managers do in the whole cluster. No subresource is read: to get one may be to run a command. Of the providers
/// that come with this program none reads pods or endpoints, and one `ServiceAccounts`; environments of pods hold passwords.
const EVERYWHERE: &[Usual] = &[
    ("", "namespaces", &READ),
    ("", "nodes", &["get", "list", "watch", "patch", "update"]),
    ("", "nodes/status", &["patch", "update"]),
    // Usual only because policies restrict which Services and Nodes, and what of them: `guard/external/`.
    ("", "services", &["get", "list", "watch", "patch", "update"]),
    ("", "services/status", &["patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("discovery.k8s.io", "endpointslices", &READ),
];

/// What they do everywhere, with a ClusterRole or a Role.
const EVENTS: &[Usual] = &[
    ("", "events", &["get", "list", "watch", "create", "patch", "update"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
];

/// What they do with a Role, which no controller narrows; of leases they renew only their own.
const IN_A_NAMESPACE: &[Usual] = &[("coordination.k8s.io", "leases", &["get", "list", "watch", "create"])];

/// What they read with a Role by name: others in the namespace hold passwords. Which Secrets they are, is a rule of its own. To change
/// a ConfigMap is not among it: one of kube-system says which front proxies API servers trust. Nor to create one, which no name limits:
/// others are read if they are there, such as coredns-custom of k3s.
const BY_NAME: [&str; 2] = ["configmaps", "secrets"];

/// A verb that a role or the descriptor grants.
struct Grant<'a> {
    /// Where it is granted.
    defect: Error,
    is_in_namespace: bool,
    group: &'a str,
    resource: &'a str,
    verb: &'a str,
    /// Of the only object that it is for; `None` for all.
    name: Option<&'a str>,
}

impl Grant<'_> {
    /// Whether no policy can allow it.
    fn is_refused(&self) -> bool {
        is_mighty(self.group, self.resource, self.verb)
    }

    fn deletes_nodes(&self) -> bool {
        (self.group, self.resource) == ("", "nodes") && self.verb.starts_with("delete")
    }

    /// Names of the provider's own begin with `own`.
    fn is_usual(&self, own: &str) -> bool {
        let has = |table: &[Usual]| {
            let mut of_resource =
                table.iter().filter(|(group, name, _)| (*group, *name) == (self.group, self.resource));
            of_resource.any(|(.., verbs)| verbs.contains(&self.verb))
        };
        let is_by_name = self.group.is_empty() && BY_NAME.contains(&self.resource) && self.name.is_some();
        let in_a_namespace =
            || has(IN_A_NAMESPACE) || (is_by_name && READ.contains(&self.verb)) || self.is_own_lease(own);
        has(EVENTS) || if self.is_in_namespace { in_a_namespace() } else { has(EVERYWHERE) }
    }

    /// Who renews the lease of another program, such as kube-controller-manager's in kube-system, stops that program.
    fn is_own_lease(&self, own: &str) -> bool {
        let is_own = |name: &str| name == CCM || name.starts_with(own);
        (self.group, self.resource) == ("coordination.k8s.io", "leases")
            && ["patch", "update"].contains(&self.verb)
            && self.name.is_some_and(is_own)
    }

    /// As `GROUP/RESOURCE:VERB`, with the name behind it.
    fn value(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!("{}/", self.group) };
        let name = self.name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("{group}{}:{}{name}", self.resource, self.verb)
    }

    fn defect(&self, problem: impl Into<String>) -> Error {
        self.defect.clone().described(problem)
    }
}

/// The rules of a role, each with its JSON pointer. One that cannot be read is a defect of the folder, and refused as such.
fn rules(manifest: &Manifest) -> impl Iterator<Item = (String, Rule<'_>)> {
    let rules = permissions::rules(manifest.object.value()).unwrap_or_default();
    rules.into_iter().enumerate().map(|(index, rule)| (format!("/rules/{index}"), rule))
}

/// The most permissions that the roles of a folder grant: a cloud-controller-manager needs some fifty.
const MAX_GRANTS: usize = 5_000;

/// The longest text of a rule that counts as one: the API server takes no longer name of an object.
const LONGEST: usize = 253;

/// How many permissions a rule grants: few lines grant millions. With a long text in it each counts as several, as each is worked out with
/// its texts.
fn count(rule: &Rule) -> usize {
    let longest =
        [&rule.groups, &rule.resources, &rule.verbs, &rule.names].into_iter().flatten().map(|text| text.len()).max();
    rule.count().saturating_mul(longest.unwrap_or_default().div_ceil(LONGEST).max(1))
}

/// The rules that grant more than a folder may.
pub(super) fn too_many(input: Input) -> Vec<Error> {
    let mut left = MAX_GRANTS;
    let of_manifest = |manifest: &Manifest| {
        let of_rule = |(pointer, rule): (String, Rule)| {
            let count = count(&rule);
            match left.checked_sub(count) {
                Some(rest) => {
                    left = rest;
                    None
                }
                None => {
                    Some(manifest.defect(&pointer, format!("{count} permissions; a folder may grant {MAX_GRANTS}")))
                }
            }
        };
        rules(manifest).filter_map(of_rule).collect::<Vec<_>>()
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

fn grants(input: Input<'_>) -> Vec<Grant<'_>> {
    let mut grants = Vec::new();
    // Refused by a rule of its own: nothing is worked out of them.
    if !too_many(input).is_empty() {
        return grants;
    }
    for manifest in input.manifests(Phase::Cluster) {
        let is_in_namespace = manifest.object.kind().namespaced;
        for (pointer, rule) in rules(manifest) {
            // An empty name is that of requests without one, such as a list.
            let is_for_all = rule.names.is_empty() || rule.names.contains(&"");
            let names = if is_for_all { vec![None] } else { rule.names.iter().copied().map(Some).collect() };
            let defect = manifest.defect(&pointer, "");
            for permissions::Permission { group, resource, verb, .. } in rule.permissions() {
                for name in &names {
                    let (defect, name) = (defect.clone(), *name);
                    grants.push(Grant { defect, is_in_namespace, group, resource, verb, name });
                }
            }
        }
    }
    // They become the account's ClusterRole.
    for (index, permission) in input.parsed.of_kubernetes().into_iter().flat_map(|one| &one.permissions).enumerate() {
        for verb in &permission.verbs {
            grants.push(Grant {
                defect: input.parsed.descriptor_error(&format!("/permissions/{index}"), ""),
                is_in_namespace: false,
                group: &permission.api_group,
                resource: &permission.resource,
                verb,
                name: None,
            });
        }
    }
    grants
}

pub(super) fn rbac(input: Input) -> Vec<Error> {
    let mut defects: Vec<_> = grants(input)
        .iter()
        .filter(|grant| grant.is_refused())
        .map(|grant| grant.defect(format!("grants {}", grant.value())))
        .collect();
    for manifest in input.manifests(Phase::Cluster) {
        for (pointer, rule) in rules(manifest) {
            if !rule.urls.is_empty() {
                defects.push(manifest.defect(&pointer, format!("grants the path {}", rule.urls.join(", "))));
            }
        }
        let role = &manifest.object.value()["roleRef"];
        if let Some(name) =
            role["name"].as_str().filter(|name| role["kind"] == "ClusterRole" && never::ROLES.contains(name))
        {
            defects.push(manifest.defect("/roleRef/name", format!("binds ClusterRole {name}")));
        }
    }
    defects
}

/// Elsewhere than on OpenShift, where nobody asks for them one by one.
pub(super) fn node_deletion(input: Input) -> Vec<Error> {
    let of_flavor = grants(input).into_iter().filter(|_| input.parsed.flavor == Flavor::Kubernetes);
    let deleting = of_flavor.filter(Grant::deletes_nodes);
    deleting.map(|grant| grant.defect(format!("grants {}", grant.value()))).collect()
}

pub(super) fn unusual(input: Input) -> Values {
    let is_kubernetes = input.parsed.flavor == Flavor::Kubernetes;
    let is_reported = |grant: &Grant| grant.is_refused() || (is_kubernetes && grant.deletes_nodes());
    let own = own(input);
    let unusual = grants(input).into_iter().filter(|grant| !grant.is_usual(&own) && !is_reported(grant));
    unusual.map(|grant| (grant.defect(format!("grants {}", grant.value())), grant.value())).collect()
}

/// The Secrets that Roles let be read by name, with their namespaces.
pub(super) fn of_secrets(input: Input<'_>) -> Vec<(Error, &str, String)> {
    let roles = input.manifests(Phase::Cluster).filter(|manifest| manifest.object.kind().kind == "Role");
    let mut found = Vec::new();
    for role in roles {
        for (pointer, rule) in rules(role) {
            let reads = rule.groups.contains(&"")
                && rule.resources.contains(&"secrets")
                && rule.verbs.iter().any(|verb| READ.contains(verb));
            let names = rule.names.into_iter().filter(|name| reads && !name.is_empty());
            found.extend(names.map(|name| (role.defect(&pointer, ""), role.object.namespace(), name.to_owned())));
        }
    }
    found
}
