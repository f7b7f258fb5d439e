//! Rollouts of a cloud-controller-manager while a node of the control plane is dead: the real controllers of workloads, and stand-in
//! kubelets of which one falls silent.

use std::{
    fs,
    process::Command,
    sync::{Arc, Mutex},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS, text::yaml};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    lab::{LIMIT, binary},
    support::{
        control_plane::Options,
        eventually, kubelet,
        kubernetes::{Kubernetes, set_version},
        operator::Operator,
        process,
    },
};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Besides the first node of every cluster.
const OTHERS: [&str; 2] = ["second", "third"];

struct Fixture {
    cluster: Kubernetes,
    operator: Operator,
    pods: Api<Pod>,
    nodes: Api<Node>,
    /// The node whose kubelet is silent.
    dead: Arc<Mutex<Option<String>>>,
    _kubelets: JoinSet<()>,
}

impl Fixture {
    /// Three nodes of the control plane, with the cloud-controller-manager of a provider on them.
    async fn new(provider: &str, spec: Value) -> Result<Self> {
        let options = Options { controllers: true, ..Options::default() };
        let cluster = Kubernetes::with(options, provider).await?;
        let client = &cluster.client;
        for node in OTHERS {
            kubelet::add_node(client, node, &[(CONTROL_PLANE, "")]).await?;
            set_version(client, node, &client.apiserver_version().await?.git_version).await?;
        }
        let dead = Arc::new(Mutex::new(None));
        let (own, silent, mut kubelets) = (client.clone(), Arc::clone(&dead), JoinSet::new());
        kubelets.spawn(async move {
            kubelet::run_where(own, |pod| node_of(pod) != silent.lock().expect("a node").as_deref()).await;
        });
        let operator = cluster.start()?;
        cluster.put_secret(provider, json!({"token": "first"})).await?;
        cluster.create("cluster", spec).await?;
        let (pods, nodes) = (Api::namespaced(client.clone(), "kube-system"), Api::all(client.clone()));
        let fixture = Self { cluster, operator, pods, nodes, dead, _kubelets: kubelets };
        fixture.cluster.ready(&fixture.operator, "cluster").await?;
        Ok(fixture)
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.pods.list(&ListParams::default().labels("app.kubernetes.io/instance=cluster")).await?.items)
    }

    /// The pods that are ready and stay.
    async fn ready(&self) -> Result<Vec<Pod>> {
        let mut ready = self.pods().await?;
        ready.retain(is_ready);
        Ok(ready)
    }

    /// The kubelet of a pod's node falls silent; the rest is what the controller of nodes does about it. Returns the pod.
    async fn lose_a_node(&self) -> Result<Pod> {
        let pod = self.ready().await?.into_iter().next().context("no pod is ready")?;
        let node = node_of(&pod).context("a node")?;
        *self.dead.lock().expect("a node") = Some(node.to_owned());
        let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        self.nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(unknown)).await?;
        let taints = ["NoSchedule", "NoExecute"].map(|effect| json!({"key": UNREACHABLE, "effect": effect}));
        let taints = json!({"spec": {"taints": taints}});
        self.nodes.patch(node, &PatchParams::default(), &Patch::Merge(taints)).await?;
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(unready)).await?;
        Ok(pod)
    }

    async fn label(&self, node: &str, labels: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.nodes.patch(node, &PatchParams::default(), &patch).await.map(drop).map_err(Into::into)
    }

    /// Asks for a change that no pod would survive, and takes it back: so many stay ready.
    async fn is_refused(&self, spec: Value, ready: usize) -> Result<()> {
        self.cluster.patch("cluster", json!({"spec": spec})).await?;
        self.cluster.conditions(&self.operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await?;
        ensure!(
            self.ready().await?.len() == ready,
            "{:#?}",
            self.pods().await?.iter().map(describe).collect::<Vec<_>>()
        );
        self.cluster.patch("cluster", json!({"spec": {"placement": null, "image": null}})).await?;
        self.cluster.conditions(&self.operator, "cluster", &["ConfigurationValid=True"]).await.map(drop)
    }

    /// Changes what the pods are started with.
    async fn change(&self, verbosity: u8) -> Result<()> {
        self.cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": verbosity}}})).await
    }

    /// Waits until both live nodes have a ready pod with a change. At every look some pod is ready.
    async fn both_have(&self, verbosity: u8) -> Result<()> {
        let (mut looks, mut without) = (0, 0);
        let both = eventually("new pods", LIMIT, async || {
            let ready = self.ready().await?;
            looks += 1;
            without += usize::from(ready.is_empty());
            let new = ready.iter().filter(|pod| has(pod, verbosity)).count();
            ensure!(ready.len() == 2 && new == 2, "{:#?}", self.pods().await?.iter().map(describe).collect::<Vec<_>>());
            Ok(Some(()))
        });
        both.await.with_context(|| format!("the operator's log:\n{}", self.operator.log()))?;
        ensure!(without == 0, "no pod was ready at {without} of {looks} looks");
        Ok(())
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn has(pod: &Pod, verbosity: u8) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|one| one.args.iter().flatten().any(|argument| *argument == format!("--v={verbosity}")))
}

fn describe(pod: &Pod) -> String {
    let state = [is_ready(pod).then_some("ready"), pod.metadata.deletion_timestamp.as_ref().map(|_| "terminating")];
    format!("{} on {:?}: {:?}", pod.name_any(), node_of(pod), state.into_iter().flatten().collect::<Vec<_>>())
}

#[tokio::test]
async fn a_daemon_set_is_updated_while_one_of_three_nodes_is_dead_and_not_while_one_of_two() -> Result<()> {
    let fixture = Fixture::new("aws", json!({"provider": "aws"})).await?;
    eventually("a pod on each node", LIMIT, async || {
        let ready = fixture.ready().await?.len();
        ensure!(ready == 3, "{ready} pods are ready");
        Ok(Some(()))
    })
    .await?;
    // A version that nobody knows, and one node that is left for it; then one that is dead.
    let fast = json!({"nodeSelector": {"disk": "fast"}});
    fixture.label(OTHERS[0], json!({"disk": "fast"})).await?;
    fixture.is_refused(json!({"placement": fast, "image": {"version": "v1.35.99"}}), 3).await?;
    fixture.label(OTHERS[0], json!({"disk": null})).await?;
    let lost = fixture.lose_a_node().await?;
    fixture.label(node_of(&lost).context("a node")?, json!({"disk": "fast"})).await?;
    fixture.is_refused(json!({"placement": fast}), 2).await?;
    fixture.change(3).await?;
    fixture.both_have(3).await?;
    stays_with_two_nodes(&fixture, 4).await
}

#[tokio::test]
async fn a_deployment_is_updated_while_one_of_three_nodes_is_dead_and_not_while_one_of_two() -> Result<()> {
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    let fixture = Fixture::new("hcloud", spec).await?;
    eventually("both pods", LIMIT, async || Ok((fixture.ready().await?.len() == 2).then_some(()))).await?;
    let lost = fixture.lose_a_node().await?;
    fixture.change(3).await?;
    fixture.both_have(3).await?;
    // The pod of the dead node goes only with its node.
    let left = fixture.pods.get(&lost.name_any()).await?;
    assert!(left.metadata.deletion_timestamp.is_some(), "{}", describe(&left));
    // As after its eviction.
    fixture.change(4).await?;
    fixture.both_have(4).await?;
    stays_with_two_nodes(&fixture, 5).await
}

/// Takes one of the two live nodes away, and starts a rollout: the pod of the other one stays.
async fn stays_with_two_nodes(fixture: &Fixture, verbosity: u8) -> Result<()> {
    let ready = fixture.ready().await?;
    let [away, stays] = &ready[..] else { panic!("{:?}", ready.iter().map(describe).collect::<Vec<_>>()) };
    fixture.nodes.delete(node_of(away).context("a node")?, &DeleteParams::default()).await?;
    let at_once = DeleteParams::default().grace_period(0);
    fixture.pods.delete(&away.name_any(), &at_once).await?;
    fixture.change(verbosity).await?;
    eventually("the rollout to wait", LIMIT, async || {
        let workloads = ["Deployment", "DaemonSet"].map(|kind| workloads(&fixture.cluster, kind));
        let mut seen = 0;
        for api in workloads {
            for one in api.list(&ListParams::default()).await? {
                let args = one.data["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
                let status = &one.data["status"];
                // A Deployment's controller has written that no pod more may be missing once the new one waits for a node.
                let waits = status["observedGeneration"] == json!(one.metadata.generation)
                    && args.contains(&format!("\"--v={verbosity}\""))
                    && (one.data["spec"]["strategy"].is_null() || status["updatedReplicas"] == 1);
                seen += usize::from(waits);
            }
        }
        ensure!(seen == 1, "{:?}", fixture.pods().await?.iter().map(describe).collect::<Vec<_>>());
        Ok(Some(()))
    })
    .await?;
    let left = fixture.pods.get(&stays.name_any()).await?;
    assert!(is_ready(&left) && !has(&left, verbosity), "{}", describe(&left));
    Ok(())
}

fn workloads(cluster: &Kubernetes, kind: &str) -> Api<DynamicObject> {
    let kind = KINDS.iter().find(|known| known.kind == kind).expect("a kind");
    request::api(&cluster.client, kind, "kube-system")
}

#[tokio::test]
async fn the_strategy_of_an_earlier_version_is_replaced_and_can_come_back() -> Result<()> {
    let cluster = Kubernetes::new("hcloud").await?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    let operator = cluster.start()?;
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    cluster.create("cluster", spec.clone()).await?;
    cluster.ready(&operator, "cluster").await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // What an earlier version applies.
    let dir = process::temp_dir()?;
    let file = dir.path().join("ccm.yaml");
    let ccm = json!({"apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager",
        "metadata": {"name": "cluster"}, "spec": spec});
    fs::write(&file, ccm.to_string())?;
    let output = Command::new(binary())
        .args(["render", "ccm", "--kubernetes-version=1.35", "--output=yaml", "--config"])
        .arg(&file)
        .output()?;
    let rendered = yaml::documents(&String::from_utf8(output.stdout)?)?;
    let mut deployment = rendered.into_iter().find(|one| one["kind"] == "Deployment").context("a Deployment")?;
    deployment["spec"]["strategy"] = json!({"type": "Recreate"});
    let deployments = workloads(&cluster, "Deployment");
    let name = deployment["metadata"]["name"].as_str().context("a name")?;
    let before = deployments.get(name).await?;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    assert_eq!(before.data["spec"]["strategy"], rolling);
    let params = PatchParams::apply("ccm-operator").force();
    let earlier = deployments.patch(name, &params, &Patch::Apply(&deployment)).await?;
    assert_eq!(earlier.data["spec"]["strategy"], json!({"type": "Recreate"}));

    let operator = cluster.start()?;
    eventually("the strategy of this version", LIMIT, async || {
        let live = deployments.get(name).await?;
        ensure!(live.data["spec"]["strategy"] == rolling, "{:#}\n{}", live.data["spec"]["strategy"], operator.log());
        ensure!(live.metadata.uid == before.metadata.uid, "it was recreated");
        Ok(Some(()))
    })
    .await
}
