use serde_json::json;

use super::*;
use crate::provider::embedded;

fn existing(account: &str) -> Existing {
    let pod = json!({"serviceAccountName": account, "containers": [{"image": "cloud-controller-manager"}]});
    let live = json!({
        "kind": "Deployment", "metadata": {"name": "ccm", "namespace": "ns"}, "spec": {"template": {"spec": pod}},
    });
    let catalog = embedded::catalog().unwrap();
    let descriptors: Vec<_> = catalog.kubernetes().map(|one| &one.descriptor).collect();
    Existing::of(&live, &descriptors).unwrap()
}

fn binding(kind: &str, namespace: &str, name: &str, role: (&str, &str), others: &[Value]) -> Value {
    let own = json!({"kind": "ServiceAccount", "name": "acc", "namespace": "ns"});
    let subjects: Vec<_> = std::iter::once(own).chain(others.iter().cloned()).collect();
    json!({
        "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": role.0, "name": role.1}, "subjects": subjects,
    })
}

#[test]
fn a_binding_with_any_other_subject_is_shared_and_roles_of_two_namespaces_are_two() {
    for other in [
        json!({"kind": "User", "name": "ann"}),
        json!({"kind": "Group", "name": "system:masters"}),
        json!({"kind": "ServiceAccount", "name": "acc", "namespace": "other"}),
    ] {
        let all = [binding("ClusterRoleBinding", "", "b", ("ClusterRole", "r"), std::slice::from_ref(&other))];
        let (own, shared) = of_account(&all, &existing("acc"));
        assert_eq!((own, shared), (vec![], vec!["ClusterRoleBinding b".to_owned()]), "{other}");
    }
    let all = [
        binding("RoleBinding", "one", "b", ("Role", "r"), &[]),
        binding("RoleBinding", "two", "b", ("Role", "r"), &[]),
        binding("RoleBinding", "two", "c", ("Role", "r"), &[]),
    ];
    let role = |namespace: &str| Own::Role("Role".into(), namespace.into(), "r".into());
    let expected = vec![Own::Binding(&all[0]), role("one"), Own::Binding(&all[1]), role("two"), Own::Binding(&all[2])];
    assert_eq!(of_account(&all, &existing("acc")), (expected, vec![]));
}

#[test]
fn an_account_that_others_use_stays() {
    let pod = |name: &str, owner: Value| {
        json!({
            "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "ownerReferences": [owner]},
            "spec": {"serviceAccountName": "acc"},
        })
    };
    let daemon_set = json!({
        "kind": "DaemonSet", "metadata": {"name": "proxy", "namespace": "ns"},
        "spec": {"template": {"spec": {"serviceAccountName": "acc"}}},
    });
    let of = |live: Value, account: &str| users(&[live], &[existing(account)]);
    assert_eq!(of(pod("ccm-1-x", json!({"kind": "ReplicaSet", "name": "ccm-1"})), "acc"), [""; 0]);
    assert_eq!(of(pod("ccm-b-1-x", json!({"kind": "ReplicaSet", "name": "ccm-b-1"})), "acc"), ["Pod ns/ccm-b-1-x"]);
    assert_eq!(of(pod("job", json!({"kind": "Job", "name": "ccm"})), "acc"), ["Pod ns/job"]);
    assert_eq!(of(daemon_set.clone(), "acc"), ["DaemonSet ns/proxy"]);
    assert_eq!(of(daemon_set.clone(), "own"), [""; 0]);
    assert_eq!(of(daemon_set, "default"), ["all pods that name no account"]);
}

#[test]
fn the_bindings_of_the_account_of_its_node_controller_belong_to_it() {
    let of = |account: &str, name: &str| {
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "kube-system"});
        json!({
            "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [subject],
        })
    };
    // kube-controller-manager uses the last ones, too.
    let all = [of("cloud-node-controller", "a"), of("route-controller", "b"), of("node-controller", "c")];
    let (own, shared) = of_account(&all, &existing("acc"));
    assert_eq!(shared, [""; 0]);
    let name = |one: &Own| match one {
        Own::Binding(binding) => text(&binding["metadata"]["name"]),
        Own::Role(_, _, name) => format!("role {name}"),
    };
    assert_eq!(own.iter().map(name).collect::<Vec<_>>(), ["a", "role a"]);
}
