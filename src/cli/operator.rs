//! The commands `operator` and `config-sync`: a process with its leases and signals.

use std::{
    convert::Infallible,
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, bail};
use futures::{FutureExt, future::OptionFuture};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, watch},
};
use tracing::{error, info, warn};

use super::{
    controllers::{CONFIG_SYNC_LEASE, ConfigSyncArgs, ControllerGroup, ControllersArgs, OperatorArgs},
    flags::{own_namespace, runtime, wrong_usage},
};
use crate::{
    controllers::{
        Controllers, LAST_PASS, WITHDRAWAL,
        metrics::Metrics,
        view::{View, ViewSettings},
    },
    facts::{
        self,
        tls::{TlsFlags, TlsSettings},
    },
    grace::TRANSIENT_ERROR_GRACE,
    process::{
        health::{self, Health},
        http,
        leadership::{Authority, Deadline, Leadership, Now},
        lease::{Election, Lost, Timings},
        review::{self, Reviewer},
        serving::Serving,
    },
    provider::external::{ExternalProvider, Pinning, read::ExternalProviders},
    version::{COMMIT, VERSION},
};

/// The error of a process that was not left the time to release its leases.
const STOPPED_AT_ONCE: &str = "stopped at once by a second signal: leases are held until they expire";

/// How long the controllers may take to stop: longer than what they allow themselves, or they would be cut off before they name the
/// nodes that may still be deleted. The leases are released within five seconds after it, and Kubernetes kills a pod after 30 s.
const STOP: Duration = LAST_PASS.saturating_add(WITHDRAWAL).saturating_add(Duration::from_secs(5));

/// Lease length when leader election is off.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A lease that this process competes for, with the channel that reports whether it leads.
struct Candidate<'a> {
    lease: &'a str,
    leading: watch::Sender<Leadership>,
    election: Option<Election>,
}

impl<'a> Candidate<'a> {
    fn new(lease: &'a str) -> (Self, watch::Receiver<Leadership>) {
        let (leading, leadership) = watch::channel(Leadership::Waiting(None));
        (Self { lease, leading, election: None }, leadership)
    }

    /// Competes for the lease and holds it until it is lost.
    async fn lead(
        &mut self,
        client: &Client,
        namespace: &str,
        timings: Option<Timings>,
        rewound: &Arc<Notify>,
        was_missing: &Arc<AtomicBool>,
    ) -> Lost {
        let Some(timings) = timings else {
            self.leading.send_replace(Leadership::Leading(Deadline::after(Now::read(), FOREVER)));
            return std::future::pending().await;
        };
        let (lease, leading) = ((namespace, self.lease), self.leading.clone());
        let (rewound, was_missing) = (Arc::clone(rewound), Arc::clone(was_missing));
        let election = Election::new(client.clone(), lease, timings, leading, rewound, was_missing);
        self.election.insert(election).run().await
    }
}

pub(super) fn run_operator(args: &OperatorArgs) -> anyhow::Result<()> {
    let runs = |group| args.controllers.iter().any(|one| *one == group || *one == ControllerGroup::All);
    let config_sync_lease = (runs(ControllerGroup::ConfigSync) && !args.dry_run).then_some(CONFIG_SYNC_LEASE);
    runtime()?.block_on(run(&args.common, runs(ControllerGroup::Operator).then_some(args), config_sync_lease))
}

pub(super) fn run_config_sync(args: &ConfigSyncArgs) -> anyhow::Result<()> {
    runtime()?.block_on(run(&args.common, None, Some(&args.leader_elect_resource_name)))
}

/// Runs the operator, the config-sync controllers or both until a signal, or until one part of the process ends: then
/// the process ends too.
async fn run(
    common: &ControllersArgs,
    operator: Option<&OperatorArgs>,
    config_sync_lease: Option<&str>,
) -> anyhow::Result<()> {
    let timings = common.leader_election.timings().map_err(wrong_usage)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let asked = signal(SignalKind::user_defined1())?;
    let (health, metrics) = (Health::starting(), Metrics::default());
    let counted = metrics.clone();
    let on_request = Arc::new(move |verb: &'static str, code, took| counted.requested(verb, code, took));
    let env_file = common.api_server_env_file.as_deref();
    let client = common.connection.observed_client(env_file, Some(on_request)).await?;
    let listener = http::bind(&common.health_addr)
        .await
        .with_context(|| format!("failed to listen on --health-addr {}", common.health_addr))?;
    info!("ccm-operator {VERSION}, commit {}", COMMIT.unwrap_or("unknown"));

    let own_namespace = common.operator_namespace.clone().unwrap_or_else(own_namespace);
    let lease_namespace =
        common.leader_election.leader_elect_resource_namespace.clone().unwrap_or_else(|| own_namespace.clone());
    let is_dry_run = operator.is_some_and(|operator| operator.dry_run);
    if is_dry_run {
        info!("dry run: the operator logs what it would do and writes nothing");
    }
    let settings = view_settings(common, operator, own_namespace, config_sync_lease.is_some());
    let (single_replica, topology) = watch::channel(None);
    let (stop, shutdown) = watch::channel(false);
    let externals = externals(common)?;
    let view = View::new((client.clone(), metrics.clone()), externals, settings, single_replica);
    let serve_metrics = match operator {
        Some(args) => metrics_server(args, view.tls(), client.clone(), metrics.clone()).await?,
        None => None,
    };
    let mut controllers = Controllers::new(view, shutdown.clone(), health.clone());
    let authority = |leadership| Authority { leadership, shutdown: shutdown.clone() };

    let (mut for_config_sync, mut for_operator, mut config_sync_has_tried) = (None, None, None);
    if let Some(lease) = config_sync_lease {
        let (candidate, leadership) = Candidate::new(lease);
        config_sync_has_tried = Some(leadership.clone());
        controllers = controllers.with_config_sync(authority(leadership), common.system_trust_bundle.clone());
        for_config_sync = Some(candidate);
    }
    if let Some(args) = operator {
        let (candidate, leadership) = Candidate::new(&args.leader_elect_resource_name);
        controllers = controllers.with_operator(authority(leadership), args.images_json.clone(), is_dry_run);
        for_operator = Some(candidate);
    }

    let describe = describe_when(asked, health.clone(), metrics.clone());
    let (rewound, was_missing) = (controllers.rewound(), Arc::default());
    let lead = async {
        let elects = common.leader_election.leader_elect && !is_dry_run;
        let timings = OptionFuture::from(elects.then(|| timings_of(timings, topology))).await;
        let lead_operator = async {
            // The config-sync controllers first: pods start with the configuration that they find, and need no restart.
            if let Some(tried) = &mut config_sync_has_tried {
                let _ = tried.changed().await;
            }
            for_operator.as_mut()?.lead(&client, &lease_namespace, timings, &rewound, &was_missing).map(Some).await
        };
        let lead_config_sync =
            for_config_sync.as_mut().map(|one| one.lead(&client, &lease_namespace, timings, &rewound, &was_missing));
        tokio::select! {
            Some(lost) = OptionFuture::from(lead_config_sync) => lost,
            Some(lost) = lead_operator => lost,
            else => std::future::pending().await,
        }
    };
    // Fused, because it is awaited again after it may have ended.
    let mut running = std::pin::pin!(controllers.run().fuse());
    let ended = tokio::select! {
        () = &mut running => Ok(()),
        lost = lead => Err(lost.into()),
        served = http::serve(listener, health::routes(health), None) => served.context("failed to serve the health endpoint"),
        never = describe => match never {},
        Some(served) = OptionFuture::from(serve_metrics) => served.context("failed to serve the metrics"),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if ended.is_ok() {
        info!("stopping");
    }
    if is_dry_run {
        return ended;
    }
    // A pass that has begun to write ends before another process may lead.
    stop.send_replace(true);
    let orderly = async {
        // A pass, and what is taken back after it.
        let _ = tokio::time::timeout(STOP, running).await;
        let elections =
            [for_operator, for_config_sync].into_iter().flatten().filter_map(|candidate| candidate.election);
        futures::future::join_all(elections.map(Election::release)).await;
    };
    tokio::select! {
        () = orderly => ended,
        _ = terminate.recv() => bail!(STOPPED_AT_ONCE),
        _ = interrupt.recv() => bail!(STOPPED_AT_ONCE),
    }
}

fn view_settings(
    common: &ControllersArgs,
    operator: Option<&OperatorArgs>,
    own_namespace: String,
    with_config_sync: bool,
) -> ViewSettings {
    let tls = operator.map(|operator| TlsFlags {
        min_version: operator.tls_min_version.clone(),
        cipher_suites: operator.tls_cipher_suites.clone(),
    });
    ViewSettings {
        facts: facts::Settings {
            namespace: common.namespace.clone(),
            release_version: common.release_version.clone().filter(|version| !version.is_empty()),
            tls: tls.unwrap_or_default(),
        },
        own_namespace,
        with_operator: operator.is_some(),
        with_config_sync,
        namespaces: operator.map(|operator| operator.namespaces.clone()).unwrap_or_default(),
        node_deletion: operator.is_some_and(|operator| operator.node_deletion),
        limits: operator.map(|operator| operator.limits.limits()).unwrap_or_default(),
        remove_providers: common.remove_provider.clone(),
    }
}

/// Reads the external providers, and says which are used and which are not.
fn externals(common: &ControllersArgs) -> anyhow::Result<ExternalProviders> {
    let externals = common.providers.externals(Pinning::Required)?;
    for ExternalProvider { provider, origin, .. } in externals.accepted() {
        let name = &provider.name;
        info!("the external provider {name} is that of {}, {}", origin.path, origin.digest);
        for exception in &origin.policy_exceptions {
            warn!(
                "provider {name} has more than the rules for external providers allow, as --provider-policy says: {exception}"
            );
        }
    }
    for refused in externals.catalog().refused() {
        error!("{refused}");
    }
    Ok(externals)
}

/// The server of the metrics; `None` if there is to be none.
async fn metrics_server(
    args: &OperatorArgs,
    tls: watch::Receiver<TlsSettings>,
    client: Client,
    metrics: Metrics,
) -> anyhow::Result<Option<impl Future<Output = io::Result<()>> + use<>>> {
    let address = &args.metrics_bind_address;
    if matches!(address.as_str(), "" | "0") {
        return Ok(None);
    }
    let listener = http::bind(address).await;
    let listener = listener.with_context(|| format!("failed to listen on --metrics-bind-address {address}"))?;
    let suites = move || tls.borrow().cipher_suites.clone();
    let serving = Arc::new(Serving::new(args.metrics_cert_dir.clone(), suites, metrics.serving.clone())?);
    let routes = review::routes(move || metrics.text(), Reviewer::new(client));
    Ok(Some(http::serve(listener, routes, Some(serving))))
}

/// Logs what the process does whenever it is asked.
async fn describe_when(mut asked: Signal, health: Health, metrics: Metrics) -> Infallible {
    loop {
        if asked.recv().await.is_none() {
            return std::future::pending().await;
        }
        for line in health.describe().lines() {
            info!("{line}");
        }
        let now = Timestamp::now().as_second();
        for (kind, last) in metrics.last_heard() {
            info!("the watches of {kind} last delivered something {} s ago", now - last);
        }
    }
}

/// The given timings, or else those for the cluster's topology; for a highly available one if it does not become known.
async fn timings_of(given: Option<Timings>, mut topology: watch::Receiver<Option<bool>>) -> Timings {
    if let Some(given) = given {
        return given;
    }
    let known = async { topology.wait_for(Option::is_some).await.is_ok_and(|known| *known == Some(true)) };
    // Without a lease nothing would be repaired, and nobody would learn why the topology is not known.
    let is_single = tokio::time::timeout(TRANSIENT_ERROR_GRACE, known).await.unwrap_or_default();
    if is_single { Timings::SINGLE_REPLICA } else { Timings::HIGHLY_AVAILABLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_cannot_read_the_topology_still_competes_for_its_lease() {
        let (_sender, unknown) = watch::channel(None);
        assert_eq!(timings_of(None, unknown).await, Timings::HIGHLY_AVAILABLE);
        let (_sender, single) = watch::channel(Some(true));
        assert_eq!(timings_of(None, single).await, Timings::SINGLE_REPLICA);
    }
}
