//! The controller cloud-node (IO): keeps the addresses of initialized nodes up to date.

use std::convert::Infallible;

use ccm_drivers::contract::Instance;
use futures::StreamExt;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Context, passes,
    write::{self, Part},
};
use crate::{
    addresses,
    initialize::{self, Problem},
    instances::SEVERAL,
    node_events::{CLOUD_NODE, Failure, cloud_error, key},
};

/// Updates the addresses of all nodes in each period.
pub(super) async fn run(context: &Context) -> Infallible {
    context.nodes.synced().await;
    let mut passes = passes(context.options.node_status_update_frequency);
    loop {
        passes.tick().await;
        pass(context).await;
    }
}

async fn pass(context: &Context) {
    let begun = Instant::now();
    let nodes = context.nodes.select(|node| !initialize::is_uninitialized(node));
    let is_one_of_several = nodes.len() >= SEVERAL;
    let has_provider_ids = nodes.iter().any(|node| !key(node).provider_id.is_empty());
    let nodes = futures::stream::iter(nodes);
    let updates = nodes.map(|node| async move { update(context, &node, is_one_of_several, begun).await });
    updates.buffer_unordered(context.options.concurrent_node_syncs.max(1)).collect::<()>().await;
    if has_provider_ids
        && context.cloud.schemes().is_empty()
        && matches!(context.cloud.list(begun).await, Ok(all) if all.is_empty())
    {
        warn!(
            "the account {:?} of the cloud {} has no instance, so which nodes are of this cloud is not known: check the account, the \
             region and the endpoint",
            context.options.account.text(),
            context.options.cloud
        );
    }
}

async fn update(context: &Context, node: &Value, is_one_of_several: bool, begun: Instant) {
    let key = key(node);
    let found = match context.cloud.is_foreign(key.provider_id, begun).await {
        Ok(true) => return,
        Ok(false) => context.cloud.find(key, is_one_of_several, begun).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(instance) => addresses(context, node, &instance).await,
        // A node without a providerID may belong to no cloud, and one with it to another cloud while no instance of this one is known.
        Err(error) if error.is_not_found() && (key.provider_id.is_empty() || context.cloud.schemes().is_empty()) => {}
        Err(error) => {
            warn!("Error getting instance metadata for node addresses: {}: {}", key.name, cloud_error(&error));
            context.events.explain(CLOUD_NODE, node, &Failure::Cloud(error));
        }
    }
}

/// Gives a node the addresses of its instance. A failure is logged, and explained by an Event.
pub(super) async fn addresses(context: &Context, node: &Value, instance: &Instance) {
    let name = key(node).name;
    if let Err(failure) = try_addresses(context, node, instance).await {
        match &failure {
            Failure::Node(Problem::NodeIp { problem, .. }) => {
                warn!("Failed to update node addresses for node {name:?}: {problem}");
            }
            other => warn!("Failed to update node addresses for node {name:?}: {other}"),
        }
        context.events.explain(CLOUD_NODE, node, &failure);
    }
}

async fn try_addresses(context: &Context, node: &Value, instance: &Instance) -> Result<(), Failure> {
    let patch = |node: &Value| {
        let failed = |problem| Problem::NodeIp { node: key(node).name.to_owned(), problem };
        addresses::patch(node, &instance.addresses).map_err(failed)
    };
    if write::change(context, Part::Status, node, |node| Ok::<_, Failure>(patch(node)?)).await?.is_some() {
        info!("node {}: updated the addresses", key(node).name);
    }
    Ok(())
}
