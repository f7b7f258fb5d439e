//! The permissions of each account, and the nodes on which its tokens are.

use super::*;

/// The rules that an additional manifest of Exoscale breaks.
fn broken(manifest: &str) -> Vec<String> {
    let text = manifest.to_owned() + KUBERNETES[BUDGET].1;
    let found =
        check_external(&parsed_providers_with("exoscale", &KUBERNETES, BUDGET, &text), &Policy::default()).findings;
    found.iter().map(|one| serde_json::to_value(one).unwrap()["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_daemon_set_has_an_account_of_its_own_whatever_its_container_is_called() {
    assert_eq!(broken(SHARING), ["external-account", "external-placement"]);
    let other = SHARING.replace("- name: cloud-controller-manager", "- name: agent").replace(
        "serviceAccountName: exoscale-cloud-controller-manager",
        "serviceAccount: exoscale-cloud-controller-manager",
    );
    // The descriptor has no image for it either.
    let expected = ["external-account", "external-placement"].map(str::to_owned);
    let found: Vec<_> = broken(&other).into_iter().filter(|rule| expected.contains(rule)).collect();
    assert_eq!(found, expected);
    let own = SHARING
        .replace("serviceAccountName: exoscale-cloud-controller-manager", "serviceAccountName: exoscale-cloud-x");
    assert_eq!(broken(&own), [""; 0]);
}

#[test]
fn a_second_deployment_is_on_the_control_plane_too() {
    let deployment = SHARING.replace("kind: DaemonSet", "kind: Deployment");
    assert_eq!(broken(&deployment), ["external-placement"]);
}

#[test]
fn a_cluster_role_of_a_node_manager_is_about_nodes_and_goes_with_it() {
    let found = |from: &str, to: &str| {
        let files = embedded::scaffold().into_iter().filter(|(path, _)| path.starts_with("assets/kubernetes/"));
        let files = files.map(|(path, text)| {
            let is_changed = path.ends_with("/node-manager.yaml") && !from.is_empty();
            assert!(!is_changed || text.contains(from), "{from:?} is missing");
            let text = if is_changed { text.replacen(from, to, 1) } else { text.to_owned() };
            (path, text.into_bytes())
        });
        let found = check_external(&parsed_providers_of("example", files), &Policy::default()).findings;
        let found = found.iter().map(ToString::to_string);
        found.filter(|finding| finding.ends_with("(external-cluster-role)")).collect::<Vec<_>>()
    };
    assert_eq!(found("", ""), [""; 0]);
    let [services] = &found("  resources: [nodes]\n", "  resources: [nodes, services]\n")[..] else { panic!() };
    assert!(services.contains("node-manager.yaml:") && services.contains("grants services"), "{services}");
    let head = "kind: ClusterRole\nmetadata:\n  name: example-cloud-node-manager\n  labels:\n";
    let label = "    app.kubernetes.io/name: example-cloud-node-manager\n";
    let [label] = &found(&[head, label].concat(), head)[..] else { panic!() };
    assert!(label.contains("has not its label app.kubernetes.io/name"), "{label}");
}
