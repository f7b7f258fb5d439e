//! Finds cloud-controller-managers, reads their flags as Go does, and shows no secrets.

use serde_json::{Value, json};

use super::{CLUSTER, Found, aws, catalog, existing, hcloud, proposed, put, with, workload};
use crate::proposal::{
    keep,
    proposed::{Handling, Input, ProposedCcm},
};

/// The image that Oracle's programs share.
const OCI: &str = "ghcr.io/oracle/cloud-provider-oci:v1.35.0";

#[test]
fn what_only_shares_the_image_of_one_is_none() {
    for (kind, name, container, program, is_one) in [
        (
            "DaemonSet",
            "oci-cloud-controller-manager",
            "oci-cloud-controller-manager",
            "oci-cloud-controller-manager",
            true,
        ),
        ("DaemonSet", "own-name", "ccm", "oci-cloud-controller-manager", true),
        ("Deployment", "csi-oci-controller", "main", "main", false),
        ("Deployment", "own-name", "main", "oci-csi-controller-driver", false),
        ("Deployment", "oci-volume-provisioner", "main", "main", false),
        ("DaemonSet", "own-name", "oci-flexvolume-driver", "main", false),
        ("Deployment", "cloud-controller-manager-admission-server", "main", "main", false),
    ] {
        for image in [OCI, "registry.k8s.io/provider-aws/cloud-controller-manager:v1.34.0"] {
            let command = format!("/usr/local/bin/{program}");
            let pod = json!({"containers": [{"name": container, "image": image, "command": [command]}]});
            let live = workload(kind, "kube-system", name, &pod);
            assert_eq!(existing(&live).is_some(), is_one, "{name} {container} {program} {image}");
        }
    }
}

#[test]
fn booleans_are_read_as_go_reads_them() {
    let told = |arguments: &[&str]| {
        let mut live = aws();
        live["spec"]["template"]["spec"]["containers"][0]["args"] = json!(arguments);
        live
    };
    for value in ["false", "False", "FALSE", "f", "F", "0"] {
        let live = told(&[
            &format!("--leader-elect={value}"),
            &format!("--configure-cloud-routes={value}"),
            "--cluster-cidr=a",
        ]);
        let existing = existing(&live).unwrap();
        assert_eq!(existing.lease(), None, "{value}");
        assert!(!existing.controllers().contains(&crate::facts::ccm::Controller::Route), "{value}");
    }
    for value in ["true", "True", "t", "1"] {
        assert!(existing(&told(&[&format!("--leader-elect={value}")])).unwrap().lease().is_some(), "{value}");
        let proposed = proposed(&told(&[&format!("--feature-gates=A={value},B=False")]), &Found::new());
        assert_eq!(proposed.spec["featureGates"], json!({"A": true, "B": false}), "{value}");
    }
}

#[test]
fn values_of_secrets_are_in_no_migration_result_and_a_manifest_with_one_says_so() {
    let mut live = aws();
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    container["args"] = json!(["--api-token=s3cret-1", "--cloud-url", "https://me:s3cret-2@cloud", "--odd=$(TOK)"]);
    container["env"] = json!([{"name": "TOK", "value": "s3cret-3"}]);
    let lost = with(&proposed(&live, &Found::new()), Handling::NotKept).join("\n");
    assert!(!lost.contains("s3cret") && lost.contains("--api-token=***") && lost.contains("--odd=$(TOK)"), "{lost}");

    let mut proposed = ProposedCcm::new("cluster", "hcloud", "clouds");
    proposed.set("credentials.secretRef.name", "hcloud");
    proposed.set("cloudConfig.secretRef", json!({"name": "hcloud", "key": "token"}));
    proposed.set("image.pullSecrets", json!([{"name": "registry"}]));
    proposed.set("proxy.httpsProxy", "http://proxy:3128");
    proposed.name_secrets();
    assert_eq!((proposed.has_secrets(), proposed.migration_results.len()), (false, 0));
    let mut other = proposed.clone();
    other.set("arguments", json!({"--api-token": "x"}));
    assert!(other.has_secrets());
    proposed.set("proxy.httpsProxy", "http://me:s3cret@proxy:3128");
    proposed.name_secrets();
    assert!(proposed.has_secrets() && proposed.migration_results[0].result == Handling::ToDo);
}

/// Published programs are recognized by their images, regardless of their names.
#[test]
fn a_published_node_manager_is_found_beside_the_cloud_controller_manager() {
    let image = "mcr.microsoft.com/oss/kubernetes/azure-cloud-node-manager:v1.28.0";
    let container = json!({
        "name": "cloud-node-manager", "image": image,
        "command": ["cloud-node-manager", "--node-name=$(NODE_NAME)", "--wait-routes=true"],
    });
    let pod = json!({
        "hostNetwork": true, "nodeSelector": {"kubernetes.io/os": "linux"}, "serviceAccountName": "cloud-node-manager",
        "tolerations": [{"operator": "Exists"}], "containers": [container],
    });
    let found = existing(&workload("DaemonSet", "kube-system", "cloud-node-manager", &pod)).unwrap();
    assert!(found.is_certain && found.is_beside(catalog().kubernetes_of("azure").unwrap()));
}

#[test]
fn only_of_one_that_is_certain_a_refusal_is_promised() {
    let (catalog, found) = (catalog(), Found::new());
    let input = Input {
        found: &found,
        taken_ports: &[],
        minor: CLUSTER.minor,
        name: "main",
        secret_name: "new-secret",
        cloud_config: None,
        has_credentials: false,
    };
    for (image, promise) in [
        ("docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.30.1", "until then the check other-ccm refuses"),
        ("registry.example/own/cloud-controller-manager:v1", "the check other-ccm only warns until then"),
    ] {
        let mut live = hcloud();
        let container = &mut live["spec"]["template"]["spec"]["containers"][0];
        container["image"] = json!(image);
        container["args"] = json!(["--leader-elect=false"]);
        let existing = existing(&live).unwrap();
        let proposed = keep::proposal(&existing, catalog.kubernetes_of("hcloud").unwrap(), &input);
        let changed = with(&proposed, Handling::Changed).join("\n");
        assert!(changed.contains(promise), "{changed}");
        assert_eq!(proposed.skips, None);
    }
}

#[test]
fn a_variable_that_the_provider_allows_is_kept_and_none_is_taken_out_of_a_secret() {
    let key = |kind: &str, name: &str, key: &str| json!({kind: {"name": name, "key": key, "optional": true}});
    let mut live = hcloud();
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([
        {"name": "HCLOUD_TOKEN", "valueFrom": key("secretKeyRef", "hcloud", "token")},
        {"name": "ROBOT_USER", "valueFrom": key("secretKeyRef", "hcloud", "robot-user")},
        {"name": "ROBOT_PASSWORD", "valueFrom": key("secretKeyRef", "hcloud", "robot-password")},
        {"name": "ROBOT_ENABLED", "value": "true"},
        {"name": "HCLOUD_ENDPOINT", "value": "https://api.example.com"},
        {"name": "ZONE", "value": "eu-central"},
        {"name": "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "value": "$(ZONE)"},
        {"name": "HCLOUD_SERVER_CACHE_MODE", "value": "$(ROBOT_USER)"},
        {"name": "HCLOUD_LOAD_BALANCERS_ENABLED", "value": "false"},
        {"name": "HCLOUD_LOAD_BALANCERS_LOCATION", "valueFrom": key("configMapKeyRef", "settings", "location")},
        {"name": "HCLOUD_LOAD_BALANCERS_TYPE", "valueFrom": key("configMapKeyRef", "settings", "type")},
        {"name": "HCLOUD_INSTANCES_ADDRESS_FAMILY", "valueFrom": key("secretKeyRef", "hcloud", "family")},
    ]);
    container["envFrom"] = json!([
        {"prefix": "HCLOUD_", "configMapRef": {"name": "parts"}}, {"configMapRef": {"name": "absent"}},
        {"configMapRef": {"name": "settings"}}, {"configMapRef": {"name": "more"}}, {"secretRef": {"name": "hcloud"}},
    ]);
    let mut found = Found::new();
    let data = json!({"token": "t", "robot-user": "u", "robot-password": "p4ss", "family": "ipv6", "ROBOT_CACHE_TIMEOUT": "1m"});
    put(&mut found, "Secret", "kube-system", "hcloud", &data);
    let data = json!({"location": "fsn1", "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "false", "HCLOUD_DEBUG": "1"});
    put(&mut found, "ConfigMap", "kube-system", "settings", &data);
    put(&mut found, "ConfigMap", "kube-system", "parts", &json!({"LOAD_BALANCERS_DISABLE_IPV6": "true"}));
    put(&mut found, "ConfigMap", "kube-system", "more", &json!({"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "true"}));
    let kept = proposed(&live, &found);
    let expected = json!({
        "ROBOT_ENABLED": "true", "HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1", "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "true",
        "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6": "true", "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE": "eu-central",
    });
    assert_eq!(kept.spec["environment"], expected);
    assert_eq!(kept.spec["controllers"]["service"], "Disabled");
    assert_eq!(kept.spec["credentials"], json!({"secretRef": {"name": "hcloud"}}));
    let to_do = with(&kept, Handling::ToDo).join("\n");
    for variable in ["HCLOUD_INSTANCES_ADDRESS_FAMILY", "ROBOT_CACHE_TIMEOUT"] {
        assert!(to_do.contains(&format!("variable {variable} (Secret kube-system/hcloud")), "{to_do}");
    }
    assert!(!to_do.contains("HCLOUD_LOAD_BALANCERS_TYPE"), "{to_do}");
    assert!(to_do.contains("HCLOUD_SERVER_CACHE_MODE -> its value refers to another variable"), "{to_do}");
    assert!(to_do.contains("the variables of ConfigMap kube-system/absent"), "{to_do}");
    let lost = with(&kept, Handling::NotKept).join("\n");
    assert!(lost.contains("variable HCLOUD_ENDPOINT") && !lost.contains("variable token"), "{lost}");
    assert_eq!(
        with(&kept, Handling::Unused).last().map(String::as_str),
        Some("variable HCLOUD_DEBUG -> it only logs requests")
    );
}

/// Azure's, as its chart installs it, with these controllers.
fn azure(controllers: &str) -> Value {
    workload(
        "Deployment",
        "kube-system",
        "cloud-controller-manager",
        &json!({
            "hostNetwork": true, "serviceAccountName": "cloud-controller-manager",
            "containers": [{
                "name": "cloud-controller-manager",
                "image": "mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-controller-manager:v1.36.0",
                "args": [
                    "--cloud-provider=azure", "--allocate-node-cidrs=true", format!("--controllers={controllers}"),
                    "--configure-cloud-routes=true", "--cluster-cidr=10.244.0.0/16", "--secure-port=10268",
                ],
                "ports": [{"containerPort": 10268, "name": "https"}, {"containerPort": 8233, "name": "metrics"}],
            }],
        }),
    )
}

#[test]
fn a_controller_a_port_and_a_version_that_change_are_named() {
    let lost = |controllers: &str| with(&proposed(&azure(controllers), &Found::new()), Handling::NotKept).join("\n");
    for controllers in ["*,-cloud-node", "node-ipam-controller,service", "nodeipam"] {
        assert!(lost(controllers).contains("new nodes get no spec.podCIDR"), "{controllers}: {}", lost(controllers));
        assert!(!lost(controllers).contains("(--controllers)"), "{controllers}: {}", lost(controllers));
    }
    for controllers in ["*,-node-ipam", "service,-nodeipam", "cloud-node-lifecycle"] {
        assert!(!lost(controllers).contains("podCIDR"), "{controllers}: {}", lost(controllers));
    }
    let changed = with(&proposed(&azure("*"), &Found::new()), Handling::Changed).join("\n");
    assert!(changed.contains("port 8233 (metrics) -> nothing listens there"), "{changed}");
    assert!(!changed.contains("port 10268"), "{changed}");
    assert!(changed.contains("v1.36.0 -> v1.35.8, a lower version, the tag for Kubernetes 1.35"), "{changed}");
}
