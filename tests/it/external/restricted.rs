//! The accounts of an external provider are restricted: each attack with the account of its cloud-controller-manager
//! or of its node manager on a real API server, which roles allow and the policies do not, and what a cloud-controller-manager writes.

#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use std::collections::BTreeSet;

use anyhow::Context;

use ccm_operator::{
    api::placement::Distribution,
    facts::{ccm::Ccm, cluster::Cluster as Facts, version::Minor},
    object::{Kind, NODE, Object},
    plan::Plan,
    provider::{
        catalog::Catalog,
        external::{Pinning, ProviderRequest, read::ExternalProviders, read::ExternalSettings},
        restriction::is_restriction,
    },
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
};

use super::*;
use crate::{scaffold, support::pool::Lease};

const CCM: &str = "acme-cloud-controller-manager";
const NODE_MANAGER: &str = "acme-cloud-node-manager";
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The objects of a provider with a node manager, which `provider new` writes.
fn planned(root: &TempDir) -> Result<Vec<Object>> {
    let digest = format!("@sha256:{}", "0a".repeat(32));
    let images = ["--image=registry.example/acme/ccm", "--node-manager=registry.example/acme/cnm"];
    let [ccm, node_manager] = images.map(|image| format!("{image}:v1.2.3{digest}"));
    let written = scaffold::new(root.path(), &["acme", &ccm, &node_manager]);
    ensure!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let folder = root.path().join("acme");
    // First the policies for nodes, then those for Services.
    for prefix in ["acme.example/", "lb.acme.example/"] {
        let declared = format!("metadataPrefixes: [{prefix}]");
        edit(&folder, "assets/kubernetes/provider.yaml", "metadataPrefixes: []", &declared)?;
    }
    let digest = package::read::read(&folder)?.digest;
    let wanted = ProviderRequest { path: Some(folder), digest: Some(digest), name: None };
    let settings =
        ExternalSettings { requests: vec![Ok(wanted)], pinning: Pinning::Required, ..ExternalSettings::default() };
    let catalog: Catalog = ExternalProviders::read(embedded::catalog()?, settings).catalog();
    catalog.check()?;
    let cluster = Facts { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    let spec = serde_json::from_value(json!({"provider": "acme"}))?;
    let ccm = Ccm { name: "cluster".into(), spec, cluster, skips: Vec::new() };
    Ok(Plan::of_ccm(&catalog, &ccm)?.objects().to_vec())
}

/// A control plane with the planned objects but pods, and roles that let both accounts write all Nodes and Services: what stops them are
/// the policies.
struct Fixture {
    plane: Lease,
    admin: Client,
    /// Acts as the cloud-controller-manager.
    ccm: Client,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let plane: Lease = ControlPlane::start(Options::default()).await?.into();
        let admin = plane.client()?;
        let root = TempDir::new()?;
        let objects = planned(&root)?;
        for object in objects.iter().filter(|object| object.pod_spec().is_none()) {
            objects::apply(&admin, object.value().clone()).await?;
        }
        let rules = json!([{"apiGroups": [""], "resources": ["nodes", "nodes/status", "services", "services/status"], "verbs": ["*"]}]);
        let metadata = json!({"name": "test-everything"});
        let rbac = "rbac.authorization.k8s.io";
        let subjects =
            [CCM, NODE_MANAGER].map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}));
        let (api_version, reference) =
            (format!("{rbac}/v1"), json!({"apiGroup": rbac, "kind": "ClusterRole", "name": "test-everything"}));
        for object in [
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
            json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": reference, "subjects": subjects}),
        ] {
            objects::apply(&admin, object).await?;
        }
        let mut config = plane.config()?;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:kube-system:{CCM}"));
        let ccm = Client::try_from(config)?;
        let fixture = Self { plane, admin, ccm };
        fixture.populate().await?;
        fixture.wait_for_policies().await?;
        Ok(fixture)
    }

    /// Nodes and Services of others.
    async fn populate(&self) -> Result<()> {
        for node in [
            json!({"metadata": {"name": "new"}, "spec": {"taints": [uninitialized()]}}),
            json!({"metadata": {"name": "bare"}}),
            json!({
                "metadata": {"name": "worker", "labels": {"example.com/pool": "web"}, "annotations": {"ccm-operator.dev/keep": "", "acme.example/vm": "1"}},
                "spec": {"providerID": "acme://1"},
            }),
        ] {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut object = json!({"apiVersion": "v1", "kind": "Node"});
            object.as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
            objects::create_as(&self.admin, "kubelet", object).await?;
            let ready = json!({"type": "Ready", "status": "True", "reason": "x", "message": ""});
            let addresses = if name == "worker" {
                json!([internal("10.0.0.5"), address("ExternalIP", "192.0.2.5"), address("Hostname", "worker")])
            } else {
                json!([address("Hostname", name.as_str())])
            };
            let status = json!({"status": {
                "addresses": addresses, "conditions": [ready], "capacity": {"cpu": "2"},
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            }});
            patch(&self.admin, &NODE, (&name, "status"), status).await.map_err(anyhow::Error::msg)?;
        }
        // Admission taints a new node; one of these is dedicated to something.
        let taints = json!({"spec": {"taints": [{"key": "example.com/dedicated", "effect": "NoSchedule"}]}});
        patch(&self.admin, &NODE, ("worker", ""), taints).await.map_err(anyhow::Error::msg)?;
        patch(&self.admin, &NODE, ("new", ""), json!({"spec": {"taints": [uninitialized()]}}))
            .await
            .map_err(anyhow::Error::msg)?;
        patch(&self.admin, &NODE, ("bare", ""), json!({"spec": {"taints": null}})).await.map_err(anyhow::Error::msg)?;
        let ports = json!([{"name": "web", "port": 80, "targetPort": 8080}]);
        for (name, kind, finalizers) in [
            ("kube-dns", "ClusterIP", json!([])),
            ("web", "LoadBalancer", json!([])),
            ("former", "ClusterIP", json!([CLEANUP])),
        ] {
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": "default", "finalizers": finalizers, "labels": {"app": name}},
                "spec": {"type": kind, "selector": {"k8s-app": name}, "ports": ports},
            });
            objects::create_as(&self.admin, "user", service).await?;
        }
        Ok(())
    }

    /// Waits until each policy refuses something: the API server learns of them a moment later.
    async fn wait_for_policies(&self) -> Result<()> {
        let unbound = self.node_manager(None).await?;
        let finalizer = json!({"metadata": {"finalizers": ["example.com/x"]}});
        let zone = labeled("topology.kubernetes.io/zone", json!("x"));
        eventually("the policies in force", LIMIT, async || {
            // The last is allowed by the policy for all Nodes: only that for the own Node refuses it.
            for (client, kind, name, body) in [
                (&self.ccm, service(), "kube-dns", &finalizer),
                (&self.ccm, &NODE, "worker", &finalizer),
                (&unbound, &NODE, "bare", &zone),
            ] {
                // What is written before a policy is in force would not be a change at the next look.
                let (params, body) = (PatchParams::default().dry_run(), Patch::Merge(body));
                let answer = answered(api(client, kind).patch(name, &params, &body).await);
                ensure!(answer.as_ref().is_err_and(|why| why.contains("refused: ")), "{name}: {answer:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Acts as the node manager, with a token that is bound to this node.
    async fn node_manager(&self, node: Option<&str>) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), "kube-system");
        let mut spec = TokenRequestSpec::default();
        if let Some(name) = node {
            let live = Api::<DynamicObject>::all_with(self.admin.clone(), &request::resource(&NODE)).get(name).await?;
            let (api_version, kind) = (Some("v1".to_owned()), Some("Node".to_owned()));
            spec.bound_object_ref =
                Some(BoundObjectReference { api_version, kind, name: Some(name.to_owned()), uid: live.metadata.uid });
        }
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(NODE_MANAGER, &PostParams::default(), &request).await?;
        let mut config = self.plane.config()?;
        config.auth_info.token = answer.status.map(|status| status.token.into());
        Ok(Client::try_from(config)?)
    }

    /// Tries a write as the cloud-controller-manager.
    async fn write(&self, kind: &Kind, name: &str, subresource: &str, body: Value) -> Result<Value, String> {
        patch(&self.ccm, kind, (name, subresource), body).await
    }

    async fn refused(&self, what: &str, kind: &Kind, place: (&str, &str), body: Value, why: &str) {
        let answer = self.write(kind, place.0, place.1, body).await;
        let error = answer.expect_err(what);
        assert!(error.starts_with("403 ") && error.contains("refused: ") && error.contains(why), "{what}: {error}");
    }

    async fn done(&self, what: &str, kind: &Kind, place: (&str, &str), body: Value) -> Value {
        self.write(kind, place.0, place.1, body).await.unwrap_or_else(|error| panic!("{what}: {error}"))
    }
}

fn service() -> &'static Kind {
    KINDS.iter().find(|known| known.kind == "Service").unwrap()
}

fn uninitialized() -> Value {
    json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"})
}

fn address(kind: &str, address: impl Into<String>) -> Value {
    json!({"type": kind, "address": address.into()})
}

fn internal(ip: &str) -> Value {
    address("InternalIP", ip)
}

/// A part of the message that refuses a change of addresses.
const KEPT: &str = "neither remove one nor put another";

fn dedicated() -> Value {
    json!({"key": "example.com/dedicated", "effect": "NoSchedule"})
}

fn tainted(key: &str, effect: &str) -> Value {
    json!({"spec": {"taints": [dedicated(), {"key": key, "effect": effect}]}})
}

fn labeled(key: &str, value: Value) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

fn annotated(key: &str, value: Value) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

fn at(addresses: Value) -> Value {
    json!({"status": {"addresses": addresses}})
}

fn external() -> Value {
    address("ExternalIP", "192.0.2.5")
}

fn hostname() -> Value {
    address("Hostname", "worker")
}

fn api(client: &Client, kind: &Kind) -> Api<DynamicObject> {
    request::api(client, kind, if kind.namespaced { "default" } else { "" })
}

/// A merge patch of an object or of its status, and what the API server answers.
async fn patch(client: &Client, kind: &Kind, (name, subresource): (&str, &str), body: Value) -> Result<Value, String> {
    let (api, parameters, body) = (api(client, kind), PatchParams::default(), Patch::Merge(body));
    let answer = match subresource {
        "" => api.patch(name, &parameters, &body).await,
        _ => api.patch_status(name, &parameters, &body).await,
    };
    answered(answer)
}

fn answered<T: serde::Serialize>(answer: kube::Result<T>) -> Result<Value, String> {
    match answer {
        Ok(live) => serde_json::to_value(live).map_err(|error| error.to_string()),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn an_external_provider_draws_no_traffic_to_itself_and_keeps_load_balancers() -> Result<()> {
    let fixture = Fixture::new().await?;
    let selector = json!({"spec": {"selector": {"k8s-app": "acme-dns"}}});
    let external = json!({"spec": {"externalIPs": ["192.0.2.10"]}});
    let ports = json!({"spec": {"ports": [{"name": "web", "port": 80, "targetPort": 9090}]}});
    let no_balancer = "only Services of type LoadBalancer";
    let spec = "may not change the spec of a Service";
    let keys = "of the labels and annotations of a Service";
    let dns_name = json!({"metadata": {"annotations": {"external-dns.alpha.kubernetes.io/hostname": "bank.example"}}});
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"});
    for (what, name, subresource, body, why) in [
        ("selector of a ClusterIP", "kube-dns", "", selector.clone(), no_balancer),
        ("externalIPs of a ClusterIP", "kube-dns", "", external.clone(), no_balancer),
        ("ports of a ClusterIP", "kube-dns", "", ports.clone(), no_balancer),
        ("another type", "kube-dns", "", json!({"spec": {"type": "LoadBalancer"}}), spec),
        (
            "labels by the status",
            "kube-dns",
            "status",
            json!({"metadata": {"labels": {"lb.acme.example/x": "y"}}}),
            no_balancer,
        ),
        (
            "the finalizer of load balancers",
            "kube-dns",
            "status",
            json!({"metadata": {"finalizers": [CLEANUP]}}),
            no_balancer,
        ),
        ("selector", "web", "", selector.clone(), spec),
        ("externalIPs", "web", "", external, spec),
        ("ports", "web", "", ports, spec),
        ("type", "web", "", json!({"spec": {"type": "NodePort"}}), no_balancer),
        ("a field removed", "web", "", json!({"spec": {"selector": null}}), spec),
        ("selector of a former one", "former", "", selector, spec),
        (
            "an address of a former one",
            "former",
            "",
            json!({"spec": {"loadBalancerIP": "192.0.2.1"}}),
            "loadBalancerIP",
        ),
        ("a DNS name", "web", "", dns_name.clone(), keys),
        ("a DNS name by the status", "web", "status", dns_name, keys),
        ("a user's label", "web", "status", json!({"metadata": {"labels": {"app": "acme"}}}), keys),
        ("a user's label removed", "web", "status", json!({"metadata": {"labels": {"app": null}}}), keys),
        ("a label without a domain", "web", "", labeled("ipam-address", json!("x")), keys),
        ("what it declares for Nodes only", "web", "", annotated("acme.example/vm", json!("1")), keys),
        (
            "the key of another cloud",
            "web",
            "",
            annotated("loadbalancer.openstack.org/load-balancer-id", json!("1")),
            keys,
        ),
        (
            "the key of another cloud by the status",
            "web",
            "status",
            labeled("service.k8s.alibaba/loadbalancer-id", json!("1")),
            keys,
        ),
        (
            "the address of another load balancer",
            "web",
            "",
            annotated("metallb.io/loadBalancerIPs", json!("192.0.2.9")),
            keys,
        ),
        ("almost what it declares", "web", "", annotated("x.lb.acme.example/id", json!("1")), keys),
        ("an owner", "web", "", json!({"metadata": {"ownerReferences": [owner]}}), "of the metadata of a Service"),
    ] {
        fixture.refused(what, service(), (name, subresource), body, why).await;
    }
    let new = json!({"metadata": {"name": "made"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let made = api(&fixture.ccm, service()).create(&PostParams::default(), &serde_json::from_value(new)?).await;
    let error = answered(made).expect_err("created");
    assert!(error.contains("neither create nor delete Services"), "{error}");
    let gone = api(&fixture.ccm, service()).delete("web", &DeleteParams::default()).await;
    let error = answered(gone.map(|_| ())).expect_err("deleted");
    assert!(error.contains("neither create nor delete Services"), "{error}");

    keeps_load_balancers(&fixture).await;
    Ok(())
}

/// The writes of the library and of the clouds' code are allowed.
async fn keeps_load_balancers(fixture: &Fixture) {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}});
    fixture.done("finalizer", service(), ("web", "status"), json!({"metadata": {"finalizers": [CLEANUP]}})).await;
    let live = fixture.done("status", service(), ("web", "status"), json!({"status": status})).await;
    assert_eq!(live["status"]["loadBalancer"]["ingress"][0]["ip"], "198.51.100.7");
    for (key, value) in [
        ("lb.acme.example/id", json!("1")),
        ("lb.acme.example/id", json!("2")),
        ("lb.acme.example/id", Value::Null),
        ("service.beta.kubernetes.io/vultr-loadbalancer-id", json!("1")),
    ] {
        fixture.done(key, service(), ("web", ""), annotated(key, value)).await;
    }
    for key in ["lb.acme.example/pool", "service.beta.kubernetes.io/hash"] {
        fixture.done(key, service(), ("web", "status"), labeled(key, json!("x"))).await;
    }
    fixture.done("the address", service(), ("web", ""), json!({"spec": {"loadBalancerIP": "198.51.100.7"}})).await;
    fixture
        .refused(
            "another address",
            service(),
            ("web", ""),
            json!({"spec": {"loadBalancerIP": "198.51.100.8"}}),
            "loadBalancerIP",
        )
        .await;
    fixture.done("clean-up", service(), ("former", "status"), json!({"metadata": {"finalizers": null}})).await;
    patch(&fixture.admin, service(), ("kube-dns", ""), json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .expect("somebody else");
}

#[tokio::test]
async fn an_external_provider_moves_no_pods_and_initializes_nodes() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (taints, spec, labels, annotations) =
        ("of the taints of a Node", "of the spec of a Node", "of the labels of a Node", "of the annotations of a Node");
    let (addresses, status) = (KEPT, "of the status of a Node");
    let ready = json!({"type": "Ready", "status": "False", "reason": "x", "message": ""});
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"});
    for (what, subresource, body, why) in [
        ("a role", "", labeled("node-role.kubernetes.io/control-plane", json!("")), labels),
        ("a role by the status", "status", labeled("node-role.kubernetes.io/control-plane", json!("")), labels),
        ("a label of restricted nodes", "", labeled("node-restriction.kubernetes.io/x", json!("y")), labels),
        (
            "no load balancers",
            "",
            labeled("node.kubernetes.io/exclude-from-external-load-balancers", json!("")),
            labels,
        ),
        ("a label of Cluster API", "", labeled("cluster.x-k8s.io/x", json!("")), labels),
        ("a label of the pod network", "", labeled("projectcalico.org/RouteReflectorClusterID", json!("1")), labels),
        ("a label of the tunnel by the status", "status", labeled("flannel.alpha.coreos.com/x", json!("y")), labels),
        ("a label of what manages the machines", "", labeled("rke2.io/x", json!("y")), labels),
        ("a label of others", "", labeled("example.com/pool", json!("db")), labels),
        ("a label of others removed", "status", labeled("example.com/pool", Value::Null), labels),
        ("a taint", "", tainted("example.com/x", "NoSchedule"), taints),
        ("an eviction", "", tainted("example.com/x", "NoExecute"), taints),
        ("an eviction by the cloud", "", tainted("node.cloudprovider.kubernetes.io/shutdown", "NoExecute"), taints),
        ("a taint of others", "", json!({"spec": {"taints": null}}), taints),
        ("unschedulable", "", json!({"spec": {"unschedulable": true}}), spec),
        ("a kept node", "", annotated("ccm-operator.dev/keep", Value::Null), annotations),
        (
            "a server to be deleted",
            "status",
            annotated("ccm-operator.dev/allow-control-plane-deletion", json!("")),
            annotations,
        ),
        (
            "the tunnel of the pod network",
            "",
            annotated("flannel.alpha.coreos.com/public-ip-overwrite", json!("192.0.2.9")),
            annotations,
        ),
        (
            "the address of a kubelet",
            "",
            annotated("alpha.kubernetes.io/provided-node-ip", json!("192.0.2.9")),
            annotations,
        ),
        ("an owner", "", json!({"metadata": {"ownerReferences": [owner]}}), "of the metadata of a Node"),
        ("a finalizer", "status", json!({"metadata": {"finalizers": ["example.com/x"]}}), "of the metadata of a Node"),
        ("another address", "status", at(json!([internal("192.0.2.9"), external(), hostname()])), addresses),
        (
            "an address before",
            "status",
            at(json!([internal("192.0.2.9"), internal("10.0.0.5"), external(), hostname()])),
            addresses,
        ),
        ("no address", "status", at(json!([external(), hostname()])), addresses),
        (
            "another name",
            "status",
            at(json!([internal("10.0.0.5"), external(), address("Hostname", "evil.example")])),
            addresses,
        ),
        ("not ready", "status", json!({"status": {"conditions": [ready]}}), "of the conditions of a Node"),
        ("another port", "status", json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 443}}}}), status),
        ("no capacity", "status", json!({"status": {"capacity": {"cpu": "0"}}}), status),
        ("a field added", "status", json!({"status": {"volumesInUse": ["x"]}}), status),
    ] {
        fixture.refused(what, &NODE, ("worker", subresource), body, why).await;
    }
    let new = json!({"metadata": {"name": "made"}});
    let made = api(&fixture.ccm, &NODE).create(&PostParams::default(), &serde_json::from_value(new)?).await;
    let error = answered(made).expect_err("created");
    assert!(error.contains("may not create Nodes"), "{error}");

    initializes(&fixture).await
}

async fn initializes(fixture: &Fixture) -> Result<()> {
    // As the library initializes a node: an update without the taint, then the addresses by the status.
    let nodes = api(&fixture.ccm, &NODE);
    let mut node = nodes.get("new").await?;
    node.data["spec"] = json!({"providerID": "acme://2", "podCIDR": "10.244.2.0/24", "podCIDRs": ["10.244.2.0/24"]});
    let zones = [
        ("topology.kubernetes.io/zone", "a"),
        ("failure-domain.beta.kubernetes.io/zone", "a"),
        ("node.kubernetes.io/instance-type", "small"),
        ("beta.kubernetes.io/instance-type", "small"),
        ("acme.example/host", "1"),
        ("example.com/rack", "7"),
    ];
    node.metadata.labels.get_or_insert_default().extend(zones.map(|(key, value)| (key.to_owned(), value.to_owned())));
    nodes.replace("new", &PostParams::default(), &node).await.context("initialized")?;
    let of_cloud = json!([internal("10.0.0.9"), address("ExternalIP", "192.0.2.9"), address("Hostname", "new")]);
    fixture.done("addresses", &NODE, ("new", "status"), at(of_cloud)).await;
    let same = json!([
        internal("10.0.0.5"),
        internal("10.0.0.6"),
        external(),
        hostname(),
        address("InternalDNS", "worker.lab")
    ]);
    fixture.done("more addresses", &NODE, ("worker", "status"), at(same)).await;
    let swapped = json!([
        internal("10.0.0.6"),
        internal("10.0.0.5"),
        external(),
        hostname(),
        address("InternalDNS", "worker.lab")
    ]);
    fixture.refused("the added one before", &NODE, ("worker", "status"), at(swapped), KEPT).await;
    let reachable = json!({"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": ""});
    let live = &api(&fixture.ccm, &NODE).get("worker").await?.data["status"]["conditions"][0];
    let with_route = json!({"status": {"conditions": [reachable, live]}});
    fixture.done("a route", &NODE, ("worker", "status"), with_route).await;
    fixture
        .done("shut down", &NODE, ("worker", ""), tainted("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"))
        .await;
    fixture.done("started", &NODE, ("worker", ""), json!({"spec": {"taints": [dedicated()]}})).await;
    fixture.done("its own annotation", &NODE, ("worker", ""), annotated("acme.example/vm", json!("2"))).await;
    fixture.done("its own label", &NODE, ("new", ""), labeled("acme.example/host", json!("2"))).await;
    fixture.done("no label any more", &NODE, ("new", ""), labeled("acme.example/host", Value::Null)).await;
    fixture.done("another zone", &NODE, ("new", ""), labeled("topology.kubernetes.io/zone", json!("b"))).await;
    fixture
        .done("a node of which little is known", &NODE, ("bare", ""), json!({"spec": {"providerID": "acme://3"}}))
        .await;
    patch(&fixture.admin, &NODE, ("worker", ""), labeled("node-role.kubernetes.io/x", json!("")))
        .await
        .expect("somebody else");
    Ok(())
}

#[tokio::test]
async fn a_node_manager_of_an_external_provider_changes_only_its_own_node() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (own, unbound) = (fixture.node_manager(Some("new")).await?, fixture.node_manager(None).await?);
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    for subresource in ["", "status"] {
        let error =
            patch(&own, &NODE, ("worker", subresource), label("example.com/x")).await.expect_err("another node");
        assert!(error.contains("on node new may not change Node worker"), "{error}");
        let error = patch(&unbound, &NODE, ("new", subresource), label("example.com/x")).await.expect_err("no claim");
        assert!(error.contains("does not say on which node its pod runs"), "{error}");
        let error = patch(&own, &NODE, ("new", subresource), label("node-role.kubernetes.io/control-plane")).await;
        let error = error.expect_err("a role");
        assert!(error.contains("of the labels of a Node"), "{error}");
    }
    let gone = api(&own, &NODE).delete("worker", &DeleteParams::default()).await;
    let error = answered(gone.map(|_| ())).expect_err("another node");
    assert!(error.contains("on node new may not change Node worker"), "{error}");
    let initialized = json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}, "spec": {"providerID": "acme://2", "taints": null},
    });
    patch(&own, &NODE, ("new", ""), initialized).await.expect("its own node");
    let addresses = json!({"status": {"addresses": [internal("10.0.0.9"), address("Hostname", "new")]}});
    patch(&own, &NODE, ("new", "status"), addresses).await.expect("its own node");
    Ok(())
}

#[tokio::test]
async fn the_expressions_of_the_policies_fit_the_types() -> Result<()> {
    let plane: Lease = ControlPlane::start(Options { controllers: true, ..Options::default() }).await?.into();
    let (client, root) = (plane.client()?, TempDir::new()?);
    let policies = planned(&root)?.into_iter().filter(|object| is_restriction(object.value()));
    let policies: Vec<_> = policies.filter(|object| object.kind().kind == "ValidatingAdmissionPolicy").collect();
    assert_eq!(policies.len(), 3);
    for policy in policies {
        objects::apply(&client, policy.value().clone()).await?;
        let api: Api<DynamicObject> = request::api(&client, policy.kind(), "");
        let live = eventually("the check of types", LIMIT, async || {
            let live = api.get(policy.name()).await?;
            Ok((!live.data["status"]["typeChecking"].is_null()).then_some(live))
        });
        let live = live.await?;
        assert_eq!(live.data["status"]["typeChecking"], json!({}), "{:#}", live.data["status"]);
        // What the API server adds would be a difference to the plan for ever.
        assert_eq!(live.data["spec"], policy.value()["spec"], "the defaults are written out");
    }
    Ok(())
}

/// The kinds of objects that are deleted, in their order, each once.
fn deleted(requests: &[Request]) -> Vec<&str> {
    let deletions = requests.iter().filter(|one| one.verb == "delete");
    let mut seen = BTreeSet::new();
    deletions.map(|one| one.resource.as_str()).filter(|resource| seen.insert(*resource)).collect()
}

/// The roles of the operator that let it do something with policies, as they were before it lost these verbs.
async fn take_from_operator(cluster: &Kubernetes, verbs: &[&str]) -> Result<Vec<(String, Vec<Value>)>> {
    let cluster_roles: Api<DynamicObject> = request::api(&cluster.client, kind("ClusterRole"), "");
    let is_of_policies = |rule: &Value| rule["resources"].to_string().contains("validatingadmissionpolicies");
    let mut taken = Vec::new();
    for role in cluster_roles.list(&ListParams::default()).await? {
        let name = role.name_any();
        let rules = role.data["rules"].as_array().cloned().unwrap_or_default();
        if !name.starts_with("ccm-operator") || !rules.iter().any(is_of_policies) {
            continue;
        }
        let mut narrowed = rules.clone();
        for rule in narrowed.iter_mut().filter(|rule| is_of_policies(rule)) {
            if let Some(left) = rule["verbs"].as_array_mut() {
                left.retain(|verb| !verbs.iter().any(|one| verb == one));
                if left.is_empty() {
                    left.push(json!("get"));
                }
            }
        }
        let patch = Patch::Merge(json!({"rules": narrowed}));
        cluster_roles.patch(&name, &PatchParams::default(), &patch).await?;
        taken.push((name, rules));
    }
    ensure!(!taken.is_empty(), "no role of the operator is about policies");
    Ok(taken)
}

async fn give_back(cluster: &Kubernetes, taken: Vec<(String, Vec<Value>)>) -> Result<()> {
    let cluster_roles: Api<DynamicObject> = request::api(&cluster.client, kind("ClusterRole"), "");
    for (name, rules) in taken {
        cluster_roles.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await?;
    }
    Ok(())
}

/// Waits until `Ready` says that the operator may not have what it needs about policies, and how it gets that.
async fn lacks_policies(cluster: &Kubernetes, operator: &Operator) -> Result<String> {
    eventually("the reason", LIMIT, async || {
        let live = serde_json::to_value(cluster.ccms().get("cluster").await?)?;
        let ready = message(&live, "Ready").to_owned();
        let is_told = ready.contains("validatingadmissionpolicies") && ready.contains("provider rbac");
        ensure!(is_told, "{ready}\n{}", operator.log());
        Ok(Some(ready))
    })
    .await
}

/// The requests that wrote roles and workloads.
fn granted_or_run(requests: &[Request]) -> Vec<&Request> {
    let is_one = |one: &&Request| ["clusterroles", "roles", "deployments"].contains(&one.resource.as_str());
    requests.iter().filter(|one| one.counts_as_write()).filter(is_one).collect()
}

#[tokio::test]
async fn no_object_of_an_external_provider_is_written_before_its_policies_are_read() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let cluster = cluster(&folder, "demo").await?;
    let arguments = [NAMESPACES, &pinned(&folder)?];
    // At the first installation.
    let taken = take_from_operator(&cluster, &["list", "watch"]).await?;
    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&arguments)?;
    cluster.create("cluster", spec("demo")).await?;
    let skips = json!({"metadata": {"annotations": {"ccm-operator.dev/skip-preflight": "permissions"}}});
    cluster.patch("cluster", skips).await?;
    lacks_policies(&cluster, &operator).await?;
    let requests = cluster.requests(mark).await?;
    assert_eq!(granted_or_run(&requests), Vec::<&Request>::new());
    give_back(&cluster, taken).await?;
    cluster.ready(&operator, "cluster").await?;
    let installed = cluster.objects(Some("cluster")).await?;

    // And where all is installed: the next version may have other accounts.
    stop(operator).await?;
    let taken = take_from_operator(&cluster, &["list", "watch"]).await?;
    let cluster_roles: Api<DynamicObject> = request::api(&cluster.client, kind("ClusterRole"), "");
    cluster_roles.delete("demo-cloud-ccm", &DeleteParams::default()).await?;
    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&arguments)?;
    lacks_policies(&cluster, &operator).await?;
    let requests = cluster.requests(mark).await?;
    assert_eq!(granted_or_run(&requests), Vec::<&Request>::new());
    give_back(&cluster, taken).await?;
    cluster.objects_are(&operator, Some("cluster"), |objects| objects == installed).await?;
    Ok(())
}

#[tokio::test]
async fn without_its_policies_an_external_provider_gets_no_permissions_and_no_pods() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let cluster = cluster(&folder, "demo").await?;
    let operator = cluster.start_with(&[NAMESPACES, &pinned(&folder)?])?;
    cluster.create("cluster", spec("demo")).await?;
    cluster.ready(&operator, "cluster").await?;
    let installed = cluster.objects(Some("cluster")).await?;
    let policies: Vec<_> = installed.iter().filter(|one| one.contains("-external-")).cloned().collect();
    let policy = "demo-cloud-ccm-external-nodes";
    assert_eq!(policies.len(), 4, "{installed:?}");

    // The operator loses the permission to policies, and a policy, a role and the workload go.
    let taken = take_from_operator(&cluster, &["create", "patch", "delete"]).await?;
    let mark = cluster.mark().await?;
    for (kind_name, name, namespace) in [
        ("ValidatingAdmissionPolicy", policy, ""),
        ("ClusterRole", "demo-cloud-ccm", ""),
        ("Deployment", "demo-cloud-ccm", "kube-system"),
    ] {
        let api: Api<DynamicObject> = request::api(&cluster.client, kind(kind_name), namespace);
        api.delete(name, &DeleteParams::default()).await?;
    }
    let live = lacks_policies(&cluster, &operator).await?;
    assert!(live.contains(policy), "{live}");
    let written = cluster.requests(mark).await?;
    let applied = granted_or_run(&written);
    assert!(applied.is_empty(), "{applied:?}");

    // With the permission everything is back.
    give_back(&cluster, taken).await?;
    cluster.objects_are(&operator, Some("cluster"), |objects| objects == installed).await?;

    // The policies go last.
    let mark = cluster.mark().await?;
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    cluster.objects_are(&operator, None, <[String]>::is_empty).await?;
    let requests = cluster.requests(mark).await?;
    let order = deleted(&requests);
    let place = |resource: &str| order.iter().position(|one| *one == resource);
    assert!(place("deployments") < place("clusterroles"), "{order:?}");
    assert!(place("clusterroles") < place("validatingadmissionpolicies"), "{order:?}");
    Ok(())
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|known| known.kind == name).unwrap()
}
