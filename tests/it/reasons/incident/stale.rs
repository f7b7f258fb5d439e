//! What was true a moment ago confirms nothing: that the leader has led for long, or that somebody has allowed a deletion.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use serde_json::json;

use super::{Incident, LONG_AGO, World, items, text};
use crate::{lab::LIMIT, support::eventually};

impl Incident {
    /// A leader with the wrong credentials, a moment after the operator has read that the previous one had led for long: it takes one
    /// node for gone, which is few enough, and has been unready for long enough. Only the leader is too new.
    pub(super) async fn a_new_leader_confirms_nothing(&self, world: &World, unready: &[String]) -> Result<()> {
        let started = Instant::now();
        let why = self.waits(world, unready, "must have led for 10 minutes").await?;
        let list = listed(world).await?;
        ensure!(list == "[]", "{list}");
        self.note(world, "guarded, a new leader", started, &why)
    }

    /// Somebody has allowed the deletion of a node, which comes back before it is deleted. It goes away again, and that is another
    /// question.
    pub(super) async fn what_was_allowed_before_confirms_nothing(
        &self,
        world: &mut World,
        unready: &[String],
    ) -> Result<()> {
        let started = Instant::now();
        let node = unready.first().context("a node")?;
        let allowed = state(world, node).await?;
        // It would delete the node at once, as it may.
        world.stop().await?;
        world.patch(json!({"nodeDeletion": {"allow": [allowed]}})).await?;
        list_is(world, &format!("['{allowed}']")).await?;
        world.set_ready(node, "True", 0).await?;
        list_is(world, "[]").await?;
        world.set_ready(node, "Unknown", LONG_AGO).await?;
        world.restart().await?;
        // Its lease is read once a minute: until then it is not known since when it has led.
        let why = self.waits(world, unready, "led").await?;
        let list = listed(world).await?;
        ensure!(list == "[]", "{list}");
        self.note(world, "guarded, a node that was allowed, came back and went away", started, &why)
    }
}

/// A node in its present state, as `spec.nodeDeletion.allow` and the policy list it.
async fn state(world: &World, node: &str) -> Result<String> {
    let live = serde_json::to_value(world.nodes().get(node).await?)?;
    let ready = items(&live["status"]["conditions"]).iter().find(|one| one["type"] == "Ready").context("Ready")?;
    Ok(format!("{node}/{}/{}", text(&live["metadata"]["uid"]), text(&ready["lastTransitionTime"])))
}

/// The list of the policy.
async fn listed(world: &World) -> Result<String> {
    let kind = KINDS.iter().find(|kind| kind.kind == "ValidatingAdmissionPolicy").context("the kind")?;
    let policies = request::api(&world.cluster.client, kind, "");
    let live = policies.get(&format!("{}-delete-nodes", world.name())).await?;
    Ok(text(&live.data["spec"]["variables"][0]["expression"]).to_owned())
}

async fn list_is(world: &World, expected: &str) -> Result<()> {
    let waited = eventually("the list of the policy", LIMIT, async || {
        let list = listed(world).await?;
        ensure!(list == expected, "{list}");
        Ok(Some(()))
    });
    waited.await.with_context(|| world.operator.log())
}
