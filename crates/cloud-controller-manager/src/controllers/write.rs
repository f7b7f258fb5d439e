//! Changes of nodes (IO): each with the state that was decided on as its condition, and only while this process leads.

use std::time::Duration;

use ccm_base::object::NODE;
use ccm_kit::cluster::request::{self, Cause, REQUEST_TIMEOUT};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::Value;

use super::Context;
use crate::node_events::key;

/// The maximum number of attempts to change a node that others change meanwhile.
const ATTEMPTS: usize = 20;

/// The shortest pause between two attempts. The longest is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// What of a node is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Metadata and spec.
    Node,
    /// The status.
    Status,
}

/// Changes a node as `change` decides, from the state that is given. If others change it meanwhile, `change` decides again from the
/// new state, unless the node has got another providerID: then what was found about its instance is not about this node any more.
/// Returns the new state, or `None` if there was nothing to change or the node is gone.
pub(super) async fn change<E: From<Cause>>(
    context: &Context,
    part: Part,
    node: &Value,
    change: impl Fn(&Value) -> Result<Option<Value>, E>,
) -> Result<Option<Value>, E> {
    let nodes = request::api(&context.client, &NODE, "");
    let mut node = node.clone();
    let mut left = ATTEMPTS;
    loop {
        let Some(patch) = change(&node)? else { return Ok(None) };
        left -= 1;
        match send(context, &nodes, part, &node, patch).await {
            Ok(changed) => {
                let now = request::to_value(&changed);
                context.nodes.put(changed);
                return Ok(Some(now));
            }
            Err(cause) if cause.is_absent() => return Ok(None),
            Err(cause) if !cause.is_conflict() || left == 0 => return Err(cause.into()),
            Err(_) => {}
        }
        let jitter = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
        tokio::time::sleep(PAUSE + PAUSE * jitter / 1000).await;
        match request::send(Some(REQUEST_TIMEOUT), nodes.get(name(&node))).await {
            Ok(now) => {
                let now = request::to_value(&now);
                // Another node has the name now, or the node another instance. The watch queues it.
                if !is_same(&now, &node) {
                    return Ok(None);
                }
                node = now;
            }
            Err(cause) if cause.is_absent() => return Ok(None),
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// Whether two states are of one node that has the same instance.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    one["metadata"]["uid"] == other["metadata"]["uid"] && key(one).provider_id == key(other).provider_id
}

async fn send(
    context: &Context,
    nodes: &Api<DynamicObject>,
    part: Part,
    node: &Value,
    mut patch: Value,
) -> Result<DynamicObject, Cause> {
    for field in ["uid", "resourceVersion"] {
        patch["metadata"][field] = node["metadata"][field].clone();
    }
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let _writing = context.writing.read().await;
    let budget = context.authority.write_budget();
    match part {
        Part::Node => request::send(budget, nodes.patch(name(node), &params, &patch)).await,
        Part::Status => request::send(budget, nodes.patch_status(name(node), &params, &patch)).await,
    }
}

/// Deletes a node, if it is still in this state.
pub(super) async fn delete(context: &Context, node: &Value) -> Result<(), Cause> {
    let text = |field: &str| node["metadata"][field].as_str().map(ToOwned::to_owned);
    let preconditions = Preconditions { uid: text("uid"), resource_version: text("resourceVersion") };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let nodes = request::api(&context.client, &NODE, "");
    let _writing = context.writing.read().await;
    request::send(context.authority.write_budget(), nodes.delete(name(node), &params)).await.map(drop)
}

fn name(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}
