//! Applies planned objects to a cluster (IO).
//!
//! Server-side apply, forced: what is applied is ours whole. Writes only what a live object lacks, takes fields of
//! others over where an apply alone would leave them behind, makes an object anew where it cannot be changed, and answers
//! what it changed. It never decides what should exist.

pub mod change;
pub mod diff;
pub mod dry_run;
mod error;
pub mod inventory;
pub mod ownership;
pub mod verify;

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};

use crate::cluster::request::{Cause, REQUEST_TIMEOUT, api, send, to_value};
use crate::object::reference::CONFIG_MAP;
use crate::object::{Key, Kind, Object};
use change::{Action, Change};
use ownership::{FIELD_MANAGER, Need, need};

pub use error::Error;

/// How often a take-over is tried that others' writes cross.
const FOLD_TRIES: usize = 3;

/// What is added to an object's name for the one that stands in for it while it is made anew. The operator's rights
/// name them.
pub(crate) const STAND_IN: &str = "-next";

/// What an apply has come to.
#[derive(Debug)]
pub struct Applied {
    /// The object as it is now.
    pub live: Value,
    /// What was done to it.
    pub change: Change,
}

/// Brings one object to what it should be. `live` is what was seen of it, if anything, with what that needs. `budget` is
/// asked before each write how long it may take.
pub async fn apply(
    client: &Client,
    desired: &Object,
    live: Option<(&Value, Need)>,
    budget: impl Fn() -> Option<Duration>,
) -> Result<Applied, Error> {
    let writer = Writer { api: api(client, desired.kind(), desired.namespace()), desired, budget };
    let key = desired.key();
    let applied = match live {
        Some((live, Need::FoldThenApply)) => writer.fold_then_apply(live).await,
        Some(_) => writer.apply_whole().await,
        None => writer.apply_unseen().await,
    };
    match (applied, live) {
        (Err(error), _) if error.source.is_immutable() => writer.recreate(error).await,
        (Err(error), _) => Err(error),
        (Ok(now), Some((before, _))) => Ok(Applied { change: Change::between(key, before, &now), live: now }),
        (Ok(now), None) => {
            let action = if ownership::is_new(&now) { Action::Created } else { Action::Configured };
            Ok(Applied { change: Change::plain(key, action), live: now })
        }
    }
}

/// What a deletion has come to.
#[derive(Debug)]
pub enum Pruned {
    /// It is gone by this.
    Gone,
    /// It was gone before.
    Absent,
    /// It goes as soon as whoever holds it lets go.
    Going(Value),
}

/// Deletes an object as it was seen, and no other state of it.
pub async fn prune(client: &Client, kind: &Kind, live: &Value, budget: Option<Duration>) -> Result<Pruned, Error> {
    let key = key_of(kind, live);
    let api = api(client, kind, &key.namespace);
    match send(budget, api.delete(&key.name, &delete_params(live))).await {
        Ok(answer) => Ok(answer.left().map_or(Pruned::Gone, |left| Pruned::Going(to_value(&left)))),
        Err(cause) if cause.is_absent() => Ok(Pruned::Absent),
        Err(source) => Err(Error { object: key, action: "delete", source }),
    }
}

/// Writes the inventory, which is known to be as `live`.
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
    let namespace = config_map["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let api = api(client, &CONFIG_MAP, &namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let name = inventory::NAME;
    let written = send(budget, api.patch(name, &params, &Patch::Apply(&config_map))).await;
    written.map(|object| to_value(&object)).map_err(|source| {
        let object = Key { group: String::new(), kind: "ConfigMap".into(), namespace, name: name.into() };
        Error { object, action: "write the inventory", source }
    })
}

/// What a live object of a kind is known by.
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
        let applied = self.server_side_apply(self.desired.value(), false).await?;
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
        self.server_side_apply(self.desired.value(), false).await
    }

    /// Makes an object anew that cannot be changed to what it should be. What is taken away is taken away last: the API
    /// server has to take the new object first, under another name. For a binding that other one is real, so that what it
    /// grants is granted all the time; it carries our label and is not planned, so that it is pruned.
    async fn recreate(&self, refused: Error) -> Result<Applied, Error> {
        let Some(live) = self.read(self.api.get_opt(self.desired.name())).await? else { return Err(refused) };
        let live = to_value(&live);
        let key = self.desired.key();
        if inventory::is_left_alone(&live) {
            return Ok(Applied { change: Change::plain(key, Action::Skipped), live });
        }
        if live["metadata"]["deletionTimestamp"].is_null() {
            self.stand_in().await?;
            let deleted = self.write("delete", self.api.delete(self.desired.name(), &delete_params(&live))).await?;
            if let Some(left) = deleted.left().map(|left| to_value(&left))
                && left["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
            {
                return Err(self.held(&left));
            }
        } else {
            return Err(self.held(&live));
        }
        let now = self.server_side_apply(self.desired.value(), false).await?;
        let fields = change::fields(&live, &now);
        Ok(Applied { change: Change { object: key, action: Action::Recreated, fields }, live: now })
    }

    async fn stand_in(&self) -> Result<(), Error> {
        let mut stand_in = self.desired.value().clone();
        let name = format!("{}{STAND_IN}", self.desired.name());
        stand_in["metadata"]["name"] = name.as_str().into();
        let is_binding = matches!(self.desired.kind().kind, "ClusterRoleBinding" | "RoleBinding");
        match self.server_side_apply(&stand_in, !is_binding).await {
            // One of an earlier time, that was for another role.
            Err(error) if is_binding && error.source.is_immutable() => {
                let old = to_value(&self.read(self.api.get(&name)).await?);
                self.write("delete", self.api.delete(&name, &delete_params(&old))).await?;
                self.server_side_apply(&stand_in, false).await.map(drop)
            }
            applied => applied.map(drop),
        }
    }

    fn held(&self, live: &Value) -> Error {
        let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
        let names: Vec<_> = finalizers.filter_map(Value::as_str).collect();
        self.error("recreate", Cause::Held(names.join(", ")))
    }

    async fn fold(&self, live: &Value) -> Result<(), Error> {
        // What is whose, where nothing is noted, only the server can tell.
        let shown = if ownership::is_wiped(live) {
            Some(self.server_side_apply(&ownership::bare(self.desired.value()), true).await?)
        } else {
            None
        };
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": live["metadata"]["resourceVersion"],
            "managedFields": ownership::fold(shown.as_ref().unwrap_or(live)),
        }}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.write("take over", self.api.patch(self.desired.name(), &params, &patch)).await.map(drop)
    }

    async fn server_side_apply(&self, object: &Value, dry_run: bool) -> Result<Value, Error> {
        let mut params = PatchParams::apply(FIELD_MANAGER).force();
        params.dry_run = dry_run;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let patch = Patch::Apply(object);
        self.write("apply", self.api.patch(name, &params, &patch)).await.map(|object| to_value(&object))
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
