//! From the published objects of AWS's cloud-controller-manager to the operator's, and back, by the commands that `init
//! --from-existing` prints: with the real program on both sides, a kubelet that runs it in the pods of both workloads, and moto.
//! No node is deleted or waits again, and the load balancer stays the same one.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::text::yaml;
use futures::StreamExt;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, Pod, Service},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::watcher::{self, watcher},
};
use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};

use super::{
    fixture::{LEASE, node},
    front::Front,
};
use crate::{
    docs::shell::Shell,
    lab::{LIMIT, can},
    pod::{self, Container, Image},
    published::{self, ACCOUNT, DAEMON_SET as OLD, PERMISSIONS},
    support::{
        artifacts,
        control_plane::Options,
        eventually, kubelet,
        kubernetes::{Kubernetes, LIMITS, OWN_NAMESPACE, SERVICE_ACCOUNT},
        moto::{self, Instance},
        objects,
        operator::Operator,
        scrape::free_port,
    },
};

/// The workload that the operator creates beside the old one.
const NEW: &str = "aws-cloud-controller-manager-main";
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const PERIOD: Duration = Duration::from_millis(50);
/// The longest wait for a node: a cloud-controller-manager starts for it on a machine that may be busy.
const NODE_LIMIT: Duration = Duration::from_secs(180);

/// The published objects, as a cluster of kOps has them, with a port that is free here.
fn published(configuration: &str, api_server: u16, port: u16) -> Vec<Value> {
    let (name, port) = (format!("--cluster-name={}", moto::CLUSTER), format!("--secure-port={port}"));
    let mut objects = published::objects(&[
        "--v=2",
        "--cloud-provider=aws",
        &name,
        "--use-service-account-credentials=true",
        "--configure-cloud-routes=false",
        "--cloud-config=/etc/kubernetes/cloud/cloud.conf",
        &port,
    ]);
    for object in objects.iter_mut().filter(|object| object["kind"] == "DaemonSet") {
        let pod = &mut object["spec"]["template"]["spec"];
        pod["containers"][0]["env"] = json!([
            {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
            {"name": "KUBERNETES_SERVICE_PORT", "value": api_server.to_string()},
        ]);
        pod["containers"][0]["volumeMounts"] = json!([{"name": "cloud-config", "mountPath": "/etc/kubernetes/cloud"}]);
        pod["volumes"] = json!([{"name": "cloud-config", "configMap": {"name": "aws-cloud-config"}}]);
    }
    let metadata = json!({"name": "aws-cloud-config", "namespace": "kube-system"});
    let data = json!({"cloud.conf": configuration});
    objects.insert(0, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}));
    objects
}

/// The kubelet of the node of the control plane.
struct Kubelet {
    cluster: Arc<Kubernetes>,
    image: Image,
    /// By the UID of the pod.
    running: BTreeMap<String, Container>,
    incidents: Arc<Mutex<Vec<String>>>,
    /// When a container has stopped.
    stopped: Arc<Mutex<Option<Timestamp>>>,
    logs: Arc<Mutex<BTreeMap<String, PathBuf>>>,
}

impl Kubelet {
    async fn run(mut self) {
        loop {
            // An error is a conflict; the next attempt succeeds.
            if let Err(error) = self.look().await
                && !error.to_string().contains("Conflict")
            {
                report(&error);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        for container in self.running.values() {
            if container.get("/healthz", None).await.is_err() {
                self.incidents.lock().unwrap().push("a container has ended by itself".to_owned());
            }
        }
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        for pod in pods.list(&ListParams::default()).await? {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            if pod.metadata.deletion_timestamp.is_some() {
                if let Some(container) = self.running.remove(&uid) {
                    container.stop().await?;
                    *self.stopped.lock().unwrap() = Some(Timestamp::now());
                }
                pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            } else if kubelet::is_startable(&pod) {
                let container = Container::start(&self.cluster, &as_image(&pod)?, &self.image).await?;
                self.logs.lock().unwrap().insert(name.clone(), container.log_file());
                self.running.insert(uid, container);
                let status = Patch::Merge(json!({"status": kubelet::running(&pod)}));
                pods.patch_status(&name, &PatchParams::default(), &status).await?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::print_stderr, reason = "a kubelet has a log")]
fn report(error: &anyhow::Error) {
    eprintln!("kubelet: {error:#}");
}

/// A workload of a pod, with what the image of the published manifests says instead of them.
fn as_image(pod: &Pod) -> Result<Value> {
    let mut workload = json!({"metadata": {"namespace": "kube-system"}, "spec": {"template": {"spec": pod.spec}}});
    let spec = &mut workload["spec"]["template"]["spec"];
    // The account's files are mounted by the test's own kubelet.
    let is_of_account = |one: &Value| one["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access"));
    let container = &mut spec["containers"][0];
    if let Some(mounts) = container["volumeMounts"].as_array_mut() {
        mounts.retain(|one| !is_of_account(one));
    }
    if container["command"].is_null() {
        let port = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let port = port.filter_map(|one| one.strip_prefix("--secure-port=")).next_back().context("a port")?;
        container["ports"] = json!([{"name": "https", "containerPort": port.parse::<u16>()?}]);
        container["startupProbe"] = json!({"httpGet": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}});
        container["command"] = json!(["/bin/aws-cloud-controller-manager"]);
        spec["securityContext"] = json!({"runAsUser": 0, "runAsGroup": 0});
    }
    Ok(workload)
}

struct Fixture {
    cluster: Arc<Kubernetes>,
    operator: Operator,
    moto: moto::Cloud,
    _front: Front,
    instances: Vec<Instance>,
    shell: Shell,
    /// Nodes that were deleted, those that wait again, and containers that have ended.
    incidents: Arc<Mutex<Vec<String>>>,
    stopped: Arc<Mutex<Option<Timestamp>>>,
    logs: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    _tasks: JoinSet<()>,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let cluster = Arc::new(Kubernetes::with(Options { controllers: true, ..Options::default() }, "aws").await?);
        let operator = cluster.start()?;
        let port = free_port()?;
        let moto = moto::Cloud::start("127.0.0.1", port).await?;
        let front = Front::start(port).await?;
        let subnet = moto.subnet("10.0.0.0/16").await?;
        let instances = moto.run_instances(&subnet, &["--count", "4"]).await?;
        let program = artifacts::cloud_controller_managers().await?.join(OLD);
        let mut image = Image { program, environment: Vec::new(), node: "control-plane" };
        for (name, value) in [
            ("AWS_REGION", moto::REGION),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_ACCESS_KEY_ID", "none"),
            ("AWS_SECRET_ACCESS_KEY", "none"),
            ("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", front.port)),
        ] {
            image.set(name, value);
        }
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let id = Patch::Merge(json!({"spec": {"providerID": instances[0].provider_id()}}));
        nodes.patch("control-plane", &PatchParams::default(), &id).await?;
        for object in published(&subnet.configuration(), cluster.plane.port(), free_port()?) {
            objects::create_as(&cluster.client, "kubectl-create", object).await?;
        }
        objects::create_as(&cluster.client, "kubectl-create", installation()).await?;
        let (stopped, logs, incidents) = (Arc::default(), Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        let kubelet = Kubelet {
            cluster: Arc::clone(&cluster),
            image,
            running: BTreeMap::new(),
            incidents: Arc::clone(&incidents),
            stopped: Arc::clone(&stopped),
            logs: Arc::clone(&logs),
        };
        tasks.spawn_local(kubelet.run());
        tasks.spawn_local(watch(cluster.client.clone(), Arc::clone(&incidents)));
        let shell = Shell::new(&cluster.plane.kubeconfig_admin()).await?;
        Ok(Self { cluster, operator, moto, _front: front, instances, shell, incidents, stopped, logs, _tasks: tasks })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    /// Registers the node of an instance, and waits until it is initialized.
    async fn initialized(&self, number: usize) -> Result<()> {
        let name = &self.instances[number].name;
        objects::create_as(&self.cluster.client, "kubelet", node(name)).await?;
        let waited = eventually("the node", NODE_LIMIT, async || {
            let node = self.nodes().get(name).await?;
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            ensure!(id == Some(self.instances[number].provider_id()) && !is_tainted(&node), "{:?}", node.spec);
            Ok(Some(()))
        });
        waited.await.with_context(|| self.log())
    }

    async fn lease(&self) -> Result<LeaseSpec> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        Ok(leases.get(LEASE).await?.spec.unwrap_or_default())
    }

    async fn holder(&self) -> Result<String> {
        Ok(self.lease().await?.holder_identity.unwrap_or_default())
    }

    /// Waits until the lease has another holder, and returns it with the seconds between the end of the last one's container and
    /// the new one's acquisition.
    async fn passed_on(&self, from: &str) -> Result<(String, f64)> {
        let waited = eventually("another holder", LIMIT, async || {
            let lease = self.lease().await?;
            let holder = lease.holder_identity.unwrap_or_default();
            ensure!(holder != from && !holder.is_empty(), "{holder}");
            Ok(Some((holder, lease.acquire_time.context("a time")?.0)))
        });
        let (holder, acquired) = waited.await.with_context(|| self.log())?;
        let stopped = self.stopped.lock().unwrap().context("nothing has stopped")?;
        Ok((holder, acquired.duration_since(stopped).as_secs_f64()))
    }

    /// The load balancers: name, address and time of creation, and the ports that they serve.
    async fn load_balancers(&self) -> Result<Vec<(String, Vec<u64>)>> {
        let answer = self.moto.aws(&["elbv2", "describe-load-balancers"]).await?;
        let mut found = Vec::new();
        for one in answer["LoadBalancers"].as_array().into_iter().flatten() {
            let arn = one["LoadBalancerArn"].as_str().context("an ARN")?;
            let answer = self.moto.aws(&["elbv2", "describe-listeners", "--load-balancer-arn", arn]).await?;
            let listeners = answer["Listeners"].as_array().into_iter().flatten();
            let mut ports: Vec<_> = listeners.filter_map(|one| one["Port"].as_u64()).collect();
            ports.sort_unstable();
            let name = format!("{} {} {}", one["LoadBalancerName"], one["DNSName"], one["CreatedTime"]);
            found.push((name.replace('"', ""), ports));
        }
        Ok(found)
    }

    /// Gives the Service these ports, and waits until its load balancer has them.
    async fn serves(&self, ports: &[u64]) -> Result<String> {
        let list: Vec<_> = ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        // The subnets of moto have no way to the Internet.
        let prefix = "service.beta.kubernetes.io/aws-load-balancer";
        let annotations = json!({format!("{prefix}-internal"): "true", format!("{prefix}-type"): "nlb"});
        let metadata = json!({"name": "web", "namespace": "default", "annotations": annotations});
        let spec = json!({"type": "LoadBalancer", "ports": list});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        objects::apply(&self.cluster.client, service).await?;
        let waited = eventually("the load balancer", LIMIT, async || {
            let all = self.load_balancers().await?;
            ensure!(all.len() == 1 && all[0].1 == ports, "{all:?}");
            Ok(Some(all[0].0.clone()))
        });
        waited.await.with_context(|| self.log())
    }

    /// Runs the commands of these steps, one after the other.
    async fn follow(&self, steps: &Value) -> Result<()> {
        for step in steps.as_array().context("no steps")? {
            for command in step["commands"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let (code, output) = self.shell.run(command).await?;
                let logs = || format!("{}\n{}", self.operator.log(), self.log());
                ensure!(code == Some(0), "exit code {code:?} of {command}\n{output}\n{}", logs());
            }
        }
        Ok(())
    }

    fn log(&self) -> String {
        let logs = self.logs.lock().unwrap().clone();
        let tail = |(pod, path): (String, PathBuf)| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().filter(|line| !line.contains("] FLAG: ")).collect();
            format!("{pod}:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        logs.into_iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Nothing has happened to a node or a container.
    fn nothing_happened(&self) -> Result<()> {
        let incidents = self.incidents.lock().unwrap().clone();
        ensure!(incidents.is_empty(), "{incidents:?}\n{}", self.log());
        Ok(())
    }

    async fn exists(&self, command: &str) -> Result<bool> {
        Ok(!self.shell.run(&format!("kubectl get --ignore-not-found -o name {command}")).await?.1.trim().is_empty())
    }
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == TAINT)
}

/// Notes nodes that are deleted, and those that have the taint again.
async fn watch(client: Client, incidents: Arc<Mutex<Vec<String>>>) {
    let (mut nodes, mut done) = (watcher(Api::<Node>::all(client), watcher::Config::default()).boxed(), Vec::new());
    while let Some(event) = nodes.next().await {
        let what = match event {
            Ok(watcher::Event::Delete(node)) => format!("{} was deleted", node.name_any()),
            Ok(watcher::Event::Apply(node)) if done.contains(&node.name_any()) && is_tainted(&node) => {
                format!("{} waits again", node.name_any())
            }
            Ok(watcher::Event::Apply(node)) => {
                if !is_tainted(&node) {
                    done.push(node.name_any());
                }
                continue;
            }
            _ => continue,
        };
        incidents.lock().unwrap().push(what);
    }
}

/// The Deployment of the operator, for those who look at its flags. Here the operator is a process, so it has no pods.
fn installation() -> Value {
    let labels = json!({"app": SERVICE_ACCOUNT});
    let container = json!({"name": "operator", "image": "registry.example/ccm-operator", "args": LIMITS});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": OWN_NAMESPACE},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

/// Edits the proposal of `init` as a user would: with a port that is free here.
fn edit(fixture: &Fixture, report: &Value) -> Result<()> {
    let path = fixture.shell.folder().join("ccm.yaml");
    let mut manifest: Value = yaml::from_str(&fs::read_to_string(&path)?)?;
    let expected = json!({
        "provider": "aws", "clusterName": moto::CLUSTER,
        "cloudConfig": {"configMapRef": {"name": "aws-cloud-config", "key": "cloud.conf"}},
        "leaderElection": {"leaseName": LEASE},
        "placement": {"apiServer": {"host": "127.0.0.1", "port": fixture.cluster.plane.port()}},
    });
    let mut spec = manifest["spec"].clone();
    spec.as_object_mut().context("a specification")?.remove("ports");
    ensure!((&spec, &manifest["metadata"]["name"]) == (&expected, &json!("main")), "{manifest:#}");
    ensure!(
        report["migrationResults"].as_array().is_some_and(|all| all.iter().all(|one| one["result"] != "ToDo")),
        "{report:#}"
    );
    manifest["spec"]["ports"] = json!({"secure": free_port()?});
    Ok(fs::write(path, yaml::to_string(&manifest)?)?)
}

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn from_the_published_objects_of_aws_and_back() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    LocalSet::new().run_until(there_and_back()).await
}

#[expect(clippy::print_stderr, reason = "the seconds are reported")]
async fn there_and_back() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.initialized(1).await?;
    fixture.initialized(2).await?;
    let before = fixture.serves(&[80]).await?;
    let services: Api<Service> = Api::default_namespaced(fixture.cluster.client.clone());
    let uid = services.get("web").await?.uid().context("a UID")?;
    ensure!(before.starts_with(&format!("a{}", uid.replace('-', ""))[..32]), "{before} is not named by {uid}");
    fixture.nothing_happened()?;
    let old = fixture.holder().await?;

    let (code, output) = fixture.shell.run("ccm-operator init --from-existing -o json 2>&1").await?;
    let report: Value = serde_json::from_str(&output).with_context(|| output.clone())?;
    ensure!(code == Some(0), "{report:#}");
    edit(&fixture, &report)?;
    let steps = &report["steps"];
    // The fixture has no image; the operator runs already.
    ensure!(!output.contains("render install"), "the operator is there");

    fixture.follow(&steps["next"]).await?;
    let (new, seconds) = fixture.passed_on(&old).await?;
    eprintln!("AWS, to the operator: {seconds:.1} s without a holder of the lease {LEASE}");
    ensure!(fixture.exists(&format!("--namespace kube-system daemonset {NEW}")).await?);
    ensure!(!fixture.exists(&format!("--namespace kube-system daemonset {OLD}")).await?);
    // It leads: it changes the same load balancer, and initializes what comes.
    assert_eq!(fixture.serves(&[80, 443]).await?, before);
    fixture.initialized(3).await?;
    fixture.nothing_happened()?;

    fixture.follow(&steps["back"]).await?;
    let (_, seconds) = fixture.passed_on(&new).await?;
    eprintln!("AWS, back to the published objects: {seconds:.1} s without a holder of the lease {LEASE}");
    ensure!(fixture.exists(&format!("--namespace kube-system daemonset {OLD}")).await?);
    ensure!(fixture.cluster.objects(None).await?.is_empty(), "the operator's objects are gone");
    assert_eq!(fixture.serves(&[80]).await?, before);
    fixture.nothing_happened()?;

    // Once more, and for good.
    let old = fixture.holder().await?;
    fixture.follow(&steps["next"]).await?;
    fixture.passed_on(&old).await?;
    fixture.follow(&steps["cleanUp"]).await?;
    for gone in ["clusterrole", "clusterrolebinding"] {
        ensure!(!fixture.exists(&format!("{gone} {PERMISSIONS}")).await?, "{gone}");
    }
    ensure!(!fixture.exists(&format!("--namespace kube-system serviceaccount {ACCOUNT}")).await?);
    ensure!(fixture.exists("--namespace kube-system role extension-apiserver-authentication-reader").await?);
    assert_eq!(fixture.serves(&[80, 8080]).await?, before);
    fixture.nothing_happened()?;
    let requests = fixture.cluster.plane.audit().all()?;
    let of_nodes = requests.iter().filter(|one| one.verb == "delete" && one.resource == "nodes");
    assert_eq!(of_nodes.count(), 0, "nobody has tried to delete a node");
    let account = format!("system:serviceaccount:{OWN_NAMESPACE}:{SERVICE_ACCOUNT}");
    let refused: Vec<_> = requests.iter().filter(|one| one.user == account && one.code == 403).collect();
    assert!(refused.is_empty(), "the operator lacks no permission: {refused:#?}");
    Ok(())
}
