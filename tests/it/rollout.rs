//! The status follows real rollouts of kube-controller-manager and kube-scheduler, with stand-in nodes.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use serde_json::json;

use crate::{
    contract::images,
    lab::{LIMIT, Lab, NAMESPACE, cluster_operators, conditions, repository},
    support::{
        control_plane::{ControlPlane, Options},
        eventually, kubelet,
        openshift::Cluster,
    },
};

#[tokio::test]
async fn the_status_follows_real_rollouts_of_deployment_and_daemon_set() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: true, ..Options::default() }).await?;
    let cluster = Cluster::on(json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}));
    let mut lab = Lab::on(plane.into(), &cluster, &repository().join("manifests")).await?;
    lab.write_images(&images())?;
    let client = lab.client.clone();
    for node in ["master-0", "master-1", "master-2"] {
        kubelet::add_master(&client, node).await?;
    }
    lab.stand_in(kubelet::run(client.clone()));
    // kube-controller-manager begins its work a while after its start.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("kube-controller-manager", LIMIT, async || Ok(accounts.get_opt("default").await?.map(drop))).await?;

    let api = cluster_operators(&client);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await?);
    let notes = Arc::clone(&reported);
    let watch = tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let object = serde_json::to_value(object).unwrap_or_default();
                notes.lock().expect("notes").push(conditions(&object));
            }
        }
    });

    let operator = lab.start()?;
    let done = eventually("the rollouts", LIMIT, async || {
        let reported = reported.lock().expect("notes");
        let last = reported.last().context("no report")?;
        ensure!(last.contains(&"Available=True".into()) && last.contains(&"Progressing=False".into()), "{last:?}");
        Ok(Some(()))
    })
    .await;
    assert!(done.is_ok(), "{done:?}\n{}", operator.log());
    let reported = reported.lock().expect("notes").clone();
    let progressing = reported.iter().position(|state| state.contains(&"Progressing=True".into()));
    let available = reported.iter().position(|state| state.contains(&"Available=True".into()));
    assert!(progressing.is_some() && progressing < available, "{reported:?}");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
    let running = pods.list(&kube::api::ListParams::default()).await?.items.len();
    assert_eq!(running, 5, "two replicas, and the node manager on three nodes");
    watch.abort();
    Ok(())
}
