//! Pods that are being deleted and stay, and nodes that were deleted.

use super::{
    Api, Context, DeleteParams, Kubernetes, LIMIT, NAME, Patch, PatchParams, Pod, Result, Timestamp, Value, account,
    cluster, ensure, eventually, its_permissions, json, lease, node, pod, run, running, waiting, with_ccm, working,
};

/// The findings about a node.
async fn findings(cluster: &Kubernetes, node: &str) -> Result<Vec<Value>> {
    let (_, text, error) = run(&cluster.plane.kubeconfig_admin(), &[node, "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&text).with_context(|| error)?;
    Ok(report["nodes"][0]["findings"].as_array().context("findings")?.clone())
}

#[tokio::test]
async fn a_pod_that_is_stuck_in_terminating_is_named_with_its_node_and_the_cure() -> Result<()> {
    let cluster = cluster("aws").await?;
    with_ccm(&cluster).await?;
    account(&cluster, NAME, its_permissions()).await?;
    let id = json!({"providerID": "aws:///eu-west-1a/i-0"});
    node(&cluster, "control-plane", "Unknown", id.clone()).await?;
    node(&cluster, "worker", "False", waiting()).await?;
    pod(&cluster, Some("control-plane"), running()).await?;
    // There is no kubelet that confirms it.
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    pods.delete(&format!("{NAME}-x"), &DeleteParams::default()).await?;

    let stuck = async || {
        let found = findings(&cluster, "worker").await?;
        anyhow::Ok(found.into_iter().find(|one| one["id"] == "N29"))
    };
    let found = eventually("N29", LIMIT, async || {
        let found = findings(&cluster, "worker").await?;
        ensure!(found.first().is_some_and(|one| one["id"] == "N29"), "{found:#?}");
        Ok(found.into_iter().next())
    })
    .await?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    let cause = text("cause");
    assert!(
        cause.contains("pod kube-system/aws-cloud-controller-manager-x of CloudControllerManager/cluster"),
        "{cause}"
    );
    assert!(cause.contains("on node control-plane, whose kubelet does not report"), "{cause}");
    assert!(text("fix").contains("kubectl delete pod --force --grace-period=0"), "{found:#}");
    assert!(text("fix").contains("is removed from etcd with its Node"), "{found:#}");
    let (_, table, _) = run(&cluster.plane.kubeconfig_admin(), &["worker"]).await?;
    assert!(table.contains("0 of 1 are ready") && table.contains("is being deleted"), "{table}");

    // Its kubelet is dead, and its container is not: it leads.
    lease(&cluster, "control-plane_0f1b").await?;
    assert_eq!(stuck().await?, None);
    lease(&cluster, "elsewhere_0f1b").await?;
    assert!(stuck().await?.is_some());
    // The kubelet is back: the pod goes.
    node(&cluster, "control-plane", "True", id).await?;
    assert_eq!(stuck().await?, None);
    Ok(())
}

#[tokio::test]
async fn a_deleted_node_without_an_event_is_known_by_the_status_and_by_the_log() -> Result<()> {
    let (cluster, kubelet) = working().await?;
    let now = Timestamp::now();
    let says = |message: &str| {
        format!("I{}       1 node_lifecycle_controller.go:158] {message}", now.strftime("%m%d %H:%M:%S.%6f"))
    };
    let deleting = |node: &str| says(&format!("deleting node since it is no longer present in cloud provider: {node}"));
    kubelet.log(&[
        &deleting("logged"),
        &deleting("kept"),
        &says("unable to delete node \"kept\": nodes \"kept\" is forbidden: User \"x\" cannot delete resource"),
        &deleting("control-plane"),
    ]);
    let deleted = json!([{"node": "listed", "uid": "u-1", "at": now.to_string()}]);
    let deletion = json!({"phase": "Enabled", "waiting": [], "confirmed": [], "deleted": deleted});
    let status = Patch::Merge(json!({"status": {"nodeDeletion": deletion}}));
    cluster.ccms().patch_status("cluster", &PatchParams::default(), &status).await?;

    for (name, evidence) in [
        ("logged", "deleting node since it is no longer present in cloud provider: logged"),
        ("listed", "status.nodeDeletion.deleted of CloudControllerManager/cluster"),
    ] {
        let found = findings(&cluster, name).await?;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((&found[0]["id"], &found[0]["evidence"]), (&json!("N21"), &json!(evidence)));
    }
    assert_eq!(findings(&cluster, "control-plane").await?, Vec::<Value>::new());
    let admin = cluster.plane.kubeconfig_admin();
    let (code, _, error) = run(&admin, &["kept"]).await?;
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no node \"kept\""), "{error}");
    let (code, text, error) = run(&admin, &[]).await?;
    assert_eq!(code, Some(0), "a cluster becomes smaller: {text}{error}");
    assert!(text.contains("listed") && text.contains("N21 NodeDeleted"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_node_of_no_cloud_is_shown_as_one_unless_it_waits() -> Result<()> {
    let cluster = cluster("aws").await?;
    let admin = cluster.plane.kubeconfig_admin();
    with_ccm(&cluster).await?;
    let annotate = async |name: &str| {
        let nodes: Api<super::Node> = Api::all(cluster.client.clone());
        let patch = json!({"metadata": {"annotations": {"ccm-operator.dev/no-cloud": "edge"}}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    };
    node(&cluster, "edge", "True", json!({})).await?;
    node(&cluster, "foreign", "True", json!({"providerID": "k3s://foreign"})).await?;
    node(&cluster, "worker", "False", waiting()).await?;
    let state = async |name: &str| {
        let (_, text, error) = run(&admin, &[name, "-o", "json"]).await?;
        let report: Value = serde_json::from_str(&text).with_context(|| error)?;
        let found = &report["nodes"][0];
        anyhow::Ok((found["state"].clone(), found["findings"].as_array().is_some_and(Vec::is_empty)))
    };
    assert_eq!(state("foreign").await?, (json!("NotManaged"), false));
    for name in ["edge", "foreign"] {
        annotate(name).await?;
        assert_eq!(state(name).await?, (json!("NoCloud"), true), "{name}");
    }
    let (_, text, _) = run(&admin, &["edge"]).await?;
    assert!(text.contains("Initialized  no cloud\n"), "{text}");
    // Pods stay away from it until somebody takes the taint off.
    annotate("worker").await?;
    assert_eq!(state("worker").await?.0, json!("Uninitialized"));
    Ok(())
}

#[tokio::test]
#[ignore = "a node has two minutes to get what it needs: make test-reasons"]
async fn nobody_waits_for_a_node_of_no_cloud() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let nodes: Api<super::Node> = Api::all(cluster.client.clone());
    let patch = async |name: &str, patch: Value| nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let no_cloud = || json!({"metadata": {"annotations": {"ccm-operator.dev/no-cloud": ""}}});
    patch("control-plane", json!({"spec": {"providerID": "aws:///eu-west-1a/i-0"}})).await?;
    for name in ["bare", "edge"] {
        node(&cluster, name, "True", json!({})).await?;
    }
    patch("edge", no_cloud()).await?;
    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    eventually("the diagnosis", LIMIT * 5, async || {
        let status = cluster.ccms().get("cluster").await?.data["status"].clone();
        let stuck: Vec<_> = status["nodes"]["waiting"].as_array().into_iter().flatten().collect();
        ensure!(
            stuck.len() == 1 && (&stuck[0]["node"], &stuck[0]["reason"]) == (&json!("bare"), &json!("N15")),
            "{status:#}"
        );
        Ok(Some(()))
    })
    .await?;
    cluster.conditions(&operator, "cluster", &["NodesInitialized=False"]).await?;
    // The operator keeps no more of a node than it reads: this is among it.
    patch("bare", no_cloud()).await?;
    let live = cluster.conditions(&operator, "cluster", &["NodesInitialized=True"]).await?;
    assert_eq!(live["status"]["nodes"]["waiting"], json!([]));
    Ok(())
}
