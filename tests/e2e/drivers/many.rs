//! A thousand containers on one engine: the time and the memory of the commands, beside those of Docker's own client. Figures are
//! printed and never checked. The sweep reads a real API server.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use super::{IDLE, engine, load};
use crate::{
    docker::{docker, docker_at_length, owns_the_engine},
    image::ccm_cloud,
    kubeadm::{Blueprint, Kubeadm},
    story::Story,
    support::{moto::Instance, process},
};

const COUNT: usize = 1000;
const BLUEPRINT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-many", addresses: "172.30.214.0/24", workers_wait: true };
/// Calls of docker that run at once.
const CONCURRENCY: usize = 4;

#[tokio::test]
#[ignore = "makes a thousand containers, which takes minutes: make e2e-all"]
async fn a_thousand_containers_are_listed_and_shown() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    load("pause").await?;
    let (story, engine) = (Story::new(), engine()?);
    let plane = Instance { id: String::new(), name: "many-plane".to_owned(), address: "172.30.214.10".to_owned() };
    let cluster = Box::pin(Kubeadm::start(&BLUEPRINT, &[plane], async |_, _| Ok(()))).await?;
    let id = Api::<Namespace>::all(cluster.client.clone()).get("kube-system").await?.uid().context("no UID")?;
    let owners: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}}))?;
    let owner = owners.create(&PostParams::default(), &owner).await?.uid().context("no UID")?;
    let (id, owner) = (&id, &owner);
    let made = stream::iter(0..COUNT).map(async |index| {
        // One of them has an owner that is gone.
        let owner = if index == 0 { "gone" } else { owner };
        let [name, owner, cluster] = [
            format!("many-{index}"),
            format!("ccm-operator.dev/owner={owner}"),
            format!("ccm-operator.dev/cluster={id}"),
        ];
        let create = ["create", "--name", &name, "--label", &owner, "--label", &cluster, "--network", "none", IDLE];
        docker_at_length(&create).await
    });
    let ids: Vec<String> = made.buffer_unordered(CONCURRENCY).try_collect().await?;
    let program = ccm_cloud()?;
    let program = program.to_string_lossy();
    let one = ids.first().context("no container")?.as_str();
    let (listed, figures) = measured(&[&program, "docker", "--host", &engine, "instance-list", "-o", "json"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    ensure!(
        listed.as_array().is_some_and(|all| all.len() >= COUNT),
        "{} are listed",
        listed.as_array().map_or(0, Vec::len)
    );
    figures.print(&story, "instance-list of a thousand")?;
    measured(&[&program, "docker", "--host", &engine, "instance-show", one])?.1.print(&story, "instance-show by id")?;
    measured(&[&program, "docker", "--host", &engine, "instance-show", "many-7"])?
        .1
        .print(&story, "instance-show by name")?;
    let kubeconfig = cluster.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let sweep = ["--kubeconfig", &kubeconfig, "--owners", "configmaps", "--grace", "1ms", "-o", "json"];
    let (swept, figures) =
        measured(&[&[&*program, "docker", "--host", &engine, "instance-sweep"], &sweep[..]].concat())?;
    ensure!(swept.matches("wouldDelete").count() == 1, "{swept}");
    figures.print(&story, "instance-sweep of a thousand, without its grace period")?;
    measured(&["docker", "ps", "--all", "--no-trunc"])?.1.print(&story, "docker ps --all of a thousand")?;
    for ids in ids.chunks(100) {
        let all: Vec<&str> = ["rm", "--force"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        docker(&all)?;
    }
    Ok(())
}

/// Runs a command; returns its output, and what it has cost.
fn measured(command: &[&str]) -> Result<(String, Figures)> {
    let output = process::temp_dir()?;
    let file = output.path().join("output");
    let (program, arguments) = command.split_first().context("no command")?;
    let begin = Instant::now();
    let mut child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(File::create(&file)?).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut memory_kib = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        memory_kib = peak.unwrap_or(memory_kib);
        thread::sleep(Duration::from_millis(2));
    };
    ensure!(ended.success(), "{command:?} exited with {ended}");
    Ok((fs::read_to_string(file)?, Figures { time: begin.elapsed(), memory_kib }))
}

/// What a process has cost.
struct Figures {
    time: Duration,
    memory_kib: u64,
}

impl Figures {
    fn print(&self, story: &Story, what: &str) -> Result<()> {
        story.figure(self.time, &format!("{what}, {} KiB of memory", self.memory_kib))
    }
}
