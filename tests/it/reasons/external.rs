//! The real cloud-controller-manager of AWS as one that does not come with the program: with the policies that restrict external providers it
//! initializes nodes, sets routes and keeps a load balancer, and none of its requests is refused.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use ccm_operator::provider::{embedded, package};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::PatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{aws, fixture::Fixture};
use crate::{
    lab::{LIMIT, can},
    pod,
    support::{audit, eventually, objects},
    trust::with_digests,
};

/// The name of the provider.
const NAME: &str = "up";

/// The folder of AWS's provider under another name, with digests: the names of its objects change, the program and its arguments stay.
fn folder(root: &TempDir) -> Result<PathBuf> {
    let path = root.path().join(NAME);
    fs::create_dir_all(path.join("assets/kubernetes"))?;
    let aws = embedded::package("aws")?;
    for (file, bytes) in aws.files().filter(|(file, _)| file.starts_with("assets/kubernetes/")) {
        let text = std::str::from_utf8(bytes)?.replace("aws-cloud-", &format!("{NAME}-cloud-"));
        let text = text.replace(&format!("/bin/{NAME}-cloud-"), "/bin/aws-cloud-");
        fs::write(path.join(file), with_digests(&text.replace("name: aws\n", &format!("name: {NAME}\n"))))?;
    }
    Ok(path)
}

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn the_cloud_controller_manager_of_aws_does_its_work_as_an_external_provider() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let root = TempDir::new()?;
    let folder = folder(&root)?;
    let pinned = format!("--provider={}@{}", folder.display(), package::read::read(&folder)?.digest);
    let mut cloud = aws::Cloud::new(Fixture::external(NAME, "aws", &folder, &pinned).await?, 2).await?;
    let mark = cloud.fixture.cluster.mark().await?;
    cloud.create_as(NAME).await?;
    cloud.tag_route_table().await?;
    let controllers = json!({"service": "Enabled", "route": "Enabled"});
    cloud.fixture.patch(json!({"controllers": controllers, "network": {"podCIDRs": ["10.244.0.0/16"]}})).await?;
    cloud.fixture.roll_out().await?;

    for number in 0..2 {
        initialized(&cloud, number).await?;
    }
    load_balancer(&cloud).await?;

    let account = ("kube-system", "up-cloud-controller-manager");
    let requests = cloud.fixture.cluster.plane.audit().of_account(&cloud.fixture.cluster.client, mark, account).await?;
    let wrote = |resource: &str, sub: &str| {
        requests
            .iter()
            .any(|one| one.counts_as_write() && (one.resource.as_str(), one.subresource.as_str()) == (resource, sub))
    };
    assert!(wrote("nodes", "") && wrote("nodes", "status") && wrote("services", "status"), "{requests:?}");
    let refused: Vec<_> = requests.iter().filter(|one: &&audit::Request| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}\n{}", cloud.fixture.log());
    // The same account does nothing else: the policies are in force.
    cloud.fixture.is_denied("refused: of the annotations of a Node").await
}

/// A node that a kubelet has registered with its own addresses becomes one of the cloud.
async fn initialized(cloud: &aws::Cloud, number: usize) -> Result<()> {
    let (instance, subnet) = (&cloud.instances[number], format!("10.244.{number}.0/24"));
    let mut node = cloud.node(number);
    node["spec"]["podCIDR"] = json!(subnet);
    node["spec"]["podCIDRs"] = json!([subnet]);
    node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": instance.address}, {"type": "Hostname", "address": instance.name},
    ]);
    cloud.fixture.register(&node).await?;
    let waited = eventually("the node", LIMIT, async || {
        let live = serde_json::to_value(cloud.fixture.nodes().get(&instance.name).await?)?;
        let (labels, status) = (&live["metadata"]["labels"], &live["status"]);
        let has =
            |list: &Value, kind: &str| list.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == kind));
        ensure!(
            !live["spec"]["taints"].to_string().contains("uninitialized")
                && live["spec"]["providerID"] == instance.provider_id(),
            "{:#}",
            live["spec"]
        );
        ensure!(
            labels["topology.kubernetes.io/zone"].is_string() && labels["node.kubernetes.io/instance-type"].is_string(),
            "{labels:#}"
        );
        ensure!(
            status["addresses"][0]["address"] == instance.address && has(&status["addresses"], "InternalDNS"),
            "{status:#}"
        );
        ensure!(has(&status["conditions"], "NetworkUnavailable") && has(&status["conditions"], "Ready"), "{status:#}");
        Ok(Some(()))
    });
    waited.await.with_context(|| cloud.fixture.log())
}

async fn load_balancer(cloud: &aws::Cloud) -> Result<()> {
    let client = &cloud.fixture.cluster.client;
    // The subnets of moto have no way to the Internet.
    let prefix = "service.beta.kubernetes.io/aws-load-balancer";
    let annotations = json!({format!("{prefix}-internal"): "true", format!("{prefix}-type"): "nlb"});
    let metadata = json!({"name": "web", "namespace": "default", "annotations": annotations});
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    objects::apply(client, json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let waited = eventually("the load balancer", LIMIT, async || {
        let live = serde_json::to_value(services.get("web").await?)?;
        ensure!(live["status"]["loadBalancer"]["ingress"][0]["hostname"].is_string(), "{:#}", live["status"]);
        ensure!(
            live["metadata"]["finalizers"][0] == "service.kubernetes.io/load-balancer-cleanup",
            "{:#}",
            live["metadata"]
        );
        Ok(Some(()))
    });
    waited.await.with_context(|| cloud.fixture.log())?;
    // Without its load balancer the finalizer goes.
    let internal = kube::api::Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    services.patch("web", &PatchParams::default(), &internal).await?;
    let waited = eventually("the clean-up", LIMIT, async || {
        let live = services.get("web").await?;
        ensure!(live.metadata.finalizers.is_none(), "{:?}", live.metadata);
        Ok(Some(()))
    });
    waited.await.with_context(|| cloud.fixture.log())
}
