//! Leader election: one leader at a time, a restarted container goes on at once, a graceful stop hands over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{
    lab::{LEASE, LIMIT, Lab, leases},
    support::{eventually, openshift::Cluster},
};

const POD_A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
const POD_B: &str = "bbbbbbbb-0000-4000-8000-000000000000";

async fn holder(lab: &Lab) -> Result<String> {
    let lease = leases(&lab.client).get(LEASE).await?;
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

#[tokio::test]
async fn a_killed_container_of_the_same_pod_goes_on_at_once() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start_as(POD_A, &[])?;
    lab.converged(&operator).await?;
    operator.kill()?;
    operator.wait(LIMIT).await?;
    assert_eq!(holder(&lab).await?, POD_A);
    lab.delete("Deployment").await?;
    let restarted = Instant::now();
    let operator = lab.start_as(POD_A, &[])?;
    let back = eventually("the Deployment", LIMIT, async || Ok(lab.live("Deployment").await?.map(drop))).await;
    assert!(back.is_ok(), "{}", operator.log());
    assert!(restarted.elapsed() < Duration::from_secs(2), "{:?}", restarted.elapsed());
    let transitions = leases(&lab.client).get(LEASE).await?.spec.and_then(|spec| spec.lease_transitions);
    assert_eq!(transitions, Some(0), "the holder has not changed");
    Ok(())
}

#[tokio::test]
async fn another_pod_waits_and_writes_nothing_until_the_lease_is_given_back() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let fast =
        ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"];
    let first = lab.start_as(POD_A, &fast)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &fast)?;
    eventually("the second to wait", LIMIT, async || {
        ensure!(second.log().contains("waiting for the lease"), "{}", second.log());
        Ok(Some(()))
    })
    .await?;
    let mark = lab.mark().await?;
    lab.delete("Deployment").await?;
    eventually("the Deployment", LIMIT, async || Ok(lab.live("Deployment").await?.map(drop))).await?;
    lab.converged(&first).await?;
    assert!(!second.log().contains("applied"), "{}", second.log());
    assert_eq!(lab.writes(mark)?.iter().filter(|write| write.contains("deployments")).count(), 1);
    assert_eq!(holder(&lab).await?, POD_A);

    first.terminate()?;
    assert!(first.wait(LIMIT).await?.success());
    assert!(first.log().contains("released the lease"), "{}", first.log());
    let released = Instant::now();
    eventually("the hand-over", LIMIT, async || Ok((holder(&lab).await? == POD_B).then_some(()))).await?;
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    lab.delete("Service").await?;
    eventually("the Service", LIMIT, async || Ok(lab.live("Service").await?.map(drop))).await?;
    Ok(())
}

#[tokio::test]
async fn a_crashed_leader_is_followed_once_its_lease_has_run_out_and_no_sooner() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let fast =
        ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"];
    let first = lab.start_as(POD_A, &fast)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &fast)?;
    eventually("the second to wait", LIMIT, async || Ok(second.log().contains("waiting for the lease").then_some(())))
        .await?;
    first.kill()?;
    first.wait(LIMIT).await?;
    let killed = Instant::now();
    eventually("the take-over", LIMIT, async || Ok((holder(&lab).await? == POD_B).then_some(()))).await?;
    // The last renewal was at most a retry period before the kill.
    assert!(killed.elapsed() > Duration::from_secs(2), "{:?}", killed.elapsed());
    Ok(())
}

#[tokio::test]
async fn whoever_loses_the_lease_ends() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let fast =
        ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"];
    let operator = lab.start_as(POD_A, &fast)?;
    lab.converged(&operator).await?;
    let mut lease = leases(&lab.client).get(LEASE).await?;
    lease.spec.as_mut().unwrap().holder_identity = Some(POD_B.into());
    leases(&lab.client).replace(LEASE, &kube::api::PostParams::default(), &lease).await?;
    let status = operator.wait(LIMIT).await?;
    assert_eq!(status.code(), Some(1), "{}", operator.log());
    assert!(
        operator
            .log()
            .contains(&format!("lost the lease openshift-cloud-controller-manager-operator/{LEASE} to {POD_B}"))
    );
    assert_eq!(holder(&lab).await?, POD_B, "the lease of somebody else is not released");
    Ok(())
}
