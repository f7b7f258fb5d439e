//! The worst day: ten nodes are not ready, and the cloud-controller-manager looks where their machines are not. It takes them for
//! gone. With the permission to delete nodes it deletes them all; in a rehearsal the operator lists them; guarded, only a node goes whose
//! machine is really gone.

mod stale;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Event, Node},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{LONG, aws, fixture::Fixture, protocol, vsphere};
use crate::{
    lab::{LIMIT, can},
    pod,
    support::{eventually, objects},
};

/// The number of nodes.
const NODES: usize = 10;
/// The seconds since the nodes became unready: longer than the settings below require.
const LONG_AGO: i64 = 120;
/// The shortest time that the API allows.
const MIN_NOT_READY: i64 = 60;
/// The ClusterRole and its binding that many manifests of cloud-controller-managers have.
const UNGUARDED: &str = "unguarded-cloud-controller-manager";

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn with_the_credentials_of_another_account_of_aws() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let mut cloud = aws::Cloud::new(Fixture::guarded("aws").await?, NODES).await?;
    grant(&cloud.fixture, "cluster-admin").await?;
    cloud.create().await?;
    is_refused(&cloud.fixture).await?;
    cloud.fixture.roll_out().await?;
    for number in 0..NODES {
        cloud.register(number).await?;
    }
    let nodes: Vec<String> = cloud.instances.iter().map(|instance| instance.name.clone()).collect();
    are_initialized(&cloud.fixture, &nodes).await?;

    let incident = Incident { how: "credentials of another account" };
    incident.begins(&cloud.fixture, &nodes).await?;
    cloud.use_other_account().await?;
    cloud.fixture.restart().await?;
    incident
        .permissions_of_others_delete_nothing(&cloud.fixture, &nodes, "cluster-admin, from before the installation")
        .await?;
    revoke(&cloud.fixture).await?;
    incident.is_rehearsed(&cloud.fixture, &nodes).await?;
    incident.is_guarded(&cloud.fixture, &nodes).await?;

    // The cause is found and cured, and one machine is really gone.
    cloud.use_own_account();
    cloud.fixture.restart().await?;
    cloud.moto.terminate(&cloud.instances[0]).await?;
    incident.only_the_gone_node_is_deleted(&cloud.fixture, &nodes).await?;

    cloud.use_other_account().await?;
    cloud.fixture.restart().await?;
    let unready = &nodes[1..2];
    incident.a_new_leader_confirms_nothing(&cloud.fixture, unready).await?;
    incident.what_was_allowed_before_confirms_nothing(&mut cloud.fixture, unready).await?;
    incident.is_lost_without_the_guard(&mut cloud.fixture).await
}

#[tokio::test]
#[ignore = "minutes: make test-reasons"]
async fn with_a_datacenter_without_the_machines() -> Result<()> {
    if !can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible()) {
        return Ok(());
    }
    let mut cloud = vsphere::Cloud::new(Fixture::guarded("vsphere").await?).await?;
    grant(&cloud.fixture, "cluster-admin").await?;
    cloud.create().await?;
    is_refused(&cloud.fixture).await?;
    cloud.fixture.roll_out().await?;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(cloud.register(number).await?.to_owned());
    }
    are_initialized(&cloud.fixture, &nodes).await?;

    let incident = Incident { how: "a datacenter that exists, without the machines" };
    let (empty, own) = (json!([cloud.vcenter.about.empty]), json!([cloud.vcenter.about.datacenter]));
    incident.begins(&cloud.fixture, &nodes).await?;
    cloud.set_vcenter("datacenters", empty.clone()).await?;
    cloud.fixture.roll_out().await?;
    incident
        .permissions_of_others_delete_nothing(&cloud.fixture, &nodes, "cluster-admin, from before the installation")
        .await?;
    revoke(&cloud.fixture).await?;
    incident.is_rehearsed(&cloud.fixture, &nodes).await?;
    incident.is_guarded(&cloud.fixture, &nodes).await?;

    cloud.set_vcenter("datacenters", own).await?;
    cloud.fixture.roll_out().await?;
    cloud.vcenter.change("power-off", cloud.machine(0))?;
    cloud.vcenter.change("destroy", cloud.machine(0))?;
    incident.only_the_gone_node_is_deleted(&cloud.fixture, &nodes).await?;

    cloud.set_vcenter("datacenters", empty).await?;
    cloud.fixture.roll_out().await?;
    incident.is_lost_without_the_guard(&mut cloud.fixture).await
}

async fn are_initialized(fixture: &Fixture, nodes: &[String]) -> Result<()> {
    for node in nodes {
        fixture.tainted(node, "uninitialized", false).await?;
    }
    Ok(())
}

/// A cluster with a mistake that makes a CCM treat all nodes as gone.
struct Incident {
    how: &'static str,
}

impl Incident {
    /// Nodes become unready, all at once, while their machines live.
    async fn begins(&self, fixture: &Fixture, nodes: &[String]) -> Result<()> {
        for node in nodes {
            fixture.set_ready(node, "Unknown", LONG_AGO).await?;
        }
        Ok(())
    }

    /// In a rehearsal no node is deleted, and the status lists all.
    async fn is_rehearsed(&self, fixture: &Fixture, nodes: &[String]) -> Result<()> {
        let started = Instant::now();
        let status = eventually("the status to list the nodes", LONG, async || {
            let status = fixture.status().await?;
            ensure!(names(&status["nodeDeletion"]["waiting"]) == sorted(nodes), "{:#}", status["nodeDeletion"]);
            ensure!(texts(&status["nodes"]["gone"]) == sorted(nodes), "{:#}", status["nodes"]);
            Ok(Some(status))
        });
        let status = status.await.with_context(|| fixture.operator.log())?;
        ensure!(status["nodeDeletion"]["phase"] == "Rehearsal", "{:#}", status["nodeDeletion"]);
        ensure!(existing(fixture, nodes).await? == nodes.len(), "a rehearsal deleted nodes");
        self.note(fixture, "rehearsal", started, "none of 10 nodes deleted, all listed in the status")
    }

    /// Guarded, no node is deleted either: neither while none is ready, nor while one is.
    async fn is_guarded(&self, fixture: &Fixture, nodes: &[String]) -> Result<()> {
        let started = Instant::now();
        fixture
            .patch(json!({
                "controllers": {"cloudNodeLifecycle": "Enabled"}, "nodeDeletion": {"minNotReadySeconds": MIN_NOT_READY},
            }))
            .await?;
        leads_for_long(fixture).await?;
        let why = self.waits(fixture, nodes, "no node of this cloud is ready").await?;
        self.note(fixture, "guarded, no node is ready", started, &why)?;

        let started = Instant::now();
        let (canary, others) = nodes.split_last().context("nodes")?;
        fixture.set_ready(canary, "True", LONG_AGO).await?;
        let why = self.waits(fixture, others, "nodes would be deleted").await?;
        ensure!(existing(fixture, nodes).await? == nodes.len(), "the guard let nodes be deleted");
        self.note(fixture, "guarded, one node is ready", started, &why)
    }

    /// Waits until the status names all these nodes with this reason, and the cloud-controller-manager has tried again.
    async fn waits(&self, fixture: &Fixture, nodes: &[String], why: &str) -> Result<String> {
        let waited = eventually("the status to tell why the nodes stay", LONG, async || {
            let deletion = fixture.status().await?["nodeDeletion"].clone();
            ensure!(deletion["phase"] == "Enabled" && texts(&deletion["confirmed"]).is_empty(), "{deletion:#}");
            ensure!(names(&deletion["waiting"]) == sorted(nodes), "{deletion:#}");
            let messages: Vec<_> = items(&deletion["waiting"]).iter().map(|one| text(&one["message"])).collect();
            ensure!(messages.iter().all(|message| message.contains(why)), "{deletion:#}");
            Ok(Some(text(&deletion["waiting"][0]["message"]).to_owned()))
        });
        let why = waited.await.with_context(|| fixture.operator.log())?;
        tries_again(fixture, nodes).await?;
        ensure!(existing(fixture, nodes).await? == nodes.len(), "the guard let nodes be deleted");
        Ok(why)
    }

    /// Once the cause is cured, the node without a machine goes, and the others stay, ready or not.
    async fn only_the_gone_node_is_deleted(&self, fixture: &Fixture, nodes: &[String]) -> Result<()> {
        let started = Instant::now();
        let (gone, living) = nodes.split_first().context("nodes")?;
        // Those of the days before no longer count when it has led for long.
        let events: Api<Event> = Api::namespaced(fixture.cluster.client.clone(), "default");
        events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        leads_for_long(fixture).await?;
        // One living node stays unready, for another reason.
        for node in &living[1..] {
            fixture.set_ready(node, "True", LONG_AGO).await?;
        }
        eventually("the deletion of the node", LONG, async || {
            ensure!(
                existing(fixture, std::slice::from_ref(gone)).await? == 0,
                "{:#}",
                fixture.status().await?["nodeDeletion"]
            );
            Ok(Some(()))
        })
        .await
        .with_context(|| format!("{}\n{}", fixture.operator.log(), fixture.log()))?;
        ensure!(existing(fixture, living).await? == living.len(), "a node with a machine was deleted");
        let status = eventually("the deletion in the status", LIMIT, async || {
            let status = fixture.status().await?;
            ensure!(texts(&status["nodeDeletion"]["confirmed"]).is_empty(), "{:#}", status["nodeDeletion"]);
            Ok(Some(status))
        });
        status.await?;
        self.note(fixture, "guarded, cured, one machine gone", started, "only its node is deleted")
    }

    /// A permission that somebody else grants deletes no node, in any mode: neither one from before, nor one that comes later.
    async fn permissions_of_others_delete_nothing(
        &self,
        fixture: &Fixture,
        nodes: &[String],
        which: &str,
    ) -> Result<()> {
        for mode in ["Enabled", "Disabled", "Rehearsal"] {
            let started = Instant::now();
            fixture.patch(json!({"controllers": {"cloudNodeLifecycle": mode}})).await?;
            eventually("the mode", LIMIT, async || {
                let status = fixture.status().await?;
                ensure!(status["nodeDeletion"]["phase"] == mode, "{:#}", status["nodeDeletion"]);
                Ok(Some(()))
            })
            .await
            .with_context(|| fixture.operator.log())?;
            // The running program is still that of the rehearsal, which tries in every mode.
            tries_again(fixture, nodes).await?;
            ensure!(existing(fixture, nodes).await? == nodes.len(), "{mode}: nodes were deleted");
            self.note(fixture, &format!("{mode}, with {which}"), started, "none of 10 nodes deleted")?;
        }
        Ok(())
    }

    /// With the permission to delete nodes, and no guard: nothing holds the cloud-controller-manager.
    async fn is_lost_without_the_guard(&self, fixture: &mut Fixture) -> Result<()> {
        let left: Vec<String> = of_cloud(fixture).await?;
        for node in &left {
            fixture.set_ready(node, "Unknown", LONG_AGO).await?;
        }
        grant(fixture, UNGUARDED).await?;
        self.permissions_of_others_delete_nothing(fixture, &left, "a role that came while it ran").await?;
        // Only what nobody should do: the operator is away, and its policy is taken away.
        fixture.operator.terminate()?;
        fixture.operator.wait(LIMIT).await?;
        let started = Instant::now();
        let kind = KINDS.iter().find(|kind| kind.kind == "ValidatingAdmissionPolicyBinding").context("the kind")?;
        let bindings = request::api(&fixture.cluster.client, kind, "");
        bindings.delete(&format!("{}-delete-nodes", fixture.name()), &DeleteParams::default()).await?;
        eventually("the loss of all nodes", LONG, async || {
            let living = of_cloud(fixture).await?;
            ensure!(living.is_empty(), "{living:?}");
            Ok(Some(()))
        })
        .await
        .with_context(|| fixture.log())?;
        // Afterwards the Event shows the reason or, if it was dropped after so many attempts, the log.
        let lost = left.first().context("a node")?;
        fixture.finds(lost, "N21", "cloud provider", &format!("{}, unguarded", self.how)).await?;
        self.note(fixture, "unguarded", started, &format!("all {} nodes deleted, whose machines live", left.len()))
    }

    fn note(&self, fixture: &Fixture, what: &str, started: Instant, printed: &str) -> Result<()> {
        protocol::note(protocol::Row {
            cloud: fixture.provider.to_owned(),
            reason: "incident".to_owned(),
            how: format!("{}: {what}", self.how),
            after: started.elapsed(),
            printed: printed.to_owned(),
        })
    }
}

/// Lets the account of the cloud-controller-manager delete nodes: by this role, which exists or is made for that.
async fn grant(fixture: &Fixture, role: &str) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    if role == UNGUARDED {
        let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]);
        let metadata = json!({"name": role});
        let role =
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        objects::apply(&fixture.cluster.client, role).await?;
    }
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": UNGUARDED},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": fixture.name(), "namespace": "kube-system"}],
    });
    objects::apply(&fixture.cluster.client, binding).await.map(drop)
}

async fn revoke(fixture: &Fixture) -> Result<()> {
    let kind = KINDS.iter().find(|kind| kind.kind == "ClusterRoleBinding").context("the kind")?;
    request::api(&fixture.cluster.client, kind, "").delete(UNGUARDED, &DeleteParams::default()).await?;
    Ok(())
}

/// Sees that an account that may delete nodes already is refused, and insists.
async fn is_refused(fixture: &Fixture) -> Result<()> {
    eventually("the refusal", LIMIT, async || {
        let status = fixture.status().await?;
        let conditions = items(&status["conditions"]).iter().map(|one| text(&one["message"]));
        let why = conditions.filter(|message| message.contains("deletion-permission")).collect::<Vec<_>>();
        ensure!(why.iter().any(|message| message.contains(UNGUARDED)), "{status:#}");
        Ok(Some(()))
    })
    .await
    .with_context(|| fixture.operator.log())?;
    let skip = json!({"metadata": {"annotations": {"ccm-operator.dev/skip-preflight": "deletion-permission"}}});
    fixture.cluster.patch("cluster", skip).await
}

/// Makes the lease tell that the cloud-controller-manager has led for long, once it leads.
async fn leads_for_long(fixture: &Fixture) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(fixture.cluster.client.clone(), "kube-system");
    fixture.says("uccessfully acquired lease").await?;
    let since = (Timestamp::now() - SignedDuration::from_mins(20)).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let patch = Patch::Merge(json!({"spec": {"acquireTime": since}}));
    leases.patch("cloud-controller-manager", &PatchParams::default(), &patch).await?;
    // It renews the lease, and keeps that time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kept =
        leases.get("cloud-controller-manager").await?.spec.and_then(|spec| spec.acquire_time).context("a time")?;
    ensure!(kept.0 < Timestamp::now() - SignedDuration::from_mins(19), "{kept:?}");
    Ok(())
}

/// Waits until the cloud-controller-manager has tried again to delete each of these nodes.
async fn tries_again(fixture: &Fixture, nodes: &[String]) -> Result<()> {
    let tried = || fixture.log().matches("unable to delete node").count();
    let before = tried();
    eventually("another attempt for each node", LIMIT, async || {
        ensure!(tried() > before + nodes.len(), "{}", tried());
        Ok(Some(()))
    })
    .await
}

/// The number of these nodes that still exist.
async fn existing(fixture: &Fixture, nodes: &[String]) -> Result<usize> {
    let all = fixture.nodes().list(&ListParams::default()).await?;
    Ok(all.iter().filter(|node| nodes.contains(&node.name_any())).count())
}

/// The nodes with a machine, or that had one.
async fn of_cloud(fixture: &Fixture) -> Result<Vec<String>> {
    let all = fixture.nodes().list(&ListParams::default()).await?;
    let has_id = |node: &&Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
    Ok(all.iter().filter(has_id).map(ResourceExt::name_any).collect())
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

/// The nodes of a list of the status.
fn names(list: &Value) -> Vec<String> {
    sorted(&items(list).iter().map(|one| text(&one["node"]).to_owned()).collect::<Vec<_>>())
}

fn texts(list: &Value) -> Vec<String> {
    sorted(&items(list).iter().map(|one| text(one).to_owned()).collect::<Vec<_>>())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
