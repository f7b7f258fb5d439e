//! The leader counts as it is when a node is confirmed, not as it was a minute ago, and withdrawals wait for nothing.

use super::*;
use crate::support::faults::{Fault, Faults, Rule, Seen};

/// The number of objects that the operator writes in a pass while a node may be deleted.
const ROOM: usize = 4;

/// Makes a pod on a node the holder of the lease.
async fn lead(client: &Client, node: &str, since: Timestamp) -> Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"holderIdentity": format!("{node}_2"), "acquireTime": since.to_string().replace('Z', ".000000Z")},
    });
    objects::apply(client, lease).await.map(drop)
}

/// Waits until a node waits for a reason, and then sees that nothing was listed or granted.
async fn waits(fixture: &Fixture, node: &str, why: &str) -> Result<()> {
    let waited = eventually("the node to wait", LIMIT, async || {
        let status = fixture.status().await?;
        let waiting = status["waiting"].as_array().cloned().unwrap_or_default();
        let one = waiting.iter().find(|one| one["node"] == node).with_context(|| format!("{status}"))?;
        ensure!(one["message"].as_str().is_some_and(|message| message.contains(why)), "{one}");
        Ok(Some(()))
    });
    waited.await.with_context(|| fixture.operator.log())
}

#[tokio::test]
async fn a_new_leader_confirms_nothing_although_the_one_before_had_led_for_long() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    // With a node that waits the leader is asked for each minute, so that there is an answer.
    let kept =
        add_node(client, "kept", ago(700), json!({"metadata": {"annotations": {"ccm-operator.dev/keep": ""}}})).await?;
    fixture.ask_for(&kept).await?;
    waits(&fixture, "kept", "it has the annotation ccm-operator.dev/keep").await?;
    let mark = fixture.cluster.mark().await?;
    fixture.lose("fine", 700).await?;
    fixture.role_is(&granting(&["fine"])).await?;
    eventually("the deletion", LIMIT, async || {
        delete(&fixture.ccm, "fine").await.map(Some).map_err(anyhow::Error::msg)
    })
    .await?;
    let asked = fixture.cluster.requests(mark).await?;
    let of_lease = asked.iter().filter(|one| one.verb == "get" && one.name == "cloud-controller-manager").count();
    assert_eq!(of_lease, 2, "when it is confirmed, and when it is granted: {asked:#?}");

    // Credentials of another account, and so a new leader.
    lead(client, CONTROL_PLANE, now()).await?;
    fixture.lose("b", 700).await?;
    waits(&fixture, "b", "must have led for 10 minutes").await?;
    assert_eq!((fixture.listed().await?, fixture.role().await?), ("[]".to_owned(), json!([])));
    Ok(())
}

#[tokio::test]
async fn a_leader_that_is_no_pod_of_the_current_rollout_confirms_nothing() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    // On a machine whose kubelet is dead and whose container lives; a newer pod has another template.
    let before = Timestamp::now().as_second();
    add_pod(client, "old", "0").await?;
    eventually("the next second", LIMIT, async || Ok((Timestamp::now().as_second() > before + 1).then_some(())))
        .await?;
    add_pod(client, "new", "2").await?;
    lead(client, "old", ago(3600)).await?;
    fixture.lose("gone", 700).await?;
    waits(&fixture, "gone", "pod aws-old-0 leads, which is not known to be of the current rollout").await?;
    assert_eq!((fixture.listed().await?, fixture.role().await?), ("[]".to_owned(), json!([])));
    Ok(())
}

/// Starts the operator again, with a proxy between it and its API server.
async fn put_between(fixture: &mut Fixture) -> Result<Faults> {
    fixture.operator.terminate()?;
    fixture.operator.wait(LIMIT).await?;
    let own = fixture.cluster.kubeconfig.clone();
    let faults = Faults::start(&own, own.parent().context("its folder")?).await?;
    faults.kubeconfig().clone_into(&mut fixture.cluster.kubeconfig);
    fixture.operator = start(&fixture.cluster)?;
    Ok(faults)
}

/// Whether a request writes an object of the second `CloudControllerManager`.
fn is_of_second(seen: &Seen) -> bool {
    seen.method == http::Method::PATCH && seen.path.contains("-second")
}

fn is_withdrawal(seen: &Seen) -> bool {
    seen.is_write() && seen.path.ends_with(&format!("/clusterroles/{NAME}"))
}

#[tokio::test]
async fn a_withdrawal_waits_for_a_few_writes_at_most_whatever_else_is_to_be_written() -> Result<()> {
    let mut fixture = Fixture::new().await?;
    let without_services = json!({"spec": {"controllers": {"service": "Disabled"}}});
    fixture.cluster.patch("cluster", without_services).await?;
    fixture.cluster.conditions(&fixture.operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
    let faults = put_between(&mut fixture).await?;
    let client = &fixture.cluster.client;
    fixture.lose("gone", 700).await?;
    fixture.role_is(&granting(&["gone"])).await?;

    // A second one is installed. Its objects are held one by one, so that their number does not depend on anybody's speed.
    faults.forget();
    faults.inject(vec![Rule { fault: Fault::Held, applies: is_of_second, times: usize::MAX }]);
    let controllers = json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"});
    let second = json!({"provider": "aws", "ports": {"secure": 10268}, "controllers": controllers});
    fixture.cluster.create("second", second).await?;
    let writes = || faults.seen().iter().filter(|seen| is_of_second(seen)).count();
    eventually("its first object", LIMIT, async || Ok((writes() > 0).then_some(())))
        .await
        .with_context(|| fixture.operator.log())?;

    let ready = now();
    faults.look_for(&format!("\"lastTransitionTime\":\"{ready}\""));
    set_ready(client, "gone", "True", ready).await?;
    eventually("the operator to be told", LIMIT, async || Ok(faults.has_told().then_some(()))).await?;
    let mut released = 0;
    loop {
        faults.release();
        released += 1;
        let next = eventually("the next write", LIMIT, async || {
            let is_withdrawn = faults.seen().iter().any(is_withdrawal);
            Ok((is_withdrawn || writes() > released).then_some(is_withdrawn))
        });
        if next.await.with_context(|| fixture.operator.log())? {
            break;
        }
    }
    assert!(released <= ROOM, "{released} objects of another one came first");
    faults.inject(Vec::new());
    (0..ROOM).for_each(|_| faults.release());
    fixture.role_is(&json!([])).await
}

/// Whether a request applies an object or a status.
fn is_apply(seen: &Seen) -> bool {
    seen.method == http::Method::PATCH
}

#[tokio::test]
async fn a_stop_names_the_nodes_whose_permission_an_api_server_that_hangs_keeps_alive() -> Result<()> {
    let mut fixture = Fixture::new().await?;
    let faults = put_between(&mut fixture).await?;
    fixture.lose("gone", 700).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    // A pass hangs, and so does the withdrawal after it.
    faults.inject(vec![Rule { fault: Fault::Slow(LIMIT), applies: is_apply, times: usize::MAX }]);
    fixture.cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 4}}})).await?;
    let hangs = |seen: &Seen| seen.is_faulty && seen.path.contains("/daemonsets/");
    eventually("a write that hangs", LIMIT, async || Ok(faults.seen().iter().any(hangs).then_some(())))
        .await
        .with_context(|| fixture.operator.log())?;
    fixture.operator.terminate()?;
    fixture.operator.wait(LIMIT).await?;
    let log = fixture.operator.log();
    assert!(log.contains("the permission to delete these nodes could not be withdrawn: gone"), "{log}");
    assert!(log.contains("released the lease"), "{log}");
    Ok(())
}
