//! The install payload fits the providers: `manifests/` grants the operator the permissions for applying each of their objects
//! and no more, and has the images that their descriptors name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use ccm_operator::{
    cli::{Cli, Command},
    cluster::request,
    object::{KINDS, Object},
    provider::{catalog::Catalog, embedded},
    text::yaml,
};
use clap::Parser;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::{
    lab::{OWN_NAMESPACE, SERVICE_ACCOUNT, repository},
    support::{objects, objects::Workloads, openshift, pool},
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// RBAC rules by namespace; rules of the empty one apply everywhere.
#[derive(Default)]
struct Permissions(BTreeMap<String, Vec<Value>>);

/// The manifests of the files in `manifests/` that have this text in their name.
fn manifests(root: &Path, name: &str) -> Result<Vec<Value>> {
    let files = fs::read_dir(root.join("manifests"))?.map(|file| Ok(file?.path()));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.to_string_lossy().contains(name));
    files.sort();
    Ok(files.iter().map(|file| objects::read_yaml(file)).collect::<Result<Vec<_>>>()?.concat())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Permissions {
    /// The permissions of the operator's `ServiceAccount`.
    fn of_the_operator(root: &Path) -> Result<Self> {
        let mut permissions = Self::default();
        let all = manifests(root, "rbac_operator")?;
        for binding in all.iter().filter(|object| text(&object["kind"]).ends_with("Binding")) {
            let subject = &binding["subjects"][0];
            assert_eq!((text(&subject["name"]), text(&subject["namespace"])), (SERVICE_ACCOUNT, OWN_NAMESPACE));
            let namespace = text(&binding["metadata"]["namespace"]).to_owned();
            let role = all.iter().find(|object| {
                object["kind"] == binding["roleRef"]["kind"]
                    && object["metadata"]["name"] == binding["roleRef"]["name"]
                    && text(&object["metadata"]["namespace"]) == namespace
            });
            let Some(role) = role else {
                // A role of the cluster, for the security context constraint.
                assert_eq!(binding["roleRef"]["name"], "system:openshift:scc:hostaccess");
                continue;
            };
            permissions.0.entry(namespace).or_default().extend(items(&role["rules"]).iter().cloned());
        }
        Ok(permissions)
    }

    /// Whether a request is allowed; without a name, a request for all objects.
    fn allow(&self, namespace: &str, group: &str, resource: &str, name: Option<&str>, verb: &str) -> bool {
        let holds = |list: &Value, item: &str| items(list).iter().any(|one| one == item);
        ["", namespace].into_iter().filter_map(|place| self.0.get(place)).flatten().any(|rule| {
            holds(&rule["apiGroups"], group)
                && holds(&rule["resources"], resource)
                && holds(&rule["verbs"], verb)
                && (rule["resourceNames"].is_null() || name.is_some_and(|name| holds(&rule["resourceNames"], name)))
        })
    }
}

fn objects_of(catalog: &Catalog) -> Vec<Object> {
    catalog.providers().flat_map(|provider| provider.manifests.clone()).collect()
}

#[test]
fn the_operator_may_apply_and_watch_every_object() -> Result<()> {
    may_apply_and_watch(repository(), &embedded::catalog()?)
}

#[test]
fn the_operator_holds_every_permission_that_it_grants() -> Result<()> {
    holds_what_it_grants(repository(), &embedded::catalog()?)
}

#[test]
fn the_operators_permissions_name_only_objects_of_providers() -> Result<()> {
    names_only_objects_of_providers(repository(), &embedded::catalog()?)
}

#[test]
fn the_images_of_every_provider_are_listed() -> Result<()> {
    images_are_listed(repository(), &embedded::catalog()?)
}

/// Checks that the install payload of a folder fits the providers of a catalog.
pub(crate) fn check(root: &Path, catalog: &Catalog) -> Result<()> {
    may_apply_and_watch(root, catalog)?;
    holds_what_it_grants(root, catalog)?;
    names_only_objects_of_providers(root, catalog)?;
    images_are_listed(root, catalog)
}

/// The operator may apply and watch every object.
fn may_apply_and_watch(root: &Path, catalog: &Catalog) -> Result<()> {
    let permissions = Permissions::of_the_operator(root)?;
    for object in objects_of(catalog) {
        let (kind, namespace) = (object.kind(), object.namespace());
        for verb in ["get", "create", "patch", "delete"] {
            let allowed = permissions.allow(namespace, kind.group, kind.plural, Some(object.name()), verb);
            assert!(allowed, "{verb} {} is not granted by name in 02_rbac_operator", object.key());
            if kind.may_be_recreated() {
                let stand_in = format!("{}-next", object.name());
                let allowed = permissions.allow(namespace, kind.group, kind.plural, Some(&stand_in), verb);
                assert!(allowed, "{verb} {stand_in} is not granted by name in 02_rbac_operator");
            }
        }
        for verb in ["list", "watch"] {
            let allowed = permissions.allow(namespace, kind.group, kind.plural, None, verb);
            assert!(allowed, "{verb} {} in {namespace:?} is not granted in 02_rbac_operator", kind.plural);
        }
    }
    Ok(())
}

/// The operator holds every permission that the roles of providers grant.
fn holds_what_it_grants(root: &Path, catalog: &Catalog) -> Result<()> {
    let (permissions, objects) = (Permissions::of_the_operator(root)?, objects_of(catalog));
    for object in objects.iter().filter(|object| object.kind().group == RBAC) {
        for rule in items(&object.value()["rules"]) {
            let names = match items(&rule["resourceNames"]) {
                [] => vec![None],
                names => names.iter().map(|name| Some(text(name))).collect(),
            };
            let [group] = items(&rule["apiGroups"]) else { panic!("{}: one group a rule", object.key()) };
            for resource in items(&rule["resources"]) {
                for verb in items(&rule["verbs"]) {
                    for name in &names {
                        let group = text(group);
                        let held = permissions.allow(object.namespace(), group, text(resource), *name, text(verb));
                        assert!(held, "{} grants {verb} {resource} {name:?}, which the operator lacks", object.key());
                    }
                }
            }
        }
        let role = &object.value()["roleRef"];
        if !role.is_null() {
            let plural = if role["kind"] == "Role" { "roles" } else { "clusterroles" };
            let bound = permissions.allow(object.namespace(), RBAC, plural, Some(text(&role["name"])), "bind");
            assert!(bound, "{} binds {role}, which the operator may not bind", object.key());
        }
    }
    Ok(())
}

/// The operator's permissions name only objects of providers, and have no wildcard.
fn names_only_objects_of_providers(root: &Path, catalog: &Catalog) -> Result<()> {
    let (permissions, objects) = (Permissions::of_the_operator(root)?, objects_of(catalog));
    let known: BTreeSet<_> =
        objects.iter().map(|object| (object.namespace(), object.kind().plural, object.name())).collect();
    for (namespace, rule) in
        permissions.0.iter().flat_map(|(namespace, rules)| rules.iter().map(move |rule| (namespace, rule)))
    {
        let listed = ["apiGroups", "resources", "verbs"].into_iter().flat_map(|field| items(&rule[field]));
        assert!(listed.into_iter().all(|item| item != "*"), "{rule}");
        if !items(&rule["verbs"]).starts_with(&["get".into(), "create".into(), "patch".into()]) {
            continue;
        }
        for resource in items(&rule["resources"]) {
            for name in items(&rule["resourceNames"]) {
                // An object with an immutable change is recreated, after a temporary object of this name.
                let may_be_recreated =
                    KINDS.iter().any(|kind| kind.plural == text(resource) && kind.may_be_recreated());
                let stands_for = text(name).strip_suffix("-next").filter(|_| may_be_recreated);
                let named = (namespace.as_str(), text(resource), stands_for.unwrap_or(text(name)));
                assert!(known.contains(&named), "02_rbac_operator names {named:?}, which no provider has");
            }
        }
    }
    Ok(())
}

/// Every image of a descriptor is in the images ConfigMap and in `image-references`, and no other.
fn images_are_listed(root: &Path, catalog: &Catalog) -> Result<()> {
    let manifests = manifests(root, "01_images.configmap")?;
    let json = manifests.first().context("a ConfigMap")?["data"]["images.json"].as_str().context("images.json")?;
    let images: BTreeMap<String, String> = serde_json::from_str(json)?;
    let references = fs::read_to_string(root.join("manifests/image-references"))?;
    let references: Value = yaml::from_str(&references)?;
    let mut tags = BTreeMap::new();
    for tag in items(&references["spec"]["tags"]) {
        let twin = tags.insert(text(&tag["name"]).to_owned(), text(&tag["from"]["name"]).to_owned());
        assert_eq!(twin, None, "{tag}");
    }
    let mut used = BTreeSet::from(["cluster-cloud-controller-manager-operator".to_owned()]);
    for provider in catalog.providers() {
        for (container, source) in &provider.descriptor.images {
            let (key, tag) = (&source.key, &source.tag);
            let reference = tags.get(tag).with_context(|| format!("image-references has no tag {tag}"))?;
            let image = images.get(key).with_context(|| format!("the images have no key {key}"))?;
            assert_eq!(image, reference, "{}: {container}", provider.name());
            used.insert(tag.clone());
        }
        for (container, image) in containers(&provider.manifests).chain(containers(&provider.bootstrap_manifests)) {
            let tag = &provider.descriptor.images[container].tag;
            assert_eq!(image, format!("quay.io/openshift/origin-{tag}"), "{}: {container}", provider.name());
        }
    }
    assert_eq!(used, tags.keys().cloned().collect(), "an unused tag");
    assert_eq!(images.values().collect::<BTreeSet<_>>(), tags.values().collect(), "keys and tags");
    Ok(())
}

/// The containers of these objects with their images.
fn containers(objects: &[Object]) -> impl Iterator<Item = (&str, &str)> {
    let pods = objects.iter().filter_map(Object::pod_spec);
    pods.flat_map(ccm_operator::object::containers)
        .map(|container| (text(&container["name"]), text(&container["image"])))
}

#[tokio::test]
async fn the_operators_own_deployment_is_accepted_and_has_a_valid_command_line() -> Result<()> {
    let deployment = manifests(repository(), "50_deployment")?.into_iter().next().context("a Deployment")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let words = items(&container["command"]).iter().chain(items(&container["args"])).map(text);
    let cli = Cli::try_parse_from(words)?;
    assert!(matches!(cli.command, Command::Operator(_)));

    let plane = pool::lease().await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let deployment = Object::new(deployment)?;
    let params = PatchParams::apply("test").validation_strict().dry_run();
    let api = request::api(&client, deployment.kind(), deployment.namespace());
    api.patch(deployment.name(), &params, &Patch::Apply(deployment.value())).await?;
    Ok(())
}
