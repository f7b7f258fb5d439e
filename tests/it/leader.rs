//! Leader election: one leader at a time, a restarted container continues at once, a graceful stop hands over.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    lab::{CONTAINER, LEASE, LIMIT, Lab, leases},
    support::{eventually, openshift::Cluster, operator::Operator},
};

const POD_A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
const POD_B: &str = "bbbbbbbb-0000-4000-8000-000000000000";
/// A short Lease, so that a test can wait until it expires.
pub(crate) const FAST: [&str; 3] =
    ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"];
const LEASE_DURATION: SignedDuration = SignedDuration::from_secs(4);

/// The identity of the operator in a Pod.
fn identity(pod_uid: &str) -> String {
    format!("{pod_uid}_{CONTAINER}")
}

async fn holder(lab: &Lab) -> Result<String> {
    let lease = leases(&lab.client).get(LEASE).await?;
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// Waits until another process holds the Lease that an operator competes for.
async fn waits(operator: &Operator) -> Result<()> {
    eventually("the operator to wait", LIMIT, async || {
        ensure!(operator.log().contains("waiting for the lease"), "{}", operator.log());
        Ok(Some(()))
    })
    .await
}

/// Waits until the operator of this Pod holds the Lease.
async fn is_held_by(lab: &Lab, pod_uid: &str) -> Result<()> {
    eventually("the new holder", LIMIT, async || Ok((holder(lab).await? == identity(pod_uid)).then_some(()))).await
}

/// When the Lease was last renewed.
async fn renewed(lab: &Lab) -> Result<Timestamp> {
    let lease = leases(&lab.client).get(LEASE).await?;
    Ok(lease.spec.and_then(|spec| spec.renew_time).context("a renewal")?.0)
}

#[tokio::test]
async fn a_restarted_container_of_the_same_pod_continues_at_once() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start_as(POD_A, &[])?;
    lab.converged(&operator).await?;
    operator.kill()?;
    operator.wait(LIMIT).await?;
    assert_eq!(holder(&lab).await?, identity(POD_A));
    lab.delete("Deployment").await?;
    let operator = lab.start_as(POD_A, &[])?;
    // A Lease that is not the operator's own expires after more than two minutes: longer than the wait limit.
    lab.exists("Deployment", &operator).await?;
    let transitions = leases(&lab.client).get(LEASE).await?.spec.and_then(|spec| spec.lease_transitions);
    assert_eq!(transitions, Some(0), "the holder has not changed");
    Ok(())
}

#[tokio::test]
async fn another_pod_writes_nothing_until_the_lease_is_released() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    // The Lease itself expires after more than two minutes: longer than the wait limit.
    let soon = ["--leader-elect-retry-period=1s"];
    let first = lab.start_as(POD_A, &soon)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &soon)?;
    waits(&second).await?;
    let mark = lab.mark().await?;
    lab.delete("Deployment").await?;
    lab.exists("Deployment", &first).await?;
    lab.converged(&first).await?;
    assert!(!second.log().contains("applied"), "{}", second.log());
    let writes = lab.settled_writes(&first, mark).await?;
    assert_eq!(writes.iter().filter(|write| write.contains("deployments")).count(), 1, "{writes:?}");
    assert_eq!(holder(&lab).await?, identity(POD_A));

    first.terminate()?;
    assert!(first.wait(LIMIT).await?.success());
    assert!(first.log().contains("released the lease"), "{}", first.log());
    is_held_by(&lab, POD_B).await?;
    lab.delete("Service").await?;
    lab.exists("Service", &second).await
}

#[tokio::test]
async fn a_crashed_leader_is_replaced_only_after_its_lease_has_expired() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start_as(POD_A, &FAST)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &FAST)?;
    waits(&second).await?;
    first.kill()?;
    first.wait(LIMIT).await?;
    let renewed = renewed(&lab).await?;
    is_held_by(&lab, POD_B).await?;
    let lease = leases(&lab.client).get(LEASE).await?.spec.context("a Lease")?;
    let acquired = lease.acquire_time.context("the time of the take-over")?.0;
    let waited = acquired.duration_since(renewed);
    assert!(waited >= LEASE_DURATION, "taken over {waited} after the last renewal\n{}", second.log());
    Ok(())
}

#[tokio::test]
async fn an_operator_that_loses_its_lease_exits() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start_as(POD_A, &FAST)?;
    lab.converged(&operator).await?;
    let mut lease = leases(&lab.client).get(LEASE).await?;
    lease.spec.as_mut().unwrap().holder_identity = Some(POD_B.into());
    leases(&lab.client).replace(LEASE, &kube::api::PostParams::default(), &lease).await?;
    let status = operator.wait(LIMIT).await?;
    assert_eq!(status.code(), Some(3), "{}", operator.log());
    assert!(
        operator
            .log()
            .contains(&format!("lost the lease openshift-cloud-controller-manager-operator/{LEASE} to {POD_B}"))
    );
    assert_eq!(holder(&lab).await?, POD_B, "another holder's lease is not released");
    Ok(())
}

#[tokio::test]
async fn a_waiting_operator_sees_a_release_at_once() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    // Reading the Lease only each 85 s would end after the wait limit.
    let seldom = ["--leader-elect-retry-period=85s"];
    let first = lab.start_as(POD_A, &seldom)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &seldom)?;
    waits(&second).await?;
    first.terminate()?;
    first.wait(LIMIT).await?;
    is_held_by(&lab, POD_B).await
}

#[tokio::test]
async fn two_containers_of_a_pod_do_not_both_lead() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start_config_sync(POD_A)?;
    eventually("the first to lead", LIMIT, async || Ok(first.log().contains("acquired the lease").then_some(())))
        .await?;
    let second = lab.start_config_sync_in(POD_A, "other")?;
    waits(&second).await?;
    assert!(!second.log().contains("acquired"), "{}", second.log());
    Ok(())
}

#[tokio::test]
async fn a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing_more() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start_as(POD_A, &FAST)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &FAST)?;
    waits(&second).await?;
    first.pause()?;
    is_held_by(&lab, POD_B).await?;
    let before = first.log();
    lab.delete("Service").await?;
    first.resume()?;
    let status = first.wait(LIMIT).await?;
    assert_eq!(status.code(), Some(3), "{}", first.log());
    let written: Vec<_> =
        first.log()[before.len()..].lines().filter(|line| line.contains(" created ")).map(ToOwned::to_owned).collect();
    assert_eq!(written, Vec::<String>::new(), "{}", first.log());
    lab.exists("Service", &second).await
}

#[tokio::test]
async fn a_deleted_lease_is_not_taken_from_its_holder() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start_as(POD_A, &FAST)?;
    lab.converged(&first).await?;
    let second = lab.start_as(POD_B, &FAST)?;
    eventually("the other to wait for both leases", LIMIT, async || {
        ensure!(second.log().matches("waiting for the lease").count() == 2, "{}", second.log());
        Ok(Some(()))
    })
    .await?;
    for _ in 0..2 {
        leases(&lab.client).delete(LEASE, &kube::api::DeleteParams::default()).await?;
        // The holder learns of it at its next renewal; until then it leads.
        eventually("the lease", LIMIT, async || Ok(leases(&lab.client).get_opt(LEASE).await?.map(drop))).await?;
        assert_eq!(holder(&lab).await?, identity(POD_A), "{}\n{}", first.log(), second.log());
    }
    first.kill()?;
    first.wait(LIMIT).await?;
    leases(&lab.client).delete(LEASE, &kube::api::DeleteParams::default()).await?;
    is_held_by(&lab, POD_B).await
}
