//! Nodes as the distributions register them: versions, labels, annotations, taints.

use serde_json::json;

use super::*;
use crate::facts::ccm::Controller::{self, CloudNode, CloudNodeLifecycle, Service};

/// A node with its labels, annotations, version of the kubelet and operating system.
fn node(labels: &Value, annotations: &Value, kubelet: &str, system: &str) -> Value {
    json!({
        "metadata": {"labels": labels, "annotations": annotations},
        "status": {"nodeInfo": {"kubeletVersion": kubelet, "osImage": system}},
    })
}

#[test]
fn each_distribution_is_known_by_its_nodes() {
    let control_plane = |value: &str| json!({"node-role.kubernetes.io/control-plane": value});
    let k0s = json!({"node-role.kubernetes.io/control-plane": "true", "node.k0sproject.io/role": "control-plane"});
    let kubeadm = json!({"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"});
    let k3s = json!({"k3s.io/hostname": "server-0", "k3s.io/node-args": "[\"server\"]"});
    let rke2 = json!({"rke2.io/node-args": "[\"server\"]"});
    let (none, plain, ubuntu) = (json!({}), "v1.35.4", "Ubuntu 24.04.3 LTS");
    for (expected, live) in [
        (Some(Distribution::Kubeadm), node(&control_plane(""), &kubeadm, "v1.33.5", ubuntu)),
        (Some(Distribution::K3s), node(&control_plane("true"), &k3s, "v1.35.4+k3s1", ubuntu)),
        (Some(Distribution::K3s), node(&none, &none, "v1.35.4+k3s1", ubuntu)),
        (Some(Distribution::K3s), node(&none, &k3s, "", "")),
        (Some(Distribution::Rke2), node(&control_plane("true"), &rke2, "v1.35.4+rke2r1", ubuntu)),
        (Some(Distribution::Rke2), node(&none, &rke2, "", "")),
        (Some(Distribution::Talos), node(&control_plane(""), &none, plain, "Talos (v1.12.0)")),
        (Some(Distribution::Talos), node(&none, &json!({"talos.dev/owned-labels": "[]"}), plain, "")),
        (Some(Distribution::K0s), node(&k0s, &none, "v1.35.4+k0s", ubuntu)),
        (Some(Distribution::K0s), node(&k0s, &none, "", "")),
        (None, node(&control_plane(""), &none, plain, ubuntu)),
        (None, node(&none, &none, "v1.35.4-eks-1a2b3c", "Amazon Linux 2023")),
    ] {
        assert_eq!(of_node(&live), expected, "{live}");
    }
    // Since Kubernetes 1.34 the field manager is the only mark that kubeadm leaves.
    let mut live = node(&control_plane(""), &none, plain, ubuntu);
    live["metadata"]["managedFields"] = json!([{"manager": "kubelet"}, {"manager": "kubeadm", "operation": "Update"}]);
    assert_eq!(of_node(&live), Some(Distribution::Kubeadm));
    live["metadata"]["managedFields"][1]["manager"] = "kops-controller".into();
    assert_eq!(of_node(&live), None);
}

#[test]
fn the_controllers_of_the_cloud_controller_of_k3s_follow_from_its_arguments() {
    let controllers = |arguments: &str| {
        let live = node(&json!({}), &json!({K3S_ARGUMENTS: arguments}), "v1.35.4+k3s1", "");
        k3s_controllers(&live).map(|argument| Controller::of_argument(Some(&argument)))
    };
    for (arguments, expected) in [
        (r#"["server"]"#, Some(vec![CloudNode, CloudNodeLifecycle, Service])),
        (r#"["server","--disable","servicelb","--disable","traefik"]"#, Some(vec![CloudNode, CloudNodeLifecycle])),
        (r#"["server","--disable","traefik,servicelb","--disable-cloud-controller"]"#, Some(vec![])),
        (
            r#"["server","--disable-cloud-controller","true","--kubelet-arg","cloud-provider=external"]"#,
            Some(vec![Service]),
        ),
        (
            r#"["server","--disable-cloud-controller","false","--disable","servicelb"]"#,
            Some(vec![CloudNode, CloudNodeLifecycle]),
        ),
        (r#"["agent"]"#, None),
        ("[]", None),
        ("server", None),
    ] {
        assert_eq!(controllers(arguments), expected, "{arguments}");
    }
    assert_eq!(k3s_controllers(&json!({})), None);
}

#[test]
fn a_provider_id_of_a_distribution_is_told_from_that_of_a_cloud() {
    for (provider_id, expected) in [
        ("k3s://server-0", Some(K3S)),
        ("rke2://server-0", Some(RKE2)),
        ("k0s-cloud-provider://worker-0", Some(K0S)),
        ("talos://metal/10.0.0.1", Some(TALOS)),
        ("hcloud://1", None),
        ("", None),
    ] {
        assert_eq!(writer_of_provider_id(provider_id), expected, "{provider_id}");
    }
}

#[test]
fn every_distribution_of_the_api_is_known_by_its_name() {
    let schema = serde_json::to_value(schemars::schema_for!(Distribution)).unwrap();
    let variants = schema["oneOf"].as_array().unwrap().iter().map(|one| one["const"].clone());
    let variants: Vec<Distribution> = variants.map(|name| serde_json::from_value(name).unwrap()).collect();
    assert_eq!(variants, [&[Distribution::Auto], &Distribution::ALL[..]].concat());
    for one in Distribution::ALL {
        let known = one.properties();
        assert_eq!((known.distribution, json!(known.name)), (one, json!(one)));
        assert_eq!(known.flag, known.name.to_lowercase());
    }
}

#[test]
fn the_page_and_the_chart_know_each_distribution() {
    let page = include_str!("../../../../../docs/any-kubernetes.md");
    for one in &KNOWN {
        let kubelets = format!("| {} | {} |", one.title, one.external_kubelets);
        let signs = [one.version, one.annotation, one.label, one.own.map(|own| own.scheme)].into_iter().flatten();
        let is_row = |line: &str| signs.clone().all(|sign| line.contains(sign));
        let mut rows = page.lines().filter(|line| line.starts_with(&format!("| {} |", one.title)));
        assert!(page.contains(&kubelets), "no row {kubelets}");
        assert!(rows.any(is_row), "no row of {} with {:?}", one.title, signs.collect::<Vec<_>>());
        if let Some(Local { host, port, .. }) = one.local {
            let row = format!("| {} | {host}:{port}", one.title);
            assert!(page.contains(&row), "no row {row}");
        }
    }
    let values = include_str!("../../../../../charts/ccm-operator/values.yaml");
    for one in Distribution::ALL {
        assert!(values.contains(one.properties().flag), "{}", one.properties().flag);
    }
}

#[test]
fn the_page_of_another_clouds_provider_id_says_how_each_distribution_stops_writing_them() {
    let pages = include_str!("../../../../../docs/nodes.md");
    let page = pages.split("\n## ").find(|page| page.starts_with("N12 ")).unwrap();
    for (title, own) in KNOWN.iter().filter_map(|one| Some((one.title, one.own?))) {
        assert!(page.contains(&format!("`{}`", own.scheme)) && page.contains(&format!("\n| {title} | ")), "{title}");
    }
}
