//! What the status of a `CloudControllerManager` says where little is known: in each state what is true then.

use anyhow::Result;
use ccm_operator::cluster::request;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::{lab::LIMIT, support::kubernetes::Kubernetes};

#[tokio::test]
async fn a_start_where_the_control_plane_is_elsewhere_keeps_the_version_until_many_answers_differ() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &ccm_operator::object::NODE, "");
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": null}}});
    nodes.patch("control-plane", &PatchParams::default(), &Patch::Merge(label)).await?;
    let operator = cluster.start()?;
    let pool = json!({"nodeSelector": {"example.com/pool": "system"}});
    cluster.create("cluster", json!({"provider": "aws", "placement": pool})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    let server = cluster.client.apiserver_version().await?;
    assert_eq!(
        live["status"]["cluster"]["kubernetes"],
        format!("{}.{}", server.major, server.minor),
        "it counts at once"
    );
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // Another API server has answered the process before.
    let status = Patch::Merge(json!({"status": {"cluster": {"kubernetes": "1.34"}}}));
    cluster.managers().patch_status("cluster", &PatchParams::default(), &status).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    assert_eq!(live["status"]["cluster"]["kubernetes"], "1.34");
    assert!(live["status"]["provider"]["version"].as_str().is_some_and(|tag| tag.starts_with("v1.34.")), "{live:#}");
    Ok(())
}
