//! A stand-in for an API server: one Lease, no nodes, and Events.

use std::{
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
    response::Response,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The path of the Lease.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";

/// The annotation with the id of the account that was used first.
pub(crate) const ACCOUNT: &str = "ccm-operator.dev/account";

#[derive(Default)]
pub(crate) struct State {
    pub(crate) lease: Option<Value>,
    version: u64,
    /// The Events in the order of their creation.
    pub(crate) events: Vec<Value>,
    /// Whether the process may delete every node.
    pub(crate) may_delete: bool,
    /// The methods and paths of all requests but watches.
    pub(crate) requests: Vec<String>,
}

impl State {
    /// Writes the Lease, as another client.
    pub(crate) fn put_lease(&mut self, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease);
    }

    /// The holder of the Lease.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.lease.as_ref()?["spec"]["holderIdentity"].as_str()
    }

    /// The id of the account that was used first.
    pub(crate) fn account(&self) -> Option<&str> {
        self.lease.as_ref()?["metadata"]["annotations"][ACCOUNT].as_str()
    }

    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        self.requests.push(format!("{method} {path}"));
        let failure = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": reason, "reason": reason}))
        };
        let is_lease = path == LEASE || LEASE.strip_suffix("/cloud-controller-manager") == Some(path);
        match (method, is_lease) {
            ("GET", true) => self.lease.clone().map_or_else(|| failure(404, "NotFound"), |lease| (200, lease)),
            ("PUT" | "POST", true) => {
                let known = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
                if body["metadata"]["resourceVersion"] != known.unwrap_or_default() {
                    return failure(409, "Conflict");
                }
                self.put_lease(body);
                (200, self.lease.clone().unwrap())
            }
            ("POST", false) if path.ends_with("/events") => {
                self.events.push(body.clone());
                (201, body)
            }
            ("POST", false) if path.ends_with("/selfsubjectaccessreviews") => {
                let mut review = body;
                let asked = &review["spec"]["resourceAttributes"];
                let is_deletion = asked["verb"] == "delete" && asked["resource"] == "nodes" && asked["name"].is_null();
                review["status"] = json!({"allowed": self.may_delete && is_deletion});
                (201, review)
            }
            ("PATCH", false) if path.contains("/events/") => (200, body),
            _ => failure(404, "NotFound"),
        }
    }
}

/// The stand-in, which ends with the runtime.
#[derive(Clone, Default)]
pub(crate) struct ApiServer(Arc<Mutex<State>>);

impl ApiServer {
    /// Starts it, and writes a kubeconfig for it.
    pub(crate) async fn start(kubeconfig: &Path) -> Self {
        let server = Self::default();
        let shared = server.clone();
        let answer = move |request: Request<Body>| {
            let shared = shared.clone();
            async move { shared.answer(request).await }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(kubeconfig, config.to_string()).unwrap();
        server
    }

    /// Looks at the state, or changes it.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
            return watched(&path);
        }
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let (code, body) = self.with(|state| state.answer(parts.method.as_str(), &path, &body));
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }
}

/// The answer to a watch: there is nothing, and nothing happens.
fn watched(path: &str) -> Response {
    let (version, kind) = if path == "/api/v1/nodes" { ("v1", "Node") } else { ("coordination.k8s.io/v1", "Lease") };
    let metadata = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
    let end = json!({"type": "BOOKMARK", "object": {"apiVersion": version, "kind": kind, "metadata": metadata}});
    let lines = stream::once(async move { Ok::<_, Infallible>(format!("{end}\n")) }).chain(stream::pending());
    Response::new(Body::from_stream(lines))
}
