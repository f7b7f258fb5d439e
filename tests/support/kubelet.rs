//! Stand-ins for kubelets, and for the workload controllers if there is no kube-controller-manager.
//!
//! They write at once the status that real controllers write in the end. They ignore objects with the annotation [`HOLD`].

use std::{
    fmt::Debug,
    io::{self, Write},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, future::try_join, stream::BoxStream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use kube::{
    Client, Resource, ResourceExt,
    api::{Api, DeleteParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::objects::{self, FIELD_MANAGER};

/// The annotation that keeps a Pod pending, or a workload's rollout unfinished.
pub const HOLD: &str = "testplane/hold";

/// The pause before a stand-in that failed starts again.
const RESTART: Duration = Duration::from_millis(200);

/// Adds a Ready node with large resources.
pub async fn add_node(client: &Client, name: &str, labels: &[(&str, &str)]) -> Result<()> {
    let own = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": own}});
    for (key, value) in labels {
        node["metadata"]["labels"][key] = json!(value);
    }
    objects::apply(client, node.clone()).await?;
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "250"});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now(),
    });
    node["status"] = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
    objects::apply_status(client, node).await?;
    // Admission taints a new node; the lifecycle controller that would remove the taint does not run.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    Api::<Node>::all(client.clone()).patch(name, &PatchParams::default(), &untainted).await?;
    Ok(())
}

/// Adds a Ready node of the control plane.
pub async fn add_master(client: &Client, name: &str) -> Result<()> {
    add_node(client, name, &[("node-role.kubernetes.io/master", ""), ("node-role.kubernetes.io/control-plane", "")])
        .await
}

/// The kubelet of all nodes: bound Pods become Ready, deleted Pods go away. Runs until dropped.
pub async fn run(client: Client) {
    run_where(client, |_| true).await;
}

/// The same for some Pods; the kubelets of the others are silent.
pub async fn run_where(client: Client, is_on_live_node: impl Fn(&Pod) -> bool) {
    loop {
        before_restart("the kubelet", start_pods(&client, &is_on_live_node).await).await;
    }
}

/// Says why a stand-in ended, and pauses before it starts again: a stand-in that stayed away after one refused request would leave a
/// test waiting for what never comes.
async fn before_restart(stand_in: &str, ended: Result<()>) {
    if let Err(error) = ended {
        let _ = writeln!(io::stderr(), "{stand_in} of the tests starts again: {error:#}");
    }
    sleep(RESTART).await;
}

async fn start_pods(client: &Client, is_on_live_node: &impl Fn(&Pod) -> bool) -> Result<()> {
    let mut pods = touched::<Pod>(client);
    while let Some(pod) = pods.next().await {
        if !is_on_live_node(&pod) {
            continue;
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            unless_outdated(api.delete(&name, &DeleteParams::default().grace_period(0)).await)?;
        } else if is_startable(&pod) {
            unless_outdated(update_status(&api, &name, running(&pod)).await)?;
        }
    }
    Ok(())
}

/// Whether a kubelet would start a Pod.
pub fn is_startable(pod: &Pod) -> bool {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let is_pending = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    is_bound && is_pending && !is_held(pod)
}

/// The status of a running Pod.
pub fn running(pod: &Pod) -> Value {
    let now = Timestamp::now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
            "ready": true, "started": true, "state": {"running": {"startedAt": now}},
        })
    });
    json!({
        "phase": "Running",
        "startTime": now,
        "containerStatuses": containers.collect::<Vec<_>>(),
        "conditions": [condition("Initialized"), condition("ContainersReady"), condition("Ready")],
    })
}

/// For a server without kube-controller-manager: gives Deployments and `DaemonSets` the status of a finished rollout.
/// Runs until dropped.
pub async fn finish_workloads(client: Client) {
    loop {
        let ended = try_join(finish_all(&client, finished_deployment), finish_all(&client, finished_daemon_set)).await;
        before_restart("the workload controller", ended.map(drop)).await;
    }
}

/// The status of a Deployment after its rollout.
fn finished_deployment(deployment: &Deployment) -> Value {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let condition = |kind: &str, reason: &str| {
        // Not the current time: the same object must always get the same status.
        let time = &deployment.metadata.creation_timestamp;
        json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": time, "lastUpdateTime": time})
    };
    json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    })
}

/// The status of a `DaemonSet` on a cluster with one fitting node.
fn finished_daemon_set(daemon_set: &DaemonSet) -> Value {
    json!({
        "observedGeneration": daemon_set.metadata.generation,
        "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1,
        "numberReady": 1, "numberAvailable": 1, "numberMisscheduled": 0,
    })
}

/// Keeps the status of all workloads of a kind as `finished` returns it.
async fn finish_all<K>(client: &Client, finished: fn(&K) -> Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let mut workloads = touched::<K>(client);
    while let Some(workload) = workloads.next().await {
        let wanted = finished(&workload);
        // Its own write comes back as an event: without the comparison it would loop.
        if is_held(&workload) || contains(&serde_json::to_value(&workload)?["status"], &wanted) {
            continue;
        }
        let api = Api::<K>::namespaced(client.clone(), &workload.namespace().unwrap_or_default());
        unless_outdated(update_status(&api, &workload.name_any(), wanted).await)?;
    }
    Ok(())
}

/// Whether `actual` contains `wanted`. A status omits numbers that are zero.
fn contains(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (_, Value::Object(fields)) => fields.iter().all(|(name, value)| contains(&actual[name], value)),
        (Value::Array(items), Value::Array(values)) => {
            values.iter().all(|value| items.iter().any(|item| contains(item, value)))
        }
        (Value::Null, wanted) => *wanted == json!(0),
        _ => actual == wanted,
    }
}

/// All objects of a kind, and each again when it changes. A broken watch is restarted.
fn touched<K>(client: &Client) -> BoxStream<'static, K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watch = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    watch.default_backoff().touched_objects().filter_map(async |object| object.ok()).boxed()
}

fn is_held(object: &impl ResourceExt) -> bool {
    object.annotations().contains_key(HOLD)
}

/// By an update, like the real ones: it adds no managed fields where a test has wiped them.
async fn update_status<K>(api: &Api<K>, name: &str, status: Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    api.patch_status(name, &params, &Patch::Merge(json!({"status": status}))).await
}

/// Ignores that an object was deleted or changed in the meantime, because its next event follows.
fn unless_outdated<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
