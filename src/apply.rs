//! Applies planned objects to a cluster (IO).
//!
//! Server-side apply, forced: what is applied is ours whole. Writes only what a live object lacks, takes fields of
//! others over where an apply alone would leave them behind, and answers what it changed. It never decides what should
//! exist, and touches no object that is not planned.

pub mod ownership;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::object::{Key, Kind, Object};
use ownership::{FIELD_MANAGER, Need, need};

/// The label by which our objects are found (KEP-3659).
pub const PART_OF_LABEL: &str = "applyset.kubernetes.io/part-of";

/// The ConfigMap that will list what was applied; its identity is that of the set.
const INVENTORY: &str = "ccm-operator-inventory";

/// How often a take-over is tried that others' writes cross.
const FOLD_TRIES: usize = 3;

/// How long one request may take before it counts as failed.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// An object that could not be applied.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {object}")]
pub struct Error {
    /// The object.
    pub object: Key,
    /// What was tried.
    pub action: &'static str,
    /// The cause.
    #[source]
    pub source: Cause,
}

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API server's answer, or none at all.
    #[error("{}", crate::words(.0))]
    Api(#[from] kube::Error),
    /// No answer in time.
    #[error("no answer from the API server in time")]
    Timeout,
    /// The operator lost its lease, or is being stopped.
    #[error("the operator may not write any more: it is no longer the leader, or is being stopped")]
    NotLeading,
}

impl Cause {
    /// Whether somebody else was faster.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 409)
    }

    /// Whether the same request can never succeed: the object has to change first, or the operator's rights.
    pub fn is_terminal(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        match status.code {
            401 | 404 | 408 | 409 | 429 => false,
            400..500 => true,
            _ => self.is_invalid(),
        }
    }

    /// Whether the object was refused for what it holds.
    fn is_invalid(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        // The second is how the API server answers an object that does not fit its schema.
        let misfit = status.reason.is_empty() && status.message.contains("failed to create typed patch object");
        status.code == 422 || (status.code == 500 && misfit)
    }
}

/// The resource of a kind, known without asking the API server.
pub fn resource(kind: &Kind) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind), kind.plural)
}

/// A client for the objects of a kind.
pub fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource(kind))
    } else {
        Api::all_with(client.clone(), &resource(kind))
    }
}

/// The value of [`PART_OF_LABEL`] for the set of the operator that runs in a namespace: KEP-3659's id of its parent.
pub fn set_id(own_namespace: &str) -> String {
    let digest = Sha256::digest(format!("{INVENTORY}.{own_namespace}.ConfigMap."));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
}

/// Sends one request, if there is a budget of time for it, and gives it up when that is spent.
pub(crate) async fn send<T>(
    budget: Option<Duration>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Cause> {
    let budget = budget.ok_or(Cause::NotLeading)?.min(REQUEST_TIMEOUT);
    match tokio::time::timeout(budget, request).await {
        Ok(answer) => answer.map_err(Cause::Api),
        Err(_) => Err(Cause::Timeout),
    }
}

/// Brings one object, which is not as it should be, to what it should be. `budget` is asked before each write how long it
/// may take. Answers the object as it is then.
pub async fn apply(
    client: &Client,
    desired: &Object,
    live: Option<&Value>,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Value, Error> {
    let writer = Writer { api: api(client, desired.kind(), desired.namespace()), desired, budget };
    match live {
        Some(live) if need(desired.value(), live) == Need::FoldThenApply => writer.fold_then_apply(live).await,
        Some(_) => writer.apply_whole().await,
        None => writer.apply_unseen().await,
    }
}

struct Writer<'a, F> {
    api: Api<DynamicObject>,
    desired: &'a Object,
    budget: F,
}

impl<F: Fn() -> Option<Duration>> Writer<'_, F> {
    /// An object that is not there, or one that does not carry our label yet.
    async fn apply_unseen(&self) -> Result<Value, Error> {
        match self.apply_whole().await {
            Err(error) if error.source.is_invalid() => {
                // A field that somebody else owns can make the whole object invalid: fold it, if it is there at all.
                let live = self.read(self.api.get_opt(self.desired.name())).await;
                match live.ok().flatten().map(|live| to_value(&live)) {
                    Some(live) if need(self.desired.value(), &live) == Need::FoldThenApply => {
                        self.fold_then_apply(&live).await
                    }
                    _ => Err(error),
                }
            }
            applied => applied,
        }
    }

    async fn apply_whole(&self) -> Result<Value, Error> {
        let applied = self.server_side_apply().await?;
        // Only the answer shows what others own of an object that was not seen before.
        if need(self.desired.value(), &applied) == Need::FoldThenApply {
            return self.fold_then_apply(&applied).await;
        }
        Ok(applied)
    }

    /// Two writes. The first is guarded by the resource version; a status that is written at the same time is no reason
    /// to give up, so that it looks again.
    async fn fold_then_apply(&self, live: &Value) -> Result<Value, Error> {
        let mut fresh = None;
        for _ in 0..FOLD_TRIES {
            let live = fresh.as_ref().unwrap_or(live);
            match self.fold(live).await {
                Err(error) if error.source.is_conflict() => {
                    fresh = Some(to_value(&self.read(self.api.get(self.desired.name())).await?));
                }
                folded => {
                    folded?;
                    break;
                }
            }
        }
        self.server_side_apply().await
    }

    async fn fold(&self, live: &Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": live["metadata"]["resourceVersion"],
            "managedFields": ownership::fold(live),
        }}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.write("take over", self.api.patch(self.desired.name(), &params, &patch)).await.map(drop)
    }

    async fn server_side_apply(&self) -> Result<Value, Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(self.desired.value());
        self.write("apply", self.api.patch(self.desired.name(), &params, &patch)).await.map(|object| to_value(&object))
    }

    async fn write<T>(&self, action: &'static str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        send((self.budget)(), request).await.map_err(|source| self.error(action, source))
    }

    async fn read<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        send(Some(REQUEST_TIMEOUT), request).await.map_err(|source| self.error("read", source))
    }

    fn error(&self, action: &'static str, source: Cause) -> Error {
        Error { object: self.desired.key(), action, source }
    }
}

/// An answer of the API server as data.
pub(crate) fn to_value(object: &DynamicObject) -> Value {
    // Made from JSON a moment ago: it goes back into JSON.
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_id_is_that_of_the_enhancement_proposal() {
        // KEP-3659: base64url of the SHA-256 of <name>.<namespace>.<kind>.<group>.
        let id = set_id("ns");
        assert_eq!(id.len(), "applyset-".len() + 43 + "-v1".len());
        assert!(id.len() <= 63, "a label's value");
        assert_ne!(id, set_id("other"));
    }

    #[test]
    fn causes_are_terminal_by_their_status() {
        let status = |code, reason: &str, message: &str| {
            let status = kube::core::Status {
                code,
                reason: reason.into(),
                message: message.into(),
                ..kube::core::Status::default()
            };
            Cause::Api(kube::Error::Api(Box::new(status))).is_terminal()
        };
        assert!(status(422, "Invalid", ""));
        assert!(status(403, "Forbidden", ""));
        assert!(status(500, "", "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): …"));
        assert!(!status(500, "InternalError", "etcd is slow"));
        for code in [404, 409, 429, 503] {
            assert!(!status(code, "", ""), "{code}");
        }
        assert!(!Cause::Timeout.is_terminal());
    }
}
