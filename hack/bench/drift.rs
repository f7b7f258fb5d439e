//! Changes objects of the operator, and measures the repair.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    ResourceExt,
    api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    measure::{LIMIT, SETTLE},
    program::{self, CCM, Watch},
    support::{audit::Request, lab::Lab},
};

/// The operator treats an object that needs more frequent repairs as contested, and slows down.
const BETWEEN_REPAIRS: Duration = Duration::from_secs(1);

/// A change by an administrator or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The Deployment is deleted.
    Deleted,
    /// The Deployment gets another image, by an update.
    Image,
    /// The Deployment is scaled, by its subresource.
    Scaled,
    /// The Deployment loses one of its labels.
    Label,
    /// The Service gets another port, by an update.
    Port,
}

/// The repair of a drift.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// From the answer to the change until the object was repaired.
    pub time: Duration,
    /// Writes to the object.
    pub object_writes: usize,
    /// Writes to the `ClusterOperator`.
    pub status_writes: usize,
}

impl Drift {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Deleted, Self::Image, Self::Scaled, Self::Label, Self::Port];

    fn resource(self) -> ApiResource {
        match self {
            Self::Deleted | Self::Image | Self::Scaled | Self::Label => ApiResource::erase::<Deployment>(&()),
            Self::Port => ApiResource::erase::<Service>(&()),
        }
    }

    /// Changes the object `before`. Returns the new resource version, unless the object was deleted.
    async fn act(self, api: &Api<DynamicObject>, before: &DynamicObject) -> Result<Option<String>> {
        let mut changed = before.clone();
        // The stand-in for the workload controllers may have written a status meanwhile.
        changed.metadata.resource_version = None;
        let after = match self {
            Self::Deleted => {
                api.delete(CCM, &DeleteParams::default()).await?;
                return Ok(None);
            }
            Self::Image => {
                changed.data["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/other");
                api.replace(CCM, &PostParams::default(), &changed).await?.metadata
            }
            Self::Port => {
                changed.data["spec"]["ports"][0]["port"] = json!(10259);
                api.replace(CCM, &PostParams::default(), &changed).await?.metadata
            }
            Self::Scaled => {
                let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
                api.patch_scale(CCM, &PatchParams::default(), &patch).await?.metadata
            }
            Self::Label => {
                let patch = Patch::Merge(json!({"metadata": {"labels": {"k8s-app": null}}}));
                api.patch(CCM, &PatchParams::default(), &patch).await?.metadata
            }
        };
        Ok(after.resource_version)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Deleted => "Deployment deleted",
            Self::Image => "Deployment's image changed",
            Self::Scaled => "Deployment scaled",
            Self::Label => "Deployment's label removed",
            Self::Port => "Service's port changed",
        })
    }
}

/// Makes the change and waits for the repair.
pub async fn repair(lab: &Lab, drift: Drift) -> Result<Repair> {
    let api = program::api(&lab.client, &drift.resource());
    let before = api.get(CCM).await?;
    let mut states = Watch::after(&api, &before).await?;
    let mark = lab.mark().await?;
    let drifted = drift.act(&api, &before).await?;
    let answered = Instant::now();
    let is_after_drift = |now: &DynamicObject| match &drifted {
        None => now.uid() != before.uid(),
        Some(version) => revision(now.resource_version().as_ref()) > revision(Some(version)),
    };
    let is_permission =
        |now: &DynamicObject| now.data["spec"] == before.data["spec"] && now.labels() == before.labels();
    let repaired = states.until("the drift is repaired", LIMIT, |now| is_after_drift(now) && is_permission(now)).await;
    let (repaired, _) = repaired.with_context(|| drift.to_string())?;
    sleep(SETTLE.max(BETWEEN_REPAIRS)).await;

    let writes = lab.requests(mark).await?.into_iter().filter(Request::counts_as_write);
    let plural = drift.resource().plural;
    let (object, others): (Vec<_>, Vec<_>) = writes.partition(|write| write.resource == plural);
    let time = repaired - answered;
    Ok(Repair { time, object_writes: object.len(), status_writes: others.len() })
}

/// Resource versions are increasing numbers.
fn revision(version: Option<&String>) -> Option<u64> {
    version?.parse().ok()
}
