//! Writes objects to a cluster (IO): performs the steps of [`super::steps`], deletes, and keeps the inventory.
//!
//! Server-side apply, forced: what is applied is ours whole. It never decides what should exist.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::Value;

use crate::{
    apply::{
        change::{Action, Change},
        inventory,
        ownership::{self, FIELD_MANAGER},
        steps::{self, Answer, End, Ladder, Next, Refusal, STAND_IN, Step},
    },
    cluster::request::{Cause, REQUEST_TIMEOUT, api, send, to_value},
    object::{Key, Kind, Object, reference::CONFIG_MAP},
};

/// An object that could not be written.
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

/// What performs the steps of a ladder.
pub(super) trait Executor {
    /// Performs a step. The answer is the object as it is then; `None` when there is none, or when the step has no answer.
    async fn perform(&mut self, object: &Object, step: Step) -> Result<Option<Value>, Cause>;
}

/// Climbs a ladder from its first step to its end; an error is the last refusal, with what was tried.
pub(super) async fn climb(
    ladder: &mut Ladder<'_>,
    mut next: Next,
    executor: &mut impl Executor,
) -> Result<End, (&'static str, Cause)> {
    let mut refused = None;
    loop {
        let step = match next {
            Next::Step(step) => step,
            Next::End(End::Refused) => return refused.map_or(Ok(End::Refused), Err),
            Next::End(End::Held(finalizers)) => return Err(("recreate", Cause::Held(finalizers))),
            Next::End(end) => return Ok(end),
        };
        let action = action(&step);
        next = match executor.perform(ladder.desired(), step).await {
            Ok(object) => ladder.next(Answer::Object(object)),
            Err(cause) => {
                let next = ladder.next(Answer::Refused(refusal(&cause)));
                refused = Some((action, cause));
                next
            }
        };
    }
}

fn action(step: &Step) -> &'static str {
    match step {
        Step::Read => "read",
        Step::Fold(_) => "take over",
        Step::Probe(_) | Step::Apply | Step::StandIn => "apply",
        Step::DeleteStandIn | Step::Delete(_) => "delete",
    }
}

fn refusal(cause: &Cause) -> Refusal {
    if cause.is_immutable() {
        Refusal::Immutable
    } else if cause.is_invalid() {
        Refusal::Invalid
    } else if cause.is_conflict() {
        Refusal::Conflict
    } else {
        Refusal::Other
    }
}

/// An object that was written.
#[derive(Debug)]
pub struct Applied {
    /// The object as it is now; `None` when nothing was written.
    pub live: Option<Value>,
    /// What was done to it.
    pub change: Change,
}

/// Brings one object to the plan. `next` is the first step of the ladder; `budget` returns how long the next write may
/// take.
pub async fn apply(
    client: &Client,
    mut ladder: Ladder<'_>,
    next: Next,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Applied, Error> {
    let desired = ladder.desired();
    let key = desired.key();
    let mut writer = Writer { api: api(client, desired.kind(), desired.namespace()), budget };
    let end = climb(&mut ladder, next, &mut writer).await;
    let end = end.map_err(|(action, source)| Error { object: key.clone(), action, source })?;
    let (change, live) = match (end, ladder.seen()) {
        (End::Applied(now), Some(before)) => (Change::between(key, before, &now), Some(now)),
        (End::Applied(now), None) => {
            let action = if ownership::is_new(&now) { Action::Create } else { Action::Configure };
            (Change::plain(key, action), Some(now))
        }
        (End::Recreated { before, after }, _) => (Change::recreated(key, &before, &after), Some(after)),
        (End::LeftAlone(live), _) => (Change::plain(key, Action::Skip).because(inventory::LEFT_ALONE), live),
        (End::Unchanged | End::Refused | End::Held(_), _) => (Change::plain(key, Action::Unchanged), None),
    };
    Ok(Applied { live, change })
}

/// The result of a deletion.
#[derive(Debug)]
pub enum Pruned {
    /// It is gone by this.
    Gone,
    /// It was gone before.
    Absent,
    /// It goes when its finalizers are removed.
    Terminating(Value),
}

/// Deletes an object as it was seen, and no other state of it.
pub async fn prune(client: &Client, kind: &Kind, live: &Value, budget: Option<Duration>) -> Result<Pruned, Error> {
    let key = key_of(kind, live);
    let api = api(client, kind, &key.namespace);
    match send(budget, api.delete(&key.name, &delete_params(live))).await {
        Ok(answer) => Ok(answer.left().map_or(Pruned::Gone, |left| Pruned::Terminating(to_value(&left)))),
        Err(cause) if cause.is_absent() => Ok(Pruned::Absent),
        Err(source) => Err(Error { object: key, action: "delete", source }),
    }
}

/// Writes the inventory; `live` is its last known state.
pub async fn write_inventory(
    client: &Client,
    mut config_map: Value,
    live: Option<&Value>,
    budget: Option<Duration>,
) -> Result<Value, Error> {
    if let Some(live) = live {
        // What another leader has written meanwhile has to be read first.
        config_map["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    let object = key_of(&CONFIG_MAP, &config_map);
    let api = api(client, &CONFIG_MAP, &object.namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = send(budget, api.patch(inventory::NAME, &params, &Patch::Apply(&config_map))).await;
    let failed = |source| Error { object, action: "write the inventory", source };
    written.map(|object| to_value(&object)).map_err(failed)
}

/// The key of a live object of a kind.
pub fn key_of(kind: &Kind, live: &Value) -> Key {
    let text = |name: &str| live["metadata"][name].as_str().unwrap_or_default().to_owned();
    Key { group: kind.group.to_owned(), kind: kind.kind.to_owned(), namespace: text("namespace"), name: text("name") }
}

/// The state that was seen, and with it what it has made.
fn delete_params(live: &Value) -> DeleteParams {
    let text = |name: &str| live["metadata"][name].as_str().map(ToOwned::to_owned);
    DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: text("uid"), resource_version: text("resourceVersion") }),
        ..DeleteParams::default()
    }
}

/// The parameters of an apply.
pub(super) fn apply_params(dry_run: bool) -> PatchParams {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    if dry_run { params.dry_run() } else { params }
}

struct Writer<F> {
    api: Api<DynamicObject>,
    budget: F,
}

impl<F: Fn() -> Option<Duration>> Executor for Writer<F> {
    async fn perform(&mut self, object: &Object, step: Step) -> Result<Option<Value>, Cause> {
        let name = object.name();
        match step {
            Step::Read => {
                let live = send(Some(REQUEST_TIMEOUT), self.api.get_opt(name)).await?;
                Ok(live.as_ref().map(to_value))
            }
            Step::Probe(_) => self.apply(name, &ownership::bare(object.value()), true).await,
            Step::Fold(live) => {
                let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                let patch = Patch::Merge(steps::fold_patch(&live));
                send((self.budget)(), self.api.patch(name, &params, &patch)).await.map(|_| None)
            }
            Step::Apply => self.apply(name, object.value(), false).await,
            Step::StandIn => {
                let name = format!("{name}{STAND_IN}");
                self.apply(&name, &steps::stand_in(object), !steps::is_binding(object)).await
            }
            Step::DeleteStandIn => {
                let name = format!("{name}{STAND_IN}");
                let old = to_value(&send(Some(REQUEST_TIMEOUT), self.api.get(&name)).await?);
                self.delete(&name, &old).await
            }
            Step::Delete(live) => self.delete(name, &live).await,
        }
    }
}

impl<F: Fn() -> Option<Duration>> Writer<F> {
    async fn apply(&self, name: &str, object: &Value, dry_run: bool) -> Result<Option<Value>, Cause> {
        let patch = Patch::Apply(object);
        let answer = send((self.budget)(), self.api.patch(name, &apply_params(dry_run), &patch)).await?;
        Ok(Some(to_value(&answer)))
    }

    async fn delete(&self, name: &str, live: &Value) -> Result<Option<Value>, Cause> {
        let answer = send((self.budget)(), self.api.delete(name, &delete_params(live))).await?;
        Ok(answer.left().map(|left| to_value(&left)))
    }
}
