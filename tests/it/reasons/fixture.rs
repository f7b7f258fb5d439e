//! A cluster whose real cloud-controller-manager runs as the operator has installed it, on a node whose kubelet shows its pod and
//! its log: so a diagnosis reads what it would read in any cluster.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    LONG,
    kubelet::Kubelet,
    protocol::{self, Row},
};
use crate::{
    lab::{LIMIT, binary, ignore_absent},
    pod::{Container, Image},
    support::{
        artifacts, control_plane::Options, eventually, kubernetes::Kubernetes, objects, operator::Operator,
        scrape::free_port,
    },
};

/// The node that the cloud-controller-manager runs on.
const NODE: &str = "control-plane";
/// The lease of the cloud-controller-manager, unless a test sets another one.
pub(super) const LEASE: &str = "cloud-controller-manager";
const TAINT: &str = "node.cloudprovider.kubernetes.io/";

/// A cluster of one cloud.
pub(super) struct Fixture {
    pub(super) cluster: Kubernetes,
    pub(super) operator: Operator,
    /// The parts of the cloud-controller-manager that its pod does not define.
    pub(super) image: Image,
    pub(super) provider: &'static str,
    kubelet: Kubelet,
    running: Option<Container>,
    /// The template of its pod.
    template: Value,
}

impl Fixture {
    /// A cluster with the operator for this provider, and without a `CloudControllerManager`.
    pub(super) async fn new(provider: &'static str) -> Result<Self> {
        Self::with(Options::default(), provider).await
    }

    /// A fixture on a control plane with these options.
    pub(super) async fn with(options: Options, provider: &'static str) -> Result<Self> {
        let cluster = Kubernetes::with(options, provider).await?;
        let operator = cluster.start()?;
        Self::of(cluster, operator, provider, provider).await
    }

    /// A fixture with an external provider in a folder, which runs the program of another provider.
    pub(super) async fn external(
        provider: &'static str,
        program_of: &str,
        folder: &Path,
        pinned: &str,
    ) -> Result<Self> {
        let cluster = Kubernetes::new("hcloud").await?;
        cluster.install_with(&["--provider", &folder.display().to_string(), "--providers", provider]).await?;
        let operator = cluster.start_with(&["--namespaces=kube-system", pinned])?;
        Self::of(cluster, operator, provider, program_of).await
    }

    async fn of(cluster: Kubernetes, operator: Operator, provider: &'static str, program_of: &str) -> Result<Self> {
        let kubelet = Kubelet::start(&cluster.client, NODE).await?;
        let name = format!("{program_of}-cloud-controller-manager");
        let program = artifacts::cloud_controller_managers().await?.join(name);
        let image = Image { program, environment: Vec::new(), node: NODE };
        Ok(Self { cluster, operator, image, provider, kubelet, running: None, template: Value::Null })
    }

    /// A fixture whose operator may allow the deletion of nodes.
    pub(super) async fn guarded(provider: &'static str) -> Result<Self> {
        let mut fixture = Self::new(provider).await?;
        fixture.operator.terminate()?;
        fixture.operator.wait(LIMIT).await?;
        fixture.cluster.install_with(&["--providers", provider, "--node-deletion"]).await?;
        fixture.operator = fixture.cluster.start_with(&["--namespaces=kube-system", "--node-deletion"])?;
        Ok(fixture)
    }

    /// The name of the workload, of its account and of its permissions.
    pub(super) fn name(&self) -> String {
        format!("{}-cloud-controller-manager", self.provider)
    }

    /// Creates the `CloudControllerManager`, which looks after its nodes more often than by default.
    pub(super) async fn create(&self, mut spec: Value) -> Result<()> {
        spec["placement"] = json!({"apiServer": {"host": "127.0.0.1", "port": self.cluster.plane.port()}});
        spec["ports"] = json!({"secure": free_port()?});
        spec["arguments"] = json!({"--node-monitor-period": "500ms"});
        self.cluster.create("cluster", spec).await
    }

    /// The status of the `CloudControllerManager`.
    pub(super) async fn status(&self) -> Result<Value> {
        Ok(self.cluster.ccms().get("cluster").await?.data["status"].clone())
    }

    /// Changes the `CloudControllerManager`.
    pub(super) async fn patch(&self, spec: Value) -> Result<()> {
        self.cluster.patch("cluster", json!({"spec": spec})).await
    }

    /// Rolls out what the operator has installed since the last time.
    pub(super) async fn roll_out(&mut self) -> Result<()> {
        let workload = self.installed().await?;
        self.run(&workload).await
    }

    /// Starts the container of this workload, instead of the one that runs.
    pub(super) async fn run(&mut self, workload: &Value) -> Result<()> {
        self.stop().await?;
        let container = Container::start(&self.cluster, workload, &self.image).await?;
        self.kubelet.show_running(workload, &container.log_file()).await?;
        self.running = Some(container);
        Ok(())
    }

    /// Rolls out like [`Self::roll_out`], for a container that ends on its own.
    pub(super) async fn roll_out_and_crash(&mut self) -> Result<()> {
        let workload = self.installed().await?;
        self.stop().await?;
        let container = Container::spawn(&self.cluster, &workload, &self.image).await?;
        let code = container.ended().await?.code().unwrap_or(-1);
        self.kubelet.show_crashed(&workload, &container.log_file(), code).await?;
        self.running = Some(container);
        Ok(())
    }

    /// Runs the program a second time with this lease and the same account, as a manifest of somebody else would.
    pub(super) async fn run_another(&mut self, lease: &str) -> Result<Container> {
        let mut workload = self.live().await?;
        workload["metadata"]["name"] = json!(lease);
        workload["spec"]["template"]["metadata"] = json!({"labels": {"k8s-app": lease}});
        let port = free_port()?;
        let container = &mut workload["spec"]["template"]["spec"]["containers"][0];
        container["ports"][0]["containerPort"] = json!(port);
        for argument in container["args"].as_array_mut().into_iter().flatten() {
            for (flag, value) in [("--leader-elect-resource-name", lease), ("--secure-port", &port.to_string())] {
                if text(argument).starts_with(&format!("{flag}=")) {
                    *argument = json!(format!("{flag}={value}"));
                }
            }
        }
        let other = Container::start(&self.cluster, &workload, &self.image).await?;
        self.kubelet.show_another(&workload).await?;
        Ok(other)
    }

    /// Removes the pods of [`Self::run_another`].
    pub(super) async fn remove_pods_of(&self, lease: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let of_other = ListParams::default().labels(&format!("k8s-app={lease}"));
        pods.delete_collection(&DeleteParams::default().grace_period(0), &of_other).await?;
        Ok(())
    }

    /// Stops the container. The next one need not wait until its lease has expired.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(container) = self.running.take() else { return Ok(()) };
        container.stop().await?;
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        ignore_absent(leases.delete(LEASE, &DeleteParams::default()).await)
    }

    /// Restarts the container as it is.
    pub(super) async fn restart(&mut self) -> Result<()> {
        let workload = self.live().await?;
        self.run(&workload).await
    }

    /// The workload, once its template differs from the template of the running container.
    async fn installed(&mut self) -> Result<Value> {
        let live = eventually("another template", LIMIT, async || {
            self.cluster.ready(&self.operator, "cluster").await?;
            let live = self.live().await?;
            ensure!(live["spec"]["template"] != self.template, "the template is the same");
            Ok(Some(live))
        })
        .await
        .with_context(|| self.operator.log())?;
        self.template = live["spec"]["template"].clone();
        Ok(live)
    }

    /// The workload.
    pub(super) async fn live(&self) -> Result<Value> {
        let kind = KINDS.iter().find(|kind| kind.kind == "DaemonSet").context("DaemonSet")?;
        let live = request::api(&self.cluster.client, kind, "kube-system").get(&self.name()).await?;
        Ok(serde_json::to_value(live)?)
    }

    /// The output of the container, without the flags that it begins with.
    pub(super) fn log(&self) -> String {
        let log = self.running.as_ref().map(Container::log).unwrap_or_default();
        log.lines().filter(|line| !line.contains("] FLAG: ")).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the container says this.
    pub(super) async fn says(&self, text: &str) -> Result<()> {
        eventually(text, LIMIT, async || {
            let log = self.log();
            ensure!(log.contains(text), "{log}");
            Ok(Some(()))
        })
        .await
    }

    /// The nodes.
    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    /// Creates a Node as a kubelet with `--cloud-provider=external` does.
    pub(super) async fn register(&self, node: &Value) -> Result<()> {
        objects::create_as(&self.cluster.client, "kubelet", node.clone()).await.map(drop)
    }

    /// Deletes a Node.
    pub(super) async fn remove(&self, node: &str) -> Result<()> {
        ignore_absent(self.nodes().delete(node, &DeleteParams::default()).await)
    }

    /// Changes the condition `Ready` of a node, as it was this many seconds ago.
    pub(super) async fn set_ready(&self, node: &str, status: &str, seconds_ago: i64) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"conditions": [ready(status, seconds_ago)]}}));
        self.nodes().patch_status(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Changes the annotations of a node.
    pub(super) async fn annotate(&self, node: &str, annotations: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until an account of kube-system may not change nodes for this reason.
    pub(super) async fn is_denied(&self, reason: &str) -> Result<()> {
        eventually("the policy", LIMIT, async || {
            let answer = self.dry_run().await;
            ensure!(answer.as_ref().is_err_and(|error| error.to_string().contains(reason)), "{answer:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until it may again.
    pub(super) async fn is_allowed(&self) -> Result<()> {
        eventually("the policy to be gone", LIMIT, async || Ok(Some(self.dry_run().await?))).await
    }

    /// Changes a node as the cloud-controller-manager may, and keeps nothing of it.
    async fn dry_run(&self) -> kube::Result<()> {
        let mut config = self.cluster.plane.config().map_err(|error| kube::Error::Service(error.into()))?;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:kube-system:{}", self.name()));
        let nodes: Api<Node> = Api::all(kube::Client::try_from(config)?);
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"test": "dry-run"}}}));
        nodes.patch(NODE, &params, &patch).await.map(drop)
    }

    /// Waits until a node has one of the cloud's taints, or no longer has it.
    pub(super) async fn tainted(&self, node: &str, taint: &str, is_tainted: bool) -> Result<()> {
        let what = format!("{node} has the taint {taint}: {is_tainted}");
        let waited = eventually(&what, LIMIT, async || {
            let spec = self.nodes().get(node).await?.spec.context("spec")?;
            let has = spec.taints.iter().flatten().any(|one| one.key == format!("{TAINT}{taint}"));
            ensure!(has == is_tainted, "{spec:?}");
            Ok(Some(()))
        });
        waited.await.with_context(|| self.log())
    }

    /// Waits until the command `nodes` finds this reason of a node first, by evidence with this text.
    pub(super) async fn finds(&self, node: &str, reason: &str, evidence: &str, how: &str) -> Result<Value> {
        let started = Instant::now();
        let what = format!("{reason} of {node}");
        let found = eventually(&what, LONG, async || {
            let diagnosis = self.diagnosis(node).await?;
            let first = &diagnosis["findings"][0];
            let is_so = first["id"] == reason && text(&first["evidence"]).contains(evidence);
            ensure!(is_so, "{:#}", diagnosis["findings"]);
            Ok(Some(first.clone()))
        });
        let found = found.await.with_context(|| format!("the log:\n{}", self.log()))?;
        protocol::note(Row {
            cloud: self.provider.to_owned(),
            reason: reason.to_owned(),
            how: how.to_owned(),
            after: started.elapsed(),
            printed: format!("{} ({})", text(&found["cause"]), shortened(text(&found["evidence"]))),
        })?;
        Ok(found)
    }

    /// Waits until the operator reports the same in the status, for everybody to read.
    pub(super) async fn operator_finds(&self, node: &str, reason: &str, name: &str) -> Result<()> {
        let what = format!("the status to name {reason}");
        let waited = eventually(&what, LONG, async || {
            let status = self.status().await?;
            let stuck = status["nodes"]["waiting"].as_array().into_iter().flatten().find(|one| one["node"] == node);
            ensure!(stuck.is_some_and(|stuck| stuck["reason"] == reason), "{status:#}");
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let initialized = conditions.into_iter().find(|one| one["type"] == "NodesInitialized");
            ensure!(
                initialized.is_some_and(|one| one["status"] == "False" && one["reason"] == name),
                "{initialized:#?}"
            );
            Ok(Some(()))
        });
        waited.await.with_context(|| self.operator.log())
    }

    /// The output of the command `nodes` about a node.
    pub(super) async fn diagnosis(&self, node: &str) -> Result<Value> {
        let output = self.command(&["nodes", node, "--output=json"]).await?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))?;
        ensure!(report["nodes"].as_array().is_some_and(|all| all.len() == 1), "{report:#}");
        ensure!(report["unseen"] == json!([]), "{report:#}");
        Ok(report["nodes"][0].clone())
    }

    /// Lets the cloud-controller-manager try again: it initializes the node.
    pub(super) async fn is_cured(&self, node: &str) -> Result<()> {
        let output = self.command(&["nodes", "retry", node]).await?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{said}{}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
        self.tainted(node, "uninitialized", false).await
    }

    /// Runs the program as an administrator.
    async fn command(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(binary());
        command.args(arguments).env("KUBECONFIG", self.cluster.plane.kubeconfig_admin()).stdin(Stdio::null());
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The beginning and the end of a text of somebody else.
fn shortened(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= 240 {
        return text.to_owned();
    }
    let part = |part: &[char]| part.iter().collect::<String>();
    format!("{} … {}", part(&letters[..80]), part(&letters[letters.len() - 150..]))
}

/// A Node that waits for its cloud-controller-manager.
pub(super) fn node(name: &str) -> Value {
    let info = json!({
        "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "", "architecture": "amd64",
        "containerRuntimeVersion": "", "kubeletVersion": "v1.35.4", "kubeProxyVersion": "", "operatingSystem": "linux",
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": format!("{TAINT}uninitialized"), "value": "true", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": info, "conditions": [ready("True", 0)]},
    })
}

/// The condition `Ready` with this status since so many seconds.
fn ready(status: &str, seconds_ago: i64) -> Value {
    let now = Timestamp::now();
    let since = Timestamp::from_second(now.as_second() - seconds_ago).unwrap();
    json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": since,
    })
}
