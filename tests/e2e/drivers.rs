//! Drivers on a real Docker Engine: machines of a kubeadm cluster that `ccm-cloud docker` has made, and the checks of conformance.

use std::{env, fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use crate::{
    docker::{docker, docker_at_length, owns_the_engine, run},
    image::ccm_cloud as ccm_cloud_program,
    kubeadm::{Blueprint, Kubeadm},
    machine,
    story::Story,
    support::{artifacts, eventually, lab::LIMIT, moto::Instance, process},
};

mod driver_in_a_pod;
pub(crate) mod engine;
mod external;
mod many;
mod pages;

const BLUEPRINT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-drivers", addresses: "172.30.212.0/24", workers_wait: true };
/// The image of containers that do nothing.
pub(crate) const IDLE: &str = "localhost/ccm-operator-e2e-pause:latest";
const WORKERS: [&str; 2] = ["worker-a", "worker-b"];

/// The output of `ccm-cloud docker`, in JSON.
pub(crate) async fn ccm_cloud(engine: &str, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(ccm_cloud_program()?);
    command.args(["docker", "--host", engine]).args(arguments).args(["-o", "json"]);
    let output = tokio::task::spawn_blocking(move || run(&mut command)).await??;
    serde_json::from_str(&output).with_context(|| output.clone())
}

/// The address of the engine of the tests.
pub(crate) fn engine() -> Result<String> {
    docker(&["version", "--format", "{{.Server.APIVersion}}"])?;
    env::var("DOCKER_HOST").context("DOCKER_HOST")
}

async fn load(image: &str) -> Result<()> {
    let file = artifacts::node_images().await?.join(format!("{image}.tar"));
    docker_at_length(&["load", "--quiet", "--input", &file.to_string_lossy()]).await.map(drop)
}

/// A script that joins a cluster, as user data.
pub(crate) fn joins(invitation: &[(&str, String)]) -> String {
    let files = invitation.iter().map(|(path, text)| format!("cat >{path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE\n"));
    let files: String = files.collect();
    format!(
        "#!/bin/sh\nset -eu\nuntil ctr version >/dev/null 2>&1; do sleep 0.1; done\n\
         ctr --namespace=k8s.io images import /images/pause.tar\nmkdir -p /root\n{files}\
         exec kubeadm join --config=/root/join.yaml\n"
    )
}

#[tokio::test]
async fn kubeadm_nodes_made_by_the_driver_join_a_cluster_and_go_when_their_owner_has_gone() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let (story, engine) = (Story::new(), engine()?);
    let plane = Instance { id: String::new(), name: "plane".to_owned(), address: "172.30.212.10".to_owned() };
    let cluster = Box::pin(Kubeadm::start(&BLUEPRINT, &[plane], async |_, _| Ok(()))).await?;
    let dir = process::temp_dir()?;
    let began = Instant::now();
    let owners: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let mut made = Vec::new();
    for name in WORKERS {
        let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let key = owners.create(&PostParams::default(), &owner).await?.uid().context("no UID")?;
        let user_data = dir.path().join(name);
        fs::write(&user_data, joins(&cluster.invitation(name).await?))?;
        made.push(create_worker(&engine, &cluster, name, &key, &user_data).await?);
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in WORKERS {
        let joined = eventually("the node has joined", LIMIT, async || nodes.get_opt(name).await.map_err(Into::into));
        let log = || docker(&["logs", "--tail", "40", name]).unwrap_or_default();
        let node = joined.await.with_context(log)?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        ensure!(taints.iter().any(|taint| taint.key == "node.cloudprovider.kubernetes.io/uninitialized"), "{taints:?}");
    }
    story.figure(began.elapsed(), "two machines made by ccm-cloud until their nodes have joined")?;

    let kube_system = Api::<Namespace>::all(cluster.client.clone()).get("kube-system").await?;
    for instance in &made {
        ensure!(instance["cluster"] == json!(kube_system.uid()), "{instance}");
        ensure!(
            instance["state"] == "running"
                && instance["providerID"].as_str().is_some_and(|id| id.starts_with("docker:////"))
        );
    }
    is_swept(&engine, &cluster, &owners, &made).await
}

async fn create_worker(engine: &str, cluster: &Kubeadm, name: &str, key: &str, user_data: &Path) -> Result<Value> {
    let images = artifacts::node_images().await?;
    let mounts = format!("mounts={0}:/images:ro,{0}/testplane:/opt/testplane:ro", images.display());
    let (user_data, kubeconfig) = (user_data.to_string_lossy(), cluster.kubeconfig());
    let kubeconfig = kubeconfig.to_string_lossy();
    let create = [
        &["instance-create", "--name", name, "--key", key, "--image", machine::IMAGE][..],
        &["--network", BLUEPRINT.network, "--user-data", &user_data, "--kubeconfig", &kubeconfig],
        &["--option", "privileged=true", "--option", "cgroupNamespace=private", "--option", "tmpfs=/run,/tmp"],
        &["--option", "volumes=/var", "--option", &mounts],
    ]
    .concat();
    let made = ccm_cloud(engine, &create).await?;
    let again = ccm_cloud(engine, &create).await?;
    ensure!(made["id"] == again["id"], "{made} {again}");
    Ok(made)
}

/// The machine whose owner has gone is deleted, and no other container.
async fn is_swept(engine: &str, cluster: &Kubeadm, owners: &Api<ConfigMap>, made: &[Value]) -> Result<()> {
    let kubeconfig = cluster.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let sweep = ["instance-sweep", "--kubeconfig", &kubeconfig, "--owners", "configmaps", "--grace", "1s"];
    let swept = async |more: &[&str]| -> Result<Vec<(String, String)>> {
        let rows = ccm_cloud(engine, &[&sweep[..], more].concat()).await?;
        let of = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = rows.as_array().context("no list")?.iter().map(|row| (of(row, "id"), of(row, "action")));
        Ok(rows.filter(|(_, action)| action != "keep").collect())
    };
    // Other tests have theirs on the same engine.
    let containers =
        || docker(&["ps", "--all", "--no-trunc", "--quiet", "--filter", &format!("network={}", BLUEPRINT.network)]);
    let before = containers()?.lines().count();
    ensure!(swept(&["--yes"]).await?.is_empty(), "an owner that exists counts as gone");
    owners.delete(WORKERS[0], &kube::api::DeleteParams::default()).await?;
    let gone = made[0]["id"].as_str().unwrap_or_default().to_owned();
    ensure!(swept(&[]).await? == [(gone.clone(), "wouldDelete".to_owned())]);
    ensure!(containers()?.lines().count() == before, "a dry run deletes nothing");
    ensure!(swept(&["--yes"]).await? == [(gone.clone(), "deleted".to_owned())]);
    let left = containers()?;
    ensure!(left.lines().count() == before - 1 && !left.contains(&gone), "{left}");
    run(Command::new(ccm_cloud_program()?).args(["docker", "--host", engine, "instance-delete", WORKERS[1]]))?;
    let left = containers()?;
    ensure!(!left.contains(made[1]["id"].as_str().unwrap_or("no id")), "{left}");
    Ok(())
}
