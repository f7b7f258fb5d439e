//! The commands `operator` and `config-sync`: one process, its leases, its signals and its end.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    controllers::{CONFIG_SYNC_LEASE, ConfigSyncArgs, ControllerGroup, ControllersArgs, OperatorArgs},
    flags::{own_namespace, runtime, wrong_usage},
};
use crate::{
    apply::inventory,
    cluster::{client, request::REQUEST_TIMEOUT},
    controllers::{
        Controllers,
        dry_run::DryRun,
        view::{View, ViewSettings},
    },
    facts::{self, tls::TlsFlags},
    process::{
        http::{self, Health},
        lease::Authority,
        lease::{Election, Error, Leadership, Timings},
        metrics::Metrics,
    },
    provider::embedded,
};
use anyhow::Context;
use futures::FutureExt;
use kube::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// How far off the end of a leadership is that nobody else can have.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// What runs in a process.
#[derive(Debug)]
pub(super) struct Settings {
    common: ControllersArgs,
    /// Timings of the leases that were given.
    timings: Option<Timings>,
    operator: Option<OperatorSettings>,
    /// Whether it is only logged what the operator would do.
    dry_run: bool,
    /// The lease of the config-sync controllers.
    config_sync: Option<String>,
}

#[derive(Debug)]
struct OperatorSettings {
    lease: String,
    images_json: PathBuf,
    tls_flags: TlsFlags,
}

impl Settings {
    /// What `operator` asks for; an error is wrong usage.
    pub(super) fn of_operator(args: OperatorArgs) -> Result<Self, &'static str> {
        let runs = |group| args.controllers.iter().any(|one| *one == group || *one == ControllerGroup::All);
        let operator = OperatorSettings {
            lease: args.leader_elect_resource_name,
            images_json: args.images_json,
            tls_flags: TlsFlags { min_version: args.tls_min_version, cipher_suites: args.tls_cipher_suites },
        };
        Ok(Self {
            timings: args.common.leader_election.timings()?,
            operator: runs(ControllerGroup::Operator).then_some(operator),
            dry_run: args.dry_run,
            config_sync: runs(ControllerGroup::ConfigSync).then(|| CONFIG_SYNC_LEASE.to_owned()),
            common: args.common,
        })
    }

    /// What `config-sync` asks for; an error is wrong usage.
    pub(super) fn of_config_sync(args: ConfigSyncArgs) -> Result<Self, &'static str> {
        Ok(Self {
            timings: args.common.leader_election.timings()?,
            operator: None,
            dry_run: false,
            config_sync: Some(args.leader_elect_resource_name),
            common: args.common,
        })
    }
}

/// A lease that this process competes for, and who is told of it.
struct Candidate {
    lease: String,
    leading: watch::Sender<Leadership>,
    election: Option<Election>,
}

impl Candidate {
    fn new(lease: String) -> (Self, watch::Receiver<Leadership>) {
        let (leading, leadership) = watch::channel(Leadership::Waiting(None));
        (Self { lease, leading, election: None }, leadership)
    }

    /// Competes for the lease and holds it, until it is lost.
    async fn lead(&mut self, client: &Client, namespace: &str, timings: Option<Timings>) -> Error {
        let Some(timings) = timings else {
            self.leading.send_replace(Leadership::Leading(Instant::now() + FOREVER));
            return std::future::pending().await;
        };
        let election = Election::new(client.clone(), namespace, &self.lease, timings, self.leading.clone());
        self.election.insert(election).run().await
    }
}

/// Runs the command `operator`.
pub(super) fn run_operator(args: OperatorArgs) -> anyhow::Result<()> {
    run(Settings::of_operator(args))
}

/// Runs the command `config-sync`.
pub(super) fn run_config_sync(args: ConfigSyncArgs) -> anyhow::Result<()> {
    run(Settings::of_config_sync(args))
}

/// Runs controllers until a signal, or until one of the process's parts ends: then the process ends too.
fn run(settings: Result<Settings, &'static str>) -> anyhow::Result<()> {
    let settings = settings.unwrap_or_else(|problem| wrong_usage(problem));
    runtime()?.block_on(run_until_ended(settings))
}

async fn run_until_ended(settings: Settings) -> anyhow::Result<()> {
    let Settings { common, timings, operator, dry_run, config_sync } = settings;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client =
        client::connect(common.connection.kubeconfig.as_deref(), common.api_server_env_file.as_deref()).await?;
    let (health, metrics) = (Health::starting(), Metrics::default());
    let listener = http::bind(&common.health_addr)
        .await
        .with_context(|| format!("failed to listen on --health-addr {}", common.health_addr))?;

    let (single_replica, topology) = watch::channel(None);
    let (stop, shutdown) = watch::channel(false);
    let own_namespace = own_namespace();
    let set_id = inventory::set_id(&own_namespace);
    let lease_namespace =
        common.leader_election.leader_elect_resource_namespace.clone().unwrap_or_else(|| own_namespace.clone());
    let settings = ViewSettings {
        facts: facts::Settings {
            namespace: common.namespace.clone(),
            release_version: common.release_version.clone().filter(|version| !version.is_empty()),
            tls: operator.as_ref().map(|operator| operator.tls_flags.clone()).unwrap_or_default(),
        },
        own_namespace,
        with_operator: operator.is_some(),
        with_config_sync: config_sync.is_some() && !dry_run,
    };
    let view = View::new(client.clone(), embedded::catalog()?, settings, set_id.clone(), single_replica);
    if let Some(operator) = operator.as_ref().filter(|_| dry_run) {
        let dry_run = DryRun::new(view, set_id, operator.images_json.clone(), health.clone());
        return tokio::select! {
            () = dry_run.run() => Ok(()),
            served = http::serve(listener, health, metrics) => served.context("failed to serve the health endpoint"),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
    }
    let mut controllers = Controllers::new(view, shutdown.clone(), health.clone(), metrics.clone());
    let authority = |leadership| Authority { leadership, shutdown: shutdown.clone() };

    let (mut of_config_sync, mut of_operator) = (None, None);
    let mut config_sync_has_tried = None;
    if let Some(lease) = config_sync {
        let (candidate, leadership) = Candidate::new(lease);
        config_sync_has_tried = Some(leadership.clone());
        controllers = controllers.with_config_sync(authority(leadership), common.system_trust_bundle.clone());
        of_config_sync = Some(candidate);
    }
    if let Some(operator) = operator {
        let (candidate, leadership) = Candidate::new(operator.lease);
        controllers = controllers.with_operator(authority(leadership), set_id, operator.images_json);
        of_operator = Some(candidate);
    }

    let lead = async {
        let timings =
            if common.leader_election.leader_elect { Some(timings_of(timings, topology).await) } else { None };
        let lead_config_sync = async {
            match &mut of_config_sync {
                Some(candidate) => candidate.lead(&client, &lease_namespace, timings).await,
                None => std::future::pending().await,
            }
        };
        let lead_operator = async {
            // The configuration's controllers first: what they find is applied at once, and not after a restart.
            if let Some(tried) = &mut config_sync_has_tried {
                let _ = tried.changed().await;
            }
            match &mut of_operator {
                Some(candidate) => candidate.lead(&client, &lease_namespace, timings).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            lost = lead_config_sync => lost,
            lost = lead_operator => lost,
        }
    };
    // Fused, because it is waited for once more after it may have ended.
    let mut running = std::pin::pin!(controllers.run().fuse());
    let ended = tokio::select! {
        () = &mut running => Ok(()),
        lost = lead => Err(lost.into()),
        served = http::serve(listener, health, metrics) => served.context("failed to serve the health endpoint"),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if ended.is_ok() {
        info!("stopping");
    }
    // A turn that has begun to write ends before somebody else may lead.
    stop.send_replace(true);
    let _ = tokio::time::timeout(REQUEST_TIMEOUT, running).await;
    let elections = [of_operator, of_config_sync].into_iter().flatten().filter_map(|candidate| candidate.election);
    futures::future::join_all(elections.map(Election::release)).await;
    ended
}

/// The timings that were given, else those for the cluster's topology, once that is known.
async fn timings_of(given: Option<Timings>, mut topology: watch::Receiver<Option<bool>>) -> Timings {
    if let Some(given) = given {
        return given;
    }
    match topology.wait_for(Option::is_some).await.map(|is_single| *is_single) {
        Ok(Some(true)) => Timings::SINGLE_REPLICA,
        _ => Timings::HIGHLY_AVAILABLE,
    }
}
