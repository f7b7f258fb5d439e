//! A cluster that is not OpenShift, with tainted nodes and nothing of the operator, and what `docs/any-kubernetes.md` does to it. A
//! kubelet starts this program for the pods of the operator's Deployment; of a CCM it does the one thing that the page waits for.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Node, Pod, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{paths::follow, shell::Shell};
use crate::{
    lab::{LIMIT, binary, repository},
    published,
    support::{
        control_plane::{ControlPlane, Options},
        eventually, kubelet,
        kubernetes::set_version,
        operator::Operator,
    },
};

/// The taint of a node whose kubelet has been started with `--cloud-provider=external`.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const PERIOD: Duration = Duration::from_millis(100);
/// A node whose kubelet starts no pod.
const DEAD: &str = "control-plane-dead";
/// The CCM of the page.
const CCM: &str = "hcloud-cloud-controller-manager";

/// The cluster; dropping it stops everything.
pub(super) struct Fixture {
    client: Client,
    _stand_ins: JoinSet<()>,
}

impl Fixture {
    /// Three nodes of the control plane and a worker, none of them initialized or with a network.
    pub(super) async fn new() -> Result<(Self, Shell)> {
        let plane = Arc::new(ControlPlane::start(Options { controllers: true, ..Options::default() }).await?);
        let client = plane.client()?;
        for node in ["control-plane-0", "control-plane-1", "control-plane-2", "worker-0"] {
            add_node(&client, node).await?;
        }
        // kube-controller-manager begins its work a while after its start.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        eventually("kube-controller-manager", LIMIT, async || Ok(accounts.get_opt("default").await?.map(drop))).await?;
        let shell = Shell::new(&plane.kubeconfig_admin()).await?;
        let kubelet = Kubelet { client: client.clone(), plane, operators: BTreeMap::new(), files: TempDir::new()? };
        let mut stand_ins = JoinSet::new();
        stand_ins.spawn(kubelet.run());
        Ok((Self { client, _stand_ins: stand_ins }, shell))
    }

    /// The names of the nodes that no CCM has initialized.
    pub(super) async fn uninitialized(&self) -> Result<Vec<String>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await?;
        Ok(nodes.iter().filter(|node| is_uninitialized(node)).map(ResourceExt::name_any).collect())
    }
}

/// A Ready node as its kubelet registers it.
async fn add_node(client: &Client, name: &str) -> Result<()> {
    let is_control_plane = name.starts_with("control-plane");
    // The image of the page is for one architecture.
    let labels = [("kubernetes.io/arch", "amd64"), (CONTROL_PLANE, "")];
    kubelet::add_node(client, name, &labels[..=usize::from(is_control_plane)]).await?;
    set_version(client, name, "v1.35.4").await?;
    let mut taints = vec![UNINITIALIZED, "node.kubernetes.io/not-ready"];
    taints.extend(is_control_plane.then_some(CONTROL_PLANE));
    let taints: Vec<_> = taints.into_iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    Api::<Node>::all(client.clone()).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn is_uninitialized(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == UNINITIALIZED)
}

/// The kubelet of all nodes.
struct Kubelet {
    client: Client,
    plane: Arc<ControlPlane>,
    /// By the UID of the Pod.
    operators: BTreeMap<String, Operator>,
    /// The volumes of pods.
    files: TempDir,
}

impl Kubelet {
    async fn run(mut self) {
        loop {
            // An error is a conflict, or a namespace that does not exist yet; the next attempt shows which.
            let _ = self.look().await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let everywhere: Api<Pod> = Api::all(self.client.clone());
        for pod in everywhere.list(&ListParams::default()).await? {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("a container")?;
            if pod.metadata.deletion_timestamp.is_some() {
                if let Some(operator) = self.operators.remove(&uid) {
                    operator.terminate()?;
                    operator.wait(LIMIT).await?;
                }
                api.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            } else if kubelet::is_startable(&pod) && !is_on(&pod, DEAD) {
                if container.name == "ccm-operator" {
                    let operator = self.start(&pod, container).await?;
                    self.operators.insert(uid, operator);
                }
                let status = json!({"status": kubelet::running(&pod)});
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
            } else if container.name == "cloud-controller-manager"
                && pod.status.is_some_and(|it| it.start_time.is_some())
            {
                self.initialize(
                    &pod.metadata.namespace.unwrap_or_default(),
                    pod.spec.unwrap_or_default().service_account_name,
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Starts the operator with the command, the arguments and the variables of its container, as its ServiceAccount.
    async fn start(&self, pod: &Pod, container: &Container) -> Result<Operator> {
        let words: Vec<_> = container.command.iter().chain(&container.args).flatten().map(String::as_str).collect();
        let (program, arguments) = words.split_first().context("a command")?;
        ensure!(*program == "ccm-operator", "{program}");
        let namespace = pod.namespace().unwrap_or_default();
        // Instead of the file with the namespace that a kubelet mounts.
        let own_namespace = format!("--operator-namespace={namespace}");
        let volumes = self.volumes(pod, container).await?;
        let arguments: Vec<_> =
            arguments.iter().map(|argument| here(argument, &volumes)).chain([own_namespace]).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let uid = pod.uid().unwrap_or_default();
        let mut variables = Vec::new();
        for variable in container.env.iter().flatten() {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            let value = match (&variable.value, field.map(|field| field.field_path.as_str())) {
                (Some(value), _) => value.as_str(),
                (None, Some("metadata.uid")) => uid.as_str(),
                (None, field) => bail!("the variable {} is from {field:?}", variable.name),
            };
            variables.push((variable.name.as_str(), value));
        }
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).context("an account")?;
        // Instead of the token that a kubelet mounts, and of the API server's address in the Pod.
        let kubeconfig = self.plane.service_account_kubeconfig(&namespace, account).await?;
        Operator::start(binary(), &kubeconfig, &arguments, &variables)
    }

    /// The projected ConfigMaps of a container, each as (path in the container, path here), with the links that a kubelet makes.
    async fn volumes(&self, pod: &Pod, container: &Container) -> Result<Vec<(String, PathBuf)>> {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let mut mounted = Vec::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let mount = container.volume_mounts.iter().flatten().find(|mount| mount.name == volume.name);
            let (Some(mount), Some(projected)) = (mount, &volume.projected) else { continue };
            let folder = self.files.path().join(pod.uid().unwrap_or_default()).join(&volume.name);
            fs::create_dir_all(folder.join("..2026"))?;
            for named in projected.sources.iter().flatten().filter_map(|source| source.config_map.as_ref()) {
                let config_map = config_maps.get(&named.name).await?;
                let texts = config_map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                let bytes = config_map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                for (key, bytes) in texts.chain(bytes) {
                    fs::write(folder.join("..2026").join(&key), bytes)?;
                    symlink(Path::new("..data").join(&key), folder.join(key))?;
                }
            }
            symlink("..2026", folder.join("..data"))?;
            mounted.push((mount.mount_path.clone(), folder));
        }
        Ok(mounted)
    }

    /// Does the work of a CCM, with the permissions of its ServiceAccount: no cloud is here.
    async fn initialize(&self, namespace: &str, account: Option<String>) -> Result<()> {
        let account = account.context("an account")?;
        let waiting: Api<Node> = Api::all(self.client.clone());
        let waiting = waiting.list(&ListParams::default()).await?;
        if !waiting.iter().any(is_uninitialized) {
            return Ok(());
        }
        let kubeconfig = self.plane.service_account_kubeconfig(namespace, &account).await?;
        let config = Kubeconfig::read_from(kubeconfig)?;
        let own = Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?;
        let nodes: Api<Node> = Api::all(own);
        for mut node in nodes.list(&ListParams::default()).await?.into_iter().filter(is_uninitialized) {
            let name = node.name_any();
            let spec = node.spec.get_or_insert_default();
            spec.taints.iter_mut().for_each(|taints| taints.retain(|taint| taint.key != UNINITIALIZED));
            spec.provider_id = Some(format!("hcloud://{name}"));
            let patch = json!({"spec": {"taints": spec.taints, "providerID": spec.provider_id}});
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    }
}

fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node))
}

/// An argument with ports that are free here, as all nodes are this host, and with the paths of volumes.
fn here(argument: &str, volumes: &[(String, PathBuf)]) -> String {
    match argument.split_once('=').map(|(flag, _)| flag) {
        Some("--health-addr") => "--health-addr=127.0.0.1:0".into(),
        Some("--metrics-bind-address") => "--metrics-bind-address=127.0.0.1:0".into(),
        _ => volumes.iter().fold(argument.to_owned(), |argument, (there, here)| {
            argument.replace(&format!("={there}/"), &format!("={}/", here.display()))
        }),
    }
}

/// Runs a command, and returns its output.
pub(super) async fn run(shell: &Shell, command: &str) -> Result<String> {
    let (code, output) = shell.run(command).await?;
    ensure!(code == Some(0), "exit code {code:?} of {command}\n{output}");
    Ok(output.trim().to_owned())
}

/// The UID of the CCM's Deployment.
pub(super) async fn uid(shell: &Shell) -> Result<String> {
    run(shell, &format!("kubectl --namespace kube-system get deployment {CCM} -o jsonpath='{{.metadata.uid}}'")).await
}

/// The objects of the applied file that exist.
async fn installed(shell: &Shell) -> Result<Vec<String>> {
    let there = run(shell, "kubectl get --ignore-not-found -f ccm-operator.yaml -o name").await?;
    Ok(there.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn the_quick_start_initializes_the_nodes() -> Result<()> {
    let (fixture, shell) = Fixture::new().await?;
    // It is followed in a checkout.
    symlink(repository().join("docs"), shell.folder().join("docs"))?;
    follow(&shell, ("README.md", "Quick start")).await?;
    eventually("the nodes", LIMIT, async || {
        let waiting = fixture.uninitialized().await?;
        ensure!(waiting.is_empty(), "{waiting:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_tainted_cluster_is_initialized_and_everything_uninstalled() -> Result<()> {
    let (fixture, shell) = Fixture::new().await?;
    assert_eq!(fixture.uninitialized().await?.len(), 4);

    follow(&shell, ("docs/any-kubernetes.md", "Installing the operator")).await?;
    run(&shell, "kubectl --namespace ccm-operator rollout status deployment ccm-operator --timeout=1m").await?;
    follow(&shell, ("docs/any-kubernetes.md", "The address of the API server")).await?;
    assert_eq!(fixture.uninitialized().await?.len(), 4, "the operator does not initialize nodes");
    follow(&shell, ("docs/any-kubernetes.md", "The first cloud-controller-manager")).await?;
    assert_eq!(fixture.uninitialized().await?, Vec::<String>::new());
    let account = format!("system:serviceaccount:kube-system:{CCM}");
    assert_eq!(shell.run(&format!("kubectl auth can-i delete nodes --as={account}")).await?.0, Some(1));
    follow(&shell, ("docs/any-kubernetes.md", "If it does not become ready")).await?;
    follow(&shell, ("docs/any-kubernetes.md", "Behind a mirror or a proxy")).await?;
    run(&shell, "kubectl --namespace ccm-operator rollout status deployment ccm-operator --timeout=1m").await?;
    follow(&shell, ("docs/any-kubernetes.md", "Images")).await?;
    follow(&shell, ("docs/any-kubernetes.md", "Rendering without an operator")).await?;

    let before = uid(&shell).await?;
    follow(&shell, ("docs/any-kubernetes.md", "Uninstalling the operator, but not the CCMs")).await?;
    let definition = "customresourcedefinition.apiextensions.k8s.io/cloudcontrollermanagers.ccm-operator.dev";
    assert_eq!(installed(&shell).await?, [definition, "namespace/ccm-operator"]);
    run(&shell, "kubectl get ccm cluster").await?;
    assert_eq!(uid(&shell).await?, before, "the CCM is still there");

    follow(&shell, ("docs/any-kubernetes.md", "Installing the operator")).await?;
    run(&shell, "kubectl patch ccm cluster --type=merge --patch='{\"spec\": {\"logging\": {\"verbosity\": 6}}}'")
        .await?;
    let arguments = format!("kubectl --namespace kube-system get deployment {CCM} -o jsonpath='{{..args}}'");
    eventually("the change", LIMIT, async || {
        let arguments = run(&shell, &arguments).await?;
        ensure!(arguments.contains("--v=6"), "{arguments}");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(uid(&shell).await?, before, "it was taken over");

    follow(&shell, ("docs/any-kubernetes.md", "Changing, pausing, removing")).await?;
    assert_eq!(left(&shell).await?, "");
    run(&shell, "kubectl --namespace kube-system get secret hcloud").await?;
    is_deleted_by_the_next_operator(&shell).await?;

    run(&shell, AGAIN).await?;
    follow(&shell, ("docs/any-kubernetes.md", "Uninstalling everything")).await?;
    assert_eq!((installed(&shell).await?, left(&shell).await?.as_str()), (Vec::new(), ""));
    let ids = run(&shell, "kubectl get nodes -o jsonpath='{.items[*].spec.providerID}'").await?;
    assert_eq!(ids.split_whitespace().count(), 4, "{ids}");
    Ok(())
}

/// The CCM of the page again, after its object was deleted.
const AGAIN: &str = "kubectl apply --server-side -f ccm.yaml && \
                     kubectl wait --for=condition=Ready --timeout=1m ccm/cluster";

/// A CCM whose object is deleted while no operator is installed.
async fn is_deleted_by_the_next_operator(shell: &Shell) -> Result<()> {
    run(shell, AGAIN).await?;
    follow(shell, ("docs/any-kubernetes.md", "Uninstalling the operator, but not the CCMs")).await?;
    run(shell, "kubectl delete ccm cluster").await?;
    ensure!(!left(shell).await?.is_empty(), "there is nothing to delete");
    follow(shell, ("docs/any-kubernetes.md", "Installing the operator")).await?;
    eventually("the deletion", LIMIT, async || {
        let left = left(shell).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(Some(()))
    })
    .await
}

/// The objects of the CCM.
pub(super) async fn left(shell: &Shell) -> Result<String> {
    let kinds = "deployments,daemonsets,services,poddisruptionbudgets,configmaps,serviceaccounts,roles,rolebindings,clusterroles,\
                 clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
    run(shell, &format!("kubectl get {kinds} --all-namespaces --selector app.kubernetes.io/instance=cluster -o name"))
        .await
}

/// A Secret of this name with the wrong key, and one with the right key.
const SECRETS: &str = "kubectl --namespace kube-system create secret generic wrong --from-literal=tokn=x && \
                       kubectl --namespace kube-system create secret generic right --from-literal=token=x";

/// A specification that something is wrong with, the reason that `kubectl get ccm` shows, and the message as on the page.
const PROBLEMS: &[(&str, &str, &str)] = &[
    (
        "{provider: hcloud, credentials: {secretRef: {name: hcloud}}}",
        "BadInput",
        "Secret kube-system/hcloud does not exist: create it",
    ),
    (
        "{provider: hcloud, credentials: {secretRef: {name: wrong}}}",
        "BadInput",
        "Secret kube-system/… has no key token; it has …",
    ),
    (
        "{provider: hcloud, credentials: {secretRef: {name: prod}}}",
        "BadInput",
        "Secret kube-system/prod cannot be read: …",
    ),
    ("{provider: hcloud}", "BadInput", "provider … needs a Secret with the keys …"),
    ("{provider: hetzner}", "BadInput", "there is no provider …"),
    ("{provider: aws, namespace: default}", "BadInput", "the operator may not manage …"),
    (
        "{provider: aws, controllers: {cloudNodeLifecycle: Enabled}}",
        "BadInput",
        "the operator may not let nodes be deleted; …",
    ),
    (
        "{provider: hcloud, credentials: {secretRef: {name: right}}, placement: {nodeSelector: {no: node}}}",
        "RollingOut",
        "waiting for the rollout of …",
    ),
    ("{provider: aws, placement: {nodeSelector: {no: node}}}", "NoPods", "… no node fits"),
    (
        "{provider: aws, placement: {nodeSelector: {kubernetes.io/hostname: control-plane-dead}}}",
        "NoPodReady",
        "none of … pods is ready",
    ),
];

/// Applies an object, checks the output about it, and deletes it.
async fn is_reported(shell: &Shell, (spec, reason, text): (&str, &str, &str)) -> Result<()> {
    let page = |name: &str| fs::read_to_string(repository().join("docs").join(name));
    ensure!(page("reasons.md")?.contains(&format!("\n| `{reason}` |")), "not on the page of reasons: {reason}");
    ensure!(page("any-kubernetes.md")?.contains(&format!("`{text}`")), "not on the page: {text}");
    let manifest = format!(
        "{{apiVersion: ccm-operator.dev/v1alpha1, kind: CloudControllerManager, metadata: {{name: cluster}}, spec: {spec}}}"
    );
    let apply = format!("kubectl apply --server-side -f - <<'EOF'\n{manifest}\nEOF");
    eventually("the definition", LIMIT, async || Ok(Some(run(shell, &apply).await?))).await?;
    eventually("the reason", LIMIT, async || {
        let shown = run(shell, "kubectl get ccm cluster --no-headers").await?;
        let messages = run(shell, "kubectl get ccm cluster -o jsonpath='{.status.conditions[*].message}'").await?;
        let is_shown = shown.contains(reason) && text.split('…').all(|part| messages.contains(part));
        ensure!(is_shown, "{spec}: not {reason} and {text}:\n{shown}\n{messages}");
        Ok(Some(()))
    })
    .await?;
    run(shell, "kubectl delete ccm cluster").await.map(drop)
}

#[tokio::test]
async fn problems_are_reported_as_the_page_says() -> Result<()> {
    let (fixture, shell) = Fixture::new().await?;
    add_node(&fixture.client, DEAD).await?;
    let install = async |providers: &str| {
        let render = "ccm-operator render install --image x --secrets hcloud,wrong,right";
        run(&shell, &format!("{render} --providers {providers} | kubectl apply --server-side -f -")).await
    };
    install("hcloud,aws").await?;
    run(&shell, SECRETS).await?;
    for problem in PROBLEMS {
        is_reported(&shell, *problem).await?;
    }
    // Somebody else's, from a manifest.
    let foreign = format!("kubectl --namespace kube-system create serviceaccount {CCM}");
    run(&shell, &foreign).await?;
    let hcloud = "{provider: hcloud, credentials: {secretRef: {name: right}}}";
    is_reported(&shell, (hcloud, "ApplyFailed", "… is not taken over: …")).await?;
    install("hcloud").await?;
    is_reported(&shell, ("{provider: aws}", "ApplyFailed", "… is forbidden: …")).await
}

/// The running CCMs: the old DaemonSet, and the workload of the operator.
async fn running(shell: &Shell) -> Result<String> {
    run(shell, "kubectl --namespace kube-system get daemonsets --output=jsonpath='{.items[*].metadata.name}'").await
}

#[tokio::test]
async fn a_cluster_migrates_from_published_objects_and_back() -> Result<()> {
    let (_fixture, shell) = Fixture::new().await?;
    let install = "ccm-operator render install --image x --providers aws --names cluster,main";
    run(&shell, &format!("{install} | kubectl apply --server-side -f -")).await?;
    let arguments = ["--v=2", "--cloud-provider=aws", "--cluster-name=prod", "--allocate-node-cidrs=true"];
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}, "spec": {"holderIdentity": "control-plane-0_1"},
    });
    let items: Vec<_> = published::objects(&arguments).into_iter().chain([lease]).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(shell.folder().join("cloud.yaml"), list.to_string())?;
    run(&shell, "kubectl apply -f cloud.yaml").await?;
    run(&shell, "kubectl --namespace kube-system rollout status daemonset aws-cloud-controller-manager --timeout=1m")
        .await?;

    follow(&shell, ("docs/migrating.md", "Migrating from a cloud's own chart or manifests")).await?;
    follow(&shell, ("docs/migrating.md", "The steps")).await?;
    assert_eq!(running(&shell).await?, "aws-cloud-controller-manager-main");
    follow(&shell, ("docs/migrating.md", "Back again")).await?;
    assert_eq!(running(&shell).await?, "aws-cloud-controller-manager");
    follow(&shell, ("docs/migrating.md", "The steps")).await?;
    follow(&shell, ("docs/migrating.md", "When you will not go back")).await?;
    assert_eq!(running(&shell).await?, "aws-cloud-controller-manager-main");
    let skips = "kubectl get ccm main --output=jsonpath='{.metadata.annotations}'";
    assert!(!run(&shell, skips).await?.contains("skip-preflight"));
    Ok(())
}
