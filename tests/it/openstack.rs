//! OpenStack's real cloud-controller-manager, run as the operator has installed it for a `CloudControllerManager`, with the
//! configuration of its Secret: it initializes the node of a server that a few answers of Keystone, Nova and Neutron describe, and asks
//! to delete the node once the server is gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, ensure};
use axum::{
    Router,
    body::{self, Body},
    extract::{Request, State},
    http::{Method, Response, StatusCode},
};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    lab::{LIMIT, can, describe},
    pod::{self, Container, Image},
    support::{artifacts, audit, eventually, kubernetes::Kubernetes, objects, scrape::free_port},
};

const PROGRAM: &str = "openstack-cloud-controller-manager";
const PASSWORD: &str = "s3cret";
const SERVER: &str = "5f2c1f6a-6f0b-4a6e-9d0c-1f7f5c8f3b11";
const NODE: &str = "worker-1";

/// A cloud with one server.
struct Cloud {
    port: u16,
    is_gone: AtomicBool,
}

impl Cloud {
    async fn start() -> Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let cloud = Arc::new(Self { port: listener.local_addr()?.port(), is_gone: AtomicBool::new(false) });
        let router = Router::new().fallback(answer).with_state(cloud.clone());
        tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(cloud)
    }

    fn catalog(&self) -> Value {
        let service = |kind: &str, path: &str| {
            let url = format!("http://127.0.0.1:{}/{path}", self.port);
            json!({"type": kind, "name": kind, "endpoints": [
                {"id": kind, "interface": "public", "region": "lab", "region_id": "lab", "url": url}]})
        };
        json!([
            service("compute", "compute/v2.1/"),
            service("network", "network/"),
            service("load-balancer", "load-balancer/"),
        ])
    }

    fn servers(&self) -> Vec<Value> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Vec::new();
        }
        vec![json!({
            "id": SERVER, "name": NODE, "status": "ACTIVE", "tenant_id": "lab", "user_id": "lab", "metadata": {},
            "created": "2026-01-01T00:00:00Z", "updated": "2026-01-01T00:00:00Z",
            "flavor": {"original_name": "m1.small"}, "OS-EXT-AZ:availability_zone": "zone-1",
            "addresses": {"net": [{"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}]},
        })]
    }
}

async fn answer(State(cloud): State<Arc<Cloud>>, request: Request) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
    let (status, answer) = match (method, path.trim_end_matches('/')) {
        (Method::POST, "/v3/auth/tokens") if String::from_utf8_lossy(&body).contains(PASSWORD) => {
            let token = json!({"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": cloud.catalog()});
            (StatusCode::CREATED, json!({ "token": token }))
        }
        (Method::GET, "/compute/v2.1/servers/detail") => {
            // The name is a regular expression.
            let of_name = cloud.servers().into_iter().filter(|_| query.contains(NODE));
            (StatusCode::OK, json!({"servers": of_name.collect::<Vec<_>>()}))
        }
        (Method::GET, path) if path == format!("/compute/v2.1/servers/{SERVER}") => match cloud.servers().pop() {
            Some(server) => (StatusCode::OK, json!({ "server": server })),
            None => (StatusCode::NOT_FOUND, json!({"itemNotFound": {"code": 404, "message": "gone"}})),
        },
        // Which versions of a service there are.
        (Method::GET, path @ ("/network" | "/load-balancer")) => {
            let url = format!("http://127.0.0.1:{}{path}/v2.0/", cloud.port);
            let version = json!({"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": url}]});
            (StatusCode::OK, json!({"versions": [version]}))
        }
        (Method::GET, "/network/v2.0/ports") => {
            let fixed = json!([{"subnet_id": "lab", "ip_address": "10.0.0.5"}]);
            let port = json!({"id": "lab", "status": "ACTIVE", "device_id": SERVER, "fixed_ips": fixed});
            (StatusCode::OK, json!({"ports": [port]}))
        }
        (Method::POST, _) => (StatusCode::UNAUTHORIZED, json!({"error": {"code": 401, "message": "no"}})),
        (_, path) => (StatusCode::NOT_FOUND, json!({"error": {"code": 404, "message": path}})),
    };
    let mut response = Response::new(Body::from(answer.to_string()));
    *response.status_mut() = status;
    let headers = [("content-type", "application/json"), ("x-subject-token", "token")];
    for (name, value) in headers {
        response.headers_mut().insert(name, axum::http::HeaderValue::from_static(value));
    }
    response
}

/// Sets whether a node is ready; it has been one of the two for long.
async fn set_ready(nodes: &Api<Node>, status: &str) -> Result<()> {
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(NODE, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test]
async fn the_life_of_a_node_at_openstack() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let (cluster, cloud) = tokio::try_join!(Kubernetes::new("openstack"), Cloud::start())?;
    let operator = cluster.start()?;
    let config = |password: &str| {
        format!(
            "[Global]\nauth-url = http://127.0.0.1:{}/v3\nregion = lab\nusername = ccm\npassword = {password}\ntenant-id = lab\n\
             domain-id = default\n",
            cloud.port
        )
    };
    cluster.put_secret("openstack", json!({"cloud.conf": config(PASSWORD)})).await?;
    let spec = json!({
        "provider": "openstack",
        "cloudConfig": {"secretRef": {"name": "openstack", "key": "cloud.conf"}},
        "placement": {"apiServer": {"host": "127.0.0.1", "port": cluster.plane.port()}},
        "ports": {"secure": free_port()?},
        "arguments": {"--node-monitor-period": "500ms"},
    });
    cluster.create("cluster", spec).await?;
    cluster.ready(&operator, "cluster").await?;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]},
    });
    objects::create_as(&cluster.client, "kubelet", node).await?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    set_ready(&nodes, "True").await?;

    let kind = KINDS.iter().find(|kind| kind.kind == "DaemonSet").context("DaemonSet")?;
    let workload = request::api(&cluster.client, kind, "kube-system").get(PROGRAM).await?;
    let workload = serde_json::to_value(workload)?;
    let program = artifacts::cloud_controller_managers().await?.join(PROGRAM);
    let image = Image { program, environment: Vec::new(), node: "control-plane" };
    let ccm = Container::start(&cluster, &workload, &image).await?;

    let expected =
        json!([format!("openstack:///{SERVER}"), [], ["InternalIP=10.0.0.5"], ["lab", "zone-1", "m1.small"],]);
    let initialized = eventually("the node shows its server", LIMIT, async || {
        let Node { metadata, spec, status } = nodes.get(NODE).await?;
        let spec = spec.context("a spec")?;
        let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key);
        let taints: Vec<_> = taints.filter(|key| key.starts_with("node.cloudprovider.")).collect();
        let addresses = status.and_then(|status| status.addresses).unwrap_or_default().into_iter();
        let addresses: Vec<_> = addresses.map(|one| format!("{}={}", one.type_, one.address)).collect();
        let labels = metadata.labels.unwrap_or_default();
        let labels =
            ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"]
                .map(|label| labels.get(label));
        let found = json!([spec.provider_id, taints, addresses, labels]);
        ensure!(found == expected, "{found}");
        Ok(Some(()))
    });
    initialized.await.with_context(|| ccm.log())?;
    assert!(!ccm.log().contains(PASSWORD), "{}", ccm.log());

    // Its server is gone: it may not delete the node, and says so.
    cloud.is_gone.store(true, Ordering::Relaxed);
    set_ready(&nodes, "Unknown").await?;
    let deletion = format!("delete nodes {NODE}");
    let refused = eventually("a refused deletion", LIMIT, async || {
        cluster.mark().await?;
        let requests = audit::by_user(cluster.plane.audit().all()?, &audit::account("kube-system", PROGRAM));
        let refused: Vec<_> = requests.iter().filter(|one| one.code == 403).map(describe).collect();
        ensure!(refused.contains(&deletion), "{refused:?}");
        Ok(Some(refused))
    });
    let refused = refused.await.with_context(|| ccm.log())?;
    assert!(refused.iter().all(|one| *one == deletion), "nothing else is refused: {refused:?}");
    nodes.get(NODE).await?;
    ccm.stop().await
}
