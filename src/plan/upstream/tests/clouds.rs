//! What only one cloud or another needs: a node manager, a namespace, an optional Secret.

use super::*;
use crate::provider::versions::UNKNOWN_VERSION;

#[test]
fn a_node_manager_initialises_nodes_in_place_of_the_controller() {
    let objects = planned(manager("azure", json!({}))).unwrap();
    let controllers = "--controllers=cloud-node-lifecycle-controller,service-lb-controller";
    assert!(args(&objects).contains(&controllers), "{:?}", args(&objects));
    assert!(!role_of_manager(&objects)["rules"].to_string().contains("update"));
    let node_manager = of_kind(&objects, "DaemonSet");
    let pod = &node_manager["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    let image = "mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-node-manager:v1.35.8";
    assert_eq!(pod["containers"][0]["image"], image);
    assert_eq!(pod["containers"][0]["args"], json!(["--node-name=$(NODE_NAME)", "--v=2", "--wait-routes=false"]));
    assert_eq!(node_manager["metadata"]["name"], "azure-cloud-node-manager");

    // It runs on every node, also where the cloud-controller-manager has its place.
    let asked = json!({
        "placement": {"nodeSelector": {"ccm": "here"}},
        "controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16", "fd00::/48"]},
        "image": {"registryMirror": "mirror:5000"},
    });
    let hosted = Cluster { control_plane_nodes: 0, ..CLUSTER };
    let objects = planned(Manager { cluster: hosted, ..manager("azure", asked) }).unwrap();
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["template"]["spec"]["nodeSelector"], json!({"ccm": "here"}));
    let pod = &of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--wait-routes=true")));
    assert_eq!(pod["containers"][0]["image"], "mirror:5000/oss/v2/kubernetes/azure-cloud-node-manager:v1.35.8");

    let disabled = manager("azure", json!({"controllers": {"cloudNode": "Disabled"}}));
    let objects = planned(disabled).unwrap();
    let names: Vec<_> = objects.iter().map(Object::name).filter(|name| name.contains("node-manager")).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn a_further_node_manager_has_a_policy_of_its_own() {
    let second = Manager { name: "second".into(), ..manager("azure", json!({})) };
    let objects = planned(second).unwrap();
    let policy = of_kind(&objects, "ValidatingAdmissionPolicy");
    let name = "azure-cloud-node-manager-own-node-second";
    assert_eq!(policy["metadata"]["name"], name);
    assert_eq!(of_kind(&objects, "ValidatingAdmissionPolicyBinding")["spec"]["policyName"], name);
    assert_eq!(
        policy["spec"]["matchConditions"][0]["expression"],
        "request.userInfo.username == 'system:serviceaccount:kube-system:azure-cloud-node-manager-second'"
    );
    let account = &of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(*account, "azure-cloud-node-manager-second");
    // The lock of load balancers is one for all, whatever the lease is called.
    let names: Vec<_> = of_kind(&objects, "Role")["rules"].as_array().unwrap().iter().collect();
    assert_eq!(names[1]["resourceNames"], json!(["cloud-controller-manager-second"]));
    assert_eq!(names[2]["resourceNames"], json!(["aks-managed-resource-locker"]));
}

#[test]
fn a_node_manager_reaches_the_api_server_from_every_node() {
    let hosts = |distribution: Distribution, spec: Value| {
        let cluster = Cluster { distribution, ..CLUSTER };
        let objects = planned(Manager { cluster, ..manager("azure", spec) }).unwrap();
        let host = |kind: &str| {
            let variables = &of_kind(&objects, kind)["spec"]["template"]["spec"]["containers"][0]["env"];
            let all = variables.as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["name"] == "KUBERNETES_SERVICE_HOST").map(|one| one["value"].clone())
        };
        [host("Deployment"), host("DaemonSet")]
    };
    let both = |host: &str| [Some(json!(host)), Some(json!(host))];
    assert_eq!(
        hosts(Distribution::K3s, json!({})),
        [Some(json!("127.0.0.1")), None],
        "agents have no API server there"
    );
    assert_eq!(hosts(Distribution::Rke2, json!({})), both("127.0.0.1"));
    assert_eq!(hosts(Distribution::Talos, json!({})), both("localhost"));
    let given = json!({"placement": {"apiServer": {"host": "api.example.com"}}});
    assert_eq!(hosts(Distribution::K3s, given), both("api.example.com"));
}

#[test]
fn a_secret_that_is_not_given_leaves_no_variable_that_names_its_file() {
    let key = json!({
        "credentials": {"secretRef": {"name": "key"}}, "cloudConfig": {"inline": "[global]\ntoken-url = nil\n"},
    });
    for (spec, is_given) in [(json!({}), false), (key, true)] {
        let objects = planned(manager("gcp", spec)).unwrap();
        let text = pod(&objects).to_string();
        for part in ["GOOGLE_APPLICATION_CREDENTIALS", "/etc/cloud/secrets", "gce.conf"] {
            assert_eq!(text.contains(part), is_given, "{part}: {text}");
        }
    }
}

#[test]
fn what_openshift_sets_and_refuses_in_a_configuration_is_its_own() {
    let catalog = embedded::catalog().unwrap();
    let ignored = |provider: &str, text: &str| {
        let manager = manager(provider, json!({"cloudConfig": {"inline": text}}));
        assert!(planned(manager.clone()).is_ok(), "{text}");
        ignored(&catalog.upstream_of(provider).unwrap().descriptor, &manager)
    };
    assert_eq!(ignored("azure", "{\"cloud\": \"AzureUSGovernmentCloud\"}"), [""; 0]);
    assert_eq!(ignored("azure", "{\"resourceGruop\": \"a\"}").len(), 1);
    assert_eq!(ignored("openstack", "[Global]\nuse-clouds = true\nclouds-file = /a\n"), [""; 0]);
    assert_eq!(ignored("openstack", "[LoadBalancer]\nuse-octavia = true\n").len(), 1);
}

#[test]
fn what_a_cloud_cannot_do_is_refused_by_field() {
    let starts = |manager: Manager, expected: &str| {
        let problem = problem(manager);
        assert!(problem.starts_with(&format!("CloudControllerManager/cluster: spec.{expected}")), "{problem}");
    };
    starts(
        manager("nutanix", json!({"controllers": {}})),
        "controllers.service: the cloud-controller-manager of provider nutanix has no load balancers: set it to Disabled",
    );
    starts(
        manager("nutanix", json!({"namespace": "kube-system"})),
        "namespace: the cloud-controller-manager of provider nutanix: it reads every Secret of its namespace",
    );
    starts(
        manager("gcp", json!({"namespace": "clouds"})),
        "namespace: the cloud-controller-manager of provider gcp: it can only be in kube-system",
    );
    let key = json!({"secretRef": {"name": "key"}});
    starts(
        manager("gcp", json!({"credentials": key})),
        "credentials: provider gcp uses the Secret only with a configuration that says token-url = nil",
    );
    for image in [json!({"repository": "own/ccm"}), json!({"version": "v1.35.8", "digest": "sha256:0"})] {
        let mut asked = manager("azure", json!({}));
        asked.spec.image = serde_json::from_value(image).unwrap();
        starts(asked, "image.");
    }
    starts(
        manager("azure", json!({"controllers": {"cloudNodeLifecycle": "Disabled", "service": "Disabled"}})),
        "controllers: azure-cloud-node-manager initialises nodes, so the cloud-controller-manager itself would run nothing",
    );
    let syncs = json!({"arguments": {"--concurrent-service-syncs": "2"}});
    starts(manager("azure", syncs), "arguments: provider azure does not allow --concurrent-service-syncs");
    let inline = |provider: &str, text: &str| manager(provider, json!({"cloudConfig": {"inline": text}}));
    starts(inline("azure", "{\"useManagedIdentityExtension\": \"true\"}"), "cloudConfig.inline:1: `useManaged");
    starts(inline("openstack", "[LoadBalancer]\nenabled = perhaps\n"), "cloudConfig.inline:2: ");
}

#[test]
fn nothing_is_planned_that_an_api_server_would_drop() {
    fn is_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Object(fields) => fields.values().any(is_null),
            Value::Array(items) => items.iter().any(is_null),
            _ => false,
        }
    }
    for provider in embedded::catalog().unwrap().upstream() {
        for object in planned(manager(&provider.descriptor.name, json!({}))).unwrap() {
            assert!(!is_null(object.value()), "{}: {}", object.key(), object.value());
        }
    }
}

#[test]
fn a_version_is_compared_with_the_tags_of_the_repository_that_it_is_pulled_from() {
    let reason = |image: Value| {
        let asked = manager("aws", json!({"image": image}));
        let catalog = embedded::catalog().unwrap();
        let image = &catalog.upstream_of("aws").unwrap().descriptor.images[CCM];
        choose(image, &asked).unwrap().problem.map(|(reason, _)| reason)
    };
    assert_eq!(reason(json!({"version": "v1.35.2"})), None);
    assert_eq!(reason(json!({"version": "v1.35.22"})), Some(UNKNOWN_VERSION));
    assert_eq!(reason(json!({"version": "v1.35.22", "registryMirror": "mirror:5000"})), Some(UNKNOWN_VERSION));
    assert_eq!(reason(json!({"version": "v1.35.2-own", "repository": "own/ccm"})), None);
    let digest = format!("sha256:{}", "0".repeat(64));
    assert_eq!(reason(json!({"version": "v1.35.22", "digest": digest})), None, "the tag is not looked at");
}
