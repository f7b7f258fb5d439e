//! The kept settings of an existing cloud-controller-manager: for the manifests that clouds publish, and, for every
//! provider of the catalog, for the objects that the operator would install.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    existing::Existing,
    keep,
    proposed::{Handling, Input, ProposedCcm},
    provider::{of_existing, signs},
};
use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, version::Minor},
    nodes::node::Node,
    object::{
        Object,
        reference::{Reference, SECRET},
    },
    plan::{self, Plan},
    provider::{
        CCM,
        catalog::Catalog,
        embedded,
        kubernetes::{Descriptor, KubernetesProvider},
    },
};

const CLUSTER: Cluster = Cluster { minor: Minor(35), distribution: Distribution::Kubeadm, control_plane_nodes: 3 };

fn catalog() -> Catalog {
    embedded::catalog().unwrap()
}

fn existing(live: &Value) -> Option<Existing> {
    let catalog = catalog();
    let descriptors: Vec<_> = catalog.kubernetes().map(|one| &one.descriptor).collect();
    Existing::of(live, &descriptors)
}

type Found = BTreeMap<Reference, Value>;

/// Adds a ConfigMap or a Secret with these values.
fn put(found: &mut Found, kind: &str, namespace: &str, name: &str, data: &Value) {
    let is_secret = kind == "Secret";
    let value = |value: &Value| {
        let text = value.as_str().unwrap();
        if is_secret { STANDARD.encode(text) } else { text.to_owned() }
    };
    let data: BTreeMap<_, _> = data.as_object().unwrap().iter().map(|(key, one)| (key, value(one))).collect();
    let live = json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "data": data});
    let map = Reference::config_map(namespace, name);
    let reference = if is_secret { Reference { kind: &SECRET, ..map } } else { map };
    found.insert(reference, live);
}

fn proposed(live: &Value, found: &Found) -> ProposedCcm {
    let (catalog, existing) = (catalog(), existing(live).unwrap());
    let input = Input {
        found,
        taken_ports: &[],
        minor: CLUSTER.minor,
        name: "main",
        secret_name: "new-secret",
        cloud_config: None,
        has_credentials: false,
    };
    keep::proposal(&existing, of_existing(&catalog, &existing).unwrap(), &input)
}

/// Returns the parts with this result, as `what -> how`.
fn with(proposed: &ProposedCcm, result: Handling) -> Vec<String> {
    let migration_results = proposed.migration_results.iter().filter(|entry| entry.result == result);
    migration_results.map(|entry| format!("{} -> {}", entry.what, entry.how)).collect()
}

fn workload(kind: &str, namespace: &str, name: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "1"},
        "spec": {"template": {"spec": pod}}, "status": {"a": 1},
    })
}

fn aws() -> Value {
    workload(
        "DaemonSet",
        "kube-system",
        "aws-cloud-controller-manager",
        &json!({
            "hostNetwork": true, "serviceAccountName": "cloud-controller-manager",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": "", "pool": "ccm"},
            "tolerations": [
                {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
                {"key": "dedicated", "value": "infra", "effect": "NoSchedule"},
            ],
            "containers": [{
                "name": "aws-cloud-controller-manager", "image": "registry.k8s.io/provider-aws/cloud-controller-manager:v1.34.0",
                "args": [
                    "--v=3", "--cloud-provider=aws", "--cluster-name=$(NAME)", "--use-service-account-credentials=true",
                    "--configure-cloud-routes=false", "--controllers=*,-service,tagging", "--allocate-node-cidrs=true",
                    "--concurrent-node-syncs", "5", "--profiling",
                ],
                "env": [
                    {"name": "NAME", "value": "prod"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
                    {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "AWS_ACCESS_KEY_ID", "value": "s3cret"},
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
            }],
        }),
    )
}

#[test]
fn what_a_daemon_set_of_aws_is_told_is_kept_or_named() {
    let proposed = proposed(&aws(), &Found::new());
    let expected = json!({
        "provider": "aws", "clusterName": "prod", "leaderElection": {"leaseName": "cloud-controller-manager"},
        "controllers": {"service": "Disabled"}, "ports": {"secure": 10268}, "logging": {"verbosity": 3},
        "arguments": {"--concurrent-node-syncs": "5"}, "proxy": {"httpsProxy": "http://proxy:3128"},
        "placement": {
            "apiServer": {"host": "127.0.0.1", "port": 443}, "nodeSelector": {"pool": "ccm"},
            "tolerations": [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}],
        },
    });
    assert_eq!(proposed.spec, expected);
    assert_eq!((proposed.skips, proposed.secret.clone()), (Some("other-ccm"), None));
    assert!(with(&proposed, Handling::ToDo).is_empty());
    let lost = with(&proposed, Handling::NotKept).join("\n");
    for part in ["the controller tagging", "variable AWS_ACCESS_KEY_ID"] {
        assert!(lost.contains(part), "{part}: {lost}");
    }
    let changed = with(&proposed, Handling::Changed).join("\n");
    for part in [
        "--profiling=true",
        "Rehearsal",
        "v1.35.2, a higher version",
        "--secure-port=10258 -> spec.ports.secure: 10268",
        "--use-service-account-credentials=true",
    ] {
        assert!(changed.contains(part), "{part}: {changed}");
    }
    assert!(with(&proposed, Handling::Unused).join("\n").contains("--allocate-node-cidrs=true"), "{proposed:?}");
    assert!(!format!("{:?}", proposed.migration_results).contains("s3cret"));
    assert!(proposed.ccm(CLUSTER).unwrap().spec.check().is_ok());
}

fn hcloud() -> Value {
    let from = |key: &str| json!({"secretKeyRef": {"name": "hcloud", "key": key}});
    workload(
        "Deployment",
        "kube-system",
        "hcloud-cloud-controller-manager",
        &json!({
            "hostNetwork": true, "serviceAccountName": "hcloud-cloud-controller-manager",
            "containers": [{
                "name": "hcloud-cloud-controller-manager", "image": "hetznercloud/hcloud-cloud-controller-manager:v1.30.1",
                "args": [
                    "--cloud-provider=hcloud", "--leader-elect=false", "--allow-untagged-cloud", "--route-reconciliation-period=30s",
                    "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--webhook-secure-port=0",
                ],
                "env": [
                    {"name": "HCLOUD_TOKEN", "valueFrom": from("token")}, {"name": "HCLOUD_NETWORK", "valueFrom": from("network")},
                    {"name": "ROBOT_USER", "valueFrom": from("robot-user")},
                ],
            }],
        }),
    )
}

/// Docker's, of whose credentials some are variables and some are files. A sidecar mounts the certificates of another engine.
#[test]
fn credentials_in_files_are_those_of_the_same_secret_or_of_what_the_container_mounts() {
    let mut found = Found::new();
    for name in ["engine-a", "engine-b", "engine-c"] {
        let data = json!({"host": "tcp://docker:2376", "ca.pem": name, "cert.pem": name, "key.pem": name});
        put(&mut found, "Secret", "kube-system", name, &data);
    }
    let ccm = |host: Value| {
        let volume = |name: &str| json!({"name": name, "secret": {"secretName": name}});
        let mount = |name: &str| json!([{"name": name, "mountPath": "/certificates"}]);
        let pod = json!({
            "containers": [
                {
                    "name": "docker-cloud-controller-manager", "image": "registry.example.com/docker-cloud-controller-manager:0.1.0",
                    "args": ["--cloud-provider=docker"], "env": [host], "volumeMounts": mount("engine-b"),
                },
                {"name": "sidecar", "image": "registry.example.com/sidecar:1", "volumeMounts": mount("engine-a")},
            ],
            "volumes": [volume("engine-a"), volume("engine-b")],
        });
        workload("Deployment", "kube-system", "docker-cloud-controller-manager", &pod)
    };
    let of_secret = json!({"name": "DOCKER_HOST", "valueFrom": {"secretKeyRef": {"name": "engine-c", "key": "host"}}});
    let kept = proposed(&ccm(of_secret), &found);
    assert_eq!(kept.spec["credentials"], json!({"secretRef": {"name": "engine-c"}}));
    let copied = proposed(&ccm(json!({"name": "DOCKER_HOST", "value": "tcp://other:2376"})), &found);
    let data = copied.secret.unwrap().manifest()["data"].clone();
    let of = |text: &str| json!(STANDARD.encode(text));
    assert_eq!((&data["host"], &data["key.pem"]), (&of("tcp://other:2376"), &of("engine-b")));
}

#[test]
fn a_secret_is_referred_to_or_copied_and_its_values_are_not_shown() {
    let mut found = Found::new();
    put(&mut found, "Secret", "kube-system", "hcloud", &json!({"token": "s3cret", "network": "net"}));
    let kept = proposed(&hcloud(), &found);
    let expected = json!({
        "provider": "hcloud", "clusterName": "kubernetes", "credentials": {"secretRef": {"name": "hcloud"}},
        "controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16"]},
        "arguments": {"--route-reconciliation-period": "30s"},
    });
    assert_eq!(kept.spec, expected);
    assert_eq!((kept.skips, &kept.secret), (None, &None), "without a lease the old one has to go first");
    assert_eq!(with(&kept, Handling::NotKept).iter().filter(|line| line.contains("ROBOT_USER")).count(), 0);

    // Helm deletes the objects that it has created, and a lease in another namespace moves the objects there.
    let reference = found.keys().next().unwrap().clone();
    found.get_mut(&reference).unwrap()["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "hccm"});
    let copied = proposed(&hcloud(), &found);
    assert_eq!(copied.spec["credentials"], json!({"secretRef": {"name": "new-secret"}}));
    let secret = copied.secret.clone().unwrap();
    assert_eq!(
        secret.manifest()["data"],
        json!({"token": STANDARD.encode("s3cret"), "network": STANDARD.encode("net")})
    );
    assert_eq!(secret.manifest()["metadata"], json!({"name": "new-secret", "namespace": "kube-system"}));
    for shown in [format!("{copied:?}"), format!("{secret:?}")] {
        assert!(!shown.contains("s3cret") && !shown.contains(&STANDARD.encode("s3cret")), "{shown}");
    }

    // An unused key would be used after the migration.
    let mut live = hcloud();
    live["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().remove(1);
    put(&mut found, "Secret", "kube-system", "hcloud", &json!({"token": "s3cret", "network": "net"}));
    assert_eq!(proposed(&live, &found).secret.unwrap().data.keys().collect::<Vec<_>>(), ["token"]);

    let none = proposed(&hcloud(), &Found::new());
    assert_eq!(
        with(&none, Handling::ToDo),
        ["the credentials: nothing that the API shows holds token -> give them with --credentials"]
    );
}

fn vsphere(volume: &Value) -> Value {
    workload(
        "DaemonSet",
        "vmware",
        "vsphere-cpi",
        &json!({
            "hostNetwork": true,
            "containers": [{
                "name": "vsphere-cpi", "image": "mirror.example.com/k8s/cloud-pv-vsphere/cloud-provider-vsphere:v1.35.1",
                "args": ["--cloud-provider=vsphere", "--cloud-config=/etc/cloud/vsphere.conf", "--leader-elect-resource-namespace=vmware"],
                "volumeMounts": [{"name": "other", "mountPath": "/etc"}, {"name": "config", "mountPath": "/etc/cloud/"}],
            }],
            "volumes": [{"name": "other", "hostPath": {"path": "/etc/pki"}}, volume],
        }),
    )
}

#[test]
fn the_configuration_is_found_where_it_is_mounted() {
    let volume =
        json!({"name": "config", "configMap": {"name": "conf", "items": [{"key": "k", "path": "vsphere.conf"}]}});
    let mut found = Found::new();
    put(&mut found, "ConfigMap", "vmware", "conf", &json!({"k": "global: {secretName: creds}"}));
    put(&mut found, "Secret", "vmware", "creds", &json!({"vc.username": "u", "vc.password": "s3cret"}));
    let kept = proposed(&vsphere(&volume), &found);
    let expected = json!({
        "provider": "vsphere", "namespace": "vmware", "clusterName": "kubernetes",
        "cloudConfig": {"configMapRef": {"name": "conf", "key": "k"}}, "credentials": {"secretRef": {"name": "creds"}},
        "leaderElection": {"leaseName": "cloud-controller-manager"}, "ports": {"secure": 10268},
        "image": {"registryMirror": "mirror.example.com/k8s"},
    });
    assert_eq!(kept.spec, expected);
    assert!(with(&kept, Handling::Changed).concat().contains("hostPath /etc/pki -> the certificates"));

    // The lease, and so the reader of these objects, is in another namespace.
    let mut live = vsphere(&volume);
    live["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap().pop();
    let copied = proposed(&live, &found);
    assert_eq!(copied.spec["cloudConfig"], json!({"secretRef": {"name": "new-secret", "key": "vsphere.conf"}}));
    let keys: Vec<_> = copied.secret.as_ref().unwrap().data.keys().cloned().collect();
    assert_eq!((copied.namespace(), keys.join(" ").as_str()), ("kube-system", "vc.password vc.username vsphere.conf"));

    for (volume, shown) in [
        (
            json!({"name": "config", "hostPath": {"path": "/etc/kubernetes"}}),
            "/etc/kubernetes/vsphere.conf of the machine",
        ),
        (json!({"name": "config", "emptyDir": {}}), "/etc/cloud/vsphere.conf (--cloud-config)"),
    ] {
        let missing = proposed(&vsphere(&volume), &found);
        assert!(with(&missing, Handling::ToDo).concat().contains(shown), "{:?}", missing.migration_results);
        assert!(missing.spec.get("cloudConfig").is_none());
    }
}

#[test]
fn static_pods_releases_and_those_who_keep_objects_are_known() {
    let pod = &aws()["spec"]["template"]["spec"];
    let mut live = json!({"kind": "Pod", "metadata": {
        "name": "aws-cloud-controller-manager-ip-1", "namespace": "kube-system",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"kind": "Node", "name": "ip-1"}],
    }, "spec": pod});
    live["spec"]["nodeName"] = json!("ip-1");
    let found = existing(&live).unwrap();
    assert_eq!((found.name.as_str(), &found.static_on[..]), ("aws-cloud-controller-manager", &["ip-1".to_owned()][..]));
    live["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "name": "a"}]);
    assert_eq!(existing(&live), None, "its DaemonSet is one");

    let mut live = aws();
    live["metadata"]["annotations"] = json!({
        "meta.helm.sh/release-name": "ccm", "meta.helm.sh/release-namespace": "ns", "argocd.argoproj.io/tracking-id": "x",
    });
    let found = existing(&live).unwrap();
    assert_eq!(found.helm, Some(("ccm".to_owned(), "ns".to_owned())));
    assert_eq!(found.keeper, Some("Argo CD"));
    let manifest = &found.manifest;
    assert!(manifest["status"].is_null() && manifest["metadata"]["uid"].is_null() && !manifest["spec"].is_null());
    live["metadata"]["labels"] = json!({"applyset.kubernetes.io/part-of": "x"});
    assert_eq!(existing(&live), None, "the operator's own");
    live["metadata"]["labels"] = Value::Null;
    live["metadata"]["name"] = json!("web");
    live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web");
    assert_eq!(existing(&live), None);
}

#[test]
fn the_provider_is_told_by_what_runs_by_ids_and_by_names() {
    let catalog = catalog();
    let node = |name: &str, id: &str| Node { name: name.into(), provider_id: id.into(), ..Node::default() };
    let told = |nodes: &[Node], existing: &[Existing]| {
        signs(&catalog, nodes, existing).into_iter().map(|sign| sign.provider).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(told(&[node("a", ""), node("b", "hcloud://1")], &[]), "hcloud");
    assert_eq!(told(&[node("ip-10-0-0-1.ec2.internal", ""), node("i-0123", "")], &[]), "aws");
    assert_eq!(told(&[node("ip-10-0-0-1.ec2.internal", ""), node("b", "")], &[]), "");
    assert_eq!(told(&[node("a", "k3s://a")], &[]), "");
    let aws = existing(&aws()).unwrap();
    assert_eq!(told(&[node("b", "vsphere://1")], std::slice::from_ref(&aws)), "aws vsphere");
    let mut unknown = aws;
    unknown.image = "registry.example.com/own/fork-of-aws:1".into();
    assert_eq!(of_existing(&catalog, &unknown).unwrap().descriptor.name, "aws", "by --cloud-provider");
    unknown.flags.clear();
    assert!(of_existing(&catalog, &unknown).is_none());
}

/// Returns a proposal with all required inputs of a provider, and its Secrets.
fn complete(descriptor: &Descriptor) -> (ProposedCcm, Found) {
    let namespace = descriptor.home();
    let mut proposed = ProposedCcm::new("cluster", &descriptor.name, namespace);
    let mut found = Found::new();
    proposed.set("clusterName", "prod");
    proposed.set("leaderElection.leaseName", "own-lease");
    proposed.set("logging.verbosity", 4);
    if let Some(flag) = descriptor.allowed_arguments.first() {
        proposed.set("arguments", json!({flag: "7"}));
    }
    let variables = descriptor.allowed_environment.iter().map(|name| (name.clone(), json!("1")));
    proposed.set("environment", Value::Object(variables.collect()));
    if let Some(config) = &descriptor.cloud_config {
        put(&mut found, "Secret", namespace, "config", &json!({&config.file: "a: b"}));
        proposed.set("cloudConfig.secretRef", json!({"name": "config", "key": config.file}));
    }
    if let Some(needed) = descriptor.credentials.as_ref().filter(|needed| !needed.optional) {
        let keys = needed.keys.iter().chain(&needed.optional_keys).map(|key| (key.replace('*', "server"), json!("x")));
        put(&mut found, "Secret", namespace, "creds", &Value::Object(keys.collect()));
        proposed.set("credentials.secretRef.name", "creds");
    }
    (proposed, found)
}

/// Returns the planned objects, with unsupported controllers disabled.
fn planned(proposed: &mut ProposedCcm) -> Vec<Object> {
    loop {
        match Plan::of_ccm(&catalog(), &proposed.ccm(CLUSTER).unwrap()) {
            Ok(plan) => return plan.objects().to_vec(),
            Err(plan::Error::InvalidSpec { field, .. }) if field.starts_with("controllers.") => {
                proposed.set(&field, "Disabled");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the arguments and environment of the container, without the port.
fn told(objects: &[Object]) -> (Vec<String>, Value) {
    let pods = objects.iter().filter_map(Object::pod_spec).flat_map(|pod| pod["containers"].as_array().unwrap());
    let container = pods.into_iter().find(|one| one["name"] == CCM).unwrap();
    let words = ["command", "args"].into_iter().flat_map(|list| container[list].as_array().into_iter().flatten());
    let words = words.map(|word| word.as_str().unwrap().to_owned()).filter(|word| !word.starts_with("--secure-port="));
    (words.collect(), container["env"].clone())
}

#[test]
fn of_every_provider_all_is_kept_that_the_operator_would_install() {
    let catalog = catalog();
    let (mut providers, mut problems) = (0, Vec::new());
    for provider in catalog.kubernetes() {
        let KubernetesProvider { descriptor, .. } = provider;
        let (mut before, found) = complete(descriptor);
        let objects = planned(&mut before);
        let workload = objects.iter().find(|one| {
            let containers = one.pod_spec().and_then(|pod| pod["containers"].as_array()).into_iter().flatten();
            containers.into_iter().any(|container| container["name"] == CCM)
        });
        let live = workload.unwrap().value();
        let existing = existing(live).unwrap_or_else(|| panic!("{}: not found", descriptor.name));
        let known = of_existing(&catalog, &existing).map(|known| known.descriptor.name.as_str());
        assert_eq!(known, Some(descriptor.name.as_str()), "{}", existing.image);
        let mut after = proposed(live, &found);
        let lost = [Handling::ToDo, Handling::NotKept].map(|result| with(&after, result)).concat();
        problems.extend(lost.iter().map(|lost| format!("{}: {lost}", descriptor.name)));
        if after.secret.is_some() {
            problems.push(format!("{}: its Secret is copied", descriptor.name));
        }
        let (now, before) = (told(&planned(&mut after)), told(&objects));
        if now != before {
            problems.push(format!("{}: {now:?} instead of {before:?}", descriptor.name));
        }
        assert!(after.ccm(CLUSTER).unwrap().spec.check().is_ok());
        providers += 1;
    }
    assert!(providers >= 3, "{providers}");
    assert_eq!(problems, Vec::<String>::new());
}

mod existing;
mod lost;
mod published;
