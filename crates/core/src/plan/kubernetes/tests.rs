#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use serde_json::{Value, json};

use super::*;

mod clouds;
mod leases;
mod shapes;
mod types;

use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, version::Minor},
    plan::Plan,
    provider::embedded,
    text::yaml,
};

const CLUSTER: Cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };

/// A `CloudControllerManager` with the required inputs of a provider, and these fields.
fn ccm(provider: &str, spec: Value) -> Ccm {
    let mut all = json!({"provider": provider});
    if let Ok(known) = embedded::catalog().unwrap().kubernetes_of(provider) {
        let descriptor = &known.descriptor;
        if descriptor.cloud_config.as_ref().is_some_and(|config| config.required) {
            all["cloudConfig"] = json!({"configMapRef": {"name": format!("{provider}-cloud-config"), "key": "config"}});
        }
        if descriptor.credentials.as_ref().is_some_and(|credentials| !credentials.optional) {
            all["credentials"] = json!({"secretRef": {"name": format!("{provider}-creds")}});
        }
        if !descriptor.load_balancers {
            all["controllers"] = json!({"service": "Disabled"});
        }
        if !descriptor.namespaces.include(NAMESPACE) {
            all["namespace"] = json!("clouds");
        }
    }
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    Ccm { name: "cluster".into(), spec: serde_json::from_value(all).unwrap(), cluster: CLUSTER, skips: Vec::new() }
}

fn planned(ccm: Ccm) -> Result<Vec<Object>, Error> {
    let catalog = embedded::catalog().unwrap();
    Ok(Plan::of_ccm(&catalog, &ccm)?.objects().to_vec())
}

fn of_kind<'a>(objects: &'a [Object], kind: &str) -> &'a Value {
    objects.iter().find(|object| object.kind().kind == kind).unwrap().value()
}

/// The ClusterRole of the cloud-controller-manager; a node manager has one of its own.
fn role_of_ccm(objects: &[Object]) -> &Value {
    let is_own = |one: &&Object| one.kind().kind == "ClusterRole" && one.name().contains(CCM);
    objects.iter().find(is_own).unwrap().value()
}

/// The pod of a provider's workload.
fn pod(objects: &[Object]) -> &Value {
    objects.iter().find_map(Object::pod_spec).unwrap()
}

fn args(objects: &[Object]) -> Vec<&str> {
    pod(objects)["containers"][0]["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

fn problem(ccm: Ccm) -> String {
    planned(ccm).unwrap_err().to_string()
}

#[test]
fn what_is_planned_for_each_provider() {
    for provider in ["aws", "azure", "gcp", "hcloud", "nutanix", "openstack", "vsphere"] {
        let objects = planned(ccm(provider, json!({}))).unwrap();
        let texts: Vec<_> = objects.iter().map(|object| yaml::to_string(object).unwrap()).collect();
        insta::assert_snapshot!(format!("kubernetes_{provider}"), texts.join("---\n"));
    }
}

#[test]
fn the_manifests_hold_the_permissions_of_all_controllers() {
    for provider in embedded::catalog().unwrap().kubernetes() {
        let all = provider.descriptor.controllers();
        let role = role_of_ccm(&provider.manifests);
        assert_eq!(role["rules"], needs::rules(&all, &provider.descriptor.permissions), "{}", provider.descriptor.name);
    }
}

#[test]
fn two_ccms_share_no_object_and_no_pod() {
    let first = planned(ccm("aws", json!({}))).unwrap();
    let second = planned(Ccm { name: "second".into(), ..ccm("aws", json!({})) }).unwrap();
    assert_eq!(first.len(), second.len());
    for object in &second {
        assert!(object.name().ends_with("-second"), "{}", object.key());
        assert!(first.iter().all(|other| other.key() != object.key()), "{}", object.key());
        let labels = object.value()["metadata"]["labels"][INSTANCE_LABEL].as_str();
        assert_eq!(labels, Some("second"), "{}", object.key());
    }
    let workload = of_kind(&second, "DaemonSet");
    for pointer in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        assert_eq!(workload.pointer(pointer).unwrap()[INSTANCE_LABEL], "second");
    }
    assert_eq!(pod(&second)["serviceAccountName"], "aws-cloud-controller-manager-second");
    assert_eq!(of_kind(&second, "ClusterRoleBinding")["roleRef"]["name"], "aws-cloud-controller-manager-second");
    assert_eq!(of_kind(&second, "ClusterRoleBinding")["subjects"][0]["name"], "aws-cloud-controller-manager-second");
    let lease = "cloud-controller-manager-second";
    assert_eq!(of_kind(&second, "Role")["rules"][1]["resourceNames"], json!([lease]));
    assert!(args(&second).contains(&&*format!("--leader-elect-resource-name={lease}")));
}

#[test]
fn another_namespace_moves_everything_but_the_binding_to_a_role_of_the_cluster() {
    let objects = planned(ccm("hcloud", json!({"namespace": "clouds"}))).unwrap();
    let stays: Vec<_> = objects.iter().filter(|object| object.namespace() == "kube-system").map(Object::name).collect();
    assert_eq!(stays, ["authentication-reader-hcloud-cloud-controller-manager"]);
    for binding in objects.iter().filter(|object| object.value().get("subjects").is_some()) {
        assert_eq!(binding.value()["subjects"][0]["namespace"], "clouds", "{}", binding.key());
    }
    assert!(args(&objects).contains(&"--leader-elect-resource-namespace=clouds"));
}

#[test]
fn a_controller_that_is_off_leaves_no_argument_and_no_permission() {
    let objects = planned(ccm("aws", json!({"controllers": {"service": "Disabled"}}))).unwrap();
    assert!(args(&objects).contains(&"--controllers=cloud-node-controller,cloud-node-lifecycle-controller"));
    assert!(args(&objects).contains(&"--configure-cloud-routes=false"));
    assert!(!of_kind(&objects, "ClusterRole")["rules"].to_string().contains("services"));
    let with_routes = json!({"controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16"]}});
    let objects = planned(ccm("aws", with_routes)).unwrap();
    assert!(args(&objects).contains(&"--configure-cloud-routes=true"));
    assert!(args(&objects).contains(&"--cluster-cidr=10.244.0.0/16"));
}

#[test]
fn the_configuration_has_one_of_three_sources_or_none() {
    let source = |config: Value| {
        let objects = planned(ccm("aws", json!({"cloudConfig": config}))).unwrap();
        assert!(args(&objects).contains(&"--cloud-config=/etc/cloud/cloud.conf"));
        let volumes = pod(&objects)["volumes"].as_array().unwrap().clone();
        (volumes.into_iter().find(|volume| volume["name"] == "cloud-config").unwrap(), objects)
    };
    let item = |key: &str| json!([{"key": key, "path": "cloud.conf"}]);
    let (volume, _) = source(json!({"configMapRef": {"name": "a", "key": "b"}}));
    assert_eq!(volume["configMap"], json!({"name": "a", "items": item("b")}));
    let (volume, _) = source(json!({"secretRef": {"name": "a", "key": "b"}}));
    assert_eq!(volume["secret"], json!({"secretName": "a", "items": item("b")}));
    let (volume, objects) = source(json!({"inline": "[Global]\n"}));
    let config_map = of_kind(&objects, "ConfigMap");
    assert_eq!(volume["configMap"], json!({"name": config_map["metadata"]["name"], "items": item("cloud.conf")}));
    assert_eq!(config_map["data"], json!({"cloud.conf": "[Global]\n"}));

    let objects = planned(ccm("aws", json!({}))).unwrap();
    let text = pod(&objects).to_string();
    assert!(!text.contains("cloud-config"), "{text}");
}

#[test]
fn what_the_cloud_controller_manager_would_ignore_is_known() {
    let catalog = embedded::catalog().unwrap();
    let ccm = ccm("aws", json!({"cloudConfig": {"inline": "[Global]\nZoone = a\n"}}));
    let ignored = ignored(&catalog.kubernetes_of("aws").unwrap().descriptor, &ccm);
    assert_eq!(ignored.len(), 1);
    assert!(ignored[0].starts_with("spec.cloudConfig.inline:2: "), "{ignored:?}");
    assert!(ignored[0].contains("Zone"), "{ignored:?}");
    assert!(planned(ccm).is_ok());
}

#[test]
fn a_changed_configuration_in_the_object_restarts_the_pods() {
    let hash = |text: &str| {
        let objects = planned(ccm("aws", json!({"cloudConfig": {"inline": text}}))).unwrap();
        let template = &of_kind(&objects, "DaemonSet")["spec"]["template"];
        template["metadata"]["annotations"][reference::KUBERNETES_ANNOTATION].as_str().unwrap().to_owned()
    };
    assert_eq!(hash("[Global]\n"), hash("[Global]\n"));
    assert_ne!(hash("[Global]\n"), hash("[Global]\nZone = a\n"));
}

#[test]
fn a_ccm_that_is_to_be_removed_has_no_objects() {
    assert_eq!(planned(ccm("aws", json!({"management": "Removed"}))).unwrap(), []);
    assert!(!planned(ccm("aws", json!({"management": "Paused"}))).unwrap().is_empty());
}

#[test]
fn where_the_objects_of_one_that_is_removed_are_is_known_whatever_is_wrong_with_its_inputs() {
    let removed = |spec: Value| {
        let validated = validation::validate(&embedded::catalog().unwrap(), &ccm("openstack", spec), |_| {
            sources::SourceState::Absent
        });
        assert!(validated.objects.is_some(), "it goes");
        validated
            .removed
            .iter()
            .map(|one| (one.kind().kind, one.namespace().to_owned()))
            .collect::<std::collections::BTreeSet<_>>()
    };
    let sound = removed(json!({"management": "Removed", "namespace": "clouds"}));
    assert!(sound.contains(&("DaemonSet", "clouds".to_owned())), "{sound:?}");
    let broken = removed(json!({"management": "Removed", "namespace": "clouds", "cloudConfig": null}));
    assert!(broken.is_superset(&sound), "{broken:?}");
}

#[test]
fn credentials_become_variables_or_a_volume() {
    let objects = planned(ccm("hcloud", json!({}))).unwrap();
    let variables = pod(&objects)["containers"][0]["env"].as_array().unwrap();
    let variable = |name: &str| variables.iter().find(|one| one["name"] == name).unwrap()["valueFrom"].clone();
    assert_eq!(variable("HCLOUD_TOKEN"), json!({"secretKeyRef": {"name": "hcloud-creds", "key": "token"}}));
    let network = json!({"secretKeyRef": {"name": "hcloud-creds", "key": "network", "optional": true}});
    assert_eq!(variable("HCLOUD_NETWORK"), network);
    let objects = planned(ccm("vsphere", json!({}))).unwrap();
    let volumes = pod(&objects)["volumes"].as_array().unwrap();
    assert!(
        volumes.contains(&json!({"name": "credentials", "secret": {"secretName": "vsphere-creds"}})),
        "{volumes:?}"
    );
}

#[test]
fn every_provider_gets_what_it_needs_and_nothing_of_the_host() {
    for provider in embedded::catalog().unwrap().kubernetes() {
        let descriptor = &provider.descriptor;
        let name = descriptor.name.as_str();
        let objects = planned(ccm(name, json!({}))).unwrap();
        let mut pods = objects.iter().filter_map(Object::pod_spec);
        let pod = pods.find(|pod| pod["containers"][0]["name"] == CCM).unwrap();
        let container = &pod["containers"][0];
        assert!(!pod.to_string().contains("hostPath"), "{name}");
        let is_file = descriptor.cloud_config.as_ref().is_some_and(|config| config.required);
        assert_eq!(container["args"].to_string().contains("--cloud-config="), is_file, "{name}");
        for (variable, key) in descriptor.credentials.iter().flat_map(|credentials| &credentials.environment) {
            let optional = descriptor.credentials.as_ref().unwrap().optional_keys.contains(key);
            let mut reference = json!({"name": format!("{name}-creds"), "key": key});
            if optional {
                reference["optional"] = true.into();
            }
            let expected = json!({"name": variable, "valueFrom": {"secretKeyRef": reference}});
            assert!(container["env"].as_array().unwrap().contains(&expected), "{name}: {variable}");
        }
        let only = &descriptor.images[CCM].architectures;
        let selected = pod["nodeSelector"]["kubernetes.io/arch"].as_str();
        let expected = (!["amd64", "arm64"].iter().all(|one| only.iter().any(|built| built == one))).then_some("amd64");
        assert_eq!(selected, expected, "{name}");
        let mounts = container["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["name"]);
        for mount in mounts {
            let volumes = pod["volumes"].as_array().unwrap();
            assert!(volumes.iter().any(|volume| volume["name"] == *mount), "{name}: {mount}");
        }
    }
}

#[test]
fn pods_go_where_they_can_run() {
    let planned_in =
        |provider: &str, spec: Value, cluster: Cluster| planned(Ccm { cluster, ..ccm(provider, spec) }).unwrap();
    let objects = planned_in("hcloud", json!({}), CLUSTER);
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["replicas"], 2);
    assert!(objects.iter().any(|object| object.kind().kind == "PodDisruptionBudget"));
    assert!(pod(&objects)["affinity"]["nodeAffinity"].is_object());
    assert_eq!(pod(&objects)["nodeSelector"], Value::Null);

    let single = planned_in("hcloud", json!({}), Cluster { control_plane_nodes: 1, ..CLUSTER });
    assert_eq!(of_kind(&single, "Deployment")["spec"]["replicas"], 1);
    assert!(single.iter().all(|object| object.kind().kind != "PodDisruptionBudget"));

    let hosted = planned_in("hcloud", json!({}), Cluster { control_plane_nodes: 0, ..CLUSTER });
    assert_eq!(of_kind(&hosted, "Deployment")["spec"]["replicas"], 2);
    assert_eq!(pod(&hosted)["affinity"]["nodeAffinity"], Value::Null);
    assert!(pod(&hosted)["affinity"]["podAntiAffinity"].is_object());
    let chosen = json!({"placement": {"nodeSelector": {"ccm": "here"}}});
    let hosted = planned_in("aws", chosen, Cluster { control_plane_nodes: 0, ..CLUSTER });
    assert_eq!(pod(&hosted)["affinity"], Value::Null);
    assert_eq!(pod(&hosted)["nodeSelector"], json!({"ccm": "here"}));

    let placement = json!({"placement": {
        "replicas": 3,
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "own", "effect": "NoExecute"}, {"operator": "Exists"}],
    }});
    let objects = planned_in("hcloud", placement, CLUSTER);
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["replicas"], 3);
    assert_eq!(pod(&objects)["nodeSelector"], json!({"zone": "a"}));
    let tolerations = pod(&objects)["tolerations"].as_array().unwrap();
    let last = [json!({"operator": "Equal", "key": "own", "effect": "NoExecute"}), json!({"operator": "Exists"})];
    assert_eq!(tolerations[tolerations.len() - 2..], last);
    let amd64 = planned_in("vsphere", json!({}), CLUSTER);
    assert_eq!(pod(&amd64)["nodeSelector"], json!({"kubernetes.io/arch": "amd64"}), "an image for one architecture");
}

#[test]
fn the_api_server_is_reached_without_a_pod_network_where_that_is_known() {
    let endpoint = |distribution: Distribution, spec: Value, control_plane_nodes: usize| {
        let cluster = Cluster { distribution, control_plane_nodes, ..CLUSTER };
        let objects = planned(Ccm { cluster, ..ccm("hcloud", spec) }).unwrap();
        let variables = pod(&objects)["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let value = |name: &str| {
            variables.iter().find(|one| one["name"] == name).map(|one| one["value"].as_str().unwrap().to_owned())
        };
        Some(format!("{}:{}", value("KUBERNETES_SERVICE_HOST")?, value("KUBERNETES_SERVICE_PORT")?))
    };
    assert_eq!(endpoint(Distribution::Kubeadm, json!({}), 3), None, "the Service");
    assert_eq!(endpoint(Distribution::Talos, json!({}), 3).unwrap(), "localhost:7445");
    assert_eq!(endpoint(Distribution::K3s, json!({}), 1).unwrap(), "127.0.0.1:6443");
    assert_eq!(endpoint(Distribution::K3s, json!({}), 0), None, "no server of k3s is a node");
    let given = json!({"placement": {"apiServer": {"host": "api.example.com"}}});
    assert_eq!(endpoint(Distribution::Rke2, given, 3).unwrap(), "api.example.com:6443");
}

#[test]
fn the_image_follows_the_cluster_and_the_object() {
    let image = |spec: Value| {
        let objects = planned(ccm("aws", json!({"image": spec}))).unwrap();
        pod(&objects)["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    let path = "provider-aws/cloud-controller-manager";
    assert_eq!(image(json!({})), format!("registry.k8s.io/{path}:v1.35.2"));
    assert_eq!(image(json!({"version": "v1.35.0"})), format!("registry.k8s.io/{path}:v1.35.0"));
    assert_eq!(image(json!({"registryMirror": "mirror:5000/a"})), format!("mirror:5000/a/{path}:v1.35.2"));
    assert_eq!(image(json!({"repository": "own/ccm"})), "own/ccm:v1.35.2");
    let digest = format!("sha256:{}", "0".repeat(64));
    let pinned = json!({"version": "v1.35.2", "digest": digest});
    assert_eq!(image(pinned), format!("registry.k8s.io/{path}:v1.35.2@{digest}"));
    let objects = planned(ccm("aws", json!({"image": {"pullSecrets": [{"name": "registry"}]}}))).unwrap();
    assert_eq!(pod(&objects)["imagePullSecrets"], json!([{"name": "registry"}]));
}

#[test]
fn further_settings_reach_the_process() {
    let objects = planned(ccm(
        "aws",
        json!({
            "clusterName": "prod",
            "ports": {"secure": 10300},
            "logging": {"verbosity": 4},
            "featureGates": {"B": false, "A": true},
            "arguments": {"--node-monitor-period": "10s"},
            "proxy": {"httpsProxy": "http://proxy:3128", "noProxy": "10.0.0.0/8"},
            "leaderElection": {"leaseName": "own"},
            "trustBundle": {"configMapRef": {"name": "ca", "key": "ca.pem"}},
        }),
    ))
    .unwrap();
    for argument in [
        "--cluster-name=prod",
        "--secure-port=10300",
        "--v=4",
        "--feature-gates=A=true,B=false",
        "--node-monitor-period=10s",
        "--leader-elect-resource-name=own",
    ] {
        assert!(args(&objects).contains(&argument), "{argument}: {:?}", args(&objects));
    }
    let container = &pod(&objects)["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 10300);
    assert!(
        container["env"].as_array().unwrap().contains(&json!({"name": "HTTPS_PROXY", "value": "http://proxy:3128"}))
    );
    let items = json!([{"key": "ca.pem", "path": "ca-certificates.crt"}]);
    let bundle = json!({"name": "trust-bundle", "configMap": {"name": "ca", "items": items}});
    assert!(pod(&objects)["volumes"].as_array().unwrap().contains(&bundle));
}

#[test]
fn what_a_provider_cannot_do_is_refused_by_field() {
    let starts = |ccm: Ccm, expected: &str| {
        let problem = problem(ccm);
        assert!(problem.starts_with(&format!("CloudControllerManager/cluster: spec.{expected}")), "{problem}");
    };
    starts(ccm("amazon", json!({})), "provider: there is no provider \"amazon\"");
    starts(
        ccm("aws", json!({"arguments": {"--node-monitor-perod": "1s"}})),
        "arguments: provider aws does not allow --node-monitor-perod (did you mean",
    );
    let routes = |subnets: &[&str]| json!({"controllers": {"route": "Enabled"}, "network": {"podCIDRs": subnets}});
    starts(
        ccm("vsphere", routes(&["10.0.0.0/8"])),
        "controllers.route: the cloud-controller-manager of provider vsphere",
    );
    starts(ccm("aws", routes(&[])), "controllers.route: the route controller needs network.podCIDRs");
    starts(
        ccm("hcloud", routes(&["10.0.0.0/8", "fd00::/48"])),
        "network.podCIDRs: the route controller of provider hcloud takes 1",
    );
    starts(
        ccm("linode", routes(&["10.0.0.0/8"])),
        "arguments: the route controller of provider linode needs --vpc-names or",
    );
    let in_a_vpc = json!({
        "controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.0.0.0/8"]}, "arguments": {"--vpc-ids": "1", "--subnet-ids": "1"},
    });
    assert!(planned(ccm("linode", in_a_vpc)).is_ok());
    starts(
        ccm("proxmox", json!({"controllers": {}})),
        "controllers.service: the cloud-controller-manager of provider proxmox has no load balancers: set it to Disabled",
    );
    starts(ccm("aws", json!({"placement": {"replicas": 1}})), "placement.replicas: ");
    let hosted = Cluster { control_plane_nodes: 0, ..CLUSTER };
    starts(Ccm { cluster: hosted, ..ccm("aws", json!({})) }, "placement.nodeSelector: no node has the label");
    starts(ccm("hcloud", json!({"cloudConfig": {"inline": ""}})), "cloudConfig: provider hcloud reads no");
    let both = json!({"inline": "", "secretRef": {"name": "a", "key": "b"}});
    starts(ccm("aws", json!({"cloudConfig": both})), "cloudConfig: exactly one of inline");
    let inline = |text: &str| json!({"cloudConfig": {"inline": text}});
    starts(ccm("aws", inline("[Global]\nZone a")), "cloudConfig.inline:2:6: ");
    starts(ccm("vsphere", inline("global: {password: x}\n")), "cloudConfig.inline: it holds a password");
    starts(ccm("vsphere", json!({"cloudConfig": null})), "cloudConfig: provider vsphere needs");
    starts(ccm("aws", json!({"credentials": {"secretRef": {"name": "a"}}})), "credentials: provider aws takes no");
    starts(
        ccm("hcloud", json!({"credentials": null})),
        "credentials: provider hcloud needs a Secret with the keys token",
    );
    let old = Ccm { cluster: Cluster { minor: Minor(20), ..CLUSTER }, ..ccm("aws", json!({})) };
    starts(old, "image.version: there is no tag near Kubernetes 1.20");
}
