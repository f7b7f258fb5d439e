//! Nodes that wait for their initialization: what the operator finds out about them and reports, and what that costs.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_operator::nodes::node::UNINITIALIZED;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, POD_UID},
    support::{
        eventually, kubelet,
        kubernetes::Kubernetes,
        objects,
        openshift::Cluster,
        scrape::{free_port, scrape},
    },
};

/// The longest wait for a reason: longer than `NODE_GRACE` and a diagnosis.
const REASON_LIMIT: Duration = Duration::from_secs(150);

/// A node that its kubelet has registered for a cloud.
fn waiting(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
    })
}

/// A pod that crashes, and the last lines of its log.
async fn crashing(cluster: &kube::Client, namespace: &str, labels: Value) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "crashing", "namespace": namespace, "labels": labels, "annotations": {kubelet::HOLD: ""}},
        "spec": {"nodeName": "elsewhere", "hostNetwork": true,
            "containers": [{"name": "cloud-controller-manager", "image": "registry.example/ccm:v1"}]},
    });
    let pods: Api<Pod> = Api::namespaced(cluster.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let container = json!({
        "name": "cloud-controller-manager", "image": "", "imageID": "", "ready": false, "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message":
            "F1122 10:00:00.000000       1 main.go:1] Cloud provider could not be initialized: password=hunter2 refused"}},
    });
    let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
    pods.patch_status("crashing", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// The Events of the operator about a node.
async fn events(client: &kube::Client, node: &str) -> Result<Vec<(String, String, i32)>> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let about = format!("involvedObject.kind=Node,involvedObject.name={node},reportingComponent=ccm-operator");
    let all = events.list(&ListParams::default().fields(&about)).await?;
    let of = |event: Event| {
        (event.reason.unwrap_or_default(), event.message.unwrap_or_default(), event.count.unwrap_or_default())
    };
    Ok(all.items.into_iter().map(of).collect())
}

#[tokio::test]
async fn the_operator_reports_why_nodes_wait() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    // For the CCM it is a node that was initialized long ago.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let id = json!({"spec": {"providerID": "aws:///eu-west-1a/i-1"}});
    nodes.patch("control-plane", &PatchParams::default(), &Patch::Merge(id)).await?;
    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "NodesInitialized=True"]).await?;
    let labels =
        json!({"app.kubernetes.io/name": "aws-cloud-controller-manager", "app.kubernetes.io/instance": "cluster"});
    crashing(&cluster.client, "kube-system", labels).await?;
    objects::apply(&cluster.client, waiting("node-1")).await?;
    objects::apply(&cluster.client, waiting("node-2")).await?;

    let live = eventually("the diagnosis", REASON_LIMIT, async || {
        let live = cluster.ccms().get("cluster").await?.data;
        ensure!(
            live["status"]["nodes"]["waiting"].as_array().is_some_and(|stuck| stuck.len() == 2),
            "{:#}",
            live["status"]
        );
        Ok(Some(live))
    })
    .await?;
    let status = &live["status"];
    assert_eq!((&status["nodes"]["total"], &status["nodes"]["uninitialized"]), (&json!(3), &json!(2)));
    assert_eq!(
        (&status["nodes"]["waiting"][0]["node"], &status["nodes"]["waiting"][0]["reason"]),
        (&json!("node-1"), &json!("N01"))
    );
    let condition =
        status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "NodesInitialized").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("CrashLoop")), "{condition:#}");
    // Texts from the log are only for users who may read logs.
    assert!(!status.to_string().contains("could not be initialized"), "{status:#}");
    let events = eventually("the Event", LIMIT, async || {
        let events = events(&cluster.client, "node-2").await?;
        Ok((!events.is_empty()).then_some(events))
    })
    .await?;
    assert_eq!((events.len(), events[0].0.as_str(), events[0].2), (1, "CrashLoop", 1), "{events:?}");
    assert!(events[0].1.starts_with("N01: ") && !events[0].1.contains("hunter2"), "{events:?}");

    for name in ["node-1", "node-2"] {
        let done = json!({"spec": {"taints": null, "providerID": format!("aws:///eu-west-1a/{name}")}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(done)).await?;
    }
    let live = cluster.conditions(&operator, "cluster", &["NodesInitialized=True"]).await?;
    assert_eq!(live["status"]["nodes"], json!({"total": 3, "uninitialized": 0, "waiting": [], "gone": []}));
    Ok(())
}

#[tokio::test]
async fn on_openshift_events_and_metrics_tell_it_and_no_heartbeat_wakes_a_pass() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let port = free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    let operator = lab.start_as(POD_UID, &[&address])?;
    let before = lab.converged(&operator).await?;
    crashing(
        &lab.client,
        crate::lab::NAMESPACE,
        json!({
            "k8s-app": "aws-cloud-controller-manager", "infrastructure.openshift.io/cloud-controller-manager": "AWS",
        }),
    )
    .await?;
    objects::apply(&lab.client, waiting("node-1")).await?;
    let events = eventually("the Event", REASON_LIMIT, async || {
        let events = events(&lab.client, "node-1").await?;
        Ok((!events.is_empty()).then_some(events))
    })
    .await?;
    assert_eq!((events.len(), events[0].0.as_str()), (1, "CrashLoop"), "{events:?}");
    let (_, text) = scrape(&lab, port).await?;
    for line in [
        "ccm_operator_nodes 1\n",
        "ccm_operator_nodes_uninitialized 1\n",
        "ccm_operator_nodes_waiting{reason=\"N01\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    assert!(!text.contains("ccm_operator_nodes_waiting_since_timestamp_seconds 0\n"), "{text}");
    assert_eq!(lab.cluster_operator().await?["status"], before["status"]);

    // What a kubelet reports each few minutes.
    let passes = async || {
        let (_, text) = scrape(&lab, port).await?;
        let line = text.lines().find_map(|line| line.strip_prefix("ccm_operator_reconcile_total "));
        anyhow::Ok(line.unwrap_or_default().to_owned())
    };
    let (nodes, before): (Api<Node>, _) = (Api::all(lab.client.clone()), passes().await?);
    let report = async |kind: &str, second: u32| {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        let condition = json!({"type": kind, "status": "False", "lastHeartbeatTime": time});
        let report = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status("node-1", &PatchParams::default(), &report).await
    };
    for second in 0..20 {
        report("DiskPressure", second).await?;
    }
    assert_eq!(passes().await?, before);
    report("Ready", 30).await?;
    eventually("a pass", LIMIT, async || Ok((passes().await? != before).then_some(()))).await
}
