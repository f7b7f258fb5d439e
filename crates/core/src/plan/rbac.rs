//! The roles and bindings that an administrator grants to the operator for a provider outside its installation (pure).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{
    grants::{Commented, GrantedRules, granted_by, written},
    install, needs,
};
use crate::{
    facts::DEFAULT_NAMESPACE,
    object::{
        Kind, Object, TEMPORARY,
        reference::{CONFIG_MAP, SECRET, references},
    },
    provider::{
        AUTHENTICATION_READER, OpenShiftProvider,
        kubernetes::{KubernetesProvider, NAMESPACE},
    },
    text::yaml,
};

/// The operator's ServiceAccount on OpenShift.
const OPENSHIFT_ACCOUNT: &str = "cluster-cloud-controller-manager";

/// The prefix of the names of roles and bindings, before the provider's name.
const PREFIX: &str = "ccm-operator-provider-";

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The rules by namespace; `None` is the whole cluster.
type Roles = BTreeMap<Option<String>, Vec<Commented>>;

/// Returns manifests with the permissions of the operator, in its own namespace, for a provider of the flavor kubernetes.
///
/// # Errors
///
/// The manifests cannot be written as YAML.
pub fn kubernetes(
    provider: &KubernetesProvider,
    names: &[String],
    namespaces: &[String],
    secrets: &[String],
    operator_namespace: &str,
) -> Result<String, yaml::Error> {
    // Leases other than the default ones belong to the installation.
    let grants = GrantedRules { providers: &[provider], secrets, names, leases: &[], node_deletion: false };
    let mut roles = Roles::from([(None, grants.of_cluster()?)]);
    for namespace in namespaces {
        roles.entry(Some(namespace.clone())).or_default().extend(grants.of_managed(namespace)?);
    }
    for (namespace, _) in by_namespace(&provider.manifests).iter().filter(|(one, _)| one != NAMESPACE) {
        roles.entry(Some(namespace.clone())).or_default().extend(grants.of_namespace(namespace)?);
    }
    // The operator itself holds the permissions of the authentication reader there.
    outside(&provider.manifests, Some(AUTHENTICATION_READER), &mut roles);
    manifests(&provider.descriptor.name, (operator_namespace, install::NAME), &roles)
}

/// Returns the same for OpenShift, where the operator manages one namespace and its permissions are by name.
///
/// # Errors
///
/// The manifests cannot be written as YAML.
pub fn openshift(
    provider: &OpenShiftProvider,
    namespace: &str,
    operator_namespace: &str,
) -> Result<String, yaml::Error> {
    let own: Vec<_> = provider.manifests.iter().collect();
    let cluster_scoped = || own.iter().copied().filter(|object| !object.kind().namespaced);
    let mut roles = Roles::from([(None, of_objects(cluster_scoped(), "ClusterRole")?)]);
    for (place, objects) in by_namespace(&provider.manifests) {
        let is_managed = place == DEFAULT_NAMESPACE;
        let place = if is_managed { namespace.to_owned() } else { place };
        let needed = roles.entry(Some(place)).or_default();
        needed.extend(of_objects(objects.iter().copied(), "Role")?);
        // The operator may already read everything in the managed namespace.
        if !is_managed {
            needed.push(watched(&objects));
        }
    }
    let mut bound = Roles::new();
    outside(&provider.manifests, None, &mut bound);
    for (place, rules) in bound {
        let place = place.map(|place| if place == DEFAULT_NAMESPACE { namespace.to_owned() } else { place });
        roles.entry(place).or_default().extend(rules);
    }
    manifests(provider.name(), (operator_namespace, OPENSHIFT_ACCOUNT), &roles)
}

/// Groups the namespaced objects by the namespace in the manifests.
fn by_namespace(objects: &[Object]) -> Vec<(String, Vec<&Object>)> {
    let mut all = BTreeMap::<String, Vec<&Object>>::new();
    for object in objects.iter().filter(|object| object.kind().namespaced) {
        all.entry(object.namespace().to_owned()).or_default().push(object);
    }
    all.into_iter().collect()
}

/// Returns rules for managing objects by name, and the permissions that their roles grant.
fn of_objects<'a>(
    objects: impl Iterator<Item = &'a Object> + Clone,
    role: &str,
) -> Result<Vec<Commented>, yaml::Error> {
    let mut names = BTreeMap::<&Kind, BTreeSet<String>>::new();
    for object in objects.clone() {
        let of_kind = names.entry(object.kind()).or_default();
        of_kind.insert(object.name().to_owned());
        of_kind.extend(object.kind().may_be_recreated().then(|| format!("{}{TEMPORARY}", object.name())));
    }
    let seen = names
        .keys()
        .map(|kind| json!({"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["list", "watch"]}));
    let kept = names.iter().map(|(kind, names)| {
        let bind = kind.kind.ends_with("Role").then_some("bind");
        let verbs: Vec<_> = ["get", "create", "patch", "delete"].into_iter().chain(bind).collect();
        json!({"apiGroups": [kind.group], "resources": [kind.plural], "resourceNames": names, "verbs": verbs})
    });
    let granted = granted_by(objects.filter(|object| object.kind().kind == role))?;
    Ok(vec![
        ("Its objects are watched by label, which no name can narrow.".to_owned(), seen.collect()),
        (
            "Its objects. One that is named -next is tried before an object is recreated; with bind a binding is accepted also \
             while the API server does not know its role yet."
                .to_owned(),
            kept.collect(),
        ),
        ("What its roles grant.".to_owned(), needs::merged(granted.into_iter())),
    ])
}

/// Returns rules for watching the ConfigMaps and Secrets of pods, whose change restarts the pods.
fn watched(objects: &[&Object]) -> Commented {
    let pods = objects.iter().filter_map(|object| object.pod_spec());
    let used: BTreeSet<_> = pods.flat_map(|pod| references(pod, "")).collect();
    let rules = [&CONFIG_MAP, &SECRET].into_iter().filter_map(|kind| {
        let names: Vec<_> = used.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str()).collect();
        // A rule without names would apply to all objects.
        let rule =
            json!({"apiGroups": [""], "resources": [kind.plural], "resourceNames": names, "verbs": ["list", "watch"]});
        (!names.is_empty()).then_some(rule)
    });
    ("What its pods refer to, and whose change restarts them.".to_owned(), rules.collect())
}

/// Adds rules for binding roles outside the provider, except `held`, whose permissions the operator holds. The permissions of the other
/// roles are unknown here.
fn outside(objects: &[Object], held: Option<&str>, roles: &mut Roles) {
    let own: BTreeSet<_> = objects.iter().map(|one| (one.kind().kind, one.name())).collect();
    let is_own = |kind: &str, name: &str| own.contains(&(kind, name));
    let mut bound = BTreeMap::<Option<String>, BTreeMap<&str, BTreeSet<&str>>>::new();
    for binding in objects {
        let role = &binding.value()["roleRef"];
        let (Some(kind), Some(name)) = (role["kind"].as_str(), role["name"].as_str()) else { continue };
        if is_own(kind, name) || held == Some(name) {
            continue;
        }
        let plural = if kind == "Role" { "roles" } else { "clusterroles" };
        let namespace = (kind == "Role").then(|| binding.namespace().to_owned());
        bound.entry(namespace).or_default().entry(plural).or_default().insert(name);
    }
    for (namespace, named) in bound {
        let rule = |(plural, names)| json!({"apiGroups": [RBAC], "resources": [plural], "resourceNames": names, "verbs": ["bind"]});
        let comment = "Roles of the cluster that its bindings name.".to_owned();
        roles.entry(namespace).or_default().push((comment, named.into_iter().map(rule).collect()));
    }
}

/// Writes a role and its binding for each place with rules.
fn manifests(provider: &str, (namespace, account): (&str, &str), roles: &Roles) -> Result<String, yaml::Error> {
    let name = format!("{PREFIX}{provider}");
    let mut documents = Vec::new();
    for (place, needed) in roles {
        let needed = written(needed)?;
        if needed.is_empty() {
            continue;
        }
        let role = if place.is_some() { "Role" } else { "ClusterRole" };
        let mut metadata = json!({"name": name, "labels": {"app.kubernetes.io/name": install::NAME}});
        if let Some(place) = place {
            metadata["namespace"] = place.as_str().into();
        }
        let head = |kind: &str| json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata});
        documents.push(format!("{}rules:\n{needed}", yaml::to_string(&head(role))?));
        let mut binding = head(&format!("{role}Binding"));
        binding["roleRef"] = json!({"apiGroup": RBAC, "kind": role, "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
        documents.push(yaml::to_string(&binding)?);
    }
    Ok(format!(
        "# What the operator needs for provider {provider}, besides the permissions of its installation. The API server lets nobody\n\
         # grant permissions that they do not hold, so the operator has to hold what the provider's roles grant.\n{}",
        documents.join("---\n")
    ))
}

#[cfg(test)]
mod tests;
