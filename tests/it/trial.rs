//! `provider test`: on a control plane with its controllers, and a stand-in for the kubelet.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    diff,
    lab::{LIMIT, binary},
    nodes::kubelet::Kubelet,
    scaffold,
    support::{control_plane::Options, eventually, kubelet, kubernetes::Kubernetes, objects, process::Process},
};

const TOKEN: &str = "s3cret-t0ken";
const LABEL: &str = "ccm-operator.dev/test";

/// A cluster, and the folder of a provider with its credentials beside it.
struct Fixture {
    cluster: Kubernetes,
    folder: TempDir,
    before: BTreeSet<String>,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let options = Options { controllers: true, ..Options::default() };
        let cluster = Kubernetes::with(options, "hcloud").await?;
        // The image is for this architecture only.
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let amd64 = Patch::Merge(json!({"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}));
        nodes.patch("control-plane", &PatchParams::default(), &amd64).await?;
        let folder = TempDir::new()?;
        let image = format!("--image=registry.example/acme/ccm:v1.2.3@sha256:{}", "0a".repeat(32));
        let new = ["acme", &image, "--credentials=ACME_TOKEN=token"];
        let written = scaffold::new(folder.path(), &new);
        ensure!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        fs::write(folder.path().join("token.env"), format!("token={TOKEN}\n"))?;
        // An object that others have made, under the name that the provider's own would have without a test.
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "acme-cloud-controller-manager"}, "rules": rules});
        objects::apply(&cluster.client, role).await?;
        cluster.put_secret("acme", json!({"token": TOKEN, "other": "not asked for"})).await?;
        let before = all(&cluster.client).await?;
        Ok(Self { cluster, folder, before })
    }

    fn target(&self) -> String {
        self.folder.path().join("acme").display().to_string()
    }

    /// Runs it to its end: exit code, output, messages.
    async fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
        let target = self.target();
        let output = diff::run(kubeconfig, &[&["provider", "test", &target], arguments].concat()).await?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    }

    /// Starts it, and waits until its pod is there.
    async fn start(&self) -> Result<(Process, Value)> {
        let mut command = Command::new(binary());
        command.args(["provider", "test", &self.target(), "--secret=kube-system/acme", "--timeout=10m"]);
        command.arg("--kubeconfig").arg(self.cluster.plane.kubeconfig_admin());
        let process = Process::spawn("provider test", command, &self.folder.path().join("log"))?;
        let pod = eventually("the pod of the test", LIMIT, async || {
            ensure!(process.try_wait()?.is_none(), "{}", process.log());
            Ok(self.pods().await?.into_iter().next())
        });
        let pod = pod.await.with_context(|| process.log())?;
        Ok((process, pod))
    }

    /// The pods of tests.
    async fn pods(&self) -> Result<Vec<Value>> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let mut pods = Vec::new();
        for namespace in namespaces.list(&ListParams::default().labels(LABEL)).await? {
            let own: Api<Pod> =
                Api::namespaced(self.cluster.client.clone(), namespace.metadata.name.as_deref().unwrap());
            for pod in own.list(&ListParams::default()).await? {
                pods.push(serde_json::to_value(pod)?);
            }
        }
        Ok(pods)
    }

    /// Checks that earlier objects are unchanged, and that no object of a test is left. The cluster's controllers may create others.
    async fn assert_removed(&self, said: &str) -> Result<()> {
        let now = all(&self.cluster.client).await?;
        assert_eq!(self.before.difference(&now).collect::<Vec<_>>(), [] as [&String; 0], "{said}");
        assert_eq!(
            now.iter().filter(|one| one.contains("ccm-test-")).collect::<Vec<_>>(),
            [] as [&String; 0],
            "{said}"
        );
        assert!(!said.contains(TOKEN), "{said}");
        Ok(())
    }
}

/// Every object that a test may change, with its resource version, which a change would replace.
async fn all(client: &Client) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let others = ["Namespace", "Secret", "Lease"].map(|kind| match kind {
        "Lease" => kube::api::ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&()),
        "Secret" => kube::api::ApiResource::erase::<Secret>(&()),
        _ => kube::api::ApiResource::erase::<Namespace>(&()),
    });
    for resource in KINDS.iter().map(request::resource).chain(others) {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await? {
            let metadata = object.metadata;
            let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
            // Leases are renewed, and kube-controller-manager completes the roles that every cluster has.
            let is_own = metadata.labels.is_some_and(|labels| labels.contains_key("kubernetes.io/bootstrapping"));
            let version = metadata.resource_version.filter(|_| resource.kind != "Lease" && !is_own);
            found.insert(format!("{} {namespace}/{name} {version:?}", resource.kind));
        }
    }
    Ok(found)
}

#[tokio::test]
async fn a_pod_that_is_ready_passes_and_nothing_is_left() -> Result<()> {
    let fixture = Fixture::new().await?;
    let kubelet = Kubelet::start().await?;
    let addresses = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }});
    let nodes: Api<Node> = Api::all(fixture.cluster.client.clone());
    nodes.patch_status("control-plane", &PatchParams::default(), &Patch::Merge(addresses)).await?;
    kubelet.log(&["Version: v1.2.3", &format!("logged in with --token={TOKEN}")]);
    let (client, mut stand_ins) = (fixture.cluster.client.clone(), JoinSet::new());
    stand_ins.spawn(kubelet::run(client));

    let credentials = fixture.folder.path().join("token.env");
    let arguments = ["--credentials", credentials.to_str().unwrap(), "--output=json"];
    let mark = fixture.cluster.mark().await?;
    let (code, text, said) = fixture.run(&fixture.cluster.plane.kubeconfig_admin(), &arguments).await?;
    assert_eq!(code, Some(0), "{text}{said}");
    // With all that has been answered.
    fixture.cluster.mark().await?;
    let created = fixture.cluster.plane.audit().since(mark)?;
    let report: Value = serde_json::from_str(&text)?;
    assert_eq!((&report["ready"], &report["controllers"], &report["left"]), (&json!(true), &json!([]), &json!([])));
    let name = report["test"].as_str().context("its name")?;
    assert!(name.starts_with("ccm-test-") && name.len() == 14 && report["namespace"] == name, "{report:#}");
    let container = &report["pods"][0]["containers"][0];
    assert_eq!(container["state"], "running", "{report:#}");
    assert_eq!(container["log"], json!(["Version: v1.2.3", "logged in with --token=***"]), "{report:#}");
    assert!(said.contains("everything is removed"), "{said}");
    // What the operator adds to a provider of somebody else was there before its permissions were.
    let created: Vec<_> = created.iter().filter(|one| one.verb == "create" && one.code == 201).collect();
    let at = |resource: &str, name: &str| {
        created.iter().position(|one| (one.resource.as_str(), one.name.as_str()) == (resource, name))
    };
    let role = at("clusterroles", &format!("acme-cloud-controller-manager-{name}"));
    assert!(role.is_some(), "{created:?}");
    for policy in ["services", "nodes"] {
        let policy = format!("acme-cloud-controller-manager-external-{policy}-{name}");
        for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            let place = at(resource, &policy);
            assert!(place.is_some() && place < role, "{resource} {policy}: {created:?}");
        }
    }
    fixture.assert_removed(&format!("{text}{said}")).await
}

#[tokio::test]
async fn a_pod_that_is_not_ready_is_reported_in_its_own_words() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (client, mut stand_ins) = (fixture.cluster.client.clone(), JoinSet::new());
    let crash = json!({"exitCode": 1, "reason": "Error", "message": format!("cannot log in with --token={TOKEN}\n")});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": "cloud-controller-manager", "image": "a", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": crash},
    }]}});
    stand_ins.spawn(async move {
        loop {
            let everywhere: Api<Pod> = Api::all(client.clone());
            for pod in everywhere.list(&ListParams::default()).await.into_iter().flatten() {
                let (namespace, name) =
                    (pod.metadata.namespace.unwrap_or_default(), pod.metadata.name.unwrap_or_default());
                let own: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                if pod.metadata.deletion_timestamp.is_some() {
                    let _ = own.delete(&name, &kube::api::DeleteParams::default().grace_period(0)).await;
                } else {
                    let _ = own.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
    let arguments = ["--secret=kube-system/acme", "--timeout=8s"];
    let (code, text, said) = fixture.run(&fixture.cluster.plane.kubeconfig_admin(), &arguments).await?;
    assert_eq!(code, Some(1), "{text}{said}");
    for words in ["NO POD WAS READY", "waiting (CrashLoopBackOff)", "crashes: container", "cannot log in", "***"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    fixture.assert_removed(&format!("{text}{said}")).await
}

#[tokio::test]
async fn a_signal_removes_everything() -> Result<()> {
    let fixture = Fixture::new().await?;
    for signal in [Process::interrupt, Process::terminate] {
        let (process, pod) = fixture.start().await?;
        let namespace = pod["metadata"]["namespace"].as_str().context("its namespace")?.to_owned();
        let secrets: Api<Secret> = Api::namespaced(fixture.cluster.client.clone(), &namespace);
        let copied = secrets.get(&namespace).await?.data.unwrap_or_default();
        assert_eq!(copied.keys().collect::<Vec<_>>(), ["token"], "only what the provider reads is copied");
        // A pod on a node goes with its kubelet only.
        let (client, mut stand_ins) = (fixture.cluster.client.clone(), JoinSet::new());
        signal(&process)?;
        stand_ins.spawn(kubelet::run(client));
        let ended = eventually("its end", LIMIT, async || process.try_wait()).await.with_context(|| process.log())?;
        assert_eq!(ended.code(), Some(2), "{}", process.log());
        assert!(process.log().contains("stopped by a signal"), "{}", process.log());
        fixture.assert_removed(&process.log()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn objects_left_after_a_second_signal_are_named_with_the_command() -> Result<()> {
    let fixture = Fixture::new().await?;
    // Nothing ends the pod: its workload cannot go.
    let (process, pod) = fixture.start().await?;
    process.interrupt()?;
    eventually("the removal", LIMIT, async || {
        ensure!(process.log().contains("removing what test"), "{}", process.log());
        Ok(Some(()))
    })
    .await?;
    process.interrupt()?;
    let ended = eventually("its end", LIMIT, async || process.try_wait()).await.with_context(|| process.log())?;
    assert_eq!(ended.code(), Some(2), "{}", process.log());
    let test = pod["metadata"]["namespace"].as_str().context("its namespace")?;
    let log = process.log();
    let line = log.lines().find(|line| line.contains("kubectl") && line.contains(&format!("delete namespaces {test}")));
    assert!(line.is_some_and(|line| line.contains("--kubeconfig=")), "{log}");
    assert!(
        log.contains(&format!("delete deployments.apps acme-cloud-controller-manager-{test} --namespace {test}")),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn missing_permissions_are_named_before_anything_is_made() -> Result<()> {
    let fixture = Fixture::new().await?;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}});
    objects::apply(&fixture.cluster.client, account).await?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "secrets", "pods", "pods/log", "events"], "verbs": ["get", "list"]},
        {"apiGroups": ["ccm-operator.dev"], "resources": ["cloudcontrollermanagers"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["namespaces", "secrets", "serviceaccounts"], "verbs": ["get", "create", "delete"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "create"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
            "verbs": ["get", "create", "delete"]},
    ]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules});
    objects::apply(&fixture.cluster.client, role).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
    objects::apply(&fixture.cluster.client, binding).await?;
    let kubeconfig = fixture.cluster.plane.service_account_kubeconfig("default", "reader").await?;
    let said = eventually("the permissions of the account", LIMIT, async || {
        let (code, _, said) = fixture.run(&kubeconfig, &["--secret=kube-system/acme"]).await?;
        ensure!(code == Some(2) && said.contains("you may not"), "{said}");
        Ok(Some(said))
    })
    .await?;
    let lacking = said.split_once("you may not ").map(|(_, lacking)| lacking.trim()).unwrap_or_default();
    // To delete its workload, and what its roles grant.
    assert!(lacking.contains("delete deployments.apps in namespace ccm-test-"), "{said}");
    assert!(lacking.contains("create tokenreviews.authentication.k8s.io"), "{said}");
    assert!(!lacking.contains("create namespaces") && !lacking.contains("create secrets"), "{said}");
    assert_eq!(fixture.pods().await?.len(), 0);
    let namespaces: Api<Namespace> = Api::all(fixture.cluster.client.clone());
    assert_eq!(namespaces.list(&ListParams::default().labels(LABEL)).await?.items.len(), 0, "{said}");
    Ok(())
}

#[tokio::test]
async fn missing_inputs_of_the_provider_are_reported_before_any_object_is_created() -> Result<()> {
    let fixture = Fixture::new().await?;
    let admin = fixture.cluster.plane.kubeconfig_admin();
    for (arguments, why) in [
        (&[][..], "needs the key token in --credentials or --secret"),
        (&["--secret=acme"], "--secret must be NAMESPACE/NAME"),
        (&["--secret=kube-system/none"], "there is no Secret kube-system/none"),
        (&["--secret=kube-system/acme", "--cloud-config=/dev/null"], "provider acme reads no configuration"),
    ] {
        let (code, text, said) = fixture.run(&admin, arguments).await?;
        assert_eq!(code, Some(2), "{text}{said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        fixture.assert_removed(&format!("{text}{said}")).await?;
    }
    Ok(())
}
