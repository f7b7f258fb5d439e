use std::time::Instant;

use super::*;
use crate::{
    facts::ccm::Controller,
    nodes::{
        evidence::{CcmEvidence, Lease, Pod, Unseen},
        identity::CcmIdentity,
        node::{Ready, SHUTDOWN, UNINITIALIZED},
        observed,
    },
};

mod gone;

const NOW: &str = "2026-01-01T12:00:00Z";
const LONG_AGO: &str = "2026-01-01T10:00:00Z";
const JUST_NOW: &str = "2026-01-01T11:59:50Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// A node that is initialized and ready.
fn healthy(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}"),
        created: LONG_AGO.into(),
        provider_id: format!("aws:///eu-1a/i-{name}"),
        ready: Some(Ready { status: "True".into(), since: LONG_AGO.into(), ..Ready::default() }),
        has_pod_cidr: true,
        region: "eu-1".into(),
        zone: "eu-1a".into(),
        addresses: vec!["InternalIP 10.0.0.1".into()],
        ..Node::default()
    }
}

/// A node that waits for its cloud-controller-manager.
fn waiting(name: &str) -> Node {
    Node {
        provider_id: String::new(),
        taints: vec![UNINITIALIZED.into()],
        ready: Some(Ready { status: "False".into(), since: LONG_AGO.into(), ..Ready::default() }),
        region: String::new(),
        zone: String::new(),
        ..healthy(name)
    }
}

fn pod() -> Pod {
    Pod {
        name: "ccm-1".into(),
        namespace: "kube-system".into(),
        node: "b".into(),
        is_on_host_network: true,
        phase: "Running".into(),
        is_ready: true,
        created: LONG_AGO.into(),
        lease_name: "cloud-controller-manager".into(),
        ..Pod::default()
    }
}

fn lease(holder: &str) -> Lease {
    Lease {
        namespace: "kube-system".into(),
        name: "cloud-controller-manager".into(),
        holder: holder.into(),
        renewed: Some(at(JUST_NOW)),
        duration_seconds: 15,
    }
}

/// A healthy cluster, except that `a` waits for an unknown reason.
fn evidence() -> Evidence {
    let ccm = CcmEvidence {
        identity: CcmIdentity {
            name: "aws".into(),
            provider: "aws".into(),
            namespace: "kube-system".into(),
            provider_ids: vec!["aws:///".into()],
            has_zones: true,
            account: "aws".into(),
            lease_name: "cloud-controller-manager".into(),
            ..CcmIdentity::default()
        },
        is_installed: Some(true),
        pods: Some(vec![pod()]),
        missing_permissions: Some(Vec::new()),
        log: Some(Vec::new()),
        ..CcmEvidence::default()
    };
    Evidence {
        now: at(NOW),
        nodes: vec![waiting("a"), healthy("b"), healthy("c")],
        ccms: vec![ccm],
        leases: Some(vec![lease("b_1")]),
        other_pods: Some(Vec::new()),
        events: Some(Vec::new()),
        ..Evidence::default()
    }
}

#[test]
fn what_is_not_installed_shows_what_its_object_says() {
    let evidence = with(|evidence| {
        evidence.ccms[0].is_installed = Some(false);
        let name = evidence.ccms[0].identity.name.clone();
        evidence.not_ready = [(name, "Secret kube-system/hcloud does not exist: create it".into())].into();
    });
    let found = diagnose(&evidence);
    let shown: Vec<_> = found.iter().flat_map(|one| &one.findings).map(|finding| finding.evidence.as_str()).collect();
    assert_eq!(shown.first(), Some(&"there is no workload: Secret kube-system/hcloud does not exist: create it"));
}

type Change = fn(&mut Evidence);

fn with(change: Change) -> Evidence {
    let mut evidence = evidence();
    change(&mut evidence);
    evidence
}

fn logs(evidence: &mut Evidence, lines: &[&str]) {
    let headed = lines.iter().map(|line| format!("E0101 11:59:59.000000       1 node_controller.go:237] {line}"));
    evidence.ccms[0].log = Some(headed.collect());
}

/// Makes the newest attempt for `a` fail with this error.
fn fails(evidence: &mut Evidence, error: &str) {
    logs(evidence, &[&format!("error syncing 'a': failed to get instance metadata for node a: {error}, requeuing")]);
}

fn event(reason: &str, component: &str, node: &str) -> NodeEvent {
    NodeEvent {
        node: node.into(),
        uid: format!("uid-{node}"),
        reason: reason.into(),
        component: component.into(),
        message: "what others say".into(),
        last: Some(at(JUST_NOW)),
    }
}

fn reasons(diagnoses: &[Diagnosis], node: &str) -> Vec<Reason> {
    let one = diagnoses.iter().find(|one| one.node == node);
    one.iter().flat_map(|one| &one.findings).map(|finding| finding.reason).collect()
}

fn first(evidence: &mut Evidence) -> &mut Pod {
    &mut evidence.ccms[0].pods.as_mut().unwrap()[0]
}

/// Makes `a` an initialized node with this change.
fn initialized(evidence: &mut Evidence, change: fn(&mut Node)) {
    evidence.nodes[0] = healthy("a");
    change(&mut evidence.nodes[0]);
}

fn not_ready(node: &mut Node) {
    node.ready = Some(Ready { status: "Unknown".into(), since: LONG_AGO.into(), ..Ready::default() });
}

/// Each reason with a change that shows only this reason for `a`, and a similar change that does not show it.
const CASES: &[(Reason, Change, Change)] = &[
    (
        Reason::NotInstalled,
        |e| {
            e.ccms[0].is_installed = Some(false);
            // Its role does not exist either.
            e.ccms[0].missing_permissions = Some(vec!["get nodes".into()]);
        },
        |e| e.ccms[0].is_installed = None,
    ),
    (
        Reason::NotInstalled,
        |e| {
            e.ccms.clear();
            e.leases = Some(Vec::new());
        },
        |e| {
            e.ccms.clear();
            e.may_have_more_ccms = true;
        },
    ),
    (
        Reason::NotInstalled,
        |e| {
            e.ccms[0].pods = Some(Vec::new());
            e.ccms[0].pod_events = vec!["FailedCreate: violates PodSecurity".into()];
        },
        |e| e.ccms[0].pods = None,
    ),
    (
        Reason::CrashLoop,
        |e| {
            first(e).is_ready = false;
            first(e).restarts = 4;
            first(e).waiting = Some(("CrashLoopBackOff".into(), "back-off".into()));
            first(e).terminated = Some(("Error".into(), "F0101 no ClusterID found".into()));
        },
        // The pod crashed once in the past, and has led since.
        |e| {
            first(e).restarts = 4;
            first(e).terminated = Some(("Error".into(), "leaderelection lost".into()));
        },
    ),
    (
        Reason::CrashLoop,
        |e| {
            let pod = first(e);
            (pod.is_ready, pod.phase) = (false, "Pending".into());
            pod.waiting = Some(("ImagePullBackOff".into(), "no such image".into()));
        },
        |e| {
            let pod = first(e);
            (pod.is_ready, pod.phase) = (false, "Pending".into());
            pod.waiting = Some(("ContainerCreating".into(), String::new()));
        },
    ),
    (
        Reason::NoLeader,
        |e| e.leases = Some(vec![lease("other_1")]),
        // A rollout: the previous pod still holds the lease.
        |e| {
            e.leases = Some(vec![lease("other_1")]);
            first(e).created = JUST_NOW.into();
        },
    ),
    (
        Reason::NoLeader,
        |e| e.leases.as_mut().unwrap()[0].renewed = Some(at("2026-01-01T11:00:00Z")),
        |e| e.leases.as_mut().unwrap()[0].renewed = Some(at("2026-01-01T11:59:45Z")),
    ),
    (
        Reason::ControllerOff,
        |e| first(e).controllers = Some(Controller::of_argument(Some("*,-cloud-node"))),
        |e| first(e).controllers = Some(Controller::of_argument(Some("*,-cloud-node-lifecycle"))),
    ),
    (
        Reason::ControllerOff,
        |e| logs(e, &["failed to start cloud node controller: cloud provider does not support instances"]),
        |e| logs(e, &["\"cloud-node-lifecycle-controller\" is disabled"]),
    ),
    (
        Reason::Unschedulable,
        |e| {
            let pod = first(e);
            (pod.is_ready, pod.phase, pod.node) = (false, "Pending".into(), String::new());
            pod.unschedulable = Some("0/3 nodes are available: untolerated taint".into());
            e.leases = Some(Vec::new());
        },
        // One of two replicas finds no node, and the other one leads.
        |e| {
            let mut second = pod();
            (second.is_ready, second.phase, second.node) = (false, "Pending".into(), String::new());
            second.unschedulable = Some("no free ports".into());
            e.ccms[0].pods.as_mut().unwrap().push(second);
        },
    ),
    (
        Reason::ApiServerUnreachable,
        |e| {
            e.leases = Some(Vec::new());
            logs(
                e,
                &[
                    "error retrieving resource lock: Get \"https://10.96.0.1:443/apis/coordination.k8s.io/v1/x\": dial tcp 10.96.0.1:443: i/o timeout",
                ],
            );
        },
        |e| {
            logs(
                e,
                &[
                    "Get \"https://10.96.0.1:443/api/v1/nodes\": dial tcp 10.96.0.1:443: i/o timeout",
                    "successfully acquired lease kube-system/x",
                ],
            );
        },
    ),
    (
        Reason::ApiServerUnreachable,
        |e| {
            e.leases = Some(Vec::new());
            e.ccms[0].log = None;
        },
        |e| {
            e.leases = Some(Vec::new());
            e.ccms[0].log = None;
            first(e).created = JUST_NOW.into();
        },
    ),
    (
        Reason::CloudUnreachable,
        |e| fails(e, "Post \"https://ec2.eu-1.amazonaws.com/\": dial tcp: lookup ec2.eu-1.amazonaws.com: no such host"),
        |e| fails(e, "instance not found"),
    ),
    (
        Reason::CredentialsRefused,
        |e| {
            fails(
                e,
                "operation error EC2: DescribeInstances, https response error StatusCode: 403, api error UnauthorizedOperation: no",
            );
        },
        |e| {
            fails(
                e,
                "operation error EC2: DescribeInstances, https response error StatusCode: 503, api error RequestLimitExceeded: no",
            );
        },
    ),
    (
        Reason::InstanceNotFound,
        |e| fails(e, "instance not found"),
        // The newest attempt counts.
        |e| {
            let error = "error syncing 'a': failed to get instance metadata for node a: instance not found, requeuing";
            logs(e, &[error, "Successfully initialized node a with cloud provider"]);
        },
    ),
    (
        Reason::InstanceNotFound,
        |e| {
            initialized(e, |_| {});
            e.events = Some(vec![event("PossibleNodeDeletion", "hcloud-cloud-controller-manager", "a")]);
        },
        |e| {
            initialized(e, |_| {});
            e.events = Some(vec![event("Synced", "cloud-node-controller", "a")]);
        },
    ),
    (
        Reason::WrongScope,
        |e| {
            e.nodes = vec![waiting("a"), waiting("b")];
            let error = |node| {
                format!(
                    "error syncing '{node}': failed to get instance metadata for node {node}: instance not found, requeuing"
                )
            };
            logs(e, &[&error("a"), &error("b")]);
        },
        |e| {
            e.nodes = vec![waiting("a"), waiting("b")];
            let error = |node, why| {
                format!("error syncing '{node}': failed to get instance metadata for node {node}: {why}, requeuing")
            };
            logs(e, &[&error("a", "instance not found"), &error("b", "i/o timeout")]);
        },
    ),
    (
        Reason::WrongScope,
        |e| {
            e.ccms[0].identity.region = Some("us-1".into());
            fails(e, "instance not found");
        },
        |e| {
            e.ccms[0].identity.region = Some("eu-1".into());
            fails(e, "instance not found");
        },
    ),
    (
        Reason::NodeIPNotFound,
        |e| {
            logs(
                e,
                &[
                    "error syncing 'a': failed to get node modifiers from cloud provider: provided node ip for node \"a\" is not valid: failed to get node address from cloud provider that matches ip: 10.1.2.3, requeuing",
                ],
            );
        },
        // The address alone is no sign.
        |e| e.nodes[0].provided_ip = "10.1.2.3".into(),
    ),
    (
        Reason::NodeIPNotFound,
        |e| {
            initialized(e, |_| {});
            logs(
                e,
                &[
                    "Failed to update node addresses for node \"a\": failed to get node address from cloud provider that matches ip: 10.1.2.3",
                ],
            );
        },
        |e| {
            initialized(e, |_| {});
            logs(
                e,
                &[
                    "Failed to update node addresses for node \"d\": failed to get node address from cloud provider that matches ip: 10.1.2.3",
                ],
            );
        },
    ),
    (
        Reason::NoProviderID,
        |e| fails(e, "cloud provider does not set node provider ID for node a"),
        |e| logs(e, &["Skip sync node b because cloud provided nil metadata"]),
    ),
    (
        Reason::NoProviderID,
        |e| logs(e, &["Skip sync node a because cloud provided nil metadata"]),
        |e| {
            logs(
                e,
                &[
                    "Skip sync node a because cloud provided nil metadata",
                    "Successfully initialized node a with cloud provider",
                ],
            );
        },
    ),
    (
        Reason::OtherCloudProviderID,
        |e| e.nodes[0].provider_id = "k3s://a".into(),
        |e| e.nodes[0].provider_id = "aws:///eu-1a/i-1".into(),
    ),
    (
        Reason::OtherCloudProviderID,
        |e| initialized(e, |node| node.provider_id = "rke2://a".into()),
        // A node of another cloud that does not wait.
        |e| initialized(e, |node| node.provider_id = "metal://a".into()),
    ),
    (
        Reason::Forbidden,
        |e| e.ccms[0].missing_permissions = Some(vec!["update nodes".into()]),
        |e| e.ccms[0].missing_permissions = Some(vec!["delete nodes".into()]),
    ),
    (
        Reason::Forbidden,
        |e| {
            logs(
                e,
                &[
                    "error syncing 'a': nodes \"a\" is forbidden: User \"system:serviceaccount:kube-system:aws\" cannot update resource \"nodes\" in API group \"\" at the cluster scope, requeuing",
                ],
            );
        },
        |e| {
            logs(
                e,
                &[
                    "error syncing 'a': nodes \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no, requeuing",
                ],
            );
        },
    ),
    (
        Reason::NetworkNotReady,
        |e| {
            let pod = first(e);
            (pod.is_ready, pod.phase, pod.is_on_host_network) = (false, "Pending".into(), false);
            e.ccms[0].pod_events = vec!["FailedCreatePodSandBox: no network".into()];
            e.leases = Some(Vec::new());
        },
        // The pod uses the network of the host, and the node waits for the network until it is initialized.
        |e| e.nodes[0].ready.as_mut().unwrap().lacks_network = true,
    ),
    (
        Reason::NetworkNotReady,
        |e| {
            initialized(e, |node| {
                node.ready = Some(Ready {
                    status: "False".into(),
                    since: LONG_AGO.into(),
                    lacks_network: true,
                    ..Ready::default()
                });
            });
        },
        |e| {
            initialized(e, |node| {
                node.ready = Some(Ready {
                    status: "False".into(),
                    since: JUST_NOW.into(),
                    lacks_network: true,
                    ..Ready::default()
                });
            });
        },
    ),
    (
        Reason::KubeletNotExternal,
        |e| initialized(e, |node| node.provider_id.clear()),
        |e| {
            initialized(e, |node| {
                node.provider_id.clear();
                node.created = JUST_NOW.into();
            });
        },
    ),
    (
        Reason::TwoCCMs,
        |e| {
            let other = Pod { name: "cpi".into(), node: "c".into(), lease_name: "other".into(), ..pod() };
            e.other_pods = Some(vec![other]);
            e.leases.as_mut().unwrap().push(Lease { name: "other".into(), ..lease("c_2") });
        },
        |e| {
            // The CCM of k3s that serves only its load balancers.
            let other = Pod {
                name: "k3s".into(),
                node: "c".into(),
                lease_name: "other".into(),
                controllers: Some(vec![Controller::Service]),
                ..pod()
            };
            e.other_pods = Some(vec![other]);
            e.leases.as_mut().unwrap().push(Lease { name: "other".into(), ..lease("c_2") });
        },
    ),
    (
        Reason::AdmissionDenied,
        |e| logs(e, &["error syncing 'a': admission webhook \"x.example.com\" denied the request: no, requeuing"]),
        |e| logs(e, &["admission webhook \"x.example.com\" denied the request: no"]),
    ),
    (
        Reason::Throttled,
        |e| fails(e, "api error RequestLimitExceeded: Request limit exceeded."),
        |e| fails(e, "client rate limiter Wait returned an error: context deadline exceeded"),
    ),
    (
        Reason::OtherTaint,
        |e| initialized(e, |node| node.taints = vec!["node.cilium.io/agent-not-ready".into()]),
        |e| {
            initialized(e, |node| {
                node.taints = vec!["node.cilium.io/agent-not-ready".into()];
                node.created = JUST_NOW.into();
            });
        },
    ),
    (
        Reason::ExistenceUnknown,
        |e| {
            initialized(e, not_ready);
            logs(e, &["error checking if node a exists: ServerFaultCode: Login failure"]);
        },
        // The node has come back.
        |e| {
            initialized(e, |_| {});
            logs(e, &["error checking if node a exists: ServerFaultCode: Login failure"]);
        },
    ),
    (
        Reason::NodeDeleted,
        |e| {
            e.nodes.remove(0);
            e.events = Some(vec![event("DeletingNode", "cloud-node-lifecycle-controller", "a")]);
        },
        // An announcement is no deletion.
        |e| e.events = Some(vec![event("DeletingNode", "cloud-node-lifecycle-controller", "a")]),
    ),
    (
        Reason::NodeDeleted,
        |e| {
            initialized(e, |node| node.is_terminating = true);
            e.events = Some(vec![event("DeletingNode", "cloud-node-lifecycle-controller", "a")]);
        },
        // Another client deletes the node.
        |e| initialized(e, |node| node.is_terminating = true),
    ),
    (
        Reason::DeletionRefused,
        |e| {
            initialized(e, not_ready);
            e.events = Some(vec![event("DeletingNodeFailed", "cloud-node-lifecycle-controller", "a")]);
        },
        // The deleted node was a different one with this name.
        |e| {
            initialized(e, not_ready);
            let before = NodeEvent {
                uid: "before".into(),
                ..event("DeletingNodeFailed", "cloud-node-lifecycle-controller", "a")
            };
            e.events = Some(vec![before]);
        },
    ),
    (
        Reason::DeletionRefused,
        |e| {
            initialized(e, not_ready);
            e.events = None;
            logs(e, &["unable to delete node \"a\": nodes \"a\" is forbidden: User \"x\" cannot delete resource"]);
        },
        |e| {
            initialized(e, not_ready);
            logs(e, &["deleting node since it is no longer present in cloud provider: a"]);
        },
    ),
    (
        Reason::InstanceStopped,
        |e| initialized(e, |node| node.taints = vec![SHUTDOWN.into()]),
        |e| initialized(e, |node| node.taints = vec!["node.kubernetes.io/unreachable".into()]),
    ),
    (
        Reason::NoRoute,
        |e| initialized(e, |node| node.network_unavailable = "NoRouteCreated".into()),
        |e| initialized(e, |node| node.network_unavailable = "CalicoIsDown".into()),
    ),
    (
        Reason::NoPodCIDR,
        |e| {
            initialized(e, |node| {
                not_ready(node);
                node.has_pod_cidr = false;
            });
        },
        // Nothing allocates subnets.
        |e| {
            initialized(e, |_| {});
            e.nodes.iter_mut().for_each(|node| node.has_pod_cidr = false);
        },
    ),
    (
        Reason::NoPodCIDR,
        |e| {
            initialized(e, |_| {});
            e.nodes.iter_mut().for_each(|node| node.has_pod_cidr = false);
            e.events = Some(vec![event("CIDRNotAvailable", "cidrAllocator", "a")]);
        },
        |e| {
            initialized(e, |_| {});
            e.events = Some(vec![event("CIDRNotAvailable", "cidrAllocator", "a")]);
        },
    ),
    (
        Reason::NoZone,
        |e| initialized(e, |node| node.zone.clear()),
        // A cloud whose configuration names no zones.
        |e| {
            initialized(e, |_| {});
            e.nodes.iter_mut().for_each(|node| node.zone.clear());
        },
    ),
    (
        Reason::NodeManagerNotReady,
        |e| e.ccms[0].node_manager = Some(vec![pod()]),
        |e| e.ccms[0].node_manager = Some(vec![Pod { node: "a".into(), ..pod() }]),
    ),
    // The kubelet still reports, and will stop the pod.
    (Reason::PodStuckTerminating, gone::stuck, |e| first(e).is_terminating = true),
    (Reason::CauseUnknown, |e| fails(e, "the moon is full"), |e| e.nodes[0].created = JUST_NOW.into()),
];

#[test]
fn each_reason_is_found_by_its_signs_and_not_without_them() {
    for (index, (reason, broken, close)) in CASES.iter().enumerate() {
        let found = diagnose(&with(*broken));
        assert_eq!(reasons(&found, "a"), [*reason], "case {index}: {found:#?}");
        let others = found.iter().filter(|one| one.node != "a" && one.state != State::Uninitialized);
        for other in others {
            assert_eq!(other.findings, [], "case {index}: {}", other.node);
        }
        for one in diagnose(&with(*close)) {
            let has = one.findings.iter().any(|finding| finding.reason == *reason);
            assert!(!has, "case {index}, the other way: {one:#?}");
        }
    }
    for reason in Reason::ALL {
        assert!(CASES.iter().any(|(of, ..)| of == reason), "no case for {reason}");
    }
}

#[test]
fn a_healthy_cluster_has_no_finding_and_a_node_that_waits_for_long_has_one() {
    let healthy = with(|e| initialized(e, |_| {}));
    assert!(diagnose(&healthy).iter().all(|one| one.findings.is_empty() && one.state == State::Initialized));
    let blind = Evidence {
        now: at(NOW),
        nodes: vec![waiting("a"), self::healthy("b")],
        may_have_more_ccms: true,
        unseen: vec![Unseen { what: "pods".into(), why: "forbidden".into(), command: "kubectl get pods".into() }],
        ..Evidence::default()
    };
    let found = diagnose(&blind);
    assert_eq!(reasons(&found, "a"), [Reason::CauseUnknown]);
    let last = found[0].observations.last().unwrap();
    assert!(!last.was_seen && last.showed.contains("kubectl get pods"), "{last:?}");
    assert_eq!((found[1].state, found[1].findings.len()), (State::NotManaged, 0));
}

#[test]
fn what_has_to_be_fixed_first_comes_first() {
    let mut evidence = evidence();
    fails(&mut evidence, "instance not found");
    evidence.ccms[0].missing_permissions = Some(vec!["patch nodes/status".into()]);
    evidence.nodes[0].taints.push(SHUTDOWN.into());
    let found = diagnose(&evidence);
    assert_eq!(reasons(&found, "a"), [Reason::Forbidden, Reason::InstanceNotFound, Reason::InstanceStopped]);
    let ids: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.id()).collect();
    assert_eq!(ids.len(), Reason::ALL.len(), "each reason has an id of its own");
    let observations: Vec<&str> = found[0].observations.iter().map(|one| one.what.as_str()).collect();
    let order =
        ["the Node", "the workload", "the pods", "the lease", "the permissions", "all nodes", "the Events", "the log"];
    let places: Vec<usize> =
        order.iter().map(|what| observations.iter().position(|one| one.starts_with(what)).expect(what)).collect();
    assert!(places.is_sorted(), "{observations:#?}");
}

#[test]
fn a_node_belongs_to_the_ccm_of_its_cloud_and_without_an_id_to_all_that_initialize() {
    let mut evidence = evidence();
    let mut hetzner = evidence.ccms[0].clone();
    hetzner.identity = CcmIdentity {
        name: "hcloud".into(),
        provider: "hcloud".into(),
        provider_ids: vec!["hcloud://".into()],
        ..hetzner.identity
    };
    hetzner.pods.as_mut().unwrap()[0].controllers = Some(vec![Controller::Service]);
    evidence.ccms.push(hetzner);
    evidence.nodes[1].provider_id = "hcloud://1".into();
    evidence.nodes[2].provider_id = "metal://1".into();
    let found = diagnose(&evidence);
    let of = |index: usize| (found[index].provider.as_str(), found[index].state);
    assert_eq!(of(0), ("aws", State::Uninitialized), "hcloud does not initialize nodes");
    assert_eq!(of(1), ("hcloud", State::Initialized));
    assert_eq!(of(2), ("", State::NotManaged));
    evidence.ccms[1].pods.as_mut().unwrap()[0].controllers = None;
    assert_eq!(diagnose(&evidence)[0].provider, "aws,hcloud");
    // On OpenShift a provider may not declare the prefixes of its providerIDs.
    evidence.ccms.truncate(1);
    evidence.ccms[0].identity.provider_ids.clear();
    assert_eq!(diagnose(&evidence)[2].state, State::Initialized);
}

#[test]
fn a_cause_has_no_words_of_others() {
    for (_, broken, _) in CASES {
        for one in diagnose(&with(*broken)) {
            for finding in &one.findings {
                for others in ["amazonaws", "what others say", "PodSecurity", "moon", "example.com", "api error"] {
                    assert!(!finding.cause.contains(others), "{finding:?}");
                }
            }
        }
    }
}

/// Pieces of log lines, combined at random.
const PIECES: [&str; 14] = [
    "E0101 11:59:59.000000       1 node_controller.go:237] ",
    "error syncing 'a': ",
    "error syncing '",
    "\"Unhandled Error\" err=\"",
    "\"Unhandled Error\" err=<",
    "{\"ts\":1.5,\"msg\":\"",
    "failed to get instance metadata",
    "\u{1b}[2J\u{7}",
    "\u{202e}",
    "\\",
    "': ",
    ", requeuing",
    "ü€\u{1f600}",
    "password=Zq7secret ",
];

#[test]
fn no_log_can_steer_a_terminal_or_make_this_panic() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        // xorshift: any sequence works, but a failure must be reproducible.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
    };
    let mut failed = 0;
    for _ in 0..2_000 {
        let line =
            |next: &mut dyn FnMut(usize) -> usize| (0..next(9)).map(|_| PIECES[next(PIECES.len())]).collect::<String>();
        let text: Vec<String> = (0..next(5)).map(|_| PIECES[..next(3)].concat() + &line(&mut next)).collect();
        let mut evidence = evidence();
        evidence.ccms[0].log = Some(observed::lines(&text.join("\n")));
        for one in diagnose(&evidence) {
            let shown = serde_json::to_string(&one).unwrap();
            assert!(!shown.contains("Zq7"), "{shown}");
            let texts = one.findings.iter().flat_map(|finding| [&finding.evidence, &finding.cause]);
            for text in texts.chain(one.observations.iter().map(|one| &one.showed)) {
                assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
            }
            failed += usize::from(one.findings.iter().any(|finding| !finding.evidence.is_empty()));
        }
    }
    assert!(failed > 50, "the pieces make sense often enough: {failed}");
}

#[test]
fn what_is_the_same_for_all_nodes_is_diagnosed_once() {
    let mut evidence = evidence();
    evidence.nodes = (0..5_000).map(|index| waiting(&format!("node-{index}"))).collect();
    fails(&mut evidence, "instance not found");
    let started = Instant::now();
    let found = diagnose(&evidence);
    println!("5,000 nodes that wait: {:?}", started.elapsed());
    assert_eq!(found.len(), 5_000);
}

fn lines(messages: &[&str]) -> Vec<String> {
    let headed = messages.iter().map(|line| format!("I0101 11:59:59.000000       1 leaderelection.go:1] {line}"));
    headed.collect()
}

#[test]
fn who_leads_by_its_log_leads_whatever_the_machine_is_called() {
    let mut evidence = evidence();
    evidence.leases = Some(vec![lease("host-of-b_1")]);
    evidence.ccms[0].log = Some(lines(&["successfully acquired lease kube-system/cloud-controller-manager"]));
    assert_eq!(reasons(&diagnose(&evidence), "a"), [Reason::CauseUnknown]);
    // The pod crashed once in the past, and has led since.
    first(&mut evidence).restarts = 1;
    first(&mut evidence).terminated = Some(("Error".into(), "leaderelection lost".into()));
    assert_eq!(reasons(&diagnose(&evidence), "a"), [Reason::CauseUnknown]);
    evidence.ccms[0].log = Some(lines(&["attempting to acquire leader lease kube-system/cloud-controller-manager..."]));
    assert!(reasons(&diagnose(&evidence), "a").contains(&Reason::CrashLoop));
}

#[test]
fn an_additional_ccm_with_another_lease_does_not_initialize_nodes() {
    let mut evidence = evidence();
    let additional = Pod { name: "companion".into(), node: "b".into(), lease_name: "own".into(), ..pod() };
    evidence.other_pods = Some(vec![additional]);
    // On the same machine: the holder is the same.
    assert!(!reasons(&diagnose(&evidence), "a").contains(&Reason::TwoCCMs));
    evidence.other_pods = None;
    let observations = diagnose(&evidence).swap_remove(0).observations;
    assert!(!observations.iter().any(|one| one.what.contains("other cloud-controller-managers")), "{observations:#?}");
}

#[test]
fn what_has_just_been_installed_is_given_time() {
    let of = |change: Change| reasons(&diagnose(&with(change)), "a");
    let nothing: [Reason; 0] = [];
    let no_pods = |e: &mut Evidence| {
        (e.ccms[0].pods, e.leases) = (Some(Vec::new()), Some(Vec::new()));
        e.ccms[0].installed = JUST_NOW.into();
    };
    assert_eq!(of(no_pods), nothing);
    let being_pulled = |e: &mut Evidence| {
        let pod = first(e);
        (pod.is_ready, pod.phase, pod.created) = (false, "Pending".into(), "2026-01-01T11:58:00Z".into());
        pod.waiting = Some(("ContainerCreating".into(), String::new()));
        (e.leases, e.ccms[0].log) = (Some(Vec::new()), None);
    };
    assert_eq!(of(being_pulled), nothing);
    let for_long = |e: &mut Evidence| {
        let pod = first(e);
        (pod.is_ready, pod.phase) = (false, "Pending".into());
        (e.leases, e.ccms[0].log) = (Some(Vec::new()), None);
    };
    assert_eq!(of(for_long), [Reason::CauseUnknown], "it does not run, and cannot renew anything");
    let young = |e: &mut Evidence| {
        e.nodes[0].created = JUST_NOW.into();
        e.ccms[0].node_manager = Some(Vec::new());
    };
    assert_eq!(of(young), nothing);
}

#[test]
fn on_azure_the_node_manager_initializes_its_node() {
    let evidence = with(|e| {
        e.ccms[0].node_manager = Some(vec![Pod { node: "a".into(), ..pod() }]);
        e.ccms[0].missing_permissions = Some(vec!["update nodes".into()]);
    });
    let found = diagnose(&evidence);
    assert_eq!(reasons(&found, "a"), [Reason::CauseUnknown]);
    assert!(found[0].findings[0].cause.contains("the log of the node manager on a"), "{found:#?}");
}

#[test]
fn a_cloud_controller_manager_of_somebody_else_is_no_missing_one() {
    let strange = |change: Change| {
        let mut evidence = with(change);
        evidence.ccms.clear();
        diagnose(&evidence).swap_remove(0).findings
    };
    let embedded = strange(|e| e.leases.as_mut().unwrap()[0].name = "k3s-cloud-controller-manager".into());
    assert_eq!(embedded[0].reason, Reason::CauseUnknown);
    assert!(
        embedded[0].cause.starts_with("lease kube-system/k3s-cloud-controller-manager belongs to"),
        "{embedded:#?}"
    );
    let pods = strange(|e| (e.leases, e.other_pods) = (Some(Vec::new()), Some(vec![pod()])));
    assert!(pods[0].reason == Reason::CauseUnknown && pods[0].cause.starts_with("pod kube-system/ccm-1"), "{pods:#?}");
    assert_eq!(strange(|e| e.nodes[0].created = JUST_NOW.into()), []);
}

#[test]
fn a_taint_that_somebody_took_off_is_told() {
    let cause = |change: fn(&mut Node)| {
        let mut evidence = with(|e| initialized(e, |node| node.provider_id.clear()));
        change(&mut evidence.nodes[0]);
        diagnose(&evidence).swap_remove(0).findings.swap_remove(0).cause
    };
    assert!(cause(|_| {}).contains("runs without --cloud-provider=external, or the taint was removed"));
    assert!(cause(|node| node.provided_ip = "10.0.0.1".into()).starts_with("the taint was removed from a"));
}

#[test]
fn a_renewal_changes_nothing_that_is_shown() {
    let later = with(|e| e.leases.as_mut().unwrap()[0].renewed = Some(at("2026-01-01T11:59:58Z")));
    assert_eq!(diagnose(&evidence()), diagnose(&later));
}

#[test]
fn no_name_in_a_cause_steers_a_terminal() {
    let evidence = with(|e| {
        e.ccms[0].identity.region = Some("us\u{9b}2J\u{202e}".into());
        fails(e, "instance not found");
    });
    let found = diagnose(&evidence);
    assert_eq!(reasons(&found, "a"), [Reason::WrongScope]);
    let cause = &found[0].findings[0].cause;
    assert!(!cause.contains(|c: char| c.is_control() || c == '\u{202e}'), "{cause:?}");
}

#[test]
fn some_things_are_as_they_should_be() {
    for change in [
        |node: &mut Node| node.has_pod_cidr = false,
        |node: &mut Node| node.taints = vec!["node.cluster.x-k8s.io/outdated-revision".into()],
    ] {
        let mut evidence = with(|e| initialized(e, |_| {}));
        change(&mut evidence.nodes[0]);
        assert_eq!(diagnose(&evidence)[0].findings, []);
    }
}
