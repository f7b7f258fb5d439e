//! `ccm-operator operator` on a real control plane.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::support::{
    audit::{self, Mark, Request},
    control_plane::{self, ControlPlane},
    eventually, kubelet, objects,
    objects::Workloads,
    openshift::{self, Cluster},
    operator::Operator,
};

const OWN_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";
const NAMESPACE: &str = "openshift-cloud-controller-manager";
const SERVICE_ACCOUNT: &str = "cluster-cloud-controller-manager";
const USER: &str = "system:serviceaccount:openshift-cloud-controller-manager-operator:cluster-cloud-controller-manager";
const VERSION: &str = "4.99.0-lab";
const LIMIT: Duration = Duration::from_secs(20);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ccm-operator"))
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test]
async fn smoke() -> Result<()> {
    let plane = control_plane::shared().await?;
    let _guard = control_plane::exclusive().await;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    openshift::reset(&client).await?;
    openshift::seed(&client, &Cluster::default()).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let kubeconfig = plane.service_account_kubeconfig(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    tokio::spawn(kubelet::finish_workloads(client.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let dir = tempfile::tempdir()?;
    let images = dir.path().join("images.json");
    std::fs::write(&images, r#"{"cloudControllerManagerAWS": "registry.example/ocp/aws-ccm:lab"}"#)?;
    let audit = plane.audit();
    let mark = audit.mark()?;
    let op = Operator::start(binary(), &kubeconfig, &["operator", "--images-json", images.to_str().unwrap(), "--health-addr", "127.0.0.1:0", "-v=4"], &[("RELEASE_VERSION", VERSION)])?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    println!("{}", op.log());
    for r in audit::by_user(audit.since(mark)?, USER) {
        println!("{} {:?} {} {} {} {} {} {}", r.at, r.code, r.verb, r.group, r.resource, r.subresource, r.namespace, r.name);
    }
    println!("rss {} cpu {}", op.rss_kib(), op.cpu_seconds());
    let ar = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator"), "clusteroperators");
    let co: DynamicObject = Api::all_with(client.clone(), &ar).get("cloud-controller-manager").await?;
    println!("{}", serde_json::to_string_pretty(&co.data["status"])?);
    Ok(())
}
