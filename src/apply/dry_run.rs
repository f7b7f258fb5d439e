//! What would become of objects (IO): climbs the ladder of [`super::steps`] by dry runs, and writes nothing.
//!
//! An object that is not as planned costs one request: the apply that the operator would send. A fold and an apply are two
//! writes, the second of which the API server can only try once the first is done; so the result of both is computed
//! ([`preview`]) and the API server is asked whether it accepts that.

use futures::{StreamExt, stream};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::Value;

use crate::{
    apply::{
        change::{Action, Change},
        diff::Diff,
        inventory::{self, PART_OF_LABEL, Scope, Verdict},
        ownership::{self, FIELD_MANAGER, preview},
        steps::{self, End, Ladder, STAND_IN, Step},
        write::{Executor, apply_params, climb},
    },
    cluster::{
        read::{self, Reader},
        request::{self, Cause, REQUEST_TIMEOUT, api, send, to_value},
    },
    error::chain,
    object::{Key, Object, reference::CONFIG_MAP},
    provider::{
        folder::Bundle,
        verify::{DRY_RUN, Finding},
    },
    text::yaml,
};

/// How many objects are asked about at once; over HTTP/1.1 each needs a connection of its own.
const CONCURRENCY: usize = 4;

/// Why it is not known what would change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster cannot be read.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The API server did not answer.
    #[error("failed to dry-run {object}")]
    Ask {
        /// The object.
        object: Key,
        /// The cause.
        source: Cause,
    },
    /// An object cannot be written as YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
}

impl Error {
    /// How long the API server has asked to be left alone.
    pub fn retry_after(&self) -> std::time::Duration {
        match self {
            Self::Read(error) => error.retry_after(),
            Self::Ask { source, .. } => source.retry_after(),
            Self::Yaml(_) => std::time::Duration::ZERO,
        }
    }
}

/// What would become of the configuration and of the planned objects, in their order, and of objects that are ours and no
/// longer planned.
pub async fn changes(
    reader: &Reader,
    own_namespace: &str,
    config: &[Object],
    planned: &[Object],
) -> Result<Vec<Diff>, Error> {
    let asked = stream::iter(config.iter().chain(planned)).map(|object| async move {
        let live = reader.live(object).await?;
        change(reader.client(), object, live.as_ref()).await
    });
    let asked: Vec<_> = asked.buffered(CONCURRENCY).collect().await;
    let mut changes = asked.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (live, verdict) in left_over(reader, own_namespace, planned).await? {
        changes.extend(removal(&live, verdict)?);
    }
    Ok(changes)
}

/// What would become of one planned object that is `live` now.
pub async fn change(client: &Client, desired: &Object, live: Option<&Value>) -> Result<Diff, Error> {
    let key = desired.key();
    match ask(client, desired, live, false).await {
        Ok(End::Applied(after)) => Ok(Diff::new(Change::planned(key, live, Some(&after)), live, Some(&after))?),
        Ok(End::Recreated { before, after }) => {
            Ok(Diff::new(Change::recreated(key, &before, &after), Some(&before), Some(&after))?)
        }
        Ok(End::LeftAlone(_)) => Ok(Diff::unchanged(Change::plain(key, Action::Skip).because(inventory::LEFT_ALONE))),
        Ok(End::Unchanged | End::Held(_) | End::Refused) => Ok(Diff::unchanged(Change::plain(key, Action::Unchanged))),
        // The operator would get the same answer.
        Err(cause) if cause.is_answer() => {
            Ok(Diff::unchanged(Change::plain(key, Action::Refuse).because(chain(&cause))))
        }
        Err(source) => Err(Error::Ask { object: key, source }),
    }
}

/// What would become of an object that is ours and no longer planned; `None` when it is being deleted already.
pub fn removal(live: &Value, verdict: Verdict) -> Result<Option<Diff>, yaml::Error> {
    let text = |pointer| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let group = text("/apiVersion").split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let key = Key { group, kind: text("/kind"), namespace: text("/metadata/namespace"), name: text("/metadata/name") };
    match verdict {
        Verdict::Keep(why) => Ok(Some(Diff::unchanged(Change::plain(key, Action::Keep).because(why)))),
        Verdict::Prune => Diff::new(Change::plain(key, Action::Prune), Some(live), None).map(Some),
        Verdict::Terminating => Ok(None),
    }
}

/// Objects that carry our label where the inventory lists some and that are no longer planned, with what the operator does
/// with them. Without a plan it does nothing.
pub async fn left_over(
    reader: &Reader,
    own_namespace: &str,
    planned: &[Object],
) -> Result<Vec<(Value, Verdict)>, read::Error> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let set_id = inventory::set_id(own_namespace);
    let inventory = reader.get(&request::resource(&CONFIG_MAP), Some(own_namespace), inventory::NAME).await?;
    let scope = inventory.as_ref().map(Scope::read).unwrap_or_default();
    let params = ListParams::default().labels(&format!("{PART_OF_LABEL}={set_id}"));
    let mut found = Vec::new();
    for place in scope.places() {
        let namespace = place.kind.namespaced.then_some(place.namespace.as_str());
        let listed = reader.list(&request::resource(place.kind), namespace, &params).await?;
        found.extend(listed.into_iter().map(|live| (place, live)));
    }
    let seen = found.iter().map(|(place, live)| (*place, live));
    let verdicts = inventory::verdicts(seen, planned, &set_id);
    Ok(verdicts.into_iter().map(|(_, live, verdict)| (live.clone(), verdict)).collect())
}

/// Asks for each manifest of each provider whether the API server accepts it as it stands. Returns those that it refuses.
pub async fn verify(client: &Client, bundles: &[Bundle]) -> Result<Vec<Finding>, Error> {
    let mut refusals = Vec::new();
    for (bundle, manifest) in bundles.iter().flat_map(|bundle| bundle.manifests.iter().map(move |one| (bundle, one))) {
        let object = &manifest.object;
        match ask(client, object, None, true).await {
            Ok(_) => {}
            Err(Cause::Api(kube::Error::Api(status))) if is_about_manifest(status.code) => {
                let what = format!("{}: {}", object.key(), status.message.replace('\n', " "));
                refusals.push(DRY_RUN.finding(&bundle.name, manifest.defect(&pointer(field(&status)), what)));
            }
            Err(source) => return Err(Error::Ask { object: object.key(), source }),
        }
    }
    Ok(refusals)
}

/// Whether an answer is about the manifest, and not about the caller's rights or the API server's state. A schema error
/// comes as 500.
fn is_about_manifest(code: u16) -> bool {
    matches!(code, 400 | 404 | 409 | 422 | 500)
}

/// The field that an answer names; empty if it names none.
fn field(status: &kube::core::Status) -> &str {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    causes.iter().map(|cause| cause.field.as_str()).find(|field| !field.is_empty()).unwrap_or_default()
}

/// The JSON pointer of a field as the API server writes it, such as `spec.ports[0].port`.
fn pointer(field: &str) -> String {
    let parts = field.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.map(|part| format!("/{part}")).collect::<Vec<_>>().concat()
}

async fn ask(client: &Client, desired: &Object, live: Option<&Value>, is_strict: bool) -> Result<End, Cause> {
    let mut ladder = Ladder::new(desired, live);
    let next = ladder.first();
    let mut asker =
        Asker { api: api(client, desired.kind(), desired.namespace()), is_strict, folded: None, accepted: None };
    climb(&mut ladder, next, &mut asker).await.map_err(|(_, cause)| cause)
}

/// Performs steps by dry runs: what a write would leave behind is remembered for the steps after it.
struct Asker {
    api: Api<DynamicObject>,
    /// Whether unknown and repeated fields are refused.
    is_strict: bool,
    /// The object as the fold would leave it.
    folded: Option<Value>,
    /// The stand-in, which the API server would accept.
    accepted: Option<Value>,
}

impl Executor for Asker {
    async fn perform(&mut self, object: &Object, step: Step) -> Result<Option<Value>, Cause> {
        let name = object.name();
        match step {
            Step::Read => {
                let live = send(Some(REQUEST_TIMEOUT), self.api.get_opt(name)).await?;
                Ok(live.as_ref().map(to_value))
            }
            Step::Probe(_) => self.apply(name, &ownership::bare(object.value())).await,
            Step::Fold(live) => {
                self.folded = Some(live);
                Ok(None)
            }
            Step::Apply => match (self.accepted.take(), &self.folded) {
                (Some(mut accepted), _) => {
                    accepted["metadata"]["name"] = name.into();
                    Ok(Some(accepted))
                }
                (None, Some(live)) => {
                    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                    self.patch(name, params.dry_run(), &Patch::Merge(preview::patch(object.value(), live))).await
                }
                (None, None) => self.apply(name, object.value()).await,
            },
            Step::StandIn => {
                self.accepted = self.apply(&format!("{name}{STAND_IN}"), &steps::stand_in(object)).await?;
                Ok(self.accepted.clone())
            }
            Step::DeleteStandIn | Step::Delete(_) => Ok(None),
        }
    }
}

impl Asker {
    async fn apply(&self, name: &str, object: &Value) -> Result<Option<Value>, Cause> {
        let params = apply_params(true);
        let params = if self.is_strict { params.validation_strict() } else { params };
        self.patch(name, params, &Patch::Apply(object.clone())).await
    }

    async fn patch(&self, name: &str, params: PatchParams, patch: &Patch<Value>) -> Result<Option<Value>, Cause> {
        let answer = send(Some(REQUEST_TIMEOUT), self.api.patch(name, &params, patch)).await?;
        Ok(Some(to_value(&answer)))
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
