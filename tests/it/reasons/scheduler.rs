//! A cloud-controller-manager that no node fits, as the real kube-scheduler sees it.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    LONG,
    fixture::{Fixture, node},
};
use crate::support::{control_plane::Options, eventually};

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn why_a_cloud_controller_manager_is_not_scheduled() -> Result<()> {
    let options = Options { controllers: true, ..Options::default() };
    // Its pods never start: there is no program.
    let fixture = Fixture::with(options, "hcloud").await?;
    let dedicated = json!([{"key": "example.com/dedicated", "value": "other", "effect": "NoSchedule"}]);
    let taints = |taints: Value| Patch::Merge(json!({"spec": {"taints": taints}}));
    fixture.nodes().patch("control-plane", &PatchParams::default(), &taints(dedicated)).await?;
    fixture.register(&node("worker")).await?;
    fixture.cluster.put_secret("hcloud", json!({"token": "s3cret"})).await?;
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    fixture.cluster.create("cluster", spec).await?;
    fixture.finds("worker", "N04", "untolerated taint", "a taint of the control plane's node").await?;

    fixture.nodes().patch("control-plane", &PatchParams::default(), &taints(json!(null))).await?;
    let pods: Api<Pod> = Api::namespaced(fixture.cluster.client.clone(), "kube-system");
    eventually("the pod to be on a node", LONG, async || {
        let pods = pods.list(&ListParams::default()).await?;
        let nodes: Vec<_> =
            pods.iter().map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())).collect();
        ensure!(nodes == [Some("control-plane")], "{nodes:?}");
        Ok(Some(()))
    })
    .await
}
