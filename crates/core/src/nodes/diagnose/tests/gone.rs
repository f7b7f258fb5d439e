//! Pods that are being deleted, and nodes that were deleted.

use super::{
    CASES, Change, LONG_AGO, Pod, Ready, Reason, State, at, diagnose, event, evidence, first, initialized, lease, logs,
    not_ready, pod, reasons, waiting, with,
};
use crate::{
    api::status::Deleted,
    facts::ccm::Controller,
    nodes::{diagnosis::Diagnosis, evidence::Evidence},
};

/// The only pod is being deleted on a node whose kubelet is dead, and renews no lease.
pub(super) fn stuck(e: &mut Evidence) {
    let pod = first(e);
    (pod.is_ready, pod.is_terminating) = (false, true);
    not_ready(&mut e.nodes[1]);
    e.leases.as_mut().unwrap()[0].renewed = Some(at("2026-01-01T11:00:00Z"));
}

fn also(change: Change) -> Evidence {
    let mut evidence = with(stuck);
    change(&mut evidence);
    evidence
}

fn add(e: &mut Evidence, pod: Pod) {
    e.ccms[0].pods.as_mut().unwrap().push(pod);
}

/// Another pod, on another node.
fn other() -> Pod {
    Pod { name: "ccm-2".into(), node: "c".into(), ..pod() }
}

#[test]
fn a_pod_that_is_stuck_is_named_with_its_node_and_the_command() {
    let found = diagnose(&with(stuck));
    let finding = &found[0].findings[0];
    assert!(
        finding.cause.starts_with("pod kube-system/ccm-1 of CloudControllerManager/aws is being deleted on node b, ")
    );
    assert!(finding.fix.contains("`kubectl delete pod --force --grace-period=0`"), "{finding:?}");
    let observations = &found[0].observations;
    let pods = observations.iter().find(|one| one.what.starts_with("the pods of")).unwrap();
    assert_eq!(pods.showed, "0 of 1 are ready: ccm-1 (it is being deleted)");
    // The node is gone, and its pods follow a moment later.
    assert_eq!(reasons(&diagnose(&also(|e| drop(e.nodes.remove(1)))), "a"), [Reason::PodStuckTerminating]);
}

#[test]
fn a_pod_is_stuck_only_where_no_kubelet_reports() {
    for (status, lacks_network, is_stuck) in
        [("Unknown", false, true), ("False", false, false), ("False", true, false), ("True", false, false)]
    {
        let mut evidence = with(stuck);
        let ready = Ready { status: status.into(), since: LONG_AGO.into(), lacks_network, ..Ready::default() };
        evidence.nodes[1].ready = Some(ready);
        let found = reasons(&diagnose(&evidence), "a");
        assert_eq!(found.contains(&Reason::PodStuckTerminating), is_stuck, "{status} {lacks_network}: {found:?}");
    }
    let unreported = also(|e| e.nodes[1].ready = None);
    assert_eq!(reasons(&diagnose(&unreported), "a"), [Reason::PodStuckTerminating]);
}

#[test]
fn a_pod_that_is_being_deleted_counts_as_long_as_it_leads() {
    let unknown = [Reason::CauseUnknown];
    // The container still runs although its kubelet is dead.
    let leads = also(|e| e.leases = Some(vec![lease("b_1")]));
    assert_eq!(reasons(&diagnose(&leads), "a"), unknown);
    // An ordinary rollout: the pod is ready and renews the lease until it ends.
    assert_eq!(reasons(&diagnose(&with(|e| first(e).is_terminating = true)), "a"), unknown);
}

#[test]
fn beside_a_pod_that_is_stuck_the_other_one_counts() {
    for (change, expected) in [
        ((|e: &mut Evidence| add(e, other())) as Change, Reason::NoLeader),
        (
            |e| {
                add(e, other());
                e.leases = Some(vec![lease("c_1")]);
            },
            Reason::CauseUnknown,
        ),
        (
            |e| add(e, Pod { phase: "Pending".into(), node: String::new(), is_ready: false, ..other() }),
            Reason::Unschedulable,
        ),
        // The new pod has a corrected configuration, and the old pod did not run the node controllers.
        (
            |e| {
                first(e).controllers = Some(vec![Controller::Service]);
                add(e, other());
                e.leases = Some(vec![lease("c_1")]);
            },
            Reason::CauseUnknown,
        ),
    ] {
        assert_eq!(reasons(&diagnose(&also(change)), "a"), [expected]);
    }
    let starts = also(|e| {
        let created = "2026-01-01T11:58:00Z".into();
        add(e, Pod { phase: "Pending".into(), is_ready: false, created, ..other() });
    });
    assert_eq!(reasons(&diagnose(&starts), "a"), [], "its image is pulled");
}

#[test]
fn a_pod_of_somebody_else_that_is_being_deleted_is_no_cloud_controller_manager_for_long() {
    let found = diagnose(&with(|e| {
        e.ccms.clear();
        (e.leases, e.other_pods) = (Some(Vec::new()), Some(vec![Pod { is_terminating: true, ..pod() }]));
    }));
    assert_eq!(reasons(&found, "a"), [Reason::NotInstalled]);
}

#[test]
fn no_advice_for_a_server_makes_it_leave_etcd_unseen() {
    use Reason::{DeletionRefused, InstanceStopped, KubeletNotExternal, OtherCloudProviderID, PodStuckTerminating};
    let fixes = |evidence: &Evidence| -> Vec<String> {
        let found: Vec<Diagnosis> = diagnose(evidence);
        found.iter().find(|one| one.node == "a").unwrap().findings.iter().map(|one| one.fix.clone()).collect()
    };
    let mut changed = Vec::new();
    for (reason, broken, _) in CASES {
        let mut evidence = with(*broken);
        let ordinary = fixes(&evidence);
        evidence.nodes.iter_mut().filter(|node| node.name == "a").for_each(|node| node.is_etcd = true);
        let of_server = fixes(&evidence);
        // Also if the waiting node is no server, because the pod may be on one.
        for fix in ordinary.iter().filter(|_| *reason == PodStuckTerminating).chain(&of_server) {
            let names_node = fix.to_lowercase().contains("delete the node") || fix.contains("its Node");
            assert!(!names_node || fix.contains("etcd"), "{reason}: {fix}");
        }
        changed.extend((of_server != ordinary).then_some(*reason));
    }
    changed.dedup();
    assert_eq!(changed, [OtherCloudProviderID, KubeletNotExternal, DeletionRefused, InstanceStopped]);
}

#[test]
fn on_openshift_nothing_is_asked_of_an_object_that_cannot_exist() {
    let mut changed = Vec::new();
    for (reason, broken, _) in CASES {
        let mut evidence = with(*broken);
        let on_kubernetes = diagnose(&evidence);
        evidence.has_infrastructure = true;
        evidence.ccms.iter_mut().for_each(|ccm| ccm.identity.name.clear());
        let on_openshift = diagnose(&evidence);
        assert_eq!(reasons(&on_openshift, "a"), reasons(&on_kubernetes, "a"), "{reason}");
        for (there, here) in on_kubernetes.iter().zip(&on_openshift) {
            for (there, here) in there.findings.iter().zip(&here.findings) {
                let names_one = [&here.fix, &here.cause].iter().any(|text| text.contains("CloudControllerManager"));
                assert!(!names_one && !here.fix.contains("spec."), "{reason}: {here:?}");
                changed.extend((there.fix != here.fix).then_some(here.reason));
            }
        }
    }
    changed.sort_unstable();
    changed.dedup();
    let mut expected: Vec<_> = Reason::ALL.iter().copied().filter(|one| one.fix_on_openshift().is_some()).collect();
    expected.sort_unstable();
    assert_eq!(changed, expected);
}

#[test]
fn a_node_of_no_cloud_has_no_findings_and_one_that_a_cloud_knows_has() {
    let of = |change: Change| {
        let mut evidence = with(change);
        evidence.nodes[0].has_no_cloud = true;
        let found = diagnose(&evidence).swap_remove(0);
        (found.state, found.provider, found.findings.into_iter().map(|one| one.reason).collect::<Vec<_>>())
    };
    let no_cloud = (State::NoCloud, String::new(), Vec::new());
    assert_eq!(of(|e| initialized(e, |node| node.provider_id.clear())), no_cloud);
    assert_eq!(of(|e| initialized(e, |node| node.provider_id = "k3s://a".into())), no_cloud);
    // The cloud-controller-manager of AWS is responsible for the node.
    let owned = of(|e| initialized(e, |node| node.network_unavailable = "NoRouteCreated".into()));
    assert_eq!(owned, (State::Initialized, "aws".into(), vec![Reason::NoRoute]));
    let tainted = of(|e| e.nodes[0] = waiting("a"));
    assert_eq!(tainted, (State::Uninitialized, "aws".into(), vec![Reason::CauseUnknown]));
    // The node belongs to no cloud-controller-manager.
    let other = diagnose(&with(|e| {
        e.nodes[2].provider_id.clear();
        e.nodes[2].has_no_cloud = true;
    }));
    let observations = &other[0].observations;
    assert!(observations.iter().any(|one| one.showed == "1 of 2 wait"), "{observations:#?}");
}

#[test]
fn a_deletion_whose_event_was_dropped_is_known_by_the_status_or_the_log() {
    let line = "deleting node since it is no longer present in cloud provider: gone";
    let denied = "unable to delete node \"gone\": nodes \"gone\" is forbidden: User \"x\" cannot delete resource";
    let of = |events: &[(&str, &str)], log: &[&str], is_listed: bool| {
        let mut evidence = evidence();
        let one = |(reason, last): &(&str, &str)| {
            let mut one = event(reason, "cloud-node-lifecycle-controller", "gone");
            one.last = Some(at(last));
            one
        };
        evidence.events = Some(events.iter().map(one).collect());
        logs(&mut evidence, log);
        if is_listed {
            let deleted = Deleted { node: "gone".into(), uid: "uid-gone".into(), at: LONG_AGO.into() };
            evidence.deleted.push(("aws".into(), deleted));
        }
        let found = diagnose(&evidence).into_iter().find(|one| one.node == "gone")?;
        assert_eq!((found.state, found.provider.as_str()), (State::Deleted, "aws"));
        Some((found.since, found.findings.into_iter().next().unwrap().evidence))
    };
    // The Event of the successful attempt was dropped: the remaining Events are from a failed attempt.
    let dropped = [("DeletingNode", "2026-01-01T11:55:00Z"), ("DeletingNodeFailed", "2026-01-01T11:55:00Z")];
    assert_eq!(of(&dropped, &[line, denied], false), None, "somebody else has deleted it");
    assert_eq!(of(&dropped, &[line, denied, line], false), Some((None, line.into())));
    let listed = "status.nodeDeletion.deleted of CloudControllerManager/aws";
    assert_eq!(of(&dropped, &[line, denied], true), Some((Some(LONG_AGO.into()), listed.into())));
    assert_eq!(of(&[], &[line], true), Some((Some(LONG_AGO.into()), listed.into())));
    let kept = [dropped[0], dropped[1], ("DeletingNode", "2026-01-01T11:56:00Z")];
    assert_eq!(of(&kept, &[line], true), Some((Some("2026-01-01T11:56:00Z".into()), "what others say".into())));
    assert_eq!(of(&[], &[&line.replace("gone", "a")], false), None, "it is there");
}
