//! Writes the ClusterOperator (IO).
//!
//! Each writer has its own field manager and applies its own conditions. Conditions are merged by type, so a writer never changes
//! another writer's conditions. It writes only if the live status differs.

use std::time::Duration;

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::{
    apply::{change::essence, ownership::FIELD_MANAGER},
    cluster::request::{self, Cause},
    error::chain,
    object::Kind,
    status::cluster_operator::{Status, without_obsolete_condition},
    text::yaml,
};

pub(crate) use crate::status::cluster_operator::{KIND, NAME};

/// The ClusterOperator that the cluster's version operator installs.
const MANIFEST: &str =
    include_str!("../../manifests/0000_26_cloud-controller-manager-operator_60_clusteroperator.yaml");

/// Returns the message for a failed status write.
pub(crate) fn failure(cause: &Cause) -> String {
    format!("failed to write the status of ClusterOperator {NAME}: {}", chain(cause))
}

/// Whether [`write()`] would write anything.
pub(crate) fn is_needed(live: Option<&Value>, own: &Status, is_well: bool) -> bool {
    let Some(live) = live else { return true };
    !Status::of(live).has(own) || (is_well && without_obsolete_condition(live).is_some())
}

/// Writes a field manager's own part of the status; `live` is `None` if there is no ClusterOperator. `budget` returns the time limit of
/// the next write. Returns the object after the writes, or `None` if nothing had to be written.
pub(crate) async fn write(
    client: &Client,
    live: Option<&Value>,
    (manager, own): (&str, &Status),
    is_well: bool,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Option<Value>, Cause> {
    let api = request::api(client, &KIND, "");
    if live.is_none() {
        // The tests ensure that the manifest is valid.
        let manifest = essence(&yaml::from_str(MANIFEST).unwrap_or_default());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        request::send(budget(), api.patch(NAME, &params, &Patch::Apply(manifest))).await?;
        info!("created ClusterOperator {NAME}");
    }
    let mut written = None;
    if !live.is_some_and(|live| Status::of(live).has(own)) {
        written = Some(apply(client, (&KIND, NAME), manager, own, budget()).await?);
    }
    let cleanup = written.as_ref().or(live).filter(|_| is_well).and_then(without_obsolete_condition);
    if let Some(cleanup) = cleanup {
        let cleanup = Patch::Merge(cleanup);
        let answer = request::send(budget(), api.patch_status(NAME, &PatchParams::default(), &cleanup)).await?;
        written = Some(request::to_value(&answer));
    }
    Ok(written)
}

/// Applies a field manager's own part of the status of a cluster-scoped object, and returns the object.
pub(crate) async fn apply(
    client: &Client,
    (kind, name): (&Kind, &str),
    manager: &str,
    status: &impl Serialize,
    budget: Option<Duration>,
) -> Result<Value, Cause> {
    let metadata = json!({"name": name});
    let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "status": status});
    let (api, params) = (request::api(client, kind, ""), PatchParams::apply(manager).force());
    let written = request::send(budget, api.patch_status(name, &params, &Patch::Apply(object))).await?;
    Ok(request::to_value(&written))
}
