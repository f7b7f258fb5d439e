//! Measures the operator on a cluster that is not OpenShift, with several `CloudControllerManager`s in one process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ccm_operator::{
    plan::kubernetes::conflict::leave_each_other,
    provider::{embedded, kubernetes::Descriptor},
};
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
        kubernetes::{Kubernetes, OWN_NAMESPACE, asking_for},
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

/// Starts with several `CloudControllerManager`s.
pub struct Ccms {
    /// How many, and of what.
    pub name: String,
    pub runs: Vec<Run>,
}

/// The `CloudControllerManager`s of a start, each with its specification, and the arguments of the operator.
struct Asked {
    ccms: Vec<(String, Value)>,
    arguments: Vec<String>,
}

/// A first installation, and a later start.
pub struct Run {
    pub first: Convergence,
    /// The requests of the second start, after which everything is as it was.
    pub second: Vec<Request>,
}

/// Starts the operator with some of them, of which nothing exists yet, and then once more.
pub async fn measure() -> Result<Vec<Ccms>> {
    progress("starting a control plane that is not OpenShift's");
    let cluster = Kubernetes::with(Options { is_durable: true, ..Options::default() }, "aws").await?;
    let mut all = Vec::new();
    for count in COUNTS {
        let name = format!("{count} CloudControllerManager{}", if count == 1 { "" } else { "s" });
        all.push(runs(&cluster, name, &of_one_cloud(count)).await?);
    }
    let of_clouds = of_clouds(&cluster).await?;
    let name = format!("{} CloudControllerManagers of different clouds", of_clouds.ccms.len());
    all.push(runs(&cluster, name, &of_clouds).await?);
    Ok(all)
}

/// Several of one cloud, each with some of its controllers.
fn of_one_cloud(count: usize) -> Asked {
    let ccm = |(number, name): (usize, &&str)| {
        let of = |(place, (controller, on)): (usize, &(&str, &str))| {
            let is_own = place % count == number;
            ((*controller).to_owned(), json!(if is_own { *on } else { "Disabled" }))
        };
        let controllers: serde_json::Map<_, _> = CONTROLLERS.iter().enumerate().map(of).collect();
        let spec = json!({
            "provider": "aws", "ports": {"secure": 11_000 + number}, "controllers": controllers,
            "network": {"podCIDRs": ["10.244.0.0/16"]},
        });
        ((*name).to_owned(), spec)
    };
    Asked {
        ccms: NAMES.iter().enumerate().take(count).map(ccm).collect(),
        arguments: vec!["--namespaces=kube-system".to_owned()],
    }
}

/// One of each cloud that leaves the nodes of others alone, and so can run beside the others. Only the first has a service controller.
async fn of_clouds(cluster: &Kubernetes) -> Result<Asked> {
    let catalog = embedded::catalog()?;
    let mut descriptors = Vec::<&Descriptor>::new();
    for one in catalog.kubernetes_descriptors() {
        if descriptors.iter().all(|other| leave_each_other(one, other)) {
            descriptors.push(one);
        }
    }
    let names = descriptors.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(",");
    let arguments = cluster.install_clouds(&names).await?;
    let mut ccms = Vec::new();
    for (number, descriptor) in descriptors.into_iter().enumerate() {
        cluster.put_inputs(descriptor, "value").await?;
        let mut spec = asking_for(descriptor);
        let on = |is_on: bool| if is_on { "Enabled" } else { "Disabled" };
        spec["controllers"] = json!({"service": on(number == 0), "route": "Disabled"});
        spec["ports"] = json!({"secure": 11_000 + number});
        ccms.push((descriptor.name.clone(), spec));
    }
    Ok(Asked { ccms, arguments })
}

async fn runs(cluster: &Kubernetes, name: String, asked: &Asked) -> Result<Ccms> {
    progress(&name);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(cluster, asked).await?);
    }
    Ok(Ccms { name, runs })
}

async fn run(cluster: &Kubernetes, asked: &Asked) -> Result<Run> {
    let (count, arguments) = (asked.ccms.len(), asked.arguments.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, spec) in &asked.ccms {
        cluster.create(name, spec.clone()).await?;
    }
    let mark = cluster.mark().await?;
    let started = Instant::now();
    let operator = cluster.start_with(&arguments)?;
    while ready(cluster).await? < count {
        ensure!(started.elapsed() < LIMIT, "not ready in time:\n{}", operator.log());
        sleep(LOOK).await;
    }
    let time = started.elapsed();
    sleep(HOLD).await;
    let first = Convergence {
        time,
        requests: cluster.requests(mark).await?,
        cpu_seconds: operator.cpu_seconds(),
        rss_kib: operator.rss_kib(),
        anonymous_kib: operator.anonymous_kib(),
        connections: None,
    };
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&arguments)?;
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
