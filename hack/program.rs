//! Shared by demo and benchmark: how they run and end, and how they watch the operator.
#![allow(dead_code, reason = "several programs include this by #[path], and each uses a part of it")]
#![allow(unreachable_pub, reason = "the targets that include this are programs")]

use std::{
    fs,
    io::{self, Write},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Client, ResourceExt,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout_at,
};

use crate::support::{
    eventually, kubelet,
    lab::{Lab, NAMESPACE, binary, cluster_operators, conditions, repository},
    objects,
    operator::Operator,
};

/// The name of the Deployment, the Service and the `PodDisruptionBudget` on AWS.
pub const CCM: &str = "aws-cloud-controller-manager";
const IMAGES_MANIFEST: &str = "manifests/0000_26_cloud-controller-manager-operator_01_images.configmap.yaml";

/// Adds the three control-plane nodes of a highly available cluster and a stand-in for their kubelets, and waits until
/// kube-controller-manager works, two seconds after its start.
pub async fn add_masters(lab: &mut Lab) -> Result<()> {
    for name in ["master-0", "master-1", "master-2"] {
        kubelet::add_master(&lab.client, name).await?;
    }
    lab.stand_in(kubelet::run(lab.client.clone()));
    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), "default");
    eventually("kube-controller-manager works", Duration::from_secs(60), async || {
        Ok(accounts.get_opt("default").await?.map(drop))
    })
    .await
}

/// The events of one object after some state of it.
pub struct Watch {
    events: BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>,
}

impl Watch {
    /// Starts after the state `from`.
    pub async fn after(api: &Api<DynamicObject>, from: &DynamicObject) -> Result<Self> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", from.name_any()));
        let events = api.watch(&params, &from.resource_version().unwrap_or_default()).await?;
        Ok(Self { events: events.boxed() })
    }

    /// Starts now: the state of an object that has not changed for long is too old for a watch to start after.
    pub async fn now(api: &Api<DynamicObject>, name: &str) -> Result<Self> {
        let field = format!("metadata.name={name}");
        let list = api.list(&ListParams::default().fields(&field)).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = api.watch(&WatchParams::default().fields(&field), &version).await?;
        Ok(Self { events: events.boxed() })
    }

    /// Watches the operator's `ClusterOperator`.
    pub async fn cluster_operator(client: &Client) -> Result<Self> {
        let api = cluster_operators(client);
        Self::after(&api, &api.get("cloud-controller-manager").await?).await
    }

    /// The next state; `None` after a deletion.
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

    /// Waits, for at most `limit`, for a state that `is_wanted` accepts, and returns when it was seen.
    pub async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        is_wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<(Instant, DynamicObject)> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let Ok(state) = timeout_at(deadline, self.next()).await else {
                bail!("timed out after {limit:?}: {what}");
            };
            if let Some(object) = state?.filter(&is_wanted) {
                return Ok((Instant::now(), object));
            }
        }
    }
}

/// Whether a `ClusterOperator` is Available, not Progressing and not Degraded.
pub fn is_healthy(cluster_operator: &DynamicObject) -> bool {
    let found = conditions(&cluster_operator.data);
    ["Available=True", "Progressing=False", "Degraded=False"].iter().all(|one| found.iter().any(|other| other == one))
}

/// Runs `work`, which waits for the operator, while the operator runs. An error includes the operator's last log line.
pub async fn while_it_runs<T>(operator: &Operator, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::select! {
        biased;
        done = work => done,
        ended = operator.wait(Duration::MAX) => ended.and_then(|status| bail!("the operator exited with {status}")),
    };
    done.map_err(|error| {
        let log = operator.log();
        let last = log.lines().next_back().unwrap_or("none");
        anyhow!("{}; the operator's last log line: {last}", in_one_line(&error))
    })
}

/// The API of a kind in the managed namespace.
pub fn api(client: &Client, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, resource)
}

/// The images of the manifest, as the Pod finds them in its file.
pub fn images() -> Result<String> {
    let documents = objects::read_yaml(&repository().join(IMAGES_MANIFEST))?;
    let images = documents.first().and_then(|manifest| manifest["data"]["images.json"].as_str());
    images.map(ToOwned::to_owned).with_context(|| format!("{IMAGES_MANIFEST}: no key images.json"))
}

/// `ccm-operator render` with a subcommand and this cluster's facts. The caller adds the destination.
pub async fn render(lab: &Lab, subcommand: &str) -> Result<Command> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
    let infrastructures: Api<DynamicObject> = Api::all_with(lab.client.clone(), &ApiResource::from_gvk(&kind));
    let file = lab.dir.path().join("infrastructure.json");
    fs::write(&file, serde_json::to_string(&infrastructures.get("cluster").await?)?)?;
    let mut command = Command::new(binary()?);
    command.args(["render", subcommand, "--cluster-infrastructure-file"]).arg(file);
    command.arg("--images-file").arg(repository().join(IMAGES_MANIFEST)).stdin(Stdio::null());
    Ok(command)
}

/// The objects that the operator applies to this cluster, as the binary renders them.
pub async fn planned(lab: &Lab) -> Result<Vec<Value>> {
    let output = render(lab, "cluster").await?.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ccm-operator render failed: {}", errors.trim_end());
    let text = String::from_utf8(output.stdout)?;
    serde_saphyr::from_multiple(&text).context("failed to parse the output of ccm-operator render")
}

/// Runs a program. An error is one line on standard error and exit code 1, after everything that the program has started
/// is stopped.
pub fn run(name: &str, program: impl Future<Output = Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| {
        let done = runtime.block_on(program);
        // A build in the background would delay the exit.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed: exit with the same code.
            let _ = writeln!(io::stderr(), "{name}: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes. Of an answer of the API server only the message: kube prints the whole Status twice.
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

/// Runs `work` until it ends or the process is interrupted, which is an error.
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
