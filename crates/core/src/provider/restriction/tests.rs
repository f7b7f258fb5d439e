use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    api::placement::Distribution,
    facts::{Facts, ccm::Ccm, cluster::Cluster, version::Minor},
    plan::{Plan, kubernetes::guard},
    provider::{
        KubernetesProvider, Origin, Phase, Provider,
        catalog::Catalog,
        embedded,
        external::ExternalProvider,
        folder::{ParsedProvider, parsed_providers_of},
        package::Package,
    },
};

/// The folder of a built-in provider, as an external one named `up`.
fn files(built_in: &str) -> BTreeMap<String, String> {
    let package = embedded::package(built_in).unwrap();
    let files = package.files().filter(|(path, _)| path.starts_with("assets/kubernetes/"));
    let own = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap().replace(&format!("{built_in}-cloud-"), "up-cloud-");
        text.replace(&format!("name: {built_in}\n"), "name: up\n")
    };
    // A package must not contain such a policy.
    let without_policy = |text: String| text.split("---\n# RBAC cannot").next().unwrap_or_default().to_owned();
    files.map(|(path, bytes)| (path.to_owned(), without_policy(own(bytes)))).collect()
}

fn parsed(files: &BTreeMap<String, String>) -> ParsedProvider {
    parsed_providers_of("up", files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()))).remove(0)
}

fn external(files: &BTreeMap<String, String>) -> KubernetesProvider {
    parsed(files).kubernetes().unwrap().restricted(&Origin::default()).unwrap()
}

/// The planned policies of a `CloudControllerManager`: name and users, and the names of the bindings.
fn planned(files: &BTreeMap<String, String>, name: &str, namespace: &str) -> Vec<(String, String)> {
    let mut catalog = Catalog::default();
    let package =
        Package::new("up", files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()))).unwrap();
    let provider = Provider::of("up", &[parsed(files)]).unwrap();
    catalog.add(&ExternalProvider::new(package, provider, Origin::default()).unwrap().provider);
    let mut spec = json!({"provider": "up", "namespace": namespace});
    let descriptor = &catalog.kubernetes_of("up").unwrap().descriptor;
    if descriptor.credentials.is_some() {
        spec["credentials"] = json!({"secretRef": {"name": "up"}});
    }
    if descriptor.cloud_config.is_some() {
        spec["cloudConfig"] = json!({"secretRef": {"name": "up", "key": "cloud-config"}});
    }
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    let ccm = Ccm { name: name.into(), spec: serde_json::from_value(spec).unwrap(), cluster, skips: Vec::new() };
    let plan = Plan::of_ccm(&catalog, &ccm).unwrap();
    let restrictions = plan.objects().iter().filter(|object| is_restriction(object.value()));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    restrictions
        .map(|object| {
            assert_eq!(object.value()["metadata"]["labels"][INSTANCE_LABEL], name);
            let spec = &object.value()["spec"];
            let is_policy = object.kind().kind == "ValidatingAdmissionPolicy";
            let about = if is_policy { &spec["matchConditions"][0]["expression"] } else { &spec["policyName"] };
            (object.name().to_owned(), text(about))
        })
        .collect()
}

fn users(all: &[&str]) -> String {
    let all: Vec<_> = all.iter().map(|one| format!("'system:serviceaccount:{one}'")).collect();
    format!("request.userInfo.username in [{}]", all.join(", "))
}

#[test]
fn every_account_of_an_external_provider_is_restricted() {
    let files = files("exoscale");
    let services = "up-cloud-controller-manager-external-services";
    let nodes = "up-cloud-controller-manager-external-nodes";
    let ccm = users(&["kube-system:up-cloud-controller-manager"]);
    let expected = [(services, ccm.as_str()), (nodes, &ccm), (services, services), (nodes, nodes)];
    let mut found = planned(&files, "cluster", "kube-system");
    found.sort_by_key(|(_, about)| !about.starts_with("request"));
    assert_eq!(found, expected.map(|(name, about)| (name.to_owned(), about.to_owned())));
    // The policy of another CloudControllerManager, in another namespace.
    let found = planned(&files, "second", "clouds");
    let moved = users(&["clouds:up-cloud-controller-manager-second"]);
    assert!(found.contains(&(format!("{nodes}-second"), moved.clone())), "{found:?}");
    assert!(found.contains(&(format!("{services}-second"), moved)), "{found:?}");
    assert!(found.contains(&(format!("{nodes}-second"), format!("{nodes}-second"))), "{found:?}");
}

#[test]
fn accounts_of_pods_on_every_node_change_only_their_own_node() {
    let found = planned(&files("azure"), "cluster", "kube-system");
    let own_node: Vec<_> = found.iter().filter(|(name, _)| name.ends_with(OWN_NODE)).collect();
    let name = "up-cloud-controller-manager-external-own-node".to_owned();
    assert_eq!(own_node[0], &(name.clone(), users(&["kube-system:up-cloud-node-manager"])));
    assert_eq!(own_node[1], &(name.clone(), name));
    let both = users(&["kube-system:up-cloud-controller-manager", "kube-system:up-cloud-node-manager"]);
    assert_eq!(found.iter().filter(|(_, about)| *about == both).count(), 2, "{found:?}");
}

#[test]
fn no_name_of_an_account_hides_another_one() {
    let mut files = files("exoscale");
    let rbac = files.get_mut("assets/kubernetes/rbac.yaml").unwrap();
    for name in ["up-cloud-controller-manager-second", "up-cloud-x"] {
        let account = format!(
            "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: kube-system\n  labels: \
             {{app.kubernetes.io/instance: cluster}}\n"
        );
        rbac.push_str(&account);
    }
    let found = planned(&files, "second", "kube-system");
    let all = users(&[
        "kube-system:up-cloud-controller-manager-second",
        "kube-system:up-cloud-controller-manager-second-second",
        "kube-system:up-cloud-x-second",
    ]);
    assert_eq!(found.iter().filter(|(_, about)| *about == all).count(), 2, "{found:?}");
}

/// Any workload may have a container with the name of the cloud-controller-manager's.
#[test]
fn only_the_workload_that_is_taken_for_the_cloud_controller_manager_is_not_on_every_node() {
    let mut files = files("exoscale");
    let deployment = files["assets/kubernetes/deployment.yaml"].clone();
    let (_, of_account) = files["assets/kubernetes/rbac.yaml"].split_once("apiVersion").unwrap();
    let account = of_account.split("---").next().unwrap().replace("up-cloud-controller-manager", "up-cloud-agent");
    let agent = deployment
        .replace("kind: Deployment", "kind: DaemonSet")
        .replace("  replicas: 2\n", "")
        .replace("  strategy:\n", "  updateStrategy:\n")
        .replace("up-cloud-controller-manager", "up-cloud-agent");
    assert!(agent.contains("- name: cloud-controller-manager"), "{agent}");
    files.insert("assets/kubernetes/x.yaml".to_owned(), format!("{agent}---\napiVersion{account}"));
    let found = planned(&files, "cluster", "kube-system");
    let own_node = "up-cloud-controller-manager-external-own-node".to_owned();
    assert!(found.contains(&(own_node, users(&["kube-system:up-cloud-agent"]))), "{found:?}");
    let both = users(&["kube-system:up-cloud-agent", "kube-system:up-cloud-controller-manager"]);
    assert_eq!(found.iter().filter(|(_, about)| *about == both).count(), 2, "{found:?}");
}

#[test]
fn the_prefixes_of_the_descriptor_enter_the_policies() {
    let mut files = files("exoscale");
    let descriptor = files.get_mut("assets/kubernetes/provider.yaml").unwrap();
    let prefixes =
        "services: {metadataPrefixes: [lb.up.example/]}\nnodes:\n  metadataPrefixes: [up.example/, \"it's/\"]\n";
    *descriptor = descriptor.replacen("nodes:\n", prefixes, 1);
    let policies = external(&files).manifests;
    let variable = |end: &str, name: &str| {
        let policy = policies.iter().find(|object| object.name().ends_with(end)).unwrap();
        let variables = policy.value()["spec"]["variables"].as_array().unwrap();
        let found = variables.iter().find(|one| one["name"] == name);
        found.map(|one| one["expression"].as_str().unwrap().to_owned())
    };
    assert_eq!(variable("-external-nodes", "prefixes").unwrap(), r"['up.example/', 'it\'s/']");
    assert_eq!(variable("-external-services", "prefixes").unwrap(), "['lb.up.example/']");
    assert_eq!(variable("-external-services", "shared"), None, "whatever is not declared is refused");
    for (end, name, first) in [
        ("services", "kubernetes", "kubernetes.io"),
        ("nodes", "kubernetes", "kubernetes.io"),
        ("nodes", "shared", "cattle.io"),
    ] {
        let filled = variable(&format!("-external-{end}"), name).unwrap();
        assert!(filled.starts_with(&format!("['{first}', '")), "{end}: {filled}");
    }
}

/// Each policy names the variables that the operator fills in.
#[test]
fn no_list_of_a_policy_stays_empty_by_a_misspelt_name() {
    for (_, file, text) in POLICIES {
        for document in yaml::documents(text).unwrap() {
            let variables = document["spec"]["variables"].as_array().cloned().unwrap_or_default();
            let is_open = |one: &&Value| one["expression"] == "[]";
            let open = variables.iter().filter(is_open).map(|one| one["name"].as_str().unwrap());
            for name in open {
                assert!(["prefixes", "kubernetes", "shared"].contains(&name), "{file}: {name}");
                assert!(text.contains(&format!("variables.{name}.exists(")), "{file}: {name}");
            }
        }
    }
}

#[test]
fn built_in_providers_have_no_such_policy_and_packages_cannot_bring_one() {
    let catalog = embedded::catalog().unwrap();
    let manifests = catalog.kubernetes().flat_map(|one| &one.manifests);
    let all: Vec<_> = manifests.chain(catalog.providers().flat_map(|one| &one.manifests)).collect();
    assert!(all.iter().all(|object| !is_restriction(object.value())));
    assert!(all.len() > 100);
    for end in reserved() {
        assert!(!guard::is_of_guard(&json!({"metadata": {"name": format!("up-cloud-x{end}")}})));
    }
}

#[test]
fn on_openshift_they_follow_the_managed_namespace() {
    let files = ["deployment", "provider", "role"].map(|name| {
        let path = format!("{}/../../tests/sound/assets/demo/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        (format!("assets/{name}.yaml"), std::fs::read_to_string(path).unwrap().into_bytes())
    });
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: cloud-controller-manager, namespace: \
                   openshift-cloud-controller-manager}\n";
    let account = ("assets/account.yaml".to_owned(), account.as_bytes().to_vec());
    let parsed = parsed_providers_of("demo", files.into_iter().chain([account])).remove(0);
    let mut provider = parsed.openshift().unwrap().restricted(&Origin::default()).unwrap();
    assert!(provider.manifests[..4].iter().all(|object| is_restriction(object.value())), "before permissions and pods");
    assert!(provider.manifests[4..].iter().all(|object| !object.kind().is_policy()));
    // The other providers need facts.
    provider.manifests.truncate(4);
    let facts = Facts { namespace: "moved".into(), ..Facts::default() };
    let objects = provider.objects(Phase::Cluster, &facts).unwrap();
    let expected = users(&["moved:cloud-controller-manager"]);
    assert_eq!(objects[0].value()["spec"]["matchConditions"][0]["expression"], expected);
}

#[test]
fn an_account_that_is_to_go_stays_restricted_while_it_is_there() {
    let policy = |users: &str| {
        let condition = json!([{"name": "user", "expression": format!("request.userInfo.username in {users}")}]);
        let metadata = json!({"name": "up-cloud-ccm-external-nodes"});
        let api_version = "admissionregistration.k8s.io/v1";
        let value = json!({"apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {"matchConditions": condition}});
        Object::new(value).unwrap()
    };
    let account = |name: &str| ("n".to_owned(), name.to_owned());
    let (live, planned) = (users(&["n:a", "n:b", "n:b-2"]), users(&["n:a", "n:c"]));
    let kept = |left: &[&str]| {
        let mut object = policy(&planned);
        keep(&mut object, policy(&live).value(), &left.iter().map(|name| account(name)).collect());
        object.value().clone()
    };
    assert_eq!(kept(&[]), *policy(&planned).value());
    assert_eq!(kept(&["b", "d"]), *policy(&users(&["n:a", "n:c", "n:b"])).value(), "d was never restricted");
    assert_eq!(kept(&["a", "c"]), *policy(&planned).value(), "both are planned");
}
