//! The cluster in which the demo and the benchmark show the operator: OpenShift on AWS with `manifests/` installed, and
//! the release binary as a Pod would run it.
//!
//! Knows the operator only from outside: its binary, its flags, its manifests and the names of its contract.
#![allow(unreachable_pub, reason = "the targets that include this are programs: nothing in them can be reached")]

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Client, ResourceExt,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::timeout_at,
};

use crate::support::{
    audit::{self, Mark, Request},
    control_plane::ControlPlane,
    eventually, kubelet,
    objects::{self, Workloads},
    openshift::{self, Cluster},
    operator::Operator,
    pki,
};

/// The namespace that the operator runs in.
pub const OWN_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";
/// The namespace that it manages.
pub const NAMESPACE: &str = "openshift-cloud-controller-manager";
/// The Deployment that matters, the Service and the `PodDisruptionBudget` beside it.
pub const CCM: &str = "aws-cloud-controller-manager";
const SERVICE_ACCOUNT: &str = "cluster-cloud-controller-manager";
const USER: &str = "system:serviceaccount:openshift-cloud-controller-manager-operator:cluster-cloud-controller-manager";
const CLUSTER_OPERATOR: &str = "cloud-controller-manager";
const IMAGES_MANIFEST: &str = "0000_26_cloud-controller-manager-operator_01_images.configmap.yaml";

/// A control plane with the operator's cluster on it.
pub struct Lab {
    plane: ControlPlane,
    client: Client,
    binary: PathBuf,
    /// Ended with the cluster.
    stand_ins: JoinSet<()>,
}

impl Lab {
    /// Makes of `plane` an OpenShift cluster on AWS as its installer leaves it.
    pub async fn new(plane: ControlPlane) -> Result<Self> {
        let (binary, client) = (binary()?, plane.client()?);
        openshift::install_crds(&client).await?;
        openshift::seed(&client, &Cluster::default()).await?;
        let lab = Self { plane, client, binary, stand_ins: JoinSet::new() };
        lab.write_images(&images()?)?;
        fs::write(lab.system_bundle(), pki::authority("system")?)?;
        let infrastructure = config_api(&lab.client, "Infrastructure").get("cluster").await?;
        fs::write(lab.infrastructure_file(), serde_json::to_string(&infrastructure)?)?;
        Ok(lab)
    }

    /// Installs `manifests/` as the cluster version operator does, and waits until the RBAC in it is in force.
    pub async fn install(&self) -> Result<()> {
        objects::install_manifests(&self.client, &manifests(), Workloads::Skip).await?;
        let question = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(USER.into()),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(NAMESPACE.into()),
                    group: Some("apps".into()),
                    resource: Some("deployments".into()),
                    verb: Some("list".into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        eventually("the RBAC of manifests/ is in force", Duration::from_secs(20), async || {
            let answer = reviews.create(&PostParams::default(), &question).await?;
            ensure!(answer.status.is_some_and(|status| status.allowed), "{USER} may not list Deployments");
            Ok(Some(()))
        })
        .await
    }

    /// Lets a part of the cluster work until the cluster ends.
    pub fn stand_in(&mut self, work: impl Future<Output = Result<()>> + Send + 'static) {
        self.stand_ins.spawn(async {
            if let Err(error) = work.await {
                let _ = writeln!(io::stderr(), "a stand-in of the cluster has ended: {}", in_one_line(&error));
            }
        });
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The operator's credentials: its `ServiceAccount`'s, through this port of the API server or of a proxy.
    pub async fn kubeconfig(&self, port: u16) -> Result<PathBuf> {
        self.plane.service_account_kubeconfig_via(port, OWN_NAMESPACE, SERVICE_ACCOUNT).await
    }

    /// Starts the operator as the container of the Pod `pod_uid`.
    pub fn start(&self, kubeconfig: &Path, pod_uid: &str) -> Result<Operator> {
        let images = format!("--images-json={}", self.images_file().display());
        let bundle = format!("--system-trust-bundle={}", self.system_bundle().display());
        let arguments = ["operator", &images, &bundle, "--health-addr=127.0.0.1:0"];
        let version = Cluster::default().version;
        Operator::start(&self.binary, kubeconfig, &arguments, &[("RELEASE_VERSION", &version), ("POD_UID", pod_uid)])
    }

    /// The certificates that the system trusts.
    pub fn system_bundle(&self) -> PathBuf {
        self.plane.dir().join("tls-ca-bundle.pem")
    }

    /// Replaces the images file as a kubelet does: by a rename.
    pub fn write_images(&self, text: &str) -> Result<()> {
        let new = self.plane.dir().join("images.json.new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.images_file())?)
    }

    /// `ccm-operator render` on this cluster's facts; where to, the caller adds.
    pub fn render(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("render")
            .arg("--cluster-infrastructure-file")
            .arg(self.infrastructure_file())
            .arg("--images-file")
            .arg(manifests().join(IMAGES_MANIFEST))
            .stdin(Stdio::null());
        command
    }

    /// What the operator is going to apply here: the binary says so itself, without a cluster.
    pub fn planned(&self) -> Result<Vec<Value>> {
        let output = self.render().args(["--phase", "cluster", "--output", "-"]).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ccm-operator render failed: {}", errors.trim_end());
        let text = String::from_utf8(output.stdout)?;
        serde_saphyr::from_multiple(&text).context("failed to parse what ccm-operator render printed")
    }

    /// The `ClusterOperator` that the operator reports to.
    pub async fn cluster_operator(&self) -> Result<DynamicObject> {
        let api = config_api(&self.client, "ClusterOperator");
        api.get(CLUSTER_OPERATOR).await.with_context(|| format!("failed to read ClusterOperator {CLUSTER_OPERATOR}"))
    }

    /// What happens to the `ClusterOperator` from now on.
    pub async fn watch_cluster_operator(&self) -> Result<Watch> {
        Watch::after(&config_api(&self.client, "ClusterOperator"), &self.cluster_operator().await?).await
    }

    /// The end of the audit log as it is now.
    pub fn mark(&self) -> Result<Mark> {
        self.plane.audit().mark()
    }

    /// What the operator has asked since.
    pub fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        Ok(audit::by_user(self.plane.audit().since(since)?, USER))
    }

    fn images_file(&self) -> PathBuf {
        self.plane.dir().join("images.json")
    }

    fn infrastructure_file(&self) -> PathBuf {
        self.plane.dir().join("infrastructure.json")
    }
}

/// Adds the three control-plane nodes of a highly available cluster.
pub async fn add_masters(client: &Client) -> Result<()> {
    for name in ["master-0", "master-1", "master-2"] {
        kubelet::add_master(client, name).await?;
    }
    Ok(())
}

/// Waits until kube-controller-manager does its work, which begins two seconds after its start.
pub async fn controllers_work(client: &Client) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    eventually("kube-controller-manager works", Duration::from_secs(60), async || {
        Ok(accounts.get_opt("default").await?)
    })
    .await
    .map(drop)
}

/// What happens to one object from some state on.
pub struct Watch {
    events: BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>,
}

impl Watch {
    /// Everything after the state `from`.
    pub async fn after(api: &Api<DynamicObject>, from: &DynamicObject) -> Result<Self> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", from.name_any()));
        let events = api.watch(&params, &from.resource_version().unwrap_or_default()).await?;
        Ok(Self { events: events.boxed() })
    }

    /// The next state; `None` when the object was deleted.
    pub async fn next(&mut self) -> Result<Option<DynamicObject>> {
        loop {
            match self.events.try_next().await?.context("the watch ended")? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => return Ok(Some(object)),
                WatchEvent::Deleted(_) => return Ok(None),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("the watch failed: {status}"),
            }
        }
    }

    /// Waits, for at most `limit`, for a state that `is_wanted` accepts. Says when it was seen, too.
    pub async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        is_wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<(Instant, DynamicObject)> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let Ok(state) = timeout_at(deadline, self.next()).await else {
                bail!("{what}: not within {limit:?}");
            };
            if let Some(object) = state?.filter(&is_wanted) {
                return Ok((Instant::now(), object));
            }
        }
    }
}

/// A condition of a `ClusterOperator`: status, reason and message.
pub fn condition<'a>(cluster_operator: &'a DynamicObject, type_: &str) -> Option<[&'a str; 3]> {
    let conditions = cluster_operator.data["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
    Some(["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default()))
}

/// Available, not Progressing and not Degraded.
pub fn is_well(cluster_operator: &DynamicObject) -> bool {
    [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")]
        .iter()
        .all(|(type_, status)| condition(cluster_operator, type_).is_some_and(|[found, ..]| found == *status))
}

/// Goes on with `work`, which waits for something of the operator, as long as the operator runs. An error comes with the
/// operator's last words.
pub async fn while_it_runs<T>(operator: &Operator, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::select! {
        biased;
        done = work => done,
        ended = operator.wait(Duration::MAX) => ended.and_then(|status| bail!("the operator has ended with {status}")),
    };
    done.map_err(|error| {
        let log = operator.log();
        let words = log.lines().next_back().unwrap_or("none");
        anyhow!("{}; the operator's last words: {words}", in_one_line(&error))
    })
}

/// Processor time that a single-threaded process has used. The scheduler counts finer than the clock ticks of
/// [`Operator::cpu_seconds`], where the kernel lets it be read.
pub fn cpu_seconds(operator: &Operator) -> f64 {
    let scheduled = fs::read_to_string(format!("/proc/{}/schedstat", operator.pid())).unwrap_or_default();
    let nanoseconds = scheduled.split_whitespace().next().and_then(|field| field.parse().ok());
    nanoseconds.map_or_else(|| operator.cpu_seconds(), |time| Duration::from_nanos(time).as_secs_f64())
}

/// Whether a request counts as a write: events and leases do not, and neither does one that was refused.
pub fn counts_as_write(request: &Request) -> bool {
    request.is_write() && !request.is_lease() && !request.is_event() && request.code < 400
}

/// The API of a kind in a namespace.
pub fn api(client: &Client, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, resource)
}

fn config_api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("config.openshift.io", "v1", kind));
    Api::all_with(client.clone(), &resource)
}

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// The images that the manifest brings, as the Pod finds them in its file.
pub fn images() -> Result<String> {
    let documents = objects::read_yaml(&manifests().join(IMAGES_MANIFEST))?;
    let images = documents.first().and_then(|manifest| manifest["data"]["images.json"].as_str());
    images.map(ToOwned::to_owned).with_context(|| format!("manifests/{IMAGES_MANIFEST} has no images.json"))
}

/// The release binary; `CCM_OPERATOR` names another one.
pub fn binary() -> Result<PathBuf> {
    let binary = std::env::var_os("CCM_OPERATOR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/ccm-operator"), PathBuf::from);
    ensure!(
        binary.is_file(),
        "there is no {}: build it with `cargo build --release`, or name another binary in CCM_OPERATOR",
        binary.display()
    );
    Ok(binary)
}

/// Runs a program to its end. An error is one line on standard error and exit code 1, after everything that the program
/// held was dropped: what it has started ends with that.
pub fn run(name: &str, program: impl Future<Output = Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| {
        let done = runtime.block_on(program);
        // A build in the background would hold the program up.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail in another way.
            let _ = writeln!(io::stderr(), "{name}: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes. Of an answer of the API server the message alone: kube shows the whole Status, twice.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut causes = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            causes.push(status.message.clone());
            break;
        }
        causes.push(cause.to_string());
    }
    causes.join(": ")
}

/// Goes on with `work` until it ends or somebody asks this process to stop, which is an error.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        interrupted = interrupted() => interrupted.and_then(|()| bail!("interrupted; everything is stopped")),
        done = work => done,
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn interrupted() -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
