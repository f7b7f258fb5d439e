//! `make demo`: shows the operator in an OpenShift cluster on AWS.
//!
//! The control plane and the rollouts are real; nodes and kubelets are stand-ins. Everything is removed at the end, unless
//! `KEEP=1` is set.
#![allow(unreachable_pub, reason = "a program: nothing in it can be reached")]

mod narrator;
#[path = "../program.rs"]
mod program;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../table.rs"]
mod table;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{
    ResourceExt,
    api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, TypeMeta},
};
use serde_json::Value;

use narrator::{Narrator, duration};
use program::{CCM, Watch};
use support::{
    artifacts,
    audit::Request,
    control_plane::{ControlPlane, Options},
    eventually,
    lab::{Lab, NAMESPACE, binary, cluster_operators, repository},
    openshift::Cluster,
    operator::Operator,
};
use table::{Column, Table};

/// The wait limit of everything.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    program::run("demo", demo())
}

async fn demo() -> Result<()> {
    let narrator = Narrator::new();
    let (lab, operator) = program::unless_interrupted(show(&narrator)).await?;
    if std::env::var("KEEP").is_ok_and(|keep| !matches!(keep.as_str(), "" | "0")) {
        invite(&narrator, &lab, &operator)?;
        program::interrupted().await?;
        drop((operator, lab));
        narrator.line("")?;
        return Ok(narrator.say("Everything is stopped.")?);
    }
    program::unless_interrupted(stop(&narrator, lab, operator)).await
}

async fn show(narrator: &Narrator) -> Result<(Lab, Operator)> {
    binary()?;
    narrator.headline("ccm-operator: the demo")?;
    narrator.say(
        "A cloud-controller-manager (CCM) connects a cluster to its cloud. It removes the taint that keeps pods off new \
         nodes, and creates load balancers: without one, no node of a cloud cluster is ever used. ccm-operator installs \
         the right one on OpenShift, repairs it and reports its state.",
    )?;
    let lab = set_up(narrator).await?;
    let operator = converge(narrator, &lab).await?;
    delete_the_deployment(narrator, &lab).await?;
    Ok((lab, operator))
}

async fn set_up(narrator: &Narrator) -> Result<Lab> {
    narrator.chapter(
        "1. A control plane",
        "etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real programs, on loopback. Only nodes \
         and kubelets are stand-ins.",
    )?;
    // Not inside a step: a build prints its own progress.
    let programs = artifacts::binaries().await?;
    artifacts::openshift_api().await?;
    // Those of setup-envtest are fewer.
    let controllers = programs.join("kube-controller-manager").is_file();
    let options = Options { controllers, ..Options::default() };
    let plane = narrator.step("the control plane serves", ControlPlane::start(options)).await?;

    narrator.chapter(
        "2. An OpenShift cluster on AWS",
        "The operator decides by the objects of the installer: Infrastructure names the cloud; Proxy, FeatureGate, \
         APIServer and ClusterVersion give the settings. manifests/ is the operator's part of a release image: \
         namespaces, ServiceAccounts, RBAC, the images, and the ClusterOperator for its reports.",
    )?;
    let manifests = repository().join("manifests");
    let cluster = Cluster::default();
    let install = Lab::on(plane.into(), &cluster, &manifests);
    let mut lab = narrator.step("the installer's objects and manifests/ are installed", install).await?;
    lab.write_images(&program::images()?)?;
    if controllers {
        narrator.step("three control-plane nodes are Ready", program::add_masters(&mut lab)).await?;
    } else {
        narrator.say(&format!(
            "{} has no kube-controller-manager and no kube-scheduler: a stand-in finishes the rollouts at once.",
            programs.display()
        ))?;
        lab.finish_workloads();
    }
    Ok(lab)
}

async fn converge(narrator: &Narrator, lab: &Lab) -> Result<Operator> {
    narrator.chapter(
        "3. The operator starts",
        "It runs as a process with the credentials of its own ServiceAccount, so it has only the rights that \
         manifests/ gives it. It watches the cluster's facts, plans, and sends one server-side apply for each object. It \
         reports Available once the Deployment is rolled out.",
    )?;
    let mut reports = Watch::cluster_operator(&lab.client).await?;
    let mark = lab.mark().await?;
    let (clock, started) = (Timestamp::now(), Instant::now());
    let operator = lab.start()?;
    let available = reports.until("the operator reports Available", LIMIT, program::is_healthy);
    let available = program::while_it_runs(&operator, available);
    let (reported, _) = narrator.step("available, rolled out, not degraded", available).await?;
    let requests = lab.requests(mark).await?;

    narrator.line("")?;
    narrator.say("What it applied, and how long after its start:")?;
    narrator.line("")?;
    narrator.table(&applied(lab, &requests, clock).await?)?;
    narrator.say("Its report, ClusterOperator cloud-controller-manager:")?;
    narrator.line("")?;
    narrator.table(&conditions(&cluster_operators(&lab.client).get("cloud-controller-manager").await?))?;
    let writes = requests.iter().filter(|request| request.counts_as_write()).count();
    narrator.say(&format!(
        "Start to Available, rollout included: {}. That took {} requests, {writes} of them writes; {:.2} s of processor \
         time; {:.1} MiB of memory. This build compiles fast and is not optimized: README.md has the figures of a release.",
        duration(reported - started),
        requests.len(),
        operator.cpu_seconds(),
        f64::from(u32::try_from(operator.rss_kib())?) / 1024.0,
    ))?;
    Ok(operator)
}

/// The applied objects, from the audit log of the API server.
async fn applied(lab: &Lab, requests: &[Request], started: Timestamp) -> Result<Table> {
    let mut table = Table::new([
        Column::wrapped("KIND", 19),
        Column::wrapped("NAMESPACE/NAME", 35),
        Column::wrapped("STATE", 9),
        Column::right_aligned("AFTER"),
    ]);
    let mut rows = Vec::new();
    for object in program::planned(lab).await? {
        let kind = GroupVersionKind::try_from(&serde_json::from_value::<TypeMeta>(object.clone())?)?;
        let resource = ApiResource::from_gvk(&kind);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let is_of_object = |request: &&Request| {
            request.is_write()
                && (&request.group, &request.resource) == (&resource.group, &resource.plural)
                && (request.namespace.as_str(), request.name.as_str()) == (namespace, name)
        };
        let apply =
            requests.iter().find(is_of_object).with_context(|| format!("{} {name} was not applied", kind.kind))?;
        let state = match kind.kind.as_str() {
            "Deployment" => replicas(&deployments(lab).get(name).await?),
            _ if apply.code == 201 => "created".to_owned(),
            _ => "updated".to_owned(),
        };
        let slash = if namespace.is_empty() { "" } else { "/" };
        rows.push((apply.at, [kind.kind, format!("{namespace}{slash}{name}"), state]));
    }
    rows.sort();
    for (at, [kind, name, state]) in rows {
        table.row([kind, name, state, format!("{} ms", at.duration_since(started).as_millis())]);
    }
    Ok(table)
}

fn conditions(cluster_operator: &DynamicObject) -> Table {
    let mut table = Table::new([
        Column::new("CONDITION"),
        Column::new("STATUS"),
        Column::new("REASON"),
        Column::wrapped("MESSAGE", 38),
    ]);
    for type_ in ["Available", "Progressing", "Degraded", "Upgradeable"] {
        let conditions = cluster_operator.data["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let found = conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null);
        let [status, reason, message] =
            ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default().to_owned());
        table.row([type_.to_owned(), status, reason, message]);
    }
    table
}

async fn delete_the_deployment(narrator: &Narrator, lab: &Lab) -> Result<()> {
    narrator.chapter(
        "4. The Deployment is deleted",
        "Without the CCM new nodes stay unusable and load balancers do not follow their Services. The operator watches \
         its objects, so it sees the deletion at once.",
    )?;
    let api = deployments(lab);
    let before = api.get(CCM).await?;
    let mut states = Watch::after(&api, &before).await?;
    let mark = lab.mark().await?;
    api.delete(CCM, &DeleteParams::default()).await?;
    let deleted = Instant::now();
    narrator.event(Duration::ZERO, &format!("Deployment {CCM} is deleted"))?;

    let is_back = |now: &DynamicObject| now.uid() != before.uid() && now.data["spec"] == before.data["spec"];
    let (back, _) = states.until("the Deployment is recreated", LIMIT, is_back).await?;
    narrator.event(back - deleted, "it is recreated, with the same specification")?;

    let runs = |now: &DynamicObject| now.data["status"]["readyReplicas"] == before.data["spec"]["replicas"];
    let (running, now) = states.until("the Deployment runs again", LIMIT, runs).await?;
    narrator.event(running - deleted, &format!("its new pods run, {}", replicas(&now)))?;

    eventually("the operator reports Available again", LIMIT, async || {
        let cluster_operator = cluster_operators(&lab.client).get("cloud-controller-manager").await?;
        Ok(Some(cluster_operator).filter(program::is_healthy))
    })
    .await?;
    let writes = lab.requests(mark).await?.into_iter().filter(Request::counts_as_write);
    let (to_status, to_object): (Vec<_>, Vec<_>) = writes.partition(|write| write.subresource == "status");
    narrator.line("")?;
    narrator.say(&format!(
        "The repair took {} to the Deployment and {} to the ClusterOperator: a rollout is reported only if it takes longer \
         than a second.",
        writes_in_words(&to_object),
        writes_in_words(&to_status),
    ))?;
    Ok(())
}

/// Commands for a look at the cluster.
fn invite(narrator: &Narrator, lab: &Lab, operator: &Operator) -> Result<()> {
    narrator.chapter("5. Yours", "Everything runs until Ctrl-C, which stops it. In another terminal:")?;
    narrator.line(format_args!("export KUBECONFIG={}", lab.plane.kubeconfig_admin().display()))?;
    narrator.line(format_args!("kubectl -n {NAMESPACE} get deployments,pods,services,poddisruptionbudgets"))?;
    narrator.line(format_args!("kubectl -n {NAMESPACE} scale deployment {CCM} --replicas=5"))?;
    narrator.line("kubectl get clusteroperator cloud-controller-manager")?;
    narrator.line(format_args!("tail -f {}", operator.dir().join("operator.log").display()))?;
    Ok(())
}

async fn stop(narrator: &Narrator, lab: Lab, operator: Operator) -> Result<()> {
    narrator.chapter(
        "The end",
        "On SIGTERM the operator releases its Lease, so that its successor need not wait. In a real cluster its objects \
         stay; this cluster is removed.",
    )?;
    let ended = async {
        operator.terminate()?;
        let status = operator.wait(LIMIT).await?;
        ensure!(status.success(), "the operator exited with {status}:\n{}", operator.log());
        Ok(())
    };
    narrator.step("the operator has exited", ended).await?;
    narrator
        .step("nothing is left running", async {
            drop(lab);
            Ok(())
        })
        .await
}

fn deployments(lab: &Lab) -> Api<DynamicObject> {
    program::api(&lab.client, &ApiResource::erase::<Deployment>(&()))
}

/// `2 of 2 ready`
fn replicas(deployment: &DynamicObject) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let ready = number(&deployment.data["status"]["readyReplicas"]);
    format!("{ready} of {} ready", number(&deployment.data["spec"]["replicas"]))
}

fn writes_in_words(writes: &[Request]) -> String {
    match writes.len() {
        0 => "no write".to_owned(),
        1 => "one write".to_owned(),
        number => format!("{number} writes"),
    }
}
