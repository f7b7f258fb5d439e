//! The guard of nodes on a real control plane: each rule of the policy, and the two steps of the operator.

mod proof;
mod rehearsal;

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    api::placement::Distribution,
    cluster::request,
    facts::{
        ccm::{Ccm, Deletable},
        cluster::Cluster,
        version::Minor,
    },
    object::{KINDS, Kind, NODE, Object},
    plan::{Plan, kubernetes::guard},
    provider::embedded,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, message},
    support::{
        audit::{Mark, Request},
        control_plane::{ControlPlane, Options},
        eventually,
        kubernetes::Kubernetes,
        objects,
        operator::Operator,
        pool::Lease,
    },
};

const USER: &str = "system:serviceaccount:kube-system:aws-cloud-controller-manager";
const NAME: &str = "aws-cloud-controller-manager-delete-nodes";
/// The node that the cloud-controller-manager runs on.
const CONTROL_PLANE: &str = "control-plane";

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|known| known.kind == name).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A client that acts as a user.
fn client_as(plane: &Lease, user: &str) -> Result<Client> {
    let mut config = plane.config()?;
    config.auth_info.impersonate = Some(user.to_owned());
    Ok(Client::try_from(config)?)
}

fn nodes(client: &Client) -> Api<DynamicObject> {
    request::api(client, &NODE, "")
}

/// Creates a worker of the cloud, not ready since a time; then makes it what is given besides.
async fn add_node(client: &Client, name: &str, since: Timestamp, besides: Value) -> Result<DynamicObject> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"example.com/account": "one"}},
        "spec": {"providerID": format!("aws:///eu-west-1a/i-{name}")},
    });
    objects::apply(client, node).await?;
    set_ready(client, name, "Unknown", since).await?;
    // Admission taints a new node.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes(client).patch(name, &PatchParams::default(), &untainted).await?;
    if besides.get("status").is_some() {
        nodes(client).patch_status(name, &PatchParams::default(), &Patch::Merge(besides)).await?;
    } else {
        nodes(client).patch(name, &PatchParams::default(), &Patch::Merge(besides)).await?;
    }
    Ok(nodes(client).get(name).await?)
}

async fn set_ready(client: &Client, name: &str, status: &str, since: Timestamp) -> Result<()> {
    let ready = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": since, "lastTransitionTime": since});
    let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    nodes(client).patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The entry of a node in its state.
fn entry(node: &DynamicObject) -> String {
    let (name, uid) = (node.metadata.name.as_ref().unwrap(), node.metadata.uid.as_ref().unwrap());
    let since = node.data["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap_or("never");
    format!("{name}/{uid}/{since}")
}

/// The planned objects of the guard.
fn planned() -> Result<Vec<Object>> {
    let spec = json!({"provider": "aws", "controllers": {"cloudNodeLifecycle": "Enabled"},
        "nodeDeletion": {"selector": {"matchLabels": {"example.com/account": "one"}}}});
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    let ccm = Ccm { name: "cluster".into(), spec: serde_json::from_value(spec)?, cluster, skips: Vec::new() };
    let plan = Plan::of_ccm(&embedded::catalog()?, &ccm)?;
    Ok(plan.objects().iter().filter(|object| guard::is_of_guard(object.value())).cloned().collect())
}

/// Deletes a node, and returns the refusal of the API server.
async fn delete(client: &Client, name: &str) -> Result<(), String> {
    delete_with(client, name, &DeleteParams::default()).await
}

async fn delete_with(client: &Client, name: &str, parameters: &DeleteParams) -> Result<(), String> {
    match nodes(client).delete(name, parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn each_rule_of_the_policy_denies_a_deletion_that_no_other_does() -> Result<()> {
    let plane: Lease = ControlPlane::start(Options::default()).await?.into();
    let client = plane.client()?;
    let ccm = client_as(&plane, USER)?;
    let since = ago(700);
    let uninitialized =
        json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    let control_plane = json!({"node-role.kubernetes.io/control-plane": ""});
    let allowed = json!({"ccm-operator.dev/allow-control-plane-deletion": "true"});
    let cases = [
        (
            "kept",
            json!({"metadata": {"annotations": {"ccm-operator.dev/keep": ""}}}),
            "it has the annotation ccm-operator.dev/keep",
        ),
        (
            "others",
            json!({"metadata": {"labels": {"example.com/account": "two"}}}),
            "its labels do not match spec.nodeDeletion.selector",
        ),
        ("waits", json!({"spec": {"taints": uninitialized}}), "it is not initialized"),
        (
            "lives",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since,
            "lastHeartbeatTime": since, "reason": "x", "message": ""}]}}),
            "it is ready, or its kubelet has never reported",
        ),
        ("silent", json!({"status": {"conditions": null}}), "it is ready, or its kubelet has never reported"),
        ("server", json!({"metadata": {"labels": control_plane}}), "it belongs to the control plane or etcd"),
        (
            "etcd",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/etcd": "true"}}}),
            "it belongs to the control plane or etcd",
        ),
        ("unlisted", json!({}), "its deletion is not confirmed"),
        ("again", json!({}), "its deletion is not confirmed"),
        ("new", json!({}), "its deletion is not confirmed"),
        ("gone", json!({}), ""),
        ("old-server", json!({"metadata": {"labels": control_plane, "annotations": allowed}}), ""),
    ];
    let mut all = Deletable::default();
    for (name, besides, _) in &cases {
        let node = add_node(&client, name, since, besides.clone()).await?;
        all.granted.insert((*name).to_owned());
        if *name != "unlisted" {
            all.listed.insert(entry(&node));
        }
    }
    // One that is of another cloud from its registration: a providerID cannot be changed.
    let foreign = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "foreign",
        "labels": {"example.com/account": "one"}}, "spec": {"providerID": "gce:///p/z/i"}});
    objects::apply(&client, foreign).await?;
    set_ready(&client, "foreign", "False", since).await?;
    nodes(&client).patch("foreign", &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}}))).await?;
    all.listed.insert(entry(&nodes(&client).get("foreign").await?));
    all.granted.insert("foreign".to_owned());
    // The node was ready in the meantime; the node was recreated.
    set_ready(&client, "again", "Unknown", ago(600)).await?;
    nodes(&client).delete("new", &DeleteParams::default()).await?;
    add_node(&client, "new", since, json!({})).await?;

    for mut object in planned()? {
        guard::confirm(&mut object, &all);
        objects::apply(&client, object.value().clone()).await?;
    }
    eventually("the policy in force", LIMIT, async || {
        let answer = delete_with(&ccm, "unlisted", &DeleteParams::default().dry_run()).await;
        ensure!(answer.as_ref().is_err_and(|why| why.contains("its deletion is not confirmed")), "{answer:?}");
        Ok(Some(()))
    })
    .await?;
    let policies = request::api(&client, kind("ValidatingAdmissionPolicy"), "");
    let foreign = [("foreign", json!({}), "its providerID is not of this cloud")];
    for (name, _, why) in cases.iter().chain(&foreign) {
        let answer = delete(&ccm, name).await;
        if why.is_empty() {
            assert_eq!(answer, Ok(()), "{name}");
        } else {
            let answer = answer.expect_err(name);
            assert!(answer.starts_with("403 ") && answer.contains(&format!("kept: {why}")), "{name}: {answer}");
        }
    }
    // The permission is by name, and nobody else is concerned.
    add_node(&client, "other", since, json!({})).await?;
    let answer = delete(&ccm, "other").await.expect_err("not granted");
    assert!(answer.contains("cannot delete resource"), "{answer}");
    assert_eq!(delete(&client, "lives").await, Ok(()));
    let live = policies.get(NAME).await?;
    assert_eq!(live.data["status"]["typeChecking"]["expressionWarnings"], Value::Null, "{:#}", live.data["status"]);
    let policy = planned()?.remove(0);
    assert_eq!(guard::listed(&policy, &serde_json::to_value(&live)?), Some(all.listed), "as planned");
    Ok(())
}

/// A cluster with an operator that may let nodes be deleted, and a `CloudControllerManager` of AWS.
struct Fixture {
    cluster: Kubernetes,
    operator: Operator,
    /// Acts as the cloud-controller-manager.
    ccm: Client,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let cluster = Kubernetes::new("aws").await?;
        cluster.install_with(&["--providers", "aws", "--node-deletion"]).await?;
        let operator = start(&cluster)?;
        let client = &cluster.client;
        add_node(client, "lives", ago(3600), json!({})).await?;
        set_ready(client, "lives", "True", ago(3600)).await?;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
            "spec": {"holderIdentity": "control-plane_1", "acquireTime": format!("{}", ago(3600)).replace('Z', ".000000Z")},
        });
        objects::apply(client, lease).await?;
        add_pod(client, CONTROL_PLANE, "1").await?;
        let controllers = json!({"cloudNodeLifecycle": "Enabled"});
        cluster.create("cluster", json!({"provider": "aws", "controllers": controllers})).await?;
        cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
        let ccm = client_as(&cluster.plane, USER)?;
        Ok(Self { cluster, operator, ccm })
    }

    /// A node whose machine is gone, and what the cloud-controller-manager reports.
    async fn lose(&self, name: &str, seconds: i64) -> Result<DynamicObject> {
        let node = add_node(&self.cluster.client, name, ago(seconds), json!({})).await?;
        self.ask_for(&node).await?;
        Ok(node)
    }

    /// Requests the deletion of a node, and writes the Events, as a cloud-controller-manager does for a node that is gone.
    async fn ask_for(&self, node: &DynamicObject) -> Result<()> {
        let name = node.metadata.name.clone().context("a name")?;
        let refusal = delete(&self.ccm, &name).await.expect_err("a node that is not confirmed");
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.1"), "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid},
            "reason": "DeletingNodeFailed", "type": "Warning", "count": 3, "lastTimestamp": now(),
            "message": format!("Failed deleting node {name}: {}", refusal.trim_start_matches("403 ")),
            "source": {"component": "cloud-node-lifecycle-controller"},
        });
        objects::apply(&self.cluster.client, event).await.map(drop)
    }

    async fn role(&self) -> Result<Value> {
        let live = request::api(&self.cluster.client, kind("ClusterRole"), "").get(NAME).await?;
        // The API server stores an empty list as none.
        Ok(Some(&live.data["rules"]).filter(|rules| !rules.is_null()).cloned().unwrap_or(json!([])))
    }

    /// The list in the policy.
    async fn listed(&self) -> Result<String> {
        let live = request::api(&self.cluster.client, kind("ValidatingAdmissionPolicy"), "").get(NAME).await?;
        Ok(live.data["spec"]["variables"][0]["expression"].as_str().unwrap_or_default().to_owned())
    }

    async fn role_is(&self, rules: &Value) -> Result<()> {
        let waited = eventually("the role", LIMIT, async || {
            let found = self.role().await?;
            ensure!(found == *rules, "{found}");
            Ok(Some(()))
        });
        waited.await.with_context(|| self.operator.log())
    }

    async fn list_is(&self, list: &str) -> Result<()> {
        let waited = eventually("the list", LIMIT, async || {
            let found = self.listed().await?;
            ensure!(found == list, "{found}");
            Ok(Some(()))
        });
        waited.await.with_context(|| self.operator.log())
    }

    /// The operator's writes of the policy and of the role since a mark.
    async fn writes(&self, since: Mark) -> Result<Vec<Request>> {
        let mut requests = self.cluster.requests(since).await?;
        requests.retain(|one| one.counts_as_write() && one.name == NAME);
        Ok(requests)
    }

    async fn status(&self) -> Result<Value> {
        Ok(serde_json::to_value(self.cluster.ccms().get("cluster").await?)?["status"]["nodeDeletion"].clone())
    }
}

/// Creates a pod of the cloud-controller-manager on a node, of the template with this hash.
async fn add_pod(client: &Client, node: &str, template: &str) -> Result<()> {
    let labels = json!({
        "app.kubernetes.io/name": "aws-cloud-controller-manager", "app.kubernetes.io/instance": "cluster",
        "controller-revision-hash": template,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("aws-{node}-{template}"), "namespace": "kube-system", "labels": labels},
        "spec": {"nodeName": node, "hostNetwork": true, "containers": [{"name": "a", "image": "a"}]},
    });
    objects::apply(client, pod).await.map(drop)
}

fn start(cluster: &Kubernetes) -> Result<Operator> {
    cluster.start_with(&["--namespaces=kube-system", "--node-deletion"])
}

fn granting(names: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": names}])
}

fn resources(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|one| one.resource.as_str()).collect()
}

#[tokio::test]
async fn a_node_whose_machine_is_gone_is_listed_then_granted_then_deleted_and_withdrawn() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    // Nothing is asked for while there is nothing to delete.
    let mark = fixture.cluster.mark().await?;
    add_node(client, "fine", ago(3600), json!({})).await?;
    set_ready(client, "fine", "True", ago(3600)).await?;
    fixture.cluster.patch("cluster", json!({"spec": {"nodeDeletion": {"maxPerHour": 1}}})).await?;
    fixture.cluster.ready(&fixture.operator, "cluster").await?;
    let asked: Vec<_> = fixture.cluster.requests(mark).await?;
    let asked: Vec<_> =
        asked.iter().filter(|one| one.resource != "cloudcontrollermanagers" && !one.is_lease()).collect();
    assert!(asked.is_empty(), "{asked:#?}");

    let mark = fixture.cluster.mark().await?;
    let gone = fixture.lose("gone", 700).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    assert_eq!(fixture.listed().await?, format!("['{}']", entry(&gone)));
    let writes = fixture.writes(mark).await?;
    assert_eq!(resources(&writes), ["validatingadmissionpolicies", "clusterroles"]);
    let pause = writes[1].at.duration_since(writes[0].at);
    assert!(pause >= SignedDuration::from_secs(5), "every API server must have read the policy: {pause}");
    eventually("the review of the permissions", LIMIT, async || {
        let asked = fixture.cluster.requests(mark).await?;
        ensure!(asked.iter().any(|one| one.resource == "subjectaccessreviews"), "{asked:#?}");
        Ok(Some(()))
    })
    .await?;

    let mark = fixture.cluster.mark().await?;
    let deleted = eventually("the deletion", LIMIT, async || {
        delete(&fixture.ccm, "gone").await.map(Some).map_err(anyhow::Error::msg)
    });
    deleted.await?;
    fixture.list_is("[]").await?;
    assert_eq!(fixture.role().await?, json!([]));
    assert_eq!(resources(&fixture.writes(mark).await?), ["clusterroles", "validatingadmissionpolicies"]);
    let status = eventually("the status", LIMIT, async || {
        let status = fixture.status().await?;
        ensure!(status["deleted"][0]["node"] == "gone", "{status}");
        Ok(Some(status))
    })
    .await?;
    assert_eq!(status["phase"], "Enabled");

    // One an hour.
    fixture.lose("second", 800).await?;
    let live = eventually("the second node to wait", LIMIT, async || {
        let status = fixture.status().await?;
        ensure!(status["waiting"][0]["node"] == "second", "{status}");
        Ok(Some(status))
    })
    .await?;
    assert!(live["waiting"][0]["message"].as_str().unwrap().contains("maxPerHour"), "{live}");
    // Unless somebody allows it.
    let allowed = entry(&nodes(client).get("second").await?);
    fixture.cluster.patch("cluster", json!({"spec": {"nodeDeletion": {"allow": [allowed]}}})).await?;
    fixture.role_is(&granting(&["second"])).await?;
    // It comes back: somebody erred, or its machine was repaired. Months later it goes away again, and that is another question.
    set_ready(client, "second", "True", now()).await?;
    fixture.role_is(&json!([])).await?;
    set_ready(client, "second", "Unknown", ago(700)).await?;
    eventually("the node to wait", LIMIT, async || {
        let status = fixture.status().await?;
        ensure!(status["waiting"][0]["node"] == "second", "{status}");
        Ok(Some(()))
    })
    .await?;
    assert_eq!((fixture.listed().await?, fixture.role().await?), ("[]".to_owned(), json!([])));
    Ok(())
}

#[tokio::test]
async fn a_grant_ends_with_a_flap_a_changed_policy_and_the_operator() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    let policies = request::api(client, kind("ValidatingAdmissionPolicy"), "");
    let bindings = request::api(client, kind("ValidatingAdmissionPolicyBinding"), "");
    let gone = fixture.lose("gone", 700).await?;
    let granted = granting(&["gone"]);
    fixture.role_is(&granted).await?;

    // The policy, the binding, and a change of one empty the grant at once; it comes back after the policy was live again.
    let change = Patch::Merge(json!({"spec": {"validationActions": ["Audit"]}}));
    for attempt in 0..3 {
        let mark = fixture.cluster.mark().await?;
        match attempt {
            0 => drop(policies.delete(NAME, &DeleteParams::default()).await?),
            1 => drop(bindings.delete(NAME, &DeleteParams::default()).await?),
            _ => drop(bindings.patch(NAME, &PatchParams::default(), &change).await?),
        }
        eventually("the grant to come back", LIMIT, async || {
            let writes = fixture.writes(mark).await?;
            let of_role: Vec<_> = writes.iter().filter(|one| one.resource == "clusterroles").collect();
            ensure!(of_role.len() == 2, "{attempt}: {writes:#?}");
            let (emptied, back) = (of_role[0].at, of_role[1].at);
            let repaired = writes.iter().find(|one| one.resource != "clusterroles").context("a repair")?.at;
            ensure!(back.duration_since(repaired) >= SignedDuration::from_secs(5), "{attempt}: {writes:#?}");
            ensure!(emptied.duration_since(repaired) < SignedDuration::from_secs(2), "{attempt}: {writes:#?}");
            Ok(Some(()))
        })
        .await?;
        fixture.role_is(&granted).await?;
    }

    // The node was ready in the meantime: the policy sees this before the operator does.
    set_ready(client, "gone", "Unknown", ago(650)).await?;
    let refusal = delete(&fixture.ccm, "gone").await.expect_err("another state");
    assert!(refusal.contains("its deletion is not confirmed"), "{refusal}");
    let again = nodes(client).get("gone").await?;
    assert_ne!(entry(&again), entry(&gone));
    fixture.list_is(&format!("['{}']", entry(&again))).await?;
    fixture.role_is(&granted).await?;
    // And once it is ready nothing is granted.
    set_ready(client, "gone", "True", now()).await?;
    fixture.list_is("[]").await?;
    assert_eq!(fixture.role().await?, json!([]));

    // An orderly stop takes everything back, the grant first.
    set_ready(client, "gone", "Unknown", ago(660)).await?;
    fixture.ask_for(&again).await?;
    fixture.role_is(&granted).await?;
    let mark = fixture.cluster.mark().await?;
    fixture.operator.terminate()?;
    fixture.operator.wait(LIMIT).await?;
    assert_eq!((fixture.role().await?, fixture.listed().await?.as_str()), (json!([]), "[]"));
    assert_eq!(resources(&fixture.writes(mark).await?), ["clusterroles", "validatingadmissionpolicies"]);

    // Nobody else may grant the permission, or the guard is not in force.
    let operator = start(&fixture.cluster)?;
    let free = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "free"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "aws-cloud-controller-manager", "namespace": "kube-system"}]});
    objects::apply(client, free).await?;
    // A change of permissions asks again.
    request::api(client, kind("ClusterRoleBinding"), "")
        .patch(NAME, &PatchParams::default(), &Patch::Merge(json!({"metadata": {"annotations": {"x": "y"}}})))
        .await?;
    let live = fixture.cluster.conditions(&operator, "cluster", &["NodeDeletionSafe=False"]).await?;
    assert!(
        message(&live, "NodeDeletionSafe").contains("by a permission that the operator has not granted"),
        "{live:#}"
    );
    fixture.list_is("[]").await?;

    // Once it is taken away, a start notices, although no node is to be deleted any more.
    set_ready(client, "gone", "True", now()).await?;
    request::api(client, kind("ClusterRoleBinding"), "").delete("free", &DeleteParams::default()).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = start(&fixture.cluster)?;
    fixture.cluster.conditions(&operator, "cluster", &["NodeDeletionSafe=True"]).await.map(drop)
}

/// Lets the API server refuse new accounts in kube-system, and deletes the one of the cloud-controller-manager.
async fn lose_account(client: &Client) -> Result<()> {
    let admission = "admissionregistration.k8s.io/v1";
    let metadata = json!({"name": "no-accounts"});
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["serviceaccounts"]});
    let policy = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "message": "no accounts today"}],
    }});
    let binding = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": "no-accounts", "validationActions": ["Deny"]}});
    objects::apply(client, policy).await?;
    objects::apply(client, binding).await?;
    let accounts = request::api(client, kind("ServiceAccount"), "kube-system");
    eventually("the refusal of accounts", LIMIT, async || {
        let probe = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "probe", "namespace": "kube-system"}});
        let answer = objects::apply(client, probe).await;
        if answer.is_ok() {
            accounts.delete("probe", &DeleteParams::default()).await?;
        }
        ensure!(answer.is_err(), "it is created");
        Ok(Some(()))
    })
    .await?;
    accounts.delete("aws-cloud-controller-manager", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_permission_is_taken_back_whatever_else_is_wrong() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    let roles = request::api(client, kind("ClusterRole"), "");
    let gone = fixture.lose("gone", 700).await?;
    let granted = granting(&["gone"]);
    fixture.role_is(&granted).await?;

    // During a pause nothing else is changed.
    let manage = async |how: &str| fixture.cluster.patch("cluster", json!({"spec": {"management": how}})).await;
    manage("Paused").await?;
    fixture.role_is(&json!([])).await?;
    manage("Managed").await?;
    fixture.role_is(&granted).await?;

    // A role that is to be left alone keeps the permission, and the status does not hide it.
    let annotate = async |value: Value| -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"client.lifecycle.config.k8s.io/mutation": value}}});
        roles.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    };
    let keep = async |value: Value| -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"ccm-operator.dev/keep": value}}}));
        nodes(client).patch("gone", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    annotate(json!("ignore")).await?;
    keep(json!("")).await?;
    let live = fixture.cluster.conditions(&fixture.operator, "cluster", &["NodeDeletionSafe=False"]).await?;
    assert!(message(&live, "NodeDeletionSafe").contains("could not be withdrawn"), "{live:#}");
    let uid = gone.metadata.uid.as_ref().context("a uid")?;
    assert_eq!(live["status"]["nodeDeletion"]["confirmed"], json!([format!("gone/{uid}")]), "it may still go");
    annotate(Value::Null).await?;
    fixture.role_is(&json!([])).await?;
    fixture.cluster.conditions(&fixture.operator, "cluster", &["NodeDeletionSafe=True"]).await?;
    keep(Value::Null).await?;
    fixture.role_is(&granted).await?;

    // While another object fails nothing is pruned, and the permission goes all the same.
    lose_account(client).await?;
    fixture.cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNodeLifecycle": "Rehearsal"}}})).await?;
    fixture.role_is(&json!([])).await?;
    let live =
        fixture.cluster.conditions(&fixture.operator, "cluster", &["Ready=False", "NodeDeletionSafe=True"]).await?;
    assert!(live["status"]["nodeDeletion"]["confirmed"].as_array().is_none_or(Vec::is_empty), "{live:#}");
    assert_eq!(fixture.role().await?, json!([]), "it still exists");
    Ok(())
}

#[tokio::test]
async fn without_the_events_nothing_is_confirmed_and_the_status_says_so() -> Result<()> {
    let Fixture { cluster, operator, ccm } = Fixture::new().await?;
    let bindings = request::api(&cluster.client, kind("RoleBinding"), "default");
    let mut binding = bindings.get("ccm-operator-node-events").await?;
    bindings.delete("ccm-operator-node-events", &DeleteParams::default()).await?;
    drop(operator);
    let operator = start(&cluster)?;
    let fixture = Fixture { cluster, operator, ccm };
    fixture.lose("gone", 700).await?;
    let live = fixture.cluster.conditions(&fixture.operator, "cluster", &["NodeDeletionSafe=Unknown"]).await?;
    let conditions = live["status"]["conditions"].as_array().context("conditions")?;
    let condition = conditions.iter().find(|one| one["type"] == "NodeDeletionSafe").context("NodeDeletionSafe")?;
    assert_eq!(condition["reason"], "EventsUnseen", "{condition}");
    assert!(condition["message"].as_str().is_some_and(|text| text.contains("events")), "{condition}");
    assert_eq!((fixture.listed().await?, fixture.role().await?), ("[]".to_owned(), json!([])));

    binding.metadata = ObjectMeta { name: binding.metadata.name, ..ObjectMeta::default() };
    bindings.create(&PostParams::default(), &binding).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    fixture.cluster.conditions(&fixture.operator, "cluster", &["NodeDeletionSafe=True"]).await.map(drop)
}

#[tokio::test]
async fn a_rehearsal_names_the_nodes_to_delete_and_grants_no_permission() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    let enabled = json!({"provider": "aws", "controllers": {"cloudNodeLifecycle": "Enabled"}});
    cluster.create("cluster", enabled).await?;
    // Without the permissions of the installation it ends here.
    let live = cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await?;
    assert!(message(&live, "ConfigurationValid").contains("--node-deletion"), "{live:#}");
    drop((operator, cluster));

    let fixture = Fixture::new().await?;
    fixture.lose("gone", 700).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    // Back to the rehearsal: the permission goes, and the policy stays and lists nothing.
    let mark = fixture.cluster.mark().await?;
    fixture.cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNodeLifecycle": "Rehearsal"}}})).await?;
    let of_guard = |all: &[String]| all.iter().filter(|object| object.ends_with(NAME)).count();
    fixture.cluster.objects_are(&fixture.operator, Some("cluster"), |all| of_guard(all) == 2).await?;
    fixture.list_is("[]").await?;
    let writes = fixture.writes(mark).await?;
    let first = writes.first().context("a write")?;
    assert_eq!((first.verb.as_str(), first.resource.as_str()), ("patch", "clusterroles"), "the permission goes first");
    let deletions: Vec<_> = writes.into_iter().filter(|one| one.verb == "delete").collect();
    assert!(resources(&deletions).iter().all(|resource| resource.starts_with("clusterrole")), "{deletions:?}");
    let live =
        fixture.cluster.conditions(&fixture.operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
    let deletion = &live["status"]["nodeDeletion"];
    assert_eq!(deletion["phase"], "Rehearsal", "{deletion}");
    assert_eq!(live["status"]["nodes"]["gone"], json!(["gone"]));
    let refusal = delete(&fixture.ccm, "gone").await.expect_err("a rehearsal");
    assert!(refusal.contains("cannot delete resource"), "{refusal}");

    // Removed while it may delete a node: an API server may know the role for a little longer than the operator does.
    fixture.cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNodeLifecycle": "Enabled"}}})).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    let mark = fixture.cluster.mark().await?;
    fixture.cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    fixture.cluster.objects_are(&fixture.operator, Some("cluster"), <[String]>::is_empty).await?;
    let writes = fixture.writes(mark).await?;
    let narrowed = writes.first().context("a write")?;
    assert_eq!((narrowed.verb.as_str(), narrowed.resource.as_str()), ("patch", "clusterroles"));
    for one in writes.iter().filter(|one| one.verb == "delete" && one.resource.starts_with("validating")) {
        let pause = one.at.duration_since(narrowed.at);
        assert!(pause >= SignedDuration::from_secs(4), "{}: {pause}", one.resource);
    }
    Ok(())
}

#[tokio::test]
async fn a_paused_removed_or_unreadable_ccm_reports_no_old_state() -> Result<()> {
    let fixture = Fixture::new().await?;
    let client = &fixture.cluster.client;
    let status = async |what: &str, is_so: &dyn Fn(&Value, &Value) -> bool| {
        let waited = eventually(what, LIMIT, async || {
            let live = serde_json::to_value(fixture.cluster.ccms().get("cluster").await?)?;
            let safe = live["status"]["conditions"].as_array().into_iter().flatten();
            let safe = safe.clone().find(|one| one["type"] == "NodeDeletionSafe").cloned().unwrap_or_default();
            ensure!(live["status"]["observedGeneration"] == live["metadata"]["generation"], "{live:#}");
            ensure!(is_so(&live["status"], &safe), "{:#}", live["status"]);
            Ok(Some(()))
        });
        waited.await.with_context(|| fixture.operator.log())
    };
    fixture.lose("gone", 700).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    let names = |nodes: &Value| {
        let nodes = nodes.as_array().into_iter().flatten();
        nodes.filter_map(|one| one["node"].as_str().or(one.as_str()).map(str::to_owned)).collect::<Vec<_>>()
    };

    // A pause revokes the permission, and the checks continue.
    fixture.cluster.patch("cluster", json!({"spec": {"management": "Paused"}})).await?;
    status("the pause", &|status, safe| {
        names(&status["nodeDeletion"]["waiting"]) == ["gone"]
            && status["nodeDeletion"]["waiting"][0]["message"].as_str().is_some_and(|text| text.contains("Paused"))
            && (&safe["status"], &safe["reason"]) == (&json!("True"), &json!("Paused"))
            && status["nodeDeletion"]["confirmed"] == json!([])
    })
    .await?;
    fixture.lose("too", 650).await?;
    status("another node", &|status, _| {
        names(&status["nodeDeletion"]["waiting"]) == ["gone", "too"]
            && names(&status["nodes"]["gone"]) == ["gone", "too"]
    })
    .await?;
    set_ready(client, "too", "True", now()).await?;
    status("it to be back", &|status, _| {
        names(&status["nodeDeletion"]["waiting"]) == ["gone"] && names(&status["nodes"]["gone"]) == ["gone"]
    })
    .await?;

    // An installation without the flag: what the object asks for cannot be brought about.
    fixture.cluster.patch("cluster", json!({"spec": {"management": "Managed"}})).await?;
    fixture.role_is(&granting(&["gone"])).await?;
    fixture.operator.terminate()?;
    fixture.operator.wait(LIMIT).await?;
    let other = fixture.cluster.start()?;
    status("the bad input", &|status, safe| {
        (&safe["status"], &safe["reason"]) == (&json!("Unknown"), &json!("BadInput"))
            && status["nodeDeletion"]["waiting"] == json!([])
            && status["nodeDeletion"]["confirmed"] == json!([])
            && status["nodes"]["gone"] == json!([])
    })
    .await?;
    other.terminate()?;
    other.wait(LIMIT).await?;

    let operator = start(&fixture.cluster)?;
    fixture.role_is(&granting(&["gone"])).await?;
    fixture.cluster.conditions(&operator, "cluster", &["NodeDeletionSafe=True"]).await?;
    fixture.cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    status("the removal", &|status, safe| {
        (&safe["status"], &safe["reason"]) == (&json!("Unknown"), &json!("Removed"))
            && status["nodeDeletion"]["phase"] == "Removed"
            && status["nodeDeletion"]["waiting"] == json!([])
            && status["nodeDeletion"]["confirmed"] == json!([])
            && status["nodes"]["gone"] == json!([])
    })
    .await
}

/// Enough of them for the limit of writes that nobody else has caused.
const OUTAGE: usize = 45;

#[tokio::test]
async fn an_outage_is_reported_once_for_each_node_without_a_culprit() -> Result<()> {
    let fixture = Fixture::new().await?;
    for number in 0..OUTAGE {
        fixture.lose(&format!("node-{number:02}"), 700).await?;
    }
    let live = eventually("all of them to wait", LIMIT, async || {
        let status = fixture.status().await?;
        let text = status["waiting"][0]["message"].as_str().unwrap_or_default();
        ensure!(text.starts_with(&format!("{OUTAGE} of ")), "{status:#}");
        Ok(Some(status))
    })
    .await?;
    fixture.operator.ask()?;
    eventually("the answer", LIMIT, async || Ok(fixture.operator.log().contains("the watches of").then_some(())))
        .await?;
    let log = fixture.operator.log();
    let held = |number: usize| {
        let node = format!("Node node-{number:02}: ");
        log.lines().filter(|line| line.contains(&node) && line.contains("nodeDeletion.maxPercent")).count()
    };
    let repeated: Vec<_> = (0..OUTAGE).filter(|number| held(*number) > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?} are told again: {log}");
    assert!(!log.contains("another writer"), "{log}");
    assert_eq!(live["waiting"][0]["reason"], "TooManyNodes", "{live:#}");
    Ok(())
}

#[tokio::test]
async fn a_lease_that_may_not_be_read_is_said_to_be_so() -> Result<()> {
    let fixture = Fixture::new().await?;
    let roles = request::api(&fixture.cluster.client, kind("Role"), "kube-system");
    for role in roles.list(&ListParams::default()).await? {
        let granted = role.data["rules"].as_array().cloned().unwrap_or_default();
        let others: Vec<_> = granted.iter().filter(|rule| rule["resources"] != json!(["leases"])).cloned().collect();
        let name = role.metadata.name.context("a name")?;
        if name.starts_with("ccm-operator") && others != granted {
            roles.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"rules": others}))).await?;
        }
    }
    fixture.lose("gone", 700).await?;
    let waited = eventually("the reason", LIMIT, async || {
        let status = fixture.status().await?;
        let text = status["waiting"][0]["message"].as_str().unwrap_or_default();
        let lease = "leases.coordination.k8s.io cloud-controller-manager in namespace kube-system";
        ensure!(text.contains(lease) && text.contains("forbidden"), "{status:#}");
        Ok(Some(()))
    });
    waited.await.with_context(|| fixture.operator.log())
}
