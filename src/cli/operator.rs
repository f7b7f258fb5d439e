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
    flags::{own_namespace, runtime, wrong_usage},
    operator_flags::{
        CONFIG_SYNC_LEASE, ConfigSyncArgs, ControllerGroup, ControllersArgs, HIGHLY_AVAILABLE, OperatorArgs,
        SINGLE_REPLICA,
    },
};
use crate::{
    cluster::request::REQUEST_TIMEOUT,
    controllers::{
        Controllers, LAST_PASS, WITHDRAWAL,
        metrics::Metrics,
        view::{View, ViewSettings},
    },
    facts::{self, tls::TlsFlags},
    grace::TOPOLOGY_GRACE,
    process::{
        health::{self, Health},
        http, identity,
        leadership::{Authority, Deadline, Leadership, Now},
        lease::{Election, Lost, Timings},
        review::{self, Reviewer},
        serving::Serving,
        signals::StopSignals,
    },
    provider::external::{ExternalProvider, Pinning, read::ExternalProviders},
    version::{COMMIT, VERSION},
};

/// The error of a process that had no time to release its leases.
const STOPPED_AT_ONCE: &str = "stopped at once by a second signal: leases are held until they expire";

/// The time limit for the controllers to stop. It is longer than their own limits, so that they can log the nodes that may still be
/// deleted. The leases are released within the next five seconds, and Kubernetes kills a pod after 30 s.
const STOP: Duration = LAST_PASS.saturating_add(WITHDRAWAL).saturating_add(Duration::from_secs(5));

/// The duration of leadership if leader election is off.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A lease that this process competes for, with the channel that reports whether it leads.
struct Candidate<'a> {
    lease: &'a str,
    leading: watch::Sender<Leadership>,
    election: Option<Election>,
}

/// The common settings of all elections of a process.
struct Elections {
    client: Client,
    namespace: String,
    /// The timings; `None` if the process leads without an election.
    timings: Option<Timings>,
    rewound: Arc<Notify>,
    was_missing: Arc<AtomicBool>,
}

impl<'a> Candidate<'a> {
    fn new(lease: &'a str) -> (Self, watch::Receiver<Leadership>) {
        let (leading, leadership) = watch::channel(Leadership::Waiting(None));
        (Self { lease, leading, election: None }, leadership)
    }

    /// Competes for the lease and holds it until it is lost.
    async fn lead(&mut self, elections: &Elections) -> Lost {
        let Elections { client, namespace, timings, rewound, was_missing } = elections;
        let Some(timings) = *timings else {
            self.leading.send_replace(Leadership::Leading(Deadline::after(Now::read(), FOREVER)));
            return std::future::pending().await;
        };
        let (lease, leading) = ((namespace.as_str(), self.lease), self.leading.clone());
        let (rewound, was_missing) = (Arc::clone(rewound), Arc::clone(was_missing));
        let election =
            Election::new(client.clone(), lease, identity::of_container(), timings, leading, rewound, was_missing);
        self.election.insert(election).run().await
    }
}

/// The leases of a process, by the controllers that run under them.
#[derive(Default)]
struct Leases<'a> {
    operator: Option<Candidate<'a>>,
    config_sync: Option<Candidate<'a>>,
    /// Changes once the config-sync controllers have tried to acquire their lease.
    config_sync_tried: Option<watch::Receiver<Leadership>>,
}

impl Leases<'_> {
    /// Competes for the leases and holds them until one is lost.
    async fn lead(&mut self, elections: &Elections) -> Lost {
        let Self { operator, config_sync, config_sync_tried } = self;
        let lead_operator = async {
            // The config-sync controllers come first: pods that start with the right configuration need no restart.
            if let Some(tried) = config_sync_tried {
                let _ = tried.changed().await;
            }
            Some(operator.as_mut()?.lead(elections).await)
        };
        tokio::select! {
            Some(lost) = OptionFuture::from(config_sync.as_mut().map(|candidate| candidate.lead(elections))) => lost,
            Some(lost) = lead_operator => lost,
            else => std::future::pending().await,
        }
    }

    /// Releases the leases that are held.
    async fn release(self) {
        let candidates = [self.operator, self.config_sync].into_iter().flatten();
        let elections = candidates.filter_map(|candidate| candidate.election);
        futures::future::join_all(elections.map(Election::release)).await;
    }
}

pub(super) fn run_operator(args: &OperatorArgs) -> anyhow::Result<()> {
    let runs = |group| args.controllers.iter().any(|one| *one == group || *one == ControllerGroup::All);
    let config_sync_lease = (runs(ControllerGroup::ConfigSync) && !args.dry_run).then_some(CONFIG_SYNC_LEASE);
    let operator = runs(ControllerGroup::Operator).then_some(args);
    runtime()?.block_on(ProcessSettings { common: &args.common, operator, config_sync_lease }.run())
}

pub(super) fn run_config_sync(args: &ConfigSyncArgs) -> anyhow::Result<()> {
    let config_sync_lease = Some(args.leader_elect_resource_name.as_str());
    runtime()?.block_on(ProcessSettings { common: &args.common, operator: None, config_sync_lease }.run())
}

/// The settings of a process.
#[derive(Clone, Copy)]
struct ProcessSettings<'a> {
    common: &'a ControllersArgs,
    /// The flags of the operator, if it runs in this process.
    operator: Option<&'a OperatorArgs>,
    /// The lease of the config-sync controllers, if they run in this process.
    config_sync_lease: Option<&'a str>,
}

impl<'a> ProcessSettings<'a> {
    /// Runs the operator, the config-sync controllers or both, until a signal arrives or one part of the process ends.
    async fn run(self) -> anyhow::Result<()> {
        let common = self.common;
        let given_timings = common.leader_election.timings().map_err(wrong_usage)?;
        let mut stop_signals = StopSignals::new()?;
        let state_requested = signal(SignalKind::user_defined1())?;
        let (health, metrics) = (Health::starting(), Metrics::default());

        // The API server, the view of it, and the controllers.
        let client = self.client(&metrics).await?;
        // A connection of its own, so that nothing delays the renewal of a lease.
        let lease_client = self.client(&metrics).await?;
        let health_listener = http::bind(&common.health_addr)
            .await
            .with_context(|| format!("failed to listen on --health-addr {}", common.health_addr))?;
        info!("ccm-operator {VERSION}, commit {}", COMMIT.unwrap_or("unknown"));
        if self.is_dry_run() {
            info!("dry run: the operator logs what it would do and writes nothing");
        }
        let (single_replica, topology) = watch::channel(None);
        let (stop, shutdown) = watch::channel(false);
        let view =
            View::new((client.clone(), metrics.clone()), externals(common)?, self.view_settings(), single_replica);
        let serve_metrics = self.metrics_server(&view, &client, &metrics).await?;
        let (controllers, mut leases) = self.controllers(view, &shutdown, &health);

        // The tasks of the process.
        let log_state = log_state_on_request(state_requested, health.clone(), metrics);
        let rewound = controllers.rewound();
        let lead = async {
            let elects = common.leader_election.leader_elect && !self.is_dry_run();
            let timings = OptionFuture::from(elects.then(|| timings_of(given_timings, topology))).await;
            let namespace = common.leader_election.leader_elect_resource_namespace.clone();
            let namespace = namespace.unwrap_or_else(|| self.own_namespace());
            leases
                .lead(&Elections { client: lease_client, namespace, timings, rewound, was_missing: Arc::default() })
                .await
        };
        // Fused, because it is awaited again after it may have ended.
        let mut running = std::pin::pin!(controllers.run().fuse());
        let ended = tokio::select! {
            () = &mut running => Ok(()),
            lost = lead => Err(lost.into()),
            served = http::serve(health_listener, health::routes(health), None) => served.context("failed to serve the health endpoint"),
            never = log_state => match never {},
            Some(served) = OptionFuture::from(serve_metrics) => served.context("failed to serve the metrics"),
            () = stop_signals.next() => Ok(()),
        };

        if ended.is_ok() {
            info!("stopping");
        }
        if self.is_dry_run() {
            return ended;
        }
        // A pass that is writing ends before another process can lead.
        stop.send_replace(true);
        let orderly = async {
            // The pass, and the withdrawal of permissions after it.
            let _ = tokio::time::timeout(STOP, running).await;
            leases.release().await;
        };
        tokio::select! {
            () = orderly => ended,
            () = stop_signals.next() => bail!(STOPPED_AT_ONCE),
        }
    }

    fn is_dry_run(&self) -> bool {
        self.operator.is_some_and(|operator| operator.dry_run)
    }

    fn own_namespace(&self) -> String {
        self.common.operator_namespace.clone().unwrap_or_else(own_namespace)
    }

    /// Creates a client for the API server that counts its requests.
    async fn client(&self, metrics: &Metrics) -> anyhow::Result<Client> {
        let metrics = metrics.clone();
        let on_request = Arc::new(move |verb: &'static str, code, took| metrics.requested(verb, code, took));
        let env_file = self.common.api_server_env_file.as_deref();
        self.common.connection.observed_client(REQUEST_TIMEOUT, env_file, Some(on_request)).await
    }

    /// Creates the controllers of the process, and the leases under which they run.
    fn controllers(&self, view: View, shutdown: &watch::Receiver<bool>, health: &Health) -> (Controllers, Leases<'a>) {
        let mut controllers = Controllers::new(view, shutdown.clone(), health.clone());
        let mut leases = Leases::default();
        let authority = |leadership| Authority { leadership, shutdown: shutdown.clone() };
        if let Some(lease) = self.config_sync_lease {
            let (candidate, leadership) = Candidate::new(lease);
            leases.config_sync_tried = Some(leadership.clone());
            let system_bundle = self.common.system_trust_bundle.clone();
            controllers = controllers.with_config_sync(authority(leadership), system_bundle);
            leases.config_sync = Some(candidate);
        }
        if let Some(args) = self.operator {
            let (candidate, leadership) = Candidate::new(&args.leader_elect_resource_name);
            controllers = controllers.with_operator(authority(leadership), args.images_json.clone(), args.dry_run);
            leases.operator = Some(candidate);
        }
        (controllers, leases)
    }

    fn view_settings(&self) -> ViewSettings {
        let Self { common, operator, config_sync_lease } = self;
        let tls = operator.map(|operator| TlsFlags {
            min_version: operator.tls_min_version.clone(),
            cipher_suites: operator.tls_cipher_suites.clone(),
        });
        ViewSettings {
            cluster: facts::Settings {
                namespace: common.namespace.clone(),
                release_version: common.release_version.clone().filter(|version| !version.is_empty()),
                tls: tls.unwrap_or_default(),
            },
            own_namespace: self.own_namespace(),
            with_operator: operator.is_some(),
            with_config_sync: config_sync_lease.is_some(),
            namespaces: operator.map(|operator| operator.namespaces.clone()).unwrap_or_default(),
            node_deletion: operator.is_some_and(|operator| operator.node_deletion),
            limits: operator.map(|operator| operator.limits.limits()).unwrap_or_default(),
            remove_providers: common.remove_provider.clone(),
        }
    }

    /// Creates the server of the metrics; returns `None` if the process has none.
    async fn metrics_server(
        &self,
        view: &View,
        client: &Client,
        metrics: &Metrics,
    ) -> anyhow::Result<Option<impl Future<Output = io::Result<()>> + use<>>> {
        let Some(args) = self.operator.filter(|args| !matches!(args.metrics_bind_address.as_str(), "" | "0")) else {
            return Ok(None);
        };
        let address = &args.metrics_bind_address;
        let listener = http::bind(address).await;
        let listener = listener.with_context(|| format!("failed to listen on --metrics-bind-address {address}"))?;
        let (tls, metrics) = (view.tls(), metrics.clone());
        let suites = move || tls.borrow().cipher_suites.clone();
        let serving = Arc::new(Serving::new(args.metrics_cert_dir.clone(), suites, metrics.serving.clone())?);
        let routes = review::routes(move || metrics.text(), Reviewer::new(client.clone()));
        Ok(Some(http::serve(listener, routes, Some(serving))))
    }
}

/// Reads the external providers, and logs the accepted and the refused ones.
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

/// Logs the state of the process at each signal.
async fn log_state_on_request(mut requested: Signal, health: Health, metrics: Metrics) -> Infallible {
    loop {
        if requested.recv().await.is_none() {
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

/// Returns the given timings, or those for the topology of the cluster. An unknown topology counts as highly available.
async fn timings_of(given: Option<Timings>, mut topology: watch::Receiver<Option<bool>>) -> Timings {
    if let Some(given) = given {
        return given;
    }
    let known = async { topology.wait_for(Option::is_some).await.is_ok_and(|known| *known == Some(true)) };
    // Without a lease, the process would repair nothing and would not report why the topology is unknown.
    let is_single = tokio::time::timeout(TOPOLOGY_GRACE, known).await.unwrap_or_default();
    if is_single { SINGLE_REPLICA } else { HIGHLY_AVAILABLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_cannot_read_the_topology_still_competes_for_its_lease() {
        let (_sender, unknown) = watch::channel(None);
        assert_eq!(timings_of(None, unknown).await, HIGHLY_AVAILABLE);
        let (_sender, single) = watch::channel(Some(true));
        assert_eq!(timings_of(None, single).await, SINGLE_REPLICA);
    }
}
