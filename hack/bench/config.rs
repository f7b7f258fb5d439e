//! Measures the config-sync controllers: how fast `cloud-conf` follows its source, and whether a thousand changes leave
//! anything behind in memory.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::{
    cluster::{self, Lab, Watch},
    measure::LIMIT,
    progress,
    support::operator::Operator,
};

/// How often the source is changed.
const CHANGES: usize = 1000;
/// After so many changes memory is what it will be.
const WARM: usize = 100;

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
}

/// Changes the source again and again, each time once `cloud-conf` has followed.
pub async fn measure(lab: &Lab, operator: &Operator) -> Result<ConfigSync> {
    progress(&format!("{CHANGES} changes of the cloud configuration"));
    let target = cluster::api(lab.client(), &ApiResource::erase::<ConfigMap>(&()));
    let mut states = Watch::after(&target, &target.get("cloud-conf").await?).await?;
    let source = config_maps(lab.client(), "openshift-config-managed");
    let mark = lab.mark()?;
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
            cluster::while_it_runs(operator, states.until("cloud-conf follows its source", LIMIT, follows)).await?;
        times.push(followed.saturating_duration_since(answered));
        if number == WARM {
            warm_rss_kib = operator.rss_kib();
        }
    }
    let writes = lab
        .requests(mark)?
        .into_iter()
        .filter(|request| cluster::counts_as_write(request) && request.name == "cloud-conf");
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let writes = writes.count() as f64 / CHANGES as f64;
    Ok(ConfigSync { times, writes, warm_rss_kib, rss_kib: operator.rss_kib() })
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}
