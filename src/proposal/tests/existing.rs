//! Finds cloud-controller-managers, reads their flags as Go does, and shows no secrets.

use serde_json::json;

use super::{Found, aws, catalog, existing, hcloud, proposed, with, workload};
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
        name: "main",
        secret_name: "new-secret",
        has_cloud_config: false,
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
