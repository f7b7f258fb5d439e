//! `nodes`: why nodes wait, read from a real control plane with the permissions of the caller. The objects are made by hand; a stand-in
//! kubelet serves the log.

mod gone;
pub(crate) mod kubelet;

use std::{os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cli::{self, Cli, Command as CliCommand},
    cluster::request,
    facts::DOCUMENTS,
};
use clap::Parser;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    diff,
    lab::{LIMIT, Lab, binary},
    pages::{self, terminal},
    support::{
        eventually,
        faults::{Fault, Faults, Rule, Seen},
        kubernetes::Kubernetes,
        objects,
        openshift::Cluster,
    },
};
use kubelet::Kubelet;

const NAME: &str = "aws-cloud-controller-manager";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

async fn run(kubeconfig: &Path, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let output = diff::run(kubeconfig, &[&["nodes"], arguments].concat()).await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

/// Applies a node: its status, and its specification.
async fn node(cluster: &Kubernetes, name: &str, ready: &str, spec: Value) -> Result<()> {
    let labels = json!({"topology.kubernetes.io/zone": "eu-west-1a", "topology.kubernetes.io/region": "eu-west-1"});
    let mut node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec});
    objects::apply(&cluster.client, node.clone()).await?;
    let now = Timestamp::now();
    node["status"] = json!({"conditions": [{"type": "Ready", "status": ready, "reason": "Test", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now}]});
    objects::apply_status(&cluster.client, node).await.map(drop)
}

fn waiting() -> Value {
    json!({"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]})
}

/// A cluster in which `CloudControllerManager`s can be listed: a kind that has just been defined is served a moment later.
async fn cluster(providers: &str) -> Result<Kubernetes> {
    let cluster = Kubernetes::new(providers).await?;
    eventually("the kind", LIMIT, async || Ok(Some(cluster.ccms().list(&ListParams::default()).await?))).await?;
    Ok(cluster)
}

/// A cluster in which one cloud-controller-manager of AWS is asked for, with nothing of it but its DaemonSet.
async fn with_ccm(cluster: &Kubernetes) -> Result<()> {
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let labels = json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": "cluster"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let workload = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    });
    objects::apply(&cluster.client, workload).await.map(drop)
}

/// Replaces its only pod.
async fn pod(cluster: &Kubernetes, node: Option<&str>, status: Value) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    let name = format!("{NAME}-x");
    // Without a kubelet a pod on a node goes only so.
    let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
    let labels = json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": "cluster"});
    let container = json!({"name": "cloud-controller-manager", "image": "registry.example/ccm:1",
        "args": ["--cloud-provider=aws", "--controllers=cloud-node-controller,service-lb-controller"]});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"nodeName": node, "hostNetwork": true, "containers": [container]},
    });
    eventually("the old pod to go", LIMIT, async || Ok(Some(objects::apply(&cluster.client, pod.clone()).await?)))
        .await?;
    pod["status"] = status;
    objects::apply_status(&cluster.client, pod).await.map(drop)
}

fn running() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

async fn lease(cluster: &Kubernetes, holder: &str) -> Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        // No wait of this test is as long.
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now},
    });
    objects::apply(&cluster.client, lease).await.map(drop)
}

/// Grants rules in the cluster to a new ServiceAccount of kube-system.
async fn account(cluster: &Kubernetes, name: &str, rules: Value) -> Result<()> {
    let metadata = json!({"name": name, "namespace": "kube-system"});
    let group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}]}),
    ] {
        objects::apply(&cluster.client, object).await?;
    }
    Ok(())
}

/// The permissions that a cloud-controller-manager of AWS has.
fn its_permissions() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]},
    ])
}

/// A cluster whose control-plane node is served by a stand-in kubelet, with the lease and the permissions of a cloud-controller-manager
/// that works.
async fn working() -> Result<(Kubernetes, Kubelet)> {
    let (cluster, kubelet) = (cluster("aws").await?, Kubelet::start().await?);
    with_ccm(&cluster).await?;
    node(&cluster, "control-plane", "True", json!({"providerID": "aws:///eu-west-1a/i-0"})).await?;
    let addresses = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }});
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.patch_status("control-plane", &PatchParams::default(), &Patch::Merge(addresses)).await?;
    account(&cluster, NAME, its_permissions()).await?;
    pod(&cluster, Some("control-plane"), running()).await?;
    lease(&cluster, "control-plane_0f1b").await?;
    Ok((cluster, kubelet))
}

/// A line of the log about an attempt that has failed.
fn failed(node: &str, error: &str) -> String {
    let now = Timestamp::now().strftime("%m%d %H:%M:%S.%6f");
    format!(
        "E{now}       1 node_controller.go:272] \"Unhandled Error\" err=\"error syncing '{node}': failed to get instance \
         metadata for node {node}: {error}, requeuing\""
    )
}

/// The part of a page about a node that the README shows. How long the node has waited is different in each test.
fn shown(page: &str) -> String {
    let (findings, _) = page.split_once("Looked at:").unwrap_or((page, ""));
    let lines =
        findings.lines().map(|line| if line.starts_with("Initialized  no, ") { "Initialized  no, 4m" } else { line });
    lines.chain(["Looked at:", "  …"]).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn causes_that_objects_show_need_no_log() -> Result<()> {
    let cluster = cluster("aws").await?;
    let admin = cluster.plane.kubeconfig_admin();
    let all = async |code: i32, reason: &str| {
        let (found, text, error) = run(&admin, &[]).await?;
        ensure!(found == Some(code) && text.contains(reason), "{reason} expected, not {found:?}: {text}{error}");
        Ok(text)
    };
    node(&cluster, "control-plane", "True", json!({"providerID": "aws:///eu-west-1a/i-0"})).await?;
    node(&cluster, "worker", "False", waiting()).await?;
    all(1, "N00 NotInstalled").await?;

    with_ccm(&cluster).await?;
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 node(s) had untolerated taint"});
    pod(&cluster, None, json!({"phase": "Pending", "conditions": [condition]})).await?;
    all(1, "N04 Unschedulable").await?;

    // What others have written controls no terminal, and shows no secret.
    let ended = json!({"exitCode": 255, "reason": "Error",
        "message": "\u{1b}]0;title\u{7}F1 no ClusterID found\npassword=hunter2\u{202e}"});
    let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
    let status = json!({"name": "cloud-controller-manager", "image": "", "imageID": "", "ready": false, "restartCount": 4,
        "state": state, "lastState": {"terminated": ended}});
    pod(&cluster, Some("control-plane"), json!({"phase": "Running", "containerStatuses": [status]})).await?;
    let text = all(1, "N01 CrashLoop").await?;
    assert!(text.contains("no, ") && text.contains("ccm-operator explain N01"), "{text}");
    let (code, text, _) = run(&admin, &["worker"]).await?;
    assert_eq!(code, Some(1));
    assert!(text.contains("no ClusterID found") && text.contains("\nLooked at:\n"), "{text}");
    for odd in ["hunter2", "\u{1b}", "\u{7}", "\u{202e}"] {
        assert!(!text.contains(odd), "{odd:?} in {text}");
    }

    // Nobody has given it permissions.
    pod(&cluster, Some("control-plane"), running()).await?;
    lease(&cluster, "control-plane_0f1b").await?;
    all(1, "N13 Forbidden").await?;
    let (_, text, _) = run(&admin, &["worker"]).await?;
    assert!(text.contains("update nodes") && text.contains("patch nodes/status"), "{text}");
    assert!(text.contains("update leases.coordination.k8s.io cloud-controller-manager"), "{text}");
    account(&cluster, NAME, its_permissions()).await?;

    // A providerID of a distribution, an instance that is shut down, and a node that was deleted. The log is not to be had: the
    // node has no kubelet.
    let k3s = json!({"providerID": "k3s://worker", "taints": waiting()["taints"]});
    node(&cluster, "odd", "False", k3s).await?;
    let stopped = json!([{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]);
    node(&cluster, "off", "Unknown", json!({"providerID": "aws:///eu-west-1a/i-1", "taints": stopped})).await?;
    node(&cluster, "kept", "Unknown", json!({"providerID": "aws:///eu-west-1a/i-2"})).await?;
    let event = |reason: &str, node: &str, message: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{node}.{reason}"), "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": node}, "reason": reason, "type": "Normal", "count": 1,
            "message": message, "source": {"component": "cloud-node-lifecycle-controller"},
            "firstTimestamp": null, "lastTimestamp": Timestamp::from_second(Timestamp::now().as_second()).unwrap().to_string(),
        })
    };
    objects::apply(&cluster.client, event("DeletingNode", "gone", "Deleting node gone")).await?;
    objects::apply(&cluster.client, event("DeletingNodeFailed", "kept", "Failed deleting node kept: forbidden"))
        .await?;
    let text = all(1, "N12 OtherCloudProviderID").await?;
    for reason in ["N23 InstanceStopped", "N21 NodeDeleted", "N22 DeletionRefused"] {
        assert!(text.contains(reason), "{reason} in {text}");
    }
    assert!(text.contains("\n  ssh control-plane 'crictl logs --tail=500"), "its node has no address: {text}");
    assert!(text.contains("the log of pod kube-system/aws-cloud-controller-manager-x"), "{text}");

    let (code, _, error) = run(&admin, &["worke"]).await?;
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no node \"worke\"") && error.contains("did you mean `worker`"), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_log_of_the_leader_shows_the_rest() -> Result<()> {
    let (cluster, kubelet) = working().await?;
    let admin = cluster.plane.kubeconfig_admin();
    let (code, text, error) = run(&admin, &[]).await?;
    assert_eq!(code, Some(0), "nothing is wrong: {text}{error}");
    assert!(text.contains("control-plane  aws    yes") && kubelet.asked().is_empty(), "{text}");

    node(&cluster, "worker", "False", waiting()).await?;
    let secret = "https://user:hunter2@proxy: \u{1b}[2J401 AuthFailure: AWS was not able to validate the provided access credentials";
    kubelet.log(&[&failed("other", "instance not found"), &failed("worker", secret)]);
    // A user with all permissions has another name than the administrator in the audit log.
    account(&cluster, "reader", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await?;
    let reader = cluster.plane.service_account_kubeconfig("kube-system", "reader").await?;
    let mark = cluster.mark().await?;
    let (code, text, error) = run(&reader, &["--output", "json"]).await?;
    assert_eq!(code, Some(1), "{text}{error}");
    assert!(!text.contains("hunter2") && !text.contains('\u{1b}'), "{text}");
    let report: Value = serde_json::from_str(&text)?;
    assert_eq!(report["unseen"], json!([]), "{report:#}");
    let worker = report["nodes"].as_array().context("nodes")?.iter().find(|node| node["node"] == "worker").unwrap();
    assert_eq!(
        (&worker["state"], &worker["findings"][0]["id"]),
        (&json!("Uninitialized"), &json!("N07")),
        "{worker:#}"
    );
    let asked = kubelet.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(
        asked[0].starts_with("/containerLogs/kube-system/aws-cloud-controller-manager-x/cloud-controller-manager?")
    );
    assert!(asked[0].contains("tailLines=500") && asked[0].contains("limitBytes="), "{asked:?}");
    let requests = cluster.plane.audit().of_account(&cluster.client, mark, ("kube-system", "reader")).await?;
    let mut requests: Vec<_> = requests
        .iter()
        .map(|one| format!("{} {} {} {}", one.verb, one.resource, one.subresource, one.namespace).trim().to_owned())
        .collect();
    requests.sort();
    let review = "create subjectaccessreviews";
    assert_eq!(
        requests,
        [
            &[review; 7][..],
            &["get daemonsets  kube-system", "get infrastructures", "get pods log kube-system"],
            &["list cloudcontrollermanagers", "list events  default", "list leases  kube-system", "list nodes"],
            &["list pods  kube-system"; 2],
        ]
        .concat()
    );

    let refused = "operation error EC2: DescribeInstances, https response error StatusCode: 401, api error AuthFailure: AWS was not \
                   able to validate the provided access credentials";
    kubelet.log(&[&failed("worker", refused)]);
    let (code, text, error) = run(&admin, &["worker"]).await?;
    ensure!(code == Some(1), "{text}{error}");
    let picture = terminal::picture("Why a node waits, by ccm-operator", "ccm-operator nodes worker", &shown(&text));
    pages::is_current("docs/pictures/nodes.svg", &picture);

    // A user who may read only nodes gets the commands that show the rest.
    account(&cluster, "limited", json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])).await?;
    let limited = cluster.plane.service_account_kubeconfig("kube-system", "limited").await?;
    // Whether the node has waited long enough for that to be wrong depends on this machine.
    let (code, text, error) = run(&limited, &[]).await?;
    assert!(matches!(code, Some(0 | 1)), "{text}{error}");
    for command in [
        "kubectl get ccm",
        "kubectl get leases -n kube-system",
        "kubectl get events -n default",
        "kubectl get pods -n kube-system",
    ] {
        assert!(text.contains(&format!("\n  {command}")), "{command} in {text}");
    }
    assert!(text.contains("forbidden") && !text.contains("N00"), "nobody knows that there is none: {text}");
    account(
        &cluster,
        "limited",
        json!([
            {"apiGroups": [""], "resources": ["nodes", "pods", "events"], "verbs": ["list"]},
            {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
            {"apiGroups": ["ccm-operator.dev"], "resources": ["cloudcontrollermanagers"], "verbs": ["list"]},
        ]),
    )
    .await?;
    eventually("the permissions", LIMIT, async || {
        let (code, text, error) = run(&limited, &["worker"]).await?;
        ensure!(code == Some(1), "{text}{error}");
        let user = format!("system:serviceaccount:kube-system:{NAME}");
        for command in [
            format!("kubectl logs -n kube-system {NAME}-x -c cloud-controller-manager --tail=500"),
            format!("kubectl auth can-i get nodes --as={user}"),
        ] {
            ensure!(text.contains(&format!("\n  {command}")), "{command} in {text}");
        }
        ensure!(!text.contains("kubectl get pods"), "{text}");
        Ok(Some(()))
    })
    .await?;
    let none = cluster.plane.service_account_kubeconfig("kube-system", "default").await;
    assert!(none.is_err() || run(&none?, &[]).await?.0 == Some(2), "without nodes there is nothing to show");
    Ok(())
}

/// Waits until this is all that is wrong with a node.
async fn found(cluster: &Kubernetes, node: &str, expected: &str, limit: Duration) -> Result<()> {
    eventually(expected, limit, async || {
        let (_, text, error) = run(&cluster.plane.kubeconfig_admin(), &[node, "-o", "json"]).await?;
        let report: Value = serde_json::from_str(&text)?;
        let findings = report["nodes"][0]["findings"].as_array().context("findings")?;
        let found: Vec<_> = findings.iter().map(|one| &one["id"]).collect();
        ensure!(found == [&json!(expected)], "{expected} expected, not {found:?}: {text}{error}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn an_answer_without_an_id_is_distinguished_from_a_missing_instance() -> Result<()> {
    let (cluster, kubelet) = working().await?;
    node(&cluster, "worker", "False", waiting()).await?;
    kubelet.log(&[&failed("worker", "cloud provider does not set node provider ID for node worker")]);
    found(&cluster, "worker", "N11", LIMIT).await
}

#[tokio::test]
#[ignore = "a node has two minutes for it: make test-reasons"]
async fn an_initialized_node_may_still_wait_for_other_programs() -> Result<()> {
    let (cluster, _kubelet) = working().await?;
    let tainted = json!({"providerID": "aws:///eu-west-1a/i-1", "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"],
        "taints": [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}]});
    node(&cluster, "tainted", "True", tainted).await?;
    node(&cluster, "without-subnet", "False", json!({"providerID": "aws:///eu-west-1a/i-2"})).await?;
    found(&cluster, "tainted", "N19", LIMIT * 4).await?;
    found(&cluster, "without-subnet", "N25", LIMIT * 4).await
}

#[tokio::test]
async fn a_retry_reports_how_it_went() -> Result<()> {
    let (cluster, kubelet) = working().await?;
    let admin = cluster.plane.kubeconfig_admin();
    let (code, text, _) = run(&admin, &["retry", "control-plane"]).await?;
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "control-plane does not wait for its initialization; nothing was changed\n")
    );
    assert_eq!(run(&admin, &["retry", "nobody"]).await?.0, Some(2));

    node(&cluster, "worker", "False", waiting()).await?;
    kubelet.log(&[&failed("worker", "instance not found")]);
    let (code, text, error) = run(&admin, &["retry", "worker", "--timeout", "2s"]).await?;
    assert_eq!(code, Some(1), "{error}");
    assert!(
        text.starts_with("no attempt was seen for 2 s, and worker still waits\n") && text.contains("N08"),
        "{text}"
    );

    // A stand-in for the cloud-controller-manager: it fails at the first change of the annotation, and succeeds at the second.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let annotation = async || {
        let annotations = nodes.get("worker").await?.metadata.annotations.unwrap_or_default();
        anyhow::Ok(annotations.get("ccm-operator.dev/retry").cloned().unwrap_or_default())
    };
    let changed = async |before: String| {
        eventually("the annotation", LIMIT, async || {
            let now = annotation().await?;
            ensure!(now != before, "{now}");
            Ok(Some(now))
        })
        .await
    };
    let first = annotation().await?;
    assert!(!first.is_empty());
    let (done, second) = tokio::join!(run(&admin, &["retry", "worker"]), async {
        let second = changed(first.clone()).await?;
        kubelet.log(&[&failed("worker", "UnauthorizedOperation: You are not authorized to perform this operation")]);
        anyhow::Ok(second)
    });
    let (code, text, error) = done?;
    assert_eq!(code, Some(1), "{error}");
    assert!(text.starts_with("the cloud-controller-manager has tried again, and worker still waits\n"), "{text}");
    assert!(text.contains("N07") && !text.contains("N08"), "the newest error counts: {text}");
    let second = second?;
    let (done, third) = tokio::join!(run(&admin, &["retry", "worker"]), async {
        let third = changed(second).await?;
        let patch = Patch::Merge(json!({"spec": {"providerID": "aws:///eu-west-1a/i-7", "taints": null}}));
        nodes.patch("worker", &PatchParams::default(), &patch).await?;
        anyhow::Ok(third)
    });
    third?;
    let (code, text, error) = done?;
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "worker is initialized; its providerID is aws:///eu-west-1a/i-7\n"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_deletion_is_confirmed_by_name_and_uid() -> Result<()> {
    let cluster = cluster("aws,hcloud").await?;
    let admin = cluster.plane.kubeconfig_admin();
    let allow = async |arguments: &[&str]| run(&admin, &[&["allow-delete"], arguments].concat()).await;
    node(&cluster, "gone", "Unknown", json!({"providerID": "aws:///eu-west-1a/i-1"})).await?;
    node(&cluster, "alive", "True", json!({"providerID": "aws:///eu-west-1a/i-2"})).await?;
    node(&cluster, "foreign", "Unknown", json!({"providerID": "hcloud://1"})).await?;
    let refused = async |arguments: &[&str], why: &str| {
        let (code, text, error) = allow(arguments).await?;
        ensure!(code == Some(2) && error.contains(why), "{why:?} expected, not {code:?}: {text}{error}");
        Ok(())
    };
    refused(&["gone"], "this cluster has no CloudControllerManagers").await?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    refused(&["alive"], "it is Ready").await?;
    refused(&["foreign"], "its providerID hcloud://1 does not begin with aws:///").await?;
    refused(&["nobody"], "there is no node \"nobody\"").await?;

    let (code, text, error) = allow(&["gone"]).await?;
    assert_eq!(code, Some(0), "{error}");
    assert!(text.starts_with("gone is now in spec.nodeDeletion.allow of CloudControllerManager cluster\n"), "{text}");
    assert!(text.contains("gone is not deleted: spec.controllers.cloudNodeLifecycle is Rehearsal"), "{text}");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let entry_of = async |name: &str| {
        let live = serde_json::to_value(nodes.get(name).await?)?;
        let since = live["status"]["conditions"][0]["lastTransitionTime"].as_str().context("a time")?;
        anyhow::Ok(format!("{name}/{}/{since}", live["metadata"]["uid"].as_str().context("uid")?))
    };
    let entry = entry_of("gone").await?;
    let list = async || anyhow::Ok(cluster.ccms().get("cluster").await?.data["spec"]["nodeDeletion"]["allow"].clone());
    assert_eq!(list().await?, json!([entry]));
    let (code, text, _) = allow(&["gone"]).await?;
    assert!(code == Some(0) && text.contains("already"), "{text}");

    // Somebody else writes at the same time.
    node(&cluster, "lost", "Unknown", json!({"providerID": "aws:///eu-west-1a/i-3"})).await?;
    let folder = tempfile::tempdir()?;
    let faults = Faults::start(&admin, folder.path()).await?;
    let applies = |seen: &Seen| seen.is_write() && seen.path.contains("cloudcontrollermanagers");
    faults.inject(vec![Rule { fault: Fault::Answer(409, None), applies, times: 1 }]);
    let (code, _, error) = run(faults.kubeconfig(), &["allow-delete", "lost"]).await?;
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(faults.seen().iter().filter(|seen| applies(seen)).count(), 2, "{:?}", faults.seen());
    let entry = [entry, entry_of("lost").await?];
    assert_eq!(list().await?, json!(entry));

    let second =
        json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}, "ports": {"secure": 10259}});
    cluster.create("second", second).await?;
    refused(&["foreign"], "give one with --ccm: cluster, second").await?;
    refused(&["foreign", "--ccm", "third"], "there is no CloudControllerManager \"third\"").await?;
    let (code, text, error) = allow(&["foreign", "--ccm=second"]).await?;
    assert!(code == Some(0) && text.contains("CloudControllerManager second"), "{text}{error}");
    assert_eq!(list().await?, json!(entry), "the other's list stays");
    Ok(())
}

#[tokio::test]
async fn on_openshift_the_ccm_of_the_platform_is_examined() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let admin = lab.plane.kubeconfig_admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "openshift-worker"}, "spec": waiting()});
    objects::apply(&lab.client, node).await?;
    let (code, text, error) = run(&admin, &["openshift-worker", "-o", "json"]).await?;
    assert_eq!(code, Some(1), "{error}");
    let report: Value = serde_json::from_str(&text)?;
    let found = &report["nodes"][0];
    assert_eq!((&found["findings"][0]["id"], &found["provider"]), (&json!("N00"), &json!("aws")), "{report:#}");
    let cause = found["findings"][0]["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("the cloud-controller-manager in openshift-cloud-controller-manager"), "{cause}");

    // A cluster of another kind, in which somebody else has installed one.
    let infrastructure = DOCUMENTS.iter().find(|document| document.kind.kind == "Infrastructure").context("kind")?;
    request::api(&lab.client, &infrastructure.kind, "").delete(infrastructure.name, &DeleteParams::default()).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hcloud-cloud-controller-manager-x", "namespace": "kube-system"},
        "spec": {"containers": [{"name": "a", "image": "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1"}]},
    });
    objects::apply(&lab.client, pod).await?;
    let (code, text, error) = run(&admin, &["openshift-worker"]).await?;
    assert_eq!(code, Some(1), "{error}");
    assert!(text.contains("N00") && text.contains("kube-system/hcloud-cloud-controller-manager-x"), "{text}");

    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), "kube-system");
    pods.delete("hcloud-cloud-controller-manager-x", &DeleteParams::default().grace_period(0)).await?;
    Api::<Node>::all(lab.client.clone()).delete("openshift-worker", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_node_without_its_node_manager_waits_for_that() -> Result<()> {
    let azure = json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}});
    let lab = Lab::new(&Cluster::on(azure)).await?;
    let admin = lab.plane.kubeconfig_admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "azure-worker"}, "spec": waiting()});
    objects::apply(&lab.client, node).await?;
    // A node that has just come has none yet.
    eventually("N27", LIMIT, async || {
        let (_, text, error) = run(&admin, &["azure-worker", "-o", "json"]).await?;
        let report: Value = serde_json::from_str(&text)?;
        let found = report["nodes"][0]["findings"].as_array().context("findings")?.clone();
        let cause = found.iter().find(|one| one["id"] == "N27").map(|one| one["cause"].clone());
        ensure!(cause == Some("no pod of the node manager is on azure-worker".into()), "{cause:?}: {text}{error}");
        Ok(Some(()))
    })
    .await?;
    Api::<Node>::all(lab.client.clone()).delete("azure-worker", &DeleteParams::default()).await?;
    Ok(())
}

#[test]
fn it_is_a_plugin_of_kubectl_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("kubectl-ccm");
    symlink(binary(), &plugin)?;
    for (arguments, usage) in [
        (&["nodes", "--help"][..], "Usage: kubectl ccm nodes [OPTIONS] [NAME]"),
        (&["--help"], "Usage: kubectl ccm [OPTIONS]"),
    ] {
        let help = Command::new(&plugin).args(arguments).output()?;
        let text = String::from_utf8(help.stdout)?;
        assert!(help.status.success() && text.contains(usage), "{text}");
    }
    Ok(())
}

#[test]
fn a_node_may_be_called_like_a_subcommand() {
    let name = |line: &str| {
        let arguments = cli::arguments(line.split(' ').map(Into::into).collect());
        match Cli::try_parse_from(arguments).ok()?.command {
            CliCommand::Nodes(nodes) if nodes.command.is_none() => nodes.name,
            _ => None,
        }
    };
    assert_eq!(name("ccm-operator nodes worker").as_deref(), Some("worker"));
    assert_eq!(name("ccm-operator nodes -o json -- retry").as_deref(), Some("retry"));
    assert_eq!(name("ccm-operator nodes retry worker"), None);
}
