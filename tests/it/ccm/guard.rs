//! Our cloud-controller-manager alone, with its guard, which is on by default.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{
    cases::Case,
    cloud::Cloud,
    cluster::{Cluster, writes},
    program::{Running, ours},
};
use crate::support::{audit::Mark, eventually, process};

const ACCOUNT: &str = "ccm";
/// Longer than the ten minutes for which a process has to lead before it deletes a Node.
const LONG: Duration = Duration::from_secs(900);

/// A cluster in which the instance of one Node is gone, and the program.
struct Stage {
    cluster: Cluster,
    running: Running,
    start: Mark,
    _cloud: Cloud,
    _dir: TempDir,
}

impl Stage {
    async fn new() -> Result<Self> {
        let (cluster, dir) = (Cluster::new().await?, process::temp_dir()?);
        let kubeconfig = cluster.account(ACCOUNT).await?;
        let mut cloud = Cloud::new(dir.path().join("cloud.json"))?;
        let gone = cloud.add(&Case::known("gone", "").ready("Unknown"));
        cloud.set("gone", Vec::new());
        let others = ["one", "two", "three"].map(|name| cloud.add(&Case::known(name, "")));
        let stopped = cloud.add(&Case::known("stopped", "").state("stopped").ready("Unknown"));
        let new = cloud.add(&Case::waits("new", ""));
        cloud.write()?;
        for node in others.iter().chain([&gone, &stopped, &new]) {
            cluster.register(node).await?;
        }
        let start = cluster.mark().await?;
        let mut command = Command::new(ours()?);
        command.arg("--cloud-provider=fake").env("FAKE_ENDPOINT", cloud.endpoint());
        let running = Running::start("ours", command, &kubeconfig, &dir.path().join("log"))?;
        Ok(Self { cluster, running, start, _cloud: cloud, _dir: dir })
    }

    /// The Node whose instance is gone is kept, and an Event says why. All else is done.
    async fn keeps_the_node(&self) -> Result<()> {
        self.cluster.has_event("gone", "NodeKept").await?;
        self.cluster.has_event("new", "Synced").await?;
        let is_tainted =
            |shown: Option<&super::cluster::Shown>| shown.is_some_and(|shown| shown.has_taint(super::cases::SHUTDOWN));
        self.cluster.until("stopped", "is tainted", is_tainted).await?;
        self.running.passes(5).await?;
        ensure!(self.cluster.shown("gone").await?.is_some(), "the Node was deleted");
        let requests = self.cluster.requests(self.start, ACCOUNT).await?;
        ensure!(!writes(&requests).contains_key("gone"), "the Node was changed");
        Ok(())
    }
}

#[tokio::test]
async fn the_guard_keeps_a_node_and_says_why() -> Result<()> {
    let stage = Stage::new().await?;
    stage.keeps_the_node().await.with_context(|| stage.running.process.log_tail())
}

#[tokio::test]
#[ignore = "eleven minutes: make e2e-all"]
async fn the_guard_lets_a_node_go_after_ten_minutes() -> Result<()> {
    let stage = Stage::new().await?;
    stage.keeps_the_node().await.with_context(|| stage.running.process.log_tail())?;
    eventually("the deletion of the Node", LONG, async || {
        Ok(stage.cluster.shown("gone").await?.is_none().then_some(()))
    })
    .await
    .with_context(|| stage.running.process.log_tail())?;
    stage.cluster.has_event("gone", "DeletingNode").await
}
