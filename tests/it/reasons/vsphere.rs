//! vSphere, as govmomi's simulator plays it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{coordination::v1::Lease, rbac::v1::ClusterRole},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fixture::{Fixture, LEASE, node};
use crate::{
    lab::{LIMIT, can},
    pod,
    support::{eventually, objects, pki, scrape::free_port},
    vcenter::{Machine, PASSWORD, USER, VCenter},
};

/// A cluster whose nodes are machines of a vCenter.
pub(super) struct Cloud {
    pub(super) fixture: Fixture,
    pub(super) vcenter: VCenter,
}

impl Cloud {
    /// The cloud of this cluster.
    pub(super) async fn new(fixture: Fixture) -> Result<Self> {
        let cloud = Self { fixture, vcenter: VCenter::start().await? };
        cloud.set_config(&cloud.config()).await?;
        cloud.set_trust(&cloud.vcenter.about.certificate).await?;
        cloud.set_password(PASSWORD).await?;
        Ok(cloud)
    }

    /// Creates the `CloudControllerManager`.
    pub(super) async fn create(&self) -> Result<()> {
        let spec = json!({
            "provider": "vsphere",
            "cloudConfig": {"configMapRef": {"name": "vsphere", "key": "cloud.yaml"}},
            "credentials": {"secretRef": {"name": "vsphere"}},
            "trustBundle": {"configMapRef": {"name": "vcenter-ca", "key": "ca.pem"}},
        });
        self.fixture.create(spec).await
    }

    fn config(&self) -> Value {
        let about = &self.vcenter.about;
        json!({
            "global": {"secretName": "vsphere", "secretNamespace": "kube-system"},
            "vcenter": {"simulated": {
                "server": "127.0.0.1", "port": about.port.parse::<u16>().unwrap(), "datacenters": [about.datacenter]}},
            "labels": {"region": "k8s-region", "zone": "k8s-zone"},
        })
    }

    /// The configuration with another value of its vCenter.
    pub(super) async fn set_vcenter(&self, field: &str, value: Value) -> Result<()> {
        let mut config = self.config();
        config["vcenter"]["simulated"][field] = value;
        self.set_config(&config).await
    }

    async fn set_config(&self, config: &Value) -> Result<()> {
        self.set_map("vsphere", "cloud.yaml", &config.to_string()).await
    }

    async fn set_trust(&self, authority: &str) -> Result<()> {
        self.set_map("vcenter-ca", "ca.pem", authority).await
    }

    async fn set_map(&self, name: &str, key: &str, text: &str) -> Result<()> {
        let metadata = json!({"name": name, "namespace": "kube-system"});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}});
        objects::apply(&self.fixture.cluster.client, map).await.map(drop)
    }

    async fn set_password(&self, password: &str) -> Result<()> {
        let mut data = json!({});
        for server in ["127.0.0.1", "vcenter.invalid"] {
            data[format!("{server}.username")] = json!(USER);
            data[format!("{server}.password")] = json!(password);
        }
        self.fixture.cluster.put_secret("vsphere", data).await
    }

    /// The machine of this number.
    pub(super) fn machine(&self, number: usize) -> &Machine {
        &self.vcenter.about.machines[number]
    }

    /// The node of a machine, which waits.
    pub(super) fn node(&self, number: usize) -> Value {
        let machine = self.machine(number);
        let mut node = node(&machine.hostname);
        node["status"]["nodeInfo"]["systemUUID"] = json!(machine.uuid);
        node
    }

    /// Registers it.
    pub(super) async fn register(&self, number: usize) -> Result<&str> {
        self.fixture.register(&self.node(number)).await?;
        Ok(&self.machine(number).hostname)
    }
}

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn why_nodes_wait_at_vsphere() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let mut cloud = Cloud::new(Fixture::new("vsphere").await?).await?;
    no_node_is_found(&mut cloud).await.context("no node")?;
    the_vcenter_is_not_reached(&mut cloud).await.context("not reached")?;
    one_node_is_not_found(&cloud).await.context("one node")?;
    machines_go(&cloud).await.context("machines")?;
    the_cluster_refuses(&cloud).await.context("the cluster refuses")?;
    it_does_not_lead(&mut cloud).await.context("it does not lead")?;
    two_run(&mut cloud).await.context("two run")?;
    let unplaced = &cloud.machine(10).hostname;
    cloud.fixture.finds(unplaced, "N26", "", "a node initialized before labels were configured").await?;
    it_does_not_run(&mut cloud).await.context("it does not run")
}

/// The reasons that concern every node, from before the installation until the first node is initialized.
async fn no_node_is_found(cloud: &mut Cloud) -> Result<()> {
    let first = cloud.register(0).await?.to_owned();
    cloud.fixture.finds(&first, "N00", "", "nothing is installed").await?;

    cloud.register(9).await?;
    cloud.set_password("wrong-password").await?;
    cloud.create().await?;
    cloud.fixture.roll_out().await?;
    cloud.fixture.finds(&first, "N07", "Login failure", "a wrong password").await?;

    cloud.set_password(PASSWORD).await?;
    let (empty, absent) = (cloud.vcenter.about.empty.clone(), "DC9".to_owned());
    for (datacenter, evidence, how) in [
        (empty, "No VM found", "a datacenter without the machines"),
        (absent, "datacenter 'DC9' not found", "a datacenter that does not exist"),
    ] {
        cloud.set_vcenter("datacenters", json!([datacenter])).await?;
        cloud.fixture.roll_out().await?;
        cloud.fixture.finds(&first, "N09", evidence, how).await?;
    }
    Ok(())
}

async fn the_vcenter_is_not_reached(cloud: &mut Cloud) -> Result<()> {
    let first = cloud.machine(0).hostname.clone();
    for (field, value, evidence, how) in [
        ("port", json!(free_port()?), "connection refused", "a port that nobody listens on"),
        ("server", json!("vcenter.invalid"), "lookup vcenter.invalid", "a name that DNS does not know"),
    ] {
        cloud.set_vcenter(field, value).await?;
        cloud.fixture.roll_out().await?;
        cloud.fixture.finds(&first, "N06", evidence, how).await?;
    }
    cloud.set_config(&cloud.config()).await?;
    cloud.set_trust(&pki::authority("another")?).await?;
    cloud.fixture.roll_out().await?;
    cloud.fixture.finds(&first, "N06", "x509: certificate signed by unknown authority", "another authority").await?;

    // The first nodes are initialized without knowing where they are.
    cloud.set_trust(&cloud.vcenter.about.certificate).await?;
    let mut config = cloud.config();
    config["labels"] = json!({});
    cloud.set_config(&config).await?;
    cloud.fixture.roll_out().await?;
    cloud.register(10).await?;
    cloud.fixture.is_cured(&cloud.machine(10).hostname).await?;
    cloud.fixture.remove(&first).await?;
    cloud.set_config(&cloud.config()).await?;
    cloud.fixture.roll_out().await?;
    cloud.register(0).await?;
    cloud.fixture.is_cured(&cloud.machine(9).hostname).await?;
    cloud.fixture.is_cured(&first).await
}

/// The reasons that concern one node, while others are initialized.
async fn one_node_is_not_found(cloud: &Cloud) -> Result<()> {
    let Cloud { fixture, vcenter } = cloud;
    let (renamed, silent) = (cloud.machine(1), cloud.machine(2));
    vcenter.rename(renamed, "localhost.localdomain")?;
    cloud.register(1).await?;
    fixture.finds(&renamed.hostname, "N08", "No VM found", "a machine with another host name than the node").await?;
    vcenter.rename(renamed, &renamed.hostname)?;
    fixture.is_cured(&renamed.hostname).await?;

    vcenter.rename(silent, "")?;
    cloud.register(2).await?;
    fixture.finds(&silent.hostname, "N08", "", "VMware Tools do not run").await?;
    vcenter.rename(silent, &silent.hostname)?;
    fixture.is_cured(&silent.hostname).await?;

    let mut node = cloud.node(3);
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "192.0.2.99"});
    fixture.register(&node).await?;
    let name = &cloud.machine(3).hostname;
    fixture.finds(name, "N10", "192.0.2.99", "--node-ip with an address that the machine has not").await?;
    let own = json!({"alpha.kubernetes.io/provided-node-ip": cloud.machine(3).address});
    fixture.annotate(name, own).await?;
    fixture.is_cured(name).await?;

    let mut foreign = cloud.node(4);
    foreign["spec"]["providerID"] = json!("aws:///us-east-1a/i-0123456789abcdef0");
    fixture.register(&foreign).await?;
    let name = &cloud.machine(4).hostname;
    fixture.finds(name, "N12", "aws:///us-east-1a/i-0123456789abcdef0", "a providerID of another cloud").await?;
    // It cannot be changed: the node has to register again.
    fixture.remove(name).await?;
    cloud.register(4).await?;
    fixture.is_cured(name).await
}

/// The reasons that concern initialized nodes.
async fn machines_go(cloud: &Cloud) -> Result<()> {
    let Cloud { fixture, vcenter } = cloud;
    let machine = cloud.machine(4);
    let name = &machine.hostname;
    vcenter.rename(machine, "")?;
    fixture.set_ready(name, "Unknown", 120).await?;
    fixture.finds(name, "N20", "VM Guest hostname is empty", "VMware Tools end, and the node is not ready").await?;
    vcenter.rename(machine, name)?;

    vcenter.change("power-off", machine)?;
    fixture.finds(name, "N23", "", "the machine is off").await?;
    vcenter.change("destroy", machine)?;
    fixture.finds(name, "N22", "is forbidden", "the machine is destroyed, and nodes may not be deleted").await?;
    fixture.remove(name).await
}

async fn the_cluster_refuses(cloud: &Cloud) -> Result<()> {
    let fixture = &cloud.fixture;
    fixture.patch(json!({"management": "Paused"})).await?;
    let client = fixture.cluster.client.clone();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = roles.get(&fixture.name()).await?;
    let mut narrowed = role.rules.clone().unwrap_or_default();
    for rule in &mut narrowed {
        if rule.resources.iter().flatten().any(|resource| resource == "nodes") {
            rule.verbs.retain(|verb| verb != "update" && verb != "patch");
        }
    }
    let narrow = Patch::Merge(json!({"rules": narrowed}));
    eventually("the operator to leave the role alone", LIMIT, async || {
        roles.patch(&fixture.name(), &PatchParams::default(), &narrow).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let live = roles.get(&fixture.name()).await?.rules;
        ensure!(live.as_ref() == Some(&narrowed), "the rules are {live:?}, not {narrowed:?}");
        Ok(Some(()))
    })
    .await
    .with_context(|| fixture.operator.log())?;
    let name = cloud.register(5).await?;
    fixture.finds(name, "N13", "", "a role without the permission to update nodes").await?;
    let restore = Patch::Merge(json!({"rules": role.rules}));
    roles.patch(&fixture.name(), &PatchParams::default(), &restore).await?;
    fixture.is_cured(name).await?;

    let policies = "admissionregistration.k8s.io/v1";
    let metadata = json!({"name": "nodes-are-ours"});
    let of_accounts = "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')";
    let policy = json!({
        "apiVersion": policies, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]},
            "matchConditions": [{"name": "accounts", "expression": of_accounts}],
            "validations": [{"expression": "false", "message": "only administrators change nodes"}],
        },
    });
    let binding = json!({
        "apiVersion": policies, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": "nodes-are-ours", "validationActions": ["Deny"]},
    });
    for object in [&policy, &binding] {
        objects::apply(&client, object.clone()).await?;
    }
    fixture.is_denied("only administrators change nodes").await?;
    let name = cloud.register(6).await?;
    fixture.finds(name, "N17", "only administrators change nodes", "a policy that denies the update of nodes").await?;
    for object in [&binding, &policy] {
        objects::delete(&client, object).await?;
    }
    fixture.is_allowed().await?;
    fixture.is_cured(name).await?;
    fixture.patch(json!({"management": "Managed"})).await?;
    fixture.cluster.ready(&fixture.operator, "cluster").await.map(drop)
}

async fn it_does_not_lead(cloud: &mut Cloud) -> Result<()> {
    cloud.fixture.stop().await?;
    let elsewhere = {
        let leases: Api<Lease> = Api::namespaced(cloud.fixture.cluster.client.clone(), "kube-system");
        leases
            .create(
                &PostParams::default(),
                &Lease {
                    metadata: ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() },
                    ..Lease::default()
                },
            )
            .await?;
        async move {
            loop {
                let renewed = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
                let held =
                    json!({"spec": {"holderIdentity": "elsewhere_1", "leaseDurationSeconds": 5, "renewTime": renewed}});
                leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(held)).await?;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    };
    let mut others = JoinSet::<kube::Result<()>>::new();
    others.spawn(elsewhere);
    cloud.fixture.restart().await?;
    let name = cloud.register(7).await?.to_owned();
    cloud.fixture.finds(&name, "N02", "elsewhere", "a lease that somebody else holds and renews").await?;
    cloud.fixture.operator_finds(&name, "N02", "NoLeader").await?;
    others.shutdown().await;
    cloud.fixture.is_cured(&name).await
}

async fn two_run(cloud: &mut Cloud) -> Result<()> {
    let (lease, rbac) = ("other-cloud-controller-manager", "rbac.authorization.k8s.io");
    let metadata = json!({"name": lease, "namespace": "kube-system"});
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": lease},
        "subjects": [{"kind": "ServiceAccount", "name": cloud.fixture.name(), "namespace": "kube-system"}],
    });
    for object in [role, binding] {
        objects::apply(&cloud.fixture.cluster.client, object).await?;
    }
    let other = cloud.fixture.run_another(lease).await?;
    // Neither finds its machine.
    let machine = cloud.machine(11).hostname.clone();
    cloud.vcenter.rename(cloud.machine(11), "localhost.localdomain")?;
    cloud.register(11).await?;
    cloud.fixture.finds(&machine, "N16", "", "another one, with a lease of its own").await?;
    other.stop().await?;
    cloud.fixture.remove_pods_of(lease).await?;
    cloud.vcenter.rename(cloud.machine(11), &machine)?;
    cloud.fixture.is_cured(&machine).await
}

async fn it_does_not_run(cloud: &mut Cloud) -> Result<()> {
    let name = cloud.register(8).await?.to_owned();
    let fixture = &mut cloud.fixture;
    fixture.remove(&name).await?;
    fixture.patch(json!({"controllers": {"cloudNode": "Disabled"}})).await?;
    fixture.roll_out().await?;
    cloud.register(8).await?;
    let fixture = &mut cloud.fixture;
    fixture.finds(&name, "N03", "", "controllers.cloudNode: Disabled").await?;

    fixture.patch(json!({"controllers": {"cloudNode": "Enabled"}, "featureGates": {"NoSuchGate": true}})).await?;
    fixture.roll_out_and_crash().await?;
    fixture.finds(&name, "N01", "unrecognized feature gate", "a feature gate that it does not know").await?;

    let nobody = json!({"apiServer": {"host": "127.0.0.1", "port": free_port()?}});
    fixture.patch(json!({"featureGates": null, "placement": nobody})).await?;
    fixture.roll_out_and_crash().await?;
    fixture
        .finds(&name, "N05", "connection refused", "an API server that is not where placement.apiServer says")
        .await?;

    fixture.patch(json!({"placement": {"apiServer": {"port": fixture.cluster.plane.port()}}})).await?;
    fixture.roll_out().await?;
    fixture.is_cured(&name).await
}
