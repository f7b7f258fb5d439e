//! `make bench`: how fast the operator is and what it costs, measured in one run on a real control plane: once directly
//! and once with latency added to every API call.
//!
//! No pass or fail: it prints figures, beside those that were measured of the Go operator at another time. Progress goes
//! to standard error.
#![allow(unreachable_pub, reason = "a program: nothing in it can be reached")]

#[path = "../tests/support/cluster.rs"]
mod cluster;
#[path = "bench/config.rs"]
mod config;
#[path = "bench/drift.rs"]
mod drift;
#[path = "bench/measure.rs"]
mod measure;
#[path = "bench/report.rs"]
mod report;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/table.rs"]
mod table;
#[path = "bench/unrelated.rs"]
mod unrelated;

use std::{
    fs,
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use cluster::Lab;
use measure::{Access, Measured};
use report::{Machine, Report, Results};
use support::{
    control_plane::{ControlPlane, Options},
    kubelet,
};
use unrelated::Unrelated;

const LATENCY: Duration = Duration::from_millis(20);
const RENDER_RUNS: usize = 20;

/// Measures the operator on a real control plane.
#[derive(Parser)]
struct Args {
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,

    /// The same as --output json.
    #[arg(long, env = "BENCH_JSON")]
    json: bool,

    /// For how many seconds the idle operator is observed.
    #[arg(long, env = "BENCH_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..))]
    idle_seconds: u32,

    /// What cargo adds for every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
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
    cluster::run("bench", cluster::unless_interrupted(bench(args)))
}

async fn bench(args: Args) -> Result<()> {
    // Before anything of ours adds to the load.
    let machine = Machine::this();
    let binary_bytes = fs::metadata(cluster::binary()?)?.len();
    let (render, direct, delayed) = with_rollouts_at_once(args.idle_seconds).await?;
    let (direct_rollouts, delayed_rollouts) = with_real_rollouts().await?;
    let unrelated = with_unrelated_objects().await?;
    let results = Results { binary_bytes, render, direct, delayed, direct_rollouts, delayed_rollouts, unrelated };
    let report = Report::new(machine, &results);
    let text = if args.json || args.output == Output::Json { report.to_json()? } else { report.to_string() };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Nearly everything: on a control plane where whatever is applied counts as rolled out at once, so that the operator is
/// measured and not the workload controllers.
async fn with_rollouts_at_once(idle_seconds: u32) -> Result<(Vec<Duration>, Measured, Measured)> {
    progress("starting the control plane");
    let mut lab = Lab::new(ControlPlane::start(Options::default()).await?).await?;
    lab.install().await?;
    lab.stand_in(kubelet::finish_workloads(lab.client().clone()));
    let render = render_times(&lab)?;
    let direct = measure::all(&Access::direct(&lab).await?, idle_seconds).await?;
    let delayed = measure::all(&Access::delayed(&lab, LATENCY).await?, idle_seconds).await?;
    Ok((render, direct, delayed))
}

/// Start to converged once more, with Pods that are made, scheduled and started.
async fn with_real_rollouts() -> Result<(Vec<Duration>, Vec<Duration>)> {
    progress("starting the control plane with real rollouts");
    let plane = ControlPlane::start(Options { controllers: true, scheduler: true }).await?;
    let mut lab = Lab::new(plane).await?;
    lab.install().await?;
    cluster::add_masters(lab.client()).await?;
    cluster::controllers_work(lab.client()).await?;
    lab.stand_in(kubelet::run(lab.client().clone()));
    let direct = measure::cold_runs(&Access::direct(&lab).await?).await?.0;
    let delayed = measure::cold_runs(&Access::delayed(&lab, LATENCY).await?).await?.0;
    let times = |runs: Vec<measure::Convergence>| runs.iter().map(|run| run.time).collect();
    Ok((times(direct), times(delayed)))
}

/// A start beside ten thousand objects of each kind that have nothing to do with the operator.
async fn with_unrelated_objects() -> Result<Unrelated> {
    let mut lab = Lab::new(ControlPlane::start(Options::default()).await?).await?;
    lab.install().await?;
    lab.stand_in(kubelet::finish_workloads(lab.client().clone()));
    unrelated::measure(&Access::direct(&lab).await?, &lab).await
}

fn render_times(lab: &Lab) -> Result<Vec<Duration>> {
    progress("rendering");
    let folder = lab.plane().dir().join("rendered");
    let run = || {
        let mut command = lab.render();
        command.arg("--dest-dir").arg(&folder);
        let started = Instant::now();
        let output = command.output()?;
        let time = started.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ccm-operator render failed: {}", errors.trim_end());
        Ok(time)
    };
    (0..RENDER_RUNS).map(|_| run()).collect()
}

fn progress(what: &str) {
    // Nobody may be listening: no reason to stop measuring.
    let _ = writeln!(io::stderr(), "bench: {what} ...");
}
