//! The controller cloud-node (IO): initializes nodes, and repairs their labels.

use std::{convert::Infallible, time::Duration};

use ccm_drivers::contract::Instance;
use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use super::{
    Context,
    lines::{Lines, Topic},
    queue::{LONGEST, Queue},
    update,
    write::{self, Part},
};
use crate::{
    initialize,
    instances::SEVERAL,
    node_events::{CLOUD_NODE, Failure, key},
    reason,
};

/// Syncs each node whose name arrives, until it succeeds.
pub(super) async fn run(context: &Context, mut changes: UnboundedReceiver<String>) -> Infallible {
    // Of its own: pauses between two attempts are longer than two passes of the other controller.
    let lines = Lines::default();
    let lines = &lines;
    let (mut queue, mut running) = (Queue::default(), FuturesUnordered::new());
    loop {
        while running.len() < context.options.concurrent_node_syncs.max(1)
            && let Some((name, since)) = queue.next(Instant::now())
        {
            running.push(async move {
                let result = sync(context, lines, &name, since).await;
                (name, result)
            });
        }
        context.metrics.set_queue_depth(queue.len());
        let due = queue.due();
        tokio::select! {
            Some(name) = changes.recv() => {
                if queue.add(name, Instant::now()) {
                    context.metrics.queue_added();
                }
            }
            Some((name, result)) = running.next() => {
                match &result {
                    Err(failure) => {
                        log(context, lines, &name, failure, queue.pause(&name));
                        context.metrics.queue_retried();
                        if let Some(node) = context.nodes.get(&name) {
                            context.events.explain(CLOUD_NODE, &node, failure);
                        }
                    }
                    Ok(()) => lines.forget(&name),
                }
                queue.done(name, result.is_ok(), Instant::now());
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            // Nothing can come any more: the watch of the nodes is being dropped.
            else => std::future::pending().await,
        }
    }
}

/// Logs a failure where it is new, has changed, or was last logged a minute ago. ccm-operator reads what stands before the pause.
fn log(context: &Context, lines: &Lines, name: &str, failure: &Failure, pause: Duration) {
    let (line, advice) = (failure.of_sync(name), context.events.advice(failure));
    if lines.is_due(name, Topic::Sync, &line, Instant::now()) {
        let longest = LONGEST.as_secs();
        warn!("{line} in {pause:?}, later up to every {longest} s and with each change of the Node. {advice}");
    }
}

/// Brings one node to its state. `since` is the time of its change, or of its last failure.
///
/// 1. Finds its instance (the cloud).
/// 2. Decides what it gets (pure).
/// 3. Changes the node (API server), and then its addresses (API server).
async fn sync(context: &Context, lines: &Lines, name: &str, since: Instant) -> Result<(), Failure> {
    let Some(node) = context.nodes.get(name) else { return Ok(()) };
    if !initialize::is_uninitialized(&node) {
        return repair(context, &node, since).await;
    }
    if lines.is_due(name, Topic::Begin, "", Instant::now()) {
        info!("Initializing node {name} with cloud provider");
    }
    if context.cloud.is_foreign(key(&node).provider_id, since).await.map_err(Failure::Cloud)? {
        context.events.foreign(&node, &context.cloud.schemes());
        return Ok(());
    }
    let is_one_of_several = context.nodes.are_many(SEVERAL, initialize::is_uninitialized);
    let find = async |is_one_of_several| {
        context.cloud.find(key(&node), is_one_of_several, since).await.map_err(Failure::Cloud)
    };
    let initialized = initialize_node(context, &node, &find(is_one_of_several).await?).await;
    if is_one_of_several && matches!(initialized, Err(Failure::Node(_))) {
        // The list may be older than the change of the node.
        return initialize_node(context, &node, &find(false).await?).await;
    }
    initialized
}

async fn initialize_node(context: &Context, node: &Value, instance: &Instance) -> Result<(), Failure> {
    let patch = |node: &Value| initialize::patch(node, instance).map_err(Failure::from);
    let Some(node) = write::change(context, Part::Node, node, patch).await? else { return Ok(()) };
    if let Some(age) = age(&node) {
        context.metrics.taint_removal_delay(age);
    }
    // The taint is gone, so a failure is corrected with the next update of all addresses.
    update::addresses(context, &node, instance).await;
    info!("Successfully initialized node {} with cloud provider", key(&node).name);
    context.events.normal(CLOUD_NODE, &node, reason::SYNCED, "Node synced successfully".to_owned());
    if let Some(age) = age(&node) {
        context.metrics.initial_sync_delay(age);
    }
    Ok(())
}

async fn repair(context: &Context, node: &Value, since: Instant) -> Result<(), Failure> {
    if initialize::repair(node).is_none()
        || context.cloud.is_foreign(key(node).provider_id, since).await.map_err(Failure::Cloud)?
    {
        return Ok(());
    }
    if write::change::<Failure>(context, Part::Node, node, |node| Ok(initialize::repair(node))).await?.is_some() {
        info!("node {}: corrected the labels", key(node).name);
    }
    Ok(())
}

/// The time since the creation of a node.
fn age(node: &Value) -> Option<Duration> {
    let created: Timestamp = node["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
    Duration::try_from(Timestamp::now().duration_since(created)).ok()
}
