use std::collections::BTreeSet;

use super::*;
use crate::{
    plan::{grants::VERBS, needs, rbac},
    provider::{catalog::Catalog, embedded},
};

fn installation<'a>(catalog: &'a Catalog, providers: &[&str]) -> Installation<'a> {
    Installation {
        providers: providers.iter().map(|name| catalog.kubernetes_of(name).unwrap()).collect(),
        namespaces: vec!["kube-system".into()],
        operator_namespace: NAME.into(),
        secrets: vec!["credentials".into()],
        image: None,
        distribution: Distribution::Other,
        control_plane_nodes: 3,
        api_server: None,
        node_deletion: false,
        expose_metrics: false,
        metrics_certificate: None,
        limits: Limits::default(),
        external: CarriedProviders::default(),
    }
}

/// The printed manifests, as text and as objects.
fn printed(installation: &Installation<'_>) -> (String, Vec<Value>) {
    let files = embedded::install().into_iter().filter(|(name, _)| !name.ends_with(".crd.yaml"));
    let texts = files.map(|(_, bytes)| installation.of(std::str::from_utf8(bytes).unwrap()).unwrap());
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("---\n");
    let objects = yaml::documents(&text).unwrap();
    (text, objects)
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str, namespace: &str) -> Option<&'a Value> {
    objects.iter().find(|object| {
        let metadata = &object["metadata"];
        object["kind"] == kind
            && metadata["name"] == name
            && metadata["namespace"].as_str().unwrap_or_default() == namespace
    })
}

/// Every single permission of rules, as `group/resource:verb name`.
fn permissions(rules: &Value) -> BTreeSet<String> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().unwrap() {
        let names = if rule["resourceNames"].is_null() { vec![String::new()] } else { texts(&rule["resourceNames"]) };
        assert!(rule["nonResourceURLs"].is_null(), "{rule}");
        assert!(!names.is_empty(), "an empty list of names is no limit: {rule}");
        for (group, resource) in texts(&rule["apiGroups"])
            .iter()
            .flat_map(|group| texts(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource)))
        {
            for verb in texts(&rule["verbs"]) {
                all.extend(names.iter().map(|name| format!("{group}/{resource}:{verb} {name}")));
            }
        }
    }
    all
}

/// The permissions of the operator in a namespace, or everywhere.
fn held(objects: &[Value], namespace: &str) -> BTreeSet<String> {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let roles = objects.iter().filter(|object| {
        object["kind"] == kind && object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
    });
    roles.flat_map(|role| permissions(&role["rules"])).collect()
}

#[test]
fn the_operator_holds_what_it_grants() {
    let catalog = embedded::catalog().unwrap();
    for provider in catalog.kubernetes() {
        let mut installation = installation(&catalog, &[&provider.descriptor.name]);
        let candidates = ["kube-system", "own"];
        let namespace = candidates.into_iter().find(|one| provider.descriptor.namespaces.include(one)).unwrap();
        installation.namespaces = vec![namespace.to_owned()];
        let (_, objects) = printed(&installation);
        let (everywhere, inside) = (held(&objects, ""), held(&objects, namespace));
        let computed = permissions(&needs::rules(&provider.descriptor.controllers(), &provider.descriptor.permissions));
        assert!(computed.is_subset(&everywhere), "{:?}", computed.difference(&everywhere));
        for role in provider.manifests.iter().filter(|object| object.kind().kind.ends_with("Role")) {
            for permission in permissions(&role.value()["rules"]) {
                let holds = |held: &BTreeSet<String>| held.contains(&permission);
                let is_held = holds(&everywhere) || (role.kind().namespaced && holds(&inside));
                assert!(is_held, "{} grants {permission}", role.key());
            }
        }
        for object in &provider.manifests {
            let kind = object.kind();
            for verb in VERBS {
                let is_named = !kind.namespaced && !["list", "watch"].contains(&verb);
                let name = if is_named { object.name() } else { "" };
                let permission = format!("{}/{}:{verb} {name}", kind.group, kind.plural);
                assert!(everywhere.contains(&permission) || inside.contains(&permission), "{permission}");
            }
        }
    }
}

#[test]
fn the_operator_holds_nothing_that_gives_it_more() {
    let catalog = embedded::catalog().unwrap();
    let all: Vec<_> = catalog.kubernetes().map(|one| one.descriptor.name.as_str()).collect();
    let (_, objects) = printed(&installation(&catalog, &all));
    // The log of a pod shows why a node waits.
    let looks = ["/pods:list ", "/pods/log:get "];
    let held = ["", "kube-system", NAME].into_iter().flat_map(|namespace| held(&objects, namespace));
    for permission in held.filter(|permission| !looks.contains(&&**permission)) {
        for forbidden in ["*", ":escalate", ":impersonate", ":bind", "pods", "nodes:delete", "/exec", "token:"] {
            assert!(!permission.contains(forbidden), "{permission}");
        }
        let is_secret = permission.starts_with("/secrets:");
        assert!(
            !is_secret || ["/secrets:list credentials", "/secrets:watch credentials"].contains(&&*permission),
            "{permission}"
        );
    }
    for role in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role")) {
        assert!(role["aggregationRule"].is_null());
        assert!(!role["metadata"].to_string().contains("aggregate-to-"), "{role}");
    }
}

#[test]
fn permissions_follow_from_the_chosen_providers() {
    let catalog = embedded::catalog().unwrap();
    let mut aws = installation(&catalog, &["aws"]);
    aws.secrets = Vec::new();
    let (_, objects) = printed(&aws);
    let inside = held(&objects, "kube-system");
    assert!(inside.contains("apps/daemonsets:create ") && !inside.contains("apps/deployments:create "), "{inside:?}");
    assert!(
        !inside.iter().any(|permission| permission.contains("secrets")),
        "without a name it would be for all: {inside:?}"
    );
    let (_, objects) = printed(&installation(&catalog, &["aws", "hcloud"]));
    let inside = held(&objects, "kube-system");
    assert!(inside.contains("apps/daemonsets:create ") && inside.contains("apps/deployments:create "), "{inside:?}");
    assert!(inside.contains("policy/poddisruptionbudgets:delete "), "{inside:?}");
    let (_, objects) = printed(&installation(&catalog, &["hcloud"]));
    assert!(!held(&objects, "kube-system").contains("/configmaps:create "), "it has no configuration");
}

/// `02_rbac.yaml` says what the operator does in kube-system for a cloud-controller-manager elsewhere.
#[test]
fn of_other_roles_only_the_authentication_reader_is_bound() {
    for provider in embedded::catalog().unwrap().kubernetes() {
        let own: Vec<_> = provider.manifests.iter().map(|one| (one.kind().kind, one.name())).collect();
        for binding in &provider.manifests {
            let role = &binding.value()["roleRef"];
            let Some(name) = role["name"].as_str() else { continue };
            let is_own = own.contains(&(role["kind"].as_str().unwrap(), name));
            assert!(
                is_own || (binding.namespace(), name) == ("kube-system", "extension-apiserver-authentication-reader")
            );
        }
    }
}

#[test]
fn namespaces_are_those_that_are_given() {
    let catalog = embedded::catalog().unwrap();
    let mut installation = installation(&catalog, &["aws"]);
    installation.namespaces = vec!["cloud".into(), "other".into()];
    installation.operator_namespace = "own".into();
    let (text, objects) = printed(&installation);
    assert!(!text.contains("namespace: ccm-operator"), "{text}");
    assert!(find(&objects, "Namespace", "own", "").is_some());
    for namespace in ["cloud", "other"] {
        for kind in ["Role", "RoleBinding"] {
            assert!(find(&objects, kind, MANAGED, namespace).is_some(), "{kind} {namespace}");
        }
    }
    assert!(find(&objects, "Role", MANAGED, "kube-system").is_none());
    assert!(find(&objects, "Role", "ccm-operator-authentication-reader", "kube-system").is_some());
    let subjects = objects.iter().filter_map(|object| object["subjects"].as_array()).flatten();
    assert!(subjects.map(|subject| &subject["namespace"]).all(|namespace| namespace == "own"));
    assert!(text.contains("--namespaces=cloud,other"), "{text}");
    // Its labels belong to the administrator, and it must outlive the operator.
    installation.operator_namespace = "cloud".into();
    assert!(find(&printed(&installation).1, "Namespace", "cloud", "").is_none());
}

#[test]
fn the_deployment_reaches_the_api_server_without_a_pod_network() {
    let catalog = embedded::catalog().unwrap();
    let deployment = |installation: &Installation<'_>| {
        let (_, objects) = printed(installation);
        find(&objects, "Deployment", NAME, NAME).unwrap().clone()
    };
    let address = |deployment: &Value| {
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let value =
            |name| env.as_array().unwrap().iter().find(|one| one["name"] == name).map(|one| one["value"].clone());
        assert!(env.to_string().contains("POD_UID"), "{env}");
        value("KUBERNETES_SERVICE_HOST").zip(value("KUBERNETES_SERVICE_PORT"))
    };
    let requires = |deployment: &Value| deployment.to_string().contains("requiredDuringScheduling");
    let mut installation = installation(&catalog, &["aws"]);
    let plain = deployment(&installation);
    assert!(address(&plain).is_none() && !requires(&plain), "the Service");
    for (distribution, host, port, is_required) in [
        (Distribution::Talos, "localhost", "7445", false),
        (Distribution::Rke2, "127.0.0.1", "6443", false),
        (Distribution::K3s, "127.0.0.1", "6443", true),
    ] {
        installation.distribution = distribution;
        let deployment = deployment(&installation);
        assert_eq!(address(&deployment), Some((json!(host), json!(port))), "{distribution:?}");
        assert_eq!(requires(&deployment), is_required, "{distribution:?}");
    }
    installation.api_server = Some(ApiServer { host: "api.lab".into(), port: 443 });
    let given = deployment(&installation);
    assert_eq!(address(&given), Some((json!("api.lab"), json!("443"))));
    assert!(!requires(&given), "every node reaches it");
}

#[test]
fn a_single_node_gets_one_replica_and_no_disruption_budget() {
    let catalog = embedded::catalog().unwrap();
    let mut installation = installation(&catalog, &["aws"]);
    let (_, objects) = printed(&installation);
    assert!(find(&objects, "PodDisruptionBudget", NAME, NAME).is_some());
    installation.control_plane_nodes = 1;
    let (_, objects) = printed(&installation);
    assert!(find(&objects, "PodDisruptionBudget", NAME, NAME).is_none());
    assert_eq!(find(&objects, "Deployment", NAME, NAME).unwrap()["spec"]["replicas"], 1);
}

#[test]
fn what_is_printed_keeps_the_comments_of_the_files() {
    let catalog = embedded::catalog().unwrap();
    let mut installation = installation(&catalog, &["aws", "hcloud", "vsphere"]);
    installation.operator_namespace = "own".into();
    installation.image = Some("registry/operator@sha256:0".into());
    installation.distribution = Distribution::K3s;
    let (text, _) = printed(&installation);
    for (name, bytes) in embedded::install().into_iter().filter(|(name, _)| !name.ends_with(".crd.yaml")) {
        let file = std::str::from_utf8(bytes).unwrap();
        for comment in file.lines().map(str::trim).filter(|line| line.starts_with('#')) {
            assert!(text.contains(comment), "{name}: {comment}");
        }
    }
    assert!(text.contains("registry/operator@sha256:0") && !text.contains("registry.example.com"), "{text}");
}

#[test]
fn the_operator_may_let_nodes_be_deleted_only_if_that_is_asked_for() {
    let catalog = embedded::catalog().unwrap();
    let permissions_with = |node_deletion| {
        let (_, objects) = printed(&Installation { node_deletion, ..installation(&catalog, &["aws"]) });
        let role = find(&objects, "ClusterRole", NAME, "").unwrap();
        let deployment = find(&objects, "Deployment", NAME, NAME).unwrap();
        let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        (permissions(&role["rules"]), args.contains("--node-deletion"))
    };
    let (without, has_flag) = permissions_with(false);
    assert!(without.iter().all(|permission| !permission.contains("nodes:delete")), "{without:?}");
    assert!(!has_flag);
    let (with, has_flag) = permissions_with(true);
    let more: Vec<_> = with.difference(&without).collect();
    assert_eq!(more, ["/nodes:delete "], "{with:?}");
    assert!(has_flag);
}

/// A compromised operator must not be able to delete other policies and roles.
#[test]
fn what_has_no_namespace_is_changed_by_name() {
    let catalog = embedded::catalog().unwrap();
    let mut installation = installation(&catalog, &["aws", "azure"]);
    installation.limits.names = vec!["cluster".into(), "second".into()];
    installation.node_deletion = true;
    let held = held(&printed(&installation).1, "");
    let kinds =
        ["clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    for permission in &held {
        let (what, name) = permission.split_once(' ').unwrap();
        let (resource, verb) = what.split_once('/').unwrap().1.split_once(':').unwrap();
        if !kinds.contains(&resource) {
            continue;
        }
        let is_seen = ["list", "watch"].contains(&verb);
        assert_eq!(name.is_empty(), is_seen, "{permission}");
    }
    let may = |what: &str, name: &str| held.contains(&format!("{what}:delete {name}"));
    let rbac = "rbac.authorization.k8s.io";
    for suffix in ["", "-second"] {
        let name = format!("aws-cloud-controller-manager{suffix}");
        assert!(may(&format!("{rbac}/clusterroles"), &name), "{held:?}");
        assert!(may(&format!("{rbac}/clusterrolebindings"), &format!("{name}-next")), "{held:?}");
        let guard = format!("aws-cloud-controller-manager-delete-nodes{suffix}");
        assert!(may("admissionregistration.k8s.io/validatingadmissionpolicies", &guard), "{held:?}");
        assert!(may(&format!("{rbac}/clusterroles"), &guard), "{held:?}");
    }
    assert!(!may(&format!("{rbac}/clusterroles"), "aws-cloud-controller-manager-third"), "{held:?}");
}

/// Another lease may belong to any program.
#[test]
fn leases_are_granted_by_name() {
    let catalog = embedded::catalog().unwrap();
    let mut installation = installation(&catalog, &["aws", "azure"]);
    installation.limits.names = vec!["cluster".into(), "second".into()];
    installation.limits.leases = vec!["own".into()];
    let held = held(&printed(&installation).1, "kube-system");
    let of = |verb: &str| -> Vec<_> {
        let permission = format!("coordination.k8s.io/leases:{verb} ");
        held.iter().filter_map(|held| held.strip_prefix(&permission)).collect()
    };
    let names = ["aks-managed-resource-locker", "cloud-controller-manager", "cloud-controller-manager-second", "own"];
    assert_eq!(of("update"), names);
    assert_eq!(of("get"), names);
    assert_eq!(of("create"), [""]);
    assert_eq!(of("list"), [""]);
}

#[test]
fn the_operator_is_told_what_may_be_asked_for() {
    let catalog = embedded::catalog().unwrap();
    let args = |installation: &Installation<'_>| {
        let (_, objects) = printed(installation);
        find(&objects, "Deployment", NAME, NAME).unwrap()["spec"]["template"]["spec"]["containers"][0]["args"].clone()
    };
    let mut installation = installation(&catalog, &["aws"]);
    let plain = args(&installation);
    let has = |args: &Value, wanted: &str| args.as_array().unwrap().iter().any(|one| one == wanted);
    assert!(has(&plain, "--names=cluster") && has(&plain, "--metrics-bind-address=127.0.0.1:10358"), "{plain}");
    installation.limits.names = vec!["a".into(), "b".into()];
    installation.limits.image_repositories = vec!["mirror/".into()];
    installation.expose_metrics = true;
    let given = args(&installation);
    assert!(has(&given, "--names=a,b") && has(&given, "--metrics-bind-address=:10358"), "{given}");
    assert!(has(&given, "--image-repositories=mirror/"), "{given}");
}

#[test]
fn the_certificate_of_the_metrics_comes_from_a_secret_that_may_be_missing() {
    let catalog = embedded::catalog().unwrap();
    let metrics_certificate = Some("ccm-operator-metrics".to_owned());
    let (_, objects) = printed(&Installation { metrics_certificate, ..installation(&catalog, &["aws"]) });
    let pod = &find(&objects, "Deployment", NAME, NAME).unwrap()["spec"]["template"]["spec"];
    let secret = json!({"secretName": "ccm-operator-metrics", "optional": true});
    assert_eq!(pod["volumes"], json!([{"name": CERTIFICATE, "secret": secret}]));
    let container = &pod["containers"][0];
    let mount = json!({"name": CERTIFICATE, "mountPath": CERTIFICATE_PATH, "readOnly": true});
    assert_eq!(container["volumeMounts"], json!([mount]));
    let flag = format!("--metrics-cert-dir={CERTIFICATE_PATH}");
    assert!(container["args"].as_array().unwrap().contains(&json!(flag)), "{container}");
    // The kubelet reads the Secret.
    assert!(!held(&objects, NAME).iter().any(|permission| permission.contains("secrets")));
}

/// The output for a provider alone is the difference between an installation for it and one for no provider.
#[test]
fn what_is_granted_for_one_provider_is_what_its_installation_adds() {
    let catalog = embedded::catalog().unwrap();
    for provider in catalog.kubernetes() {
        let name = &provider.descriptor.name;
        let namespaces = vec![provider.descriptor.home().to_owned(), "other".to_owned()];
        let namespaces: Vec<_> =
            namespaces.into_iter().filter(|one| provider.descriptor.namespaces.include(one)).collect();
        let secrets = vec!["credentials".to_owned()];
        let permissions_of = |providers: &[&str]| {
            let installation = Installation { namespaces: namespaces.clone(), ..installation(&catalog, providers) };
            printed(&installation).1
        };
        let (with, without) = (permissions_of(&[name]), permissions_of(&[]));
        let names = Limits::default().names;
        let text = rbac::kubernetes(provider, &names, &namespaces, &secrets, "own").unwrap();
        let alone = yaml::documents(&text).unwrap();
        for namespace in std::iter::once("").chain(namespaces.iter().map(String::as_str)) {
            let sum = &held(&without, namespace) | &held(&alone, namespace);
            assert_eq!(sum, held(&with, namespace), "{name} in {namespace:?}");
        }
    }
}
