//! The connections to the API server: HTTP/2 keeps them few.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    apply::inventory,
    cluster::{client, request::REQUEST_TIMEOUT, seen::Seen, watch::Collection, watches::Watches},
    object::reference::CONFIG_MAP,
    text::kubectl::Access,
};
use futures::FutureExt;
use kube::Client;
use serde_json::json;

use crate::{
    contract::images,
    lab::{LEASE, LIMIT, Lab, OWN_NAMESPACE, POD_UID, SERVICE_ACCOUNT, leases},
    leader::FAST,
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        lab::repository,
        latency::Latency,
        openshift::Cluster,
    },
};

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let access = Access { kubeconfig: Some(kubeconfig.to_owned()), ..Access::default() };
    client::connect(&access, REQUEST_TIMEOUT, None, None).await
}

/// One for the leases, and one for all else: its first request opens it, and all watches wait for it.
#[tokio::test]
async fn a_cold_start_opens_two_connections() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let wire = Latency::start(lab.plane.port(), Duration::from_millis(5))?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let operator = lab.start_with(&kubeconfig, POD_UID, &[])?;
    lab.converged(&operator).await?;
    assert_eq!(wire.accepted(), 2, "{}", operator.log());
    Ok(())
}

/// The operator does not poll its watches while it applies.
#[tokio::test]
async fn a_request_that_nobody_polls_delays_no_other() -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let wire = Latency::start(lab.plane.port(), Duration::from_millis(50))?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let client = connect(&kubeconfig).await?;
    let request = || Box::pin(client.apiserver_version());
    let (mut opening, mut waiting) = (request(), request());
    // The first poll hands a request to the client, and the second one sends it. A connection takes four round trips.
    for _ in 0..2 {
        for polled in [&mut opening, &mut waiting] {
            assert!(polled.now_or_never().is_none(), "it has no connection yet");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let others = async {
        for _ in 0..20 {
            request().await?;
        }
        anyhow::Ok(())
    };
    // Those that had to wait three seconds for each other would take a minute.
    tokio::time::timeout(Duration::from_secs(30), others).await.context("they wait for those that nobody polls")??;
    waiting.await?;
    opening.await?;
    assert_eq!(wire.accepted(), 1);
    Ok(())
}

/// An API server accepts 100 streams on a connection.
#[tokio::test]
async fn watches_that_a_connection_has_no_room_for_get_another_one() -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let wire = Latency::start(lab.plane.port(), Duration::ZERO)?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let client = connect(&kubeconfig).await?;
    let mut watches = Watches::new(client.clone());
    for id in 0..120 {
        watches.start(id, || Collection::named(&CONFIG_MAP, OWN_NAMESPACE, inventory::NAME));
    }
    let all_synced = async {
        while !watches.iter().all(|(_, seen)| Seen::is_synced(seen)) {
            watches.changed(|_, _| (), |_| false, |_| ()).await;
        }
    };
    tokio::time::timeout(LIMIT, all_synced).await.with_context(|| format!("{:#?}", watches.pending(|_| true)))?;
    assert_eq!(wire.accepted(), 2);

    // Watches that nobody reads delay no other request.
    client.apiserver_version().await?;
    assert_eq!(wire.accepted(), 2);

    // Ended watches make room.
    watches.keep(|id| *id < 10);
    for id in 200..260 {
        watches.start(id, || Collection::named(&CONFIG_MAP, OWN_NAMESPACE, inventory::NAME));
    }
    tokio::time::timeout(LIMIT, watches.changed(|_, _| (), |_| false, |_| ())).await?;
    assert_eq!(wire.accepted(), 2);
    Ok(())
}

/// An API server ends connections at random, so that clients spread over all servers.
#[tokio::test]
async fn connections_that_the_api_server_ends_cost_no_error_and_hide_no_change() -> Result<()> {
    let plane = ControlPlane::start(Options { ends_connections: true, ..Options::default() }).await?;
    let mut lab = Lab::on(plane.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.finish_workloads();
    lab.write_images(&images())?;
    let wire = Latency::start(lab.plane.port(), Duration::ZERO)?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let operator = lab.start_with(&kubeconfig, POD_UID, &FAST)?;
    lab.converged(&operator).await?;
    // Two connections at the start, and each of them ends at least once.
    while wire.accepted() < 6 {
        lab.update("Deployment", &json!({"spec": {"replicas": 7}})).await?;
        lab.has_two_replicas(&operator).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lease = leases(&lab.client).get(LEASE).await?.spec.context("a Lease")?;
    assert_eq!(lease.lease_transitions.unwrap_or_default(), 0);
    assert!(!operator.log().contains("retrying"), "{}", operator.log());
    Ok(())
}

/// A load balancer that has forgotten a connection drops its packets, and neither end gets an answer.
#[tokio::test]
async fn a_lease_is_renewed_in_time_although_its_connection_is_silent() -> Result<()> {
    // Its renewals are given up after half of the deadline: the next one must not wait for the same connection.
    renewed_on_a_silent_connection(&FAST, Duration::from_secs(8)).await
}

#[tokio::test]
#[ignore = "two minutes; make test-faults"]
async fn a_lease_with_the_periods_of_openshift_is_renewed_in_time_although_its_connection_is_silent() -> Result<()> {
    // The period of renewals is 26 s.
    renewed_on_a_silent_connection(&[], Duration::from_secs(40)).await
}

/// Waits until a renewal is later by `period` than the one before all connections became silent.
async fn renewed_on_a_silent_connection(flags: &[&str], period: Duration) -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let wire = Latency::start(lab.plane.port(), Duration::ZERO)?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let operator = lab.start_with(&kubeconfig, POD_UID, flags)?;
    lab.converged(&operator).await?;
    let renewed = async || {
        let spec = leases(&lab.client).get(LEASE).await?.spec.context("a Lease")?;
        Ok::<_, anyhow::Error>(spec.renew_time.context("a time")?.0)
    };
    let before = renewed().await?;
    wire.forget();
    eventually("two renewals", Duration::from_secs(150), async || {
        ensure!(operator.wait(Duration::ZERO).await.is_err(), "it has lost its lease:\n{}", operator.log());
        ensure!(renewed().await?.duration_since(before).unsigned_abs() > period, "not renewed");
        Ok(Some(()))
    })
    .await?;
    lab.delete("Service").await?;
    lab.exists("Service", &operator).await
}

/// All watches end after 290 s, and nothing else used their connection.
#[tokio::test]
#[ignore = "five minutes; make test-faults"]
async fn an_idle_operator_opens_no_further_connection() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let wire = Latency::start(lab.plane.port(), Duration::ZERO)?;
    let kubeconfig = lab.plane.service_account_kubeconfig_via(wire.port(), OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let operator = lab.start_with(&kubeconfig, POD_UID, &[])?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    eventually("the second watch of each object", Duration::from_secs(400), async || {
        let requests = lab.requests(mark).await?;
        let watches = requests.iter().filter(|request| request.verb == "watch").count();
        ensure!(watches >= 14, "{watches} watches");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(wire.accepted(), 2, "{}", operator.log());
    Ok(())
}
