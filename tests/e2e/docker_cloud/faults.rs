//! What deletes a node whose cloud is Docker, and what does not: minutes, so only `make e2e-all` runs it.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use tokio::time::sleep;

use super::fixture::{DockerCloud, ENGINE, LONG, Site, certificates};
use crate::{
    docker::{docker_at_length, owns_the_engine},
    drivers::{
        IDLE,
        engine::{Authority, Engine, dockerd},
    },
    installation::ccm_log,
    kubeadm::Blueprint,
    life::{SHUTDOWN, UNINITIALIZED, condition, has_taint},
    story::Story,
    support::{artifacts, eventually, process},
};

static BY_ITSELF: Site = Site {
    blueprint: Blueprint {
        network: "ccm-operator-e2e-docker-itself",
        addresses: "172.30.216.0/24",
        workers_wait: true,
    },
    plane: "docker-itself-plane",
    address: "172.30.216.2",
    worker: "docker-itself-worker",
};
static FAULTS: Site = Site {
    blueprint: Blueprint {
        network: "ccm-operator-e2e-docker-faults",
        addresses: "172.30.217.0/24",
        workers_wait: true,
    },
    plane: "docker-faults-plane",
    address: "172.30.217.2",
    worker: "docker-faults-worker",
};

/// The waiting time of a node that nobody has allowed, and that the operator has not changed the leader for: the defaults.
const MIN_NOT_READY: Duration = Duration::from_secs(600);
/// The time in which it must be gone: the Event of the CCM that confirms it may be five minutes late.
const GONE_WITHIN: Duration = Duration::from_secs(1200);
/// The lease of the CCM.
const LEASE: &str = "cloud-controller-manager";
/// Several periods of the controller that deletes nodes.
const PERIODS: Duration = Duration::from_secs(20);

#[tokio::test]
#[ignore = "a node is deleted by itself only after ten minutes: make e2e-all"]
async fn a_node_whose_container_is_gone_goes_by_itself_after_ten_minutes() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let cloud = Box::pin(DockerCloud::start(&BY_ITSELF)).await?;
    let story = Story::new();
    let lived = Box::pin(async {
        cloud.install(ENGINE, "Enabled").await?;
        all_ready(&cloud).await?;
        docker_at_length(&["rm", "--force", "--volumes", BY_ITSELF.worker]).await?;
        cloud.until("the node is not ready", BY_ITSELF.worker, |node| condition(node, "Ready") == "Unknown").await?;
        let began = Instant::now();
        eventually("the node is deleted", GONE_WITHIN, async || {
            let node = cloud.worker().await?;
            // Seldom enough not to count among the requests of the cluster.
            sleep(Duration::from_secs(1)).await;
            ensure!(node.is_none(), "{:#}", cloud.ccm().await?["status"]["nodeDeletion"]);
            Ok(Some(()))
        })
        .await?;
        // The condition has its time in whole seconds, and was seen a little later.
        ensure!(began.elapsed() > MIN_NOT_READY.saturating_sub(Duration::from_secs(5)), "{:?}", began.elapsed());
        story.figure(began.elapsed(), "from a node that is not ready to its deletion")?;
        cloud.node(BY_ITSELF.plane).await.map(drop)
    });
    lived.await.context(ccm_log(&cloud.cluster.machines[0]).await)
}

/// All along somebody has allowed the deletion of the node, so that only the CCM keeps it.
#[tokio::test]
#[ignore = "starts a further Docker Engine, and takes minutes: make e2e-all"]
async fn no_fault_of_the_engine_deletes_a_node() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let engine: SocketAddr = ENGINE.parse()?;
    let gate = super::gate::Gate::open(engine).await?;
    let cloud = Box::pin(DockerCloud::start(&FAULTS)).await?;
    let address = gate.address().to_string();
    let lived = Box::pin(async {
        cloud.install(&address, "Enabled").await?;
        all_ready(&cloud).await?;
        cloud.stop_worker().await?;
        cloud.until("the shutdown taint", FAULTS.worker, |node| has_taint(node, SHUTDOWN)).await?;
        cloud.cluster.administer("ccm-operator", &["nodes", "allow-delete", FAULTS.worker]).await?;
        let confirmed = eventually("the operator has confirmed it", LONG, async || {
            let deletion = cloud.ccm().await?["status"]["nodeDeletion"].clone();
            ensure!(deletion["confirmed"].to_string().contains(FAULTS.worker), "{deletion:#}");
            Ok(Some(()))
        });
        confirmed.await?;

        gate.lead(None);
        is_kept(&cloud, "CloudUnavailable", FAULTS.worker, &address).await?;
        gate.lead(Some(engine));
        works(&cloud).await?;

        let strangers = process::temp_dir()?;
        Authority::new()?.write(strangers.path())?;
        // The engine is the right one: only who asks is a stranger.
        fs::copy(certificates()?.join("ca.pem"), strangers.path().join("ca.pem"))?;
        cloud.put_secret(&address, strangers.path()).await?;
        is_kept(&cloud, "CredentialsRejected", FAULTS.worker, "the Engine refuses the client certificate").await?;
        cloud.put_secret(&address, &certificates()?).await?;
        works(&cloud).await?;

        let other = other_engine().await?;
        let id = other.docker(&["info", "--format", "{{.ID}}"])?;
        gate.lead(Some(other.address()));
        is_kept(&cloud, "AccountChanged", FAULTS.worker, "the Event AccountChanged of the Lease").await?;
        is_kept(&cloud, "AccountChanged", LEASE, &id).await?;
        // A process that knows the first engine only by what the cluster keeps.
        cloud.restart_ccm().await?;
        // It writes the Event again within a minute.
        cloud.delete_events(LEASE).await?;
        is_kept(&cloud, "AccountChanged", LEASE, &id).await?;
        gate.lead(Some(engine));
        works(&cloud).await?;

        // Nothing else has kept it.
        docker_at_length(&["rm", "--force", "--volumes", FAULTS.worker]).await?;
        eventually("the node is deleted", LONG, async || {
            let node = cloud.worker().await?;
            ensure!(node.is_none(), "{:#}", cloud.ccm().await?["status"]["nodeDeletion"]);
            Ok(Some(()))
        })
        .await
    });
    lived.await.context(ccm_log(&cloud.cluster.machines[0]).await)
}

/// Waits until all nodes are initialized and ready.
async fn all_ready(cloud: &DockerCloud) -> Result<()> {
    let site = cloud.site;
    for name in [site.plane, site.worker] {
        cloud.until("the node is initialized", name, |node| !has_taint(node, UNINITIALIZED)).await?;
    }
    cloud.cluster.install_pod_network().await?;
    for name in [site.plane, site.worker] {
        cloud.until("the node is Ready", name, |node| condition(node, "Ready") == "True").await?;
    }
    Ok(())
}

/// Waits until the CCM asks the engine again: it puts back the taint of a node whose machine is stopped.
async fn works(cloud: &DockerCloud) -> Result<()> {
    cloud.remove_taint(SHUTDOWN).await?;
    cloud.until("the shutdown taint again", cloud.site.worker, |node| has_taint(node, SHUTDOWN)).await
}

/// The node of the worker stays, and an Event with these words says why: on the node or, if the CCM cannot use the engine when it starts,
/// on its lease.
async fn is_kept(cloud: &DockerCloud, reason: &str, object: &str, words: &str) -> Result<()> {
    let uid = cloud.node(cloud.site.worker).await?.uid();
    eventually("the Event", LONG, async || {
        let node = cloud.worker().await?;
        ensure!(node.is_some(), "the node was deleted");
        let events = cloud.events_with(&format!("type=Warning,reason={reason},involvedObject.name={object}")).await?;
        let messages: Vec<_> = events.into_iter().filter_map(|event| event.message).collect();
        ensure!(messages.iter().any(|message| message.contains(words)), "{object}: {reason}: {messages:?}");
        Ok(Some(()))
    })
    .await?;
    sleep(PERIODS).await;
    let node = cloud.node(cloud.site.worker).await.context("the node was deleted")?;
    ensure!(node.uid() == uid && node.metadata.deletion_timestamp.is_none(), "the node was deleted");
    Ok(())
}

/// Another engine, with the certificate of the first one and a container of its own: it knows none of the nodes.
async fn other_engine() -> Result<Engine> {
    let of_server = ["ca.pem", "server.pem", "server-key.pem"];
    let folder = certificates()?;
    let server = of_server.map(|name| folder.join(name));
    let host: Ipv4Addr = ENGINE.split(':').next().unwrap_or_default().parse()?;
    let engine = Engine::start_at(&dockerd()?, host, process::temp_dir()?, server, folder).await?;
    let image = artifacts::node_images().await?.join("pause.tar");
    engine.docker(&["load", "--quiet", "--input", &image.to_string_lossy()])?;
    engine.docker(&["run", "--detach", "--network=none", "--name=stranger", IDLE])?;
    Ok(engine)
}
