//! The binary `ccm-operator`: from the command line to the library, and from its errors to an exit code.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage.

#![forbid(unsafe_code)]

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use ccm_operator::{
    apply::REQUEST_TIMEOUT,
    chain,
    cli::{Cli, Command, LeaderElectionArgs, OperatorArgs, RenderArgs, RenderPhase},
    controllers::operator::{Connections, Operator, Settings},
    embedded,
    facts::{DEFAULT_NAMESPACE, files::Files, tls::TlsFlags},
    lease::{Election, Leadership, Timings},
    plan::{Phase, Plan},
    render,
    server::{self, Health},
    telemetry,
};
use clap::{CommandFactory, Parser, error::ErrorKind};
use futures::FutureExt;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// Where the operator runs when it is not in a Pod.
const OPERATOR_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";

fn main() -> ExitCode {
    let cli = Cli::parse();
    telemetry::init(cli.log_format, cli.v);
    let done = match cli.command {
        Command::Operator(args) => operator(args),
        Command::Render(args) => render(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail in another way.
            let _ = writeln!(io::stderr(), "ccm-operator: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn render(args: &RenderArgs) -> anyhow::Result<()> {
    if args.output.is_some() && args.phase != RenderPhase::Cluster {
        let message = "--output needs --phase cluster: the bootstrap phase writes more than manifests";
        Cli::command().error(ErrorKind::ArgumentConflict, message).exit();
    }
    let files = Files {
        infrastructure: args.cluster_infrastructure_file.clone(),
        images: args.images_file.clone(),
        cloud_config: args.cloud_config_file.clone(),
    };
    let sources = files.sources(DEFAULT_NAMESPACE)?;
    let phase = match args.phase {
        RenderPhase::Bootstrap => Phase::Bootstrap,
        RenderPhase::Cluster => Phase::Cluster,
    };
    let plan = Plan::new(&embedded::catalog()?, &sources, phase)?;
    if let Plan::Nothing { why } = &plan {
        writeln!(io::stderr(), "no manifests are written: {why}")?;
    }
    let (folders, files): (&[&str], _) = match (args.phase, &sources.infrastructure) {
        (RenderPhase::Bootstrap, Some(infrastructure)) => {
            let config = files.cloud_config(infrastructure)?;
            (&["bootstrap", "config"], render::bootstrap_files(plan.objects(), config)?)
        }
        _ => (&["manifests"], render::cluster_files(plan.objects())?),
    };
    match &args.dest_dir {
        Some(destination) => {
            for path in render::write(destination, folders, &files)? {
                writeln!(io::stderr(), "wrote {}", path.display())?;
            }
            Ok(())
        }
        None => io::stdout()
            .write_all(render::stream(plan.objects())?.as_bytes())
            .context("failed to write to standard output"),
    }
}

fn operator(args: OperatorArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_operator(args))
}

/// Runs everything that the operator is until a signal, or until one of its parts ends: then the process ends too.
async fn run_operator(args: OperatorArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = client(args.kubeconfig.as_deref()).await?;
    let health = Health::starting();
    let listener = server::bind(&args.health_addr)
        .await
        .with_context(|| format!("failed to listen on --health-addr {}", args.health_addr))?;

    let (leading, leadership) = watch::channel::<Leadership>(None);
    let (single_replica, topology) = watch::channel(None);
    let (stop, shutdown) = watch::channel(false);
    let settings = Settings {
        namespace: args.namespace,
        own_namespace: own_namespace(&args.leader_election),
        images_json: args.images_json,
        release_version: args.release_version.filter(|version| !version.is_empty()),
        tls_flags: TlsFlags { min_version: args.tls_min_version, cipher_suites: args.tls_cipher_suites },
    };
    let lease_namespace = settings.own_namespace.clone();
    let connections = Connections { leadership, single_replica, shutdown, health: health.clone() };
    let operator = Operator::new(client.clone(), embedded::catalog()?, settings, connections);

    let mut election = None;
    let lead = lead(client, &args.leader_election, &lease_namespace, leading, topology, &mut election);
    // Fused, because it is waited for once more after it may have ended.
    let mut operator = std::pin::pin!(operator.run().fuse());
    let ended = tokio::select! {
        () = &mut operator => Ok(()),
        lost = lead => Err(lost),
        served = server::serve(listener, health) => served.context("failed to serve the health endpoint"),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if ended.is_ok() {
        info!("stopping");
    }
    // A pass that has begun to write ends before somebody else may lead.
    stop.send_replace(true);
    let _ = tokio::time::timeout(REQUEST_TIMEOUT, operator).await;
    if let Some(election) = election {
        election.release().await;
    }
    ended
}

/// Leads, or waits to; ends only when the lease is lost.
async fn lead(
    client: Client,
    args: &LeaderElectionArgs,
    namespace: &str,
    leading: watch::Sender<Leadership>,
    mut topology: watch::Receiver<Option<bool>>,
    election: &mut Option<Election>,
) -> anyhow::Error {
    if !args.leader_elect {
        let always = std::time::Instant::now() + std::time::Duration::from_secs(u64::from(u32::MAX));
        leading.send_replace(Some(always));
        leading.closed().await;
        return std::future::pending().await;
    }
    let timings = match args.timings() {
        Some(timings) => timings,
        None => match topology.wait_for(Option::is_some).await.map(|single| *single) {
            Ok(Some(true)) => Timings::SINGLE_REPLICA,
            _ => Timings::HIGHLY_AVAILABLE,
        },
    };
    let election =
        election.insert(Election::new(client, namespace, &args.leader_elect_resource_name, timings, leading));
    election.run().await.into()
}

async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let read =
                Kubeconfig::read_from(path).with_context(|| format!("failed to read kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("failed to use kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context("failed to find a kubeconfig or the credentials of a Pod")?,
    };
    Client::try_from(config).context("failed to set up the Kubernetes client")
}

/// The namespace of the lease, which is the Pod's own.
fn own_namespace(args: &LeaderElectionArgs) -> String {
    let of_pod = || fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").ok();
    args.leader_elect_resource_namespace.clone().or_else(of_pod).unwrap_or_else(|| OPERATOR_NAMESPACE.to_owned())
}
