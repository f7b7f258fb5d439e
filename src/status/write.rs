//! Writes the ClusterOperator (IO).
//!
//! Each writer has its own field manager and applies its own conditions. Conditions are merged by type, so a writer
//! never changes those of others. It writes only if the live status differs.

use std::time::Duration;

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::info;

use crate::{
    apply::{change::essence, ownership::FIELD_MANAGER},
    cluster::request,
    status::cluster_operator::{Status, without_obsolete_condition},
    text::yaml,
};

pub use crate::status::cluster_operator::{KIND, NAME};

/// The ClusterOperator that the cluster's version operator installs.
const MANIFEST: &str =
    include_str!("../../manifests/0000_26_cloud-controller-manager-operator_60_clusteroperator.yaml");

/// Why the status was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded manifest is broken; the tests exclude it.
    #[error("failed to parse the embedded ClusterOperator manifest")]
    Manifest(#[from] yaml::Error),
    /// The API server did not accept it.
    #[error("failed to write the status of ClusterOperator {NAME}")]
    Api(#[from] request::Cause),
}

impl Error {
    /// The time after which the API server has asked to retry.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Api(cause) => cause.retry_after(),
            Self::Manifest(_) => Duration::ZERO,
        }
    }
}

/// Whether [`write()`] has anything to write.
pub fn is_needed(live: Option<&Value>, own: &Status, is_well: bool) -> bool {
    let Some(live) = live else { return true };
    !Status::of(live).has(own) || (is_well && without_obsolete_condition(live).is_some())
}

/// Writes a field manager's own part of the status; `live` is `None` if there is no ClusterOperator. `budget` returns
/// how long the next write may take. Returns the object after the writes, `None` if nothing had to be written.
pub async fn write(
    client: &Client,
    live: Option<&Value>,
    (manager, own): (&str, &Status),
    is_well: bool,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Option<Value>, Error> {
    let api = request::api(client, &KIND, "");
    if live.is_none() {
        let manifest = essence(&yaml::from_str(MANIFEST)?);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        request::send(budget(), api.patch(NAME, &params, &Patch::Apply(manifest))).await?;
        info!("created ClusterOperator {NAME}");
    }
    let patch_status = async |params: PatchParams, patch: Patch<Value>| {
        let written = request::send(budget(), api.patch_status(NAME, &params, &patch)).await?;
        Ok::<_, Error>(Some(request::to_value(&written)))
    };
    let mut written = None;
    if !live.is_some_and(|live| Status::of(live).has(own)) {
        let metadata = json!({"name": NAME});
        let object = json!({"apiVersion": KIND.api_version(), "kind": KIND.kind, "metadata": metadata, "status": own});
        written = patch_status(PatchParams::apply(manager).force(), Patch::Apply(object)).await?;
    }
    let cleanup = written.as_ref().or(live).filter(|_| is_well).and_then(without_obsolete_condition);
    if let Some(cleanup) = cleanup {
        written = patch_status(PatchParams::default(), Patch::Merge(cleanup)).await?;
    }
    Ok(written)
}
