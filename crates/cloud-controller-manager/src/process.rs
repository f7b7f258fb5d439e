//! The process (IO): its driver, its lease, its server, its signals, and the order in which they end.

use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use ccm_all_drivers::{Drivers, account_settings, from_environment, resolve};
use ccm_drivers::{
    contract::{Driver, DriverType},
    middleware::InFlightHandle,
    settings::{self, Values},
};
use ccm_kit::{
    cluster::{
        access_review::may_delete_any_node,
        client,
        events::{Recorder, Repetition, Report},
        kubeconfig,
        request::REQUEST_TIMEOUT,
    },
    process::{
        identity,
        leadership::{Authority, Deadline, Leadership, Now},
        lease::{Election, LEASE, Lost},
        signals::StopSignals,
    },
};
use futures::{FutureExt, future::OptionFuture};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};

use crate::{
    account::{AccountId, FirstAccount, Place},
    cloud_driver::{CloudDriver, LONGEST_PAUSE, OnFailure, Parts},
    controllers,
    driver_files::DriverFiles,
    flags::{Controller, Flags, Given, given as given_path},
    metrics::Metrics,
    reason,
    serve::{self, Readiness},
    text::kubectl::Access,
    version::{COMMIT, VERSION},
};

/// The time limit for the controllers to stop. The lease is released within the next five seconds, and Kubernetes kills a pod after 30 s.
const STOP: Duration = Duration::from_secs(5);

/// The duration of leadership if leader election is off.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The verbosity from which each operation of the driver is logged.
const TRACE: u8 = 4;

/// The component of Events about the process.
const COMPONENT: &str = "cloud-controller-manager";

const REPETITION: Repetition =
    Repetition { write_period: Duration::from_secs(60), series_period: Duration::from_secs(7200) };

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Runs the process until a signal arrives, the lease is lost, or a part of the process ends.
pub(crate) async fn run(given: &Given) -> anyhow::Result<()> {
    let flags = &given.flags;
    let mut stop_signals = StopSignals::new()?;
    let state_requested = signal(SignalKind::user_defined1())?;
    info!("cloud-controller-manager {VERSION}, commit {}", COMMIT.unwrap_or("unknown"));
    let drivers = Drivers::load(&flags.driver, variable).await?;
    let driver = driver(given, drivers)?;
    let config = given_path(flags.cloud_config.as_ref()).cloned();
    let values = values(driver, config.as_deref())?;
    drivers.log(driver, &values);

    let metrics = Metrics::new(driver.name());
    let kubeconfig = given_path(flags.kubeconfig.as_ref());
    info!("{}", server_line(kubeconfig).await?);
    let client = connect(kubeconfig, &metrics).await?;
    // A connection of its own, so that nothing delays the renewal of the lease.
    let lease_client = connect(kubeconfig, &metrics).await?;
    let (leading, leadership) = watch::channel(Leadership::Waiting(None));
    let (stop, shutdown) = watch::channel(false);
    let authority = Authority { leadership: leadership.clone(), shutdown };
    let lease = flags.election.lease();
    let in_flight = InFlightHandle::default();
    let lease_events = LeaseEvents { recorder: Recorder::start(client.clone()), lease: reference(lease) };
    let (cloud, problem) = CloudDriver::new(Parts {
        driver,
        values: {
            let config = config.clone();
            Box::new(move || self::values(driver, config.as_deref()))
        },
        account: FirstAccount::new(lease_client.clone(), Place::of(lease), authority.clone()),
        metrics: metrics.clone(),
        in_flight: in_flight.clone(),
        trace: flags.v >= TRACE,
        on_failure: on_failure(lease_events.clone(), driver.name()),
    });
    let cloud = Arc::new(cloud);

    let readiness = Readiness { leadership: leadership.clone(), cloud: problem };
    let reviews = reviews_client(flags, &client, &metrics).await?;
    let server = serve::start(&flags.serving, readiness.clone(), &metrics, reviews).await?;
    let timings = flags.election.timings().map_err(|problem| anyhow!(problem))?;
    let new_election = || {
        let (rewound, was_missing) = Default::default();
        Election::new(lease_client, lease, identity::with_host_name(), timings, leading.clone(), rewound, was_missing)
    };
    let mut election = flags.election.leader_elect.then(new_election);

    // The tasks of the process.
    let lead = lead(election.as_mut(), &leading);
    let work = async {
        let mut leadership = leadership.clone();
        // The other end is in this function.
        let _ = leadership.wait_for(Leadership::is_leading).await;
        let options = options(given, driver.name(), cloud.first_account());
        if options.guard.is_none() && options.controllers.contains(&Controller::CloudNodeLifecycle) {
            say_who_guards(&client, &lease_events).await;
        }
        controllers::run(client, Arc::clone(&cloud) as Arc<dyn Driver>, &options, authority, metrics.clone()).await
    };
    let follow = follow(leadership.clone(), metrics.clone(), lease.1);
    let keep_open = keep_open(leadership.clone(), DriverFiles::of(driver, &values, config.as_deref()), &cloud);
    let log_state = log_state_on_request(state_requested, readiness, in_flight);
    // Fused, because it is awaited again after it may have ended.
    let mut work = std::pin::pin!(work.fuse());
    let ended = tokio::select! {
        lost = lead => Err(anyhow::Error::from(lost)),
        worked = &mut work => worked,
        Some(ended) = OptionFuture::from(server) => ended.context("failed to serve HTTPS"),
        never = follow => match never {},
        never = keep_open => match never {},
        never = log_state => match never {},
        () = stop_signals.next() => Ok(()),
    };

    if ended.is_ok() {
        info!("stopping");
    }
    // A write ends before another process can lead.
    stop.send_replace(true);
    let orderly = async {
        let _ = tokio::time::timeout(STOP, work).await;
        if let Some(election) = election {
            election.release().await;
        }
    };
    tokio::select! {
        () = orderly => ended,
        () = stop_signals.next() => bail!("stopped at once by a second signal: the lease is held until it expires"),
    }
}

/// Returns the driver that the command line names.
fn driver(given: &Given, drivers: &'static Drivers) -> anyhow::Result<&'static dyn DriverType> {
    let named = given.flags.cloud_provider.as_deref();
    let known = || drivers.names().join(", ");
    let Some(name) = named.or(given.called_as.as_deref()) else {
        bail!("--cloud-provider is missing: name the driver; the drivers are {}", known());
    };
    // An external driver was given to be used.
    if let Some(external) = drivers.external().filter(|external| named.is_none() && external.name() != name) {
        let external = external.name();
        bail!(
            "the external driver {external} is given, and the program is called as that of {name}: give --cloud-provider={external}"
        );
    }
    drivers.named(name).with_context(|| format!("--cloud-provider: {}", drivers.unknown(name, &[])))
}

/// Reads the values of the driver's settings.
fn values(driver: &dyn DriverType, config: Option<&Path>) -> anyhow::Result<Values> {
    let environment = from_environment(driver, variable)?;
    let file = config.map(|path| account_settings(path, driver.name(), None)).transpose()?.unwrap_or_default();
    let given = settings::Given { environment, file, ..settings::Given::default() };
    // This program has no flags for the settings of drivers.
    resolve(driver, &given, config).map_err(|error| match error.downcast_ref::<settings::Problem>() {
        Some(settings::Problem::Missing { name, variable, .. }) => {
            anyhow!(
                "{name} is missing: set the environment variable {variable}, or {name} in the file of --cloud-config"
            )
        }
        _ => error,
    })
}

/// Returns how the controllers run.
fn options(given: &Given, cloud: &str, account: AccountId) -> controllers::Options {
    let flags = &given.flags;
    let guard = flags.node_deletion_guard.then_some(controllers::GuardOptions {
        min_not_ready: flags.node_deletion_min_not_ready,
        max_per_hour: flags.node_deletion_max_per_hour,
        max_percent: flags.node_deletion_max_percent,
    });
    controllers::Options {
        cloud: cloud.to_owned(),
        account,
        account_place: Place::of(flags.election.lease()),
        controllers: given.controllers.run.clone(),
        node_monitor_period: flags.node_monitor_period,
        node_status_update_frequency: flags.node_status_update_frequency,
        concurrent_node_syncs: flags.concurrent_node_syncs.into(),
        guard,
    }
}

/// Says which API server is used, and where its address comes from: errors of requests do not have it.
async fn server_line(kubeconfig: Option<&PathBuf>) -> anyhow::Result<String> {
    let access = Access { kubeconfig: kubeconfig.cloned(), ..Access::default() };
    let server = kubeconfig::load(&access).await?.cluster_url;
    let origin = match kubeconfig {
        Some(path) => format!("the kubeconfig {}", path.display()),
        None if kubeconfig::is_there() => "the kubeconfig of KUBECONFIG or ~/.kube/config".to_owned(),
        None => "the credentials of the Pod".to_owned(),
    };
    Ok(format!("the API server is {server}, of {origin}"))
}

/// Creates a client for the API server that counts its requests.
async fn connect(kubeconfig: Option<&PathBuf>, metrics: &Metrics) -> anyhow::Result<Client> {
    let metrics = metrics.clone();
    let on_request = Arc::new(move |verb: &'static str, code, took| metrics.api_request(verb, code, took));
    let kubeconfig = kubeconfig.cloned();
    client::connect(&Access { kubeconfig, ..Access::default() }, REQUEST_TIMEOUT, None, Some(on_request)).await
}

/// Returns the client for the reviews of tokens.
async fn reviews_client(flags: &Flags, client: &Client, metrics: &Metrics) -> anyhow::Result<Client> {
    let serving = &flags.serving;
    let authentication = given_path(serving.authentication_kubeconfig.as_ref());
    let given = authentication.or(given_path(serving.authorization_kubeconfig.as_ref()));
    match given.filter(|path| Some(*path) != flags.kubeconfig.as_ref()) {
        Some(path) => connect(Some(path), metrics).await.context("--authentication-kubeconfig"),
        None => Ok(client.clone()),
    }
}

/// Events on the lease, which concern all nodes.
#[derive(Clone)]
struct LeaseEvents {
    recorder: Recorder,
    lease: ObjectReference,
}

impl LeaseEvents {
    fn warn(&self, reason: &str, message: String) {
        let (object, reason) = (self.lease.clone(), reason.to_owned());
        let repetition = REPETITION;
        self.recorder.send(Report { object, component: COMPONENT, reason, is_warning: true, message, repetition });
    }
}

fn reference((namespace, name): (&str, &str)) -> ObjectReference {
    ObjectReference {
        api_version: Some(LEASE.api_version()),
        kind: Some(LEASE.kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Reports failures to open the driver.
fn on_failure(events: LeaseEvents, cloud: &str) -> OnFailure {
    let cloud = cloud.to_owned();
    Box::new(move |reason, problem| {
        let message = format!("cannot use the cloud {cloud}, so no node is initialized, tainted or deleted: {problem}");
        events.warn(reason, message);
    })
}

/// Reports that the guard of this process is off, and whether anybody else decides over deletions: then this process may not delete every
/// node.
async fn say_who_guards(client: &Client, events: &LeaseEvents) {
    const FLAG: &str = "--node-deletion-guard=false";
    match may_delete_any_node(client, None, Some(REQUEST_TIMEOUT)).await {
        Ok(false) => info!(
            "{FLAG}: this process deletes the nodes that ccm-operator, or who else gives it the permission, allows"
        ),
        Ok(true) => {
            let problem = format!(
                "{FLAG}, and the account of this process may delete every node: nobody limits how many nodes it deletes, or how fast. \
                 Remove the flag, or the permission to delete nodes, unless an admission policy decides"
            );
            warn!("{problem}");
            events.warn(reason::UNGUARDED, problem);
        }
        Err(cause) => warn!("{FLAG}, and whether this process may delete every node is not known: {cause}"),
    }
}

/// Competes for the lease and holds it until it is lost. Without an election, leads for ever.
async fn lead(election: Option<&mut Election>, leading: &watch::Sender<Leadership>) -> Lost {
    if let Some(election) = election {
        return election.run().await;
    }
    leading.send_replace(Leadership::Leading(Deadline::after(Now::read(), FOREVER)));
    std::future::pending().await
}

/// Shows in the metrics whether this process leads.
async fn follow(mut leadership: watch::Receiver<Leadership>, metrics: Metrics, lease: &str) -> Infallible {
    loop {
        metrics.set_leading(lease, leadership.borrow_and_update().is_leading());
        if leadership.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Keeps the driver open while this process leads, also if no node needs it: what is wrong is reported at once. Opens it again after each
/// change of its files.
async fn keep_open(
    mut leadership: watch::Receiver<Leadership>,
    mut files: DriverFiles,
    cloud: &CloudDriver,
) -> Infallible {
    let _ = leadership.wait_for(Leadership::is_leading).await;
    loop {
        let is_open = cloud.open_now().await.is_ok();
        tokio::select! {
            () = files.changed() => {
                info!("files of the driver have changed: it is opened again");
                cloud.reopen().await;
            }
            () = tokio::time::sleep(LONGEST_PAUSE), if !is_open => {}
        }
    }
}

/// Logs the state of the process at each signal.
async fn log_state_on_request(mut requested: Signal, readiness: Readiness, in_flight: InFlightHandle) -> Infallible {
    loop {
        if requested.recv().await.is_none() {
            return std::future::pending().await;
        }
        let is_leading = readiness.leadership.borrow().is_leading();
        info!("{}", if is_leading { "this process leads" } else { "this process does not lead" });
        if let Some(problem) = readiness.waits_for() {
            info!("waiting: {problem}");
        }
        let operations = in_flight.list();
        info!("in flight: {}", if operations.is_empty() { "nothing" } else { "operations of the driver" });
        for operation in operations {
            info!("  {operation}");
        }
    }
}
