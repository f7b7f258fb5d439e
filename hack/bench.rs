//! `make bench`: measures the operator as users run it, on a real control plane, directly and with latency added to every
//! API call: one process with all controllers and its Leases, and an etcd that syncs to disk.
//!
//! It prints figures and passes no judgement. Progress goes to standard error. `OPERATOR` names another binary to
//! measure, for a comparison of two versions.
#![allow(unreachable_pub, reason = "a program: nothing in it can be reached")]

#[path = "bench/ccms.rs"]
mod ccms;
#[path = "bench/check.rs"]
mod check;
#[path = "bench/config.rs"]
mod config;
#[path = "bench/drift.rs"]
mod drift;
#[path = "large.rs"]
mod large;
#[path = "bench/measure.rs"]
mod measure;
#[path = "bench/nodes.rs"]
mod nodes;
#[path = "program.rs"]
mod program;
#[path = "bench/report.rs"]
mod report;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "table.rs"]
mod table;
#[path = "bench/unrelated.rs"]
mod unrelated;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use measure::{Access, Measured};
use report::{Machine, Report, Results};
use support::{
    control_plane::{ControlPlane, Options},
    lab::{Lab, binary, repository},
    openshift::Cluster,
};
use unrelated::Unrelated;

const LATENCY: Duration = Duration::from_millis(20);
/// How often everything is measured, unless a figure says otherwise.
const RUNS: usize = 20;

/// Measures the operator on a real control plane.
#[derive(Parser)]
struct Args {
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,

    /// The same as --output json.
    #[arg(long, env = "BENCH_JSON")]
    json: bool,

    /// For how many seconds the idle operator is measured.
    #[arg(long, env = "BENCH_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..))]
    idle_seconds: u32,

    /// Measures a few starts only, and prints the figures that are worse than those of a file by more than a tenth.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,

    /// Writes the figures to the file of --check.
    #[arg(long, requires = "check")]
    update: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

fn main() -> ExitCode {
    let args = Args::parse();
    program::run("bench", program::unless_interrupted(bench(args)))
}

async fn bench(args: Args) -> Result<()> {
    // Before the benchmark adds to the load.
    let machine = Machine::this();
    let binary_bytes = fs::metadata(binary()?)?.len();
    if let Some(file) = &args.check {
        return Ok(io::stdout().write_all(check::run(file, args.update, binary_bytes).await?.as_bytes())?);
    }
    let (render, direct, delayed) = with_rollouts_at_once(args.idle_seconds).await?;
    let (direct_rollouts, delayed_rollouts) = with_real_rollouts().await?;
    let unrelated = with_unrelated_objects().await?;
    let ccms = ccms::measure().await?;
    let nodes = nodes::measure(args.idle_seconds).await?;
    let large = config::large();
    let results = Results {
        binary_bytes,
        render,
        direct,
        delayed,
        direct_rollouts,
        delayed_rollouts,
        unrelated,
        ccms,
        nodes,
        large,
    };
    let report = Report::new(machine, &results);
    let text = if args.json || args.output == Output::Json { report.to_json()? } else { report.to_string() };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Most figures: on a control plane where workloads are rolled out at once, so that the figures are the operator's and not
/// the workload controllers'.
async fn with_rollouts_at_once(idle_seconds: u32) -> Result<(Vec<Duration>, Measured, Measured)> {
    progress("starting the control plane");
    let lab = lab(Options { is_durable: true, ..Options::default() }).await?;
    let render = render_times(&lab).await?;
    let direct = measure::all(&Access::direct(&lab), idle_seconds).await?;
    let delayed = measure::all(&Access::delayed(&lab, LATENCY).await?, idle_seconds).await?;
    Ok((render, direct, delayed))
}

/// Start to converged, with Pods that are created, scheduled and started.
async fn with_real_rollouts() -> Result<(Vec<Duration>, Vec<Duration>)> {
    progress("starting the control plane with real rollouts");
    let mut lab = lab(Options { controllers: true, is_durable: true, ..Options::default() }).await?;
    program::add_masters(&mut lab).await?;
    let direct = measure::cold_runs(&Access::direct(&lab)).await?.0;
    let delayed = measure::cold_runs(&Access::delayed(&lab, LATENCY).await?).await?.0;
    let times = |runs: Vec<measure::Convergence>| runs.iter().map(|run| run.time).collect();
    Ok((times(direct), times(delayed)))
}

/// A start beside ten thousand unrelated objects of each kind. It measures memory and requests, so etcd need not sync.
async fn with_unrelated_objects() -> Result<Unrelated> {
    let lab = lab(Options::default()).await?;
    unrelated::measure(&Access::direct(&lab), &lab).await
}

/// A cluster on AWS with the images of `manifests/`.
async fn lab(options: Options) -> Result<Lab> {
    let plane = ControlPlane::start(options).await?;
    let mut lab = Lab::on(plane.into(), &Cluster::default(), &repository().join("manifests")).await?;
    lab.write_images(&program::images()?)?;
    if !options.controllers {
        lab.finish_workloads();
    }
    Ok(lab)
}

async fn render_times(lab: &Lab) -> Result<Vec<Duration>> {
    progress("rendering");
    let mut command = program::render(lab, "bootstrap").await?;
    command.arg("--dest-dir").arg(lab.dir.path().join("rendered"));
    let mut run = || {
        let started = Instant::now();
        let output = command.output()?;
        let time = started.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ccm-operator render failed: {}", errors.trim_end());
        Ok(time)
    };
    (0..RUNS).map(|_| run()).collect()
}

fn progress(what: &str) {
    // Standard error may be closed: go on measuring.
    let _ = writeln!(io::stderr(), "bench: {what} ...");
}
