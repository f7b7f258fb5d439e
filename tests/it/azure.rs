//! Azure's real cloud-controller-manager and node manager, run as the operator has installed them for a `CloudControllerManager`: with
//! the arguments, the files and the permissions that they are given, as far as they get without a cloud.
//!
//! The cloud-controller-manager leads, and reads its configuration; before its controllers start it asks Azure for the zones of the
//! subscription. The node manager finds its node, and stops at the metadata service of the machine.

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Node, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, can, describe},
    pod::{self, Container, Image},
    support::{
        artifacts,
        audit::{self, Request},
        eventually,
        kubernetes::Kubernetes,
        scrape::free_port,
    },
};

const CCM: &str = "azure-cloud-controller-manager";
const NODE_MANAGER: &str = "azure-cloud-node-manager";
const PASSWORD: &str = "s3cret";
/// The node of the cluster.
const NODE: &str = "control-plane";

async fn fixture() -> Result<Kubernetes> {
    let cluster = Kubernetes::new("azure").await?;
    let config = json!({
        "cloud": "AzurePublicCloud", "tenantId": "lab", "subscriptionId": "lab", "aadClientId": "lab", "aadClientSecret": PASSWORD,
        "resourceGroup": "lab", "location": "westeurope", "vmType": "standard", "loadBalancerSku": "standard",
    });
    cluster.put_secret("azure", json!({"azure.json": config.to_string()})).await?;
    let spec = json!({
        "provider": "azure",
        "cloudConfig": {"secretRef": {"name": "azure", "key": "azure.json"}},
        "placement": {"apiServer": {"host": "127.0.0.1", "port": cluster.plane.port()}},
        "ports": {"secure": free_port()?},
    });
    let operator = cluster.start()?;
    cluster.create("cluster", spec).await?;
    cluster.ready(&operator, "cluster").await?;
    Ok(cluster)
}

/// Starts the container of a workload.
async fn start(cluster: &Kubernetes, kind: &str, name: &str) -> Result<Container> {
    let kind = KINDS.iter().find(|one| one.kind == kind).context("a kind")?;
    let workload = request::api(&cluster.client, kind, "kube-system").get(name).await?;
    let program = artifacts::cloud_controller_managers().await?.join(name);
    let image = Image { program, environment: Vec::new(), node: NODE };
    Container::spawn(cluster, &serde_json::to_value(workload)?, &image).await
}

/// The requests of an account that were answered, each as `VERB RESOURCE`; an error if one was refused.
async fn answered(cluster: &Kubernetes, account: &str) -> Result<Vec<String>> {
    cluster.mark().await?;
    let requests = audit::by_user(cluster.plane.audit().all()?, &audit::account("kube-system", account));
    let refused: Vec<_> = requests.iter().filter(|one| one.code == 403).map(describe).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    let words = |Request { verb, resource, .. }: &Request| format!("{verb} {resource}");
    Ok(requests.iter().filter(|one| one.code < 400).map(words).collect())
}

/// Waits until an account has had answers to these.
async fn asks(cluster: &Kubernetes, container: &Container, account: &str, wanted: &[&str]) -> Result<()> {
    let asked = eventually("the requests", LIMIT, async || {
        let answered = answered(cluster, account).await?;
        let missing: Vec<_> = wanted.iter().filter(|one| !answered.iter().any(|other| other == *one)).collect();
        ensure!(missing.is_empty(), "{missing:?} of {answered:?}");
        Ok(Some(()))
    });
    asked.await.with_context(|| container.log())
}

#[tokio::test]
async fn the_programs_of_azure_start_as_they_are_installed() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let cluster = fixture().await?;
    let ccm = start(&cluster, "Deployment", CCM).await?;
    asks(&cluster, &ccm, CCM, &["watch configmaps", "create leases", "update leases"]).await?;
    let waited = eventually("the first question to Azure", LIMIT, async || {
        let log = ccm.log();
        let words = "\"starting to fetch all available zones for the subscription\" logger=\"syncRegionZonesMap\" subscriptionID=\"lab\"";
        ensure!(log.contains(words), "{log}");
        Ok(Some(log))
    });
    let log = waited.await?;
    assert!(!log.contains(PASSWORD), "{log}");
    ccm.stop().await?;

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let taint =
        json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    let patch = Patch::Merge(json!({"spec": {"taints": taint}}));
    nodes.patch(NODE, &PatchParams::default(), &patch).await?;
    let node_manager = start(&cluster, "DaemonSet", NODE_MANAGER).await?;
    asks(&cluster, &node_manager, NODE_MANAGER, &["watch nodes", "get nodes"]).await?;
    assert!(node_manager.log().contains("Initializing node with cloud provider"), "{}", node_manager.log());
    node_manager.stop().await
}

/// The Node API with a token of the node manager that is bound to a node, or to nothing.
async fn node_manager_on(cluster: &Kubernetes, node: Option<&Node>) -> Result<Api<Node>> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "kube-system");
    let bound_object_ref = node.map(|node| BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
    });
    let spec = TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(NODE_MANAGER, &PostParams::default(), &request).await?;
    let mut config = cluster.plane.config()?;
    config.auth_info.token = Some(answer.status.context("a token")?.token.into());
    Ok(Api::all(Client::try_from(config)?))
}

fn refused(result: kube::Result<Node>, message: &str) -> Result<()> {
    match result {
        Err(error) if error.to_string().contains(message) => Ok(()),
        other => bail!("{other:?}"),
    }
}

#[tokio::test]
async fn a_node_manager_updates_its_own_node_and_its_status_and_no_other() -> Result<()> {
    let cluster = fixture().await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let other: Node = serde_json::from_value(json!({"metadata": {"name": "other"}}))?;
    nodes.create(&PostParams::default(), &other).await?;
    let own = node_manager_on(&cluster, Some(&nodes.get(NODE).await?)).await?;
    let unbound = node_manager_on(&cluster, None).await?;
    let mut tries = 0;
    // A policy is in force a moment after it was written.
    let waited = eventually("the refusal of another node", LIMIT, async || {
        tries += 1;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"test": format!("try-{tries}")}}}));
        let result = own.patch("other", &PatchParams::default(), &patch).await;
        refused(result, "the node manager of node control-plane may not update node other").map(Some)
    });
    waited.await?;
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"test": value}}}));
    let status = Patch::Merge(json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.5"}]}}));
    own.patch(NODE, &PatchParams::default(), &label("own")).await?;
    own.patch_status(NODE, &PatchParams::default(), &status).await?;
    refused(own.patch_status("other", &PatchParams::default(), &status).await, "may not update node other")?;
    refused(
        unbound.patch(NODE, &PatchParams::default(), &label("unbound")).await,
        "does not say on which node it runs",
    )?;
    nodes.patch("other", &PatchParams::default(), &label("admin")).await.context("somebody else")?;
    let found: Value = serde_json::to_value(nodes.get("other").await?)?;
    assert_eq!(found["metadata"]["labels"]["test"], "admin");
    Ok(())
}
