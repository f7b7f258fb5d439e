//! What a cluster's objects would be (IO): asks the API server by dry runs, and writes nothing.
//!
//! Each object that is not as planned costs one request: the apply that the operator would send. Where it would take
//! fields over first, the result of both is computed ([`preview`]) and the server is asked whether it takes that.

use futures::{StreamExt, stream};
use kube::{
    Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::Value;

use crate::apply::diff::{Action, Change};
use crate::cluster::request;
use crate::object::reference::CONFIG_MAP;
use crate::{
    apply::{
        self,
        inventory::{self, PART_OF_LABEL, Scope, Verdict},
        ownership::{self, FIELD_MANAGER, Need, need, preview},
    },
    cluster::read::{self, Reader},
    cluster::request::{Cause, REQUEST_TIMEOUT},
    object::{Key, Object},
    text::yaml,
};

/// How many objects are looked at at once; over HTTP/1.1 each needs a connection of its own.
const CONCURRENCY: usize = 4;

/// Why it cannot be said what would change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster cannot be read.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// The API server did not answer.
    #[error("failed to try {object}")]
    Try {
        /// The object.
        object: Key,
        /// The cause.
        source: Cause,
    },
    /// An object cannot be written as YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
}

/// What would become of the configuration and of the planned objects, in their order, and of those that are ours and not
/// planned any more.
pub async fn changes(
    reader: &Reader,
    own_namespace: &str,
    config: &[Object],
    planned: &[Object],
) -> Result<Vec<Change>, Error> {
    let looked = stream::iter(config.iter().chain(planned)).map(|object| async move {
        let live = reader.live(object).await?;
        change(reader.client(), object, live.as_ref()).await
    });
    let looked: Vec<_> = looked.buffered(CONCURRENCY).collect().await;
    let mut changes = looked.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (live, verdict) in left_over(reader, own_namespace, planned).await? {
        changes.extend(removal(&live, verdict)?);
    }
    Ok(changes)
}

/// What would become of an object that is ours and not planned any more; `None` when it is going already.
pub fn removal(live: &Value, verdict: Verdict) -> Result<Option<Change>, yaml::Error> {
    let text = |pointer| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let group = text("/apiVersion").split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let key = Key { group, kind: text("/kind"), namespace: text("/metadata/namespace"), name: text("/metadata/name") };
    match verdict {
        Verdict::Keep(why) => Ok(Some(Change::without(key, Action::Skip, Some(why.to_owned())))),
        Verdict::Prune => Change::between(key, Some(live), None).map(Some),
        Verdict::Going => Ok(None),
    }
}

/// What would become of one planned object that is `live` now.
pub async fn change(client: &Client, desired: &Object, live: Option<&Value>) -> Result<Change, Error> {
    let key = desired.key();
    if live.is_some_and(inventory::is_left_alone) {
        return Ok(Change::without(key, Action::Skip, Some("it is annotated to be left alone".to_owned())));
    }
    let answer = match live {
        Some(live) => match need(desired.value(), live) {
            Need::Nothing => return Ok(Change::without(key, Action::Unchanged, None)),
            Need::Apply => apply_alone(client, desired).await,
            Need::FoldThenApply => take_over(client, desired, live).await,
        },
        None => apply_alone(client, desired).await,
    };
    match answer {
        Ok(would_be) => Ok(Change::between(key, live, Some(&request::to_value(&would_be)))?),
        Err(source) if source.is_immutable() => anew(client, desired, live).await,
        // Not a word about the cluster itself: the same would be answered to the operator.
        Err(source @ Cause::Api(kube::Error::Api(_))) => {
            Ok(Change::without(key, Action::Refuse, Some(crate::error::chain(&source))))
        }
        Err(source) => Err(Error::Try { object: key, source }),
    }
}

/// An object that has to be made anew. The API server is asked about it under a name that is free, as the operator does
/// before it deletes anything.
async fn anew(client: &Client, desired: &Object, live: Option<&Value>) -> Result<Change, Error> {
    let (key, name) = (desired.key(), format!("{}{}", desired.name(), apply::STAND_IN));
    let mut stand_in = desired.value().clone();
    stand_in["metadata"]["name"] = name.as_str().into();
    let api = request::api(client, desired.kind(), desired.namespace());
    let params = PatchParams::apply(FIELD_MANAGER).force().dry_run();
    match request::send(Some(REQUEST_TIMEOUT), api.patch(&name, &params, &Patch::Apply(&stand_in))).await {
        Ok(would_be) => {
            let mut would_be = request::to_value(&would_be);
            would_be["metadata"]["name"] = desired.name().into();
            Ok(Change::between(key, live, Some(&would_be))?.recreated())
        }
        Err(source @ Cause::Api(kube::Error::Api(_))) => {
            Ok(Change::without(key, Action::Refuse, Some(crate::error::chain(&source))))
        }
        Err(source) => Err(Error::Try { object: key, source }),
    }
}

async fn apply_alone(client: &Client, desired: &Object) -> Result<DynamicObject, Cause> {
    let params = PatchParams::apply(FIELD_MANAGER).force().dry_run();
    patch(client, desired, &params, &Patch::Apply(desired.value())).await
}

async fn take_over(client: &Client, desired: &Object, live: &Value) -> Result<DynamicObject, Cause> {
    let mut live = live.clone();
    if ownership::is_wiped(&live) {
        // What is whose only the server can tell, as the operator asks it.
        let params = PatchParams::apply(FIELD_MANAGER).force().dry_run();
        let noted = patch(client, desired, &params, &Patch::Apply(ownership::bare(desired.value()))).await?;
        live["metadata"]["managedFields"] = request::to_value(&noted)["metadata"]["managedFields"].take();
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }.dry_run();
    patch(client, desired, &params, &Patch::Merge(preview::patch(desired.value(), &live))).await
}

async fn patch(
    client: &Client,
    desired: &Object,
    params: &PatchParams,
    patch: &Patch<impl serde::Serialize + std::fmt::Debug>,
) -> Result<DynamicObject, Cause> {
    let api = request::api(client, desired.kind(), desired.namespace());
    request::send(Some(REQUEST_TIMEOUT), api.patch(desired.name(), params, patch)).await
}

/// What carries our label where the inventory says that something may be, and is not planned any more, with what the
/// operator does with it. Without a plan it does nothing.
pub async fn left_over(
    reader: &Reader,
    own_namespace: &str,
    planned: &[Object],
) -> Result<Vec<(Value, Verdict)>, read::Error> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let set_id = inventory::set_id(own_namespace);
    let resource = request::resource(&CONFIG_MAP);
    let inventory = reader.get(&resource, Some(own_namespace), inventory::NAME).await?;
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

impl Error {
    /// How long the API server has asked to be left alone.
    pub fn retry_after(&self) -> std::time::Duration {
        match self {
            Self::Read(error) => error.retry_after(),
            Self::Try { source, .. } => source.retry_after(),
            Self::Yaml(_) => std::time::Duration::ZERO,
        }
    }
}
