//! Any Kubernetes: each provider of the catalog on a real control plane. A `CloudControllerManager` with every controller of its
//! cloud becomes ready, its program starts with what it is given, an operator that starts later writes nothing, and nothing is left.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cluster::request,
    object::KINDS,
    provider::{
        embedded,
        kubernetes::{Descriptor, KubernetesProvider as Provider},
    },
};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    flags::{built_as, real, without_own_flags},
    lab::{LIMIT, can, describe},
    pod::{self, Container, Image},
    support::{
        artifacts,
        audit::{self, Mark, Request},
        eventually,
        kubernetes::{ELSEWHERE, Kubernetes, OWN_NAMESPACE, SERVICE_ACCOUNT, asking_for, namespace_of},
        operator::Operator,
        scrape::free_port,
    },
};

/// The message of the program without a cloud (`hack/ccm/others/main.go`) after it has accepted its arguments and its account.
const NO_CLOUD: &str = "the generic cloud-controller-manager has no cloud";

/// The program that stands for those that are not built.
const STAND_IN: &str = "generic-cloud-controller-manager";

/// The value of every key of every Secret.
const PASSWORD: &str = "s3cret";

/// A cluster, and the operator that runs in it.
struct Fixture {
    cluster: Kubernetes,
    operator: Operator,
}

/// Starts an operator for one `CloudControllerManager` of each provider, which has its name.
fn start(cluster: &Kubernetes) -> Result<Operator> {
    let all: Vec<_> = embedded::catalog()?.kubernetes().map(|one| one.descriptor.name.clone()).collect();
    let names = format!("--names={}", all.join(","));
    cluster.start_with(&[&format!("--namespaces=kube-system,{ELSEWHERE}"), &names])
}

impl Fixture {
    async fn new(providers: &[&Provider]) -> Result<Self> {
        let names = |of: &dyn Fn(&Descriptor) -> bool| {
            let descriptors = providers.iter().map(|one| &one.descriptor).filter(|one| of(one));
            descriptors.map(|one| one.name.as_str()).collect::<Vec<_>>().join(",")
        };
        let cluster = Kubernetes::new(&names(&|one| namespace_of(one) == "kube-system")).await?;
        cluster.install_clouds(&names(&|_| true)).await?;
        let operator = start(&cluster)?;
        Ok(Self { cluster, operator })
    }

    /// Creates what a provider needs, and its `CloudControllerManager`.
    async fn ask_for(&self, descriptor: &Descriptor) -> Result<()> {
        self.cluster.put_inputs(descriptor, PASSWORD).await?;
        let mut spec = asking_for(descriptor);
        spec["placement"] = json!({"apiServer": {"host": "127.0.0.1", "port": self.cluster.plane.port()}});
        spec["ports"] = json!({"secure": free_port()?});
        self.cluster.create(&descriptor.name, spec).await
    }

    /// The workload of the cloud-controller-manager.
    async fn workload(&self, provider: &Provider) -> Result<Value> {
        let is_ccm = |pod: &Value| {
            pod["containers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["name"] == "cloud-controller-manager"))
        };
        let mut manifests = provider.manifests.iter();
        let manifest = manifests.find(|one| one.pod_spec().is_some_and(is_ccm)).context("a workload")?;
        let kind = KINDS.iter().find(|kind| kind.kind == manifest.kind().kind).context("its kind")?;
        let api: Api<_> = request::api(&self.cluster.client, kind, namespace_of(&provider.descriptor));
        let name = format!("{}-{}", manifest.name(), provider.descriptor.name);
        Ok(serde_json::to_value(api.get(&name).await?)?)
    }

    /// Fails if a value of a Secret is in the operator's log or in the status.
    async fn says_no_secret(&self, name: &str) -> Result<()> {
        let all = self.operator.log() + &serde_json::to_string(&self.cluster.ccms().get(name).await?)?;
        ensure!(!all.contains(PASSWORD), "{name}: {all}");
        Ok(())
    }

    /// Replaces the operator, and returns when the new one has done its first pass.
    async fn second_pass(&mut self, name: &str) -> Result<Vec<Request>> {
        // A later generation shows that the rollout is over.
        self.cluster.patch(name, json!({"spec": {"logging": {"verbosity": 3}}})).await?;
        self.cluster.ready(&self.operator, name).await?;
        self.operator.terminate()?;
        self.operator.wait(LIMIT).await?;
        let mark = self.cluster.mark().await?;
        self.operator = start(&self.cluster)?;
        let line = format!("CloudControllerManager {name}: everything is applied");
        let waited = eventually("the second pass", LIMIT, async || {
            let log = self.operator.log();
            ensure!(log.contains(&line), "{log}");
            Ok(Some(()))
        });
        waited.await?;
        self.cluster.requests(mark).await
    }
}

/// Runs the container of a live workload, and returns its log once it needs the cloud: the stand-in says that it has none, the
/// real program has then asked the API server for something.
async fn run(fixture: &Fixture, provider: &Provider, since: Mark) -> Result<String> {
    let mut workload = fixture.workload(provider).await?;
    let container = &mut workload["spec"]["template"]["spec"]["containers"][0];
    let name = container["command"][0].as_str().and_then(|path| path.rsplit('/').next()).context("a program")?;
    let folder = artifacts::cloud_controller_managers().await?;
    let name = built_as(&provider.descriptor.name, name);
    let program = real(folder, &name)?;
    let is_real = program.is_file();
    let program = if is_real { program } else { folder.join(STAND_IN) };
    let arguments = serde_json::from_value(container["args"].clone())?;
    container["args"] = json!(without_own_flags(&name, arguments).await?);
    let environment = vec![("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned())];
    let started =
        Container::spawn(&fixture.cluster, &workload, &Image { program, environment, node: "control-plane" }).await?;
    let account = workload["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or_default();
    let user = audit::account(namespace_of(&provider.descriptor), account);
    let waited = eventually("the container to need its cloud", LIMIT, async || {
        let requests = audit::by_user(fixture.cluster.plane.audit().since(since)?, &user);
        let refused: Vec<_> = requests.iter().filter(|one| one.code == 403).map(describe).collect();
        ensure!(refused.is_empty(), "{refused:?}");
        let is_there = if is_real { !requests.is_empty() } else { started.log().contains(NO_CLOUD) };
        ensure!(is_there, "{}", started.log());
        Ok(Some(()))
    });
    waited.await.with_context(|| started.log())?;
    Ok(started.log())
}

/// The writes among requests. A question about permissions is a write to the audit log, and changes nothing.
fn changes(requests: &[Request]) -> Vec<String> {
    let writes = requests.iter().filter(|one| one.counts_as_write() && one.group != "authorization.k8s.io");
    writes.map(describe).collect()
}

/// The life of each provider, one after the other: two would act on the same Services.
async fn live(providers: &[&Provider]) -> Result<()> {
    let can_run =
        can("give a process a root folder and a user of its own (unshare --map-user --root)", pod::is_possible());
    let mut fixture = Fixture::new(providers).await?;
    let start = fixture.cluster.mark().await?;
    for provider in providers {
        let name = provider.descriptor.name.as_str();
        let mark = fixture.cluster.mark().await?;
        fixture.ask_for(&provider.descriptor).await?;
        fixture.cluster.ready(&fixture.operator, name).await.with_context(|| name.to_owned())?;
        let installed = fixture.cluster.objects(Some(name)).await?;
        assert_eq!(installed, fixture.cluster.objects(None).await?, "{name}: all of them say whose they are");
        // One write for each object; the inventory and the status besides. The line of the last provider's last deletion may follow
        // the mark.
        let own = format!("-{name}");
        let is_besides = |write: &String| {
            ["cloudcontrollermanagers/status", "ccm-operator-inventory"].iter().any(|one| write.contains(one))
                || (write.starts_with("delete ") && !write.ends_with(&own))
        };
        let mut writes = changes(&fixture.cluster.requests(mark).await?);
        writes.retain(|write| !is_besides(write));
        let distinct: BTreeSet<_> = writes.iter().collect();
        assert_eq!((writes.len(), distinct.len()), (installed.len(), installed.len()), "{name}: {writes:#?}");
        if can_run {
            let log = run(&fixture, provider, mark).await.with_context(|| name.to_owned())?;
            assert!(!log.contains(PASSWORD), "{name}: {log}");
        }
        fixture.says_no_secret(name).await?;
        let writes = changes(&fixture.second_pass(name).await.with_context(|| name.to_owned())?);
        assert!(writes.is_empty(), "{name}: {writes:#?}");
        fixture.says_no_secret(name).await?;
        fixture.cluster.delete(name).await?;
        fixture.cluster.objects_are(&fixture.operator, None, <[_]>::is_empty).await.with_context(|| name.to_owned())?;
    }
    let of_operator = fixture
        .cluster
        .plane
        .audit()
        .of_account(&fixture.cluster.client, start, (OWN_NAMESPACE, SERVICE_ACCOUNT))
        .await?;
    let refused: Vec<_> = of_operator.iter().filter(|one| one.code == 403).map(describe).collect();
    assert!(!of_operator.is_empty() && refused.is_empty(), "{refused:#?}");
    Ok(())
}

/// The halves run beside each other, each on its own control plane.
async fn live_of(half: usize) -> Result<()> {
    let catalog = embedded::catalog()?;
    let providers: Vec<_> = catalog.kubernetes().skip(half).step_by(2).collect();
    assert!(providers.len() > 1);
    live(&providers).await
}

#[tokio::test]
async fn every_provider_is_installed_starts_and_leaves_nothing() -> Result<()> {
    live_of(0).await
}

#[tokio::test]
async fn every_other_provider_is_installed_starts_and_leaves_nothing() -> Result<()> {
    live_of(1).await
}
