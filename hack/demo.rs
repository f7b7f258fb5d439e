//! `make demo`: the operator at work in an OpenShift cluster on AWS, for people to watch.
//!
//! The control plane is real and so are the rollouts; nodes and kubelets are stand-ins. Nothing of it stays, unless
//! `KEEP=1` asks for it.
#![allow(unreachable_pub, reason = "a program: nothing in it can be reached")]

#[path = "../tests/support/cluster.rs"]
mod cluster;
#[path = "demo/narrator.rs"]
mod narrator;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/table.rs"]
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

use cluster::{CCM, Lab, NAMESPACE, Watch};
use narrator::{Narrator, duration};
use support::{
    artifacts,
    audit::Request,
    control_plane::{ControlPlane, Options},
    eventually, kubelet,
    operator::Operator,
};
use table::{Column, Table};

const POD_UID: &str = "d3300000-0000-4000-8000-000000000001";
/// How long anything may take before the demo gives up.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    cluster::run("demo", demo())
}

async fn demo() -> Result<()> {
    let narrator = Narrator::new();
    let (lab, operator) = cluster::unless_interrupted(show(&narrator)).await?;
    if std::env::var("KEEP").is_ok_and(|keep| !matches!(keep.as_str(), "" | "0")) {
        invite(&narrator, &lab, &operator)?;
        cluster::interrupted().await?;
        drop((operator, lab));
        narrator.line("")?;
        return Ok(narrator.say("Everything is stopped.")?);
    }
    cluster::unless_interrupted(stop(&narrator, lab, operator)).await
}

async fn show(narrator: &Narrator) -> Result<(Lab, Operator)> {
    cluster::binary()?;
    narrator.headline("ccm-operator: the demo")?;
    narrator.say(
        "A cloud-controller-manager (CCM) connects a cluster to its cloud. It clears the taint that keeps pods off new \
         nodes, and it makes the load balancers: without one, no node of a cloud cluster is ever used. ccm-operator \
         installs the right one on OpenShift, keeps it as it should be and reports how it is.",
    )?;
    let lab = set_up(narrator).await?;
    let operator = converge(narrator, &lab).await?;
    delete_the_deployment(narrator, &lab).await?;
    Ok((lab, operator))
}

async fn set_up(narrator: &Narrator) -> Result<Lab> {
    narrator.chapter(
        "1. A control plane",
        "etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real programs, on loopback. (The \
         first run ever builds them, which takes minutes.) Only nodes and kubelets are stand-ins.",
    )?;
    // Outside of a step: a build speaks for itself.
    artifacts::binaries().await?;
    artifacts::openshift_api().await?;
    let options = Options { controllers: true, scheduler: true };
    let plane = narrator.step("the control plane serves", ControlPlane::start(options)).await?;
    let client = plane.client()?;
    narrator.step("three control-plane nodes are Ready", cluster::add_masters(&client)).await?;
    narrator.step("the controllers work", cluster::controllers_work(&client)).await?;

    narrator.chapter(
        "2. An OpenShift cluster on AWS",
        "What its installer leaves behind is what the operator decides by: Infrastructure says which cloud this is, \
         Proxy, FeatureGate, APIServer and ClusterVersion say how to run there. manifests/ is what a release image \
         brings: namespaces, ServiceAccounts, RBAC, the images, and the ClusterOperator to report to.",
    )?;
    let mut lab = narrator.step("the cluster's own objects are there", Lab::new(plane)).await?;
    lab.stand_in(kubelet::run(client));
    narrator.step("manifests/ is installed and its RBAC in force", lab.install()).await?;
    Ok(lab)
}

async fn converge(narrator: &Narrator, lab: &Lab) -> Result<Operator> {
    narrator.chapter(
        "3. The operator starts",
        "It runs as a process of its own and logs in as its own ServiceAccount: what the RBAC of manifests/ does not \
         allow, it cannot do here either. It reads the facts through watches, plans, and sends one server-side apply \
         for each object. It calls itself Available once the Deployment is rolled out, not before.",
    )?;
    let kubeconfig = lab.kubeconfig(lab.plane().port()).await?;
    let mut reports = lab.watch_cluster_operator().await?;
    let mark = lab.mark()?;
    let (clock, started) = (Timestamp::now(), Instant::now());
    let operator = lab.start(&kubeconfig, POD_UID)?;
    let available = reports.until("the operator reports that all is well", LIMIT, cluster::is_well);
    let available = cluster::while_it_runs(&operator, available);
    let (reported, _) = narrator.step("available, rolled out, not degraded", available).await?;
    let requests = lab.requests(mark)?;

    narrator.line("")?;
    narrator.say("What it applied, and how long after its start the API server was asked to:")?;
    narrator.line("")?;
    narrator.table(&applied(lab, &requests, clock).await?)?;
    narrator.say("What it tells the cluster, in ClusterOperator cloud-controller-manager:")?;
    narrator.line("")?;
    narrator.table(&conditions(&lab.cluster_operator().await?))?;
    let writes = requests.iter().filter(|request| cluster::counts_as_write(request)).count();
    narrator.say(&format!(
        "Start to Available, rollout included: {}. That took {} requests, {writes} of them writes; {:.2} s of processor \
         time; {:.1} MiB of memory.",
        duration(reported - started),
        requests.len(),
        cluster::cpu_seconds(&operator),
        f64::from(u32::try_from(operator.rss_kib())?) / 1024.0,
    ))?;
    Ok(operator)
}

/// What was applied, by the audit log of the API server.
async fn applied(lab: &Lab, requests: &[Request], started: Timestamp) -> Result<Table> {
    let mut table = Table::new([
        Column::wrapped("KIND", 19),
        Column::wrapped("NAMESPACE/NAME", 35),
        Column::wrapped("STATE", 9),
        Column::right("AFTER"),
    ]);
    let mut rows = Vec::new();
    for object in lab.planned()? {
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
        let found = cluster::condition(cluster_operator, type_).unwrap_or_default();
        let [status, reason, message] = found.map(ToOwned::to_owned);
        table.row([type_.to_owned(), status, reason, message]);
    }
    table
}

async fn delete_the_deployment(narrator: &Narrator, lab: &Lab) -> Result<()> {
    narrator.chapter(
        "4. Somebody deletes the Deployment",
        "With the CCM gone, new nodes would stay unusable and load balancers would no longer follow their Services. \
         The operator watches what it has applied: it need not ask in order to know.",
    )?;
    let api = deployments(lab);
    let before = api.get(CCM).await?;
    let mut states = Watch::after(&api, &before).await?;
    let mark = lab.mark()?;
    api.delete(CCM, &DeleteParams::default()).await?;
    let deleted = Instant::now();
    narrator.event(Duration::ZERO, &format!("Deployment {CCM} is deleted"))?;

    let is_back = |now: &DynamicObject| now.uid() != before.uid() && now.data["spec"] == before.data["spec"];
    let (back, _) = states.until("the Deployment is back", LIMIT, is_back).await?;
    narrator.event(back - deleted, "it is back, a new object with the same specification")?;

    let runs = |now: &DynamicObject| now.data["status"]["readyReplicas"] == before.data["spec"]["replicas"];
    let (running, now) = states.until("the Deployment runs again", LIMIT, runs).await?;
    narrator.event(running - deleted, &format!("its new pods run, {}", replicas(&now)))?;

    eventually("the operator reports that all is well again", LIMIT, async || {
        Ok(Some(lab.cluster_operator().await?).filter(cluster::is_well))
    })
    .await?;
    let writes = lab.requests(mark)?.into_iter().filter(cluster::counts_as_write);
    let (to_status, to_object): (Vec<_>, Vec<_>) = writes.partition(|write| write.subresource == "status");
    narrator.line("")?;
    narrator.say(&format!(
        "The repair took {} to the Deployment and {} to the ClusterOperator, which is told of a rollout only when it takes \
         a while.",
        writes_in_words(&to_object),
        writes_in_words(&to_status),
    ))?;
    Ok(())
}

/// How to look around in what stays.
fn invite(narrator: &Narrator, lab: &Lab, operator: &Operator) -> Result<()> {
    narrator.chapter("5. Yours", "Everything goes on until Ctrl-C, which ends it all. In another terminal:")?;
    narrator.line(format_args!("export KUBECONFIG={}", lab.plane().kubeconfig_admin().display()))?;
    narrator.line(format_args!("kubectl -n {NAMESPACE} get deployments,pods,services,poddisruptionbudgets"))?;
    narrator.line(format_args!("kubectl -n {NAMESPACE} scale deployment {CCM} --replicas=5"))?;
    narrator.line("kubectl get clusteroperator cloud-controller-manager")?;
    narrator.line(format_args!("tail -f {}", operator.dir().join("operator.log").display()))?;
    Ok(())
}

async fn stop(narrator: &Narrator, lab: Lab, operator: Operator) -> Result<()> {
    narrator.chapter(
        "The end",
        "Asked to stop, the operator gives its lease back, so that a successor need not wait. What it has installed \
         stays in a cluster; this cluster goes as well.",
    )?;
    let ended = async {
        operator.terminate()?;
        let status = operator.wait(LIMIT).await?;
        ensure!(status.success(), "the operator has ended with {status}:\n{}", operator.log());
        Ok(())
    };
    narrator.step("the operator has ended", ended).await?;
    narrator
        .step("nothing is left running", async {
            drop(lab);
            Ok(())
        })
        .await
}

fn deployments(lab: &Lab) -> Api<DynamicObject> {
    cluster::api(lab.client(), &ApiResource::erase::<Deployment>(&()))
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
