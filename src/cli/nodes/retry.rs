//! `nodes retry`: makes the cloud-controller-manager retry at once.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{NodesReport, screen};
use crate::{
    cli::flags::{AnyCluster, duration, print},
    cluster::{
        read as objects,
        request::{self, NO_DEADLINE, api},
    },
    evidence,
    nodes::{
        evidence::Evidence,
        log::{Attempt, Log},
        node::Node,
    },
    object::NODE,
    provider::catalog::Catalog,
    text::output::printable,
};

/// The annotation whose change makes a cloud-controller-manager retry.
const ANNOTATION: &str = "ccm-operator.dev/retry";

/// The interval between two reads of the node.
const PERIOD: Duration = Duration::from_secs(1);

/// The number of reads of the node for each read of the logs.
const READS_PER_LOG: u32 = 3;

#[derive(Args, Debug)]
pub struct RetryArgs {
    /// The node.
    pub name: String,

    #[command(flatten)]
    pub cluster: AnyCluster,

    /// How long to wait for the result, such as 90s or 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub timeout: Duration,
}

/// Makes the cloud-controller-manager retry, and reports the result.
pub(super) async fn run(args: &RetryArgs, catalog: &Catalog) -> anyhow::Result<ExitCode> {
    let (client, name) = (args.cluster.client().await?, args.name.as_str());
    let Some(node) = node(&client, name).await? else { bail!("there is no node {name:?}") };
    if !node.is_uninitialized() {
        print(&format!("{name} does not wait for its initialization; nothing was changed\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = evidence::read(&client, catalog, Some(name)).await?;
    let change = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: Timestamp::now().to_string()}}}));
    let (nodes, params) = (api(&client, &NODE, ""), PatchParams::default());
    let changed = request::send(NO_DEADLINE, nodes.patch(name, &params, &change)).await;
    changed.with_context(|| format!("failed to set the annotation {ANNOTATION} of node {name}"))?;

    let started = Instant::now();
    let mut has_tried = false;
    for round in 1.. {
        progress(&format!("waiting for an attempt, {}s", started.elapsed().as_secs()));
        tokio::time::sleep(PERIOD).await;
        match self::node(&client, name).await? {
            None => bail!("the node {name} was deleted meanwhile"),
            Some(node) if !node.is_uninitialized() => {
                progress("");
                let id = if node.provider_id.is_empty() { "none" } else { &node.provider_id };
                print(&printable(&format!("{name} is initialized; its providerID is {id}\n")))?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(_) => {}
        }
        let is_over = started.elapsed() >= args.timeout;
        if is_over || round % READS_PER_LOG == 0 {
            has_tried = has_failed_since(&before, &client, name).await;
        }
        if is_over || has_tried {
            break;
        }
    }
    progress("");
    print(&if has_tried {
        format!("the cloud-controller-manager has tried again, and {name} still waits\n\n")
    } else {
        format!("no attempt was seen for {} s, and {name} still waits\n\n", args.timeout.as_secs())
    })?;
    print(&screen::one(&NodesReport::read(&client, catalog, Some(name)).await?, Timestamp::now()))?;
    Ok(ExitCode::FAILURE)
}

async fn node(client: &Client, name: &str) -> anyhow::Result<Option<Node>> {
    Ok(objects::get(client, &NODE, "", name).await?.as_ref().map(Node::of))
}

/// On a terminal, writes a line that the next one replaces.
fn progress(text: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        // A failure is harmless: progress is optional.
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

/// Whether the log of a cloud-controller-manager has a new line about a failure for this node.
async fn has_failed_since(before: &Evidence, client: &Client, name: &str) -> bool {
    for ccm in &before.ccms {
        let identity = &ccm.identity;
        let lease = before.leases.iter().flatten().find(|lease| lease.is_of(identity));
        let log = evidence::log::read(client, identity, ccm.pods.as_deref(), lease).await.ok().flatten();
        if has_failed(ccm.log.as_deref().unwrap_or_default(), &log.unwrap_or_default(), name) {
            return true;
        }
    }
    false
}

/// Whether the new lines of a log report a failed attempt for this node.
fn has_failed(before: &[String], now: &[String], name: &str) -> bool {
    // A missing line is older than all remaining lines.
    let known = before.last().and_then(|last| now.iter().rposition(|line| line == last)).map_or(0, |at| at + 1);
    let new = now.get(known..).unwrap_or_default();
    matches!(Log::of(new).attempts.get(name), Some(Attempt::Failed(_) | Attempt::Skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_after_the_change_counts() {
        let line = |second: u32, error: &str| {
            format!(
                "E0101 00:00:{second:02}.000000       1 node_controller.go:1] \"Unhandled Error\" err=\"error syncing 'a': {error}, requeuing\""
            )
        };
        let lines = [line(1, "old"), line(2, "older"), line(3, "new")];
        assert!(!has_failed(&lines[..2], &lines[..2], "a"));
        assert!(has_failed(&lines[..2], &lines, "a"));
        assert!(!has_failed(&lines[..2], &lines, "b"), "another node");
        assert!(has_failed(&lines[..2], &lines[2..], "a"), "the log was cut in between");
        assert!(has_failed(&[], &lines, "a"), "there was none before");
    }
}
