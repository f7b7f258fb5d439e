//! `make soak`: whether a long life costs memory, file descriptors or watches. One process of the operator on a real
//! control plane sees its inputs change for ten thousand passes, and then an hour of faults of its API server.
//!
//! It prints figures and passes no judgement, but fails if the operator ends, or does not recover from the last fault.
#![allow(unreachable_pub, reason = "a program: nothing in it can be reached")]

#[path = "program.rs"]
mod program;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "table.rs"]
mod table;

use std::{
    fs,
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use support::{
    faults::{Fault, Faults, Rule, Seen},
    lab::{Lab, NAMESPACE, POD_UID, config_maps},
    openshift::{self, Cluster},
    operator::Operator,
    scrape,
};
use table::{Column, Table};

/// A row for each of so many parts of the passes.
const ROWS: usize = 10;

/// How long a fault lasts, and how long the operator then has.
const FAULT: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_secs(40);

/// Lets one process of the operator live long, on a real control plane.
#[derive(Parser)]
struct Args {
    /// For how many passes the inputs change, before the faults.
    #[arg(long, env = "PASSES", default_value_t = 10_000)]
    passes: usize,

    /// For how many minutes there are faults.
    #[arg(long, env = "MINUTES", default_value_t = 60)]
    minutes: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    program::run("soak", program::unless_interrupted(soak(args)))
}

/// The operator with what it is given and what it shows.
struct Subject {
    lab: Lab,
    faults: Faults,
    operator: Operator,
    port: u16,
    changes: usize,
}

/// What the process says of itself, and what the system says of it.
struct Sample {
    passes: usize,
    watches: usize,
    errors: usize,
    rss_kib: u64,
    descriptors: usize,
}

async fn soak(args: Args) -> Result<()> {
    let mut lab = Lab::new(&Cluster::default()).await?;
    lab.write_images(&program::images()?)?;
    lab.finish_workloads();
    let faults = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let port = scrape::free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    let operator = lab.start_with(faults.kubeconfig(), POD_UID, &[&address])?;
    lab.converged(&operator).await?;
    let mut subject = Subject { lab, faults, operator, port, changes: 0 };
    subject.change(args.passes).await?;
    subject.disturb(args.minutes).await?;
    subject.lab.converged(&subject.operator).await.context("the operator has not recovered")?;
    Ok(())
}

impl Subject {
    async fn sample(&self) -> Result<Sample> {
        let (_, text) = scrape::scrape(&self.lab, self.port).await?;
        let sum = |start: &str| -> usize {
            let values = text.lines().filter(|line| line.starts_with(start)).filter_map(|line| line.rsplit(' ').next());
            values.filter_map(|value| value.parse::<usize>().ok()).sum()
        };
        Ok(Sample {
            passes: sum("ccm_operator_reconcile_total "),
            watches: sum("ccm_operator_api_requests_total{verb=\"watch\""),
            errors: sum("ccm_operator_errors_total{"),
            rss_kib: self.operator.rss_kib(),
            descriptors: fs::read_dir(format!("/proc/{}/fd", self.operator.pid()))?.count(),
        })
    }

    /// Changes one input: the images, the proxy, or the source of the cloud's configuration.
    async fn change_input(&mut self) -> Result<()> {
        self.changes += 1;
        let number = self.changes;
        match number % 3 {
            0 => {
                let image = format!("registry.example/aws-cloud-controller-manager:soak-{number}");
                self.lab.write_images(&json!({"cloudControllerManagerAWS": image}).to_string())
            }
            1 => {
                openshift::set_proxy_status(
                    &self.lab.client,
                    json!({"httpProxy": format!("http://soak-{number}:3128")}),
                )
                .await
            }
            _ => {
                let text = format!("[Global]\nZone = soak-{number}\n");
                let patch = Patch::Merge(json!({"data": {"cloud.conf": text}}));
                let source = config_maps(&self.lab.client, "openshift-config-managed");
                Ok(source.patch("kube-cloud-config", &PatchParams::default(), &patch).await.map(drop)?)
            }
        }
    }

    /// Changes inputs until there were so many passes.
    async fn change(&mut self, passes: usize) -> Result<()> {
        let mut table = Table::new(
            ["PASSES", "CHANGES", "SECONDS", "MEMORY (KIB)", "FILE DESCRIPTORS", "WATCHES", "ERRORS"]
                .map(Column::right_aligned),
        );
        let (started, before) = (Instant::now(), self.sample().await?);
        for part in 0..=ROWS {
            let mut sample = self.sample().await?;
            while sample.passes < before.passes + passes * part / ROWS {
                for _ in 0..20 {
                    self.change_input().await?;
                }
                sample = self.sample().await?;
            }
            self.progress(&format!("{} of {passes} passes", sample.passes - before.passes))?;
            table.row([
                (sample.passes - before.passes).to_string(),
                self.changes.to_string(),
                started.elapsed().as_secs().to_string(),
                sample.rss_kib.to_string(),
                sample.descriptors.to_string(),
                sample.watches.to_string(),
                sample.errors.to_string(),
            ]);
        }
        print(&table)
    }

    /// A minute after the other, each with a fault, while inputs and objects change.
    async fn disturb(&mut self, minutes: usize) -> Result<()> {
        let mut table = Table::new(
            ["MINUTE", "PASSES", "MEMORY (KIB)", "FILE DESCRIPTORS", "WATCHES", "ERRORS"]
                .map(Column::right_aligned)
                .into_iter()
                .chain([Column::new("FAULT")])
                .collect::<Vec<_>>(),
        );
        let all: fn(&Seen) -> bool = |_| true;
        let watches: fn(&Seen) -> bool = Seen::is_watch;
        let writes: fn(&Seen) -> bool = |seen| seen.is_write() && !seen.is_lease();
        let second = Duration::from_secs(1);
        let kinds = [
            ("connections are cut", Fault::Cut, all),
            ("answers are lost", Fault::CutAnswer, writes),
            ("503", Fault::Answer(503, None), all),
            ("429 with Retry-After", Fault::Answer(429, Some(1)), all),
            ("500 for writes", Fault::Answer(500, None), writes),
            ("watches end", Fault::EndWatch(second), watches),
            ("watches are too old", Fault::ExpireWatch(second), watches),
            ("watches are silent", Fault::SilentWatch(second), watches),
            ("everything takes two seconds", Fault::Slow(second * 2), all),
        ];
        for minute in 1..=minutes {
            let (name, fault, applies) = kinds[(minute - 1) % kinds.len()];
            self.progress(&format!("minute {minute} of {minutes}: {name}"))?;
            self.faults.inject(vec![Rule { fault, applies, times: usize::MAX }]);
            self.live_for(FAULT).await?;
            self.faults.forget();
            self.live_for(QUIET).await?;
            let sample =
                self.sample().await.with_context(|| format!("the operator's log:\n{}", self.operator.log()))?;
            let Sample { rss_kib, descriptors, .. } = sample;
            self.progress(&format!("{rss_kib} KiB of memory, {descriptors} file descriptors"))?;
            table.row([
                minute.to_string(),
                sample.passes.to_string(),
                sample.rss_kib.to_string(),
                sample.descriptors.to_string(),
                sample.watches.to_string(),
                sample.errors.to_string(),
                name.to_owned(),
            ]);
        }
        print(&table)
    }

    /// Changes inputs and deletes an object now and then.
    async fn live_for(&mut self, period: Duration) -> Result<()> {
        let end = Instant::now() + period;
        let services: Api<Service> = Api::namespaced(self.lab.client.clone(), NAMESPACE);
        while Instant::now() < end {
            self.change_input().await?;
            if self.changes.is_multiple_of(5) {
                support::lab::ignore_absent(services.delete(program::CCM, &DeleteParams::default()).await)?;
            }
            sleep(Duration::from_secs(2)).await;
            ensure!(self.operator.rss_kib() > 0, "the operator has ended:\n{}", self.operator.log());
        }
        Ok(())
    }

    fn progress(&self, text: &str) -> Result<()> {
        ensure!(self.operator.rss_kib() > 0, "the operator has ended:\n{}", self.operator.log());
        Ok(writeln!(io::stderr(), "soak: {text}")?)
    }
}

fn print(table: &Table) -> Result<()> {
    let mut out = io::stdout();
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(writeln!(out)?)
}
