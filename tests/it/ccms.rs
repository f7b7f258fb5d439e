//! Any Kubernetes: the operator acts on `CloudControllerManager`s, on a real control plane with the permissions of an installation.

use anyhow::{Result, ensure};
use ccm_operator::{
    apply::inventory,
    cluster::request,
    object::{KINDS, NODE, PART_OF_LABEL},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, binary, describe, message},
    support::{
        audit::Request,
        control_plane::{ControlPlane, Options},
        eventually, kubelet,
        kubernetes::{Kubernetes, LIMITS, OWN_NAMESPACE, installation, set_version},
        objects,
        operator::Operator,
    },
};

fn hcloud() -> Value {
    json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}})
}

/// A specification with only one controller enabled: a controller may run in only one CCM.
fn only(controller: &str, spec: Value) -> Value {
    let mut controllers = json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled", "service": "Disabled"});
    controllers[controller] = if controller == "cloudNodeLifecycle" { json!("Rehearsal") } else { json!("Enabled") };
    let mut spec = spec;
    spec["controllers"] = controllers;
    spec
}

fn api(cluster: &Kubernetes, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let kind = KINDS.iter().find(|known| known.kind == kind).unwrap();
    request::api(&cluster.client, kind, namespace)
}

/// The hash of what the pods of a Deployment mount.
async fn hash(cluster: &Kubernetes, name: &str) -> Result<String> {
    let live = serde_json::to_value(api(cluster, "Deployment", "kube-system").get(name).await?)?;
    let annotations = &live["spec"]["template"]["metadata"]["annotations"];
    Ok(annotations["ccm-operator.dev/config-hash"].as_str().unwrap_or_default().to_owned())
}

/// Adds a node whose machine is gone, and the Event of the cloud-controller-manager that may not delete it.
async fn lose(cluster: &Kubernetes, node: &str, at: Timestamp) -> Result<()> {
    kubelet::add_node(&cluster.client, node, &[]).await?;
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &NODE, "");
    let ready = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": at, "lastHeartbeatTime": at,
        "reason": "x", "message": ""});
    let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    let uid = nodes.patch_status(node, &PatchParams::default(), &patch).await?.metadata.uid;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{node}.1"), "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": uid}, "reason": "DeletingNodeFailed", "type": "Warning",
        "message": "User \"system:serviceaccount:kube-system:hcloud-cloud-controller-manager\"", "source": {"component": "cloud-node-lifecycle-controller"}, "count": 3,
        "lastTimestamp": at.to_string(),
    });
    objects::apply(&cluster.client, event).await.map(drop)
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one life")]
async fn a_cloud_controller_manager_is_installed_kept_and_removed() -> Result<()> {
    let cluster = Kubernetes::new("hcloud,aws").await?;
    let decoy = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "decoy", "namespace": "kube-system", "labels": {"app.kubernetes.io/instance": "cluster"}},
    });
    objects::apply(&cluster.client, decoy).await?;
    let start = cluster.mark().await?;
    let operator = cluster.start()?;
    cluster.create("cluster", hcloud()).await?;

    // A Secret that is missing is said before anything runs.
    let live =
        cluster.conditions(&operator, "cluster", &["Ready=False", "CredentialsFound=False", "Stalled=True"]).await?;
    assert_eq!(
        message(&live, "CredentialsFound"),
        "spec.credentials.secretRef: Secret kube-system/hcloud does not exist: create it"
    );
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    cluster.put_secret("hcloud", json!({"other": "x"})).await?;
    eventually("the missing key", LIMIT, async || {
        let live = cluster.conditions(&operator, "cluster", &["CredentialsFound=False"]).await?;
        let message = message(&live, "CredentialsFound");
        ensure!(message.contains("has no key token; it has other"), "{message}");
        Ok(Some(()))
    })
    .await?;

    cluster.put_secret("hcloud", json!({"token": "s3cret"})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    let status = &live["status"];
    let server = cluster.client.apiserver_version().await?;
    let minor = format!("{}.{}", server.major, server.minor);
    assert_eq!(status["cluster"], json!({"kubernetes": minor, "distribution": "Other", "controlPlaneNodes": 1}));
    assert_eq!(status["workload"], json!({"kind": "Deployment", "desired": 1, "ready": 1}), "one node");
    assert!(!status["provider"]["version"].as_str().unwrap().is_empty(), "{status}");
    let installed = cluster.objects(Some("cluster")).await?;
    assert_eq!(installed, cluster.objects(None).await?, "all of them say whose they are");
    assert!(installed.iter().any(|object| object.starts_with("Deployment ")), "{installed:?}");

    // Drift is repaired, and nothing else is written.
    let deployment = installed.iter().find_map(|object| object.strip_prefix("Deployment ")).unwrap();
    let deployments = api(&cluster, "Deployment", "kube-system");
    let mark = cluster.mark().await?;
    let drift = Patch::Merge(json!({"spec": {"replicas": 4}}));
    deployments.patch(deployment, &PatchParams::default(), &drift).await?;
    eventually("the repair", LIMIT, async || {
        let live = deployments.get(deployment).await?;
        ensure!(live.data["spec"]["replicas"] == 1, "{}", live.data["spec"]["replicas"]);
        Ok(Some(()))
    })
    .await?;
    cluster.ready(&operator, "cluster").await?;
    let writes: Vec<_> = cluster.requests(mark).await?.into_iter().filter(Request::counts_as_write).collect();
    let other: Vec<_> =
        writes.iter().map(describe).filter(|one| !one.starts_with("patch cloudcontrollermanagers/status")).collect();
    assert!(
        !other.is_empty() && other.iter().all(|one| *one == format!("patch deployments {deployment}")),
        "{other:?}"
    );

    // A node whose machine is gone is named, and forgotten once nothing is said of it any more.
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    lose(&cluster, "long-ago", now - SignedDuration::from_mins(11)).await?;
    lose(&cluster, "worker", now).await?;
    eventually("the node to be named", LIMIT, async || {
        let live = cluster.ready(&operator, "cluster").await?;
        ensure!(live["status"]["nodes"]["gone"] == json!(["worker"]), "{}", live["status"]["nodes"]);
        ensure!(message(&live, "Ready").contains("the machine of 1 node is gone"), "{live:#}");
        Ok(Some(()))
    })
    .await?;

    // Then there is nothing more to find out about.
    for node in ["long-ago", "worker"] {
        request::api(&cluster.client, &NODE, "").delete(node, &DeleteParams::default()).await?;
    }

    // A change of the Secret restarts the pods.
    let before = hash(&cluster, deployment).await?;
    cluster.put_secret("hcloud", json!({"token": "an0ther"})).await?;
    eventually("the restart", LIMIT, async || {
        ensure!(hash(&cluster, deployment).await? != before, "the same hash");
        Ok(Some(()))
    })
    .await?;

    // An operator that starts in a finished cluster writes nothing. A later generation shows that the rollout is over.
    // What its status does not tell about the deletion of nodes, the next process asks for.
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    let settled = ["Ready=True", "Reconciling=False", "Stalled=False", "NodeDeletionSafe=True"];
    cluster.conditions(&operator, "cluster", &settled).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let first_log = operator.log();
    let mark = cluster.mark().await?;
    let operator = cluster.start()?;
    eventually("the second pass", LIMIT, async || {
        let log = operator.log();
        ensure!(log.contains("CloudControllerManager cluster: everything is applied"), "{log}");
        Ok(Some(()))
    })
    .await?;
    let writes: Vec<_> = cluster.requests(mark).await?.into_iter().filter(Request::counts_as_write).collect();
    assert!(writes.is_empty(), "{writes:#?}");

    // Neither the operator's permissions were too few, nor does its log or its status hold a secret.
    let refused: Vec<_> = cluster.requests(start).await?.into_iter().filter(|one| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}\n{}", operator.log());
    let all = first_log + &operator.log() + &serde_json::to_string(&cluster.ccms().get("cluster").await?)?;
    assert!(!all.contains("s3cret") && !all.contains("an0ther"), "{all}");

    // A copy of an object has its labels, too.
    let labels = json!({"app.kubernetes.io/instance": "cluster", PART_OF_LABEL: inventory::set_id(OWN_NAMESPACE)});
    let metadata = json!({"name": "copy", "namespace": "kube-system", "labels": labels});
    let copy = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": false});
    objects::apply(&cluster.client, copy).await?;
    cluster.delete("cluster").await?;
    cluster.objects_are(&operator, None, |objects| objects == ["ServiceAccount copy"]).await?;
    assert!(api(&cluster, "ConfigMap", "kube-system").get_opt("decoy").await?.is_some(), "the decoy is gone");
    Ok(())
}

#[tokio::test]
async fn an_error_of_one_ccm_does_not_block_the_others() -> Result<()> {
    let cluster = Kubernetes::new("hcloud,aws").await?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    // Somebody else's object of the same name.
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "hcloud-cloud-controller-manager-foreign", "namespace": "kube-system"},
    });
    objects::apply(&cluster.client, account).await?;
    let operator = cluster.start_with(&["--namespaces=kube-system,no-role"])?;
    cluster.create("cluster", only("cloudNode", hcloud())).await?;
    cluster.create("foreign", only("cloudNodeLifecycle", hcloud())).await?;
    cluster
        .create(
            "lease",
            only(
                "cloudNode",
                json!({
                    "provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}},
                    "leaderElection": {"leaseName": "cloud-controller-manager"},
                }),
            ),
        )
        .await?;
    cluster.create("elsewhere", json!({"provider": "aws", "namespace": "default"})).await?;
    cluster.create("unknown", json!({"provider": "awz"})).await?;
    let secret =
        |name: &str| only("cloudNode", json!({"provider": "hcloud", "credentials": {"secretRef": {"name": name}}}));
    cluster.create("secret", secret("not-granted")).await?;
    cluster.create("place", only("cloudNode", json!({"provider": "aws", "namespace": "no-role"}))).await?;
    let routes = json!({"podCIDRs": ["10.244.0.0/16"]});
    let a = only("route", json!({"provider": "aws", "leaderElection": {"leaseName": "own"}, "network": routes}));
    cluster.create("first", a.clone()).await?;
    let inline = json!({"provider": "aws", "cloudConfig": {"inline": "[Global]\nZone = eu-west-1a\nVPCC = x\n"}});
    cluster.create("inline", only("service", inline)).await?;
    let broken = json!({"provider": "aws", "cloudConfig": {"inline": "[Global\nZone = eu-west-1a\n"}});
    cluster.create("broken", only("cloudNodeLifecycle", broken)).await?;
    cluster.ready(&operator, "cluster").await?;

    for (name, expected, text) in [
        ("foreign", "Ready", "is not taken over: delete it, or give the CloudControllerManager another name"),
        ("lease", "ConfigurationValid", "the CloudControllerManager cluster has this lease"),
        ("elsewhere", "ConfigurationValid", "the operator may not manage default"),
        ("secret", "CredentialsFound", "Secret kube-system/not-granted cannot be read"),
        ("unknown", "ConfigurationValid", "there is no provider \"awz\" (did you mean `aws`?)"),
        ("broken", "ConfigurationValid", "spec.cloudConfig.inline:1"),
    ] {
        let live = cluster.conditions(&operator, name, &[&format!("{expected}=False"), "Stalled=True"]).await?;
        assert!(message(&live, expected).contains(text), "{name}: {}", message(&live, expected));
    }
    let live = cluster.ready(&operator, "inline").await?;
    assert!(message(&live, "ConfigurationValid").contains("did you mean `VPC`?"), "{live:#}");
    let accounts = api(&cluster, "ServiceAccount", "kube-system");
    let account = accounts.get("hcloud-cloud-controller-manager-foreign").await?;
    assert!(account.metadata.labels.is_none(), "{account:#?}");

    let live = cluster.conditions(&operator, "place", &["Ready=False", "Reconciling=True", "Stalled=False"]).await?;
    assert!(message(&live, "Ready").contains("in namespace no-role"), "{live:#}");
    // The first to have a lease keeps it.
    cluster.ready(&operator, "first").await?;
    cluster.create("a-second", a).await?;
    let live = cluster.conditions(&operator, "a-second", &["ConfigurationValid=False"]).await?;
    assert!(
        message(&live, "ConfigurationValid").contains("the CloudControllerManager first has this lease"),
        "{live:#}"
    );
    cluster.ready(&operator, "first").await?;
    cluster.delete("first").await?;
    cluster.ready(&operator, "a-second").await?;

    // Once the other one is gone it has its turn.
    cluster.delete("cluster").await?;
    cluster.ready(&operator, "lease").await?;
    // And once the object is gone that somebody else has made.
    accounts.delete("hcloud-cloud-controller-manager-foreign", &DeleteParams::default()).await?;
    cluster.ready(&operator, "foreign").await?;
    assert_eq!(cluster.objects(Some("cluster")).await?, Vec::<String>::new());
    // A good object that becomes a bad one keeps what it has.
    let before = cluster.objects(Some("foreign")).await?;
    cluster.patch("foreign", json!({"spec": {"arguments": {"--no-such-flag": "1"}}})).await?;
    cluster.conditions(&operator, "foreign", &["ConfigurationValid=False"]).await?;
    drop(operator);
    let operator = cluster.start()?;
    cluster.patch("lease", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    cluster.ready(&operator, "lease").await?;
    assert_eq!(cluster.objects(Some("foreign")).await?, before, "an operator that has seen no good input");
    Ok(())
}

#[tokio::test]
async fn objects_of_several_ccms_are_looked_for_by_one_list_of_each_location() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let account = |name: &str| format!("aws-cloud-controller-manager{name}");
    let foreign = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account("-third"), "namespace": "kube-system"},
    });
    objects::apply(&cluster.client, foreign).await?;
    for (name, controller) in [("cluster", "cloudNode"), ("second", "service"), ("third", "route")] {
        let spec = json!({"provider": "aws", "network": {"podCIDRs": ["10.244.0.0/16"]}});
        cluster.create(name, only(controller, spec)).await?;
    }
    let mark = cluster.mark().await?;
    let operator = cluster.start()?;
    cluster.ready(&operator, "cluster").await?;
    cluster.ready(&operator, "second").await?;
    let live = cluster.conditions(&operator, "third", &["Ready=False"]).await?;
    assert!(message(&live, "Ready").contains("is not taken over"), "{live:#}");

    let requests: Vec<_> = cluster.requests(mark).await?.iter().map(describe).collect();
    let reads = |name: &str| requests.iter().filter(|one| **one == format!("get serviceaccounts {name}")).count();
    assert!(reads(&account("-third")) > 0, "it exists, so it is read: {requests:#?}");
    assert_eq!((reads(&account("")), reads(&account("-second"))), (0, 0), "{requests:#?}");
    assert!(requests.iter().any(|one| one.trim_end() == "list serviceaccounts"), "{requests:#?}");
    assert!(cluster.requests(mark).await?.iter().all(|request| request.code != 403), "{requests:#?}");
    Ok(())
}

/// The reason of a condition.
fn reason<'a>(live: &'a Value, type_: &str) -> &'a str {
    let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == type_);
    condition.and_then(|condition| condition["reason"].as_str()).unwrap_or_default()
}

/// The arguments of the operator decide what may be asked for, whatever its permissions are.
#[tokio::test]
async fn a_ccm_beyond_the_limits_of_the_installation_is_refused_and_can_be_removed() -> Result<()> {
    let cluster = Kubernetes::new("hcloud").await?;
    cluster.put_secret("hcloud", json!({"token": "x"})).await?;
    let start = |names: &str| cluster.start_with(&["--namespaces=kube-system", names]);
    let with = |field: &str, value: Value| {
        let mut spec = hcloud();
        spec[field] = value;
        spec
    };
    let mark = cluster.mark().await?;
    let operator = start("--names=cluster,second,third")?;
    let other = json!({"repository": "registry.example.test/other"});
    for (name, spec, expected, words) in [
        ("cluster", with("image", other.clone()), "ImageNotAllowed", "spec.image.repository: the operator may not run"),
        ("second", with("leaderElection", json!({"leaseName": "of-another-program"})), "LeaseNotAllowed", "--leases"),
        (
            "third",
            with("image", json!({"pullSecrets": [{"name": "hcloud"}]})),
            "PullSecretNotAllowed",
            "--image-pull-secrets",
        ),
        ("other", hcloud(), "NameNotAllowed", "--names of its installation lists cluster, second, third"),
    ] {
        cluster.create(name, spec).await?;
        let live = cluster.conditions(&operator, name, &["Ready=False", "Stalled=True", "ConfigurationValid=False"]);
        let live = live.await?;
        assert_eq!(reason(&live, "ConfigurationValid"), expected, "{name}: {:#}", live["status"]);
        assert!(message(&live, "Ready").contains(words), "{name}: {}", message(&live, "Ready"));
    }
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    // Questions are put as objects, and not stored; the inventory says that there is nothing.
    let stored =
        |one: &Request| one.counts_as_write() && one.subresource != "status" && one.group != "authorization.k8s.io";
    let writes: Vec<_> = cluster.requests(mark).await?.iter().filter(|one| stored(one)).map(describe).collect();
    assert!(writes.iter().all(|one| one == "patch configmaps ccm-operator-inventory"), "{writes:?}");

    // What is not allowed any more keeps what it has.
    cluster.patch("cluster", json!({"spec": {"image": {"repository": null}}})).await?;
    cluster.ready(&operator, "cluster").await?;
    let installed = cluster.objects(Some("cluster")).await?;
    assert!(installed.iter().any(|object| object.starts_with("Deployment ")), "{installed:?}");
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = start("--names=second")?;
    let live = cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await?;
    assert_eq!(reason(&live, "ConfigurationValid"), "NameNotAllowed");
    assert_eq!(cluster.objects(Some("cluster")).await?, installed);
    let removed =
        json!({"management": "Removed", "image": other, "leaderElection": {"leaseName": "of-another-program"}});
    cluster.patch("cluster", json!({"spec": removed})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False", "Stalled=False"]).await?;
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn an_object_is_paused_removed_and_cleaned_up_after_a_crash() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", only("cloudNode", json!({"provider": "aws"}))).await?;
    cluster.create("other", only("service", json!({"provider": "aws", "ports": {"secure": 10268}}))).await?;
    cluster.ready(&operator, "cluster").await?;
    cluster.ready(&operator, "other").await?;
    let other = cluster.objects(Some("other")).await?;
    let services = cluster.objects(Some("cluster")).await?;
    assert_eq!(services.len(), other.len());

    let daemon_set = services.iter().find_map(|object| object.strip_prefix("DaemonSet ")).unwrap();
    let generation = async || {
        let live = api(&cluster, "DaemonSet", "kube-system").get(daemon_set).await?;
        anyhow::Ok(live.metadata.generation)
    };
    let before = generation().await?;
    cluster.patch("cluster", json!({"spec": {"management": "Paused", "logging": {"verbosity": 5}}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=Unknown", "Stalled=False"]).await?;
    assert_eq!(cluster.objects(Some("cluster")).await?, services, "nothing is deleted");
    assert_eq!(generation().await?, before, "nothing is changed");
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False"]).await?;
    assert_eq!(message(&live, "Ready"), "spec.management is Removed: all its objects are deleted");
    assert_eq!(cluster.objects(None).await?, other);
    cluster.patch("cluster", json!({"spec": {"management": "Managed"}})).await?;
    cluster.ready(&operator, "cluster").await?;

    // What is deleted while no operator runs goes as soon as one does.
    operator.kill()?;
    operator.wait(LIMIT).await?;
    cluster.delete("cluster").await?;
    let operator = cluster.start()?;
    cluster.objects_are(&operator, None, |objects| objects == other).await?;
    // Nothing is said to be gone because the inventory is.
    cluster.create("cluster", only("cloudNode", json!({"provider": "aws"}))).await?;
    cluster.ready(&operator, "cluster").await?;
    operator.kill()?;
    operator.wait(LIMIT).await?;
    let inventory = api(&cluster, "ConfigMap", "ccm-operator");
    inventory.delete("ccm-operator-inventory", &DeleteParams::default()).await?;
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    let operator = cluster.start()?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False"]).await?;
    assert!(message(&live, "Ready").contains("all its objects are deleted"), "{live:#}");
    let left = cluster.objects(None).await?;
    assert_eq!(left, other, "{}", operator.log());
    // The lowest version of the control plane decides.
    set_version(&cluster.client, "control-plane", "v1.34.1").await?;
    eventually("the other version", LIMIT, async || {
        let live = cluster.ready(&operator, "other").await?;
        ensure!(live["status"]["cluster"]["kubernetes"] == "1.34", "{}", live["status"]);
        ensure!(
            live["status"]["provider"]["version"].as_str().unwrap_or_default().starts_with("v1.34."),
            "{}",
            live["status"]
        );
        Ok(Some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_serves_neither_kind_is_said_to_be_so_and_waited_for() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client()?;
    let arguments =
        ["operator", "--operator-namespace=default", "--health-addr=127.0.0.1:0", "--metrics-bind-address=0"];
    let operator = Operator::start(binary(), &plane.kubeconfig_admin(), &arguments, &[])?;
    eventually("the line", LIMIT, async || {
        let log = operator.log();
        ensure!(
            log.contains("serves neither infrastructures.config.openshift.io (OpenShift) nor cloudcontroll"),
            "{log}"
        );
        Ok(Some(()))
    })
    .await?;
    let definition = installation(&["--providers", "aws"])?;
    let definition = definition.into_iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap();
    objects::apply(&client, definition).await?;
    eventually("the other line", LIMIT, async || {
        let log = operator.log();
        ensure!(log.contains("this cluster is not OpenShift: acting on CloudControllerManagers"), "{log}");
        Ok(Some(()))
    })
    .await?;
    let log = operator.log();
    assert_eq!(log.matches("serves neither").count(), 1, "{log}");
    assert!(!log.contains("failed to watch infrastructures"), "{log}");
    Ok(())
}

/// The definition in a version with another field, and in one that lacks a field.
#[tokio::test]
async fn another_version_of_the_definition_is_no_disaster() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    cluster.ready(&operator, "cluster").await?;
    let before = cluster.objects(None).await?;
    let current = installation(&["--providers", "aws"])?;
    let current = current.into_iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap();
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let with = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut other = current.clone();
        change(other.pointer_mut(fields).unwrap().as_object_mut().unwrap());
        other
    };

    let newer = with(&|fields| drop(fields.insert("nodePools".into(), json!({"type": "string"}))));
    objects::apply(&cluster.client, newer).await?;
    eventually("the field to be served", LIMIT, async || {
        cluster.patch("cluster", json!({"spec": {"nodePools": "x"}})).await?;
        ensure!(cluster.ccms().get("cluster").await?.data["spec"]["nodePools"] == "x", "it is pruned");
        Ok(Some(()))
    })
    .await?;
    let live = cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Ready=False"]).await?;
    let text = message(&live, "ConfigurationValid");
    assert!(text.contains("unknown field `nodePools`") && text.ends_with("this may need a newer operator"), "{text}");
    assert_eq!(cluster.objects(None).await?, before, "what runs is left alone");
    cluster.patch("cluster", json!({"spec": {"nodePools": null}})).await?;
    cluster.ready(&operator, "cluster").await?;

    let older = with(&|fields| drop(fields.remove("logging")));
    objects::apply(&cluster.client, older).await?;
    cluster.patch("cluster", json!({"spec": {"clusterName": "other"}})).await?;
    cluster.ready(&operator, "cluster").await?;
    objects::apply(&cluster.client, current.clone()).await?;
    eventually("the field to be back", LIMIT, async || {
        cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 4}}})).await?;
        ensure!(cluster.ccms().get("cluster").await?.data["spec"]["logging"]["verbosity"] == 4, "it is pruned");
        Ok(Some(()))
    })
    .await?;
    cluster.ready(&operator, "cluster").await?;
    assert_eq!(cluster.objects(None).await?, before);
    Ok(())
}

#[tokio::test]
async fn a_dry_run_logs_the_changes_and_writes_nothing() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
            "name": "aws-cloud-controller-manager", "namespace": "kube-system", "labels": {"app": "chart"},
        },
    });
    objects::apply(&cluster.client, account).await?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    cluster.create("bad", json!({"provider": "awz"})).await?;
    let mark = cluster.mark().await?;
    let own = format!("--operator-namespace={OWN_NAMESPACE}");
    let arguments = ["operator", "--dry-run", &own, "--health-addr=127.0.0.1:0", "--metrics-bind-address=0"];
    let operator = Operator::start(binary(), &cluster.kubeconfig, &[&arguments[..], &LIMITS[..]].concat(), &[])?;
    for line in [
        "dry run: would create DaemonSet kube-system/aws-cloud-controller-manager",
        "dry run: could not apply ServiceAccount kube-system/aws-cloud-controller-manager: it exists, made by",
        "dry run: CloudControllerManager bad: spec.provider: there is no provider \"awz\"",
    ] {
        eventually(line, LIMIT, async || {
            let log = operator.log();
            ensure!(log.contains(line), "{log}");
            Ok(Some(()))
        })
        .await?;
    }
    assert!(!operator.log().contains("everything is applied"), "{}", operator.log());
    let writes = cluster.requests(mark).await?.into_iter().filter(Request::is_write);
    // A question that is put as an object, and not stored.
    let writes: Vec<_> = writes.filter(|one| one.group != "authorization.k8s.io").collect();
    assert!(writes.is_empty(), "{writes:#?}");
    Ok(())
}
