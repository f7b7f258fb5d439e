//! Real rollouts: kube-controller-manager and kube-scheduler at work, with stand-in nodes. The status follows them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::{
    contract::images,
    lab::{NAMESPACE, OWN_NAMESPACE, SERVICE_ACCOUNT, VERSION, binary, conditions, repository},
    support::{
        control_plane::{ControlPlane, Options},
        eventually, kubelet, objects,
        objects::Workloads,
        openshift::{self, Cluster},
        operator::Operator,
        pki,
    },
};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_status_follows_real_rollouts_of_deployment_and_daemon_set() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: true, scheduler: true }).await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    openshift::seed(&client, &Cluster::on(json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}})))
        .await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    for node in ["master-0", "master-1", "master-2"] {
        kubelet::add_master(&client, node).await?;
    }
    let kubelet = tokio::spawn(kubelet::run(client.clone()));
    // kube-controller-manager begins to work a while after its start.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("kube-controller-manager", LIMIT, async || Ok(accounts.get_opt("default").await?.map(drop))).await?;

    let resource = ccm_operator::cluster::request::resource(&ccm_operator::status::write::KIND);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let said = Arc::new(Mutex::new(Vec::new()));
    let mut events = Box::pin(api.watch(&WatchParams::default(), "0").await?);
    let notes = Arc::clone(&said);
    let watch = tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let object = serde_json::to_value(object).unwrap_or_default();
                notes.lock().expect("notes").push(conditions(&object));
            }
        }
    });

    let images_file = plane.dir().join("images.json");
    std::fs::write(&images_file, images())?;
    let kubeconfig = plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    let arguments = format!("--images-json={}", images_file.display());
    let bundle_file = plane.dir().join("tls-ca-bundle.pem");
    std::fs::write(&bundle_file, pki::authority("system")?)?;
    let bundle = format!("--system-trust-bundle={}", bundle_file.display());
    let arguments = ["operator", &arguments, &bundle, "--health-addr=127.0.0.1:0"];
    let operator = Operator::start(binary(), &kubeconfig, &arguments, &[("RELEASE_VERSION", VERSION)])?;
    let done = eventually("the rollouts", LIMIT, async || {
        let said = said.lock().expect("notes");
        let last = said.last().context("nothing was said")?;
        ensure!(last.contains(&"Available=True".into()) && last.contains(&"Progressing=False".into()), "{last:?}");
        Ok(Some(()))
    })
    .await;
    assert!(done.is_ok(), "{done:?}\n{}", operator.log());
    let said = said.lock().expect("notes").clone();
    let progressing = said.iter().position(|state| state.contains(&"Progressing=True".into()));
    let available = said.iter().position(|state| state.contains(&"Available=True".into()));
    assert!(progressing.is_some() && progressing < available, "{said:?}");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
    let running = pods.list(&kube::api::ListParams::default()).await?.items.len();
    assert_eq!(running, 5, "two replicas, and the node manager on three nodes");
    watch.abort();
    kubelet.abort();
    Ok(())
}
