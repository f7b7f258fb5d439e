//! The cluster's version operator (CVO), as far as an operator meets it: it puts back every object of the release that differs,
//! unless `spec.overrides` of the `ClusterVersion` exempts it, and deletes nothing.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams, TypeMeta},
};
use serde_json::{Value, json};

use crate::{lab::LIMIT, support::eventually};

const FIELD_MANAGER: &str = "cluster-version-operator";
const PERIOD: Duration = Duration::from_millis(500);
/// The fields that the version operator sets, if a manifest has them.
const FIELDS: [&str; 5] = ["spec", "data", "rules", "subjects", "roleRef"];

/// The state of the version operator that tests read.
#[derive(Default)]
struct State {
    release: Vec<Value>,
    /// Looks at all objects, and the last one that wrote or failed.
    looks: usize,
    last_work: usize,
    error: Option<String>,
}

/// A running CVO.
#[derive(Clone)]
pub(super) struct VersionOperator(Arc<Mutex<State>>);

impl VersionOperator {
    pub(super) fn new(release: Vec<Value>) -> Self {
        Self(Arc::new(Mutex::new(State { release, ..State::default() })))
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins an update.
    pub(super) fn update(&self, release: Vec<Value>) {
        self.state(|state| state.release = release);
    }

    /// Waits until it has looked at everything twice and has had nothing to do.
    pub(super) async fn settled(&self) -> Result<()> {
        let begin = self.state(|state| state.looks);
        eventually("the CVO to have nothing to do", LIMIT, async || {
            let (looks, last_work, error) = self.state(|state| (state.looks, state.last_work, state.error.clone()));
            let since = begin.max(last_work);
            ensure!(looks > since + 2, "{looks} looks, the last work in {last_work}, {error:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Runs until dropped.
    pub(super) async fn run(self, client: Client) {
        loop {
            let release = self.state(|state| state.release.clone());
            let mut error = None;
            let mut has_written = false;
            for object in &release {
                match restore(&client, object).await {
                    Ok(written) => has_written |= written,
                    Err(problem) => error = Some(format!("{}: {problem:#}", object["metadata"]["name"])),
                }
            }
            self.state(|state| {
                state.looks += 1;
                if has_written || error.is_some() {
                    state.last_work = state.looks;
                }
                state.error = error;
            });
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Puts an object back; whether it had to.
async fn restore(client: &Client, object: &Value) -> Result<bool> {
    if is_exempt(client, object).await? {
        return Ok(false);
    }
    let (api, name) = api(client, object)?;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let Some(live) = api.get_opt(&name).await? else {
        api.create(&params, &serde_json::from_value(object.clone())?).await?;
        return Ok(true);
    };
    let mut live = serde_json::to_value(live)?;
    let before = live.clone();
    // Namespaces and ClusterOperators are created only.
    let is_set = !matches!(object["kind"].as_str(), Some("Namespace" | "ClusterOperator"));
    for field in FIELDS.into_iter().filter(|field| is_set && !covers(&object[field], &before[field])) {
        live[field] = object[field].clone();
    }
    if live == before {
        return Ok(false);
    }
    api.replace(&name, &params, &serde_json::from_value(live)?).await?;
    Ok(true)
}

/// Whether an override names the object: the group without a version, and no namespace for cluster-scoped kinds.
async fn is_exempt(client: &Client, object: &Value) -> Result<bool> {
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
    });
    let (api, name) = api(client, &version)?;
    let version = serde_json::to_value(api.get(&name).await?)?;
    let group = object["apiVersion"].as_str().and_then(|it| it.split_once('/')).map_or("", |(group, _)| group);
    let metadata = &object["metadata"];
    let overrides = version["spec"]["overrides"].as_array().cloned().unwrap_or_default();
    Ok(overrides.iter().any(|one| {
        one["unmanaged"] == true
            && one["group"] == group
            && one["kind"] == object["kind"]
            && one["name"] == metadata["name"]
            && (metadata["namespace"].is_null() || one["namespace"] == metadata["namespace"])
    }))
}

/// Whether a live value contains a required one; the API server adds defaults.
fn covers(required: &Value, live: &Value) -> bool {
    match (required, live) {
        (Value::Object(required), Value::Object(live)) => {
            required.iter().all(|(name, value)| live.get(name).is_some_and(|live| covers(value, live)))
        }
        (Value::Array(required), Value::Array(live)) => {
            required.len() == live.len() && required.iter().zip(live).all(|(required, live)| covers(required, live))
        }
        (Value::Null, _) => true,
        _ => required == live,
    }
}

/// The API of an object, and its name.
pub(super) fn api(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let types: TypeMeta = serde_json::from_value(object.clone())?;
    let kind = GroupVersionKind::try_from(&types)?;
    let plural = match kind.kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().context("a name")?;
    let api = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name.to_owned()))
}
