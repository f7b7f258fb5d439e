//! The lease of a `CloudControllerManager` in the roles of its provider.

use super::*;

#[test]
fn whatever_stands_beside_it_the_lease_is_that_of_the_object() {
    let second = Ccm { name: "second".into(), ..ccm("aws", json!({})) };
    for (before, after) in [
        (json!(["cloud-controller-manager"]), json!(["cloud-controller-manager-second"])),
        (json!(["a", "cloud-controller-manager"]), json!(["a", "cloud-controller-manager-second"])),
        (json!(["a"]), json!(["a"])),
    ] {
        for (resources, expected) in
            [(json!(["leases"]), &after), (json!(["events", "leases"]), &after), (json!(["events"]), &before)]
        {
            let rules = json!([{"apiGroups": [""], "resources": resources, "resourceNames": before, "verbs": ["get"]}]);
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "a", "namespace": "kube-system"}, "rules": rules});
            let mut role = Object::new(role).unwrap();
            names(&mut role, &[], &second);
            assert_eq!(role.value()["rules"][0]["resourceNames"], *expected, "{resources}");
        }
    }
}
