use serde_json::json;

use super::*;
use crate::apply::ownership::FIELD_MANAGER;

const NOW: &str = "2026-01-10T00:00:00Z";

fn object(value: &Value) -> Object {
    Object::new(value.clone()).unwrap()
}

/// A role whose name is too long for a line, a Service in another namespace, and a Deployment.
fn planned() -> Vec<Value> {
    let long = "openshift-cloud-controller-manager-cloud-provider-azure-node-admission";
    vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": long}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "kube-system"}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "azure-ccm", "namespace": "managed"},
            "spec": {"replicas": 2},
        }),
    ]
}

/// A live Deployment after our apply.
fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "azure-ccm", "namespace": "managed", "generation": 1, "creationTimestamp": "2026-01-09T00:00:00Z",
            "managedFields": [
                {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-09T23:00:00Z", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
                 "time": "2026-01-09T23:59:59Z", "fieldsV1": {"f:status": {}}},
            ],
        },
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "ccm"}}},
        "status": {"observedGeneration": 1, "readyReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"},
        ]},
    })
}

fn input() -> StatusInput {
    let condition = |type_: &str, status: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": "AsExpected", "message": message,
            "lastTransitionTime": "2026-01-08T00:00:00Z"})
    };
    StatusInput {
        platform: Some("Azure".into()),
        plan: Some(Ok(Plan::Objects { provider: "azure".into(), objects: planned().iter().map(object).collect() })),
        knows_digests: true,
        live: vec![None, Some(None), Some(Some(deployment()))],
        left_over: vec![(
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "old", "namespace": "managed", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
            PruneDecision::Prune,
        )],
        pods: vec![json!({
            "metadata": {"name": "azure-ccm-x", "namespace": "managed", "labels": {"app": "ccm"}},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                "message": "0/3 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/x: }."}]},
        })],
        events: vec![json!({"reason": "ScalingReplicaSet", "message": "Scaled up", "count": 3, "type": "Normal",
            "lastTimestamp": "2026-01-09T23:58:00Z", "involvedObject": {"kind": "Deployment", "name": "azure-ccm"}})],
        lease: Some(Some(json!({"spec": {
            "holderIdentity": "operator-1", "renewTime": "2026-01-09T23:59:00.000000Z", "leaseDurationSeconds": 137,
        }}))),
        now: NOW.parse().unwrap(),
        cluster_operator: Some(Some(json!({"status": {
            "versions": [{"name": "operator", "version": "4.99.0"}],
            "conditions": [
                condition("TrustedCABundleControllerControllerAvailable", "True", "Trusted CA Bundle is available"),
                condition("Degraded", "False", ""),
                condition("Available", "True", "Cluster Cloud Controller Manager Operator is available at 4.99.0"),
                condition("SomebodyElse", "True", ""),
            ],
        }}))),
        unread: vec!["failed to read clusterroles.rbac.authorization.k8s.io x: forbidden".into()],
    }
}

#[test]
fn the_screen_shows_everything() {
    let report = StatusReport::new(&input(), "managed");
    let screen = text::screen(&report, NOW.parse().unwrap());
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    insta::assert_snapshot!(screen, @r"
    Cluster    healthy, but one object is not as planned
    Operator   runs as operator-1
    Platform   Azure, provider azure
    Version    4.99.0
    Namespace  managed

    STATE       AGE  OBJECT
    unknown     -    ClusterRole
              openshift-cloud-controller-manager-cloud-provider-azure-node-admission
    missing     -    Service kube-system/s
    as planned  24h  Deployment azure-ccm
    left over   9d   Service old

    ROLLOUT      READY  WORKLOAD
    progressing  1/2    Deployment azure-ccm
                        Pod azure-ccm-x cannot be scheduled: 0/3 nodes are
                        available: 3 node(s) had untolerated taint
                        {node.kubernetes.io/x: }.

    STATUS  SINCE  CONDITION
    True    2d     Available: Cluster Cloud Controller Manager Operator is available
                   at 4.99.0
    -       -      Progressing: not reported
    False   2d     Degraded (AsExpected)
    -       -      Upgradeable: not reported
    -       -      CloudConfigControllerAvailable: not reported
    -       -      CloudConfigControllerDegraded: not reported
    True    2d     TrustedCABundleControllerControllerAvailable: Trusted CA Bundle
                   is available
    -       -      TrustedCABundleControllerControllerDegraded: not reported
    True    2d     SomebodyElse (AsExpected)

    AGO  LAST CHANGES
    2m   Deployment azure-ccm: ScalingReplicaSet: Scaled up (3 times)
    60m  Deployment azure-ccm: applied by ccm-operator

    not shown: failed to read clusterroles.rbac.authorization.k8s.io x: forbidden
    ");
}

#[test]
fn programs_get_the_same_report_with_times() {
    let report = serde_json::to_value(StatusReport::new(&input(), "managed")).unwrap();
    assert_eq!(report["healthy"], true);
    assert_eq!(report["objects"][0]["state"], "unknown");
    assert_eq!(report["objects"][1]["state"], "missing");
    assert_eq!(
        report["objects"][2],
        json!({"kind": "Deployment", "namespace": "managed", "name": "azure-ccm",
        "state": "as-planned", "created": "2026-01-09T00:00:00Z"})
    );
    assert_eq!(report["objects"][3]["state"], "left-over");
    assert_eq!(report["rollouts"][0]["state"], "progressing");
    assert_eq!(
        report["conditions"][3],
        json!({"type": "Upgradeable", "status": null, "reason": "",
        "message": "not reported", "since": null})
    );
    assert_eq!(report["changes"][0]["object"], "Deployment azure-ccm");
}

#[test]
fn objects_that_differ_or_are_kept_are_reported() {
    let mut input = input();
    let state = |input: &StatusInput| StatusReport::new(input, "managed").objects[2].state;
    let set = |input: &mut StatusInput, pointer: &str, value: Value| {
        let live = input.live[2].as_mut().and_then(Option::as_mut).unwrap();
        *live.pointer_mut(pointer).unwrap() = value;
    };
    set(&mut input, "/spec/replicas", json!(5));
    assert_eq!(state(&input), "differs");
    input.knows_digests = false;
    assert_eq!(state(&input), "unknown");
    let annotations =
        json!({"name": "azure-ccm", "annotations": {"client.lifecycle.config.k8s.io/mutation": "ignore"}});
    set(&mut input, "/metadata", annotations);
    assert_eq!(state(&input), "kept");
}

#[test]
fn health_is_that_of_the_cluster_operator() {
    let healthy = |available: &str, degraded: &str| {
        let conditions = json!([{"type": "Available", "status": available}, {"type": "Degraded", "status": degraded}]);
        let cluster_operator = Some(Some(json!({"status": {"conditions": conditions}})));
        StatusReport::new(&StatusInput { cluster_operator, ..StatusInput::default() }, "managed").healthy
    };
    assert_eq!(healthy("True", "False"), Some(true));
    assert_eq!(healthy("True", "True"), Some(false));
    assert_eq!(healthy("False", "False"), Some(false));
    let of =
        |cluster_operator| StatusReport::new(&StatusInput { cluster_operator, ..StatusInput::default() }, "managed");
    assert_eq!(of(Some(None)).healthy, Some(false), "there is no ClusterOperator");
    assert_eq!(of(None).healthy, None, "it cannot be read");
    assert!(text::screen(&of(None), NOW.parse().unwrap()).starts_with("Cluster    unknown: "));
}

#[test]
fn a_workload_without_a_ready_pod_is_not_healthy() {
    let report = |ready: i64| {
        let mut live = deployment();
        live["status"]["readyReplicas"] = json!(ready);
        live["status"]["conditions"][0]["reason"] = json!("NewReplicaSetAvailable");
        let report = StatusReport::new(&StatusInput { live: vec![Some(Some(live))], ..input() }, "managed");
        let screen = text::screen(&report, NOW.parse().unwrap());
        (report.healthy, report.rollouts[0].state, screen.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(report(1).0, Some(true));
    let line = "Cluster    NOT HEALTHY: no pod of Deployment azure-ccm is ready".to_owned();
    assert_eq!(report(0), (Some(false), "unavailable", line));
}

#[test]
fn a_cluster_without_an_operator_is_not_healthy() {
    let report = |now: &str, holder: &str| {
        let mut input = StatusInput { now: now.parse().unwrap(), ..input() };
        input.lease.as_mut().unwrap().as_mut().unwrap()["spec"]["holderIdentity"] = holder.into();
        StatusReport::new(&input, "managed")
    };
    let line = |report: &StatusReport| text::screen(report, NOW.parse().unwrap()).lines().nth(1).unwrap().to_owned();
    assert_eq!(report(NOW, "a").healthy, Some(true));
    let expired = report("2026-01-10T00:05:00Z", "a");
    assert_eq!(
        (expired.healthy, line(&expired)),
        (Some(false), "Operator   NOT RUNNING: a renewed its lease 60s ago".into())
    );
    let absent = report(NOW, "");
    assert_eq!((absent.healthy, line(&absent)), (Some(false), "Operator   NOT RUNNING: nobody holds its lease".into()));
}

#[test]
fn without_a_plan_the_report_says_why() {
    let why = |plan| StatusReport::new(&StatusInput { plan: Some(plan), ..StatusInput::default() }, "managed").why;
    assert_eq!(why(Ok(Plan::Nothing { why: "no".into() })).as_deref(), Some("nothing to apply: no"));
    assert_eq!(why(Err("bad".into())).as_deref(), Some("there is no plan: bad"));
}
