//! Prints the measurements: tables for people, JSON for programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    fs,
    time::Duration,
};

use anyhow::Result;
use serde::Serialize;

use crate::{
    ccms::{Ccms, Run},
    config::ConfigSync,
    drift::Repair,
    measure::{Convergence, Idle, Measured},
    nodes::{self, Nodes},
    support::audit::Request,
    table::{Column, Table},
    unrelated::Unrelated,
};

/// The measurements.
pub struct Results {
    pub binary_bytes: u64,
    pub render: Vec<Duration>,
    pub direct: Measured,
    pub delayed: Measured,
    pub direct_rollouts: Vec<Duration>,
    pub delayed_rollouts: Vec<Duration>,
    pub unrelated: Unrelated,
    /// With several `CloudControllerManager`s.
    pub ccms: Vec<Ccms>,
    /// With thousands of nodes.
    pub nodes: Nodes,
    /// Processor time for each kind of a large configuration, in seconds.
    pub large: Vec<f64>,
}

/// The output.
#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    notes: Vec<String>,
    figures: Vec<Figure>,
    drift: Vec<DriftFigures>,
}

/// The machine of the measurement.
#[derive(Serialize)]
pub struct Machine {
    cores: usize,
    cpu: String,
    load_average: String,
}

#[derive(Serialize)]
struct Figure {
    name: String,
    unit: Unit,
    direct: Summary,
    /// Absent where no API call is involved.
    delayed: Option<Summary>,
    /// The Go operator's, in words.
    upstream: &'static str,
}

#[derive(Serialize)]
struct DriftFigures {
    drift: String,
    direct: Repairs,
    delayed: Repairs,
}

#[derive(Serialize)]
struct Repairs {
    milliseconds: Summary,
    object_writes: Summary,
    status_writes: Summary,
}

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, Serialize)]
struct Summary {
    median: f64,
    min: f64,
    max: f64,
    samples: usize,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Seconds,
    Milliseconds,
    Count,
    Mebibytes,
    Megabytes,
}

impl Machine {
    /// The machine that this runs on.
    pub fn this() -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            cpu: model.map_or("unknown CPU", |(_, model)| model).trim().to_owned(),
            load_average: load.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

impl Report {
    /// A report of the results.
    pub fn new(machine: Machine, results: &Results) -> Self {
        let idle_seconds = results.direct.idle.seconds;
        let notes = [
            "direct, +20 ms: medians of 20 measurements, with their range in brackets unless all are equal; idle, second \
             run and the last 6 figures are measured once. 20 ms are added to every API call of the operator and to \
             each round trip of its TLS handshakes.",
            "one process with all controllers and its leases; etcd syncs every write to disk, except for the figures \
             about unrelated objects.",
            "upstream: figures given for the Go operator on the same kind of machine and control plane, AWS, highly \
             available; not measured in this run.",
            "converged: Available, not Progressing, not Degraded, for 1 s; timed from the start of the process to the \
             moment when a watch of the benchmark, not delayed, shows that status. Requests, processor time and memory \
             are taken at the end of that second.",
            "a stand-in finishes rollouts at once, unless a figure says otherwise. Writes of leases and events, and \
             refused ones, do not count as writes.",
        ];
        let mut notes: Vec<String> = notes.map(ToOwned::to_owned).into();
        notes.push(format!("idle: measured for {idle_seconds} s, given per minute."));
        let drift = results.direct.repairs.iter().zip(&results.delayed.repairs);
        let drift = drift
            .map(|((drift, direct), (_, delayed))| DriftFigures {
                drift: drift.to_string(),
                direct: Repairs::of(direct),
                delayed: Repairs::of(delayed),
            })
            .collect();
        Self { machine, notes, figures: figures(results), drift }
    }

    /// The report for programs.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

fn figures(results: &Results) -> Vec<Figure> {
    let both = |name: &str, unit: Unit, upstream: &'static str, summary: &dyn Fn(&Measured) -> Summary| Figure {
        name: name.to_owned(),
        unit,
        direct: summary(&results.direct),
        delayed: Some(summary(&results.delayed)),
        upstream,
    };
    let cold = |value: fn(&Convergence) -> f64| move |measured: &Measured| Summary::of(measured.cold.iter().map(value));
    let requests = |is_counted: &dyn Fn(&Request) -> bool, measured: &Measured| {
        Summary::of(measured.cold.iter().map(|run| count(&run.requests, is_counted)))
    };
    let repairs = |measured: &Measured, value: fn(&Repair) -> f64| {
        Summary::of(measured.repairs.iter().flat_map(|(_, repairs)| repairs).map(value))
    };

    let mut figures = vec![
        both("start to converged, cold", Unit::Seconds, "1.30 s", &cold(|run| run.time.as_secs_f64())),
        both("take-over, start to converged", Unit::Seconds, "", &|measured| {
            Summary::of(measured.take_over.iter().map(|run| run.time.as_secs_f64()))
        }),
        both("take-over, writes", Unit::Count, "", &|measured| {
            Summary::of(measured.take_over.iter().map(|run| count(&run.requests, Request::counts_as_write)))
        }),
        Figure {
            name: "start to converged, real rollout".to_owned(),
            unit: Unit::Seconds,
            direct: Summary::of(results.direct_rollouts.iter().map(Duration::as_secs_f64)),
            delayed: Some(Summary::of(results.delayed_rollouts.iter().map(Duration::as_secs_f64))),
            upstream: "",
        },
        both("requests until converged", Unit::Count, "76", &|measured| requests(&|_| true, measured)),
    ];
    for verb in verbs(&results.direct) {
        let name = format!("requests until converged, {verb}");
        figures.push(both(&name, Unit::Count, "", &|measured| requests(&|request| request.verb == verb, measured)));
    }
    figures.extend([
        both("writes until converged", Unit::Count, "36", &|measured| requests(&Request::counts_as_write, measured)),
        both("processor time until converged", Unit::Seconds, "0.33 s", &cold(|run| run.cpu_seconds)),
        both(
            "resident memory, converged",
            Unit::Mebibytes,
            "122 MiB, 2 processes",
            &cold(|run| mebibytes(run.rss_kib)),
        ),
        both("anonymous memory, converged", Unit::Mebibytes, "", &cold(|run| mebibytes(run.anonymous_kib))),
        Figure {
            name: "TLS connections until converged".to_owned(),
            unit: Unit::Count,
            direct: Summary::of(results.delayed.cold.iter().filter_map(|run| run.connections).map(number)),
            delayed: None,
            upstream: "",
        },
        both("drift repaired, all kinds", Unit::Milliseconds, "13 to 50 ms", &|measured| {
            repairs(measured, |repair| milliseconds(repair.time))
        }),
        both("writes per repair, all kinds", Unit::Count, "5 to 17", &|measured| {
            repairs(measured, |repair| number(repair.object_writes + repair.status_writes))
        }),
        both("images file changed to applied", Unit::Milliseconds, "next event or 10 min", &|measured| {
            Summary::of(measured.image_changes.iter().copied().map(milliseconds))
        }),
        both("SIGKILL to next repair", Unit::Seconds, "156 s", &|measured| {
            Summary::of(measured.recoveries.iter().map(Duration::as_secs_f64))
        }),
        both("idle requests per minute", Unit::Count, "", &|Measured { idle, .. }| {
            Summary::of([per_minute(number(idle.requests.len()), idle)])
        }),
        both("idle requests, lease left out", Unit::Count, "", &|Measured { idle, .. }| {
            Summary::of([per_minute(count(&idle.requests, |request| !request.is_lease()), idle)])
        }),
        both("idle processor time per minute", Unit::Seconds, "", &|Measured { idle, .. }| {
            Summary::of([per_minute(idle.cpu_seconds, idle)])
        }),
        both("second run, requests", Unit::Count, "", &|measured| Summary::of([number(measured.second_run.len())])),
        both("second run, writes", Unit::Count, "", &|measured| {
            Summary::of([count(&measured.second_run, Request::counts_as_write)])
        }),
        Figure {
            name: "render, as a process".to_owned(),
            unit: Unit::Milliseconds,
            direct: Summary::of(results.render.iter().copied().map(milliseconds)),
            delayed: None,
            upstream: "",
        },
        Figure {
            name: "stripped binary".to_owned(),
            unit: Unit::Megabytes,
            direct: Summary::of([megabytes(results.binary_bytes)]),
            delayed: None,
            upstream: "116 MB, 2 binaries",
        },
    ]);
    figures.extend(of_config_sync(results));
    figures.extend(beside_unrelated(results));
    figures.extend(results.ccms.iter().flat_map(of_ccms));
    figures.extend(of_nodes(&results.nodes));
    figures
}

fn of_nodes(nodes: &Nodes) -> Vec<Figure> {
    let count = nodes::COUNT;
    let figure = |name: &str, unit: Unit, value: f64| Figure {
        name: format!("{count} nodes: {name}"),
        unit,
        direct: Summary::of([value]),
        delayed: None,
        upstream: "",
    };
    let kib_a_node = number(usize::try_from(nodes.rss_with_kib.saturating_sub(nodes.rss_without_kib)).unwrap_or(0));
    vec![
        figure("memory without them", Unit::Mebibytes, mebibytes(nodes.rss_without_kib)),
        figure("memory", Unit::Mebibytes, mebibytes(nodes.rss_with_kib)),
        figure("memory a node, KiB", Unit::Count, kib_a_node / number(count)),
        figure("processor time of the start", Unit::Seconds, nodes.start_cpu_seconds),
        figure("idle processor time per minute", Unit::Seconds, nodes.idle_cpu_seconds),
        figure("idle requests per minute, lease left out", Unit::Count, nodes.idle_requests),
        figure("memory after the heartbeats", Unit::Mebibytes, mebibytes(nodes.rss_idle_kib)),
        figure("`nodes`, of which 100 wait", Unit::Seconds, nodes.diagnosis.as_secs_f64()),
        figure("memory of `nodes`", Unit::Mebibytes, mebibytes(nodes.diagnosis_rss_kib)),
        figure("memory after the operator's diagnosis", Unit::Mebibytes, mebibytes(nodes.rss_diagnosed_kib)),
    ]
}

fn of_ccms(Ccms { name: of, runs }: &Ccms) -> Vec<Figure> {
    let figure = |name: &str, unit: Unit, value: &dyn Fn(&Run) -> f64| Figure {
        name: format!("{of}: {name}"),
        unit,
        direct: Summary::of(runs.iter().map(value)),
        delayed: None,
        upstream: "",
    };
    vec![
        figure("start to ready", Unit::Seconds, &|run| run.first.time.as_secs_f64()),
        figure("requests", Unit::Count, &|run| count(&run.first.requests, |_| true)),
        figure("writes", Unit::Count, &|run| count(&run.first.requests, Request::counts_as_write)),
        figure("processor time", Unit::Seconds, &|run| run.first.cpu_seconds),
        figure("memory", Unit::Mebibytes, &|run| mebibytes(run.first.rss_kib)),
        figure("requests, second start", Unit::Count, &|run| count(&run.second, |_| true)),
        figure("writes, second start", Unit::Count, &|run| count(&run.second, Request::counts_as_write)),
    ]
}

fn of_config_sync(results: &Results) -> Vec<Figure> {
    let both = |name: &str, unit: Unit, summary: &dyn Fn(&ConfigSync) -> Summary| Figure {
        name: name.to_owned(),
        unit,
        direct: summary(&results.direct.config_sync),
        delayed: Some(summary(&results.delayed.config_sync)),
        upstream: "",
    };
    vec![
        both("source changed to cloud-conf", Unit::Milliseconds, &|measured| {
            Summary::of(measured.times.iter().copied().map(milliseconds))
        }),
        both("writes of cloud-conf for a change", Unit::Count, &|measured| Summary::of([measured.writes])),
        both("memory after 100 changes", Unit::Mebibytes, &|measured| Summary::of([mebibytes(measured.warm_rss_kib)])),
        both("memory after 1000 changes", Unit::Mebibytes, &|measured| Summary::of([mebibytes(measured.rss_kib)])),
        both("processor time, 1 MiB of certificates", Unit::Seconds, &|measured| {
            Summary::of(measured.bundle_cpu.iter().copied())
        }),
        Figure {
            name: "processor time, 1 MiB of configuration".to_owned(),
            unit: Unit::Seconds,
            direct: Summary::of(results.large.iter().copied()),
            delayed: None,
            upstream: "",
        },
    ]
}

fn beside_unrelated(results: &Results) -> Vec<Figure> {
    let figure =
        |name: String, unit, value| Figure { name, unit, direct: Summary::of([value]), delayed: None, upstream: "" };
    let runs = [("alone", &results.unrelated.without), ("beside 10,000 of each kind", &results.unrelated.with)];
    let figures = runs.map(|(what, run)| {
        [
            figure(format!("memory, {what}"), Unit::Mebibytes, mebibytes(run.rss_kib)),
            figure(format!("requests, {what}"), Unit::Count, number(run.requests.len())),
        ]
    });
    figures.into_iter().flatten().collect()
}

fn verbs(measured: &Measured) -> BTreeSet<&str> {
    measured.cold.iter().flat_map(|run| &run.requests).map(|request| request.verb.as_str()).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, cpu, load_average } = &self.machine;
        writeln!(formatter, "{cores} cores, {cpu}, load average at the start {load_average}\n")?;
        let mut table = Table::new([
            Column::new("FIGURE"),
            Column::right_aligned("DIRECT"),
            Column::right_aligned("+20 MS"),
            Column::right_aligned("UPSTREAM (GIVEN)"),
        ]);
        for Figure { name, unit, direct, delayed, upstream } in &self.figures {
            let delayed = delayed.map(|summary| summary.show(*unit)).unwrap_or_default();
            table.row([name.clone(), direct.show(*unit), delayed, (*upstream).to_owned()]);
        }
        writeln!(formatter, "{table}")?;

        let mut table = Table::new([
            Column::new("DRIFT"),
            Column::right_aligned("REPAIRED"),
            Column::right_aligned("WRITES"),
            Column::right_aligned("STATUS"),
            Column::right_aligned("REPAIRED, +20 MS"),
            Column::right_aligned("WRITES"),
            Column::right_aligned("STATUS"),
        ]);
        for DriftFigures { drift, direct, delayed } in &self.drift {
            let [time, writes, status] = direct.show();
            let [late, late_writes, late_status] = delayed.show();
            table.row([drift.clone(), time, writes, status, late, late_writes, late_status]);
        }
        writeln!(formatter, "{table}")?;
        for note in &self.notes {
            for (number, line) in crate::table::wrap(note, 98).iter().enumerate() {
                writeln!(formatter, "{}{line}", if number == 0 { "" } else { "  " })?;
            }
        }
        Ok(())
    }
}

impl Repairs {
    fn of(repairs: &[Repair]) -> Self {
        let summary = |value: fn(&Repair) -> f64| Summary::of(repairs.iter().map(value));
        Self {
            milliseconds: summary(|repair| milliseconds(repair.time)),
            object_writes: summary(|repair| number(repair.object_writes)),
            status_writes: summary(|repair| number(repair.status_writes)),
        }
    }

    fn show(&self) -> [String; 3] {
        [
            self.milliseconds.show(Unit::Milliseconds),
            self.object_writes.show(Unit::Count),
            self.status_writes.show(Unit::Count),
        ]
    }
}

impl Summary {
    fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let last = samples.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            min: at(0),
            max: at(last),
            samples: samples.len(),
        }
    }

    /// `0.184 s (0.170–0.201)`
    fn show(&self, unit: Unit) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|value| unit.digits(value));
        let mut text = format!("{median}{}", unit.suffix());
        if min != max {
            let _ = write!(text, " ({min}–{max})");
        }
        text
    }
}

impl Unit {
    fn digits(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.3}"),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Milliseconds | Self::Mebibytes | Self::Megabytes | Self::Count => format!("{value:.1}"),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Seconds => " s",
            Self::Milliseconds => " ms",
            Self::Count => "",
            Self::Mebibytes => " MiB",
            Self::Megabytes => " MB",
        }
    }
}

/// The figures of the comparison with an earlier build, by name.
pub fn compared(binary_bytes: u64, runs: &[Convergence]) -> BTreeMap<String, f64> {
    let median = |value: fn(&Convergence) -> f64| Summary::of(runs.iter().map(value)).median;
    let figures = [
        ("binary, MB", megabytes(binary_bytes)),
        ("requests until converged", median(|run| number(run.requests.len()))),
        ("writes until converged", median(|run| count(&run.requests, Request::counts_as_write))),
        ("processor time until converged, s", median(|run| run.cpu_seconds)),
        ("anonymous memory, converged, MiB", median(|run| mebibytes(run.anonymous_kib))),
    ];
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}

fn count(requests: &[Request], is_counted: impl Fn(&Request) -> bool) -> f64 {
    number(requests.iter().filter(|request| is_counted(request)).count())
}

fn per_minute(value: f64, idle: &Idle) -> f64 {
    value * 60.0 / f64::from(idle.seconds)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

fn megabytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1e6
}
