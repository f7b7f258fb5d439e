//! Mistakes of published manifests of cloud-controller-managers, and the check that ours do not have them.

use std::collections::BTreeSet;

use ccm_operator::object::{Object, permissions};
use serde_json::Value;

use crate::pages::CCM;

/// The verbs that `*` stands for.
const EVERY_VERB: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Each with its id in `docs/clouds/published.yaml`, what it is, and what comes of it.
pub(crate) const PITFALLS: [(&str, &str, &str); 16] = [
    ("deletes-nodes", "may delete every node", "with wrong credentials it deletes all nodes that are not ready"),
    ("reads-secrets", "may read every Secret", "an attacker in the CCM has all credentials of the cluster"),
    (
        "makes-tokens",
        "may create ServiceAccounts or their tokens",
        "an attacker in the CCM can act as any ServiceAccount",
    ),
    ("wildcards", "has a permission with `*`", "it grants permissions that nobody has reviewed"),
    ("pod-network", "is not on the host network", "it waits for a network plugin that may wait for it"),
    ("cluster-dns", "needs cluster DNS", "DNS runs only on nodes that the CCM has initialized"),
    (
        "not-ready",
        "does not tolerate the taint `not-ready:NoSchedule`",
        "it is not scheduled before there is a network plugin",
    ),
    ("control-plane-taint", "does not tolerate the control-plane taint", "it runs on no control-plane node"),
    ("label-value", "compares the value of the control-plane label", "on k3s, RKE2 and k0s no node fits"),
    ("no-probe", "has no liveness probe", "a process that hangs is not restarted"),
    ("root", "may run as root", "it has more privileges than it needs"),
    ("privileges", "keeps capabilities, or may gain privileges", "it has more privileges than it needs"),
    ("writable", "has a writable root file system", "it has more privileges than it needs"),
    ("host-path", "mounts host folders", "Talos, k3s, RKE2 and k0s do not have them"),
    ("floating-image", "does not pin a version of its image", "a restart may start another version"),
    ("no-election", "has leader election turned off", "two CCMs act at once during an update"),
];

/// The permissions in the whole cluster, each as API group, resource and verb.
pub(crate) fn permissions(objects: &[Object]) -> BTreeSet<(String, String, String)> {
    let roles = objects.iter().filter(|object| object.kind().kind == "ClusterRole");
    let grants = roles.flat_map(|role| permissions::of_role(role.value()).unwrap_or_default());
    let each = grants.flat_map(|grant| {
        let verbs = if grant.verb == "*" { EVERY_VERB.to_vec() } else { vec![grant.verb] };
        verbs.into_iter().map(move |verb| (grant.group.to_owned(), grant.resource.to_owned(), verb.to_owned()))
    });
    each.collect()
}

/// The ids of the mistakes in these manifests, in the order of the list. Only pods of the cloud-controller-manager count.
pub(crate) fn of(objects: &[Object]) -> Vec<&'static str> {
    let roles = objects.iter().filter(|object| object.kind().kind == "ClusterRole");
    let is_ccm = |pod: &&Value| list(&pod["containers"]).any(|container| container["name"] == CCM);
    let pods = objects.iter().filter_map(Object::pod_spec).filter(is_ccm);
    let found: BTreeSet<_> = roles.flat_map(of_role).chain(pods.flat_map(of_pod)).collect();
    PITFALLS.into_iter().map(|(id, ..)| id).filter(|id| found.contains(id)).collect()
}

fn of_role(role: &Object) -> Vec<&'static str> {
    let grants = permissions::of_role(role.value()).unwrap_or_default();
    let may = |resource: &str, verbs: &[&str]| {
        let is_it = |name: &str, wanted: &str| name == wanted || name == "*";
        let is_granted = |verb: &&str| {
            grants.iter().any(|one| one.names.is_empty() && is_it(one.resource, resource) && is_it(one.verb, verb))
        };
        verbs.iter().any(is_granted)
    };
    let is_any = grants.iter().any(|one| one.resource == "*" || one.verb == "*");
    let found = [
        ("deletes-nodes", may("nodes", &["delete"])),
        ("reads-secrets", may("secrets", &["get", "list", "watch"])),
        ("makes-tokens", may("serviceaccounts", &["create"]) || may("serviceaccounts/token", &["create"])),
        ("wildcards", is_any),
    ];
    chosen(&found)
}

fn chosen(found: &[(&'static str, bool)]) -> Vec<&'static str> {
    found.iter().filter(|(_, is_found)| *is_found).map(|(id, _)| *id).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn of_pod(pod: &Value) -> Vec<&'static str> {
    let is_on_host = pod["hostNetwork"] == true;
    // For a pod on the network of the host, the default is the DNS of the host.
    let policy = pod["dnsPolicy"].as_str().unwrap_or("ClusterFirst");
    let uses_its_dns = policy == "Default" || (is_on_host && policy == "ClusterFirst");
    let tolerates = |key: &str| {
        list(&pod["tolerations"]).any(|one| {
            let is_key = one["key"] == key || (one["key"].is_null() && one["operator"] == "Exists");
            is_key && (one["effect"].is_null() || one["effect"] == "NoSchedule")
        })
    };
    let selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let found = [
        ("pod-network", !is_on_host),
        ("cluster-dns", !uses_its_dns),
        ("not-ready", !tolerates("node.kubernetes.io/not-ready")),
        ("control-plane-taint", !tolerates("node-role.kubernetes.io/control-plane")),
        ("label-value", selector.into_iter().any(|(key, _)| key.starts_with("node-role.kubernetes.io/"))),
        ("host-path", list(&pod["volumes"]).any(|volume| !volume["hostPath"].is_null())),
    ];
    let of_containers = list(&pod["containers"]).flat_map(|container| of_container(pod, container));
    chosen(&found).into_iter().chain(of_containers).collect()
}

fn of_container(pod: &Value, container: &Value) -> Vec<&'static str> {
    let setting = |name: &str| {
        let own = &container["securityContext"][name];
        if own.is_null() { &pod["securityContext"][name] } else { own }
    };
    let is_root = setting("runAsNonRoot") != true && setting("runAsUser").as_u64().unwrap_or_default() == 0;
    let drops_all = list(&setting("capabilities")["drop"]).any(|one| one == "ALL");
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    let arguments = || list(&container["command"]).chain(list(&container["args"]));
    chosen(&[
        ("no-probe", container["livenessProbe"].is_null()),
        ("root", is_root),
        ("privileges", !drops_all || setting("allowPrivilegeEscalation") != false),
        ("writable", setting("readOnlyRootFilesystem") != true),
        ("floating-image", tag.is_none_or(|tag| tag == "latest")),
        ("no-election", arguments().any(|one| one == "--leader-elect=false")),
    ])
}

#[test]
fn each_pitfall_is_found() {
    let role = |rule: Value| serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}, "rules": [rule]});
    let grant =
        |resource: &str, verb: &str| serde_json::json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]});
    let workload = |pod: Value| {
        serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"spec": pod}}})
    };
    let objects = |all: &[Value]| all.iter().map(|one| Object::new(one.clone()).unwrap()).collect::<Vec<_>>();
    let bad = workload(serde_json::json!({
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""}, "volumes": [{"name": "a", "hostPath": {"path": "/etc"}}],
        "containers": [{"name": CCM, "image": "a/b:latest", "args": ["--leader-elect=false"]}],
    }));
    let roles =
        [role(grant("nodes", "delete")), role(grant("secrets", "*")), role(grant("serviceaccounts/token", "create"))];
    let ids: Vec<_> = PITFALLS.iter().map(|(id, ..)| *id).collect();
    assert_eq!(of(&objects(&[&roles[..], &[bad]].concat())), ids);
    assert_eq!(permissions(&objects(&roles)).len(), 10);
    let good = workload(serde_json::json!({
        "hostNetwork": true, "tolerations": [{"operator": "Exists"}], "securityContext": {"runAsUser": 65532},
        "containers": [{"name": CCM, "image": "registry:5000/b:v1", "livenessProbe": {}, "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        }}],
    }));
    let mut named = grant("secrets", "get");
    named["resourceNames"] = serde_json::json!(["a"]);
    assert_eq!(of(&objects(&[role(named), good])), Vec::<&str>::new());
}
