//! The command `preflight`: the checks before a cloud-controller-manager is installed. Writes nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    flags::{AnyCluster, OutputFormat, print, runtime},
    providers::ProviderFlags,
};
use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, placement::Distribution},
    cluster::{
        read::{self, Error},
        request::{self, NO_DEADLINE, describe_objects},
    },
    evidence,
    facts::{self, ccm::Ccm, cluster::Cluster, version::Minor},
    nodes::{
        evidence::{Seen, Unseen},
        identity::{CcmIdentity, Need},
        node::Node,
    },
    object::{
        PART_OF_LABEL, SERVICE_ACCOUNT,
        reference::{Reference, SECRET},
    },
    plan::{
        Plan,
        install::NAME,
        kubernetes::{
            conflict::{Running, Standing, as_it_runs},
            sources::{self, Found, Source},
            validation,
        },
    },
    preflight::{
        self,
        evidence::{Evidence, Other, Reader},
        inputs, permissions, pods,
        read::{deletion_permission, missing, seen, snapshot},
        screen::Report,
    },
    provider::{Phase, catalog::Catalog},
};

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "filename"])))]
pub struct PreflightArgs {
    /// The `CloudControllerManager` in the cluster.
    pub name: Option<String>,

    /// A CloudControllerManager manifest that need not be applied yet; - is the standard input.
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,

    #[command(flatten)]
    pub cluster: AnyCluster,

    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The operator's own namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = NAME)]
    pub operator_namespace: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Prints the checks; the exit code says whether one of them refuses.
pub(super) fn run(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let catalog = args.providers.catalog(false)?;
    let report = runtime()?.block_on(async {
        let client = args.cluster.client().await?;
        report(args, &client, &catalog).await
    })?;
    print(&args.output.write(&report, || report.text())?)?;
    Ok(ExitCode::from(u8::from(!report.passed)))
}

async fn report(args: &PreflightArgs, client: &Client, catalog: &Catalog) -> anyhow::Result<Report> {
    let overview = Overview::at(client).await?;
    let ccm = match (&args.filename, &args.name) {
        (Some(path), _) => facts::read::ccm(path, overview.cluster)?,
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let failed = |unseen: &Unseen| anyhow!("failed to read the CloudControllerManager {name}: {}", unseen.why);
            let all = overview.ccms.as_ref().map_err(failed)?;
            let found = all.iter().find(|one| one["metadata"]["name"] == name);
            let found = found.with_context(|| format!("there is no CloudControllerManager {name}"))?;
            let ccm = Ccm::of_live(found, overview.cluster);
            ccm.with_context(|| format!("failed to read CloudControllerManager {name}"))?
        }
    };
    check(client, catalog, &ccm, &overview, None, &args.operator_namespace).await
}

/// What is read of a cluster before it is known which `CloudControllerManager` is checked.
pub(super) struct Overview {
    /// Every node.
    pub(super) nodes: Seen<Vec<Node>>,
    /// What plans depend on.
    pub(super) cluster: Cluster,
    /// Every `CloudControllerManager`, as it is.
    pub(super) ccms: Seen<Vec<Value>>,
}

impl Overview {
    pub(super) async fn at(client: &Client) -> anyhow::Result<Self> {
        let nodes = seen(evidence::nodes(client).await, "nodes", "kubectl get nodes".to_owned())?;
        let cluster = cluster(client, nodes.as_deref().ok()).await?;
        Ok(Self { nodes, cluster, ccms: ccms(client).await? })
    }
}

/// Checks a `CloudControllerManager`; as if this Secret was applied already.
pub(super) async fn check(
    client: &Client,
    catalog: &Catalog,
    ccm: &Ccm,
    overview: &Overview,
    secret: Option<&Value>,
    operator_namespace: &str,
) -> anyhow::Result<Report> {
    let Overview { nodes, cluster, ccms: live } = overview;
    let all = live.as_deref().unwrap_or_default();
    let spec = &ccm.spec;
    let found = found(client, catalog, ccm, secret).await?;
    let validation =
        validation::validate(catalog, ccm, |reference| found.get(reference).cloned().unwrap_or(Found::Absent));
    let Ok(provider) = catalog.kubernetes_of(&spec.provider) else {
        let rows = inputs::rows(&validation, Reader::Caller).into();
        return Ok(Report::new(&ccm.name, &spec.provider, rows));
    };
    let workload = running(client, catalog, ccm).await?;
    let standing = |ccm: &Ccm, running: Option<&Running>| Standing::of(ccm, running.is_some(), running);
    let own = workload.as_ref().ok().and_then(Option::as_ref);
    let own_standing = standing(ccm, own);
    // One that is not in the cluster yet will be the youngest.
    let own_age = all.iter().find(|one| one["metadata"]["name"] == ccm.name.as_str()).map(age);
    let mut other_ccms = Vec::new();
    for live in all {
        let Ok(other) = Ccm::of_live(live, *cluster) else { continue };
        if other.name != ccm.name {
            let running = running(client, catalog, &other).await?.ok().flatten();
            other_ccms.push((other, running, age(live)));
        }
    }
    let others = other_ccms.iter().map(|(other, running, age)| {
        let order = standing(other, running.as_ref()).cmp(&own_standing);
        Other {
            ccm: other,
            goes_first: order.then_with(|| own_age.as_ref().map_or(Ordering::Less, |own| age.cmp(own))).is_lt(),
            runs: running.as_ref().filter(|_| own_standing != Standing::Runs).map(|running| as_it_runs(other, running)),
        }
    });
    let snapshot = snapshot(client, catalog, &BTreeSet::from([""]), &BTreeSet::from([spec.namespace.as_str()])).await?;
    let evidence = Evidence {
        now: Timestamp::now(),
        by: Reader::Caller,
        catalog,
        ccm,
        provider,
        validation: &validation,
        is_installed: workload.as_ref().map(Option::is_some).map_err(Clone::clone),
        others: live.as_ref().map(|_| others.collect()).map_err(Clone::clone),
        nodes: nodes.as_deref().map_err(Clone::clone),
        snapshot: &snapshot,
        missing_permissions: missing_permissions(client, catalog, ccm, operator_namespace).await?,
        deletion_permission: match CcmIdentity::kubernetes(provider, ccm) {
            Some(identity) => deletion_permission(client, &identity.user()).await?,
            None => Ok(None),
        },
    };
    Ok(Report::new(&ccm.name, &spec.provider, preflight::rows(&evidence)))
}

/// What plans depend on. Where no nodes may be read, it is assumed that there is a control plane.
pub(super) async fn cluster(client: &Client, nodes: Option<&[Node]>) -> anyhow::Result<Cluster> {
    let control_plane = nodes.unwrap_or_default().iter().filter(|node| node.is_control_plane);
    let control_plane: Vec<_> = control_plane.map(|node| (node.kubelet.clone(), node.distribution)).collect();
    if let Some(cluster) = Cluster::of(&control_plane, None) {
        return Ok(cluster);
    }
    let version = request::send(NO_DEADLINE, client.apiserver_version()).await;
    let version = version.context("failed to ask the API server for its version")?.git_version;
    if nodes.is_none() {
        let minor: Minor = version.parse().ok().context("the version of the API server cannot be read")?;
        return Ok(Cluster { minor, distribution: Distribution::Other, control_plane_nodes: 3 });
    }
    Cluster::of(&control_plane, Some(&version)).context("the version of the API server cannot be read")
}

/// Every `CloudControllerManager`; none where the kind is not served yet.
async fn ccms(client: &Client) -> Result<Seen<Vec<Value>>, Error> {
    match read::list(client, &CLOUD_CONTROLLER_MANAGER, "", &ListParams::default()).await {
        Err(Error::Read { source, .. }) if source.is_absent() => Ok(Ok(Vec::new())),
        listed => seen(listed, "CloudControllerManagers", "kubectl get ccm".to_owned()),
    }
}

/// What tells which of two was there first.
fn age(live: &Value) -> (String, String) {
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("creationTimestamp"), text("name"))
}

/// What is seen of the ConfigMaps and Secrets that it names; of this Secret, if it is one of them, instead of what there is.
async fn found(
    client: &Client,
    catalog: &Catalog,
    ccm: &Ccm,
    secret: Option<&Value>,
) -> Result<BTreeMap<Reference, Found>, Error> {
    let named = validation::needs(catalog, ccm);
    let mut all = BTreeMap::new();
    for (reference, checks) in sources::checks(named.iter()) {
        let Reference { kind, namespace, name } = &reference;
        let is_it = |metadata: &Value| metadata["name"] == name.as_str() && metadata["namespace"] == namespace.as_str();
        let live = match secret.filter(|secret| *kind == &SECRET && is_it(&secret["metadata"])) {
            Some(secret) => Ok(Some(secret.clone())),
            None => seen(read::get(client, kind, namespace, name).await, name, String::new())?,
        };
        let found = match live {
            Ok(Some(live)) => Found::Present(Source::of(&live, &reference, &checks)),
            Ok(None) => Found::Absent,
            Err(unseen) => Found::Unreadable(unseen.why),
        };
        all.insert(reference, found);
    }
    Ok(all)
}

/// What its workload runs, if that exists and is the operator's.
async fn running(client: &Client, catalog: &Catalog, ccm: &Ccm) -> Result<Seen<Option<Running>>, Error> {
    let Ok(provider) = catalog.kubernetes_of(&ccm.spec.provider) else { return Ok(Ok(None)) };
    let namespace = &ccm.spec.namespace;
    let is_ours = |live: &Value| !live["metadata"]["labels"][PART_OF_LABEL].is_null();
    let mut live = Vec::new();
    for workload in provider.workload().map(|(workload, _)| workload).into_iter().chain(provider.node_manager()) {
        let (kind, name) = (workload.kind(), ccm.named(workload.name()));
        let command = format!("kubectl --namespace {namespace} get {} {name}", kind.plural);
        match seen(read::get(client, kind, namespace, &name).await, &name, command)? {
            Ok(found) => live.extend(found.filter(is_ours)),
            Err(unseen) => return Ok(Err(unseen)),
        }
    }
    Ok(Ok(pods::running(live.iter())))
}

/// What the operator needs for it and may not do.
async fn missing_permissions(
    client: &Client,
    catalog: &Catalog,
    ccm: &Ccm,
    operator_namespace: &str,
) -> Result<Seen<Vec<String>>, Error> {
    let unseen = |why: String, command: String| Ok(Err(Unseen { what: "permissions".to_owned(), why, command }));
    if let Ok(None) = seen(read::get(client, &SERVICE_ACCOUNT, operator_namespace, NAME).await, NAME, String::new())? {
        let why = format!("there is no {}", describe_objects(&SERVICE_ACCOUNT, operator_namespace, NAME));
        let provider = &ccm.spec.provider;
        let command = format!("install the operator: ccm-operator render install --providers {provider}");
        return unseen(why, command);
    }
    let plan = Plan::new(catalog, &ccm.clone().facts(), Phase::Cluster);
    let Ok(plan) = plan else { return unseen("another problem comes first".to_owned(), "cure that".to_owned()) };
    let account = format!("system:serviceaccount:{operator_namespace}:{NAME}");
    let missing = missing(client, Some(&account), permissions::needs(plan.objects())).await?;
    Ok(missing.map(|needs| needs.iter().map(Need::words).collect()))
}
