//! Which cluster this is: OpenShift by its objects, any other Kubernetes although it serves OpenShift's kinds.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    diff,
    lab::{LIMIT, Lab, binary, describe},
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        kubernetes::{Kubernetes, OWN_NAMESPACE, installation},
        lab::repository,
        objects,
        openshift::{self, Cluster},
        operator::Operator,
    },
};

/// The line of an operator that has found `CloudControllerManager`s.
const NOT_OPENSHIFT: &str = "this cluster is not OpenShift: acting on CloudControllerManagers";

/// Starts an operator without flags about the cluster.
fn start_untold(cluster: &Kubernetes) -> Result<Operator> {
    let own = format!("--operator-namespace={OWN_NAMESPACE}");
    let arguments =
        ["operator", "--controllers=operator", &own, "--health-addr=127.0.0.1:0", "--metrics-bind-address=0"];
    Operator::start(binary(), &cluster.kubeconfig, &arguments, &[])
}

async fn logs(operator: &Operator, line: &str) -> Result<()> {
    eventually(line, LIMIT, async || {
        let log = operator.log();
        ensure!(log.contains(line), "{log}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_only_serves_openshifts_kinds_is_not_openshift() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    openshift::install_crds(&cluster.client).await?;

    // Nothing is decided before there is an object of either.
    let operator = start_untold(&cluster)?;
    logs(&operator, "has neither infrastructures.config.openshift.io cluster").await?;
    assert!(!operator.log().contains(NOT_OPENSHIFT), "{}", operator.log());
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    cluster.ready(&operator, "cluster").await?;
    assert!(operator.log().contains(NOT_OPENSHIFT), "{}", operator.log());
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // An operator with --namespaces requests none of OpenShift's objects, even if they exist.
    openshift::seed(&cluster.client, &Cluster::default()).await?;
    let mark = cluster.mark().await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    cluster.ready(&operator, "cluster").await?;
    let asked = cluster.requests(mark).await?;
    let asked: Vec<_> = asked.iter().filter(|one| one.group.ends_with("openshift.io")).map(describe).collect();
    assert_eq!(asked, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn openshift_is_known_once_it_has_an_object_whatever_else_is_served() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let mut lab = Lab::on(plane.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.finish_workloads();
    // The definition is there by accident, and neither kind has an object yet.
    let definition = installation(&["--providers", "aws"])?;
    let definition = definition.into_iter().find(|object| object["kind"] == "CustomResourceDefinition");
    objects::apply(&lab.client, definition.context("a definition")?).await?;
    openshift::reset(&lab.client).await?;
    let operator = lab.start()?;
    logs(&operator, "has neither infrastructures.config.openshift.io cluster").await?;
    openshift::seed(&lab.client, &Cluster::default()).await?;
    lab.converged(&operator).await?;
    assert!(!operator.log().contains(NOT_OPENSHIFT), "{}", operator.log());
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // Its ClusterOperator is enough.
    let infrastructure =
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"}});
    objects::delete(&lab.client, &infrastructure).await?;
    let mark = lab.mark().await?;
    let operator = lab.start()?;
    logs(&operator, "this cluster has no Infrastructure object").await?;
    let ccms: Vec<_> = lab.requests(mark).await?.into_iter().filter(|one| one.group == "ccm-operator.dev").collect();
    assert!(ccms.is_empty(), "{ccms:#?}");
    openshift::seed(&lab.client, &Cluster::default()).await?;
    lab.converged(&operator).await?;

    // `nodes` decides like the operator: a CloudControllerManager that is left over has no effect.
    for object in [
        json!({"apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager", "metadata": {"name": "left"},
            "spec": {"provider": "hcloud"}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}, "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]}}),
    ] {
        objects::apply(&lab.client, object).await?;
    }
    let output = diff::run(&lab.plane.kubeconfig_admin(), &["nodes", "worker", "-o", "json"]).await?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["nodes"][0]["provider"], "aws", "{report:#}");
    Ok(())
}
