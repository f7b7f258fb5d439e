//! Others who undo each repair at once: the operator repairs less and less often, and says who they are.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    lab::{LIMIT, Lab, NAMESPACE, message},
    support::{
        eventually,
        openshift::{self, Cluster},
    },
};

/// How often the other writes, at most each time after the operator.
const CHANGES: usize = 200;

/// How long the other goes on. Without a limit the operator would have written hundreds of times.
const WHILE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_object_that_is_changed_after_each_repair_is_repaired_less_often_and_named() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let fight = async {
        for replicas in 0..CHANGES {
            lab.update("Deployment", &json!({"spec": {"replicas": 3 + replicas}})).await?;
            lab.has_two_replicas(&operator).await?;
        }
        anyhow::Ok(())
    };
    // Its end is that of the time.
    if let Ok(ended) = tokio::time::timeout(WHILE, fight).await {
        ended?;
    }
    let report = format!("repaired less often, because others keep changing them: Deployment {NAMESPACE}/");
    eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        let text = message(&cluster_operator, "Available");
        ensure!(text.contains(&report) && text.contains("kubectl-edit"), "{text}");
        Ok(Some(()))
    })
    .await?;
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
