//! Finds the changes that the operator would make (IO): performs [`super::steps`] as dry runs, and writes nothing.
//!
//! An object that differs from the plan costs one request: the apply that the operator would send. A migration needs two
//! writes, and the API server can dry-run the second one only after the first. So [`preview`] computes the result of
//! both, and a dry run checks whether the API server accepts the result.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::{
    apply::{
        change::{Action, Change},
        diff::Diff,
        inventory::{self, Inventory, PruneDecision},
        ownership::preview,
        steps::{self, End, LiveState, Step, Steps},
        write::{self, Requests, perform_steps},
    },
    cluster::{
        read,
        request::{Cause, NO_DEADLINE, api},
    },
    error::chain,
    object::{Key, Object, PART_OF_LABEL, reference::CONFIG_MAP},
};

/// The number of concurrent requests; with HTTP/1.1 each needs its own connection.
const CONCURRENCY: usize = 4;

/// The reason why the changes are unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster cannot be read.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The API server did not answer a dry run.
    #[error(transparent)]
    Ask(#[from] write::Error),
}

impl Error {
    /// Returns the retry delay that the API server asks for.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Read(error) => error.retry_after(),
            Self::Ask(error) => error.source.retry_after(),
        }
    }
}

/// Returns the changes to the configuration and the planned objects, in order, and to our objects that are no longer
/// planned.
pub async fn changes(
    client: &Client,
    own_namespace: &str,
    config: &[Object],
    planned: &[Object],
) -> Result<Vec<Diff>, Error> {
    let asked = stream::iter(config.iter().chain(planned)).map(|object| async move {
        let live = read::live(client, object).await?;
        change(client, Steps::new(object, LiveState::of(live.as_ref()))).await
    });
    let mut changes: Vec<_> = asked.buffered(CONCURRENCY).try_collect().await?;
    for (live, decision) in left_over(client, own_namespace, planned).await? {
        changes.extend(removal(&live, decision));
    }
    Ok(changes)
}

/// Returns the change to one planned object: the result of its steps.
pub async fn change(client: &Client, steps: Steps<'_>) -> Result<Diff, Error> {
    let (desired, live) = (steps.desired(), steps.seen());
    let key = desired.key();
    let (change, before, after) = match ask(client, steps, false).await {
        Ok(End::Applied(after)) => (Change::planned(key, live, &after), live.cloned(), Some(after)),
        Ok(End::Recreated { before, after }) => (Change::recreated(key, &before, &after), Some(before), Some(after)),
        Ok(End::LeftAlone(_)) => (Change::plain(key, Action::Skip).because(inventory::LEFT_ALONE), None, None),
        Ok(End::Unchanged | End::BlockedByFinalizers(_) | End::OtherApplySet(_) | End::NotOwned(_) | End::Refused) => {
            (Change::plain(key, Action::Unchanged), None, None)
        }
        // The operator would get the same response.
        Err(error) if error.source.is_answer() => {
            (Change::plain(key, Action::Refuse).because(chain(&error.source)), None, None)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Diff::new(change, before.as_ref(), after.as_ref()))
}

/// Returns the change to one of our objects that is no longer planned; `None` if it is already being deleted.
pub fn removal(live: &Value, decision: PruneDecision) -> Option<Diff> {
    let text = |pointer| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let group = text("/apiVersion").split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let key = Key { group, kind: text("/kind"), namespace: text("/metadata/namespace"), name: text("/metadata/name") };
    match decision {
        PruneDecision::Keep(why) => Some(Diff::new(Change::plain(key, Action::Keep).because(why), None, None)),
        PruneDecision::Prune => Some(Diff::new(Change::plain(key, Action::Prune), Some(live), None)),
        PruneDecision::Terminating => None,
    }
}

/// Returns the objects with our label in the inventory's locations that are no longer planned, each with the operator's
/// decision. Without a plan there are none.
pub async fn left_over(
    client: &Client,
    own_namespace: &str,
    planned: &[Object],
) -> Result<Vec<(Value, PruneDecision)>, read::Error> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let set_id = inventory::set_id(own_namespace);
    let inventory = read::get(client, &CONFIG_MAP, own_namespace, inventory::NAME).await?;
    let inventory = inventory.as_ref().map(Inventory::read).unwrap_or_default();
    let params = ListParams::default().labels(&format!("{PART_OF_LABEL}={set_id}"));
    let mut found = Vec::new();
    for location in inventory.locations() {
        let listed = read::list(client, location.kind, &location.namespace, &params).await?;
        found.extend(listed.into_iter().map(|live| (location, live)));
    }
    let seen = found.iter().map(|(location, live)| (*location, live));
    let prune_decisions = inventory::prune_decisions(seen, planned, &set_id);
    Ok(prune_decisions.into_iter().map(|(_, live, decision)| (live.clone(), decision)).collect())
}

/// The reason why the API server refuses an object.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedManifest {
    /// The JSON pointer to the field; empty if the response names none.
    pub pointer: String,
    /// The message, on one line.
    pub message: String,
}

/// Dry-runs an object as if it did not exist. Returns `None` if the API server accepts it.
pub async fn refusal(client: &Client, object: &Object) -> Result<Option<RefusedManifest>, Error> {
    match ask(client, Steps::new(object, LiveState::Absent), true).await {
        // An object that is being deleted does not prove that its manifest is invalid.
        Ok(_) | Err(write::Error { source: Cause::BlockedByFinalizers(_), .. }) => Ok(None),
        // About the manifest, not about the caller's permissions or the API server's state. A schema error has the code 500.
        Err(write::Error { source: Cause::Api(kube::Error::Api(status)), .. })
            if matches!(status.code, 400 | 404 | 409 | 422 | 500) =>
        {
            Ok(Some(RefusedManifest { pointer: pointer(field(&status)), message: status.message.replace('\n', " ") }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the field that a response names; empty if it names none.
fn field(status: &kube::core::Status) -> &str {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    causes.iter().map(|cause| cause.field.as_str()).find(|field| !field.is_empty()).unwrap_or_default()
}

/// Converts a field in the API server's notation, such as `spec.ports[0].port`, to a JSON pointer.
fn pointer(field: &str) -> String {
    let parts = field.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.map(|part| format!("/{part}")).collect::<Vec<_>>().concat()
}

async fn ask(client: &Client, mut steps: Steps<'_>, is_strict: bool) -> Result<End, write::Error> {
    let desired = steps.desired();
    let next = steps.first();
    let api = api(client, desired.kind(), desired.namespace());
    let requests = Requests { api, budget: || NO_DEADLINE, is_strict };
    let mut asker = Asker { requests, migrated: None, accepted: None };
    let end = perform_steps(&mut steps, next, async |step| asker.perform(desired, step).await).await;
    end.map_err(|error| write::Error { action: "dry-run", ..error })
}

/// Performs steps as dry runs, and keeps the results of writes for later steps.
struct Asker<F> {
    requests: Requests<F>,
    migrated: Option<Value>,
    /// The temporary object, if the API server would accept it.
    accepted: Option<Value>,
}

impl<F: Fn() -> Option<Duration>> Asker<F> {
    async fn perform(&mut self, object: &Object, step: Step) -> Result<Option<Value>, Cause> {
        let (requests, name) = (&self.requests, object.name());
        match step {
            Step::Read | Step::ReadTemporary | Step::Probe(_) => requests.perform(object, step).await,
            Step::Migrate(live) => {
                self.migrated = Some(live);
                Ok(None)
            }
            Step::Apply => match (self.accepted.take(), &self.migrated) {
                (Some(mut accepted), _) => {
                    accepted["metadata"]["name"] = name.into();
                    Ok(Some(accepted))
                }
                (None, Some(live)) => requests.merge(name, &preview::patch(object.value(), live), true).await.map(Some),
                (None, None) => requests.apply(object.value(), true).await.map(Some),
            },
            Step::ApplyTemporary => {
                let accepted = requests.apply(&steps::temporary(object), true).await?;
                self.accepted = Some(accepted.clone());
                Ok(Some(accepted))
            }
            Step::DeleteTemporary | Step::Delete(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_place_in_the_manifest() {
        assert_eq!(pointer("spec.ports[0].port"), "/spec/ports/0/port");
        assert_eq!(pointer(""), "");
    }
}
