//! docs/drivers/driver-in-a-pod.md is followed from its own text, with the driver of docs/drivers/write-a-driver.md: each way in which
//! a file gets into a Pod, on a real kubelet, until the cloud-controller-manager has initialized the node with it.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    docker::{docker, docker_at_length, owns_the_engine},
    image::{ccm_cloud, docker_ccm_image},
    installation::give,
    kubeadm::{Blueprint, Kubeadm},
    life::{UNINITIALIZED, has_taint, provider_id},
    machine::Machine,
    story::Story,
    support::{
        artifacts, eventually,
        lab::{LIMIT, repository},
        moto::Instance,
        process,
    },
};

#[allow(dead_code, reason = "written for the pages without an engine as well")]
#[path = "../../../crates/ccm-cloud/tests/it/page.rs"]
pub(super) mod page;

use page::{Commands, Shell, Step};

const BLUEPRINT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-pod", addresses: "172.30.220.0/24", workers_wait: true };
/// The only node, and its address.
const NODE: (&str, &str) = ("mycloud-plane", "172.30.220.10");
/// The address of the page's cloud, which its Secret has.
const CLOUD: &str = "192.0.2.1";
/// The label of the pods.
const CCM: &str = "app=mycloud-cloud-controller-manager";
/// The images that the page begins with, which no registry gives here.
const PYTHON: &str = "docker.io/library/python:3.13-slim";
const OURS: &str = "registry.example.com/docker-cloud-controller-manager:0.1.0";

#[tokio::test]
async fn a_driver_in_python_gets_into_a_pod_in_each_way() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let story = Story::new();
    let (folder, programs) = (process::temp_dir()?, process::temp_dir()?);
    symlink(ccm_cloud()?, programs.path().join("ccm-cloud"))?;
    symlink(artifacts::node_images().await?.join("testplane/kubectl"), programs.path().join("kubectl"))?;
    docker_at_length(&["import", &artifacts::python_image().await?.to_string_lossy(), PYTHON]).await?;
    docker(&["tag", docker_ccm_image().await?, OURS])?;

    let (name, address) = (NODE.0.to_owned(), NODE.1.to_owned());
    let instance = Instance { id: String::new(), name, address };
    let cluster = Kubeadm::of(&BLUEPRINT, &[instance], 0, machine, async |_, _| Ok(())).await?;
    let kubeconfig = cluster.kubeconfig();
    let engine = env::var_os("DOCKER_HOST").context("DOCKER_HOST")?;
    let variables = [("KUBECONFIG", kubeconfig.as_os_str()), ("DOCKER_HOST", &engine)];
    let shell = Shell::start(folder.path(), programs.path(), &variables);
    let mut reader = Reader { shell, folder: folder.path().join("mycloud"), cluster, ways: Vec::new() };
    reader.writes_a_driver(folder.path())?;
    let read = Box::pin(async {
        reader.follows().await?;
        reader.is_told_of_another_file().await
    });
    if let Err(error) = read.await {
        let (_, pods) = reader.shell.run(&format!("kubectl -n kube-system describe pods -l {CCM}"));
        let log = "tail -n 30 /var/log/pods/*mycloud-cloud*/*/*.log";
        let log = reader.cluster.machines[0].exec(&["sh", "-c", log]).await.unwrap_or_default();
        return Err(error.context(format!("{pods}\n{log}\n{}", reader.cluster.machines[0].log())));
    }
    ensure!(reader.ways == ["image", "image volume", "folder of the host"], "{:?}", reader.ways);
    story.line(&format!("the node was initialized from: {}", reader.ways.join(", ")))
}

/// A machine whose containerd has image volumes.
async fn machine(instance: &Instance) -> Result<Machine> {
    let containerd = artifacts::current_containerd().await?;
    let arguments = [
        format!("--network={}", BLUEPRINT.network),
        format!("--ip={}", instance.address),
        format!("--volume={}:/opt/containerd:ro", containerd.display()),
        "--env=PATH=/opt/containerd:/opt/testplane:/usr/bin".to_owned(),
    ];
    Machine::start(&instance.name, &arguments.each_ref().map(String::as_str)).await
}

/// Somebody who follows the page in the folder of the driver.
struct Reader {
    shell: Shell,
    folder: PathBuf,
    cluster: Kubeadm,
    /// Where the driver was taken from whenever the node was initialized.
    ways: Vec<&'static str>,
}

impl Reader {
    /// Edits the template as the other page does, and starts its cloud with a server that is the node.
    fn writes_a_driver(&mut self, folder: &Path) -> Result<()> {
        self.succeeds("ccm-cloud new-driver mycloud --language python")?;
        let mut is_moved = 0;
        for (_, step) in page::steps(&repository().join("docs/drivers/write-a-driver.md")) {
            match step {
                Step::Save { file, text } => {
                    // At an address that pods reach, and with the address of the machine.
                    let cloud = text.replace("(\"127.0.0.1\"", &format!("(\"{CLOUD}\""));
                    let cloud = cloud.replace("f\"10.7.{number >> 8}.{number & 255}\"", &format!("\"{}\"", NODE.1));
                    is_moved += usize::from(cloud.contains(NODE.1) && cloud.contains(CLOUD));
                    fs::write(folder.join(file), cloud)?;
                }
                Step::Edit { file, edit } => {
                    let file = folder.join(file);
                    let edited = edit.apply(&fs::read_to_string(&file)?);
                    fs::write(file, edited)?;
                }
                Step::Run(_) => {}
            }
        }
        ensure!(is_moved == 1, "the cloud of the page has other addresses");
        self.succeeds("python3 cloud.py 8877 >cloud.log 2>&1 &")?;
        self.succeeds("cd mycloud")?;
        self.succeeds(&format!("export MYCLOUD_URL=http://{CLOUD}:8877 MYCLOUD_TOKEN=token-of-seven"))?;
        let create = format!(
            "ccm-cloud --driver-folder . --driver \"mycloud.py@sha256:$(sha256sum mycloud.py | head -c 64)\" mycloud instance-create \
             --name {} --key 1",
            NODE.0
        );
        let create = page::Command { text: create, output: Vec::new() };
        self.follow("create", &Commands { exit_code: 0, repeated: true, all: vec![create] })
    }

    /// Runs a command that is not on the page.
    fn succeeds(&mut self, command: &str) -> Result<()> {
        let (code, printed) = self.shell.run(command);
        ensure!(code == 0, "{command}: {printed}");
        Ok(())
    }

    fn follow(&mut self, place: &str, commands: &Commands) -> Result<()> {
        self.shell.follow(commands, str::to_owned).map_err(|problem| anyhow!("{place}: {problem}"))
    }

    async fn follows(&mut self) -> Result<()> {
        for (line, step) in page::steps(&repository().join("docs/drivers/driver-in-a-pod.md")) {
            match step {
                Step::Save { file, mut text } => {
                    if file == "settings.yaml" {
                        // No kube-proxy leads from the Service to the API server.
                        let (host, port) = &self.cluster.api_server;
                        text =
                            format!("{text}  KUBERNETES_SERVICE_HOST: {host}\n  KUBERNETES_SERVICE_PORT: \"{port}\"\n");
                    }
                    // What ssh does on the page.
                    if file == "host-folder.yaml" {
                        self.puts_on_the_host().await?;
                    }
                    fs::write(self.folder.join(file), text)?;
                }
                Step::Edit { file, .. } => bail!("{line}: no test edits {file}"),
                Step::Run(commands) => {
                    self.follow(&format!("driver-in-a-pod.md:{line}"), &commands)?;
                    self.has_run(&commands).await?;
                }
            }
        }
        Ok(())
    }

    /// What the machine needs after these commands, and what has to be true then.
    async fn has_run(&mut self, commands: &Commands) -> Result<()> {
        for words in commands.all.iter().map(|command| command.text.split(' ').collect::<Vec<_>>()) {
            if words.starts_with(&["docker", "build"]) {
                let tag = words.iter().position(|word| *word == "--tag").context("no tag")?;
                give(&self.cluster.machines[0], words[tag + 1], &[]).await?;
            }
            if words.contains(&"rollout") {
                self.is_initialized().await?;
            }
        }
        Ok(())
    }

    /// Copies the driver to the folder of external providers.
    async fn puts_on_the_host(&self) -> Result<()> {
        let machine = &self.cluster.machines[0];
        machine.exec(&["mkdir", "-p", "/opt/cloud-api-adaptor/plugins"]).await?;
        machine.copy(&self.folder.join("mycloud.py"), "/opt/cloud-api-adaptor/plugins/mycloud.py").await?;
        machine.exec(&["chmod", "755", "/opt/cloud-api-adaptor/plugins/mycloud.py"]).await.map(drop)
    }

    /// The pod that runs initializes the node, which is made to wait again.
    async fn is_initialized(&mut self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        self.taint().await?;
        let node = eventually("the node is initialized", LIMIT, async || {
            let node = nodes.get(NODE.0).await?;
            Ok((!has_taint(&node, UNINITIALIZED)).then_some(node))
        })
        .await?;
        ensure!(provider_id(&node).starts_with("mycloud://srv-"), "{}", provider_id(&node));
        let pods = self.pods().await?;
        let running = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect::<Vec<_>>();
        let [pod] = running[..] else { bail!("{} pods", running.len()) };
        let mut volumes =
            pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter(|one| one.name == "driver");
        self.ways.push(match volumes.next() {
            None => "image",
            Some(volume) if volume.image.is_some() => "image volume",
            Some(volume) if volume.host_path.is_some() => "folder of the host",
            Some(volume) => bail!("{volume:?}"),
        });
        Ok(())
    }

    /// With one byte more on the host the next pod executes nothing, and says why.
    async fn is_told_of_another_file(&mut self) -> Result<()> {
        let machine = &self.cluster.machines[0];
        machine.exec(&["sh", "-c", "echo >>/opt/cloud-api-adaptor/plugins/mycloud.py"]).await?;
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let old = self.pods().await?;
        for pod in &old {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        // They have the bytes that were read.
        eventually("the old pods are gone", LIMIT, async || {
            let left = self.pods().await?.into_iter().any(|pod| old.iter().any(|old| old.uid() == pod.uid()));
            Ok((!left).then_some(()))
        })
        .await?;
        self.taint().await?;
        eventually("the pod names the digests", LIMIT, async || {
            let all = self.pods().await?;
            let messages: Vec<_> = all.iter().flat_map(last_messages).collect();
            ensure!(messages.iter().any(|message| message.contains("has the digest sha256:")), "{messages:?}");
            Ok(Some(()))
        })
        .await?;
        let node = Api::<Node>::all(self.cluster.client.clone()).get(NODE.0).await?;
        ensure!(has_taint(&node, UNINITIALIZED), "the node was initialized by a driver that nobody has read");
        Ok(())
    }

    /// Makes the node wait for a cloud-controller-manager.
    async fn taint(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let mut node = nodes.get(NODE.0).await?;
        let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
        if !taints.iter().any(|taint| taint.key == UNINITIALIZED) {
            let value = Some("true".to_owned());
            taints.push(Taint {
                key: UNINITIALIZED.to_owned(),
                value,
                effect: "NoSchedule".to_owned(),
                time_added: None,
            });
        }
        let patch = json!({"spec": {"taints": taints}});
        nodes.patch(NODE.0, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        Ok(pods.list(&ListParams::default().labels(CCM)).await?.items)
    }
}

/// What the containers of a pod have ended with.
fn last_messages(pod: &Pod) -> Vec<String> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let states = statuses.flat_map(|status| [&status.state, &status.last_state]).flatten();
    states.filter_map(|state| state.terminated.as_ref()?.message.clone()).collect()
}
