//! Writes the ClusterOperator (IO).
//!
//! Each writer has its own field manager and applies its own conditions; conditions are merged by type, so that those
//! of other writers are never touched. Writes only if the live status differs.

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
    object::Kind,
    status::cluster_operator::{Status, without_obsolete_condition},
    text::yaml,
};

pub use crate::status::cluster_operator::NAME;

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

/// The kind of the object that holds the status.
pub static KIND: Kind = Kind {
    group: "config.openshift.io",
    version: "v1",
    kind: "ClusterOperator",
    plural: "clusteroperators",
    namespaced: false,
    wave: 0,
};

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
        info!("made ClusterOperator {NAME}");
    }
    let mut written = None;
    if !live.is_some_and(|live| Status::of(live).has(own)) {
        let body = json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "ClusterOperator",
            "metadata": {"name": NAME},
            "status": own,
        });
        let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(body));
        written = Some(request::send(budget(), api.patch_status(NAME, &params, &patch)).await?);
    }
    let mut written = written.as_ref().map(request::to_value);
    let cleanup = written.as_ref().or(live).filter(|_| is_well).and_then(without_obsolete_condition);
    if let Some(cleanup) = cleanup {
        let (params, patch) = (PatchParams::default(), Patch::Merge(cleanup));
        written = Some(request::to_value(&request::send(budget(), api.patch_status(NAME, &params, &patch)).await?));
    }
    Ok(written)
}
