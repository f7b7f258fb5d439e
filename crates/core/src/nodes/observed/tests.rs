use serde_json::json;

use super::*;

fn pod(name: &str, node: &str, is_on_host_network: bool) -> Pod {
    Pod { name: name.into(), node: node.into(), is_on_host_network, ..Pod::default() }
}

#[test]
fn the_holder_of_a_lease_names_its_pod() {
    let long = "x".repeat(70);
    let pods = [
        pod("a-1", "ip-10-0-0-1.ec2.internal", true),
        pod("b-1", "n2", true),
        pod("c", "n3", false),
        pod(&long, "n4", false),
    ];
    let name = |holder: &str| {
        let lease = Lease { holder: holder.into(), ..Lease::default() };
        pods.iter().find(|pod| holds(&lease, pod)).map(|pod| pod.name.as_str())
    };
    assert_eq!(name("n2_0f1b-2"), Some("b-1"));
    assert_eq!(name("ip-10-0-0-1.ec2.internal_0f1b"), Some("a-1"));
    assert_eq!(name("ip-10-0-0-1_0f1b"), Some("a-1"), "the host lacks the domain");
    assert_eq!(name("n2.example.com_0f1b"), Some("b-1"), "the name of the node lacks the domain");
    assert_eq!(name("c_0f1b"), Some("c"));
    assert_eq!(name(&format!("{}_0f1b", &long[..63])), Some(long.as_str()), "a host name is cut");
    for holder in ["", "_0f1b", "n3_0f1b", "b-1_0f1b", "other_0f1b"] {
        assert_eq!(name(holder), None, "{holder:?}");
    }
}

#[test]
fn a_pod_keeps_why_it_does_not_run_and_what_it_is_told() {
    let live = json!({
        "metadata": {"name": "ccm-a", "namespace": "kube-system", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "nodeName": "n1", "hostNetwork": true,
            "containers": [
                {"name": "sidecar", "image": "x/sidecar:1", "args": ["--controllers=none"]},
                {"name": CCM, "image": "x/ccm:1", "command": ["/bin/sh", "-c", "exec /ccm --controllers=*,-cloud-node \\\n --v 2"],
                    "args": ["--leader-elect-resource-name", "own"]},
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True", "message": "x"}],
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
            "containerStatuses": [
                {"restartCount": 1, "state": {"running": {}}},
                {"restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                    "lastState": {"terminated": {"exitCode": 255, "reason": "Error",
                        "message": "I0101 x\nF0101 main.go:1] password=hunter2 \u{1b}[31mno ClusterID\nfound"}}},
            ],
        },
    });
    let pod = Pod::of(&live);
    assert_eq!(pod.waiting, Some(("CrashLoopBackOff".into(), "back-off 40s".into())));
    let (reason, message) = pod.terminated.unwrap();
    assert_eq!((reason.as_str(), pod.restarts, pod.is_ready), ("Error", 5, false));
    assert!(
        message.starts_with("F0101 main.go:1]") && message.ends_with("\u{fffd}[31mno ClusterID found"),
        "{message:?}"
    );
    assert!(!message.contains("hunter2"), "{message:?}");
    assert_eq!(pod.controllers.unwrap(), [Controller::CloudNodeLifecycle, Controller::Service, Controller::Route]);
    assert_eq!(pod.lease_name, "own");
    assert_eq!((pod.unschedulable, pod.node.as_str(), pod.is_on_host_network), (None, "n1", true));

    let pending = json!({
        "metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"},
        ]},
    });
    let pending = Pod::of(&pending);
    assert_eq!(pending.unschedulable.as_deref(), Some("0/1 nodes are available"));
    assert_eq!((pending.controllers, pending.lease_name.as_str(), pending.waiting), (None, LEASE, None));
}

#[test]
fn only_the_script_of_a_shell_is_split_at_spaces() {
    let flags = |container: Value| {
        let word = |(flag, value): (String, Option<String>)| format!("{flag}={}", value.unwrap_or_default());
        flags(&container).into_iter().map(word).collect::<Vec<_>>()
    };
    let plain = json!({"command": ["/ccm", "--tags=prod team-a"], "args": ["--prefix", "a b", "--on", "--v=2"]});
    assert_eq!(flags(plain.clone()), ["tags=prod team-a", "prefix=a b", "on=", "v=2"]);
    let script = "set -e; # it's a comment\nexec /ccm --tags=\"prod team-a\" --name='it is' \\\n  --v 2";
    for command in [json!(["/bin/sh", "-c", script]), json!(["/usr/bin/env", "bash", "-ec", script])] {
        let container = json!({"command": command});
        assert!(runs_script(&container) && !runs_script(&plain), "{command}");
        assert_eq!(flags(container), ["e=exec", "tags=prod team-a", "name=it is", "v=2"], "{command}");
    }
    assert_eq!(flags(json!({"command": ["sh", "-c", "echo it's; /ccm --v=2"]})), ["v=2"], "the quote has no end");
    let joined = r#"exec /ccm --cluster-name=prod;>log --tags="a\.b\"c" --last=1&"#;
    let expected = ["cluster-name=prod", "tags=a\\.b\"c", "last=1"];
    assert_eq!(flags(json!({"command": ["sh", "-c", joined]})), expected, "operators end words");
    // Without a script the words of a shell are those of any program.
    assert_eq!(flags(json!({"command": ["/bin/sh", "/start.sh", "--tags=a b"]})), ["tags=a b"]);
}

#[test]
fn other_cloud_controller_managers_are_known_by_image_or_name() {
    let is = |name: &str, image: &str| {
        is_ccm(&json!({"metadata": {"name": name}, "spec": {"containers": [{"image": image}]}}))
    };
    for (name, image) in [
        ("cloud-controller-manager-server-1", "rancher/hardened-kubernetes:v1"),
        ("x", "rancher/rke2-cloud-provider:v1"),
        ("x", "registry.k8s.io/provider-aws/cloud-controller-manager:v1.35.2"),
        ("x", "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.35.1"),
        ("x", "apache/cloudstack-kubernetes-provider:v1.2.0"),
    ] {
        assert!(is(name, image), "{name} {image}");
    }
    for (name, image) in [
        ("coredns-1", "registry.k8s.io/coredns:1"),
        ("x", "quay.io/x/cluster-cloud-controller-manager-operator:1"),
        ("x", "registry.k8s.io/cloud-provider-gcp/gcp-compute-persistent-disk-csi-driver:v1"),
        ("kube-vip-cloud-provider-0", "ghcr.io/kube-vip/kube-vip-cloud-provider:v0.0.4"),
        ("azure-cloud-node-manager-1", "mcr.microsoft.com/oss/v2/kubernetes/azure-cloud-node-manager:v1"),
        (
            "digitalocean-cloud-controller-manager-admission-server-1",
            "digitalocean/digitalocean-cloud-controller-manager-admission-server:v0.1.68",
        ),
    ] {
        assert!(!is(name, image), "{name} {image}");
    }
}

#[test]
fn leases_and_events_are_read_in_all_their_forms() {
    let lease = Lease::of(&json!({
        "metadata": {"name": "cloud-controller-manager-second", "namespace": "kube-system"},
        "spec": {"holderIdentity": "n_1", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15},
    }));
    assert!(lease.is_ccms() && lease.renewed.is_some() && lease.duration_seconds == 15);
    assert!(Lease::of(&json!({"metadata": {"name": "k3s-cloud-controller-manager"}})).is_ccms());
    assert!(!Lease::of(&json!({"metadata": {"name": "kube-scheduler"}})).is_ccms());

    let old = NodeEvent::of(&json!({
        "involvedObject": {"kind": "Node", "name": "a", "uid": "u"}, "reason": "DeletingNodeFailed", "message": "token=abcdefghijklmnop\u{7}",
        "source": {"component": "cloud-node-lifecycle-controller"}, "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z",
    }));
    assert_eq!(old.component, "cloud-node-lifecycle-controller");
    assert!(old.last.is_some() && !old.message.contains("abcdef") && !old.message.contains('\u{7}'), "{old:?}");
    let new = NodeEvent::of(&json!({
        "involvedObject": {"name": "a"}, "reason": "X", "reportingComponent": "route_controller", "source": {},
        "lastTimestamp": null, "eventTime": "2026-01-01T00:00:00.000001Z",
        "series": {"count": 7, "lastObservedTime": "2026-01-02T00:00:00.000001Z"},
    }));
    assert_eq!(new.component, "route_controller");
    assert_eq!(new.last.unwrap().to_string(), "2026-01-02T00:00:00.000001Z");
}

#[test]
fn a_log_is_masked_line_by_line() {
    let log = "I0101 ok\r\n\nE0101 error syncing 'n': 401 \u{1b}[2Jpassword: hunter2secret9, requeuing\n";
    let lines = lines(log);
    assert_eq!(lines.len(), 2);
    assert!(lines[1].contains("error syncing 'n'") && !lines[1].contains('\u{1b}'), "{lines:?}");
    assert!(!lines[1].contains("hunter2"), "{lines:?}");
}
