//! Watches that deliver nothing, or the wrong things: the operator notices, starts them again, and repairs what has
//! happened meanwhile.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    faults::never_degraded,
    lab::{LIMIT, Lab, OWN_NAMESPACE},
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        faults::{Fault, Faults, Rule, Seen},
        lab::repository,
        objects,
        openshift::Cluster,
    },
};

/// Longer than any test runs.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn watches_services(seen: &Seen) -> bool {
    seen.is_watch() && seen.path.ends_with("/services")
}

/// Waits until this many requests have met a fault.
async fn have_met_faults(proxy: &Faults, number: usize) -> Result<()> {
    eventually("faulty requests", LIMIT, async || {
        let seen = proxy.seen();
        ensure!(seen.iter().filter(|seen| seen.is_faulty).count() >= number, "{seen:#?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_watch_whose_restart_is_not_answered_is_started_again() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    proxy.inject(vec![
        Rule { fault: Fault::EndWatch(Duration::from_secs(2)), applies: watches_services, times: 1 },
        Rule { fault: Fault::Slow(FOR_EVER), applies: watches_services, times: 1 },
    ]);
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    have_met_faults(&proxy, 2).await?;
    lab.delete("Service").await?;
    lab.exists("Service", &operator).await?;
    ensure!(operator.log().contains("failed to watch services"), "{}", operator.log());
    never_degraded(&lab, &operator).await
}

/// The API server accepts the watch and then sends only a part of the objects.
#[tokio::test]
async fn a_watch_that_never_delivers_all_objects_is_started_again() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let rule = Rule { fault: Fault::HalfAnswer, applies: watches_services, times: 1 };
    proxy.inject(vec![rule]);
    let operator = lab.start_through(proxy.kubeconfig())?;
    have_met_faults(&proxy, 1).await?;
    never_degraded(&lab, &operator).await
}

/// The number of writes that the backup lacks: after the restore, the operator's watches have resource versions of the future.
const WRITES: usize = 300;

#[tokio::test]
async fn an_etcd_that_is_restored_from_a_backup_is_followed() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let mut lab = Lab::on(plane.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.finish_workloads();
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    lab.plane.back_up().await?;
    for number in 0..WRITES {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"number": number.to_string()},
            "metadata": {"name": "writes", "namespace": OWN_NAMESPACE}});
        objects::apply(&lab.client, config_map).await?;
    }
    // Of the Service, too, they know one.
    lab.delete("Service").await?;
    lab.exists("Service", &operator).await?;
    lab.converged(&operator).await?;
    lab.plane.restore().await?;
    lab.delete("Service").await?;
    lab.exists("Service", &operator).await?;
    never_degraded(&lab, &operator).await
}
