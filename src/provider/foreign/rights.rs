//! Rules about rights: what roles grant, and the rights that the descriptor of the flavour upstream lists (pure).

use serde_json::Value;

use crate::provider::{
    CCM, Error, Flavour, Phase,
    folder::Manifest,
    foreign::{Values, metadata::own},
    verify::parts::{Subject, items},
};

const READ: [&str; 3] = ["get", "list", "watch"];

/// A group and a resource with the verbs that are usual.
type Usual = (&'static str, &'static str, &'static [&'static str]);

/// What cloud-controller-managers do everywhere, besides reading [`READABLE`].
const EVERYWHERE: &[Usual] = &[
    ("", "events", &["create", "patch", "update"]),
    ("events.k8s.io", "events", &["create", "patch", "update"]),
    ("", "nodes", &["patch", "update"]),
    ("", "nodes/status", &["patch", "update"]),
    // Usual only because policies restrict which Services and Nodes, and what of them: `guard/external/`.
    ("", "services", &["patch", "update"]),
    ("", "services/status", &["patch", "update"]),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
];

/// What they do besides in a namespace; of leases they renew only their own. To change a ConfigMap is not among it: one of kube-system says which front proxies API
/// servers trust. Nor to create one, which no name limits: others are read if they are there, such as coredns-custom of k3s.
const IN_A_NAMESPACE: &[Usual] =
    &[("", "configmaps", &READ), ("coordination.k8s.io", "leases", &["get", "list", "watch", "create"])];

/// What they read everywhere. No subresource: to get one may be to run a command.
const READABLE: [(&str, &str); 8] = [
    ("", "endpoints"),
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Verbs by which every right can be had.
const MIGHTY: [&str; 3] = ["bind", "escalate", "impersonate"];

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
    fn is_of_secrets(&self) -> bool {
        (self.group, self.resource) == ("", "secrets")
    }

    /// Whether the rule about wildcards and verbs that lead to others refuses it.
    fn is_refused(&self) -> bool {
        MIGHTY.contains(&self.verb) || [self.group, self.resource, self.verb].iter().any(|text| text.contains('*'))
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
        let is_read = READABLE.contains(&(self.group, self.resource)) && READ.contains(&self.verb);
        // Which Secrets they are, is a rule of its own.
        let is_secret = self.is_of_secrets() && self.name.is_some() && READ.contains(&self.verb);
        is_read
            || has(EVERYWHERE)
            || (self.is_in_namespace && (has(IN_A_NAMESPACE) || is_secret || self.is_own_lease(own)))
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

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    items(list).iter().filter_map(Value::as_str)
}

/// The rules of a role, each with its JSON pointer.
fn rules(manifest: &Manifest) -> impl Iterator<Item = (String, &Value)> {
    let rules = items(&manifest.object.value()["rules"]).iter().enumerate();
    rules.map(|(index, rule)| (format!("/rules/{index}"), rule))
}

/// The most rights that the roles of a folder grant: a cloud-controller-manager needs some fifty.
const MAX_GRANTS: usize = 5_000;

/// The longest text of a rule that counts as one: the API server takes no longer name of an object.
const LONGEST: usize = 253;

/// How many rights a rule grants: few lines grant millions. With a long text in it each counts as several, as each is worked out with
/// its texts.
fn count(rule: &Value) -> usize {
    let fields = ["apiGroups", "resources", "verbs", "resourceNames"].map(|field| items(&rule[field]));
    let [groups, resources, verbs, names] = fields.map(<[Value]>::len);
    let longest = fields.into_iter().flatten().filter_map(Value::as_str).map(str::len).max().unwrap_or_default();
    [groups, resources, verbs, names.max(1), longest.div_ceil(LONGEST).max(1)]
        .into_iter()
        .fold(1, usize::saturating_mul)
}

/// The rules that grant more than a folder may.
pub(super) fn too_many(subject: Subject) -> Vec<Error> {
    let mut left = MAX_GRANTS;
    let of_manifest = |manifest: &Manifest| {
        let of_rule = |(pointer, rule): (String, &Value)| {
            let count = count(rule);
            match left.checked_sub(count) {
                Some(rest) => {
                    left = rest;
                    None
                }
                None => Some(manifest.defect(&pointer, format!("{count} rights; a folder may grant {MAX_GRANTS}"))),
            }
        };
        rules(manifest).filter_map(of_rule).collect::<Vec<_>>()
    };
    subject.bundle.manifests.iter().flat_map(of_manifest).collect()
}

fn grants(subject: Subject<'_>) -> Vec<Grant<'_>> {
    let mut grants = Vec::new();
    // Refused by a rule of its own: nothing is worked out of them.
    if !too_many(subject).is_empty() {
        return grants;
    }
    for manifest in subject.manifests(Phase::Cluster) {
        let is_in_namespace = manifest.object.kind().namespaced;
        for (pointer, rule) in rules(manifest) {
            let names: Vec<_> = texts(&rule["resourceNames"]).collect();
            // An empty name is that of requests without one, such as a list.
            let is_for_all = names.is_empty() || names.contains(&"");
            let names = if is_for_all { vec![None] } else { names.into_iter().map(Some).collect() };
            let defect = manifest.defect(&pointer, "");
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        for name in &names {
                            let (defect, name) = (defect.clone(), *name);
                            grants.push(Grant { defect, is_in_namespace, group, resource, verb, name });
                        }
                    }
                }
            }
        }
    }
    // They become the account's ClusterRole.
    for (index, right) in subject.bundle.upstream.iter().flat_map(|one| &one.rights).enumerate() {
        for verb in &right.verbs {
            grants.push(Grant {
                defect: subject.bundle.descriptor_error(&format!("/rights/{index}"), ""),
                is_in_namespace: false,
                group: &right.api_group,
                resource: &right.resource,
                verb,
                name: None,
            });
        }
    }
    grants
}

pub(super) fn rbac(subject: Subject) -> Vec<Error> {
    let mut defects: Vec<_> = grants(subject)
        .iter()
        .filter(|grant| grant.is_refused())
        .map(|grant| grant.defect(format!("grants {}", grant.value())))
        .collect();
    for manifest in subject.manifests(Phase::Cluster) {
        for (pointer, rule) in rules(manifest) {
            let paths: Vec<_> = texts(&rule["nonResourceURLs"]).collect();
            if !paths.is_empty() {
                defects.push(manifest.defect(&pointer, format!("grants the path {}", paths.join(", "))));
            }
        }
    }
    defects
}

/// Elsewhere than on OpenShift, where nobody asks for them one by one.
pub(super) fn node_deletion(subject: Subject) -> Vec<Error> {
    let of_flavour = grants(subject).into_iter().filter(|_| subject.bundle.flavour == Flavour::Upstream);
    let deleting = of_flavour.filter(Grant::deletes_nodes);
    deleting.map(|grant| grant.defect(format!("grants {}", grant.value()))).collect()
}

pub(super) fn unusual(subject: Subject) -> Values {
    let is_upstream = subject.bundle.flavour == Flavour::Upstream;
    let is_reported = |grant: &Grant| grant.is_refused() || (is_upstream && grant.deletes_nodes());
    let own = own(subject);
    let unusual = grants(subject).into_iter().filter(|grant| !grant.is_usual(&own) && !is_reported(grant));
    unusual.map(|grant| (grant.defect(format!("grants {}", grant.value())), grant.value())).collect()
}

/// The Secrets that Roles let be read by name, with their namespaces.
pub(super) fn of_secrets(subject: Subject<'_>) -> Vec<(Error, &str, String)> {
    let roles = subject.manifests(Phase::Cluster).filter(|manifest| manifest.object.kind().kind == "Role");
    let mut found = Vec::new();
    for role in roles {
        for (pointer, rule) in rules(role) {
            let reads = texts(&rule["apiGroups"]).any(str::is_empty)
                && texts(&rule["resources"]).any(|resource| resource == "secrets")
                && texts(&rule["verbs"]).any(|verb| READ.contains(&verb));
            let names = texts(&rule["resourceNames"]).filter(|name| reads && !name.is_empty());
            found.extend(names.map(|name| (role.defect(&pointer, ""), role.object.namespace(), name.to_owned())));
        }
    }
    found
}
