//! vSphere's real cloud-controller-manager, run as the operator has installed it for a `CloudControllerManager`, initializes
//! and watches nodes whose machines a simulated vCenter has: with the files, the arguments and the permissions that it is given, and
//! no others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::{
    api::core::v1::{Event, Node},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, can, describe},
    pod::{self, Container, Image},
    support::{
        artifacts,
        audit::{self, Request},
        eventually,
        kubernetes::{INSTANCE, Kubernetes, OWN_NAMESPACE, SERVICE_ACCOUNT},
        objects,
        operator::Operator,
        permissions::{self, NeededPermission},
        scrape::free_port,
    },
    vcenter::{Machine, PASSWORD, USER, VCenter},
};

const NAME: &str = "vsphere-cloud-controller-manager";
const TAINT: &str = "node.cloudprovider.kubernetes.io/";
/// The hash of what the pods mount.
const HASH: &str = "/spec/template/metadata/annotations/ccm-operator.dev~1config-hash";

/// The permissions that the cloud-controller-manager has and need not use here, each with what it is for.
const SPARE: [(&str, &str); 4] = [
    ("list nodes", "API servers before Kubernetes 1.34 do not stream lists"),
    ("list services", "load balancers, which vSphere has only with NSX-T"),
    ("patch services/status", "load balancers"),
    ("watch services", "load balancers"),
];

/// A cluster whose nodes are machines of a vCenter.
struct Fixture {
    cluster: Kubernetes,
    vcenter: VCenter,
    operator: Operator,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let (cluster, vcenter) = tokio::try_join!(Kubernetes::new("vsphere"), VCenter::start())?;
        let operator = cluster.start()?;
        let about = &vcenter.about;
        let config = json!({
            "global": {"secretName": "vsphere", "secretNamespace": "kube-system"},
            "vcenter": {"simulated": {
                "server": "127.0.0.1", "port": about.port.parse::<u16>()?, "datacenters": [about.datacenter]}},
            "labels": {"region": "k8s-region", "zone": "k8s-zone"},
        });
        for (name, key, value) in
            [("vsphere", "cloud.yaml", config.to_string()), ("vcenter-ca", "ca.pem", about.certificate.clone())]
        {
            let metadata = json!({"name": name, "namespace": "kube-system"});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: value}});
            objects::apply(&cluster.client, map).await?;
        }
        let spec = json!({
            "provider": "vsphere",
            "cloudConfig": {"configMapRef": {"name": "vsphere", "key": "cloud.yaml"}},
            "credentials": {"secretRef": {"name": "vsphere"}},
            "trustBundle": {"configMapRef": {"name": "vcenter-ca", "key": "ca.pem"}},
            "placement": {"apiServer": {"host": "127.0.0.1", "port": cluster.plane.port()}},
            "ports": {"secure": free_port()?},
            // Shorter waits than the defaults.
            "arguments": {
                "--node-monitor-period": "500ms", "--leader-elect-lease-duration": "3s",
                "--leader-elect-renew-deadline": "2s", "--leader-elect-retry-period": "500ms",
            },
        });
        let fixture = Self { cluster, vcenter, operator };
        fixture.set_password("wrong-password").await?;
        fixture.cluster.create("cluster", spec).await?;
        Ok(fixture)
    }

    async fn set_password(&self, password: &str) -> Result<()> {
        let credentials = json!({"127.0.0.1.username": USER, "127.0.0.1.password": password});
        self.cluster.put_secret("vsphere", credentials).await
    }

    /// The workload, once the operator has rolled it out.
    async fn workload(&self) -> Result<Value> {
        self.cluster.ready(&self.operator, "cluster").await?;
        let kind = KINDS.iter().find(|kind| kind.kind == "DaemonSet").context("DaemonSet")?;
        let live = request::api(&self.cluster.client, kind, "kube-system").get(NAME).await?;
        Ok(serde_json::to_value(live)?)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    /// Creates the Node of a machine, as a kubelet with `--cloud-provider=external` does.
    async fn register(&self, machine: &Machine) -> Result<()> {
        let info = json!({
            "machineID": "", "systemUUID": machine.uuid, "bootID": "", "kernelVersion": "", "osImage": "", "architecture": "amd64",
            "containerRuntimeVersion": "", "kubeletVersion": "v1.35.4", "kubeProxyVersion": "", "operatingSystem": "linux",
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.hostname},
            "spec": {"taints": [{"key": format!("{TAINT}uninitialized"), "value": "true", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": info, "conditions": [ready("True")]},
        });
        objects::create_as(&self.cluster.client, "kubelet", node).await.map(drop)
    }

    async fn set_ready(&self, machine: &Machine, status: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"conditions": [ready(status)]}}));
        self.nodes().patch_status(&machine.hostname, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a node has one of the cloud's taints, or no longer has it.
    async fn tainted(&self, ccm: &Container, machine: &Machine, taint: &str, is_tainted: bool) -> Result<()> {
        let what = format!("{} has the taint {taint}: {is_tainted}", machine.hostname);
        let waited = eventually(&what, LIMIT, async || {
            let spec = self.nodes().get(&machine.hostname).await?.spec.context("spec")?;
            let has = spec.taints.iter().flatten().any(|one| one.key == format!("{TAINT}{taint}"));
            ensure!(has == is_tainted, "{spec:?}");
            Ok(Some(()))
        });
        waited.await.with_context(|| ccm.log())
    }

    /// The Events about a node, by reason: how often each was reported.
    async fn events(&self, machine: &Machine) -> Result<BTreeMap<String, i32>> {
        let of_node = ListParams::default().fields(&format!("involvedObject.name={}", machine.hostname));
        let events = Api::<Event>::all(self.cluster.client.clone()).list(&of_node).await?;
        Ok(events.items.into_iter().filter_map(|event| Some((event.reason?, event.count.unwrap_or(1)))).collect())
    }

    /// The requests of a ServiceAccount.
    async fn requests(&self, namespace: &str, account: &str) -> Result<Vec<Request>> {
        self.cluster.mark().await?;
        Ok(audit::by_user(self.cluster.plane.audit().all()?, &audit::account(namespace, account)))
    }

    /// The permissions of the cloud-controller-manager, as `VERB RESOURCE`.
    async fn permissions(&self) -> Result<BTreeSet<String>> {
        let of_ccm = ListParams::default().labels(&format!("{INSTANCE}=cluster"));
        let mut roles = Vec::new();
        for kind in KINDS.iter().filter(|kind| ["ClusterRole", "Role"].contains(&kind.kind)) {
            let everywhere: Api<DynamicObject> = Api::all_with(self.cluster.client.clone(), &request::resource(kind));
            for role in everywhere.list(&of_ccm).await? {
                ensure!(role.data["rules"].is_array(), "no rules: {role:?}");
                roles.push(serde_json::to_value(role)?);
            }
        }
        let granted = permissions::granted(&roles)?.into_iter();
        Ok(granted.map(|NeededPermission { verb, resource, .. }| format!("{verb} {resource}")).collect())
    }
}

fn ready(status: &str) -> Value {
    let now = Timestamp::now();
    json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

/// The permission that a request needs.
fn permission(request: &Request) -> String {
    let Request { verb, resource, subresource, .. } = request;
    if subresource.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}/{subresource}") }
}

#[tokio::test]
async fn the_life_of_a_node_at_vsphere() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let program = artifacts::cloud_controller_managers().await?.join(NAME);
    let image = Image { program, environment: Vec::new(), node: "control-plane" };
    let fixture = Fixture::new().await?;
    let [one, other, third, ..] = &fixture.vcenter.about.machines[..] else { panic!("three machines") };
    fixture.register(one).await?;
    fixture.register(other).await?;

    // It gets the password from the Secret, and the password is wrong.
    let first = fixture.workload().await?;
    let ccm = Container::start(&fixture.cluster, &first, &image).await?;
    eventually("the vCenter refuses", LIMIT, async || {
        let log = ccm.log();
        // The first time it has no password yet.
        ensure!(log.matches("Login failure").count() > 1, "{log}");
        Ok(Some(()))
    })
    .await?;
    assert!(!ccm.log().contains("Credentials not found"), "{}", ccm.log());
    fixture.tainted(&ccm, one, "uninitialized", true).await?;

    // The program reads the Secret only once: the operator restarts the pods when it changes.
    fixture.set_password(PASSWORD).await?;
    let hash = |workload: &Value| workload.pointer(HASH).cloned().context("no hash");
    let second = eventually("another hash", LIMIT, async || {
        let live = fixture.workload().await?;
        ensure!(hash(&live)? != hash(&first)?, "the same hash");
        Ok(Some(live))
    })
    .await?;
    ccm.stop().await?;
    let ccm = Container::start(&fixture.cluster, &second, &image).await?;
    for machine in [one, other] {
        fixture.tainted(&ccm, machine, "uninitialized", false).await?;
        initialized(&fixture, &ccm, machine).await?;
    }
    // Who asks for metrics is judged by the API server.
    assert_eq!(ccm.get("/metrics", None).await?, 403);
    assert_eq!(ccm.get("/metrics", Some(&ccm.token)).await?, 403);
    assert_eq!(ccm.get("/metrics", Some("no-token")).await?, 401);

    off_and_on(&fixture, &ccm, one).await?;
    gone(&fixture, &ccm, other).await?;
    permissions_are_used(&fixture).await?;

    // Each controller does its work with the permissions that it has alone.
    let ccm = only(&fixture, ccm, &image, "cloudNode").await?;
    fixture.register(third).await?;
    fixture.tainted(&ccm, third, "uninitialized", false).await?;
    initialized(&fixture, &ccm, third).await?;
    let ccm = only(&fixture, ccm, &image, "cloudNodeLifecycle").await?;
    off_and_on(&fixture, &ccm, third).await?;

    // Nobody lacks a permission but the one to delete nodes.
    let deletion = format!("delete nodes {}", other.hostname);
    assert_eq!(refused(&fixture.requests("kube-system", NAME).await?), [deletion].into(), "{}", ccm.log());
    let of_operator = fixture.requests(OWN_NAMESPACE, SERVICE_ACCOUNT).await?;
    assert!(!of_operator.is_empty() && refused(&of_operator).is_empty(), "{:?}", refused(&of_operator));
    Ok(())
}

/// Runs another container, with one controller only.
async fn only(fixture: &Fixture, ccm: Container, image: &Image, controller: &str) -> Result<Container> {
    ccm.stop().await?;
    let mut controllers = json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled", "service": "Disabled"});
    controllers[controller] = if controller == "cloudNodeLifecycle" { json!("Rehearsal") } else { json!("Enabled") };
    fixture.cluster.patch("cluster", json!({"spec": {"controllers": controllers}})).await?;
    Container::start(&fixture.cluster, &fixture.workload().await?, image).await
}

/// Waits until a node shows its machine. The addresses follow the removal of the taint.
async fn initialized(fixture: &Fixture, ccm: &Container, machine: &Machine) -> Result<()> {
    let ip = &machine.address;
    let expected = json!([
        format!("vsphere://{}", machine.uuid),
        [format!("ExternalIP={ip}"), format!("Hostname={}", machine.hostname), format!("InternalIP={ip}")],
        ["region-a", "zone-1", "vsphere-vm.cpu-1.mem-0gb.os-other"],
    ]);
    let waited = eventually("the node shows its machine", LIMIT, async || {
        let node = fixture.nodes().get(&machine.hostname).await?;
        let mut addresses: Vec<_> = node
            .status
            .and_then(|status| status.addresses)
            .unwrap_or_default()
            .iter()
            .map(|one| format!("{}={}", one.type_, one.address))
            .collect();
        addresses.sort();
        let labels = node.metadata.labels.unwrap_or_default();
        let labels =
            ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"]
                .map(|label| labels.get(label));
        let found = json!([node.spec.and_then(|spec| spec.provider_id), addresses, labels]);
        ensure!(found == expected, "{found}");
        Ok(Some(()))
    });
    waited.await.with_context(|| ccm.log())
}

async fn off_and_on(fixture: &Fixture, ccm: &Container, machine: &Machine) -> Result<()> {
    fixture.vcenter.change("power-off", machine)?;
    fixture.set_ready(machine, "Unknown").await?;
    fixture.tainted(ccm, machine, "shutdown", true).await?;
    fixture.vcenter.change("power-on", machine)?;
    fixture.set_ready(machine, "True").await?;
    fixture.tainted(ccm, machine, "shutdown", false).await
}

/// A node whose machine is gone is reported again and again, and stays.
async fn gone(fixture: &Fixture, ccm: &Container, machine: &Machine) -> Result<()> {
    fixture.vcenter.change("power-off", machine)?;
    fixture.vcenter.change("destroy", machine)?;
    fixture.set_ready(machine, "Unknown").await?;
    let reported = eventually("the Events", LIMIT, async || {
        let events = fixture.events(machine).await?;
        let is_repeated = |reason: &str| events.get(reason).is_some_and(|count| *count > 1);
        ensure!(["DeletingNode", "DeletingNodeFailed"].into_iter().all(is_repeated), "{events:?}");
        Ok(Some(()))
    });
    reported.await.with_context(|| ccm.log())?;
    fixture.nodes().get(&machine.hostname).await?;
    Ok(())
}

/// Every permission that was not used has a reason.
#[expect(clippy::print_stderr, reason = "the unused permissions are reported")]
async fn permissions_are_used(fixture: &Fixture) -> Result<()> {
    let requests = fixture.requests("kube-system", NAME).await?;
    let used: BTreeSet<_> = requests.iter().filter(|one| one.code < 400).map(permission).collect();
    let granted = fixture.permissions().await?;
    let unused: BTreeSet<_> = granted.difference(&used).collect();
    eprintln!("{NAME}: {} permissions, not used: {unused:?}", granted.len());
    let needless: Vec<_> =
        unused.iter().filter(|permission| SPARE.iter().all(|(spare, _)| spare != **permission)).collect();
    assert!(needless.is_empty(), "permissions without use and reason: {needless:?}");
    let absent: Vec<_> = SPARE.iter().filter(|(spare, _)| !granted.contains(*spare)).collect();
    assert!(absent.is_empty(), "reasons for what is not granted: {absent:?}");
    Ok(())
}

fn refused(requests: &[Request]) -> BTreeSet<String> {
    requests.iter().filter(|one| one.code == 403).map(describe).collect()
}
