//! Writes the ClusterOperator (IO).
//!
//! One field manager for each writer, one apply of its own conditions; conditions of other writers are merged by their
//! type and never touched. Writes only when something is to be said that is not said yet.

use std::time::Duration;

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::info;

use crate::cluster::request;
use crate::object::Kind;
use crate::status::cluster_operator::{Status, without_obsolete_condition};

pub use crate::status::cluster_operator::NAME;
use crate::{apply::ownership::FIELD_MANAGER, text::yaml};

/// The ClusterOperator as the cluster's version operator installs it.
const MANIFEST: &str =
    include_str!("../../manifests/0000_26_cloud-controller-manager-operator_60_clusteroperator.yaml");

/// Why the status was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded manifest is broken: a defect of this build, excluded by the tests.
    #[error("failed to parse the embedded ClusterOperator manifest")]
    Manifest(#[from] yaml::Error),
    /// The API server did not take it.
    #[error("failed to write the status of ClusterOperator {NAME}")]
    Api(#[from] request::Cause),
}

impl Error {
    /// How long the API server has asked to be left alone.
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

/// Makes the live ClusterOperator say what a field manager is to say; `None` is one that does not exist. `budget` is asked
/// before each write how long it may take. Answers what it is now, or `None` when nothing had to be written.
pub async fn write(
    client: &Client,
    live: Option<&Value>,
    (manager, own): (&str, &Status),
    is_well: bool,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Option<Value>, Error> {
    let api = request::api(client, &KIND, "");
    if live.is_none() {
        let mut manifest: Value = yaml::from_str(MANIFEST)?;
        if let Some(members) = manifest.as_object_mut() {
            members.remove("status");
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        request::send(budget(), api.patch(NAME, &params, &Patch::Apply(manifest))).await?;
        info!("made ClusterOperator {NAME}");
    }
    let mut written = None;
    if !live.is_some_and(|live| Status::of(live).says(own)) {
        let body = json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "ClusterOperator",
            "metadata": {"name": NAME},
            "status": own,
        });
        let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(body));
        written = Some(request::send(budget(), api.patch_status(NAME, &params, &patch)).await?);
    }
    if is_well
        && let Some(patch) =
            written.as_ref().map(request::to_value).as_ref().or(live).and_then(without_obsolete_condition)
    {
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        written = Some(request::send(budget(), api.patch_status(NAME, &params, &patch)).await?);
    }
    Ok(written.as_ref().map(request::to_value))
}
