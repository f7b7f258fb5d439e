//! Measures the running operator: from its start until it has converged, idle, after a crash, and started again.
//!
//! Whatever it reads of the operator comes from outside: the audit log, /proc, and watches of its own.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout_at};

use crate::{
    cluster::{self, CCM, Lab, NAMESPACE, OWN_NAMESPACE, Watch},
    config::{self, ConfigSync},
    drift::{self, Drift, Repair},
    progress,
    support::{audit::Request, eventually, latency::Latency, objects, operator::Operator},
};

/// How long anything may take before the benchmark gives up.
pub const LIMIT: Duration = Duration::from_secs(60);
/// How long after a change nothing more is expected to follow from it.
pub const SETTLE: Duration = Duration::from_secs(1);
/// Converged is what stays so for this long.
const HOLD: Duration = Duration::from_secs(3);
const COLD_RUNS: usize = 5;
const REPETITIONS: usize = 5;
/// A part of whatever period something may have.
const PHASE: Duration = Duration::from_millis(97);

const POD_UID: &str = "be4c4000-0000-4000-8000-000000000001";
const NEXT_POD_UID: &str = "be4c4000-0000-4000-8000-000000000002";

/// How the operator reaches its API server.
pub struct Access<'a> {
    lab: &'a Lab,
    kubeconfig: PathBuf,
    name: &'static str,
    _proxy: Option<Latency>,
}

/// Everything that is measured with one [`Access`].
pub struct Measured {
    pub cold: Vec<Convergence>,
    pub idle: Idle,
    pub repairs: Vec<(Drift, Vec<Repair>)>,
    pub image_changes: Vec<Duration>,
    pub recoveries: Vec<Duration>,
    pub second_run: Vec<Request>,
    pub config_sync: ConfigSync,
}

/// A start in a cluster that has nothing of the operator's yet.
pub struct Convergence {
    /// From the start of the process until the benchmark's watch showed the status that then held.
    pub time: Duration,
    /// All requests until the end of the time for which it had to hold.
    pub requests: Vec<Request>,
    /// Processor time by then.
    pub cpu_seconds: f64,
    /// Resident memory then.
    pub rss_kib: u64,
}

/// A time in which nothing happened in the cluster.
pub struct Idle {
    pub seconds: u32,
    pub requests: Vec<Request>,
    pub cpu_seconds: f64,
}

impl<'a> Access<'a> {
    /// Straight to the API server.
    pub async fn direct(lab: &'a Lab) -> Result<Self> {
        let kubeconfig = lab.kubeconfig(lab.plane().port()).await?;
        Ok(Self { lab, kubeconfig, name: "direct", _proxy: None })
    }

    /// With latency added to each call.
    pub async fn delayed(lab: &'a Lab, latency: Duration) -> Result<Self> {
        let proxy = Latency::start(lab.plane().port(), latency)?;
        let kubeconfig = lab.kubeconfig(proxy.port()).await?;
        Ok(Self { lab, kubeconfig, name: "with latency", _proxy: Some(proxy) })
    }

    fn start(&self) -> Result<Operator> {
        self.lab.start(&self.kubeconfig, POD_UID)
    }

    fn progress(&self, what: &str) {
        progress(&format!("{}: {what}", self.name));
    }
}

/// Measures everything.
pub async fn all(access: &Access<'_>, idle_seconds: u32) -> Result<Measured> {
    let lab = access.lab;
    let (cold, mut operator) = cold_runs(access).await?;

    access.progress(&format!("idle for {idle_seconds} s"));
    let idle = idle(lab, &operator, idle_seconds).await?;

    let mut repairs = Vec::new();
    for drift in Drift::ALL {
        access.progress(&format!("drift, {drift}"));
        let mut times = Vec::new();
        for _ in 0..REPETITIONS {
            times.push(drift::repair(lab, drift).await?);
        }
        repairs.push((drift, times));
    }

    access.progress("images changed");
    let image_changes = image_changes(lab).await?;

    let mut recoveries = Vec::new();
    for number in 1..=REPETITIONS {
        access.progress(&format!("killed, {number} of {REPETITIONS}"));
        let (restarted, time) = recovery(access, &operator).await?;
        operator = restarted;
        recoveries.push(time);
    }

    let config_sync = config::measure(lab, &operator).await?;

    access.progress("second run");
    end(&operator).await?;
    let second_run = second_run(access).await?;
    Ok(Measured { cold, idle, repairs, image_changes, recoveries, second_run, config_sync })
}

/// Starts the operator several times, each time in a cluster without anything of its; the last one goes on.
pub async fn cold_runs(access: &Access<'_>) -> Result<(Vec<Convergence>, Operator)> {
    let mut runs = Vec::new();
    let mut running: Option<Operator> = None;
    for number in 1..=COLD_RUNS {
        access.progress(&format!("cold start, {number} of {COLD_RUNS}"));
        if let Some(operator) = running.take() {
            end(&operator).await?;
        }
        reset(access.lab).await?;
        let (run, operator) = cold_run(access).await?;
        runs.push(run);
        running = Some(operator);
    }
    Ok((runs, running.context("no run was asked for")?))
}

/// One start in a cluster without anything of the operator's.
pub async fn cold(access: &Access<'_>) -> Result<Convergence> {
    reset(access.lab).await?;
    let (run, operator) = cold_run(access).await?;
    end(&operator).await?;
    Ok(run)
}

async fn cold_run(access: &Access<'_>) -> Result<(Convergence, Operator)> {
    let lab = access.lab;
    let mut reports = lab.watch_cluster_operator().await?;
    let mark = lab.mark()?;
    let started = Instant::now();
    let operator = access.start()?;
    let converged = cluster::while_it_runs(&operator, well_since(&mut reports)).await?;
    let run = Convergence {
        time: converged - started,
        requests: lab.requests(mark)?,
        cpu_seconds: cluster::cpu_seconds(&operator),
        rss_kib: operator.rss_kib(),
    };
    Ok((run, operator))
}

/// Since when the reports have said that all is well, once they have for [`HOLD`].
async fn well_since(reports: &mut Watch) -> Result<Instant> {
    let limit = Instant::now() + LIMIT;
    let mut since = None;
    loop {
        let deadline = since.map_or(limit, |since| since + HOLD);
        match (timeout_at(deadline.into(), reports.next()).await, since) {
            (Ok(state), _) => {
                let is_well = state?.as_ref().is_some_and(cluster::is_well);
                since = is_well.then(|| since.unwrap_or_else(Instant::now));
            }
            (Err(_), Some(since)) => return Ok(since),
            (Err(_), None) => bail!("the operator has not converged within {LIMIT:?}"),
        }
    }
}

/// Takes away everything that the operator has made.
async fn reset(lab: &Lab) -> Result<()> {
    let cluster_operator = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator",
        "metadata": {"name": "cloud-controller-manager"},
    });
    let named = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
    let others = [
        cluster_operator,
        named("coordination.k8s.io/v1", "Lease", OWN_NAMESPACE, "cluster-cloud-controller-manager-leader"),
        named("coordination.k8s.io/v1", "Lease", OWN_NAMESPACE, "cluster-cloud-config-sync-leader"),
        named("v1", "ConfigMap", NAMESPACE, "cloud-conf"),
        named("v1", "ConfigMap", NAMESPACE, "ccm-trusted-ca"),
    ];
    for object in lab.planned()?.iter().chain(&others) {
        objects::delete(lab.client(), object).await?;
    }
    let pods: Api<Pod> = Api::namespaced(lab.client().clone(), NAMESPACE);
    eventually("the pods are gone", LIMIT, async || {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await?;
    lab.install().await
}

async fn idle(lab: &Lab, operator: &Operator, seconds: u32) -> Result<Idle> {
    let (mark, cpu_before) = (lab.mark()?, cluster::cpu_seconds(operator));
    sleep(Duration::from_secs(u64::from(seconds))).await;
    Ok(Idle { seconds, requests: lab.requests(mark)?, cpu_seconds: cluster::cpu_seconds(operator) - cpu_before })
}

/// From a new images file until the Deployment has the new image.
async fn image_changes(lab: &Lab) -> Result<Vec<Duration>> {
    let original = cluster::images()?;
    let mut images: Value = serde_json::from_str(&original)?;
    let (mut times, mut pause) = (Vec::new(), SETTLE);
    for number in 0..REPETITIONS {
        let image = format!("registry.example/aws-cloud-controller-manager:bench-{number}");
        images["cloudControllerManagerAWS"] = json!(image);
        times.push(image_change(lab, &images.to_string(), &image).await?);
        // Each time in another phase: the file may be looked at every now and then.
        pause += PHASE;
        sleep(pause).await;
    }
    lab.write_images(&original)?;
    sleep(SETTLE).await;
    Ok(times)
}

async fn image_change(lab: &Lab, images: &str, image: &str) -> Result<Duration> {
    let api = deployments(lab);
    let mut states = Watch::after(&api, &api.get(CCM).await?).await?;
    lab.write_images(images)?;
    let changed = Instant::now();
    let (applied, _) = states
        .until("the new image is in the Deployment", LIMIT, |now| {
            now.data["spec"]["template"]["spec"]["containers"][0]["image"] == image
        })
        .await?;
    Ok(applied - changed)
}

/// From SIGKILL until the restarted container of the same Pod has repaired what was deleted meanwhile.
async fn recovery(access: &Access<'_>, operator: &Operator) -> Result<(Operator, Duration)> {
    let api = deployments(access.lab);
    let before = api.get(CCM).await?;
    let mut states = Watch::after(&api, &before).await?;
    let killed = Instant::now();
    operator.kill()?;
    operator.wait(LIMIT).await?;
    api.delete(CCM, &DeleteParams::default()).await?;
    let restarted = access.start()?;
    let back = states.until("the Deployment is back", LIMIT, |now| now.uid() != before.uid());
    let (repaired, _) = cluster::while_it_runs(&restarted, back).await?;
    sleep(SETTLE).await;
    Ok((restarted, repaired - killed))
}

/// What another Pod's operator asks for that finds everything done.
async fn second_run(access: &Access<'_>) -> Result<Vec<Request>> {
    let lab = access.lab;
    let mark = lab.mark()?;
    let operator = lab.start(&access.kubeconfig, NEXT_POD_UID)?;
    eventually("the second run leads", LIMIT, async || {
        Ok(lab.requests(mark)?.iter().any(|request| request.is_lease() && request.is_write()).then_some(()))
    })
    .await?;
    sleep(HOLD).await;
    let requests = lab.requests(mark)?;
    end(&operator).await?;
    Ok(requests)
}

async fn end(operator: &Operator) -> Result<()> {
    operator.terminate()?;
    operator.wait(LIMIT).await.map(drop)
}

fn deployments(lab: &Lab) -> Api<DynamicObject> {
    cluster::api(lab.client(), &ApiResource::erase::<Deployment>(&()))
}
