//! The needs of single clouds: a node manager, a namespace, an optional Secret.

use super::*;
use crate::provider::{
    Origin, Provider, catalog::Catalog, external::ExternalProvider, verify::trust::tests::pinned,
    versions::UNKNOWN_VERSION,
};

/// Two digests.
const ONE: &str = "sha256:0101010101010101010101010101010101010101010101010101010101010101";
const TWO: &str = "sha256:0202020202020202020202020202020202020202020202020202020202020202";

#[test]
fn a_node_manager_initializes_nodes_in_place_of_the_controller() {
    let objects = planned(ccm("azure", json!({}))).unwrap();
    let controllers = "--controllers=cloud-node-lifecycle-controller,service-lb-controller";
    assert!(args(&objects).contains(&controllers), "{:?}", args(&objects));
    assert!(!role_of_ccm(&objects)["rules"].to_string().contains("update"));
    let node_manager = of_kind(&objects, "DaemonSet");
    let pod = &node_manager["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    let image = "mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-node-manager:v1.35.8";
    assert_eq!(pod["containers"][0]["image"], image);
    assert_eq!(pod["containers"][0]["args"], json!(["--node-name=$(NODE_NAME)", "--v=2", "--wait-routes=false"]));
    assert_eq!(node_manager["metadata"]["name"], "azure-cloud-node-manager");

    // It runs on every node, regardless of the placement of the cloud-controller-manager.
    let asked = json!({
        "placement": {"nodeSelector": {"ccm": "here"}},
        "controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16", "fd00::/48"]},
        "image": {"registryMirror": "mirror:5000"},
    });
    let hosted = Cluster { control_plane_nodes: 0, ..CLUSTER };
    let objects = planned(Ccm { cluster: hosted, ..ccm("azure", asked) }).unwrap();
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["template"]["spec"]["nodeSelector"], json!({"ccm": "here"}));
    let pod = &of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--wait-routes=true")));
    assert_eq!(pod["containers"][0]["image"], "mirror:5000/oss/v2/kubernetes/azure-cloud-node-manager:v1.35.8");

    let disabled = ccm("azure", json!({"controllers": {"cloudNode": "Disabled"}}));
    let objects = planned(disabled).unwrap();
    let names: Vec<_> = objects.iter().map(Object::name).filter(|name| name.contains("node-manager")).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn a_further_node_manager_has_a_policy_of_its_own() {
    let second = Ccm { name: "second".into(), ..ccm("azure", json!({})) };
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
    // All instances share one lock of load balancers, whatever the name of the lease.
    let names: Vec<_> = of_kind(&objects, "Role")["rules"].as_array().unwrap().iter().collect();
    assert_eq!(names[1]["resourceNames"], json!(["cloud-controller-manager-second"]));
    assert_eq!(names[2]["resourceNames"], json!(["aks-managed-resource-locker"]));
}

#[test]
fn a_node_manager_reaches_the_api_server_from_every_node() {
    let hosts = |distribution: Distribution, spec: Value| {
        let cluster = Cluster { distribution, ..CLUSTER };
        let objects = planned(Ccm { cluster, ..ccm("azure", spec) }).unwrap();
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
        let objects = planned(ccm("gcp", spec)).unwrap();
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
        let ccm = ccm(provider, json!({"cloudConfig": {"inline": text}}));
        assert!(planned(ccm.clone()).is_ok(), "{text}");
        ignored(&catalog.kubernetes_of(provider).unwrap().descriptor, &ccm)
    };
    assert_eq!(ignored("azure", "{\"cloud\": \"AzureUSGovernmentCloud\"}"), [""; 0]);
    assert_eq!(ignored("azure", "{\"resourceGruop\": \"a\"}").len(), 1);
    assert_eq!(ignored("openstack", "[Global]\nuse-clouds = true\nclouds-file = /a\n"), [""; 0]);
    assert_eq!(ignored("openstack", "[LoadBalancer]\nuse-octavia = true\n").len(), 1);
}

#[test]
fn what_a_cloud_cannot_do_is_refused_by_field() {
    let starts = |ccm: Ccm, expected: &str| {
        let problem = problem(ccm);
        assert!(problem.starts_with(&format!("CloudControllerManager/cluster: spec.{expected}")), "{problem}");
    };
    starts(
        ccm("nutanix", json!({"controllers": {}})),
        "controllers.service: the cloud-controller-manager of provider nutanix has no load balancers: set it to Disabled",
    );
    starts(
        ccm("nutanix", json!({"namespace": "kube-system"})),
        "namespace: the cloud-controller-manager of provider nutanix: it reads every Secret of its namespace",
    );
    starts(
        ccm("gcp", json!({"namespace": "clouds"})),
        "namespace: the cloud-controller-manager of provider gcp: it can only be in kube-system",
    );
    let key = json!({"secretRef": {"name": "key"}});
    starts(
        ccm("gcp", json!({"credentials": key})),
        "credentials: provider gcp uses the Secret only with a configuration that says token-url = nil",
    );
    for image in [json!({"repository": "own/ccm"}), json!({"version": "v1.35.8", "digest": ONE})] {
        let mut asked = ccm("azure", json!({}));
        asked.spec.image = serde_json::from_value(image).unwrap();
        starts(asked, "image.");
    }
    starts(
        ccm("azure", json!({"image": {"version": "v1.35.8", "digest": ONE}})),
        "image.digest: provider azure has several images, mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-controller-manager, \
         mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-node-manager: give image.digests, by container: \
         {cloud-controller-manager: sha256:…, cloud-node-manager: sha256:…}",
    );
    starts(
        ccm("azure", json!({"image": {"version": "v1.35.8", "digests": {"cloud-node-manger": ONE}}})),
        "image.digests: provider azure has no container \"cloud-node-manger\" (did you mean `cloud-node-manager`?); it has",
    );
    starts(ccm("aws", json!({"image": {"version": "v1", "digest": "sha256:0"}})), "image.digest: a digest is sha256:");
    starts(
        ccm("aws", json!({"image": {"digests": {"cloud-controller-manager": ONE}}})),
        "image.digest: a digest belongs",
    );
    let both = json!({"version": "v1", "digest": ONE, "digests": {"cloud-controller-manager": ONE}});
    starts(ccm("aws", json!({"image": both})), "image.digests: give one digest, or digests by container, not both");
    starts(
        ccm("azure", json!({"controllers": {"cloudNodeLifecycle": "Disabled", "service": "Disabled"}})),
        "controllers: azure-cloud-node-manager initializes nodes, so the cloud-controller-manager itself would run nothing",
    );
    let syncs = json!({"arguments": {"--concurrent-service-syncs": "2"}});
    starts(ccm("azure", syncs), "arguments: provider azure does not allow --concurrent-service-syncs");
    let inline = |provider: &str, text: &str| ccm(provider, json!({"cloudConfig": {"inline": text}}));
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
    for provider in embedded::catalog().unwrap().kubernetes() {
        for object in planned(ccm(&provider.descriptor.name, json!({}))).unwrap() {
            assert!(!is_null(object.value()), "{}: {}", object.key(), object.value());
        }
    }
}

#[test]
fn each_image_may_have_a_digest_of_its_own() {
    let digests = json!({"cloud-controller-manager": ONE, "cloud-node-manager": TWO});
    let image = json!({"version": "v1.35.8", "registryMirror": "mirror:5000", "digests": digests});
    let objects = planned(ccm("azure", json!({"image": image}))).unwrap();
    let images: Vec<_> = objects.iter().filter_map(|one| one.pod_spec()?["containers"][0]["image"].as_str()).collect();
    let named = |name: &str, digest: &str| format!("mirror:5000/oss/v2/kubernetes/azure-{name}:v1.35.8@{digest}");
    assert_eq!(images, [named(CCM, ONE), named("cloud-node-manager", TWO)]);
}

/// Exoscale's, with digests for its tags.
fn pinned_catalog() -> Catalog {
    let parsed_providers = embedded::parsed_providers();
    let parsed = parsed_providers.iter().find(|one| one.name == "exoscale").unwrap();
    let text = |bytes: &[u8]| pinned(std::str::from_utf8(bytes).unwrap()).into_bytes();
    Catalog::new(parsed.files.iter().map(|(path, bytes)| (path.clone(), text(bytes)))).unwrap()
}

/// The image of Exoscale's CCM for this `spec.image`, or the reason why there is none.
fn image_of(catalog: &Catalog, image: Value) -> Result<String, String> {
    let plan = Plan::of_ccm(catalog, &ccm("exoscale", json!({"image": image}))).map_err(|error| error.to_string())?;
    Ok(pod(plan.objects())["containers"][0]["image"].as_str().unwrap().to_owned())
}

#[test]
fn what_a_provider_names_by_digest_is_pulled_by_it() {
    let catalog = pinned_catalog();
    let digest = format!("sha256:{}", "0a".repeat(32));
    let image = |image: Value| image_of(&catalog, image);
    let own = "docker.io/exoscale/cloud-controller-manager";
    assert_eq!(image(json!({})), Ok(format!("{own}:0.34.0@{digest}")), "the nearest version");
    assert_eq!(image(json!({"version": "0.33.0"})), Ok(format!("{own}:0.33.0@{digest}")));
    let mirror = json!({"registryMirror": "mirror:5000/a"});
    assert_eq!(image(mirror), Ok(format!("mirror:5000/a/exoscale/cloud-controller-manager:0.34.0@{digest}")));
    assert_eq!(image(json!({"repository": own})), Ok(format!("{own}:0.34.0@{digest}")));
    assert_eq!(image(json!({"repository": "own/ccm"})), Ok("own/ccm:0.34.0".into()), "it has other images");
    let given = json!({"version": "0.34.0", "digest": ONE});
    assert_eq!(image(given), Ok(format!("{own}:0.34.0@{ONE}")), "who asks for it has looked at it");

    // An unreviewed image is not pulled.
    let refused = format!(
        "image.version: provider exoscale names its images by digest, and has none for {own}:0.35.0: give it in \
         image.digests.cloud-controller-manager"
    );
    for open in [json!({"version": "0.35.0"}), json!({"version": "0.35.0", "registryMirror": "mirror:5000"})] {
        let error = image(open.clone()).unwrap_err();
        assert!(error.contains(&refused), "{open}: {error}");
    }
    let digests = json!({"version": "0.35.0", "digests": {CCM: ONE}});
    assert_eq!(image(digests), Ok(format!("{own}:0.35.0@{ONE}")));
    assert_eq!(image(json!({"version": "0.35.0", "repository": "own/ccm"})), Ok("own/ccm:0.35.0".into()));
}

/// A policy may allow an external provider all of its tags without digests.
#[test]
fn a_version_that_an_external_provider_does_not_know_needs_a_digest() {
    let package = embedded::package("exoscale").unwrap();
    let provider = Provider::of(package.name(), &package.parsed_providers()).unwrap();
    let mut catalog = Catalog::default();
    catalog.add(&ExternalProvider::new(package, provider, Origin::default()).unwrap().provider);
    let own = "docker.io/exoscale/cloud-controller-manager";
    for (asked, expected) in [
        (json!({}), format!("{own}:0.34.0")),
        (json!({"version": "0.33.0"}), format!("{own}:0.33.0")),
        (json!({"version": "v9", "digest": ONE}), format!("{own}:v9@{ONE}")),
        (json!({"version": "v9", "repository": "own/ccm"}), "own/ccm:v9".to_owned()),
    ] {
        assert_eq!(image_of(&catalog, asked), Ok(expected));
    }
    let refused = format!(
        "image.version: provider exoscale is external, and has no digest for {own}:v9: give it in \
         image.digests.cloud-controller-manager"
    );
    for open in [json!({"version": "v9"}), json!({"version": "v9", "registryMirror": "mirror:5000"})] {
        let error = image_of(&catalog, open.clone()).unwrap_err();
        assert!(error.contains(&refused), "{open}: {error}");
    }
    let built_in = planned(ccm("exoscale", json!({"image": {"version": "v9"}}))).unwrap();
    assert_eq!(
        pod(&built_in)["containers"][0]["image"],
        format!("{own}:v9"),
        "the cluster's administrator has chosen it"
    );
}

#[test]
fn a_version_is_compared_with_the_tags_of_the_repository_that_it_is_pulled_from() {
    let reason = |image: Value| {
        let asked = ccm("aws", json!({"image": image}));
        let catalog = embedded::catalog().unwrap();
        let image = &catalog.kubernetes_of("aws").unwrap().descriptor.images[CCM];
        choose(CCM, image, &asked).unwrap().problem.map(|(reason, _)| reason)
    };
    assert_eq!(reason(json!({"version": "v1.35.2"})), None);
    assert_eq!(reason(json!({"version": "v1.35.22"})), Some(UNKNOWN_VERSION));
    assert_eq!(reason(json!({"version": "v1.35.22", "registryMirror": "mirror:5000"})), Some(UNKNOWN_VERSION));
    assert_eq!(reason(json!({"version": "v1.35.2-own", "repository": "own/ccm"})), None);
    let digest = format!("sha256:{}", "0".repeat(64));
    assert_eq!(reason(json!({"version": "v1.35.22", "digest": digest})), None, "the tag is not looked at");
}

#[test]
fn no_flag_holds_the_value_of_a_variable() {
    for (spec, expected) in [
        (
            json!({"arguments": {"--nodebalancer-prefix": "$(LINODE_API_TOKEN)"}}),
            "spec.arguments: the value of --nodebalancer-prefix refers to a variable by $()",
        ),
        (
            json!({"featureGates": {"$(LINODE_API_TOKEN)": true}}),
            "spec.featureGates: the name $(LINODE_API_TOKEN) refers to a variable by $()",
        ),
    ] {
        let problem = problem(ccm("linode", spec));
        assert!(problem.contains(expected), "{problem}");
    }
    assert!(planned(ccm("linode", json!({"arguments": {"--nodebalancer-tags": "prod$"}}))).is_ok());
}

#[test]
fn a_proxy_is_a_url_and_refers_to_no_variable() {
    let with = |field: &str, value: &str| ccm("aws", json!({"proxy": {field: value}}));
    for url in [
        "http://proxy:3128",
        "https://me:pass@proxy.example.com",
        "proxy:8080",
        "http://[fd00::1]:3128/",
        "socks5://p:1",
    ] {
        assert!(planned(with("httpsProxy", url)).is_ok(), "{url}");
    }
    for url in ["not a url", "ht!tp://p:1", "http://p:99999", "http://:3128", "ftp://p", "http://p\n"] {
        assert!(problem(with("httpProxy", url)).contains("proxy.httpProxy: it is not the URL"), "{url}");
    }
    for field in ["httpProxy", "httpsProxy", "noProxy"] {
        let problem = problem(with(field, "http://$(HCLOUD_TOKEN)@p:1"));
        assert!(problem.contains(&format!("proxy.{field}: it refers to a variable")), "{problem}");
    }
}

#[test]
fn only_allowed_variables_reach_the_cloud_controller_manager() {
    let variables = json!({"HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1", "ROBOT_ENABLED": "true"});
    let objects = planned(ccm("hcloud", json!({"environment": variables}))).unwrap();
    let all = pod(&objects)["containers"][0]["env"].as_array().unwrap();
    for (name, value) in [("HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1"), ("ROBOT_ENABLED", "true")] {
        assert!(all.contains(&json!({"name": name, "value": value})), "{all:?}");
    }
    let ending = problem(ccm("hcloud", json!({"environment": {"ROBOT_ENABLED": "true\n"}})));
    assert!(ending.contains("spec.environment: the value of ROBOT_ENABLED has a control character"), "{ending}");
    let referring = problem(ccm("hcloud", json!({"environment": {"ROBOT_ENABLED": "$(HCLOUD_TOKEN)"}})));
    assert!(referring.contains("spec.environment: the value of ROBOT_ENABLED refers to a variable"), "{referring}");
    for (provider, name, expected) in [
        (
            "hcloud",
            "ROBOT_ENABLE",
            "provider hcloud does not allow ROBOT_ENABLE (did you mean `ROBOT_ENABLED`?); it allows ",
        ),
        (
            "hcloud",
            "ROBOT_USER",
            "ROBOT_USER is secret: it is the key robot-user of the Secret in credentials.secretRef",
        ),
        ("kubevirt", "A", "provider kubevirt does not allow A; it allows no variable"),
    ] {
        let problem = problem(ccm(provider, json!({"environment": {name: "true"}})));
        let expected = format!("CloudControllerManager/cluster: spec.environment: {expected}");
        assert!(problem.starts_with(&expected), "{problem}");
    }
}

#[test]
fn a_secret_may_be_files_and_variables() {
    let objects = planned(ccm("docker", json!({}))).unwrap();
    let pod = pod(&objects);
    assert_eq!(pod["volumes"], json!([{"name": "credentials", "secret": {"secretName": "docker-creds"}}]));
    let host = json!({"secretKeyRef": {"name": "docker-creds", "key": "host"}});
    let folder = &pod["containers"][0]["volumeMounts"][0]["mountPath"];
    assert_eq!(
        pod["containers"][0]["env"],
        json!([{"name": "DOCKER_CERT_PATH", "value": folder}, {"name": "DOCKER_HOST", "valueFrom": host}])
    );
}

#[test]
fn the_cloud_controller_manager_of_this_project_has_its_version() {
    let catalog = embedded::catalog().unwrap();
    let image = &catalog.kubernetes_of("docker").unwrap().descriptor.images[CCM];
    let tags: Vec<_> = image.versions.tags.values().map(|tag| tag.name.as_str()).collect();
    assert!(tags.len() > 4 && tags.iter().all(|tag| *tag == env!("CARGO_PKG_VERSION")), "{tags:?}");
}
