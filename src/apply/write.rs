//! Writes objects to a cluster (IO): performs the steps of [`super::steps`], deletes objects, and writes the inventory.
//!
//! It uses forced server-side apply: the operator takes over every field that it applies. It never decides which objects
//! should exist.

use std::time::{Duration, Instant};

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::Value;

use crate::{
    apply::{
        change::{Action, Change},
        diff, inventory,
        ownership::{self, FIELD_MANAGER},
        steps::{self, End, Next, Refusal, Step, Steps},
    },
    cluster::request::{Cause, NO_DEADLINE, api, send, to_value},
    object::{INSTANCE_LABEL, Key, Kind, Object, TEMPORARY, reference::CONFIG_MAP},
};

/// A failed write of an object.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {object}")]
pub struct Error {
    /// The object.
    pub object: Key,
    /// The failed action.
    pub action: &'static str,
    /// The cause.
    #[source]
    pub source: Cause,
}

/// Performs the steps from the first one to the end. An error contains the last refused action and its refusal. `perform`
/// returns the object after a step; `None` if it does not exist, or if the step returns no object.
pub(super) async fn perform_steps(
    steps: &mut Steps<'_>,
    mut next: Next,
    mut perform: impl AsyncFnMut(Step) -> Result<Option<Value>, Cause>,
) -> Result<End, Error> {
    let object = steps.desired();
    let mut refused = None;
    loop {
        let step = match next {
            Next::Continue(step) => step,
            Next::Break(End::Refused) => return refused.map_or(Ok(End::Refused), Err),
            Next::Break(End::BlockedByFinalizers(finalizers)) => {
                return Err(Error {
                    object: object.key(),
                    action: "recreate",
                    source: Cause::BlockedByFinalizers(finalizers),
                });
            }
            Next::Break(End::OtherApplySet(set)) => {
                return Err(Error { object: object.key(), action: "apply", source: Cause::OtherApplySet(set) });
            }
            Next::Break(End::NotOwned(manager)) => {
                let source = Cause::NotOwned { manager, otherwise: otherwise(object) };
                return Err(Error { object: object.key(), action: "apply", source });
            }
            Next::Break(end) => return Ok(end),
        };
        let action = action(&step);
        next = match perform(step).await {
            Ok(object) => steps.next(Ok(object)),
            Err(source) => {
                let next = steps.next(Err(refusal(&source, object.kind())));
                // A failed read must not hide the refusal whose cause it was looking for.
                let is_invalid = |cause: &Cause| cause.is_invalid() && !cause.is_immutable(object.kind());
                let is_explained =
                    action == "read" && refused.as_ref().is_some_and(|error: &Error| is_invalid(&error.source));
                if !is_explained {
                    let known = [Some(object.value()), steps.seen()].into_iter().flatten();
                    refused = Some(Error { object: object.key(), action, source: redacted(source, known) });
                }
                next
            }
        };
    }
}

/// Returns the alternative to deleting an object that another manager created. OpenShift has no `CloudControllerManager`;
/// on any other Kubernetes each object has the label of its `CloudControllerManager`.
fn otherwise(object: &Object) -> &'static str {
    let has_ccm = object.value()["metadata"]["labels"][INSTANCE_LABEL].is_string();
    if has_ccm { "give the CloudControllerManager another name" } else { "rename it in the provider's folder" }
}

/// Removes the objects' secrets from a refusal.
fn redacted<'a>(mut cause: Cause, objects: impl Iterator<Item = &'a Value>) -> Cause {
    if let Cause::Api(kube::Error::Api(status)) = &mut cause {
        status.message = diff::redacted(&status.message, objects);
    }
    cause
}

fn action(step: &Step) -> &'static str {
    match step {
        Step::Read | Step::ReadTemporary => "read",
        Step::Migrate(_) => "take over",
        Step::Probe(_) | Step::Apply | Step::ApplyTemporary => "apply",
        Step::DeleteTemporary | Step::Delete(_) => "delete",
    }
}

fn refusal(cause: &Cause, kind: &Kind) -> Refusal {
    if cause.is_immutable(kind) {
        Refusal::Immutable
    } else if cause.is_invalid() {
        Refusal::Invalid
    } else if cause.is_conflict() {
        Refusal::Conflict
    } else {
        Refusal::Other
    }
}

/// The result of a write.
#[derive(Debug)]
pub struct Applied {
    /// The object after the write; `None` if nothing was written.
    pub live: Option<Value>,
    /// The change.
    pub change: Change,
}

/// Changes one object to match the plan. `next` is the first step; `budget` returns the time limit of the next
/// write.
pub async fn apply(
    client: &Client,
    mut steps: Steps<'_>,
    next: Next,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Applied, Error> {
    let desired = steps.desired();
    let key = desired.key();
    let requests = Requests { api: api(client, desired.kind(), desired.namespace()), budget, is_strict: false };
    let end = perform_steps(&mut steps, next, async |step| requests.perform(desired, step).await).await?;
    let (change, live) = match (end, steps.seen()) {
        (End::Applied(now), Some(before)) => (Change::between(key, before, &now), Some(now)),
        (End::Applied(now), None) => {
            let action = if ownership::is_new(&now) { Action::Create } else { Action::Configure };
            (Change::plain(key, action), Some(now))
        }
        (End::Recreated { before, after }, _) => (Change::recreated(key, &before, &after), Some(after)),
        (End::LeftAlone(live), _) => (Change::plain(key, Action::Skip).because(inventory::LEFT_ALONE), live),
        (End::Unchanged | End::Refused | End::BlockedByFinalizers(_) | End::OtherApplySet(_) | End::NotOwned(_), _) => {
            (Change::plain(key, Action::Unchanged), None)
        }
    };
    Ok(Applied { live, change })
}

/// The result of a deletion.
#[derive(Debug)]
pub enum Pruned {
    /// The object was deleted.
    Gone,
    /// The object did not exist.
    Absent,
    /// The object is deleted once its finalizers are removed.
    Terminating(Value),
}

/// Deletes an object, but only if it is still in the state `live`.
pub async fn prune(client: &Client, kind: &Kind, live: &Value, budget: Option<Duration>) -> Result<Pruned, Error> {
    let key = key_of(kind, live);
    let requests = Requests { api: api(client, kind, &key.namespace), budget: || budget, is_strict: false };
    match requests.delete(live).await {
        Ok(left) => Ok(left.map_or(Pruned::Gone, Pruned::Terminating)),
        Err(cause) if cause.is_absent() => Ok(Pruned::Absent),
        Err(source) => Err(Error { object: key, action: "delete", source: redacted(source, std::iter::once(live)) }),
    }
}

/// Writes the inventory; `live` is its last known state. Recreates it if another client has made it immutable.
pub async fn write_inventory(
    client: &Client,
    config_map: &Value,
    live: Option<&Value>,
    budget: Option<Duration>,
) -> Result<Value, Error> {
    let object = key_of(&CONFIG_MAP, config_map);
    let deadline = budget.and_then(|budget| Instant::now().checked_add(budget));
    // All requests share the budget.
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let requests = Requests { api: api(client, &CONFIG_MAP, &object.namespace), budget: left, is_strict: false };
    let mut guarded = config_map.clone();
    if let Some(live) = live {
        // Another leader's write must cause a conflict, so that it is read first.
        guarded["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    let written = match (requests.apply(&guarded, false).await, live) {
        (Err(cause), Some(live)) if cause.is_immutable(&CONFIG_MAP) => match requests.delete(live).await {
            Ok(_) => requests.apply(config_map, false).await,
            Err(cause) => Err(cause),
        },
        (written, _) => written,
    };
    written.map_err(|source| Error { object, action: "write the inventory", source })
}

/// Returns the key of a live object of this kind.
pub fn key_of(kind: &Kind, live: &Value) -> Key {
    Key::new(kind, live["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(live))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Requests for objects of one kind in one namespace; each write asks `budget` for its time limit.
pub(super) struct Requests<F> {
    pub(super) api: Api<DynamicObject>,
    pub(super) budget: F,
    /// Whether the API server refuses unknown and duplicate fields.
    pub(super) is_strict: bool,
}

impl<F: Fn() -> Option<Duration>> Requests<F> {
    pub(super) async fn perform(&self, object: &Object, step: Step) -> Result<Option<Value>, Cause> {
        let name = object.name();
        match step {
            Step::Read => self.read(name).await,
            Step::ReadTemporary => self.read(&format!("{name}{TEMPORARY}")).await,
            Step::Probe(_) => self.apply(&ownership::bare(object.value()), true).await.map(Some),
            Step::Migrate(live) => self.merge(name, &steps::migration_patch(&live), false).await.map(|_| None),
            Step::Apply => self.apply(object.value(), false).await.map(Some),
            Step::ApplyTemporary => self.apply(&steps::temporary(object), !steps::is_binding(object)).await.map(Some),
            Step::DeleteTemporary => {
                let temporary = format!("{name}{TEMPORARY}");
                let temporary = send(NO_DEADLINE, self.api.get(&temporary)).await?;
                self.delete(&to_value(&temporary)).await
            }
            Step::Delete(live) => self.delete(&live).await,
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Value>, Cause> {
        let live = send(NO_DEADLINE, self.api.get_opt(name)).await?;
        Ok(live.as_ref().map(to_value))
    }

    pub(super) async fn apply(&self, object: &Value, dry_run: bool) -> Result<Value, Cause> {
        let params = PatchParams { dry_run, ..PatchParams::apply(FIELD_MANAGER).force() };
        let params = if self.is_strict { params.validation_strict() } else { params };
        self.patch(name_of(object), &params, &Patch::Apply(object)).await
    }

    pub(super) async fn merge(&self, name: &str, patch: &Value, dry_run: bool) -> Result<Value, Cause> {
        let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.patch(name, &params, &Patch::Merge(patch)).await
    }

    async fn patch(&self, name: &str, params: &PatchParams, patch: &Patch<&Value>) -> Result<Value, Cause> {
        send((self.budget)(), self.api.patch(name, params, patch)).await.map(|answer| to_value(&answer))
    }

    /// Deletes an object in this state, and its dependents. Returns the object if finalizers block its deletion.
    async fn delete(&self, live: &Value) -> Result<Option<Value>, Cause> {
        let text = |name: &str| live["metadata"][name].as_str().map(ToOwned::to_owned);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions { uid: text("uid"), resource_version: text("resourceVersion") }),
            ..DeleteParams::default()
        };
        let answer = send((self.budget)(), self.api.delete(name_of(live), &params)).await?;
        Ok(answer.left().map(|left| to_value(&left)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_helps_against_an_object_of_others_is_possible_in_its_cluster() {
        let refusal = |labels: Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b", "labels": labels},
            });
            let otherwise = otherwise(&Object::new(object).unwrap());
            Cause::NotOwned { manager: "helm".into(), otherwise }.to_string()
        };
        let of_ccm = refusal(json!({INSTANCE_LABEL: "cluster"}));
        assert!(of_ccm.ends_with("delete it, or give the CloudControllerManager another name"), "{of_ccm}");
        let of_openshift = refusal(json!({"k8s-app": "acme-cloud-controller-manager"}));
        assert!(of_openshift.ends_with("delete it, or rename it in the provider's folder"), "{of_openshift}");
    }
}
