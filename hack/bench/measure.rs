//! Measures the running operator: from start to converged, idle, repairing, after a crash, and a second run.
//!
//! All figures come from outside the operator: the audit log, /proc, and the benchmark's watches.

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
    RUNS,
    config::{self, ConfigSync},
    drift::{self, Drift, Repair},
    program::{self, CCM, Watch},
    progress,
    support::{
        audit::Request,
        eventually,
        lab::{Lab, NAMESPACE, OWN_NAMESPACE, SERVICE_ACCOUNT, repository},
        latency::Latency,
        objects::{self, Workloads},
        operator::Operator,
    },
};

/// The wait limit of everything.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The pause after a change, for its last consequences.
pub const SETTLE: Duration = Duration::from_millis(300);
/// Converged is a status that lasts this long.
const HOLD: Duration = Duration::from_secs(1);
/// Added to pauses, so that they do not meet a period of the operator always at the same point.
const PHASE: Duration = Duration::from_millis(97);

const POD_UID: &str = "be4c4000-0000-4000-8000-000000000001";
const NEXT_POD_UID: &str = "be4c4000-0000-4000-8000-000000000002";

/// How the operator reaches its API server.
pub struct Access<'a> {
    lab: &'a Lab,
    kubeconfig: PathBuf,
    name: &'static str,
    proxy: Option<Latency>,
}

/// Everything that is measured with one [`Access`].
pub struct Measured {
    pub cold: Vec<Convergence>,
    pub take_over: Vec<Convergence>,
    pub idle: Idle,
    pub repairs: Vec<(Drift, Vec<Repair>)>,
    pub image_changes: Vec<Duration>,
    pub recoveries: Vec<Duration>,
    pub second_run: Vec<Request>,
    pub config_sync: ConfigSync,
}

/// A start.
pub struct Convergence {
    /// From the start of the process until the benchmark's watch showed the status that then lasted.
    pub time: Duration,
    /// All requests until the end of [`HOLD`].
    pub requests: Vec<Request>,
    /// Processor time by then.
    pub cpu_seconds: f64,
    /// Resident memory then, and the part of it that is backed by no file.
    pub rss_kib: u64,
    pub anonymous_kib: u64,
    /// The TLS connections by then, where they are counted.
    pub connections: Option<usize>,
}

/// A time without changes in the cluster.
pub struct Idle {
    pub seconds: u32,
    pub requests: Vec<Request>,
    pub cpu_seconds: f64,
}

impl<'a> Access<'a> {
    /// Straight to the API server.
    pub fn direct(lab: &'a Lab) -> Self {
        Self { lab, kubeconfig: lab.kubeconfig().to_owned(), name: "direct", proxy: None }
    }

    /// With latency added to each call.
    pub async fn delayed(lab: &'a Lab, latency: Duration) -> Result<Self> {
        let proxy = Latency::start(lab.plane.port(), latency)?;
        let kubeconfig = lab.plane.service_account_kubeconfig_via(proxy.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
        Ok(Self { lab, kubeconfig, name: "with latency", proxy: Some(proxy) })
    }

    fn start(&self) -> Result<Operator> {
        self.lab.start_with(&self.kubeconfig, POD_UID, &[])
    }

    fn accepted(&self) -> Option<usize> {
        self.proxy.as_ref().map(Latency::accepted)
    }

    fn progress(&self, what: &str) {
        progress(&format!("{}: {what}", self.name));
    }
}

/// Measures everything.
pub async fn all(access: &Access<'_>, idle_seconds: u32) -> Result<Measured> {
    let lab = access.lab;
    let (take_over, operator) = runs(access, "take-over", create_as_predecessor).await?;
    end(&operator).await?;
    let (cold, mut operator) = cold_runs(access).await?;

    access.progress(&format!("idle for {idle_seconds} s"));
    let idle = idle(lab, &operator, idle_seconds).await?;

    let mut repairs = Vec::new();
    for drift in Drift::ALL {
        access.progress(&format!("drift, {drift}"));
        let mut times = Vec::new();
        for _ in 0..RUNS {
            times.push(drift::repair(lab, drift).await?);
        }
        repairs.push((drift, times));
    }

    access.progress("images changed");
    let image_changes = image_changes(lab).await?;

    let mut recoveries = Vec::new();
    for number in 1..=RUNS {
        access.progress(&format!("killed, {number} of {RUNS}"));
        let (restarted, time) = recovery(access, &operator).await?;
        operator = restarted;
        recoveries.push(time);
    }

    let config_sync = config::measure(lab, &operator).await?;

    access.progress("second run");
    end(&operator).await?;
    let second_run = second_run(access).await?;
    Ok(Measured { cold, take_over, idle, repairs, image_changes, recoveries, second_run, config_sync })
}

/// Starts the operator several times, each time in a cluster without its objects. The last operator keeps running.
pub async fn cold_runs(access: &Access<'_>) -> Result<(Vec<Convergence>, Operator)> {
    runs(access, "cold start", async |_| Ok(())).await
}

async fn runs(
    access: &Access<'_>,
    what: &str,
    prepare: impl AsyncFn(&Lab) -> Result<()>,
) -> Result<(Vec<Convergence>, Operator)> {
    let mut runs = Vec::new();
    let mut running: Option<Operator> = None;
    for number in 1..=RUNS {
        access.progress(&format!("{what}, {number} of {RUNS}"));
        if let Some(operator) = running.take() {
            end(&operator).await?;
        }
        reset(access.lab).await?;
        prepare(access.lab).await?;
        let (run, operator) = cold_run(access).await?;
        runs.push(run);
        running = Some(operator);
    }
    Ok((runs, running.context("no runs")?))
}

/// One start in a cluster without objects of the operator.
pub async fn cold(access: &Access<'_>) -> Result<Convergence> {
    reset(access.lab).await?;
    let (run, operator) = cold_run(access).await?;
    end(&operator).await?;
    Ok(run)
}

async fn cold_run(access: &Access<'_>) -> Result<(Convergence, Operator)> {
    let lab = access.lab;
    let mut reports = Watch::cluster_operator(&lab.client).await?;
    let (mark, accepted_before) = (lab.mark().await?, access.accepted());
    let started = Instant::now();
    let operator = access.start()?;
    let converged = program::while_it_runs(&operator, healthy_since(&mut reports)).await?;
    let run = Convergence {
        time: converged - started,
        requests: lab.requests(mark).await?,
        cpu_seconds: operator.cpu_seconds(),
        rss_kib: operator.rss_kib(),
        anonymous_kib: operator.anonymous_kib(),
        connections: access.accepted().map(|accepted| accepted - accepted_before.unwrap_or_default()),
    };
    Ok((run, operator))
}

/// Waits until the reports have said for [`HOLD`] that all is well, and returns when they first did.
async fn healthy_since(reports: &mut Watch) -> Result<Instant> {
    let limit = Instant::now() + LIMIT;
    let mut since = None;
    loop {
        let deadline = since.map_or(limit, |since| since + HOLD);
        match (timeout_at(deadline.into(), reports.next()).await, since) {
            (Ok(state), _) => {
                let is_healthy = state?.as_ref().is_some_and(program::is_healthy);
                since = is_healthy.then(|| since.unwrap_or_else(Instant::now));
            }
            (Err(_), Some(since)) => return Ok(since),
            (Err(_), None) => bail!("the operator has not converged within {LIMIT:?}"),
        }
    }
}

/// Deletes the operator's objects, and restores `manifests/`, the `ClusterOperator` among them.
async fn reset(lab: &Lab) -> Result<()> {
    lab.delete_all().await?;
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), NAMESPACE);
    eventually("the pods are gone", LIMIT, async || {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await?;
    objects::install_manifests(&lab.client, &repository().join("manifests"), Workloads::Skip).await
}

/// Creates the planned objects as the Go operator does, with a difference to repair in each Deployment.
async fn create_as_predecessor(lab: &Lab) -> Result<()> {
    for mut object in program::planned(lab).await? {
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["metadata"]["annotations"]["old"] = json!("x");
        }
        objects::create_as(&lab.client, "cluster-controller-manager-operator", object).await?;
    }
    Ok(())
}

async fn idle(lab: &Lab, operator: &Operator, seconds: u32) -> Result<Idle> {
    let (mark, cpu_before) = (lab.mark().await?, operator.cpu_seconds());
    sleep(Duration::from_secs(u64::from(seconds))).await;
    Ok(Idle { seconds, requests: lab.requests(mark).await?, cpu_seconds: operator.cpu_seconds() - cpu_before })
}

/// From a new images file until the Deployment has the new image.
async fn image_changes(lab: &Lab) -> Result<Vec<Duration>> {
    let original = program::images()?;
    let mut images: Value = serde_json::from_str(&original)?;
    let (mut times, mut pause) = (Vec::new(), SETTLE);
    for number in 0..RUNS {
        let image = format!("registry.example/aws-cloud-controller-manager:bench-{number}");
        images["cloudControllerManagerAWS"] = json!(image);
        times.push(image_change(lab, &images.to_string(), &image).await?);
        // The operator may read the file periodically: change it at another point of the period each time.
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

/// From SIGKILL until the restarted container of the same Pod has recreated an object that was deleted meanwhile.
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
    let (repaired, _) = program::while_it_runs(&restarted, back).await?;
    sleep(SETTLE).await;
    Ok((restarted, repaired - killed))
}

/// The requests of another Pod's operator in a converged cluster.
async fn second_run(access: &Access<'_>) -> Result<Vec<Request>> {
    let lab = access.lab;
    let mark = lab.mark().await?;
    let operator = lab.start_with(&access.kubeconfig, NEXT_POD_UID, &[])?;
    eventually("the second run leads", LIMIT, async || {
        Ok(lab.requests(mark).await?.iter().any(|request| request.is_lease() && request.is_write()).then_some(()))
    })
    .await?;
    sleep(HOLD).await;
    let requests = lab.requests(mark).await?;
    end(&operator).await?;
    Ok(requests)
}

async fn end(operator: &Operator) -> Result<()> {
    operator.terminate()?;
    operator.wait(LIMIT).await.map(drop)
}

fn deployments(lab: &Lab) -> Api<DynamicObject> {
    program::api(&lab.client, &ApiResource::erase::<Deployment>(&()))
}
