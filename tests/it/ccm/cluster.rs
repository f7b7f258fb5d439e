//! A cluster of one program: a control plane, Nodes as kubelets register them, and what the program has made of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease as LeaseObject,
    core::v1::{Event, Node},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::NAME;
use crate::{
    lab::{LIMIT, ignore_absent, repository},
    support::{
        audit::{Mark, Request},
        eventually, objects,
        pool::{self, Lease},
    },
};

/// The namespace of the accounts of the programs.
pub(super) const NAMESPACE: &str = "kube-system";

/// A control plane without Nodes.
pub(super) struct Cluster {
    pub(super) plane: Lease,
    pub(super) client: Client,
}

/// What a program has made of a Node. Every difference between two of them is listed in the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// `None` once it is deleted.
    pub(super) node: Option<Shown>,
    /// Each Event on the Node once: its type, reason, component and message.
    pub(super) events: BTreeSet<String>,
    /// The kinds of requests that changed the Node.
    pub(super) writes: BTreeSet<String>,
    /// The kinds of those that went on when nothing was left to do.
    pub(super) writes_at_rest: BTreeSet<String>,
}

/// What a Node shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) provider_id: String,
    /// As `kubectl` writes them: key, value and effect.
    pub(super) taints: BTreeSet<String>,
    pub(super) labels: BTreeMap<String, String>,
    /// The type and the address, in their order.
    pub(super) addresses: Vec<String>,
}

impl Cluster {
    /// A control plane of the pool, without the Nodes, Events and leases of tests before.
    pub(super) async fn new() -> Result<Self> {
        let plane = pool::lease().await?;
        let client = plane.client()?;
        let cluster = Self { plane, client };
        cluster.clear().await?;
        Ok(cluster)
    }

    /// Deletes all Nodes, and the Events and leases that there are.
    pub(super) async fn clear(&self) -> Result<()> {
        let (params, all) = (DeleteParams::default(), ListParams::default());
        self.nodes().delete_collection(&params, &all).await?;
        self.events().delete_collection(&params, &all).await?;
        let leases: Api<LeaseObject> = Api::namespaced(self.client.clone(), NAMESPACE);
        ignore_absent(leases.delete("cloud-controller-manager", &params).await)
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn events(&self) -> Api<Event> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A kubeconfig of the account of our program: it has the permissions of `assets/docker/`, and may delete Nodes, which the operator
    /// permits by name, and read the metrics for this test. `make rbac` prints the permissions that are not used.
    pub(super) async fn our_account(&self) -> Result<PathBuf> {
        for object in objects::read_yaml(&repository().join("assets/docker/kubernetes/rbac.yaml"))? {
            objects::apply(&self.client, object).await?;
        }
        let name = "ccm-test-ours";
        let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
        let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
        role["rules"] = json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]);
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]);
        objects::apply(&self.client, role).await?;
        objects::apply(&self.client, binding).await?;
        self.plane.service_account_kubeconfig(NAMESPACE, NAME).await
    }

    /// A kubeconfig of a new account that may do everything.
    pub(super) async fn account(&self, name: &str) -> Result<PathBuf> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE},
        });
        objects::apply(&self.client, account).await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("ccm-test-{name}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        });
        objects::apply(&self.client, binding).await?;
        self.plane.service_account_kubeconfig(NAMESPACE, name).await
    }

    /// Registers a Node.
    pub(super) async fn register(&self, node: &Value) -> Result<()> {
        objects::create_as(&self.client, "kubelet", node.clone()).await.map(drop)
    }

    /// Reports the status of a Node as its kubelet does for the nth time, with another status of `Ready` if one is given.
    pub(super) async fn report(&self, node: &str, beat: u32, ready: Option<&str>) -> Result<()> {
        let time = format!("2026-11-28T09:00:{beat:02}Z");
        let beat = json!({"type": "PIDPressure", "status": "False", "lastHeartbeatTime": time});
        let mut conditions = vec![beat];
        conditions.extend(ready.map(super::cases::ready));
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        ignore_absent(self.nodes().patch_status(node, &PatchParams::default(), &patch).await)
    }

    /// The Node, if it exists.
    pub(super) async fn shown(&self, name: &str) -> Result<Option<Shown>> {
        self.nodes().get_opt(name).await?.map(|node| Shown::of(&node)).transpose()
    }

    /// Waits until a Node is as wanted, or is gone.
    pub(super) async fn until(&self, node: &str, what: &str, is: impl Fn(Option<&Shown>) -> bool) -> Result<()> {
        eventually(&format!("{node}: {what}"), LIMIT, async || {
            let shown = self.shown(node).await?;
            ensure!(is(shown.as_ref()), "{shown:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until a Node has an Event of this reason.
    pub(super) async fn has_event(&self, node: &str, reason: &str) -> Result<()> {
        eventually(&format!("the Event {reason} on {node}"), LIMIT, async || {
            let events = self.events_by_node().await?.remove(node).unwrap_or_default();
            ensure!(events.iter().any(|event| event.split(' ').nth(1) == Some(reason)), "{events:?}");
            Ok(Some(()))
        })
        .await
    }

    /// The Events on Nodes.
    pub(super) async fn events_by_node(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let mut by_node = BTreeMap::<_, BTreeSet<_>>::new();
        for event in self.events().list(&ListParams::default()).await? {
            let text = |text: Option<String>| text.unwrap_or_default();
            let component = event.source.and_then(|source| source.component).or(event.reporting_component);
            let (kind, reason) = (text(event.type_), text(event.reason));
            let message = format!("{kind} {reason} {}: {}", text(component), text(event.message));
            if event.involved_object.kind.as_deref() == Some("Node") {
                by_node.entry(text(event.involved_object.name)).or_default().insert(message);
            }
        }
        Ok(by_node)
    }

    /// The requests of an account since a point in the audit log.
    pub(super) async fn requests(&self, since: Mark, account: &str) -> Result<Vec<Request>> {
        self.plane.audit().of_account(&self.client, since, (NAMESPACE, account)).await
    }

    /// The end of the audit log.
    pub(super) async fn mark(&self) -> Result<Mark> {
        self.plane.audit().mark_after(&self.client).await
    }
}

impl Shown {
    fn of(node: &Node) -> Result<Self> {
        let (spec, status) = (node.spec.clone().context("spec")?, node.status.clone().context("status")?);
        let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| {
            let value =
                taint.value.filter(|value| !value.is_empty()).map_or_else(String::new, |value| format!("={value}"));
            format!("{}{value}:{}", taint.key, taint.effect)
        });
        let addresses = status.addresses.unwrap_or_default().into_iter();
        Ok(Self {
            provider_id: spec.provider_id.unwrap_or_default(),
            taints: taints.collect(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            addresses: addresses.map(|address| format!("{} {}", address.type_, address.address)).collect(),
        })
    }

    /// Whether it has a taint of this key.
    pub(super) fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.split([':', '=']).next() == Some(key))
    }
}

/// The kinds of requests that changed a Node, by the Node.
pub(super) fn writes(requests: &[Request]) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_node = BTreeMap::<_, BTreeSet<_>>::new();
    for request in requests.iter().filter(|request| request.resource == "nodes" && request.counts_as_write()) {
        by_node.entry(request.name.clone()).or_default().insert(kind_of(request));
    }
    by_node
}

/// The verb and the resource.
pub(super) fn kind_of(request: &Request) -> String {
    let slash = if request.subresource.is_empty() { "" } else { "/" };
    let resource = if request.resource.is_empty() { "paths" } else { &request.resource };
    format!("{} {resource}{slash}{}", request.verb, request.subresource)
}
