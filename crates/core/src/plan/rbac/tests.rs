use serde_json::Value;

use super::*;
use crate::{
    object::permissions::{Permission, of_role},
    provider::{Flavor, Origin, catalog::Catalog, embedded, folder::parsed_providers_of},
};

/// Every permission of the roles of a namespace, or of the cluster, as `group/resource:verb name`.
fn held(documents: &[Value], namespace: &str) -> BTreeSet<String> {
    let of_place =
        documents.iter().filter(|one| one["metadata"]["namespace"].as_str().unwrap_or_default() == namespace);
    let of_grant = |grant: Permission| -> Vec<String> {
        let permission = format!("{}/{}:{} ", grant.group, grant.resource, grant.verb);
        if grant.names.is_empty() {
            return vec![permission];
        }
        grant.names.iter().map(|name| format!("{permission}{name}")).collect()
    };
    of_place.flat_map(|role| of_role(role).unwrap().into_iter().flat_map(of_grant).collect::<Vec<_>>()).collect()
}

fn printed(provider: &OpenShiftProvider, namespace: &str) -> (String, Vec<Value>) {
    let text = openshift(provider, namespace, "own").unwrap();
    let documents = yaml::documents(&text).unwrap();
    (text, documents)
}

fn provider<'a>(catalog: &'a Catalog, name: &str) -> &'a OpenShiftProvider {
    catalog.providers().find(|one| one.name() == name).unwrap()
}

#[test]
fn on_openshift_the_operator_may_keep_each_object_by_name_and_holds_what_it_grants() {
    let catalog = embedded::catalog().unwrap();
    for provider in catalog.providers() {
        let (_, documents) = printed(provider, "moved");
        for object in &provider.manifests {
            let (kind, place) = (object.kind(), object.namespace());
            let held = held(&documents, if place == DEFAULT_NAMESPACE { "moved" } else { place });
            let permission = |verb: &str, name: &str| format!("{}/{}:{verb} {name}", kind.group, kind.plural);
            for needed in ["get", "create", "patch", "delete"].map(|verb| permission(verb, object.name())) {
                assert!(held.contains(&needed), "{}: {needed}", provider.name());
            }
            for needed in ["list", "watch"].map(|verb| permission(verb, "")) {
                assert!(held.contains(&needed), "{}: {needed}", provider.name());
            }
            let granted = held_by(object);
            assert!(granted.is_subset(&held), "{}: {:?}", provider.name(), granted.difference(&held));
        }
    }
}

fn held_by(object: &Object) -> BTreeSet<String> {
    held(std::slice::from_ref(object.value()), object.namespace())
}

#[test]
fn on_openshift_nothing_is_created_or_read_that_is_not_the_provider_s() {
    let catalog = embedded::catalog().unwrap();
    for provider in catalog.providers() {
        let (_, documents) = printed(provider, DEFAULT_NAMESPACE);
        let granted: BTreeSet<_> = provider.manifests.iter().flat_map(held_by).collect();
        for place in ["", DEFAULT_NAMESPACE, "kube-system"] {
            for permission in held(&documents, place).difference(&granted) {
                let is_seen = permission.ends_with(":list ") || permission.ends_with(":watch ");
                let has_name = !permission.ends_with(' ');
                assert!(
                    has_name || (is_seen && !permission.starts_with("/secrets")),
                    "{}: {permission}",
                    provider.name()
                );
                assert!(!permission.contains("escalate") && !permission.contains("impersonate"), "{permission}");
            }
        }
    }
}

#[test]
fn roles_of_the_cluster_are_bound_by_name() {
    let catalog = embedded::catalog().unwrap();
    let (_, documents) = printed(provider(&catalog, "vsphere"), "moved");
    let role = "rbac.authorization.k8s.io/clusterroles:bind cloud-controller-manager";
    assert!(held(&documents, "").contains(role), "{:?}", held(&documents, ""));
    let role = "rbac.authorization.k8s.io/roles:bind cloud-controller-manager";
    assert!(held(&documents, "moved").contains(role), "{:?}", held(&documents, "moved"));
}

#[test]
fn pods_in_another_namespace_than_the_managed_one_let_their_secrets_be_watched() {
    let files = ["deployment", "provider"].map(|name| {
        let path = format!("{}/../../tests/sound/assets/demo/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        (
            format!("assets/{name}.yaml"),
            std::fs::read_to_string(path).unwrap().replace(DEFAULT_NAMESPACE, "kube-system"),
        )
    });
    let parsed = parsed_providers_of("demo", files.map(|(path, text)| (path, text.into_bytes()))).remove(0);
    let (_, documents) = printed(&parsed.openshift().unwrap(), DEFAULT_NAMESPACE);
    let held = held(&documents, "kube-system");
    for permission in [
        "/secrets:list demo-cloud-credentials",
        "/secrets:watch demo-cloud-credentials",
        "/configmaps:watch cloud-conf",
    ] {
        assert!(held.contains(permission), "{held:?}");
    }
}

#[test]
fn what_is_printed_is_bound_to_the_operator() {
    let catalog = embedded::catalog().unwrap();
    let kubernetes = catalog.kubernetes_of("exoscale").unwrap();
    // A number is also a valid name of a namespace.
    let namespaces = ["kube-system".to_owned(), "123".to_owned()];
    let text =
        super::kubernetes(kubernetes, &["cluster".to_owned()], &namespaces, &["exoscale".to_owned()], "own").unwrap();
    let documents = yaml::documents(&text).unwrap();
    let kinds: Vec<_> =
        documents.iter().map(|one| (one["kind"].as_str().unwrap(), &one["metadata"]["namespace"])).collect();
    let null = &Value::Null;
    let (system, number) = (&json!("kube-system"), &json!("123"));
    let expected = [
        ("ClusterRole", null),
        ("ClusterRoleBinding", null),
        ("Role", number),
        ("RoleBinding", number),
        ("Role", system),
        ("RoleBinding", system),
    ];
    assert_eq!(kinds, expected);
    for pair in documents.chunks(2) {
        let [role, binding] = pair else { panic!("{pair:?}") };
        assert_eq!(role["metadata"]["name"], "ccm-operator-provider-exoscale");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["roleRef"]["kind"], role["kind"]);
        let account = json!([{"kind": "ServiceAccount", "name": "ccm-operator", "namespace": "own"}]);
        assert_eq!(binding["subjects"], account);
    }
    let (_, documents) = printed(provider(&catalog, "aws"), DEFAULT_NAMESPACE);
    assert_eq!(documents[1]["subjects"][0]["name"], "cluster-cloud-controller-manager");
}

#[test]
fn what_is_printed_says_what_each_permission_is_for() {
    let catalog = embedded::catalog().unwrap();
    let text = super::kubernetes(
        catalog.kubernetes_of("exoscale").unwrap(),
        &["cluster".into(), "second".into()],
        &["kube-system".into()],
        &["exoscale".into()],
        "ccm-operator",
    );
    insta::assert_snapshot!("kubernetes", text.unwrap());
    insta::assert_snapshot!("openshift", printed(provider(&catalog, "vsphere"), DEFAULT_NAMESPACE).0);
}

#[test]
fn the_policies_of_an_external_provider_are_kept_by_name() {
    let catalog = embedded::catalog().unwrap();
    let group = "admissionregistration.k8s.io";
    let needed = |name: &str, held: &BTreeSet<String>| {
        for plural in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            for verb in ["get", "patch", "delete"] {
                assert!(held.contains(&format!("{group}/{plural}:{verb} {name}")), "{held:?}");
                assert!(!held.contains(&format!("{group}/{plural}:{verb} ")), "{held:?}");
            }
        }
    };
    let kubernetes = catalog.kubernetes_of("exoscale").unwrap().clone().restricted(&Origin::default()).unwrap();
    let text = super::kubernetes(&kubernetes, &["cluster".into()], &["kube-system".into()], &[], "own").unwrap();
    let held_kubernetes = held(&yaml::documents(&text).unwrap(), "");
    let scaffold = embedded::scaffold().into_iter().map(|(path, text)| (path, text.as_bytes().to_vec()));
    let parsed = parsed_providers_of("example", scaffold).into_iter().find(|parsed| parsed.flavor == Flavor::OpenShift);
    let openshift = parsed.unwrap().openshift().unwrap().restricted(&Origin::default()).unwrap();
    let held_openshift = held(&printed(&openshift, "moved").1, "");
    for end in crate::provider::restriction::reserved().filter(|end| !end.ends_with("own-node")) {
        needed(&format!("exoscale-cloud-controller-manager{end}"), &held_kubernetes);
    }
    let policies = openshift.manifests.iter().filter(|object| object.kind().is_policy());
    let names: BTreeSet<_> = policies.map(Object::name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        needed(name, &held_openshift);
    }
}
