//! The life of a node, with everything real but the cloud: kubelets that wait for a cloud-controller-manager, the CCM of AWS as
//! the plan installs it, instances that are stopped and terminated.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Result, ensure};
use ccm_operator::{api::CLOUD_CONTROLLER_MANAGER, cluster::request, object::KINDS};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    ResourceExt,
    api::{Api, DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{
    cloud,
    docker::owns_the_engine,
    installation::{ccm_log, install, load_images},
    kubeadm::{Blueprint, Kubeadm},
    story::Story,
    support::{
        audit, eventually,
        lab::{LIMIT, conditions},
        moto::{Cloud, Instance},
        permissions,
    },
    table::{Column, Table},
    trial,
};

/// The taint of a node that no CCM has set up.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint of a node whose instance is stopped.
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const BLUEPRINT: Blueprint =
    Blueprint { network: "ccm-operator-e2e-life", addresses: "172.30.204.0/24", workers_wait: true };
/// The pods of the CCM.
const CCM: &str = "aws-cloud-controller-manager";

#[tokio::test]
async fn a_node_is_set_up_shut_down_and_not_deleted() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let story = Story::new();
    let cloud = cloud::get().await?;
    story.chapter(
        "1. Two instances of EC2",
        "The cloud is moto, which answers as the API of AWS does. Each instance is a container with a real containerd and a \
         real kubelet, which is started with --cloud-provider=external.",
    )?;
    let run = async {
        let subnet = cloud.subnet(BLUEPRINT.addresses).await?;
        let [first, second] = ["172.30.204.10", "172.30.204.11"].map(|address| cloud.run_instance(&subnet, address));
        let instances: [Instance; 2] = tokio::try_join!(first, second)?.into();
        Ok((subnet, instances))
    };
    let (subnet, instances) = story.step("the instances run", run).await?;
    let cluster = Kubeadm::start(&BLUEPRINT, &instances, load_images);
    let cluster = story.step("kubeadm has made a cluster of them", Box::pin(cluster)).await?;
    let life = Life { story, cloud, cluster, instances };
    life.begins().await?;
    life.is_tried(&subnet.configuration()).await?;
    let lived = Box::pin(async {
        life.is_set_up(&subnet.configuration()).await?;
        life.is_shut_down().await?;
        life.is_not_deleted().await?;
        life.had_the_permissions().await
    });
    match lived.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(ccm_log(&life.cluster.machines[0]).await)),
    }
}

/// The control plane's instance and the worker's, and the cluster of them.
struct Life {
    story: Story,
    cloud: &'static Cloud,
    cluster: Kubeadm,
    instances: [Instance; 2],
}

impl Life {
    /// A kubelet registers its node, and no workload may run there.
    async fn begins(&self) -> Result<()> {
        for instance in &self.instances {
            let node = eventually("the node", LIMIT, async || self.node(instance).await.map(Some)).await?;
            ensure!(has_taint(&node, UNINITIALIZED), "{} is not tainted: {}", instance.name, taints(&node));
            ensure!(provider_id(&node).is_empty(), "{} has the provider ID {}", instance.name, provider_id(&node));
            ensure!(internal_ip(&node).is_empty(), "{} has the address {}", instance.name, internal_ip(&node));
        }
        self.show().await
    }

    /// A provider of one's own is tried out where nothing is installed, and initializes nothing.
    async fn is_tried(&self, configuration: &str) -> Result<()> {
        self.story.chapter(
            "2. A provider of one's own",
            "A folder of manifests, that of AWS under another name, is started without any controller, and removed.",
        )?;
        trial::of_a_folder(&self.story, &self.cluster, configuration).await?;
        for instance in &self.instances {
            ensure!(has_taint(&self.node(instance).await?, UNINITIALIZED), "{} was initialized", instance.name);
        }
        Ok(())
    }

    /// The CCM is installed, removes the taint, and writes what it knows of the instance.
    async fn is_set_up(&self, configuration: &str) -> Result<()> {
        self.story.chapter(
            "3. The cloud-controller-manager",
            "The operator is installed with Helm, and a CloudControllerManager asks it for AWS. It creates accounts, permissions, the \
             configuration and a DaemonSet on the control plane. Both run there in spite of the taints, without a pod network and \
             without DNS.",
        )?;
        let installed = Instant::now();
        let commands = self.story.step("it is installed", install(&self.cluster, configuration)).await?;
        let applied = installed.elapsed();
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let first = async {
            eventually("the first node", LIMIT, async || {
                let all = nodes.list(&ListParams::default()).await?;
                Ok(all.iter().any(|node| !has_taint(node, UNINITIALIZED)).then(|| installed.elapsed()))
            })
            .await
        };
        let ready = eventually("the CCM is ready", LIMIT, async || {
            let ccm = self.ccm().await?;
            ensure!(conditions(&ccm).iter().any(|one| one == "Ready=True"), "{:#}", ccm["status"]);
            ensure!(ccm["status"]["cluster"]["distribution"] == "Kubeadm", "{:#}", ccm["status"]);
            Ok(Some(installed.elapsed()))
        });
        let (first, ready) = self.story.step("it is ready", Box::pin(async { tokio::try_join!(first, ready) })).await?;
        for instance in &self.instances {
            let all_right = async || is_initialized(&self.node(instance).await?, instance).map(Some);
            eventually("the node is set up", LIMIT, all_right).await?;
        }
        let all = installed.elapsed();
        commands.iter().try_for_each(|command| self.story.command(command))?;
        self.story.figure(applied, "these commands")?;
        self.story.figure(first, "from the first command to the first node without the taint")?;
        self.story.figure(ready, "from the first command to a CCM that is ready")?;
        self.story.figure(all, "from the first command to all nodes initialized")?;

        // Only now there are addresses, which a pod network wants to know.
        self.cluster.install_pod_network().await?;
        for instance in &self.instances {
            self.until("the node is Ready", instance, |node| condition(node, "Ready") == "True").await?;
        }
        self.show().await
    }

    /// The worker's instance is stopped: nothing is scheduled to its node until it runs again.
    async fn is_shut_down(&self) -> Result<()> {
        let [plane, worker] = &self.instances;
        self.story.chapter(
            "4. The worker's instance is stopped",
            "Its kubelet falls silent, and the node becomes not ready. The CCM asks the cloud why, and taints the node.",
        )?;
        let stopped = async {
            tokio::try_join!(self.cloud.stop(worker), self.cluster.machines[1].cut_power())?;
            self.until("the node is not ready", worker, |node| condition(node, "Ready") == "Unknown").await
        };
        self.story.step("the node is not ready", stopped).await?;
        let tainted = self.until("the shutdown taint", worker, |node| has_taint(node, SHUTDOWN));
        self.story.step("the node has the shutdown taint", tainted).await?;
        let other = self.node(plane).await?;
        ensure!(!has_taint(&other, SHUTDOWN), "{}", taints(&other));
        self.show().await
    }

    /// The worker's instance is terminated: the CCM names the node, and has no permission to delete it.
    async fn is_not_deleted(&self) -> Result<()> {
        let [plane, worker] = &self.instances;
        self.story.chapter(
            "5. The worker's instance is terminated",
            "A CCM deletes such a node. This one rehearses it: it has no permission to delete nodes. What it would have deleted \
             stands in its Events.",
        )?;
        let before = self.node(worker).await?;
        self.story.step("the instance is terminated", self.cloud.terminate(worker)).await?;
        let named = eventually("the Events", LIMIT, async || {
            let events = self.events(worker).await?;
            let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
            let all = ["DeletingNode", "DeletingNodeFailed"].iter().all(|reason| reasons.contains(reason));
            ensure!(all, "{reasons:?}");
            Ok(Some(events))
        });
        let events = self.story.step("the CCM has tried", named).await?;
        let after = self.node(worker).await.context("the node is gone")?;
        ensure!(after.uid() == before.uid() && after.metadata.deletion_timestamp.is_none(), "the node was deleted");
        let listed = eventually("the status of the CloudControllerManager", LIMIT, async || {
            let gone = self.ccm().await?["status"]["nodes"]["gone"].clone();
            ensure!(gone == json!([worker.name]), "{gone}");
            Ok(Some(()))
        });
        self.story.step("the CloudControllerManager names the node", listed).await?;
        let of_others = self.events(plane).await?;
        ensure!(of_others.iter().all(|event| event.reason.as_deref() != Some("DeletingNode")), "{of_others:?}");
        let mut table = Table::new([Column::new("EVENT"), Column::wrapped("MESSAGE", 52)]);
        for event in events {
            let Event { reason, message, .. } = event;
            if reason.as_deref().is_some_and(|reason| reason.starts_with("Deleting")) {
                table.row([reason.unwrap_or_default(), message.unwrap_or_default()]);
            }
        }
        self.story.table(&table)?;
        self.show().await
    }

    /// Nobody was refused anything, but for the deletion.
    async fn had_the_permissions(&self) -> Result<()> {
        self.story.chapter(
            "6. The permissions",
            "The audit log says who asked for what. The permissions are computed from the controllers that are on.",
        )?;
        for (namespace, name) in [("ccm-operator", "ccm-operator"), ("kube-system", CCM)] {
            let requests = self.cluster.requests(&audit::account(namespace, name)).await?;
            ensure!(!requests.is_empty(), "no requests of {name}");
            let refused = requests.iter().filter(|request| request.code == 403);
            let refused: BTreeSet<_> = refused.map(|one| format!("{} {}", one.verb, one.resource)).collect();
            let expected: &[&str] = if name == CCM { &["delete nodes"] } else { &[] };
            ensure!(refused.iter().eq(expected), "{name} was refused {refused:?}");
            let (unused, granted) = permissions::unused(&self.roles(name).await?, &requests)?;
            self.story.line(&format!(
                "{name}: nothing else refused, {} of {granted} permissions used",
                granted - unused.len()
            ))?;
            if name == CCM {
                let mut table = Table::new([Column::wrapped("UNUSED RIGHT", 72)]);
                for permission in unused {
                    table.row([permission.to_string()]);
                }
                self.story.table(&table)?;
            }
        }
        Ok(())
    }

    /// The roles whose names begin so.
    async fn roles(&self, name: &str) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for kind in KINDS.iter().filter(|kind| matches!(kind.kind, "ClusterRole" | "Role")) {
            let all: Api<DynamicObject> = Api::all_with(self.cluster.client.clone(), &request::resource(kind));
            for role in all.list(&ListParams::default()).await? {
                if role.name_any().starts_with(name) {
                    found.push(serde_json::to_value(role)?);
                }
            }
        }
        Ok(found)
    }

    /// The live CloudControllerManager.
    async fn ccm(&self) -> Result<Value> {
        let all = request::api(&self.cluster.client, &CLOUD_CONTROLLER_MANAGER, "");
        Ok(serde_json::to_value(all.get("cluster").await?)?)
    }

    async fn node(&self, instance: &Instance) -> Result<Node> {
        Ok(Api::all(self.cluster.client.clone()).get(&instance.name).await?)
    }

    /// Waits for a state of the instance's node.
    async fn until(&self, what: &str, instance: &Instance, is_wanted: impl Fn(&Node) -> bool) -> Result<()> {
        eventually(what, LIMIT, async || {
            let node = self.node(instance).await?;
            ensure!(
                is_wanted(&node),
                "{}: taints {}; Ready {}",
                instance.name,
                taints(&node),
                condition(&node, "Ready")
            );
            Ok(Some(()))
        })
        .await
    }

    /// The Events of the instance's node.
    async fn events(&self, instance: &Instance) -> Result<Vec<Event>> {
        let of_node =
            ListParams::default().fields(&format!("involvedObject.kind=Node,involvedObject.name={}", instance.name));
        Ok(Api::<Event>::all(self.cluster.client.clone()).list(&of_node).await?.items)
    }

    /// Shows the nodes.
    async fn show(&self) -> Result<()> {
        let columns = ["NODE", "READY", "INSTANCE", "ADDRESS", "TAINTS"].map(|title| Column::wrapped(title, 20));
        let mut table = Table::new(columns);
        for instance in &self.instances {
            let node = self.node(instance).await?;
            // Only the ends: a terminal is narrow.
            let id = provider_id(&node).rsplit('/').next().unwrap_or_default().to_owned();
            let name = node.name_any().split('.').next().unwrap_or_default().to_owned();
            let mut taints: Vec<_> = keys(&node).map(|key| key.rsplit('/').next().unwrap_or(key)).collect();
            taints.sort_unstable();
            taints.dedup();
            let ready = condition(&node, "Ready").to_owned();
            table.row([name, ready, id, internal_ip(&node).to_owned(), taints.join(" ")]);
        }
        self.story.table(&table)
    }
}

/// Succeeds if the CCM has written all properties of the instance to its node.
pub(crate) fn is_initialized(node: &Node, instance: &Instance) -> Result<()> {
    ensure!(!has_taint(node, UNINITIALIZED), "taints {}", taints(node));
    ensure!(provider_id(node) == instance.provider_id(), "the provider ID is {}", provider_id(node));
    ensure!(internal_ip(node) == instance.address, "the address is {:?}", internal_ip(node));
    for (label, value) in Instance::labels() {
        let found = node.labels().get(label);
        ensure!(found.is_some_and(|found| found == value), "the label {label} is {found:?}, not {value}");
    }
    Ok(())
}

/// The keys of the node's taints.
fn keys(node: &Node) -> impl Iterator<Item = &str> {
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints.map(|taint| taint.key.as_str())
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    keys(node).any(|found| found == key)
}

pub(crate) fn taints(node: &Node) -> String {
    keys(node).collect::<Vec<_>>().join(", ")
}

pub(crate) fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

pub(crate) fn internal_ip(node: &Node) -> &str {
    let mut addresses = node.status.iter().filter_map(|status| status.addresses.as_ref()).flatten();
    addresses.find(|address| address.type_ == "InternalIP").map_or("", |address| &address.address)
}

pub(crate) fn condition<'a>(node: &'a Node, type_: &str) -> &'a str {
    let mut conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.find(|condition| condition.type_ == type_).map_or("", |condition| &condition.status)
}
