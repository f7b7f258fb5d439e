//! Others who undo each repair at once: the operator repairs less and less often, and says who they are.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::json;

use crate::{
    lab::{LIMIT, Lab, NAMESPACE, config_maps, message},
    support::{
        eventually, objects,
        openshift::{self, Cluster},
    },
};

/// The number of writes of the other client; each follows a write of the operator.
const CHANGES: usize = 200;

/// The time between two writes of a client that does not wait for repairs: long enough for a repair on a slow machine.
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which the other client writes. Without a limit the operator would write hundreds of times.
const WHILE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_object_that_is_changed_after_each_repair_is_repaired_less_often_and_named() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    // It does not wait for the repairs: on a slow machine these would be too rare to be limited.
    let fight = async {
        for replicas in 3.. {
            lab.update("Deployment", &json!({"spec": {"replicas": replicas}})).await?;
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(())
    };
    let report = format!("repaired less often, because others keep changing them: Deployment {NAMESPACE}/");
    let reported = eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        let text = message(&cluster_operator, "Available");
        ensure!(text.contains(&report) && text.contains("kubectl-edit"), "{text}");
        Ok(Some(()))
    });
    tokio::select! {
        ended = fight => ended?,
        reported = reported => reported?,
    }
    let writes = lab.writes(mark).await?;
    let repairs = writes.iter().filter(|write| write.contains("deployments")).count();
    ensure!((5..=CHANGES / 4).contains(&repairs), "{repairs} repairs");
    ensure!(operator.log().matches("keeps changing").count() == 1, "{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn a_status_that_is_changed_after_each_write_is_written_less_often() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let fight = async {
        for _ in 0..CHANGES {
            openshift::set_condition(&lab.client, "Upgradeable", "Fight").await?;
            eventually("the repair", LIMIT, async || {
                let status = lab.cluster_operator().await?["status"].to_string();
                Ok((!status.contains("Fight")).then_some(()))
            })
            .await?;
        }
        anyhow::Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(WHILE, fight).await {
        ended?;
    }
    let writes = lab.writes(mark).await?;
    let reports = writes.iter().filter(|write| write.contains("clusteroperators/status")).count();
    ensure!((5..=CHANGES / 2).contains(&reports), "{reports} writes");
    ensure!(operator.log().matches("it is written less often").count() == 1, "{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn an_inventory_that_is_deleted_again_and_again_is_written_less_often() -> Result<()> {
    const INVENTORY: &str = "ccm-operator-inventory";
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let inventories = config_maps(&lab.client, "openshift-cloud-controller-manager-operator");
    let fight = async {
        for _ in 0..CHANGES {
            inventories.delete(INVENTORY, &DeleteParams::default()).await?;
            eventually("it again", LIMIT, async || Ok(inventories.get_opt(INVENTORY).await?.map(drop))).await?;
        }
        anyhow::Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(WHILE / 2, fight).await {
        ended?;
    }
    eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        let text = message(&cluster_operator, "Available");
        ensure!(text.contains("repaired less often") && text.contains(INVENTORY), "{text}");
        Ok(Some(()))
    })
    .await?;
    let writes = lab.writes(mark).await?;
    let written = writes.iter().filter(|write| write.starts_with("patch") && write.ends_with(INVENTORY)).count();
    ensure!((5..=CHANGES / 4).contains(&written), "{written} writes: {writes:?}");
    // Other objects are repaired in the meantime.
    lab.update("Deployment", &json!({"spec": {"replicas": 5}})).await?;
    lab.has_two_replicas(&operator).await
}

#[tokio::test]
async fn a_configuration_that_keeps_changing_restarts_the_pods_less_and_less_often() -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.exists("Deployment", &operator).await?;
    let mark = lab.mark().await?;
    let edit = async |number: usize| {
        let metadata = json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"});
        let data = json!({"cloud.conf": format!("[Global]\nZone = z{number}\n")});
        let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        objects::apply(&lab.client, source).await?;
        eventually("cloud-conf", LIMIT, async || {
            let data = config_maps(&lab.client, NAMESPACE).get("cloud-conf").await?.data.unwrap_or_default();
            Ok(data["cloud.conf"].contains(&format!("z{number}\n")).then_some(()))
        })
        .await
    };
    let flapping = async {
        for number in 0..CHANGES {
            edit(number).await?;
        }
        anyhow::Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(WHILE, flapping).await {
        ended?;
    }
    let writes = lab.writes(mark).await?;
    let (edits, restarts) = ["configmaps cloud-conf", "deployments "]
        .map(|name| writes.iter().filter(|write| write.contains(name)).count())
        .into();
    ensure!(restarts <= 15 && edits > 2 * restarts, "{restarts} rollouts for {edits} edits");
    // The last configuration is rolled out all the same.
    edit(CHANGES).await?;
    let images = format!("--images-json={}", lab.images_file().display());
    eventually("the last configuration", LIMIT, async || {
        let output = crate::diff::run(&lab.plane.kubeconfig_admin(), &["diff", &images]).await?;
        ensure!(output.status.code() == Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        Ok(Some(()))
    })
    .await
}
