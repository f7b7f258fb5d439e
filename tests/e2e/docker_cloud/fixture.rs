//! A cluster of machines that `ccm-cloud docker` has made, and the cloud-controller-manager of this project, which asks their Docker
//! Engine by TCP with mutual TLS.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{api::CLOUD_CONTROLLER_MANAGER, cluster::request};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    ResourceExt,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    docker::{docker_at_length, image},
    drivers::{ccm_cloud, engine, joins},
    image::docker_ccm_image,
    installation::{ask_for, ccm_image, create_namespace, give, helm_install},
    kubeadm::{Blueprint, Kubeadm},
    life::{condition, taints},
    machine::{self, Machine},
    support::{artifacts, eventually, moto::Instance, process},
};

/// The address of the engine, as `hack/e2e/inside.sh` starts it.
pub(super) const ENGINE: &str = "192.0.2.1:2376";

/// The names and addresses of a cluster. Tests that run at once have different ones.
pub(super) struct Site {
    pub(super) blueprint: Blueprint,
    /// The machine of the control plane.
    pub(super) plane: &'static str,
    /// The first address that the engine gives in the network.
    pub(super) address: &'static str,
    pub(super) worker: &'static str,
}

/// A cluster with one worker.
pub(super) struct DockerCloud {
    pub(super) cluster: Kubeadm,
    pub(super) site: &'static Site,
    /// The instances of the control plane and of the worker, as `ccm-cloud` shows them.
    pub(super) instances: [Value; 2],
}

impl DockerCloud {
    /// Makes both machines and a cluster of them. The node of the worker is registered.
    pub(super) async fn start(site: &'static Site) -> Result<Self> {
        machine::load_image().await?;
        let plane = Instance { id: String::new(), name: site.plane.to_owned(), address: site.address.to_owned() };
        let make = async |_: &Instance| {
            create(site, site.plane, &[]).await?;
            let machine = Machine::of(site.plane).await?;
            machine.load("pause", &[]).await?;
            Ok(machine)
        };
        let load = async |plane: &Machine, version: &str| {
            let (operator, ccm) = tokio::try_join!(image(), docker_ccm_image())?;
            give(plane, operator, &[]).await?;
            give(plane, ccm, &[&ccm_image("docker", version)?]).await
        };
        let mut cluster = Box::pin(Kubeadm::of(&site.blueprint, &[plane], 1, make, load)).await?;

        let dir = process::temp_dir()?;
        let (user_data, kubeconfig) = (dir.path().join("user-data"), cluster.kubeconfig());
        fs::write(&user_data, joins(&cluster.invitation(site.worker).await?))?;
        let more = ["--user-data", &user_data.to_string_lossy(), "--kubeconfig", &kubeconfig.to_string_lossy()];
        create(site, site.worker, &more).await?;
        cluster.machines.push(Machine::of(site.worker).await?);
        let engine = engine()?;
        let show = async |name| ccm_cloud(&engine, &["instance-show", name]).await;
        let (plane, worker) = tokio::try_join!(show(site.plane), show(site.worker))?;
        let cloud = Self { cluster, site, instances: [plane, worker] };
        let joined = eventually("the worker has joined", LONG, async || cloud.node(site.worker).await.map(Some)).await;
        joined.with_context(|| cloud.cluster.machines[1].log())?;
        Ok(cloud)
    }

    /// Installs the operator, which may be asked for deletions, and asks it for the CCM of the engine at an address. Returns the commands.
    pub(super) async fn install(&self, host: &str, lifecycle: &str) -> Result<Vec<String>> {
        self.put_secret(host, &certificates()?).await?;
        let mut commands = create_namespace(&self.cluster).await?;
        let further = ["--set", "providers={docker}", "--set", "nodeDeletion=true"];
        commands.push(helm_install(&self.cluster, &further).await?);
        let controllers = json!({"service": "Disabled", "cloudNodeLifecycle": lifecycle});
        let spec =
            json!({"provider": "docker", "credentials": {"secretRef": {"name": "docker"}}, "controllers": controllers});
        ask_for(&self.cluster, spec).await?;
        commands.push("kubectl apply --server-side -f inputs.yaml -f ccm.yaml".into());
        Ok(commands)
    }

    /// Writes the Secret of the CCM: the address of an engine, and the certificates of a folder.
    pub(super) async fn put_secret(&self, host: &str, certificates: &Path) -> Result<()> {
        let mut data = json!({"host": format!("tcp://{host}")});
        for file in ["ca.pem", "cert.pem", "key.pem"] {
            data[file] = fs::read_to_string(certificates.join(file)).with_context(|| file.to_owned())?.into();
        }
        let metadata = json!({"name": "docker", "namespace": "kube-system"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        self.cluster.apply(&secret.to_string()).await
    }

    /// Changes the specification of the `CloudControllerManager`.
    pub(super) async fn patch(&self, spec: Value) -> Result<()> {
        let all = request::api(&self.cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
        let patch = Patch::Merge(json!({"spec": spec}));
        all.patch("cluster", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The live `CloudControllerManager`.
    pub(super) async fn ccm(&self) -> Result<Value> {
        let all = request::api(&self.cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
        Ok(serde_json::to_value(all.get("cluster").await?)?)
    }

    pub(super) async fn node(&self, name: &str) -> Result<Node> {
        Ok(Api::all(self.cluster.client.clone()).get(name).await?)
    }

    /// The worker's node; none once it is deleted.
    pub(super) async fn worker(&self) -> Result<Option<Node>> {
        Ok(Api::all(self.cluster.client.clone()).get_opt(self.site.worker).await?)
    }

    /// Waits for a state of a node.
    pub(super) async fn until(&self, what: &str, name: &str, is_wanted: impl Fn(&Node) -> bool) -> Result<()> {
        eventually(what, LONG, async || {
            let node = self.node(name).await?;
            let (taints, ready) = (taints(&node), condition(&node, "Ready"));
            ensure!(is_wanted(&node), "{name}: taints {taints}; Ready {ready}");
            Ok(Some(()))
        })
        .await
    }

    /// The Events of a node.
    pub(super) async fn events(&self, name: &str) -> Result<Vec<Event>> {
        self.events_with(&format!("involvedObject.kind=Node,involvedObject.name={name}")).await
    }

    /// The Events with these fields.
    pub(super) async fn events_with(&self, fields: &str) -> Result<Vec<Event>> {
        Ok(Api::<Event>::all(self.cluster.client.clone()).list(&ListParams::default().fields(fields)).await?.items)
    }

    /// Deletes the Events of an object of the CCM's namespace: those that follow are new.
    pub(super) async fn delete_events(&self, name: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let of_object = ListParams::default().fields(&format!("involvedObject.name={name}"));
        events.delete_collection(&DeleteParams::default(), &of_object).await?;
        Ok(())
    }

    /// Removes a taint of the worker's node.
    pub(super) async fn remove_taint(&self, key: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        eventually("the taint is removed", LONG, async || {
            let node = self.node(self.site.worker).await?;
            let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            taints.retain(|taint| taint.key != key);
            // Others write taints, too.
            let version = json!({"resourceVersion": node.metadata.resource_version});
            let patch = Patch::Merge(json!({"metadata": version, "spec": {"taints": taints}}));
            nodes.patch(self.site.worker, &PatchParams::default(), &patch).await?;
            Ok(Some(()))
        })
        .await
    }

    /// Replaces the process of the CCM; returns once the old one is gone.
    pub(super) async fn restart_ccm(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let of_ccm = ListParams::default().labels("app.kubernetes.io/name=docker-cloud-controller-manager");
        let names = async || {
            let all = pods.list(&of_ccm).await?;
            anyhow::Ok(all.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>())
        };
        let old = names().await?;
        pods.delete_collection(&DeleteParams::default(), &of_ccm).await?;
        eventually("the old pods are gone", LONG, async || {
            let now = names().await?;
            ensure!(now.is_disjoint(&old), "{now:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Stops the machine of the worker; returns once its node is not ready.
    pub(super) async fn stop_worker(&self) -> Result<()> {
        docker_at_length(&["stop", "--time=1", self.site.worker]).await?;
        self.until("the node is not ready", self.site.worker, |node| condition(node, "Ready") == "Unknown").await
    }
}

/// The limit of a wait: machines of several tests may be starting.
pub(super) const LONG: std::time::Duration = std::time::Duration::from_secs(180);

/// The folder with the certificates of a client of the engine, under the names that Docker gives them.
pub(super) fn certificates() -> Result<PathBuf> {
    let folder = env::var_os("TMPDIR").map(PathBuf::from).context("TMPDIR")?;
    Ok(folder.parent().context("no folder")?.join("tls"))
}

/// A machine that `ccm-cloud` makes, as [`Machine::start`] does.
async fn create(site: &Site, name: &str, more: &[&str]) -> Result<Value> {
    let images = artifacts::node_images().await?;
    let mounts = format!("mounts={0}:/images:ro,{0}/testplane:/opt/testplane:ro", images.display());
    let create = [
        &["instance-create", "--name", name, "--key", name, "--image", machine::IMAGE][..],
        &["--network", site.blueprint.network, "--option", "privileged=true", "--option", "cgroupNamespace=private"],
        &["--option", "tmpfs=/run,/tmp", "--option", "volumes=/var", "--option", &mounts],
        more,
    ]
    .concat();
    ccm_cloud(&engine()?, &create).await
}
