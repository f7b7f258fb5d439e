//! Two replicas of our cloud-controller-manager on one API server. Each has an account of its own, so that the audit log tells them
//! apart, and its requests go through a proxy of its own.

use std::{
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use tempfile::TempDir;

use super::{
    cases::{Case, Instance},
    cloud::Cloud,
    cluster::{Cluster, NAMESPACE},
    program::{Running, ours},
};
use crate::{
    lab::LIMIT,
    support::{
        audit::{Mark, Request, account},
        eventually,
        faults::Faults,
        process,
    },
};

/// The flags of a short lease, so that a test can wait for its end.
const LEASE: [&str; 3] =
    ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"];
const LEASE_MILLISECONDS: i128 = 4000;
const REPLICAS: [&str; 2] = ["replica-0", "replica-1"];
/// Nodes whose addresses change all the time, so that there is always something to write.
const MOVING: [&str; 4] = ["moving-0", "moving-1", "moving-2", "moving-3"];

/// A cluster whose cloud changes without an end, and two replicas.
struct Pair {
    cluster: Cluster,
    cloud: Arc<Mutex<Cloud>>,
    dir: TempDir,
    start: Mark,
    proxies: [Faults; 2],
    replicas: [Option<Running>; 2],
    /// Who led first, and who followed.
    leaders: Vec<usize>,
    ends: Arc<AtomicBool>,
}

/// How a leader is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// SIGKILL.
    Killed,
    /// None of its requests gets through, and those that wait are lost.
    CutOff,
    /// SIGSTOP, and SIGCONT once the other one leads.
    Paused,
    /// SIGTERM.
    Terminated,
}

#[tokio::test]
async fn two_replicas_never_act_at_once() -> Result<()> {
    let mut pair = Pair::new().await?;
    let moving = tokio::spawn(keep_moving(pair.cloud.clone(), pair.ends.clone()));
    let result = async {
        pair.writes_more(0).await?;
        pair.start(1)?;
        for stop in [Stop::Killed, Stop::CutOff, Stop::Paused, Stop::Terminated, Stop::Paused] {
            pair.take_over(stop).await.with_context(|| format!("{stop:?}"))?;
        }
        anyhow::Ok(())
    }
    .await;
    pair.ends.store(true, Ordering::Relaxed);
    moving.await??;
    result.with_context(|| pair.logs())?;

    acted_in_turn(&pair.writes().await?, &pair.leaders).with_context(|| pair.logs())
}

/// Checks that the writes were those of the leaders, one after the other. `writes` are in the order of their times, and of both replicas.
fn acted_in_turn(writes: &[Request], leaders: &[usize]) -> Result<()> {
    let runs = runs(writes);
    let leaders: Vec<_> = leaders.iter().map(|replica| account(NAMESPACE, REPLICAS[*replica])).collect();
    ensure!(runs == leaders, "the writes of Nodes were those of {runs:?}, and the leaders {leaders:?}");
    Ok(())
}

/// A write that comes after the first one of the next leader is found, wherever it is.
#[test]
fn writes_of_both_at_once_are_found() {
    let history = |replicas: &[usize]| -> Vec<Request> {
        let write = |(second, replica): (usize, &usize)| Request {
            verb: "patch".to_owned(),
            resource: "nodes".to_owned(),
            group: String::new(),
            subresource: "status".to_owned(),
            namespace: String::new(),
            name: MOVING[second % MOVING.len()].to_owned(),
            user: account(NAMESPACE, REPLICAS[*replica]),
            code: 200,
            at: Timestamp::from_second(second.try_into().unwrap()).unwrap(),
            dry_run: false,
        };
        replicas.iter().enumerate().map(write).collect()
    };
    let leaders = [0, 1, 0];
    assert!(acted_in_turn(&history(&[0, 0, 1, 1, 1, 0, 0]), &leaders).is_ok());
    for (what, replicas) in [
        ("one late write of the old leader", &[0, 0, 1, 0, 1, 1, 0][..]),
        ("one early write of the next leader", &[0, 0, 1, 0, 0, 1, 0]),
        ("in turn with each other", &[0, 1, 0, 1, 0, 1, 0]),
        ("the old leader goes on at the end", &[0, 1, 1, 0, 0, 1]),
        ("a leader that never wrote", &[0, 0, 0]),
    ] {
        let failed = acted_in_turn(&history(replicas), &leaders);
        assert!(failed.is_err(), "{what}");
    }
}

/// Changes the addresses of some instances until it is stopped.
async fn keep_moving(cloud: Arc<Mutex<Cloud>>, ends: Arc<AtomicBool>) -> Result<()> {
    for address in ["10.1.0.5", "10.1.0.6"].into_iter().cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        {
            let mut cloud = cloud.lock().unwrap();
            for name in MOVING {
                cloud.set(name, vec![Instance { addresses: vec![address], ..Instance::named(name) }]);
            }
            cloud.write()?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The accounts of requests, each once in a row.
fn runs(requests: &[Request]) -> Vec<String> {
    let mut runs: Vec<String> = requests.iter().map(|request| request.user.clone()).collect();
    runs.dedup();
    runs
}

impl Pair {
    async fn new() -> Result<Self> {
        let (cluster, dir) = (Cluster::new().await?, process::temp_dir()?);
        let mut cloud = Cloud::new(dir.path().join("cloud.json"))?;
        for name in MOVING {
            cluster.register(&cloud.add(&Case::known(name, ""))).await?;
        }
        cloud.write()?;
        let start = cluster.mark().await?;
        let mut proxies = Vec::new();
        for replica in REPLICAS {
            proxies.push(Faults::start(&cluster.account(replica).await?, dir.path()).await?);
        }
        let proxies = <[Faults; 2]>::try_from(proxies).ok().context("two proxies")?;
        let mut pair = Self {
            cluster,
            cloud: Arc::new(cloud.into()),
            dir,
            start,
            proxies,
            replicas: [None, None],
            leaders: vec![0],
            ends: Arc::default(),
        };
        pair.start(0)?;
        Ok(pair)
    }

    /// Starts a replica.
    fn start(&mut self, replica: usize) -> Result<()> {
        let mut command = Command::new(ours()?);
        command.arg("--cloud-provider=fake").arg("--node-deletion-guard=false");
        command.env("FAKE_ENDPOINT", self.cloud.lock().unwrap().endpoint());
        command.args(LEASE).env("POD_UID", REPLICAS[replica]).env("CONTAINER_NAME", "ccm");
        let log = self.dir.path().join(format!("{}-{}.log", REPLICAS[replica], self.leaders.len()));
        let running = Running::start(REPLICAS[replica], command, self.proxies[replica].kubeconfig(), &log)?;
        self.replicas[replica] = Some(running);
        Ok(())
    }

    fn running(&self, replica: usize) -> Result<&Running> {
        self.replicas[replica].as_ref().context("the replica does not run")
    }

    /// Stops the leader, and waits until the other one has taken over.
    async fn take_over(&mut self, stop: Stop) -> Result<()> {
        let old = *self.leaders.last().context("a leader")?;
        let new = 1 - old;
        self.waits(new).await?;
        self.writes_more(old).await?;
        let leader = &self.running(old)?.process;
        match stop {
            Stop::Killed => leader.kill()?,
            Stop::Paused => leader.pause()?,
            Stop::Terminated => leader.terminate()?,
            Stop::CutOff => drop(self.proxies[old].end_after(1)),
        }
        self.leaders.push(new);
        self.writes_more(new).await?;
        if stop == Stop::Paused {
            self.running(old)?.process.resume()?;
        }
        // A replica that has lost the lease ends, and one that was paused writes nothing before that.
        eventually("the old leader ends", LIMIT, async || Ok(self.running(old)?.process.try_wait()?)).await?;
        self.lease_was_taken(old, new, stop)?;
        self.writes_more(new).await?;
        self.proxies[old].forget();
        self.start(old)
    }

    /// The lease was free when the new leader took it: it had expired, or was released. The first attempt after that succeeded.
    fn lease_was_taken(&self, old: usize, new: usize, stop: Stop) -> Result<()> {
        let requests = self.cluster.plane.audit().since(self.start)?;
        let of = |replica: usize, verb: &str| {
            let user = account(NAMESPACE, REPLICAS[replica]);
            let verb = verb.to_owned();
            requests.iter().filter(move |one| one.is_lease() && one.user == user && one.verb == verb)
        };
        let renewed = of(old, "update").rfind(|one| one.code < 400).context("a renewal")?.at;
        let attempts: Vec<&Request> = of(new, "update").filter(|one| one.at > renewed).collect();
        let taken = attempts.iter().find(|one| one.code < 400).context("no attempt succeeded")?.at;
        let refused = attempts.iter().filter(|one| one.at < taken).count();
        ensure!(refused == 0, "{refused} attempts failed before one succeeded: {attempts:?}");
        let waited = taken.duration_since(renewed).as_millis();
        if stop == Stop::Terminated {
            ensure!(waited < LEASE_MILLISECONDS, "a lease that was released was taken after {waited} ms");
        } else {
            ensure!(waited >= LEASE_MILLISECONDS, "the lease was taken {waited} ms after its last renewal");
        }
        Ok(())
    }

    /// Waits until a replica has seen that another one leads.
    async fn waits(&self, replica: usize) -> Result<()> {
        eventually("the replica waits", LIMIT, async || {
            let running = self.running(replica)?;
            ensure!(running.process.log().contains("waiting for the lease"), "{}", running.process.log_tail());
            Ok(Some(()))
        })
        .await
    }

    /// Waits until a replica has written Nodes several times more.
    async fn writes_more(&self, replica: usize) -> Result<()> {
        let user = account(NAMESPACE, REPLICAS[replica]);
        let mark = self.cluster.mark().await?;
        eventually("the replica writes", LIMIT, async || {
            let writes = self.cluster.plane.audit().since(mark)?;
            let own = writes.iter().filter(|one| one.user == user && one.resource == "nodes" && one.counts_as_write());
            let count = own.count();
            ensure!(count >= 2 * MOVING.len(), "{count}");
            Ok(Some(()))
        })
        .await
        .with_context(|| self.logs())
    }

    /// The writes of Nodes by both, in the order in which the API server received them.
    async fn writes(&self) -> Result<Vec<Request>> {
        self.cluster.mark().await?;
        let mut writes = self.cluster.plane.audit().since(self.start)?;
        let is_replica = |user: &str| REPLICAS.iter().any(|replica| user == account(NAMESPACE, replica));
        writes.retain(|one| one.resource == "nodes" && one.is_write() && is_replica(&one.user));
        writes.sort_by_key(|one| one.at);
        Ok(writes)
    }

    /// The logs of both.
    fn logs(&self) -> String {
        let logs =
            self.replicas.iter().flatten().map(|one| format!("{}:\n{}", one.process.name(), one.process.log_tail()));
        logs.collect::<Vec<_>>().join("\n")
    }
}
