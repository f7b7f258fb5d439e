//! Rollouts of the real cloud-controller-manager of AWS while a machine of the control plane is dead, or with a version that does not
//! exist: as a DaemonSet of the built-in provider, and as a Deployment of one that the scaffold has made.

mod fixture;

use std::{
    fs,
    io::{self, Write},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::fixture::{Fixture, Workload, describe, node_of, template};
use crate::{
    cloud,
    docker::{operator, owns_the_engine, run},
    installation::{ask_for, ccm_log, create_namespace, helm_install},
    kubeadm::{Blueprint, Kubeadm},
    support::{eventually, lab::conditions, moto::Subnet, process},
};

const DAEMON_SET: Blueprint =
    Blueprint { network: "ccm-operator-e2e-daemonset", addresses: "172.30.207.0/24", workers_wait: true };
const DEPLOYMENT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-deployment", addresses: "172.30.208.0/24", workers_wait: true };
/// The image of the provider that the scaffold has made. Both are the test's image of the CCM of AWS.
const ACME: &str = "registry.example.com/acme/ccm:v1.35.2";
/// The digest of no image: a version of an external provider needs one.
const NO_DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
/// The wait limit of what a person waits for.
const TWO_MINUTES: Duration = Duration::from_secs(120);
/// The wait limit of everything else. A Deployment's controller gives a rollout up after ten minutes.
const LONG: Duration = Duration::from_secs(900);

#[tokio::test]
#[ignore = "minutes: make e2e-all"]
async fn a_daemon_set_of_which_one_machine_is_dead() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let workload = Workload { kind: "DaemonSet", name: "aws-cloud-controller-manager", secret: "aws", pods: 3 };
    let addresses = ["172.30.207.10", "172.30.207.11", "172.30.207.12"];
    let (fixture, subnet) = Box::pin(Fixture::start(cloud::get().await?, &DAEMON_SET, &addresses, workload)).await?;
    let logs = &fixture.cluster.machines[0];
    Box::pin(async {
        let key = "cloud.conf";
        fixture.put_secret(json!({key: subnet.configuration()})).await?;
        create_namespace(&fixture.cluster).await?;
        helm_install(&fixture.cluster, &["--set", "providers={aws},secrets={aws}"]).await?;
        ask_for(
            &fixture.cluster,
            json!({"provider": "aws", "cloudConfig": {"secretRef": {"name": "aws", "key": key}}}),
        )
        .await?;
        fixture.begins(&[1, 2]).await?;
        a_version_that_does_not_exist(&fixture, json!({"version": "v1.35.99"})).await?;

        let changed = |number: u8| json!({key: format!("{}# {number}\n", subnet.configuration())});
        let dead = fixture.victim().await?;
        fixture.kill(dead).await?;
        rotated(&fixture, changed(1), dead, "one of three machines is dead").await?;
        // Its pod is never evicted.
        let live = 3 - dead;
        fixture.remove(live).await?;
        the_old_one_goes_on(&fixture, changed(2), dead).await
    })
    .or_else(async |error| Err(error.context(ccm_log(logs).await)))
    .await
}

#[tokio::test]
#[ignore = "minutes: make e2e-all"]
async fn a_deployment_of_which_one_machine_is_dead() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let workload = Workload { kind: "Deployment", name: "acme-cloud-controller-manager", secret: "acme", pods: 2 };
    let addresses = ["172.30.208.10", "172.30.208.11", "172.30.208.12", "172.30.208.13"];
    let (fixture, subnet) = Box::pin(Fixture::start(cloud::get().await?, &DEPLOYMENT, &addresses, workload)).await?;
    let logs = &fixture.cluster.machines[0];
    Box::pin(async {
        let credentials = |number: u8| json!({"id": "none", "key": format!("secret-{number}")});
        fixture.put_secret(credentials(0)).await?;
        install_of_folder(&fixture.cluster, &subnet).await?;
        // The last machine is no node of the control plane yet.
        fixture.begins(&[1, 2]).await?;
        a_version_that_does_not_exist(&fixture, json!({"version": "v1.35.99", "digest": NO_DIGEST})).await?;

        let dead = fixture.victim().await?;
        let evicted = Instant::now();
        fixture.kill(dead).await?;
        let node = fixture.node(dead);
        eventually("the eviction", LONG, async || {
            let pods = fixture.pods().await?;
            let is_left = |pod: &&_| node_of(pod) == Some(node) && pod.metadata.deletion_timestamp.is_some();
            let ready = fixture.ready().await?.len();
            ensure!(pods.iter().any(|pod| is_left(&pod)) && ready == 2, "{}", describe(&pods));
            Ok(Some(()))
        })
        .await?;
        say(evicted, "Deployment: from a dead machine to a pod in the place of the one that is evicted")?;
        rotated(&fixture, credentials(1), dead, "one of three machines is dead and its pod evicted").await?;

        // Another one in its place, and the next machine dies.
        fixture.forget(dead).await?;
        fixture.label(3).await?;
        let dead = fixture.victim().await?;
        fixture.kill(dead).await?;
        let node = fixture.node(dead);
        let pods = fixture.pods().await?;
        let is_untouched =
            pods.iter().any(|pod| node_of(pod) == Some(node) && pod.metadata.deletion_timestamp.is_none());
        ensure!(is_untouched, "it is evicted already: {}", describe(&pods));
        rotated(&fixture, credentials(2), dead, "one of three machines is dead and its pod not evicted yet").await?;
        fixture.remove(3).await?;
        the_old_one_goes_on(&fixture, credentials(3), dead).await
    })
    .or_else(async |error| Err(error.context(ccm_log(logs).await)))
    .await
}

/// Installs the operator with the folder of a provider that the scaffold has made for the program of AWS.
async fn install_of_folder(cluster: &Kubeadm, subnet: &Subnet) -> Result<()> {
    let dir = process::temp_dir()?;
    let folder = scaffold(&dir)?;
    create_namespace(cluster).await?;
    let provider = async |arguments: &[&str]| cluster.administer("ccm-operator", arguments).await;
    let package = ["provider", "pack", &folder, "--configmap", "--namespace=ccm-operator", "--output=-"];
    cluster.apply(&provider(&package).await?).await?;
    // No registry has the image, and so it has no digest there.
    let (path, policy) = (dir.path().join("policy.yaml"), format!("acme: {{external-image-digest: ['{ACME}']}}\n"));
    fs::write(&path, &policy)?;
    let path = path.to_string_lossy();
    let rbac = ["provider", "rbac", &folder, "--operator-namespace=ccm-operator", "--provider-policy", &path];
    cluster.apply(&provider(&rbac).await?).await?;
    let digest = provider(&["provider", "digest", &folder]).await?;
    let external = format!("externalProviders={}", json!([{"name": "acme", "digest": digest}]));
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": policy},
        "metadata": {"name": "provider-policy", "namespace": "ccm-operator"},
    });
    cluster.apply(&config_map.to_string()).await?;
    let digest = provider(&["provider", "digest", &path]).await?;
    let digest = format!("providerPolicyDigest={digest}");
    let policy = ["--set", "providerPolicy=provider-policy", "--set", &digest];
    helm_install(cluster, &[&["--set-json", &external][..], &policy].concat()).await?;
    let spec = json!({
        "provider": "acme", "credentials": {"secretRef": {"name": "acme"}},
        "cloudConfig": {"inline": subnet.configuration()},
    });
    ask_for(cluster, spec).await
}

/// Makes the folder.
fn scaffold(dir: &TempDir) -> Result<String> {
    let image = format!("--image={ACME}");
    let credentials = "--credentials=AWS_ACCESS_KEY_ID=id,AWS_SECRET_ACCESS_KEY=key";
    let mut command = Command::new(operator()?);
    command.args(["provider", "new", "acme", &image, credentials]).current_dir(dir);
    command.args(["--command=/bin/aws-cloud-controller-manager", "--cloud-config=cloud.conf", "--provider-id=aws:///"]);
    run(&mut command)?;
    let deployment = dir.path().join("acme/assets/kubernetes/deployment.yaml");
    let text = fs::read_to_string(&deployment)?;
    // The name under which it has registered itself in its code.
    let (own, registered) = ("--cloud-provider=acme", "--cloud-provider=aws");
    ensure!(text.contains(own), "{text}");
    fs::write(&deployment, text.replace(own, registered))?;
    Ok(dir.path().join("acme").to_string_lossy().into_owned())
}

/// Asks for a version that nobody has: at every moment until the rollout has stopped, some pod is ready.
async fn a_version_that_does_not_exist(fixture: &Fixture, image: Value) -> Result<()> {
    let kind = fixture.workload.kind;
    let asked = Instant::now();
    let stopped = async {
        fixture.ask(json!({"image": image})).await?;
        eventually("the rollout to stop", LONG, async || {
            let pods = fixture.pods().await?;
            ensure!(pods.iter().any(fixture::has_no_image), "{}", describe(&pods));
            Ok(Some(()))
        })
        .await
    };
    let states = fixture.while_one_is_ready(stopped).await?;
    say(
        asked,
        &format!("{kind}: a wrong version, until a pod has no image; a pod was ready in each of {states} states"),
    )?;
    // With a digest a version is taken as it is given.
    if image["digest"].is_null() {
        eventually("the condition VersionSupported", LONG, async || {
            let ccm = fixture.ccm().await?;
            ensure!(conditions(&ccm).iter().any(|one| one == "VersionSupported=False"), "{:#}", ccm["status"]);
            Ok(Some(()))
        })
        .await?;
    }
    fixture.ask(json!({"image": {"version": null, "digest": null}})).await?;
    fixture.all_ready().await
}

/// Rotates the Secret: a pod that has the new one leads within two minutes.
async fn rotated(fixture: &Fixture, secret: Value, dead: usize, how: &str) -> Result<()> {
    let hash = fixture.rotate(secret).await?;
    let started = Instant::now();
    let leader = eventually("a pod with the new Secret leads", TWO_MINUTES, async || {
        let (pods, leader) = (fixture.pods().await?, fixture.leader().await?);
        let leader = leader.with_context(|| describe(&pods))?;
        let node = node_of(&leader);
        ensure!(template(&leader) == Some(hash.as_str()) && node != Some(fixture.node(dead)), "{}", describe(&pods));
        Ok(Some(node.unwrap_or_default().to_owned()))
    })
    .await?;
    let kind = fixture.workload.kind;
    say(started, &format!("{kind}: {how}: until a pod with the new Secret leads, on {leader}"))?;
    eventually("both live nodes have a new pod", LONG, async || {
        let ready = fixture.ready().await?;
        let is_new = ready.len() == 2 && ready.iter().all(|pod| template(pod) == Some(hash.as_str()));
        ensure!(is_new, "{}", describe(&fixture.pods().await?));
        Ok(Some(()))
    })
    .await?;
    let ready = fixture.ccm().await?["status"]["conditions"][0].clone();
    writeln!(io::stderr(), "   {}={} {}: {}", ready["type"], ready["status"], ready["reason"], ready["message"])?;
    Ok(())
}

/// Rotates the Secret where one of two nodes of the control plane is dead: the pod on the other one stays and leads, and the status
/// names the dead node.
async fn the_old_one_goes_on(fixture: &Fixture, secret: Value, dead: usize) -> Result<()> {
    let kind = fixture.workload.kind;
    let before = eventually("the leader on the node that is left", LONG, async || fixture.leader().await).await?;
    let started = Instant::now();
    let hash = fixture.rotate(secret).await?;
    fixture.is_observed().await?;
    goes_on(fixture, &before, &hash).await?;
    say(started, &format!("{kind}: one of two machines is dead: the old pod leads after a rotation"))?;
    let node = fixture.node(dead);
    eventually("the status names the dead node", LONG, async || {
        let status = fixture.ccm().await?["status"].clone();
        let all = status["conditions"].as_array().context("no conditions")?;
        let ready = all.iter().find(|one| one["type"] == "Ready").context("no condition Ready")?;
        let reason = ready["reason"].as_str().unwrap_or_default();
        let is_named = ready["message"].as_str().is_some_and(|message| message.contains(node));
        ensure!(is_named && matches!(reason, "RollingOut" | "RolloutStuck"), "{ready:#}");
        Ok(Some(()))
    })
    .await?;
    say(started, &format!("{kind}: one of two machines is dead: until the status names its node"))?;
    goes_on(fixture, &before, &hash).await
}

/// Waits until the same pod, of an older template, has renewed its lease.
async fn goes_on(fixture: &Fixture, before: &Pod, hash: &str) -> Result<()> {
    let renewed = fixture.renewed().await?;
    eventually("the old pod renews its lease", TWO_MINUTES, async || {
        let (pods, leader) = (fixture.pods().await?, fixture.leader().await?);
        let leader = leader.with_context(|| describe(&pods))?;
        ensure!(leader.metadata.uid == before.metadata.uid && template(&leader) != Some(hash), "{}", describe(&pods));
        Ok((fixture.renewed().await? > renewed).then_some(()))
    })
    .await
}

/// Shows how long something took; it is never checked.
fn say(started: Instant, what: &str) -> Result<()> {
    // Past the capture of the test's output.
    Ok(writeln!(io::stderr(), "{what}: {} ms", started.elapsed().as_millis())?)
}
