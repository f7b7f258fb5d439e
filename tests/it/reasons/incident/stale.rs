//! Outdated knowledge confirms no deletion: neither that the leader has led for long, nor that somebody has allowed it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use serde_json::json;

use super::{Fixture, Incident, LONG_AGO, items, text};
use crate::{lab::LIMIT, support::eventually};

impl Incident {
    /// A leader with the wrong credentials, a moment after the operator has read that the previous one had led for long: it takes one
    /// node for gone, which is few enough, and has been unready for long enough. Only the leader is too new.
    pub(super) async fn a_new_leader_confirms_nothing(&self, fixture: &Fixture, unready: &[String]) -> Result<()> {
        let started = Instant::now();
        let why = self.waits(fixture, unready, "must have led for 10 minutes").await?;
        let list = listed(fixture).await?;
        ensure!(list == "[]", "{list}");
        self.note(fixture, "guarded, a new leader", started, &why)
    }

    /// Somebody has allowed the deletion of a node, which comes back before it is deleted. It goes away again, and that is another
    /// question.
    pub(super) async fn what_was_allowed_before_confirms_nothing(
        &self,
        fixture: &mut Fixture,
        unready: &[String],
    ) -> Result<()> {
        let started = Instant::now();
        let node = unready.first().context("a node")?;
        let allowed = state(fixture, node).await?;
        // It would delete the node at once, as it may.
        fixture.stop().await?;
        fixture.patch(json!({"nodeDeletion": {"allow": [allowed]}})).await?;
        list_is(fixture, &format!("['{allowed}']")).await?;
        fixture.set_ready(node, "True", 0).await?;
        list_is(fixture, "[]").await?;
        fixture.set_ready(node, "Unknown", LONG_AGO).await?;
        fixture.restart().await?;
        // Its lease is read once a minute: until then it is not known since when it has led.
        let why = self.waits(fixture, unready, "led").await?;
        let list = listed(fixture).await?;
        ensure!(list == "[]", "{list}");
        self.note(fixture, "guarded, a node that was allowed, came back and went away", started, &why)
    }
}

/// A node in its present state, as `spec.nodeDeletion.allow` and the policy list it.
async fn state(fixture: &Fixture, node: &str) -> Result<String> {
    let live = serde_json::to_value(fixture.nodes().get(node).await?)?;
    let ready = items(&live["status"]["conditions"]).iter().find(|one| one["type"] == "Ready").context("Ready")?;
    Ok(format!("{node}/{}/{}", text(&live["metadata"]["uid"]), text(&ready["lastTransitionTime"])))
}

/// The list of the policy.
async fn listed(fixture: &Fixture) -> Result<String> {
    let kind = KINDS.iter().find(|kind| kind.kind == "ValidatingAdmissionPolicy").context("the kind")?;
    let policies = request::api(&fixture.cluster.client, kind, "");
    let live = policies.get(&format!("{}-delete-nodes", fixture.name())).await?;
    Ok(text(&live.data["spec"]["variables"][0]["expression"]).to_owned())
}

async fn list_is(fixture: &Fixture, expected: &str) -> Result<()> {
    let waited = eventually("the list of the policy", LIMIT, async || {
        let list = listed(fixture).await?;
        ensure!(list == expected, "{list}");
        Ok(Some(()))
    });
    waited.await.with_context(|| fixture.operator.log())
}
