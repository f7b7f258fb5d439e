//! A stand-in for an API server with nodes and Events, which checks resource versions and uids as the real one does.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, patch, post},
};
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
};
use kube::Client;
use serde_json::{Value, json};

type Change = Box<dyn FnMut(&mut State) + Send>;

#[derive(Default)]
pub(super) struct State {
    nodes: BTreeMap<String, Value>,
    version: u64,
    watchers: Vec<UnboundedSender<Value>>,
    /// The Events in the order of their creation, each with its last repetition.
    pub(super) events: Vec<Value>,
    /// The writes of nodes, such as `PATCH a/status`, each with its body and the code of the answer.
    pub(super) writes: Vec<(String, Value, u16)>,
    /// Happens before each write of a node.
    pub(super) before_write: Option<Change>,
    /// What is answered to a method in place of doing it.
    pub(super) refusals: BTreeMap<&'static str, (u16, String)>,
}

impl State {
    pub(super) fn put(&mut self, mut node: Value) {
        self.version += 1;
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
        let kind = if self.nodes.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        self.nodes.insert(name, node.clone());
        self.tell(kind, &node);
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.nodes[name].clone();
        change(&mut node);
        self.put(node);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.version += 1;
        let mut node = self.nodes.remove(name).unwrap();
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.tell("DELETED", &node);
    }

    /// Ends all watches, and refuses new ones.
    pub(super) fn stop_watches(&mut self) {
        self.refusals.insert("WATCH", (500, "no watches".to_owned()));
        self.watchers.clear();
    }

    fn tell(&mut self, kind: &str, node: &Value) {
        let event = json!({"type": kind, "object": node});
        self.watchers.retain(|watcher| watcher.unbounded_send(event.clone()).is_ok());
    }

    /// Why a write of a node with this uid and resource version fails.
    fn refused(&self, method: &str, name: &str, wanted: &Value) -> Option<(u16, String)> {
        if let Some((code, message)) = self.refusals.get(method) {
            return Some((*code, message.clone()));
        }
        let Some(node) = self.nodes.get(name) else { return Some((404, format!("nodes {name:?} not found"))) };
        let differs = ["uid", "resourceVersion"].iter().any(|field| node["metadata"][field] != wanted[field]);
        differs.then(|| (409, "the object has been modified".to_owned()))
    }

    /// Notes a write, and returns why it fails.
    fn write(&mut self, method: &'static str, path: &str, body: &Value, wanted: &Value) -> Option<Response> {
        if let Some(mut before) = self.before_write.take() {
            before(self);
            self.before_write = Some(before);
        }
        let name = path.split('/').next().unwrap();
        let refused = self.refused(method, name, wanted);
        let code = refused.as_ref().map_or(200, |(code, _)| *code);
        self.writes.push((format!("{method} {path}"), body.clone(), code));
        refused.map(|(code, message)| status(code, &message))
    }
}

#[derive(Clone, Default)]
pub(super) struct ApiServer(Arc<Mutex<State>>);

impl ApiServer {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn node(&self, name: &str) -> Value {
        self.state().nodes.get(name).cloned().unwrap_or_default()
    }

    /// The writes of nodes without their bodies, each with the code of the answer.
    pub(super) fn writes(&self) -> Vec<String> {
        self.state().writes.iter().map(|(write, _, code)| format!("{write} {code}")).collect()
    }

    /// The reasons of all Events about a node, in the order of their creation.
    pub(super) fn reasons(&self, node: &str) -> Vec<String> {
        let state = self.state();
        let about = state.events.iter().filter(|event| event["involvedObject"]["name"] == node);
        about.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn client(&self) -> Client {
        let (list, read, write, status_of, delete) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.clone());
        let (create, repeat) = (self.clone(), self.clone());
        let router =
            Router::new()
                .route("/api/v1/nodes", get(|uri: Uri| async move { list.watch(&uri) }))
                .route(
                    "/api/v1/nodes/{name}",
                    get(|Path(name): Path<String>| async move { read.read(&name) })
                        .patch(|Path(name): Path<String>, body: String| async move {
                            write.patch(&name, false, &parsed(&body))
                        })
                        .delete(|Path(name): Path<String>, body: String| async move {
                            delete.delete(&name, &parsed(&body))
                        }),
                )
                .route(
                    "/api/v1/nodes/{name}/status",
                    patch(|Path(name): Path<String>, body: String| async move {
                        status_of.patch(&name, true, &parsed(&body))
                    }),
                )
                .route(
                    "/api/v1/namespaces/default/events",
                    post(|event: String| async move {
                        create.state().events.push(parsed(&event));
                        (StatusCode::CREATED, event)
                    }),
                )
                .route(
                    "/api/v1/namespaces/default/events/{name}",
                    patch(|Path(name): Path<String>, body: String| async move {
                        let mut state = repeat.state();
                        let event = state.events.iter_mut().find(|event| event["metadata"]["name"] == name).unwrap();
                        merge(event, &parsed(&body));
                        event.to_string()
                    }),
                );
        Client::new(router, "default")
    }

    /// Streams the nodes that exist, and then the changes.
    fn watch(&self, uri: &Uri) -> Response {
        assert!(uri.query().is_some_and(|query| query.contains("sendInitialEvents=true")), "{uri}");
        let (sender, changes) = unbounded();
        let mut state = self.state();
        if let Some((code, message)) = state.refusals.get("WATCH") {
            return status(*code, message);
        }
        let mut first: Vec<_> = state.nodes.values().map(|node| json!({"type": "ADDED", "object": node})).collect();
        first.push(json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata": {
            "resourceVersion": state.version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        }}}));
        state.watchers.push(sender);
        let events = futures::stream::iter(first).chain(changes);
        Body::from_stream(events.map(|event| Ok::<_, Infallible>(format!("{event}\n")))).into_response()
    }

    fn read(&self, name: &str) -> Response {
        match self.state().nodes.get(name) {
            Some(node) => node.to_string().into_response(),
            None => status(404, "not found"),
        }
    }

    fn patch(&self, name: &str, is_status: bool, body: &Value) -> Response {
        let path = if is_status { format!("{name}/status") } else { name.to_owned() };
        let mut state = self.state();
        if let Some(refusal) = state.write("PATCH", &path, body, &body["metadata"]) {
            return refusal;
        }
        state.change(name, |node| merge(node, body));
        state.nodes[name].to_string().into_response()
    }

    fn delete(&self, name: &str, body: &Value) -> Response {
        let mut state = self.state();
        if let Some(refusal) = state.write("DELETE", name, body, &body["preconditions"]) {
            return refusal;
        }
        state.remove(name);
        json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}).to_string().into_response()
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "x", "message": message,
    });
    (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}
