//! The controller cloud-node-lifecycle (IO): taints nodes whose instances are stopped, and deletes nodes whose instances are gone.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use ccm_base::error::brief;
use ccm_core::nodes::{
    guard::{ATTEMPT, REFUSED},
    node::Node,
};
use ccm_drivers::contract::{Error, ErrorKind};
use ccm_kit::cluster::request::Cause;
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    Context,
    lines::Topic,
    passes,
    write::{self, Part},
};
use crate::{
    guard::{Clocks, Guard},
    instances::SEVERAL,
    lifecycle::{self, Listed, Step},
    node_events::{Failure, LIFECYCLE, cloud_error, key},
    reason,
};

/// The number of nodes that are looked after at once. Most of them are answered by one list.
const AT_ONCE: usize = 8;

/// What is kept from pass to pass.
#[derive(Default)]
pub(super) struct Memory {
    /// The nodes whose instances the driver did not find in the last pass, by uid, with the providerID that was asked for.
    missing: BTreeMap<String, String>,
    pub(super) guard: Option<Guard>,
}

/// What a pass has found about the instance of a node that is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It exists, or nobody knows.
    Stays,
    /// The driver does not find it. That alone deletes nothing.
    Missing,
    /// The driver has not found it twice, and the list of the account has others and not this one.
    Gone,
}

/// Looks after all nodes that are not ready in each period.
pub(super) async fn run(context: &Context) -> Infallible {
    context.nodes.synced().await;
    let guard = context.options.guard.as_ref().map(|options| Guard::new(options, Clocks::read()));
    let mut memory = Memory { guard, ..Memory::default() };
    let mut passes = passes(context.options.node_monitor_period);
    loop {
        passes.tick().await;
        let begun = Instant::now();
        pass(context, &mut memory).await;
        context.metrics.monitored(begun.elapsed());
    }
}

/// One pass:
///
/// 1. Removes the taint of nodes that are ready again (API server).
/// 2. Asks for the instances of nodes that are not ready (the cloud), and taints those that are stopped (API server).
/// 3. Verifies the account (the cloud), decides which nodes go (pure), and deletes them (API server).
pub(super) async fn pass(context: &Context, memory: &mut Memory) {
    let begun = Instant::now();
    context.lines.begin();
    let nodes = context.nodes.select(|node| lifecycle::step(node) != Step::Nothing);
    let (ready, asks): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| lifecycle::step(node) == Step::RemoveTaint);
    for node in &ready {
        taint(context, node, lifecycle::untaint, "removed the shutdown taint: it is ready").await;
    }
    let is_one_of_several = asks.len() >= SEVERAL;
    let looks = asks.into_iter().map(|node| {
        let provider_id = memory.missing.get(uid(&node));
        let was_missing = provider_id.is_some_and(|provider_id| provider_id == key(&node).provider_id);
        async move {
            let found = look(context, &node, (is_one_of_several, begun), was_missing).await;
            (node, found)
        }
    });
    let looks = futures::stream::iter(looks.collect::<Vec<_>>());
    let found: Vec<(Arc<Value>, Found)> = looks.buffer_unordered(AT_ONCE).collect().await;
    context.cloud.forget_list().await;
    let unseen = found.iter().filter(|(_, found)| *found != Found::Stays);
    memory.missing = unseen.map(|(node, _)| (uid(node).to_owned(), key(node).provider_id.to_owned())).collect();
    let gone = found.into_iter().filter(|(_, found)| *found == Found::Gone);
    let gone: Vec<Value> = gone.map(|(node, _)| Arc::unwrap_or_clone(node)).collect();
    if !gone.is_empty() {
        delete(context, memory, gone).await;
    }
}

/// Asks for the instance of a node that is not ready, and taints the node if the instance is stopped.
async fn look(
    context: &Context,
    node: &Value,
    (is_one_of_several, begun): (bool, Instant),
    was_missing: bool,
) -> Found {
    let (key, cloud) = (key(node), &context.cloud);
    let exists = match cloud.is_foreign(key.provider_id, begun).await {
        Ok(true) => return Found::Stays,
        Ok(false) => cloud.find(key, is_one_of_several, begun).await,
        Err(error) => Err(error),
    };
    context.metrics.lifecycle_call("instance_exists", word(exists.as_ref().err()));
    match exists {
        Ok(instance) => {
            context.metrics.lifecycle_call("instance_shutdown", word(None));
            if lifecycle::is_shut_down(&instance) {
                taint(context, node, lifecycle::taint, "added the shutdown taint: its instance is stopped").await;
            }
            Found::Stays
        }
        Err(error) if error.is_not_found() && was_missing => prove(context, node, begun).await,
        Err(error) if error.is_not_found() => {
            debug!("the instance of node {} was not found once: {}", key.name, cloud_error(&error));
            Found::Missing
        }
        Err(error) => {
            unknown(context, node, error);
            Found::Stays
        }
    }
}

/// Looks for an instance that the driver has not found again in a list of the account.
async fn prove(context: &Context, node: &Value, begun: Instant) -> Found {
    let key = key(node);
    let all = match context.cloud.list_begun_after(begun).await {
        Ok(all) => all,
        Err(error) => {
            unknown(
                context,
                node,
                error.context("the instance was not found, and the list of all instances is needed as well"),
            );
            return Found::Missing;
        }
    };
    let (reason, message) = match lifecycle::listed(&all, key.provider_id, key.name) {
        // Until this list the account may have had no instance that tells which providerIDs are of this cloud.
        Listed::Lacks if !context.cloud.owns(key.provider_id) => {
            context.events.foreign(node, &context.cloud.schemes());
            return Found::Stays;
        }
        Listed::Lacks => return Found::Gone,
        Listed::Has(id) => (
            reason::CONTRADICTION,
            format!(
                "the driver does not find the instance of this node, and its list of all instances has it as {:?}: the Node is kept. \
                 Check the driver with ccm-cloud {} verify",
                brief(&id),
                context.options.cloud
            ),
        ),
        Listed::Empty => (
            reason::EMPTY,
            format!(
                "the cloud {} does not have the instance of this node, and no other one either: the Node is kept. Check that the \
                 account {:?}, the region and the endpoint are the right ones",
                context.options.cloud,
                context.options.account.text()
            ),
        ),
    };
    warn_unknown(context, node, &message);
    context.events.warn(LIFECYCLE, node, reason, message);
    Found::Missing
}

/// Reports that nobody knows whether the instance of a node exists.
fn unknown(context: &Context, node: &Value, error: Error) {
    warn_unknown(context, node, &cloud_error(&error));
    context.events.explain(LIFECYCLE, node, &Failure::Cloud(error));
}

fn warn_unknown(context: &Context, node: &Value, problem: &str) {
    if is_due(context, node, Topic::Unknown, problem) {
        warn!("error checking if node {} exists: {problem}", key(node).name);
    }
}

/// Whether a line about a node is to be logged.
fn is_due(context: &Context, node: &Value, topic: Topic, text: &str) -> bool {
    context.lines.is_due(uid(node), topic, text, Instant::now())
}

/// Changes the shutdown taint of a node.
async fn taint(context: &Context, node: &Value, change: impl Fn(&Value) -> Option<Value>, done: &str) {
    let name = key(node).name;
    match write::change::<Failure>(context, Part::Node, node, |node| Ok(change(node))).await {
        Ok(Some(_)) => info!("node {name}: {done}"),
        Ok(None) => {}
        Err(failure) => {
            if is_due(context, node, Topic::Taint, &failure.to_string()) {
                warn!("failed to apply shutdown taint to node {name}: {failure}");
            }
            context.events.explain(LIFECYCLE, node, &failure);
        }
    }
}

/// Deletes the nodes whose instances are gone, as far as they may be deleted.
async fn delete(context: &Context, memory: &mut Memory, mut gone: Vec<Value>) {
    // The driver gives no answer of another account. That alone is not enough for what cannot be undone.
    if let Err(error) = context.cloud.verify().await {
        for node in &gone {
            unknown(context, node, error.clone());
        }
        return;
    }
    // What was seen meanwhile counts: the deletion has the resource version of this state as its condition. With a providerID that it did
    // not have, the node has another instance than the one that was looked for.
    let now_of = |node: &Value| context.nodes.get(key(node).name).filter(|now| write::is_same(now, node));
    gone = gone.iter().filter_map(now_of).filter(|node| lifecycle::step(node) == Step::Ask).collect();
    if let Some(guard) = &mut memory.guard {
        gone = allowed(context, guard, gone);
    }
    for node in &gone {
        if attempt(context, node).await
            && let Some(guard) = &mut memory.guard
        {
            guard.count(key(node).name, uid(node), Timestamp::now());
        }
    }
}

/// Asks the guard which nodes may be deleted, and reports why the others stay.
fn allowed(context: &Context, guard: &mut Guard, gone: Vec<Value>) -> Vec<Value> {
    let nodes = context.nodes.map(Node::of);
    let uids: Vec<_> = gone.iter().map(uid).collect();
    let stale = context.nodes.problem().map(|problem| format!("the nodes may have changed, unseen: {problem}"));
    let decision = guard.decide(Clocks::read(), &nodes, (&context.cloud.schemes(), &uids), stale.as_deref());
    for kept in &decision.waiting {
        if let Some(node) = gone.iter().find(|node| uid(node) == kept.uid) {
            let message = guard.message(kept, key(node).provider_id);
            if is_due(context, node, Topic::Kept, &message) {
                info!("node {}: {message}", kept.node);
            }
            context.events.warn(LIFECYCLE, node, reason::KEPT, message);
        }
    }
    let is_allowed = |node: &Value| decision.confirmed.iter().any(|entry| entry.uid == uid(node));
    gone.into_iter().filter(is_allowed).collect()
}

/// Deletes a node. Returns whether it may be deleted now.
async fn attempt(context: &Context, node: &Value) -> bool {
    let name = key(node).name;
    let is_announced = is_due(context, node, Topic::Deletion, "");
    if is_announced {
        info!("deleting node since it is no longer present in cloud provider: {name}");
    }
    let message = format!("Deleting node {name} because it does not exist in the cloud provider");
    context.events.normal(LIFECYCLE, node, ATTEMPT, message);
    match write::delete(context, node).await {
        Ok(()) => {
            info!("node {name}: deleted");
            true
        }
        // It is gone, or has changed: the next pass looks again.
        Err(cause) if cause.is_absent() || cause.is_conflict() => {
            debug!("unable to delete node {name:?}: {cause}");
            false
        }
        Err(cause) => {
            // Whoever reads the announcement alone takes the node for deleted.
            if is_due(context, node, Topic::Refusal, &cause.to_string()) || is_announced {
                warn!("unable to delete node {name:?}: {cause}");
            }
            let message = format!("Failed deleting node {name}: {cause}");
            context.events.warn(LIFECYCLE, node, REFUSED, message);
            // Without an answer it may be deleted all the same.
            matches!(cause, Cause::Timeout)
        }
    }
}

fn uid(node: &Value) -> &str {
    node["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The result of a question in the metric of k8s.io/cloud-provider.
fn word(error: Option<&Error>) -> &'static str {
    match error.map(|error| &error.kind) {
        None => "success",
        Some(ErrorKind::NotFound) => "instance_not_found",
        Some(ErrorKind::NotSupported) => "not_implemented",
        Some(_) => "error",
    }
}
