//! What each program goes through: all cases at once, their changes, and a cloud that does not answer as it should.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    cases::{self, Case, SHUTDOWN, UNINITIALIZED},
    cloud::Cloud,
    cluster::{Cluster, Outcome, kind_of, writes},
    program::{Running, Side, peak_kib},
};
use crate::support::{audit::Mark, process};

/// What a program has done.
pub(super) struct Report {
    /// By the names of [`rows`].
    pub(super) outcomes: BTreeMap<String, Outcome>,
    /// Its requests that were not about one Node or Event, such as the watches.
    pub(super) reads: BTreeMap<String, usize>,
    pub(super) figures: Figures,
}

/// What it took, from the start of the program until the last change was settled.
pub(super) struct Figures {
    pub(super) peak_kib: u64,
    /// Requests to the cloud.
    pub(super) cloud: f64,
    /// Requests to the API server that wrote Nodes.
    pub(super) writes: usize,
    /// Those that wrote Events.
    pub(super) events: usize,
}

/// A way in which the cloud does not answer as it should.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    begin: fn(&Cloud) -> Result<()>,
}

/// The last one is for good: a cloud-controller-manager that has seen another account need not go on.
pub(super) const FAULTS: [Fault; 4] = [
    Fault { name: "refused", what: "the cloud refuses the token", begin: Cloud::refuse },
    Fault { name: "garbage", what: "the answers of the cloud are not understood", begin: Cloud::answer_garbage },
    Fault { name: "empty", what: "the account has no instance at all", begin: Cloud::empty },
    Fault { name: "another", what: "the credentials lead to another account", begin: Cloud::become_another },
];

impl Fault {
    /// Its Nodes, and what is special about each.
    fn nodes(&self) -> [(Case, &'static str); 3] {
        let name = |what: &str| -> &'static str { String::leak(format!("{}-{what}", self.name)) };
        [
            (Case::waits(name("new"), ""), "a Node that waits"),
            (Case::known(name("running"), "").ready("Unknown"), "a running instance, Ready=Unknown"),
            (Case::known(name("stopped"), "").state("stopped").ready("Unknown"), "a stopped instance, Ready=Unknown"),
        ]
    }
}

/// The names of all outcomes in order, each with what is special about it.
pub(super) fn rows() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for case in cases::all() {
        rows.push((case.name.to_owned(), case.what.to_owned()));
        rows.extend(case.then.map(|then| (format!("{} (2)", case.name), format!("… {}", then.what))));
    }
    for fault in FAULTS {
        let nodes = fault.nodes().map(|(case, what)| (case.name.to_owned(), format!("{}: {what}", fault.what)));
        rows.extend(nodes);
    }
    rows
}

/// Lets a program go through everything.
pub(super) async fn run(side: Side) -> Result<Report> {
    let mut stage = Stage::new(side).await?;
    let result = stage.play().await;
    let log = || format!("{}:\n{}", side.name(), stage.running.process.log_tail());
    result.with_context(log)
}

struct Stage {
    side: Side,
    cluster: Cluster,
    cloud: Cloud,
    running: Running,
    /// The number of canaries so far.
    canaries: usize,
    start: Mark,
    _dir: TempDir,
}

impl Stage {
    async fn new(side: Side) -> Result<Self> {
        let (cluster, dir) = (Cluster::new().await?, process::temp_dir()?);
        let kubeconfig = match side {
            Side::Library => cluster.account(side.account()).await?,
            Side::Ours => cluster.our_account().await?,
        };
        let mut cloud = Cloud::new(dir.path().join("cloud.json"))?;
        let nodes: Vec<Value> = cases::all().iter().map(|case| cloud.add(case)).collect();
        cloud.write()?;
        for node in &nodes {
            cluster.register(node).await?;
        }
        let start = cluster.mark().await?;
        let command = side.command(&cloud).await?;
        let running = Running::start(side.name(), command, &kubeconfig, &dir.path().join("log"))?;
        Ok(Self { side, cluster, cloud, running, canaries: 0, start, _dir: dir })
    }

    async fn play(&mut self) -> Result<Report> {
        let mut outcomes = BTreeMap::new();
        self.settle(3).await.context("all cases")?;
        let rest = self.cluster.mark().await?;
        self.settle(2).await.context("rest")?;
        let names = cases::all().into_iter().map(|case| (case.name.to_owned(), case.name.to_owned()));
        outcomes.extend(self.outcomes(names, self.start, Some(rest)).await?);

        let changed: Vec<Case> = cases::all().into_iter().filter(|case| case.then.is_some()).collect();
        let since = self.cluster.mark().await?;
        for case in &changed {
            let then = case.then.as_ref().context("a change")?;
            self.cloud.set(case.name, then.instances.clone());
        }
        self.cloud.write()?;
        // As kubelets do, again and again: ours may answer with a list that is two seconds old, and then tries again.
        for beat in 0..4 {
            for case in &changed {
                self.cluster.report(case.name, beat, case.then.as_ref().and_then(|then| then.ready)).await?;
            }
            self.settle(1).await.context("changes")?;
        }
        let names = changed.iter().map(|case| (case.name.to_owned(), format!("{} (2)", case.name)));
        outcomes.extend(self.outcomes(names, since, None).await?);
        let figures = self.figures().await?;
        let reads = self.reads().await?;

        for fault in FAULTS {
            outcomes.extend(self.suffer(&fault).await.context(fault.what)?);
        }
        Ok(Report { outcomes, reads, figures })
    }

    /// Waits until everything has been looked at, so many times. Each time three Nodes are added, and nothing was done before
    /// them that has not been finished: the programs have one queue and one loop.
    async fn settle(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            self.canaries += 1;
            let number = self.canaries;
            let name = |what: &str| -> &'static str { String::leak(format!("canary-{number}-{what}")) };
            let (new, gone, moved) = (name("new"), name("gone"), name("moved"));
            let mut nodes = vec![
                self.cloud.add(&Case::waits(new, "")),
                self.cloud.add(&Case::known(moved, "")),
                self.cloud.add(&Case::known(gone, "").ready("Unknown")),
            ];
            nodes[1]["status"]["addresses"][1]["address"] = "10.1.0.99".into();
            self.cloud.set(gone, Vec::new());
            self.cloud.write()?;
            for node in &nodes {
                self.cluster.register(node).await?;
            }
            self.cluster.has_event(new, "Synced").await?;
            self.cluster.until(gone, "is deleted", |shown| shown.is_none()).await?;
            self.cluster.has_event(gone, "DeletingNode").await?;
            let has_moved = |address: &str| address == "InternalIP 10.1.0.2";
            self.cluster
                .until(moved, "has the new address", |shown| {
                    shown.is_some_and(|shown| shown.addresses.iter().any(|address| has_moved(address)))
                })
                .await?;
            self.running.passes(2).await?;
        }
        Ok(())
    }

    /// The outcomes of Nodes, each under another name.
    async fn outcomes(
        &self,
        names: impl Iterator<Item = (String, String)>,
        since: Mark,
        rest: Option<Mark>,
    ) -> Result<Vec<(String, Outcome)>> {
        let mut events = self.cluster.events_by_node().await?;
        let mut written = writes(&self.cluster.requests(since, self.side.account()).await?);
        let mut at_rest = match rest {
            Some(rest) => writes(&self.cluster.requests(rest, self.side.account()).await?),
            None => BTreeMap::new(),
        };
        let mut outcomes = Vec::new();
        for (node, row) in names {
            let outcome = Outcome {
                node: self.cluster.shown(&node).await?,
                events: events.remove(&node).unwrap_or_default(),
                writes: written.remove(&node).unwrap_or_default(),
                writes_at_rest: at_rest.remove(&node).unwrap_or_default(),
            };
            outcomes.push((row, outcome));
        }
        Ok(outcomes)
    }

    /// Lets the cloud fail, and adds Nodes.
    async fn suffer(&mut self, fault: &Fault) -> Result<Vec<(String, Outcome)>> {
        // Nothing is left of the fault before: a Node can be deleted again.
        self.settle(1).await?;
        self.cluster.clear().await?;
        let since = self.cluster.mark().await?;
        let nodes = fault.nodes().map(|(case, _)| (case.name, self.cloud.add(&case)));
        (fault.begin)(&self.cloud)?;
        for (_, node) in &nodes {
            self.cluster.register(node).await?;
        }
        // For longer than ours keeps a list.
        self.running.passes(15).await?;
        let names = nodes.iter().map(|(name, _)| ((*name).to_owned(), (*name).to_owned()));
        let outcomes = self.outcomes(names, since, None).await?;
        self.cluster.clear().await?;
        for (name, _) in &nodes {
            self.cloud.set(name, Vec::new());
        }
        self.cloud.write()?;
        Ok(outcomes)
    }

    /// The requests that were not about one Node, an Event or a lease.
    async fn reads(&self) -> Result<BTreeMap<String, usize>> {
        let mut reads = BTreeMap::new();
        for request in self.cluster.requests(self.start, self.side.account()).await? {
            let of_node = request.resource == "nodes" && !request.name.is_empty();
            if !of_node && !request.is_event() && !request.is_lease() {
                *reads.entry(kind_of(&request)).or_default() += 1;
            }
        }
        Ok(reads)
    }

    async fn figures(&self) -> Result<Figures> {
        let requests = self.cluster.requests(self.start, self.side.account()).await?;
        let cloud = match self.side {
            Side::Library => {
                let log = format!("{}.requests", self.cloud.file.display());
                f64::from(u32::try_from(fs::read_to_string(log)?.lines().count())?)
            }
            Side::Ours => self.running.metric("cloudprovider_fake_api_request_duration_seconds_count").await?,
        };
        ensure!(cloud > 0.0, "no request to the cloud was counted");
        Ok(Figures {
            peak_kib: peak_kib(&self.running.process)?,
            cloud,
            writes: requests.iter().filter(|one| one.resource == "nodes" && one.is_write()).count(),
            events: requests.iter().filter(|one| one.is_event()).count(),
        })
    }
}

/// What became of a Node, in a word.
pub(super) fn result(outcome: &Outcome) -> &'static str {
    match &outcome.node {
        None => "deleted",
        Some(node) if node.has_taint(UNINITIALIZED) => "waits",
        Some(node) if node.has_taint(SHUTDOWN) => "shutdown taint",
        Some(_) if outcome.events.iter().any(|event| event.starts_with("Normal Synced ")) => "initialized",
        Some(_) if outcome.writes.is_empty() => "unchanged",
        Some(_) => "changed",
    }
}
