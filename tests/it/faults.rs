//! A faulty API server: the operator recovers, limits its requests, and does not report errors that pass.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;

use crate::{
    lab::{LIMIT, Lab},
    support::{
        control_plane::streams_lists,
        eventually,
        faults::{Fault, Faults, Rule, Seen},
        openshift::Cluster,
        operator::Operator,
    },
};

/// The length of a fault: long enough for several retries.
const PERIOD: Duration = Duration::from_secs(3);

/// The largest number of requests in a second while they fail: twice what the operator allows itself, as a busy machine may
/// deliver requests late and together. A loop sends hundreds.
pub(crate) const MOST_A_SECOND: usize = 20;

fn writes(seen: &Seen) -> bool {
    seen.is_write() && !seen.is_lease()
}

fn watches(seen: &Seen) -> bool {
    seen.is_watch()
}

/// The largest number of requests in any second.
pub(crate) fn most_in_a_second(seen: &[Seen]) -> usize {
    let within =
        |from: Instant| seen.iter().filter(|one| one.at >= from && one.at < from + Duration::from_secs(1)).count();
    seen.iter().map(|one| within(one.at)).max().unwrap_or_default()
}

/// Checks that the operator is healthy and has never been degraded.
pub(crate) async fn never_degraded(lab: &Lab, operator: &Operator) -> Result<()> {
    let cluster_operator = lab.converged(operator).await?;
    ensure!(!operator.log().contains("degraded"), "{}", operator.log());
    let conditions = cluster_operator["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let degraded = conditions.iter().find(|one| one["type"] == "Degraded");
    ensure!(degraded.is_some_and(|one| one["reason"] == "AsExpected"), "{degraded:?}");
    Ok(())
}

#[tokio::test]
async fn writes_that_fail_for_a_while_are_retried_with_pauses_and_not_reported() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    let faults = [
        Fault::Answer(409, None),
        Fault::Answer(429, Some(2)),
        Fault::Answer(500, None),
        Fault::Answer(503, Some(2)),
        Fault::Answer(503, None),
        Fault::Cut,
        Fault::CutAnswer,
    ];
    for fault in faults {
        proxy.forget();
        proxy.inject(vec![Rule { fault, applies: writes, times: usize::MAX }]);
        lab.delete("Deployment").await?;
        lab.delete("Service").await?;
        tokio::time::sleep(PERIOD).await;
        let seen = eventually("a retry", LIMIT, async || {
            let seen = proxy.seen();
            ensure!(seen.iter().filter(|seen| seen.is_faulty).count() >= 2, "{fault:?}: {seen:#?}");
            Ok(Some(seen))
        })
        .await?;
        let failed: Vec<_> = seen.iter().filter(|seen| seen.is_faulty).collect();
        let writes: Vec<_> = seen.iter().filter(|seen| seen.method != Method::GET).cloned().collect();
        let most = most_in_a_second(&writes);
        ensure!(most <= MOST_A_SECOND, "{fault:?}: {most} writes in a second: {seen:#?}");
        let reads: Vec<_> = seen.iter().filter(|seen| seen.method == Method::GET).cloned().collect();
        let most = most_in_a_second(&reads);
        ensure!(most <= MOST_A_SECOND, "{fault:?}: {most} reads in a second: {seen:#?}");
        if let Fault::Answer(_, Some(seconds)) = fault {
            let pause = Duration::from_secs(seconds.into());
            // Two creations, such as of Events, are two objects.
            let is_same = |first: &Seen, second: &Seen| first.path == second.path && first.method != Method::POST;
            let again = |first: &&Seen, second: &&Seen| is_same(first, second) && second.at < first.at + pause;
            let early = failed.iter().enumerate().find(|(n, one)| failed[n + 1..].iter().any(|next| again(one, next)));
            ensure!(early.is_none(), "{fault:?}: retried too early: {failed:#?}");
        }
        proxy.forget();
        for kind in ["Deployment", "Service"] {
            lab.exists(kind, &operator).await.with_context(|| format!("{fault:?}"))?;
        }
        never_degraded(&lab, &operator).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_answer_is_waited_for() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let slow = Fault::Slow(Duration::from_secs(5));
    // The first read, the first write, and one of the status.
    proxy.inject(vec![
        Rule { fault: slow, applies: watches, times: 1 },
        Rule { fault: slow, applies: |seen| writes(seen) && !seen.path.ends_with("/status"), times: 1 },
        Rule { fault: slow, applies: |seen| seen.path.ends_with("/status"), times: 1 },
    ]);
    let operator = lab.start_through(proxy.kubeconfig())?;
    never_degraded(&lab, &operator).await?;
    let seen = proxy.seen();
    ensure!(seen.iter().filter(|seen| seen.is_faulty).count() == 3, "not every fault was met: {seen:#?}");
    for slow in seen.iter().filter(|seen| seen.is_faulty) {
        let meanwhile = |one: &&Seen| one.at > slow.at && one.at < slow.at + Duration::from_secs(5);
        let same = |one: &&Seen| one.method == slow.method && one.path == slow.path && one.query == slow.query;
        let again = seen.iter().filter(meanwhile).filter(same).count();
        ensure!(again == 0, "{} was requested again during the slow answer", slow.path);
    }
    Ok(())
}

/// The requests of watches from a second after the last watch was started: before, a start of many watches is no loop.
fn retries(seen: &[Seen]) -> Vec<Seen> {
    let selector = |seen: &Seen| seen.query.split('&').find(|pair| pair.contains("Selector=")).map(ToOwned::to_owned);
    let mut watches = BTreeSet::new();
    let starts = seen.iter().filter(|seen| seen.is_watch() && watches.insert((seen.path.clone(), selector(seen))));
    let started = starts.map(|seen| seen.at).max();
    let is_later = |one: &&Seen| one.is_watch() && started.is_some_and(|at| one.at > at + Duration::from_secs(1));
    seen.iter().filter(is_later).cloned().collect()
}

#[tokio::test]
async fn watches_that_end_expire_or_are_cut_are_restarted() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let soon = Duration::from_millis(300);
    let faults = [
        Fault::EndWatch(soon),
        Fault::ExpireWatch(soon),
        Fault::Answer(500, None),
        Fault::Answer(503, None),
        Fault::Answer(429, Some(1)),
        Fault::Cut,
    ];
    for fault in faults {
        proxy.forget();
        proxy.inject(vec![Rule { fault, applies: watches, times: usize::MAX }]);
        let operator = lab.start_through(proxy.kubeconfig())?;
        tokio::time::sleep(PERIOD).await;
        let retries = eventually("retries", LIMIT, async || {
            let retries = retries(&proxy.seen());
            Ok((!retries.is_empty()).then_some(retries))
        })
        .await
        .with_context(|| format!("{fault:?}"))?;
        let most = most_in_a_second(&retries);
        proxy.forget();
        ensure!(most <= MOST_A_SECOND, "{fault:?}: {most} requests in a second: {retries:#?}\n{}", operator.log());
        lab.converged(&operator).await?;
        // The watches work again: the operator sees a change.
        lab.update("Deployment", &json!({"spec": {"replicas": 7}})).await?;
        lab.has_two_replicas(&operator).await.with_context(|| format!("{fault:?}"))?;
        never_degraded(&lab, &operator).await?;
        operator.terminate()?;
        operator.wait(LIMIT).await?;
    }
    Ok(())
}

/// A silent watch is noticed only after more than a minute, the longest time between two bookmarks. Until then the operator
/// repairs what its other watches see.
#[tokio::test]
async fn a_silent_watch_delays_nothing_else() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let rule = Rule {
        fault: Fault::SilentWatch(Duration::from_secs(2)),
        applies: |seen| {
            let is_refused = !streams_lists() && seen.query.contains("sendInitialEvents=true");
            seen.is_watch() && seen.path.ends_with("/services") && !is_refused
        },
        times: 1,
    };
    proxy.inject(vec![rule]);
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    tokio::time::sleep(PERIOD).await;
    lab.delete("Service").await?;
    lab.delete("Deployment").await?;
    lab.exists("Deployment", &operator).await?;
    never_degraded(&lab, &operator).await?;
    ensure!(lab.live("Service").await?.is_none(), "the watch was not silent");
    Ok(())
}
