//! Measures the operator on a cluster that is not OpenShift, with several `CloudControllerManager`s in one process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    measure::{Convergence, LIMIT},
    progress,
    support::{
        audit::Request,
        control_plane::Options,
        eventually,
        kubernetes::{Kubernetes, OWN_NAMESPACE},
        lab::{config_maps, ignore_absent},
    },
};

/// How many there are at once: of one cloud each runs controllers that no other runs, and there are four.
const COUNTS: [usize; 3] = [1, 2, 4];
/// Their names, which the installation allows.
const NAMES: [&str; 4] = ["cluster", "second", "third", "other"];
/// The controllers, each with the value that turns it on.
const CONTROLLERS: [(&str, &str); 4] =
    [("cloudNode", "Enabled"), ("cloudNodeLifecycle", "Rehearsal"), ("service", "Enabled"), ("route", "Enabled")];
/// How often each is measured.
const RUNS: usize = 10;
/// Ready lasts this long.
const HOLD: Duration = Duration::from_secs(1);
/// The pause between two looks whether all are ready.
const LOOK: Duration = Duration::from_millis(5);

/// Starts with so many `CloudControllerManager`s.
pub struct Ccms {
    pub count: usize,
    pub runs: Vec<Run>,
}

/// A first installation, and a later start.
pub struct Run {
    pub first: Convergence,
    /// The requests of the second start, after which everything is as it was.
    pub second: Vec<Request>,
}

/// Starts the operator with one, two and four of them, of which nothing exists yet, and then once more.
pub async fn measure() -> Result<Vec<Ccms>> {
    progress("starting a control plane that is not OpenShift's");
    let cluster = Kubernetes::with(Options { is_durable: true, ..Options::default() }, "aws").await?;
    let mut all = Vec::new();
    for count in COUNTS {
        progress(&format!("{count} CloudControllerManagers"));
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(run(&cluster, count).await?);
        }
        all.push(Ccms { count, runs });
    }
    Ok(all)
}

async fn run(cluster: &Kubernetes, count: usize) -> Result<Run> {
    for (number, name) in NAMES.iter().enumerate().take(count) {
        let of = |(place, (controller, on)): (usize, &(&str, &str))| {
            let is_own = place % count == number;
            ((*controller).to_owned(), json!(if is_own { *on } else { "Disabled" }))
        };
        let controllers: serde_json::Map<_, _> = CONTROLLERS.iter().enumerate().map(of).collect();
        let spec = json!({
            "provider": "aws", "ports": {"secure": 11_000 + number}, "controllers": controllers,
            "network": {"podCIDRs": ["10.244.0.0/16"]},
        });
        cluster.create(name, spec).await?;
    }
    let mark = cluster.mark().await?;
    let started = Instant::now();
    let operator = cluster.start()?;
    while ready(cluster).await? < count {
        ensure!(started.elapsed() < LIMIT, "not ready in time:\n{}", operator.log());
        sleep(LOOK).await;
    }
    let time = started.elapsed();
    sleep(HOLD).await;
    let (cpu_seconds, rss_kib) = (operator.cpu_seconds(), operator.rss_kib());
    let first = Convergence { time, requests: cluster.requests(mark).await?, cpu_seconds, rss_kib };
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    let mark = cluster.mark().await?;
    let operator = cluster.start()?;
    // No status changes, so only its log tells that it has looked at all of them.
    eventually("the second start", LIMIT, async || {
        let log = operator.log();
        ensure!(log.matches(": everything is applied").count() >= count, "{log}");
        Ok(Some(()))
    })
    .await?;
    sleep(HOLD).await;
    let second = cluster.requests(mark).await?;

    cluster.ccms().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    eventually("the removal", LIMIT, async || {
        let left = cluster.objects(None).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let inventory = config_maps(&cluster.client, OWN_NAMESPACE);
    ignore_absent(inventory.delete("ccm-operator-inventory", &DeleteParams::default()).await)?;
    Ok(Run { first, second })
}

/// How many are ready.
async fn ready(cluster: &Kubernetes) -> Result<usize> {
    let all = cluster.ccms().list(&ListParams::default()).await?;
    let is_ready = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    Ok(all.items.iter().filter(|one| is_ready(&one.data["status"])).count())
}
