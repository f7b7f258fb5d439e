//! Rules about permissions: those that roles grant, and those in the descriptor of the flavor kubernetes (pure).

use super::{
    metadata::own,
    never::{self, READ, is_mighty},
};
use crate::{
    object::permissions::{Permission, PolicyRule},
    provider::{
        CCM, Error, Flavor, Phase,
        verify::parts::{Defects, RuleInput, Scope},
    },
};

/// A group and a resource with the usual verbs.
type Usual = (&'static str, &'static str, &'static [&'static str]);

/// The usual permissions in the whole cluster. No subresource may be read, because `get` may run a command. No built-in provider reads
/// pods or endpoints, and only one reads `ServiceAccounts`. The environments of pods hold passwords.
const EVERYWHERE: &[Usual] = &[
    ("", "namespaces", &READ),
    ("", "nodes", &["get", "list", "watch", "patch", "update"]),
    ("", "nodes/status", &["patch", "update"]),
    // Usual only because policies restrict the Services and Nodes, and their fields: `guard/external/`.
    ("", "services", &["get", "list", "watch", "patch", "update"]),
    ("", "services/status", &["patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ("discovery.k8s.io", "endpointslices", &READ),
];

/// The permissions for a ClusterRole or a Role.
const EVENTS: &[Usual] = &[
    ("", "events", &["get", "list", "watch", "create", "patch", "update"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
];

/// The permissions for a Role only, with any controllers; leases are changed only by name.
const IN_A_NAMESPACE: &[Usual] = &[("coordination.k8s.io", "leases", &["get", "list", "watch", "create"])];

/// The resources that a Role may let them read by name, because other objects in the namespace hold passwords. Another rule checks the
/// Secrets. They must not change a ConfigMap: one in kube-system names the front proxies that API servers trust. Nor may they create
/// one, which no name limits: programs read some ConfigMaps if they exist, such as coredns-custom of k3s.
const BY_NAME: [&str; 2] = ["configmaps", "secrets"];

/// A verb on a resource that a role or the descriptor grants.
struct Grant<'a> {
    /// The place of the permission.
    defect: Error,
    is_in_namespace: bool,
    group: &'a str,
    resource: &'a str,
    verb: &'a str,
    /// The name of the only allowed object; `None` for all.
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

    /// Whether it is usual. The provider's own names begin with `own`.
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

    /// A program that renews the lease of another program, such as kube-controller-manager in kube-system, stops that program.
    fn is_own_lease(&self, own: &str) -> bool {
        let is_own = |name: &str| name == CCM || name.starts_with(own);
        (self.group, self.resource) == ("coordination.k8s.io", "leases")
            && ["patch", "update"].contains(&self.verb)
            && self.name.is_some_and(is_own)
    }

    /// The form `GROUP/RESOURCE:VERB`, followed by the name.
    fn value(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!("{}/", self.group) };
        let name = self.name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("{group}{}:{}{name}", self.resource, self.verb)
    }

    fn defect(&self) -> Error {
        self.defect.clone().described(format!("grants {}", self.value()))
    }
}

/// The most permissions that the roles of a folder may grant. A cloud-controller-manager needs about fifty.
const MAX_GRANTS: usize = 5_000;

/// The longest text of a rule that counts as one. The API server accepts no longer object names.
const LONGEST: usize = 253;

/// Counts the permissions that a rule grants, because few lines can grant millions. In a rule with a long text, each counts as several,
/// because each is expanded with its texts.
fn count(rule: &PolicyRule) -> usize {
    let longest =
        [&rule.groups, &rule.resources, &rule.verbs, &rule.names].into_iter().flatten().map(|text| text.len()).max();
    rule.count().saturating_mul(longest.unwrap_or_default().div_ceil(LONGEST).max(1))
}

/// Reports rules that grant more than a folder may.
pub(super) fn too_many(input: RuleInput, defects: &mut Defects) {
    let mut left = MAX_GRANTS;
    for manifest in &input.parsed.manifests {
        for (pointer, rule) in manifest.rules() {
            let count = count(&rule);
            if count <= left {
                left -= count;
            } else {
                let problem = format!("{count} permissions; a folder may grant {MAX_GRANTS}");
                defects.add(manifest.defect(&pointer, problem));
            }
        }
    }
}

fn grants(input: RuleInput<'_>) -> Vec<Grant<'_>> {
    let mut grants = Vec::new();
    // Another rule refuses them, so they are not expanded.
    if !Scope::Provider(too_many).defects(input).is_empty() {
        return grants;
    }
    for manifest in input.manifests(Phase::Cluster) {
        let is_in_namespace = manifest.object.kind().namespaced;
        for (pointer, rule) in manifest.rules() {
            // An empty name matches requests without a name, such as a list.
            let is_for_all = rule.names.is_empty() || rule.names.contains(&"");
            let names = if is_for_all { vec![None] } else { rule.names.iter().copied().map(Some).collect() };
            let defect = manifest.defect(&pointer, "");
            for Permission { group, resource, verb, .. } in rule.permissions() {
                for name in &names {
                    let (defect, name) = (defect.clone(), *name);
                    grants.push(Grant { defect, is_in_namespace, group, resource, verb, name });
                }
            }
        }
    }
    // These become a part of the account's ClusterRole.
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

pub(super) fn rbac(input: RuleInput, defects: &mut Defects) {
    for grant in grants(input).iter().filter(|grant| grant.is_refused()) {
        defects.add(grant.defect());
    }
    for manifest in input.manifests(Phase::Cluster) {
        for (pointer, rule) in manifest.rules().filter(|(_, rule)| !rule.urls.is_empty()) {
            defects.add(manifest.defect(&pointer, format!("grants the path {}", rule.urls.join(", "))));
        }
        let role = manifest.text("/roleRef/name");
        if manifest.text("/roleRef/kind") == "ClusterRole" && never::ROLES.contains(&role) {
            defects.add(manifest.defect("/roleRef/name", format!("binds ClusterRole {role}")));
        }
    }
}

/// Skips OpenShift, where nodes are not confirmed one by one.
pub(super) fn node_deletion(input: RuleInput, defects: &mut Defects) {
    let of_flavor = grants(input).into_iter().filter(|_| input.parsed.flavor == Flavor::Kubernetes);
    of_flavor.filter(Grant::deletes_nodes).for_each(|grant| defects.add(grant.defect()));
}

pub(super) fn unusual(input: RuleInput, defects: &mut Defects) {
    let is_kubernetes = input.parsed.flavor == Flavor::Kubernetes;
    let is_reported = |grant: &Grant| grant.is_refused() || (is_kubernetes && grant.deletes_nodes());
    let own = own(input);
    for grant in grants(input).iter().filter(|grant| !grant.is_usual(&own) && !is_reported(grant)) {
        defects.add_unless(grant.value(), grant.defect());
    }
}
