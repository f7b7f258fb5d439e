//! Changes of a running cloud-controller-manager: none removes its last pod, and no label of others makes it lose its objects.

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cluster::request,
    object::{KINDS, NODE},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, message},
    support::{audit::Request, eventually, kubernetes::Kubernetes, operator::Operator},
};

const CCM: &str = "hcloud-cloud-controller-manager";

fn api(cluster: &Kubernetes, kind: &str) -> Api<DynamicObject> {
    let kind = KINDS.iter().find(|known| known.kind == kind).unwrap();
    request::api(&cluster.client, kind, "kube-system")
}

async fn installed(provider: &str) -> Result<(Kubernetes, Operator)> {
    let cluster = Kubernetes::new("hcloud,aws").await?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    let operator = cluster.start()?;
    let mut spec = json!({"provider": provider});
    if provider == "hcloud" {
        spec["credentials"] = json!({"secretRef": {"name": "hcloud"}});
    }
    cluster.create("cluster", spec).await?;
    cluster.ready(&operator, "cluster").await?;
    Ok((cluster, operator))
}

/// The generation of a workload: it grows with each change of what should run.
async fn generation(cluster: &Kubernetes, kind: &str, name: &str) -> Result<i64> {
    api(cluster, kind).get(name).await?.metadata.generation.context("a generation")
}

#[tokio::test]
async fn a_single_pod_does_not_end_for_a_version_that_nobody_knows() -> Result<()> {
    let (cluster, operator) = installed("hcloud").await?;
    let before = generation(&cluster, "Deployment", CCM).await?;
    // Nor does it by way of a pause.
    let refused = async |spec: Value| {
        cluster.patch("cluster", json!({"spec": spec})).await?;
        cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await
    };
    cluster.patch("cluster", json!({"spec": {"management": "Paused"}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=Unknown"]).await?;
    refused(json!({"image": {"version": "1.35.0"}})).await?;
    refused(json!({"logging": {"verbosity": 4}})).await?;
    refused(json!({"management": "Managed"})).await?;
    let live = refused(json!({"logging": {"verbosity": 5}})).await?;
    let why = message(&live, "ConfigurationValid");
    assert!(why.contains("did you mean v1.35.0") && why.contains("ccm-operator.dev/skip-preflight: version"), "{why}");
    assert_eq!(generation(&cluster, "Deployment", CCM).await?, before, "something was changed");

    // What runs is kept as it was, by the plan before.
    let drift = Patch::Merge(json!({"spec": {"replicas": 3}}));
    api(&cluster, "Deployment").patch(CCM, &PatchParams::default(), &drift).await?;
    eventually("the repair", LIMIT, async || {
        let live = api(&cluster, "Deployment").get(CCM).await?;
        ensure!(live.data["spec"]["replicas"] == 1, "{}", live.data["spec"]["replicas"]);
        Ok(Some(()))
    })
    .await?;
    // It is meant; and what runs already is no change, also for another process.
    cluster
        .patch("cluster", json!({"metadata": {"annotations": {"ccm-operator.dev/skip-preflight": "version"}}}))
        .await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "VersionSupported=False"]).await?;
    cluster.patch("cluster", json!({"metadata": {"annotations": {"ccm-operator.dev/skip-preflight": null}}})).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    cluster.ready(&operator, "cluster").await.map(drop)
}

#[tokio::test]
async fn pods_do_not_end_for_a_selector_that_no_node_has() -> Result<()> {
    let (cluster, operator) = installed("aws").await?;
    let ccm = "aws-cloud-controller-manager";
    let before = generation(&cluster, "DaemonSet", ccm).await?;
    cluster.patch("cluster", json!({"spec": {"placement": {"nodeSelector": {"disk": "fast"}}}})).await?;
    let live = cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await?;
    let why = message(&live, "ConfigurationValid");
    assert!(why.contains("spec.placement.nodeSelector: no node has these labels"), "{why}");
    assert_eq!(generation(&cluster, "DaemonSet", ccm).await?, before, "something was changed");
    // A process that starts now changes nothing either.
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let mark = cluster.mark().await?;
    let operator = cluster.start()?;
    eventually("the refusal", LIMIT, async || {
        ensure!(operator.log().contains("no node has these labels"), "{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    let writes: Vec<_> = cluster.requests(mark).await?.into_iter().filter(Request::counts_as_write).collect();
    assert!(writes.iter().all(|one| one.name != ccm), "{writes:#?}");
    // Once a node has them it is done.
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &NODE, "");
    let label = Patch::Merge(json!({"metadata": {"labels": {"disk": "fast"}}}));
    nodes.patch("control-plane", &PatchParams::default(), &label).await?;
    cluster.ready(&operator, "cluster").await?;
    let live = api(&cluster, "DaemonSet").get(ccm).await?;
    assert_eq!(live.data["spec"]["template"]["spec"]["nodeSelector"]["disk"], "fast");

    // Where a change is refused, what somebody deletes comes back as it was; if that is not known any more, as it is asked for.
    let refused = ["ConfigurationValid=False", "Stalled=True"];
    cluster.patch("cluster", json!({"spec": {"placement": {"nodeSelector": {"disk": "slow"}}}})).await?;
    cluster.conditions(&operator, "cluster", &refused).await?;
    comes_back(&cluster, ccm, "fast").await?;
    cluster.conditions(&operator, "cluster", &refused).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    eventually("the refusal", LIMIT, async || {
        ensure!(operator.log().contains("no node has these labels"), "{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    comes_back(&cluster, ccm, "slow").await?;
    cluster.conditions(&operator, "cluster", &["ConfigurationValid=True", "Stalled=False"]).await.map(drop)
}

/// Deletes a DaemonSet, and waits until it exists again with this value of the label `disk` in its selector.
async fn comes_back(cluster: &Kubernetes, name: &str, disk: &str) -> Result<()> {
    let daemon_sets = api(cluster, "DaemonSet");
    let before = daemon_sets.get(name).await?.metadata.uid;
    daemon_sets.delete(name, &DeleteParams::default()).await?;
    eventually("the DaemonSet", LIMIT, async || {
        let Some(live) = daemon_sets.get_opt(name).await?.filter(|live| live.metadata.uid != before) else {
            return Ok(None);
        };
        let selector = &live.data["spec"]["template"]["spec"]["nodeSelector"];
        ensure!(selector["disk"] == disk, "{selector}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn an_object_whose_label_others_have_changed_stays() -> Result<()> {
    let (cluster, operator) = installed("hcloud").await?;
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/instance": value}}}));
    let nodes_only = json!({"service": "Disabled"});
    cluster.create("second", json!({"provider": "aws", "controllers": nodes_only, "ports": {"secure": 10268}})).await?;
    cluster.ready(&operator, "second").await?;
    cluster.patch("cluster", json!({"spec": {"management": "Paused"}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=Unknown"]).await?;
    let uid = api(&cluster, "Deployment").get(CCM).await?.metadata.uid;
    // The name of one that exists, and that is rid of what it should not have.
    api(&cluster, "Deployment").patch(CCM, &PatchParams::default(), &label(json!("second"))).await?;
    cluster.patch("second", json!({"spec": {"controllers": {"cloudNodeLifecycle": "Disabled"}}})).await?;
    cluster.ready(&operator, "second").await?;
    let live = api(&cluster, "Deployment").get(CCM).await?;
    assert_eq!((live.metadata.uid, live.metadata.deletion_timestamp), (uid.clone(), None), "{}", operator.log());
    // As Helm and Argo CD do it: the name of their release.
    api(&cluster, "Deployment").patch(CCM, &PatchParams::default(), &label(json!("release"))).await?;
    // Something that shows that the operator has seen it: the change of another object.
    cluster.create("other", json!({"provider": "nobody"})).await?;
    cluster.conditions(&operator, "other", &["ConfigurationValid=False"]).await?;
    // A process that starts with a bad input keeps it, too.
    cluster
        .patch("cluster", json!({"spec": {"management": "Managed", "credentials": {"secretRef": {"name": "none"}}}}))
        .await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.conditions(&operator, "cluster", &["CredentialsFound=False"]).await?;
    let live = api(&cluster, "Deployment").get(CCM).await?;
    assert_eq!((live.metadata.uid, live.metadata.deletion_timestamp), (uid.clone(), None), "{}", operator.log());
    // With good inputs the label is repaired.
    cluster.patch("cluster", json!({"spec": {"credentials": {"secretRef": {"name": "hcloud"}}}})).await?;
    eventually("the label", LIMIT, async || {
        let live = api(&cluster, "Deployment").get(CCM).await?;
        let labels = live.metadata.labels.unwrap_or_default();
        ensure!(labels["app.kubernetes.io/instance"] == "cluster" && live.metadata.uid == uid, "{labels:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_workload_that_was_deleted_while_the_operator_was_down_is_no_first_installation() -> Result<()> {
    let (cluster, operator) = installed("hcloud").await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    api(&cluster, "Deployment").delete(CCM, &DeleteParams::default()).await?;
    // A check of a first installation would refuse this: an image for another architecture.
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &NODE, "");
    let other = Patch::Merge(json!({"status": {"nodeInfo": {"architecture": "s390x"}}}));
    nodes.patch_status("control-plane", &PatchParams::default(), &other).await?;
    let _operator = cluster.start()?;
    eventually("the workload", LIMIT, async || Ok(api(&cluster, "Deployment").get_opt(CCM).await?)).await.map(drop)
}
