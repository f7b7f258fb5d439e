//! The command `preflight`: the checks before a cloud-controller-manager is installed. Writes nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::ListParams};
use serde_json::Value;

use super::{
    flags::{OutputFormat, print, runtime},
    nodes::AnyCluster,
    providers::ProviderFlags,
};
use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, placement::Distribution},
    cluster::{
        read::{self, Error},
        request::{self, NO_DEADLINE, describe_objects},
    },
    error::chain,
    facts::{self, cluster::Cluster, manager::Manager, version::Minor},
    nodes::{
        evidence::{Seen, Unseen},
        node::Node,
        observed::words,
        read::nodes,
        subject::{Need, Subject},
    },
    object::{
        PART_OF_LABEL, SERVICE_ACCOUNT,
        reference::{Reference, SECRET},
    },
    plan::{
        Plan,
        install::NAME,
        upstream::{
            conflict::{Running, Standing, as_it_runs},
            judgement,
            sources::{self, Found, Source},
        },
    },
    preflight::{
        self,
        evidence::{Evidence, Other, Reader},
        inputs, pods,
        read::{deletion_right, missing, seen, survey},
        rights,
        screen::Report,
    },
    provider::{Phase, catalog::Catalog},
};

/// Flags of `preflight`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).args(["name", "filename"])))]
pub struct PreflightArgs {
    /// The `CloudControllerManager` in the cluster.
    pub name: Option<String>,

    /// A CloudControllerManager manifest that need not be applied yet; - is the standard input.
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,

    /// The cluster.
    #[command(flatten)]
    pub cluster: AnyCluster,

    /// The providers that do not come with this program.
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
    let catalog = args.providers.catalog()?;
    let report = runtime()?.block_on(async {
        let client = args.cluster.client().await?;
        report(args, &client, &catalog).await
    })?;
    print(&args.output.write(&report, || report.text())?)?;
    Ok(ExitCode::from(u8::from(!report.passed)))
}

async fn report(args: &PreflightArgs, client: &Client, catalog: &Catalog) -> anyhow::Result<Report> {
    let look = Look::at(client).await?;
    let manager = match (&args.filename, &args.name) {
        (Some(path), _) => facts::read::manager(path, look.cluster)?,
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let all = match &look.managers {
                Ok(all) => all,
                Err(unseen) => bail!("failed to read the CloudControllerManager {name}: {}", unseen.why),
            };
            let found = all.iter().find(|one| one["metadata"]["name"] == name);
            let found = found.with_context(|| format!("there is no CloudControllerManager {name}"))?;
            let manager = Manager::of_live(found, look.cluster);
            manager.with_context(|| format!("failed to read CloudControllerManager {name}"))?
        }
    };
    check(client, catalog, &manager, &look, None, &args.operator_namespace).await
}

/// What is read of a cluster before it is known which `CloudControllerManager` is checked.
pub(super) struct Look {
    /// Every node.
    pub(super) nodes: Seen<Vec<Node>>,
    /// What plans depend on.
    pub(super) cluster: Cluster,
    /// Every `CloudControllerManager`, as it is.
    pub(super) managers: Seen<Vec<Value>>,
}

impl Look {
    /// Reads it.
    pub(super) async fn at(client: &Client) -> anyhow::Result<Self> {
        let nodes = seen(nodes(client).await, "nodes", "kubectl get nodes".to_owned())?;
        let cluster = cluster(client, nodes.as_deref().ok()).await?;
        Ok(Self { nodes, cluster, managers: managers(client).await? })
    }
}

/// Checks a `CloudControllerManager`; as if this Secret was applied already.
pub(super) async fn check(
    client: &Client,
    catalog: &Catalog,
    manager: &Manager,
    look: &Look,
    secret: Option<&Value>,
    operator_namespace: &str,
) -> anyhow::Result<Report> {
    let Look { nodes, cluster, managers: live } = look;
    let all = live.as_deref().unwrap_or_default();
    let spec = &manager.spec;
    let found = found(client, catalog, manager, secret).await?;
    let judgement =
        judgement::judge(catalog, manager, |reference| found.get(reference).cloned().unwrap_or(Found::Absent));
    let Ok(provider) = catalog.upstream_of(&spec.provider) else {
        let rows = inputs::rows(&judgement, Reader::Caller).into();
        return Ok(Report::new(&manager.name, &spec.provider, rows));
    };
    let workload = running(client, catalog, manager).await?;
    let standing = |manager: &Manager, running: Option<&Running>| Standing::of(manager, running.is_some(), running);
    let own = workload.as_ref().ok().and_then(Option::as_ref);
    let own_standing = standing(manager, own);
    // One that is not in the cluster yet will be the youngest.
    let own_age = all.iter().find(|one| one["metadata"]["name"] == manager.name.as_str()).map(age);
    let mut other_managers = Vec::new();
    for live in all {
        let Ok(other) = Manager::of_live(live, *cluster) else { continue };
        if other.name != manager.name {
            let running = running(client, catalog, &other).await?.ok().flatten();
            other_managers.push((other, running, age(live)));
        }
    }
    let others = other_managers.iter().map(|(other, running, age)| {
        let order = standing(other, running.as_ref()).cmp(&own_standing);
        Other {
            manager: other,
            goes_first: order.then_with(|| own_age.as_ref().map_or(Ordering::Less, |own| age.cmp(own))).is_lt(),
            runs: running.as_ref().filter(|_| own_standing != Standing::Runs).map(|running| as_it_runs(other, running)),
        }
    });
    let survey = survey(client, catalog, &BTreeSet::from([""]), &BTreeSet::from([spec.namespace.as_str()])).await?;
    let evidence = Evidence {
        now: Timestamp::now(),
        by: Reader::Caller,
        catalog,
        manager,
        provider,
        judgement: &judgement,
        is_installed: workload.as_ref().map(Option::is_some).map_err(Clone::clone),
        others: live.as_ref().map(|_| others.collect()).map_err(Clone::clone),
        nodes: nodes.as_deref().map_err(Clone::clone),
        survey: &survey,
        missing_rights: missing_rights(client, catalog, manager, operator_namespace).await?,
        deletion_right: match Subject::upstream(provider, manager) {
            Some(subject) => deletion_right(client, &subject.user()).await?,
            None => Ok(None),
        },
    };
    Ok(Report::new(&manager.name, &spec.provider, preflight::rows(&evidence)))
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
async fn managers(client: &Client) -> Result<Seen<Vec<Value>>, Error> {
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
    manager: &Manager,
    secret: Option<&Value>,
) -> Result<BTreeMap<Reference, Found>, Error> {
    let named = judgement::needs(catalog, manager);
    let mut all = BTreeMap::new();
    for (reference, checks) in sources::checks(named.iter()) {
        let Reference { kind, namespace, name } = &reference;
        let is_it = |metadata: &Value| metadata["name"] == name.as_str() && metadata["namespace"] == namespace.as_str();
        if let Some(secret) = secret.filter(|secret| *kind == &SECRET && is_it(&secret["metadata"])) {
            let source = Source::of(secret, &reference, &checks);
            all.insert(reference, Found::Present(source));
            continue;
        }
        let found = match read::get(client, kind, namespace, name).await {
            Ok(Some(live)) => Found::Present(Source::of(&live, &reference, &checks)),
            Ok(None) => Found::Absent,
            Err(Error::Read { source, .. }) if source.is_denied() => Found::Unreadable(words(&chain(&source))),
            Err(error) => return Err(error),
        };
        all.insert(reference, found);
    }
    Ok(all)
}

/// What its workload runs, if that exists and is the operator's.
async fn running(client: &Client, catalog: &Catalog, manager: &Manager) -> Result<Seen<Option<Running>>, Error> {
    let Ok(provider) = catalog.upstream_of(&manager.spec.provider) else { return Ok(Ok(None)) };
    let namespace = &manager.spec.namespace;
    let is_ours = |live: &Value| !live["metadata"]["labels"][PART_OF_LABEL].is_null();
    let mut live = Vec::new();
    for workload in provider.workload().map(|(workload, _)| workload).into_iter().chain(provider.node_manager()) {
        let (kind, name) = (workload.kind(), manager.named(workload.name()));
        let command = format!("kubectl --namespace {namespace} get {} {name}", kind.plural);
        match seen(read::get(client, kind, namespace, &name).await, &name, command)? {
            Ok(found) => live.extend(found.filter(is_ours)),
            Err(unseen) => return Ok(Err(unseen)),
        }
    }
    Ok(Ok(pods::running(live.iter())))
}

/// What the operator needs for it and may not do.
async fn missing_rights(
    client: &Client,
    catalog: &Catalog,
    manager: &Manager,
    operator_namespace: &str,
) -> Result<Seen<Vec<String>>, Error> {
    let unseen = |why: String, command: String| Ok(Err(Unseen { what: "rights".to_owned(), why, command }));
    if let Ok(None) = seen(read::get(client, &SERVICE_ACCOUNT, operator_namespace, NAME).await, NAME, String::new())? {
        let why = format!("there is no {}", describe_objects(&SERVICE_ACCOUNT, operator_namespace, NAME));
        let provider = &manager.spec.provider;
        let command = format!("install the operator: ccm-operator render install --providers {provider}");
        return unseen(why, command);
    }
    let plan = Plan::new(catalog, &manager.clone().facts(), Phase::Cluster);
    let Ok(plan) = plan else { return unseen("another problem comes first".to_owned(), "cure that".to_owned()) };
    let account = format!("system:serviceaccount:{operator_namespace}:{NAME}");
    let missing = missing(client, Some(&account), rights::needs(plan.objects())).await?;
    Ok(missing.map(|needs| needs.iter().map(Need::words).collect()))
}
