//! The binary `ccm-operator`: from the command line to the library, and from its errors to an exit code.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage. `diff` and `status` answer by 0 or 1,
//! and fail with 2.

#![forbid(unsafe_code)]

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use ccm_operator::{
    apply::{self, REQUEST_TIMEOUT},
    bundle::folder,
    chain,
    cli::{
        Cli, ClusterArgs, Command, DiffArgs, DiffFormat, ImageReferencesArgs, ListArgs, OperatorArgs, OutputFormat,
        ProviderCommand, RenderArgs, RenderPhase, ShowArgs, StatusArgs, VerifyArgs, VerifyFormat,
    },
    client,
    cluster::{Place, Reader},
    controllers::{
        dry_run::DryRun,
        operator::{Connections, Operator, Settings},
    },
    diff, embedded,
    facts::{files::Files, tls::TlsFlags},
    inspect,
    lease::{Election, Leadership, Timings},
    output, payload,
    plan::{Phase, Plan},
    render,
    report::{self, Report},
    server::{self, Health},
    telemetry, verify,
};
use clap::{CommandFactory, Parser, error::ErrorKind};
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// The file of the install payload that is no manifest of the cluster's.
const IMAGE_REFERENCES: &str = "image-references";

/// Where the operator runs when it is not in a Pod.
const OPERATOR_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";

/// How often `status --watch` looks.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// Empties a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

fn main() -> ExitCode {
    let cli = Cli::parse();
    telemetry::init(cli.log_format, cli.v);
    let done = match cli.command {
        Command::Operator(args) => operator(args),
        Command::Diff(args) => return answered(diff(&args)),
        Command::Status(args) => return answered(status(&args)),
        Command::Render(args) if args.phase == RenderPhase::Install => render_install(&args),
        Command::Render(args) => render(&args),
        Command::ImageReferences(args) => image_references(&args),
        Command::Provider(ProviderCommand::Verify(args)) => return ended(verify(&args)),
        Command::Provider(ProviderCommand::List(args)) => list(&args),
        Command::Provider(ProviderCommand::Show(args)) => show(&args),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

/// The exit code, after saying what went wrong.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            say(&format!("ccm-operator: {}", chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a command that answers by it.
fn answered(answer: anyhow::Result<bool>) -> ExitCode {
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("ccm-operator: {}", chain(error.as_ref())));
            ExitCode::from(2)
        }
    }
}

/// Ends with exit code 2.
fn wrong_usage(message: &str) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, message).exit()
}

/// Says something to the person who runs a command. What was done is done also if nobody listens.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints what was asked for.
fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let summaries: Vec<_> =
        embedded::bundles().iter().map(|bundle| inspect::summary(bundle, embedded::VERSION)).collect();
    print(&match args.output {
        OutputFormat::Table => inspect::list_table(&summaries),
        OutputFormat::Json => output::json(&summaries)?,
        OutputFormat::Yaml => output::yaml(&summaries)?,
    })
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let bundles = embedded::bundles();
    let bundle = bundles.iter().find(|bundle| bundle.name == args.name);
    let bundle = bundle.unwrap_or_else(|| wrong_usage(&inspect::unknown(&args.name, &bundles)));
    let details = inspect::details(bundle, embedded::VERSION, args.phase.into());
    print(&match args.output {
        OutputFormat::Table => inspect::details_table(&details),
        OutputFormat::Json => output::json(&details)?,
        OutputFormat::Yaml => output::yaml(&details)?,
    })
}

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let mut bundles = embedded::bundles();
    let mut payload = Some(embedded::payload());
    if let Some(target) = &args.target {
        if bundles.iter().any(|bundle| bundle.name == *target) {
            bundles.retain(|bundle| bundle.name == *target);
        } else if Path::new(target).is_dir() {
            (bundles, payload) = match folder::read(Path::new(target)) {
                Err(error @ folder::Error::NoProviders(_)) => wrong_usage(&error.to_string()),
                read => read?,
            };
        } else {
            wrong_usage(&format!("{}; nor is it a folder", inspect::unknown(target, &bundles)));
        }
    }
    let mut report = verify::verify(&bundles, payload.as_ref());
    if args.cluster {
        let refusals = runtime()?.block_on(async {
            let client = client::connect(args.kubeconfig.as_deref(), None).await?;
            anyhow::Ok(verify::cluster::dry_run(&client, &bundles).await?)
        })?;
        report = report.with_refusals(refusals);
    }
    print(&match args.output {
        VerifyFormat::Table => report.table(),
        VerifyFormat::Json => output::json(&report)?,
        VerifyFormat::Junit => output::junit(&report.suites()),
    })?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(args: &RenderArgs) -> anyhow::Result<()> {
    if args.output.is_some() && args.phase == RenderPhase::Bootstrap {
        wrong_usage("--output needs --phase cluster or install: the bootstrap phase writes more than manifests");
    }
    let (Some(infrastructure), Some(images)) = (&args.cluster_infrastructure_file, &args.images_file) else {
        wrong_usage("give --cluster-infrastructure-file and --images-file")
    };
    let files = Files {
        infrastructure: infrastructure.clone(),
        images: images.clone(),
        cloud_config: args.cloud_config_file.clone(),
    };
    let sources = files.sources(&args.namespace)?;
    let phase = if args.phase == RenderPhase::Cluster { Phase::Cluster } else { Phase::Bootstrap };
    let plan = Plan::new(&embedded::catalog()?, &sources, phase)?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
    }
    if let (Phase::Bootstrap, Some(infrastructure)) = (phase, &sources.infrastructure) {
        let config = files.cloud_config(infrastructure)?;
        let files = render::bootstrap_files(plan.objects(), config)?;
        return deliver(args, &["bootstrap", "config"], &files, String::new);
    }
    let stream = render::stream(plan.objects())?;
    deliver(args, &["manifests"], &render::cluster_files(plan.objects())?, || stream)
}

fn render_install(args: &RenderArgs) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (name, bytes) in embedded::manifests() {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        // The image stream is for release tooling, and knows no namespace.
        let text =
            if name == IMAGE_REFERENCES { text.to_owned() } else { payload::for_namespace(text, &args.namespace)? };
        files.push((PathBuf::from("manifests").join(name), text));
    }
    let stream = || {
        let manifests = files.iter().filter(|(name, _)| !name.ends_with(IMAGE_REFERENCES));
        let documents =
            manifests.map(|(_, text)| if text.starts_with("---") { text.clone() } else { format!("---\n{text}") });
        documents.collect::<String>()
    };
    deliver(args, &["manifests"], &files, stream)
}

/// Writes files below the destination, or the stream to standard output.
fn deliver(
    args: &RenderArgs,
    folders: &[&str],
    files: &[(PathBuf, String)],
    stream: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match &args.dest_dir {
        Some(destination) => {
            for path in render::write(destination, folders, files)? {
                say(&format!("wrote {}", path.display()));
            }
            Ok(())
        }
        None => print(&stream()),
    }
}

fn image_references(args: &ImageReferencesArgs) -> anyhow::Result<()> {
    let catalog = embedded::catalog()?;
    if !args.config_map {
        return print(&payload::image_references(&catalog));
    }
    let manifests = embedded::manifests();
    let mut texts = manifests.iter().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
    let config_map = texts.find_map(|text| payload::images_config_map(text, &catalog));
    print(&config_map.context("failed to find the images ConfigMap among the embedded manifests")?)
}

/// A reader of the cluster that a command looks at.
async fn reader(args: &ClusterArgs) -> anyhow::Result<Reader> {
    let client = client::connect(args.kubeconfig.as_deref(), None).await?;
    Ok(Reader::new(client, Place { namespace: args.namespace.clone(), own_namespace: own_namespace() }))
}

/// Whether nothing would change.
fn diff(args: &DiffArgs) -> anyhow::Result<bool> {
    let changes = runtime()?.block_on(async {
        let reader = reader(&args.cluster).await?;
        let sources = reader.sources(args.cluster.images_json.as_deref()).await?;
        let plan = Plan::new(&embedded::catalog()?, &sources, Phase::Cluster)?;
        if let Plan::Nothing { why } = &plan {
            say(&format!("nothing is to be applied: {why}"));
        }
        let plan = plan.labelled(&apply::set_id(&reader.place().own_namespace));
        anyhow::Ok(diff::cluster::changes(&reader, plan.objects()).await?)
    })?;
    match args.output {
        DiffFormat::Json => print(&output::json(&changes)?)?,
        DiffFormat::Diff => {
            let colors = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            print(&diff::unified(&changes, colors))?;
            say(&diff::summary(&changes));
        }
    }
    let refused = changes.iter().filter(|change| change.action == diff::Action::Refuse).count();
    anyhow::ensure!(refused == 0, "the API server refuses {refused} of the objects");
    Ok(!changes.iter().any(diff::Change::is_difference))
}

/// Whether the cluster's cloud-controller-manager is well.
fn status(args: &StatusArgs) -> anyhow::Result<bool> {
    let catalog = embedded::catalog()?;
    runtime()?.block_on(async {
        let reader = reader(&args.cluster).await?;
        let clears = args.watch && args.output == OutputFormat::Table && io::stdout().is_terminal();
        let mut shown = None;
        loop {
            let findings = report::read::findings(&reader, &catalog, args.cluster.images_json.as_deref()).await;
            let report = match findings {
                Ok(findings) => Report::new(&findings, &args.cluster.namespace),
                // Who watches waits for the API server to come back.
                Err(error) if args.watch && shown.is_some() => {
                    say(&chain(&error));
                    tokio::time::sleep(WATCH_PERIOD).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // Ages grow on a terminal; elsewhere only what has changed is news.
            if clears || shown.as_ref() != Some(&report) {
                let text = match args.output {
                    OutputFormat::Table => report::text::screen(&report, Timestamp::now()),
                    OutputFormat::Json => output::json(&report)?,
                    OutputFormat::Yaml => output::yaml(&report)?,
                };
                print(&if clears { format!("{CLEAR}{text}") } else { text })?;
            }
            if !args.watch {
                return Ok(report.healthy);
            }
            shown = Some(report);
            tokio::time::sleep(WATCH_PERIOD).await;
        }
    })
}

fn operator(args: OperatorArgs) -> anyhow::Result<()> {
    let timings = args.leader_election.timings().unwrap_or_else(|problem| wrong_usage(problem));
    runtime()?.block_on(run_operator(args, timings))
}

/// One thread is enough: what is done between two requests takes microseconds.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs everything that the operator is until a signal, or until one of its parts ends: then the process ends too.
async fn run_operator(args: OperatorArgs, timings: Option<Timings>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = client::connect(args.kubeconfig.as_deref(), args.api_server_env_file.as_deref()).await?;
    let health = Health::starting();
    let listener = server::bind(&args.health_addr)
        .await
        .with_context(|| format!("failed to listen on --health-addr {}", args.health_addr))?;

    let (leading, leadership) = watch::channel(Leadership::Waiting(None));
    let (single_replica, topology) = watch::channel(None);
    let (stop, shutdown) = watch::channel(false);
    let settings = Settings {
        namespace: args.namespace,
        own_namespace: own_namespace(),
        images_json: args.images_json,
        release_version: args.release_version.filter(|version| !version.is_empty()),
        tls_flags: TlsFlags { min_version: args.tls_min_version, cipher_suites: args.tls_cipher_suites },
    };
    if args.dry_run {
        let dry_run = DryRun::new(client, embedded::catalog()?, settings, health.clone());
        return tokio::select! {
            () = dry_run.run() => Ok(()),
            served = server::serve(listener, health) => served.context("failed to serve the health endpoint"),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
    }
    let lease = &args.leader_election;
    let lease_namespace =
        lease.leader_elect_resource_namespace.clone().unwrap_or_else(|| settings.own_namespace.clone());
    let connections = Connections { leadership, single_replica, shutdown, health: health.clone() };
    let operator = Operator::new(client.clone(), embedded::catalog()?, settings, connections);

    let mut election = None;
    let lead = async {
        if !lease.leader_elect {
            leading.send_replace(Leadership::Leading(Instant::now() + Duration::from_secs(u64::from(u32::MAX))));
            return std::future::pending().await;
        }
        let timings = timings_of(timings, topology).await;
        let name = &lease.leader_elect_resource_name;
        election.insert(Election::new(client, &lease_namespace, name, timings, leading.clone())).run().await
    };
    // Fused, because it is waited for once more after it may have ended.
    let mut operator = std::pin::pin!(operator.run().fuse());
    let ended = tokio::select! {
        () = &mut operator => Ok(()),
        lost = lead => Err(lost.into()),
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

/// The namespace of the Pod.
fn own_namespace() -> String {
    fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        .unwrap_or_else(|_| OPERATOR_NAMESPACE.to_owned())
}
