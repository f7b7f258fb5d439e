//! A cluster whose cloud is Docker: its machines are containers that `ccm-cloud docker` has made, and the operator installs the
//! cloud-controller-manager of this project from `assets/docker`.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    core::v1::Node,
    rbac::v1::{ClusterRole, Role},
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{
    docker::{docker_at_length, owns_the_engine},
    installation::ccm_log,
    kubeadm::Blueprint,
    life::{SHUTDOWN, UNINITIALIZED, condition, has_taint, internal_ip, provider_id, taints},
    story::Story,
    support::{audit, eventually, lab::conditions, permissions},
    table::{Column, Table},
};

mod faults;
mod fixture;
mod gate;

use fixture::{DockerCloud, ENGINE, LONG, Site};

/// The account of the CCM, and its roles.
const CCM: &str = "docker-cloud-controller-manager";
static SITE: Site = Site {
    blueprint: Blueprint { network: "ccm-operator-e2e-docker", addresses: "172.30.215.0/24", workers_wait: true },
    plane: "docker-plane",
    address: "172.30.215.2",
    worker: "docker-worker",
};

#[tokio::test]
async fn a_cluster_whose_cloud_is_docker() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let story = Story::new();
    story.chapter(
        "1. Two machines that ccm-cloud has made",
        "Each is a container of a Docker Engine, with a real containerd and a real kubelet. kubeadm makes a cluster of them. The user \
         data of the second one is a script that joins it.",
    )?;
    let cloud = story.step("the nodes are registered", Box::pin(DockerCloud::start(&SITE))).await?;
    let lived = Box::pin(async {
        is_set_up(&story, &cloud).await?;
        is_shut_down(&story, &cloud).await?;
        stays_in_a_rehearsal(&story, &cloud).await?;
        goes_when_it_is_allowed(&story, &cloud).await?;
        had_the_permissions(&story, &cloud).await
    });
    match lived.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(ccm_log(&cloud.cluster.machines[0]).await)),
    }
}

/// The CCM removes the taint, and writes what the engine knows of the containers.
async fn is_set_up(story: &Story, cloud: &DockerCloud) -> Result<()> {
    for name in [SITE.plane, SITE.worker] {
        let node = cloud.node(name).await?;
        ensure!(has_taint(&node, UNINITIALIZED) && provider_id(&node).is_empty(), "{name}: {}", taints(&node));
    }
    story.chapter(
        "2. The cloud-controller-manager",
        "The operator installs the one of this project. It reaches the Engine by TCP, with a certificate of a Secret, and not by a \
         socket of its node.",
    )?;
    let installed = Instant::now();
    let commands = story.step("it is installed", cloud.install(ENGINE, "Rehearsal")).await?;
    let all = async {
        for (name, instance) in [SITE.plane, SITE.worker].into_iter().zip(&cloud.instances) {
            let all_right = async || is_initialized(&cloud.node(name).await?, instance).map(Some);
            eventually("the node is set up", LONG, all_right).await?;
        }
        Ok(installed.elapsed())
    };
    let all = story.step("both nodes are initialized", all).await?;
    commands.iter().try_for_each(|command| story.command(command))?;
    story.figure(all, "from the first command to all nodes of Docker initialized")?;
    cloud.cluster.install_pod_network().await?;
    for name in [SITE.plane, SITE.worker] {
        cloud.until("the node is Ready", name, |node| condition(node, "Ready") == "True").await?;
    }
    eventually("the CCM is ready", LONG, async || {
        let ccm = cloud.ccm().await?;
        ensure!(conditions(&ccm).iter().any(|one| one == "Ready=True"), "{:#}", ccm["status"]);
        Ok(Some(()))
    })
    .await?;
    show(story, cloud).await
}

/// Succeeds if the CCM has written all properties of the container to its node.
fn is_initialized(node: &Node, instance: &Value) -> Result<()> {
    let name = node.name_any();
    ensure!(!has_taint(node, UNINITIALIZED), "{name}: taints {}", taints(node));
    ensure!(provider_id(node) == format!("docker:////{name}"), "the provider ID is {}", provider_id(node));
    ensure!(instance["providerID"] == provider_id(node), "{instance}");
    let addresses = instance["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|one| one["type"] == "InternalIP").map(|one| &one["address"]);
    ensure!(internal.any(|address| *address == internal_ip(node)), "{:?}: {instance}", internal_ip(node));
    for (label, value) in [("region", "default"), ("zone", "default-a")] {
        let found = node.labels().get(&format!("topology.kubernetes.io/{label}"));
        ensure!(found.is_some_and(|found| found == value), "the label for the {label} is {found:?}");
    }
    Ok(())
}

async fn is_shut_down(story: &Story, cloud: &DockerCloud) -> Result<()> {
    story.chapter(
        "3. docker stop",
        "The kubelet of the worker falls silent. The CCM asks the Engine, whose container has exited, and taints the node.",
    )?;
    story.step("the node is not ready", cloud.stop_worker()).await?;
    let tainted = cloud.until("the shutdown taint", SITE.worker, |node| has_taint(node, SHUTDOWN));
    story.step("the node has the shutdown taint", tainted).await?;
    let plane = cloud.node(SITE.plane).await?;
    ensure!(!has_taint(&plane, SHUTDOWN), "{}", taints(&plane));
    show(story, cloud).await
}

/// The CCM tries to delete the node, and may not.
async fn stays_in_a_rehearsal(story: &Story, cloud: &DockerCloud) -> Result<()> {
    story.chapter(
        "4. docker rm",
        "The container is gone. In a rehearsal, the default, the CCM may delete no node: what it would delete stands in its Events and \
         in the status.",
    )?;
    let before = cloud.node(SITE.worker).await?.uid();
    docker_at_length(&["rm", SITE.worker]).await?;
    let tried = eventually("the CCM has tried", LONG, async || {
        let events = cloud.events(SITE.worker).await?;
        let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        let all = ["DeletingNode", "DeletingNodeFailed"].iter().all(|reason| reasons.contains(reason));
        ensure!(all, "{reasons:?}");
        Ok(Some(()))
    });
    story.step("the CCM has tried to delete the node", tried).await?;
    let named = eventually("the status of the CloudControllerManager", LONG, async || {
        let gone = cloud.ccm().await?["status"]["nodes"]["gone"].clone();
        ensure!(gone == json!([SITE.worker]), "{gone}");
        Ok(Some(()))
    });
    story.step("the status names the node", named).await?;
    let after = cloud.node(SITE.worker).await?;
    ensure!(after.uid() == before && after.metadata.deletion_timestamp.is_none(), "the node was deleted");
    let of_plane = cloud.events(SITE.plane).await?;
    ensure!(of_plane.iter().all(|event| event.reason.as_deref() != Some("DeletingNode")), "{of_plane:?}");
    show(story, cloud).await
}

async fn goes_when_it_is_allowed(story: &Story, cloud: &DockerCloud) -> Result<()> {
    story.chapter(
        "5. allow-delete",
        "With cloudNodeLifecycle: Enabled the operator confirms a node after ten minutes, or as soon as somebody allows it. Then the CCM \
         may delete this node, and no other.",
    )?;
    cloud.patch(json!({"controllers": {"cloudNodeLifecycle": "Enabled"}})).await?;
    let arguments = ["nodes", "allow-delete", SITE.worker];
    let allowed = story.step("the node is allowed", cloud.cluster.administer("ccm-operator", &arguments)).await?;
    ensure!(allowed.contains("is now in spec.nodeDeletion.allow"), "{allowed}");
    story.command(&format!("ccm-operator {}", arguments.join(" ")))?;
    let gone = eventually("the node is deleted", LONG, async || {
        let node = cloud.worker().await?;
        ensure!(node.is_none(), "{:#}", cloud.ccm().await?["status"]["nodeDeletion"]);
        Ok(Some(()))
    });
    story.step("the node is deleted", gone).await?;
    cloud.node(SITE.plane).await?;
    show(story, cloud).await
}

/// Nothing was refused to the CCM, but for the deletion.
async fn had_the_permissions(story: &Story, cloud: &DockerCloud) -> Result<()> {
    let requests = cloud.cluster.requests(&audit::account("kube-system", CCM)).await?;
    let refused = requests.iter().filter(|request| request.code == 403);
    let refused: BTreeSet<_> = refused.map(|one| format!("{} {}", one.verb, one.resource)).collect();
    ensure!(refused.iter().eq(["delete nodes"]), "{CCM} was refused {refused:?}");
    let client = &cloud.cluster.client;
    let of_cluster = Api::<ClusterRole>::all(client.clone()).get(CCM).await?;
    let of_namespace = Api::<Role>::namespaced(client.clone(), "kube-system").get(CCM).await?;
    let roles = [serde_json::to_value(&of_cluster)?, serde_json::to_value(&of_namespace)?];
    let (unused, granted) = permissions::unused(&roles, &requests)?;
    story.line(&format!("{CCM}: nothing else refused, {} of {granted} permissions used", granted - unused.len()))?;
    let mut table = Table::new([Column::wrapped("UNUSED RIGHT", 72)]);
    for permission in unused {
        table.row([permission.to_string()]);
    }
    story.table(&table)
}

/// Shows the nodes.
async fn show(story: &Story, cloud: &DockerCloud) -> Result<()> {
    let mut table =
        Table::new(["NODE", "READY", "PROVIDER ID", "ADDRESS", "TAINTS"].map(|title| Column::wrapped(title, 24)));
    for node in [Some(cloud.node(SITE.plane).await?), cloud.worker().await?].into_iter().flatten() {
        let all = taints(&node);
        // A node that is unreachable has the taint twice, with two effects.
        let short: BTreeSet<_> = all.split(", ").map(|key| key.rsplit('/').next().unwrap_or(key)).collect();
        let short = short.into_iter().collect::<Vec<_>>().join(" ");
        let ready = condition(&node, "Ready").to_owned();
        table.row([node.name_any(), ready, provider_id(&node).into(), internal_ip(&node).into(), short]);
    }
    story.table(&table)
}
