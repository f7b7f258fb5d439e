//! Measures the config-sync controllers: how fast `cloud-conf` and `ccm-trusted-ca` follow their sources, and how memory
//! grows with a thousand changes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::{
    RUNS, large,
    measure::{LIMIT, SETTLE},
    program::{self, Watch},
    progress,
    support::{
        audit::Request,
        lab::{Lab, config_maps},
        operator::Operator,
        pki,
    },
};

/// The number of changes of the source.
const CHANGES: usize = 1000;
/// The changes after which memory is not expected to grow.
const WARM: usize = 100;
/// The least length of a large bundle in bytes.
const BUNDLE: usize = 1000 * 1024;
/// The length of a large configuration in bytes.
const CONFIGURATION: usize = 1024 * 1024;

/// What was measured.
pub struct ConfigSync {
    /// From the answer to a change of the source until `cloud-conf` followed.
    pub times: Vec<Duration>,
    /// Writes to `cloud-conf`, for each change.
    pub writes: f64,
    /// Resident memory after the first changes.
    pub warm_rss_kib: u64,
    /// Resident memory after all of them.
    pub rss_kib: u64,
    /// Processor time for each change of a large system bundle, in seconds.
    pub bundle_cpu: Vec<f64>,
}

/// Processor time for the work on each kind of large configuration, in seconds.
pub fn large() -> Vec<f64> {
    progress("large configurations");
    large::SHAPES.iter().map(|shape| large::seconds(shape, &large::text(shape, CONFIGURATION))).collect()
}

/// Changes the source many times, each time after `cloud-conf` has followed.
pub async fn measure(lab: &Lab, operator: &Operator) -> Result<ConfigSync> {
    progress(&format!("{CHANGES} changes of the cloud configuration"));
    let target = program::api(&lab.client, &ApiResource::erase::<ConfigMap>(&()));
    let mut states = Watch::now(&target, "cloud-conf").await?;
    let source = config_maps(&lab.client, "openshift-config-managed");
    let mark = lab.mark().await?;
    let (mut times, mut warm_rss_kib) = (Vec::new(), 0);
    for number in 1..=CHANGES {
        let line = format!("Zone = bench-{number}");
        let patch = json!({"data": {"cloud.conf": format!("[Global]\n{line}\n")}});
        source.patch("kube-cloud-config", &PatchParams::default(), &Patch::Merge(patch)).await?;
        let answered = Instant::now();
        let follows = |now: &DynamicObject| {
            now.data["data"]["cloud.conf"].as_str().is_some_and(|text| text.lines().any(|other| other == line))
        };
        let (followed, _) =
            program::while_it_runs(operator, states.until("cloud-conf follows its source", LIMIT, follows)).await?;
        times.push(followed.saturating_duration_since(answered));
        if number == WARM {
            warm_rss_kib = operator.rss_kib();
        }
    }
    // The change is visible before its line is in the audit log.
    tokio::time::sleep(SETTLE).await;
    let requests = lab.requests(mark).await?;
    let is_of_copy = |request: &&Request| request.counts_as_write() && request.name == "cloud-conf";
    let writes = requests.iter().filter(is_of_copy);
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let writes = writes.count() as f64 / CHANGES as f64;
    let rss_kib = operator.rss_kib();
    let bundle_cpu = bundle_changes(lab, operator).await?;
    Ok(ConfigSync { times, writes, warm_rss_kib, rss_kib, bundle_cpu })
}

/// Processor time for each change of a system bundle of nearly 1 MiB, the most that a ConfigMap can hold.
async fn bundle_changes(lab: &Lab, operator: &Operator) -> Result<Vec<f64>> {
    progress("changes of a large system bundle");
    let mut bundle = String::new();
    while bundle.len() < BUNDLE {
        bundle.push_str(&pki::authority("bench")?);
    }
    let target = program::api(&lab.client, &ApiResource::erase::<ConfigMap>(&()));
    let mut states = Watch::now(&target, "ccm-trusted-ca").await?;
    let mut times = Vec::new();
    for number in 0..RUNS {
        let last = pki::authority(&format!("bench-{number}"))?;
        let before = operator.cpu_seconds();
        lab.write_system_bundle(&format!("{bundle}{last}"))?;
        let line = last.lines().nth(1).context("a certificate has lines")?;
        let follows =
            |now: &DynamicObject| now.data["data"]["ca-bundle.crt"].as_str().is_some_and(|text| text.contains(line));
        let followed = states.until("ccm-trusted-ca follows the system bundle", LIMIT, follows);
        program::while_it_runs(operator, followed).await?;
        times.push(operator.cpu_seconds() - before);
    }
    lab.write_system_bundle(&pki::authority("system")?)?;
    let is_small =
        |now: &DynamicObject| now.data["data"]["ca-bundle.crt"].as_str().is_some_and(|text| text.len() < BUNDLE);
    states.until("ccm-trusted-ca follows the system bundle", LIMIT, is_small).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(times)
}
