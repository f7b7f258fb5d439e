//! A cluster of real kubelets that kubeadm makes of machines, as people make theirs: every kubelet waits for a
//! cloud-controller-manager, and there is no pod network yet.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    docker::{docker_at_length, operator, run},
    machine::Machine,
    support::{
        artifacts,
        audit::{self, AuditLog, Request},
        lab::repository,
        moto::Instance,
        process,
    },
};

/// The properties in which clusters differ.
pub(crate) struct Blueprint {
    /// The name of the machines' network.
    pub(crate) network: &'static str,
    /// The addresses of the machines.
    pub(crate) addresses: &'static str,
    /// Whether the workers' kubelets wait for a cloud-controller-manager, as they should.
    pub(crate) workers_wait: bool,
}

/// How many machines clusters may have at once. Every kubelet and every program of a control plane watches files, and Linux gives all
/// processes of a user 128 instances of inotify.
static ROOM: Semaphore = Semaphore::const_new(6);

/// The port of the API server.
const PORT: u16 = 6443;
const TOKEN: &str = "abcdef.0123456789abcdef";

const KUBECTL: [&str; 2] = ["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"];
/// The folder of the audit log on the machine of the control plane.
const AUDIT: &str = "/var/log/audit";
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}"#;
/// Reads where the cluster is, and its certificate.
const CLUSTER_INFO: [&str; 5] =
    ["get", "configmap", "cluster-info", "--namespace=kube-public", "--output=jsonpath={.data.kubeconfig}"];

/// A cluster.
pub(crate) struct Kubeadm {
    pub(crate) client: Client,
    /// The address and the port of the API server.
    pub(crate) api_server: (String, u16),
    /// The machines, of which the first is the control plane.
    pub(crate) machines: Vec<Machine>,
    programs: PathBuf,
    dir: TempDir,
    /// Given back when the machines are gone.
    _room: SemaphorePermit<'static>,
}

impl Kubeadm {
    /// A cluster of these instances; the first is the control plane, on which `load` puts images for this version.
    pub(crate) async fn start(
        blueprint: &Blueprint,
        instances: &[Instance],
        load: impl AsyncFnOnce(&Machine, &str) -> Result<()>,
    ) -> Result<Self> {
        let machine = async |instance: &Instance| {
            let network = [format!("--network={}", blueprint.network), format!("--ip={}", instance.address)];
            Machine::start(&instance.name, &network.each_ref().map(String::as_str)).await
        };
        Self::of(blueprint, instances, 0, machine, load).await
    }

    /// The same of machines that `machine` makes, with room for `further` ones that join later.
    pub(crate) async fn of(
        blueprint: &Blueprint,
        instances: &[Instance],
        further: usize,
        machine: impl AsyncFn(&Instance) -> Result<Machine>,
        load: impl AsyncFnOnce(&Machine, &str) -> Result<()>,
    ) -> Result<Self> {
        let room = ROOM.acquire_many((instances.len() + further).try_into()?).await?;
        let programs = artifacts::node_images().await?.join("testplane");
        let version = run(Command::new(programs.join("kubelet")).arg("--version"))?.replace("Kubernetes ", "");
        docker_at_length(&["network", "create", "--subnet", blueprint.addresses, blueprint.network]).await?;
        let (first, others) = instances.split_first().context("no instance")?;
        let machines = try_join_all(instances.iter().map(|instance| machine(instance))).await?;
        let (plane, workers) = machines.split_first().context("no machine")?;

        let images = plane.exec(&["kubeadm", "config", "images", "list", "--kubernetes-version", &version]).await?;
        plane.load("plane", &images.lines().collect::<Vec<_>>()).await?;
        let made = async {
            plane.write("/root/init.yaml", &init(first, &version)).await?;
            plane.write(&format!("{AUDIT}/policy.yaml"), AUDIT_POLICY).await?;
            plane.exec_or_log(&["kubeadm", "init", "--config=/root/init.yaml"]).await?;
            // The signature by which a token alone finds the cluster comes only many seconds later.
            let cluster = plane.exec(&[&KUBECTL[..], &CLUSTER_INFO].concat()).await?;
            let (cluster, waits) = (&cluster, blueprint.workers_wait);
            try_join_all(workers.iter().zip(others).map(|(worker, instance)| async move {
                worker.write("/root/cluster.conf", cluster).await?;
                worker.write("/root/join.yaml", &join(instance, waits)).await?;
                worker.exec_or_log(&["kubeadm", "join", "--config=/root/join.yaml"]).await
            }))
            .await
        };
        tokio::try_join!(made, load(plane, &version))?;
        let dir = process::temp_dir()?;
        let kubeconfig = plane.exec(&["cat", "/etc/kubernetes/admin.conf"]).await?;
        fs::write(dir.path().join("kubeconfig"), &kubeconfig)?;

        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The machine's proxy does not lead here.
        config.proxy_url = None;
        let client = Client::try_from(config)?;
        let api_server = (first.address.clone(), PORT);
        Ok(Self { client, api_server, machines, programs, dir, _room: room })
    }

    /// The configuration with which a further machine joins, and the file that it names: where the cluster is.
    pub(crate) async fn invitation(&self, name: &str) -> Result<[(&'static str, String); 2]> {
        let instance = Instance { id: String::new(), name: name.to_owned(), address: String::new() };
        let cluster = self.machines[0].exec(&[&KUBECTL[..], &CLUSTER_INFO].concat()).await?;
        Ok([("/root/cluster.conf", cluster), ("/root/join.yaml", join(&instance, true))])
    }

    /// The file of an administrator's configuration.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// `kubectl apply --server-side` as an administrator.
    pub(crate) async fn apply(&self, manifests: &str) -> Result<()> {
        let file = self.dir.path().join("manifests.yaml");
        fs::write(&file, manifests)?;
        self.administer("kubectl", &["apply", "--server-side", "--filename", &file.to_string_lossy()]).await.map(drop)
    }

    /// The output of `kubectl`, `helm` or `ccm-operator` as an administrator, in the folder of the project.
    pub(crate) async fn administer(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let path = match program {
            "ccm-operator" => operator()?,
            "helm" => artifacts::helm().await?,
            _ => self.programs.join(program),
        };
        let mut command = Command::new(path);
        // The machine's proxy does not lead here, and the settings of its user are none of the test's.
        command.args(arguments).current_dir(repository()).env_clear();
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.dir.path());
        tokio::task::spawn_blocking(move || run(&mut command)).await?
    }

    /// The requests of a user so far.
    pub(crate) async fn requests(&self, user: &str) -> Result<Vec<Request>> {
        let log = self.dir.path().join("audit.log");
        fs::write(&log, self.machines[0].exec(&["cat", &format!("{AUDIT}/audit.log")]).await? + "\n")?;
        Ok(audit::by_user(AuditLog::new(log).all()?, user))
    }

    /// Installs a pod network, of which pods see nothing but the loopback: everything here is on the network of its node.
    pub(crate) async fn install_pod_network(&self) -> Result<()> {
        let network = json!({"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}).to_string();
        for machine in &self.machines {
            machine.write("/etc/cni/net.d/10-loopback.conflist", &network).await.context("the pod network")?;
        }
        Ok(())
    }
}

/// The name of the node, and what every kubelet of a cluster with a cloud is started with.
fn registration(instance: &Instance, waits: bool) -> Value {
    let arguments = if waits { arguments(&[("cloud-provider", "external")]) } else { json!([]) };
    json!({"name": instance.name, "kubeletExtraArgs": arguments})
}

fn kind(kind: &str, fields: Value) -> Value {
    let mut all = json!({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": kind});
    if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
        all.extend(fields);
    }
    all
}

fn arguments(all: &[(&str, &str)]) -> Value {
    all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// The configuration of `kubeadm init`. A node that has died is noticed after seconds, not after most of a minute.
fn init(instance: &Instance, version: &str) -> String {
    let documents = [
        kind(
            "InitConfiguration",
            json!({
                "nodeRegistration": registration(instance, true),
                "bootstrapTokens": [{"token": TOKEN}],
                // No images of CoreDNS and kube-proxy are there, and a container is not the machine that preflight expects.
                "skipPhases": ["preflight", "addon"],
            }),
        ),
        kind(
            "ClusterConfiguration",
            json!({
                "kubernetesVersion": version,
                "controllerManager": {"extraArgs": arguments(&[
                    ("cloud-provider", "external"), ("node-monitor-period", "1s"), ("node-monitor-grace-period", "8s"),
                ])},
                "apiServer": {
                    "extraArgs": arguments(&[
                        ("audit-policy-file", &format!("{AUDIT}/policy.yaml")), ("audit-log-path", &format!("{AUDIT}/audit.log")),
                    ]),
                    "extraVolumes": [{"name": "audit", "hostPath": AUDIT, "mountPath": AUDIT}],
                },
                "etcd": {"local": {"extraArgs": arguments(&[("unsafe-no-fsync", "true")])}},
            }),
        ),
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "nodeLeaseDurationSeconds": 8,
        }),
    ];
    documents.map(|document| document.to_string()).join("\n---\n")
}

/// The configuration of `kubeadm join`.
fn join(instance: &Instance, waits: bool) -> String {
    let fields = json!({
        "nodeRegistration": registration(instance, waits),
        "discovery": {"file": {"kubeConfigPath": "/root/cluster.conf"}, "tlsBootstrapToken": TOKEN},
        "skipPhases": ["preflight"],
    });
    kind("JoinConfiguration", fields).to_string()
}
