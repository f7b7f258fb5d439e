//! A cluster of which machines die, and the pods of its cloud-controller-manager.

use std::{collections::BTreeMap, pin::pin};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{api::CLOUD_CONTROLLER_MANAGER, cluster::request, object::KINDS};
use futures::TryStreamExt;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ContainerStatus, Node, Pod, Secret},
    },
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};

use super::{ACME, LONG};
use crate::{
    installation::{ccm_image, load_images},
    kubeadm::{Blueprint, Kubeadm},
    support::{
        eventually,
        lab::LIMIT,
        moto::{Cloud, Instance, Subnet},
    },
};

const NAMESPACE: &str = "kube-system";
/// The annotation of pods with the hash of what they mount.
const HASH: &str = "ccm-operator.dev/config-hash";
/// All pods of the cloud-controller-manager.
const PODS: &str = "app.kubernetes.io/instance=cluster";

/// The Deployment or the DaemonSet.
pub(super) struct Workload {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    /// The Secret whose rotation restarts its pods.
    pub(super) secret: &'static str,
    /// The number of its pods on three nodes.
    pub(super) pods: usize,
}

/// A cluster; a machine is meant by its index, and the first one never dies.
pub(super) struct Fixture {
    cloud: &'static Cloud,
    pub(super) cluster: Kubeadm,
    instances: Vec<Instance>,
    pub(super) workload: Workload,
}

impl Fixture {
    /// Machines with these addresses, all with the image of the cloud-controller-manager; only the first is a node of the control plane.
    pub(super) async fn start(
        cloud: &'static Cloud,
        blueprint: &Blueprint,
        addresses: &[&str],
        workload: Workload,
    ) -> Result<(Self, Subnet)> {
        let subnet = cloud.subnet(blueprint.addresses).await?;
        let mut instances = Vec::new();
        for address in addresses {
            instances.push(cloud.run_instance(&subnet, address).await?);
        }
        let cluster = Box::pin(Kubeadm::start(blueprint, &instances, load_images)).await?;
        let version = cluster.client.apiserver_version().await?.git_version;
        let image = ccm_image("aws", &version)?;
        let [first, others @ ..] = &cluster.machines[..] else { bail!("no machine") };
        first.load("aws", &[ACME]).await?;
        for machine in others {
            machine.load("aws", &[&image, ACME]).await?;
        }
        cluster.install_pod_network().await?;
        Ok((Self { cloud, cluster, instances, workload }, subnet))
    }

    /// Waits for the cloud-controller-manager on the first node, makes others nodes of the control plane, and waits for it there.
    pub(super) async fn begins(&self, others: &[usize]) -> Result<()> {
        let first = eventually("the first leader", LONG, async || self.leader().await).await;
        first.with_context(|| format!("{} is not started", self.workload.name))?;
        for index in others {
            self.label(*index).await?;
        }
        self.all_ready().await
    }

    /// Makes a node one of the control plane.
    pub(super) async fn label(&self, index: usize) -> Result<()> {
        let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
        self.nodes().patch(self.node(index), &PatchParams::default(), &Patch::Merge(label)).await?;
        Ok(())
    }

    /// Waits until as many pods are ready as three nodes have, all of the template, and one of them leads.
    pub(super) async fn all_ready(&self) -> Result<()> {
        eventually("all pods", LONG, async || {
            let (ready, hash) = (self.ready().await?, self.hash().await?);
            let is_whole =
                ready.len() == self.workload.pods && ready.iter().all(|pod| template(pod) == Some(hash.as_str()));
            ensure!(is_whole, "{}", describe(&self.pods().await?));
            self.leader().await
        })
        .await
        .map(drop)
    }

    pub(super) fn node(&self, index: usize) -> &str {
        &self.instances[index].name
    }

    /// Cuts the power of a machine; returns once the cluster has noticed.
    pub(super) async fn kill(&self, index: usize) -> Result<()> {
        tokio::try_join!(self.cloud.stop(&self.instances[index]), self.cluster.machines[index].cut_power())?;
        eventually("the node is not ready", LIMIT, async || {
            let node = self.nodes().get(self.node(index)).await?;
            let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            Ok(taints.any(|taint| taint.key == "node.kubernetes.io/unreachable").then_some(()))
        })
        .await
    }

    /// Deletes the node of a machine.
    pub(super) async fn forget(&self, index: usize) -> Result<()> {
        self.nodes().delete(self.node(index), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Takes a live machine away, with its node and what was on it.
    pub(super) async fn remove(&self, index: usize) -> Result<()> {
        self.kill(index).await?;
        self.forget(index).await?;
        eventually("its pods are collected", LONG, async || {
            let pods = self.pods().await?;
            ensure!(pods.iter().all(|pod| node_of(pod) != Some(self.node(index))), "{}", describe(&pods));
            Ok(Some(()))
        })
        .await
    }

    /// A machine with a pod, which may die: the leader's machine, unless it is the first one.
    pub(super) async fn victim(&self) -> Result<usize> {
        let pods = [self.leader().await?.into_iter().collect(), self.ready().await?].concat();
        let index = |pod| self.instances.iter().position(|instance| Some(instance.name.as_str()) == node_of(pod));
        pods.iter().filter_map(index).find(|index| *index > 0).with_context(|| describe(&pods))
    }

    /// The pod that leads: it is ready, on the node of the lease's holder, and was started before the holder has got the lease.
    pub(super) async fn leader(&self) -> Result<Option<Pod>> {
        let Some(lease) = self.lease().await? else { return Ok(None) };
        let spec = lease.spec.unwrap_or_default();
        let (Some(holder), Some(acquired)) = (spec.holder_identity, spec.acquire_time) else { return Ok(None) };
        let node = holder.split('_').next();
        let leads = |pod: &Pod| node_of(pod) == node && started(pod).is_some_and(|started| started <= acquired.0);
        Ok(self.ready().await?.into_iter().find(leads))
    }

    /// When the lease was last renewed.
    pub(super) async fn renewed(&self) -> Result<Timestamp> {
        let lease = self.lease().await?.and_then(|lease| lease.spec).context("no lease")?;
        Ok(lease.renew_time.context("a time")?.0)
    }

    async fn lease(&self) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        Ok(leases.get_opt("cloud-controller-manager").await?)
    }

    pub(super) async fn put_secret(&self, content: Value) -> Result<()> {
        let metadata = json!({"name": self.workload.secret, "namespace": NAMESPACE});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content});
        self.cluster.apply(&secret.to_string()).await
    }

    /// Changes the Secret; returns the hash of the new pods' template.
    pub(super) async fn rotate(&self, content: Value) -> Result<String> {
        let before = self.hash().await?;
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({"stringData": content}));
        secrets.patch(self.workload.secret, &PatchParams::default(), &patch).await?;
        eventually("the new template", LIMIT, async || {
            let now = self.hash().await?;
            Ok((now != before).then_some(now))
        })
        .await
    }

    /// Waits until the controller of the workload has seen its template.
    pub(super) async fn is_observed(&self) -> Result<()> {
        eventually("the controller of the workload", LIMIT, async || {
            let live = self.live().await?;
            Ok((live.data["status"]["observedGeneration"] == json!(live.metadata.generation)).then_some(()))
        })
        .await
    }

    async fn hash(&self) -> Result<String> {
        let annotations = self.live().await?.data["spec"]["template"]["metadata"]["annotations"].clone();
        Ok(annotations[HASH].as_str().context("a hash")?.to_owned())
    }

    async fn live(&self) -> Result<DynamicObject> {
        let kind = KINDS.iter().find(|kind| kind.kind == self.workload.kind).context("a kind")?;
        Ok(request::api(&self.cluster.client, kind, NAMESPACE).get(self.workload.name).await?)
    }

    /// Changes what the CloudControllerManager asks for.
    pub(super) async fn ask(&self, spec: Value) -> Result<()> {
        let ccms = request::api(&self.cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
        ccms.patch("cluster", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    pub(super) async fn ccm(&self) -> Result<Value> {
        let ccms = request::api(&self.cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
        Ok(serde_json::to_value(ccms.get("cluster").await?)?)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    /// The pods of the cloud-controller-manager.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        Ok(pods.list(&ListParams::default().labels(PODS)).await?.items)
    }

    /// The pods that are ready and not being deleted.
    pub(super) async fn ready(&self) -> Result<Vec<Pod>> {
        Ok(self.pods().await?.into_iter().filter(is_ready).collect())
    }

    /// Does something while pods are watched: in every state that the API server tells, one is ready. Returns the number of states.
    pub(super) async fn while_one_is_ready(&self, work: impl Future<Output = Result<()>>) -> Result<usize> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let mut events = pin!(watcher(pods, watcher::Config::default().labels(PODS)));
        let (mut known, mut states, mut is_listed) = (BTreeMap::new(), 0, false);
        let mut work = pin!(work);
        loop {
            let event = tokio::select! {
                done = &mut work, if is_listed => return done.map(|()| states),
                event = events.try_next() => event?.context("the watch has ended")?,
            };
            match event {
                Event::Init => {
                    known.clear();
                    is_listed = false;
                }
                Event::InitDone => is_listed = true,
                Event::InitApply(pod) | Event::Apply(pod) => drop(known.insert(pod.name_any(), pod)),
                Event::Delete(pod) => drop(known.remove(&pod.name_any())),
            }
            if is_listed {
                ensure!(known.values().any(is_ready), "no pod is ready: {}", describe(known.values()));
                states += 1;
            }
        }
    }
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// The hash of the template of a pod.
pub(super) fn template(pod: &Pod) -> Option<&str> {
    pod.annotations().get(HASH).map(String::as_str)
}

/// Whether a kubelet has searched for the image of a pod, and found none.
pub(super) fn has_no_image(pod: &Pod) -> bool {
    let waiting = containers(pod).filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.into_iter().any(|reason| ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"].contains(&reason))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// When its container was started.
fn started(pod: &Pod) -> Option<Timestamp> {
    Some(containers(pod).next()?.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

pub(super) fn describe<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> String {
    let pod = |pod: &Pod| {
        let is_going = pod.metadata.deletion_timestamp.is_some();
        let state = [(is_ready(pod), "ready"), (is_going, "terminating"), (has_no_image(pod), "no image")];
        let state: Vec<_> = state.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
        format!("{} on {}: {}", pod.name_any(), node_of(pod).unwrap_or("no node"), state.join(", "))
    };
    pods.into_iter().map(pod).collect::<Vec<_>>().join("; ")
}
