//! No flapping: a state that passes by itself is not reported, and one that lasts is reported once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ccm_operator::cluster::request;
use ccm_operator::object::Object;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    contract::{images, plans},
    faults::{MOST_A_SECOND, most_in_a_second, never_degraded},
    lab::{LIMIT, Lab, aws_manifest},
    support::{eventually, faults::Faults, kubelet::HOLD, objects, openshift::Cluster},
};

/// Longer than the operator waits before it reports a rollout. A report that comes even later is seen by the next check.
const WHILE: Duration = Duration::from_millis(1500);

/// Stops the stand-in for the workload controllers from writing a workload's status.
async fn hold(lab: &Lab, object: &Object) -> Result<Value> {
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {HOLD: ""}}}));
    Ok(serde_json::to_value(api.patch(object.name(), &PatchParams::default(), &patch).await?)?)
}

/// Writes a workload's status.
async fn set_status(lab: &Lab, object: &Object, status: Value) -> Result<()> {
    let metadata = json!({"name": object.name(), "namespace": object.namespace()});
    let (api_version, kind) = (object.kind().api_version(), object.kind().kind);
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": status});
    objects::apply_status(&lab.client, object).await.map(drop)
}

/// The status of a Deployment of two replicas.
fn deployment(generation: &Value, updated: u32, available: u32, reason: &str) -> Value {
    let is_available = if available == 2 { "True" } else { "False" };
    let condition = |kind: &str, status: &str, reason: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": time, "lastUpdateTime": time})
    };
    json!({
        "observedGeneration": generation, "replicas": 2, "updatedReplicas": updated,
        "readyReplicas": available, "availableReplicas": available, "unavailableReplicas": 2 - available,
        "conditions": [condition("Available", is_available, ""), condition("Progressing", "True", reason)],
    })
}

/// The status of a `DaemonSet` whose template has not changed.
fn daemon_set(generation: &Value, desired: u32, scheduled: u32, ready: u32) -> Value {
    json!({
        "observedGeneration": generation, "desiredNumberScheduled": desired, "currentNumberScheduled": scheduled,
        "updatedNumberScheduled": scheduled, "numberReady": ready, "numberAvailable": ready,
        "numberUnavailable": desired - ready, "numberMisscheduled": 0,
    })
}

#[tokio::test]
async fn rebooting_and_new_nodes_are_no_progress() -> Result<()> {
    let lab = Lab::new(&Cluster::on(json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}))).await?;
    lab.write_images(&images())?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let azure = plans()?.into_iter().find(|(name, _)| *name == "Azure").context("Azure")?.1;
    let find = |kind| azure.objects().iter().find(|object| object.kind().kind == kind).context("a workload");
    let (controller, nodes) = (find("Deployment")?, find("DaemonSet")?);
    let of_controller = hold(&lab, controller).await?["metadata"]["generation"].clone();
    let of_nodes = hold(&lab, nodes).await?["metadata"]["generation"].clone();
    set_status(&lab, nodes, daemon_set(&of_nodes, 3, 3, 3)).await?;

    let mut mark = lab.mark().await?;
    // Two nodes with all replicas reboot; then two nodes are added, one of them at first without a pod.
    for (available, desired, scheduled, ready) in
        [(0, 3, 3, 1), (1, 3, 3, 2), (2, 3, 3, 3), (2, 5, 3, 3), (2, 5, 4, 3), (2, 5, 5, 4), (2, 5, 5, 5)]
    {
        let status = deployment(&of_controller, 2, available, "NewReplicaSetAvailable");
        set_status(&lab, controller, status).await?;
        set_status(&lab, nodes, daemon_set(&of_nodes, desired, scheduled, ready)).await?;
        tokio::time::sleep(WHILE).await;
        let writes = lab.settled_writes(&operator, mark).await?;
        assert_eq!(writes, Vec::<String>::new(), "{desired} nodes, {ready} ready\n{}", operator.log());
        mark = lab.mark().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_rollout_is_reported_once_until_it_is_complete() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let object = aws_manifest("Deployment");
    let before = hold(&lab, &object).await?["metadata"]["generation"].clone();
    let mark = lab.mark().await?;
    lab.write_images(&json!({"cloudControllerManagerAWS": "registry.example/new"}).to_string())?;
    let generation = eventually("the new generation", LIMIT, async || {
        let generation = lab.live("Deployment").await?.unwrap_or_default()["metadata"]["generation"].clone();
        Ok((generation != before).then_some(generation))
    });
    let generation = generation.await?;
    for (updated, available, reason) in [
        (0, 2, "ReplicaSetUpdated"),
        (1, 1, "ReplicaSetUpdated"),
        (1, 2, "ReplicaSetUpdated"),
        (2, 1, "ReplicaSetUpdated"),
        (2, 0, "ReplicaSetUpdated"),
    ] {
        set_status(&lab, &object, deployment(&generation, updated, available, reason)).await?;
        tokio::time::sleep(WHILE).await;
        lab.conditions(&operator, &["Available=True", "Progressing=True", "Degraded=False"]).await?;
    }
    set_status(&lab, &object, deployment(&generation, 2, 2, "NewReplicaSetAvailable")).await?;
    lab.converged(&operator).await?;
    let writes = lab.settled_writes(&operator, mark).await?;
    let reports = writes.iter().filter(|write| write.contains("clusteroperators")).count();
    assert_eq!(reports, 2, "the start and the end of the rollout: {writes:?}");
    Ok(())
}

#[tokio::test]
async fn a_restart_of_the_api_server_is_waited_for_and_not_reported() -> Result<()> {
    let mut lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    lab.settle(&operator, mark).await?;
    let before = lab.cluster_operator().await?;

    proxy.forget();
    lab.plane.restart_api_server(Duration::from_secs(5)).await?;
    // The watches work again: the operator sees a change.
    lab.update("Service", &json!({"spec": {"selector": {"added": "x"}}})).await?;
    let repaired = eventually("the repair", LIMIT, async || {
        let live = lab.live("Service").await?.unwrap_or_default();
        ensure!(live["spec"]["selector"]["added"].is_null(), "{}", live["spec"]["selector"]);
        Ok(Some(()))
    });
    repaired.await.with_context(|| operator.log())?;
    never_degraded(&lab, &operator).await?;
    let after = lab.cluster_operator().await?;
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{}", operator.log());
    let seen = proxy.seen();
    lab.settle(&operator, mark).await?;
    never_degraded(&lab, &operator).await?;
    assert!(seen.iter().any(crate::support::faults::Seen::is_watch), "the connection was not lost");
    let most = most_in_a_second(&seen);
    assert!(most <= MOST_A_SECOND, "{most} requests in a second: {seen:#?}");
    Ok(())
}
