//! The checks before a first installation, by the command and by the operator, on a real control plane.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Result, ensure};
use ccm_operator::{api::CLOUD_CONTROLLER_MANAGER, cluster::request, object::KINDS, text::yaml};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    lab::{LIMIT, binary, describe, message},
    support::{
        audit::Request,
        eventually, kubelet,
        kubernetes::{Kubernetes, set_version},
        objects,
    },
};

/// The lease of the cloud-controller-manager of k3s.
const K3S: &str = "k3s-cloud-controller-manager";

/// Runs the command as an administrator, or as somebody else.
fn preflight(cluster: &Kubernetes, arguments: &[&str]) -> Result<Output> {
    let kubeconfig = cluster.plane.kubeconfig_admin();
    let connection = ["--kubeconfig".as_ref(), kubeconfig.as_os_str()];
    Ok(Command::new(binary()).arg("preflight").args(connection).args(arguments).output()?)
}

/// The rows of the command's JSON, and its exit code.
fn rows(cluster: &Kubernetes, arguments: &[&str]) -> Result<(Value, i32)> {
    let output = preflight(cluster, &[arguments, &["-o", "json"]].concat())?;
    let code = output.status.code().unwrap_or(-1);
    ensure!(code != 2, "{}", String::from_utf8_lossy(&output.stderr));
    Ok((serde_json::from_slice(&output.stdout)?, code))
}

fn row<'a>(report: &'a Value, check: &str) -> &'a Value {
    let rows = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().find(|row| row["check"] == check).unwrap_or(&Value::Null)
}

fn result(report: &Value, check: &str) -> String {
    row(report, check)["result"].as_str().unwrap_or_default().to_owned()
}

fn manifest(folder: &Path, name: &str, spec: &Value) -> Result<PathBuf> {
    let object = json!({
        "apiVersion": CLOUD_CONTROLLER_MANAGER.api_version(), "kind": CLOUD_CONTROLLER_MANAGER.kind,
        "metadata": {"name": name}, "spec": spec,
    });
    let path = folder.join(format!("{name}.yaml"));
    fs::write(&path, yaml::to_string(&object)?)?;
    Ok(path)
}

/// The pod of a cloud-controller-manager from a chart.
fn other_pod(controllers: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chart-ccm", "namespace": "kube-system"},
        "spec": {
            "hostNetwork": true, "nodeName": "control-plane",
            "containers": [{
                "name": "main", "image": "registry.example/cloud-controller-manager:v1",
                "args": [format!("--controllers={controllers}"), "--secure-port=10300"],
            }],
        },
    })
}

fn lease(name: &str, renewed: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"holderIdentity": "elsewhere_1", "leaseDurationSeconds": 3600, "renewTime": format!("{renewed:.6}")},
    })
}

fn pods(cluster: &Kubernetes) -> Api<DynamicObject> {
    let kind = KINDS.iter().find(|known| known.kind == "Pod").unwrap();
    request::api(&cluster.client, kind, "kube-system")
}

async fn put_pod(cluster: &Kubernetes, controllers: &str) -> Result<()> {
    objects::apply(&cluster.client, other_pod(controllers)).await.map(drop)
}

async fn remove_pod(cluster: &Kubernetes) -> Result<()> {
    pods(cluster).delete("chart-ccm", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Waits for the definition of `CloudControllerManager`.
async fn is_served(cluster: &Kubernetes) -> Result<()> {
    let list = async || Ok(Some(cluster.ccms().list(&ListParams::default()).await?));
    eventually("the definition", LIMIT, list).await.map(drop)
}

#[tokio::test]
async fn a_manifest_is_checked_before_it_is_applied() -> Result<()> {
    let cluster = Kubernetes::new("aws,hcloud").await?;
    is_served(&cluster).await?;
    let folder = TempDir::new()?;
    let aws = manifest(folder.path(), "cluster", &json!({"provider": "aws"}))?;
    let file = ["-f", aws.to_str().unwrap()];

    // The node of the fixture has no taint; nothing else is wrong. The operator's own lease is nobody else's.
    objects::apply(&cluster.client, lease("cluster-cloud-controller-manager-leader", Timestamp::now())).await?;
    let (report, code) = rows(&cluster, &file)?;
    assert_eq!((code, &report["passed"]), (0, &json!(true)), "{report:#}");
    let not_passed: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|row| row["result"] != "Passed").cloned().collect();
    let names: Vec<_> =
        not_passed.iter().map(|row| format!("{} {}", row["check"], row["result"]).replace('"', "")).collect();
    let never = ["at-cloud NotChecked", "image-pull NotChecked", "credentials-accepted NotChecked"];
    assert_eq!(names, [&["kubelets Warned", "node-names Warned"], &never[..]].concat(), "{report:#}");
    let table = preflight(&cluster, &file)?;
    let table = String::from_utf8(table.stdout)?;
    assert!(table.contains("not checked  image-pull") && table.contains("crictl"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");

    // A Secret that is missing, and one that is not.
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    let hcloud = manifest(folder.path(), "second", &spec)?;
    let (report, code) = rows(&cluster, &["-f", hcloud.to_str().unwrap()])?;
    assert_eq!((code, result(&report, "credentials").as_str()), (1, "Refused"), "{report:#}");
    cluster.put_secret("hcloud", json!({"token": "s3cret"})).await?;
    let output = preflight(&cluster, &["-f", hcloud.to_str().unwrap(), "-o", "json"])?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("s3cret"));

    // A cloud-controller-manager of somebody else, and its lease.
    put_pod(&cluster, "cloud-node").await?;
    let (report, code) = rows(&cluster, &file)?;
    assert_eq!((code, result(&report, "other-ccm").as_str()), (1, "Refused"), "{report:#}");
    assert_eq!(row(&report, "other-ccm")["message"], "pod kube-system/chart-ccm runs cloudNode");
    remove_pod(&cluster).await?;
    objects::apply(&cluster.client, lease(K3S, Timestamp::now())).await?;
    let (report, code) = rows(&cluster, &file)?;
    assert_eq!((code, result(&report, "other-ccm").as_str()), (1, "Refused"), "{report:#}");

    // Another CloudControllerManager with the same controllers.
    cluster.create("first", json!({"provider": "aws"})).await?;
    let (report, code) = rows(&cluster, &file)?;
    assert_eq!((code, result(&report, "additional-ccms").as_str()), (1, "Refused"), "{report:#}");
    let (report, _) = rows(&cluster, &["first"])?;
    assert_eq!(result(&report, "additional-ccms"), "Passed", "the older one");
    let none = preflight(&cluster, &["none"])?;
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(String::from_utf8(none.stderr)?, "ccm-operator: there is no CloudControllerManager none\n");

    let neither = preflight(&cluster, &[])?;
    assert_eq!(neither.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&neither.stderr).contains("<NAME|--filename <FILE>>"), "{neither:?}");

    // A provider that the operator was not installed for.
    let config = json!({"inline": "global:\n  secretName: a\n  secretNamespace: kube-system\nvcenter:\n  a: {server: a, datacenters: [b]}\n"});
    let spec = json!({"provider": "vsphere", "namespace": "elsewhere", "cloudConfig": config, "credentials": {"secretRef": {"name": "a"}}});
    let vsphere = manifest(folder.path(), "third", &spec)?;
    let (report, _) = rows(&cluster, &["-f", vsphere.to_str().unwrap()])?;
    assert_eq!(result(&report, "pod-security"), "Refused", "{report:#}");
    assert_eq!(result(&report, "permissions"), "Refused", "{report:#}");
    let missing = row(&report, "permissions")["message"].as_str().unwrap();
    assert!(missing.contains("in namespace elsewhere"), "{missing}");
    Ok(())
}

#[tokio::test]
async fn objects_that_the_caller_may_not_read_are_not_checked() -> Result<()> {
    let cluster = Kubernetes::new("hcloud").await?;
    is_served(&cluster).await?;
    let folder = TempDir::new()?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    let path = manifest(folder.path(), "cluster", &spec)?;
    let (report, code) = rows(&cluster, &["-f", path.to_str().unwrap(), "--as", "nobody"])?;
    assert_eq!(code, 0, "{report:#}");
    for check in [
        "credentials",
        "additional-ccms",
        "other-ccm",
        "ports",
        "kubelets",
        "architecture",
        "pod-security",
        "permissions",
    ] {
        let row = row(&report, check);
        assert_eq!(row["result"], "NotChecked", "{row:#}");
        assert!(row["message"].as_str().is_some_and(|text| text.contains("forbidden")), "{row:#}");
        assert!(row["fix"].as_str().is_some_and(|text| text.contains("kubectl")), "{row:#}");
    }
    Ok(())
}

#[tokio::test]
async fn a_first_installation_waits_for_the_checks_and_an_installed_ccm_is_left_alone() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    put_pod(&cluster, "cloud-node,cloud-node-lifecycle").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let live =
        cluster.conditions(&operator, "cluster", &["PreflightPassed=False", "Ready=False", "Stalled=True"]).await?;
    let why = message(&live, "PreflightPassed");
    assert!(why.contains("other-ccm: pod kube-system/chart-ccm runs cloudNode, cloudNodeLifecycle"), "{why}");
    assert_eq!(message(&live, "Ready"), why);
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());

    // Another operator finds the same.
    operator.kill()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    eventually("the second operator", LIMIT, async || {
        let log = operator.log();
        ensure!(log.contains("CloudControllerManager cluster: other-ccm: pod"), "{log}");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());

    // A lease is as good a sign as a pod.
    objects::apply(&cluster.client, lease(K3S, Timestamp::now())).await?;
    kubelet::add_node(&cluster.client, "stub", &[]).await?;
    set_version(&cluster.client, "stub", "v1.35.4+k3s1").await?;
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &ccm_operator::object::NODE, "");
    let provider_id = Patch::Merge(json!({"spec": {"providerID": "k3s://stub"}}));
    nodes.patch("stub", &PatchParams::default(), &provider_id).await?;
    remove_pod(&cluster).await?;
    eventually("the lease to be named", LIMIT, async || {
        let live = cluster.conditions(&operator, "cluster", &["PreflightPassed=False"]).await?;
        let why = message(&live, "PreflightPassed");
        ensure!(why.contains("the holder elsewhere_1 of the lease kube-system/k3s-cloud-controller-manager"), "{why}");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
    leases.delete("k3s-cloud-controller-manager", &DeleteParams::default()).await?;

    // Once both are gone it is installed, with warnings and with what was not checked.
    let live = cluster.ready(&operator, "cluster").await?;
    let live = &live;
    let why = message(live, "PreflightPassed");
    assert!(
        why.contains("warnings: kubelets:") && why.contains("provider-ids: of another cloud (k3s://): stub"),
        "{why}"
    );
    assert!(why.contains("not checked: at-cloud, image-pull, credentials-accepted"), "{why}");
    let installed = cluster.objects(Some("cluster")).await?;

    // What would refuse an installation now touches nothing, and nothing is asked any more, by no operator.
    put_pod(&cluster, "*").await?;
    let mark = cluster.mark().await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    let live =
        cluster.conditions(&operator, "cluster", &["Ready=True", "Stalled=False", "PreflightPassed=True"]).await?;
    assert_eq!(message(&live, "PreflightPassed"), why);
    assert_eq!(cluster.objects(Some("cluster")).await?, installed);
    let asked: Vec<_> = cluster.requests(mark).await?.iter().filter(|one| is_question(one)).map(describe).collect();
    assert!(asked.is_empty(), "{asked:#?}");

    // Removed, it is a first installation again.
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False", "PreflightPassed=Unknown"]).await?;
    cluster.patch("cluster", json!({"spec": {"management": "Managed"}})).await?;
    cluster.conditions(&operator, "cluster", &["PreflightPassed=False", "Stalled=True"]).await?;
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    Ok(())
}

/// Whether a request belongs to the checks.
fn is_question(request: &Request) -> bool {
    let text = describe(request);
    text.starts_with("list pods") || text.contains("selfsubjectrulesreviews") || text.starts_with("get namespaces")
}

#[tokio::test]
async fn two_with_the_same_controllers_exclude_each_other_unless_their_clouds_keep_apart() -> Result<()> {
    let cluster = Kubernetes::new("aws,hcloud").await?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    let operator = cluster.start()?;
    let nodes = json!({"service": "Disabled"});
    cluster.create("cluster", json!({"provider": "aws", "controllers": nodes})).await?;
    cluster.ready(&operator, "cluster").await?;

    // The nodes of the other cloud are left alone by both; a Service is nobody's nodes.
    let hcloud = |controllers: Value| {
        json!({
            "provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}, "controllers": controllers,
            "ports": {"secure": 10268},
        })
    };
    cluster.create("other-cloud", hcloud(json!({}))).await?;
    cluster.ready(&operator, "other-cloud").await?;
    for (name, controllers, problem) in [
        (
            "same-cloud",
            json!({"service": "Disabled"}),
            "cloudNode, cloudNodeLifecycle runs in the CloudControllerManager cluster",
        ),
        (
            "service",
            json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"}),
            "service runs in the CloudControllerManager other-cloud (provider hcloud)",
        ),
    ] {
        cluster.create(name, json!({"provider": "aws", "controllers": controllers})).await?;
        let live = cluster
            .conditions(&operator, name, &["ConfigurationValid=False", "Stalled=True", "PreflightPassed=False"])
            .await?;
        let condition =
            live["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "ConfigurationValid");
        assert_eq!(condition.unwrap()["reason"], "Conflict", "{live:#}");
        assert!(message(&live, "ConfigurationValid").contains(problem), "{live:#}");
        assert_eq!(cluster.objects(Some(name)).await?, Vec::<String>::new());
    }
    // Additional CCMs have names, a lease, a port and an account of their own.
    cluster.patch("other-cloud", json!({"spec": {"controllers": {"service": "Disabled"}}})).await?;
    let live = cluster.ready(&operator, "service").await?;
    assert!(message(&live, "PreflightPassed").contains("10258 of the CloudControllerManager cluster"), "{live:#}");
    cluster.ready(&operator, "cluster").await?;
    cluster.delete("cluster").await?;
    cluster.ready(&operator, "same-cloud").await?;
    Ok(())
}

#[tokio::test]
async fn a_running_ccm_takes_precedence_over_a_change_of_an_older_one() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    let services = json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"});
    cluster.create("cluster", json!({"provider": "aws", "controllers": services})).await?;
    cluster.ready(&operator, "cluster").await?;
    let nodes = json!({"service": "Disabled"});
    cluster.create("second", json!({"provider": "aws", "controllers": nodes, "ports": {"secure": 10268}})).await?;
    cluster.ready(&operator, "second").await?;
    let daemon_sets = KINDS.iter().find(|known| known.kind == "DaemonSet").unwrap();
    let generation = async || {
        let live =
            request::api(&cluster.client, daemon_sets, "kube-system").get("aws-cloud-controller-manager").await?;
        Ok::<_, anyhow::Error>(live.metadata.generation)
    };
    let before = generation().await?;

    cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNode": "Enabled"}}})).await?;
    let is_refused = ["ConfigurationValid=False", "Stalled=True", "Ready=False"];
    let live = cluster.conditions(&operator, "cluster", &is_refused).await?;
    let why = message(&live, "ConfigurationValid");
    assert!(why.contains("cloudNode runs in the CloudControllerManager second"), "{why}");
    cluster.ready(&operator, "second").await?;
    // What was installed stays, for an operator that starts later, too.
    operator.kill()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("second", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    eventually("the operator to act", LIMIT, async || {
        let live = cluster.ready(&operator, "second").await?;
        Ok((live["status"]["observedGeneration"] == 2).then_some(()))
    })
    .await?;
    cluster.conditions(&operator, "cluster", &is_refused).await?;
    assert_eq!(generation().await?, before);
    let (report, code) = rows(&cluster, &["cluster"])?;
    assert_eq!((code, result(&report, "additional-ccms").as_str()), (1, "Refused"), "{report:#}");
    let (report, _) = rows(&cluster, &["second"])?;
    assert_eq!(result(&report, "additional-ccms"), "Passed", "{report:#}");

    // Once the other one has given it up, the change is made.
    cluster.patch("second", json!({"spec": {"controllers": {"cloudNode": "Disabled"}}})).await?;
    cluster.ready(&operator, "cluster").await?;
    assert_ne!(generation().await?, before);
    Ok(())
}

#[tokio::test]
async fn a_permission_to_delete_nodes_that_is_left_is_taken_back_although_an_input_is_bad() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    cluster.install_with(&["--providers", "aws", "--node-deletion"]).await?;
    let start = || cluster.start_with(&["--namespaces=kube-system", "--node-deletion"]);
    let mut operator = start()?;
    let controllers = json!({"cloudNodeLifecycle": "Enabled"});
    cluster.create("cluster", json!({"provider": "aws", "controllers": controllers})).await?;
    cluster.ready(&operator, "cluster").await?;
    let api = |kind: &str, namespace| {
        request::api(&cluster.client, KINDS.iter().find(|known| known.kind == kind).unwrap(), namespace)
    };
    let roles = api("ClusterRole", "");
    let granted = "aws-cloud-controller-manager-delete-nodes";
    for is_installed in [true, false] {
        operator.kill()?;
        operator.wait(LIMIT).await?;
        let rule = json!({"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["gone"], "verbs": ["delete"]});
        roles.patch(granted, &PatchParams::default(), &Patch::Merge(json!({"rules": [rule]}))).await?;
        cluster.patch("cluster", json!({"spec": {"arguments": {"--nope": "1"}}})).await?;
        if !is_installed {
            let daemon_sets = api("DaemonSet", "kube-system");
            daemon_sets.delete("aws-cloud-controller-manager", &DeleteParams::default()).await?;
        }
        operator = start()?;
        eventually("the role to be emptied", LIMIT, async || {
            let live = roles.get(granted).await?;
            let is_empty = live.data["rules"].as_array().is_none_or(Vec::is_empty);
            ensure!(is_empty, "{is_installed}: {}: {}", live.data["rules"], operator.log());
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_being_deleted_refuses_as_long_as_it_may_act() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    is_served(&cluster).await?;
    let folder = TempDir::new()?;
    let aws = manifest(folder.path(), "cluster", &json!({"provider": "aws"}))?;
    let other = || -> Result<(i32, Value)> {
        let (report, code) = rows(&cluster, &["-f", aws.to_str().unwrap()])?;
        Ok((code, row(&report, "other-ccm").clone()))
    };
    let set_ready = async |status: &str| {
        let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now()});
        let nodes: Api<DynamicObject> = request::api(&cluster.client, &ccm_operator::object::NODE, "");
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status("control-plane", &PatchParams::default(), &patch).await
    };
    // No kubelet confirms it.
    put_pod(&cluster, "cloud-node").await?;
    pods(&cluster).delete("chart-ccm", &DeleteParams::default()).await?;
    let (code, row) = other()?;
    assert_eq!((code, &row["result"]), (1, &json!("Refused")), "{row:#}");
    assert_eq!(row["message"], "pod kube-system/chart-ccm (being deleted) runs cloudNode");
    assert!(row["fix"].as_str().is_some_and(|fix| fix.starts_with("wait until it is gone")), "{row:#}");

    set_ready("Unknown").await?;
    let (code, row) = other()?;
    assert_eq!((code, &row["result"]), (0, &json!("Warned")), "{row:#}");
    let message =
        "pod kube-system/chart-ccm (being deleted on node control-plane, whose kubelet does not report) ran cloudNode";
    assert_eq!(row["message"], message);
    let mut held = lease("cloud-controller-manager", Timestamp::now());
    held["spec"]["holderIdentity"] = json!("control-plane_1");
    objects::apply(&cluster.client, held).await?;
    let (code, row) = other()?;
    assert_eq!((code, &row["result"]), (1, &json!("Refused")), "its container lives: {row:#}");
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
    leases.delete("cloud-controller-manager", &DeleteParams::default()).await?;

    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    assert!(crate::lab::message(&live, "PreflightPassed").contains(message), "{live:#}");
    Ok(())
}
