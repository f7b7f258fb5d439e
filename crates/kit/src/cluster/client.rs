//! The connection to the API server (IO).
//!
//! It is kube's own stack with four additions. Small requests do not wait for an acknowledgement (40 ms on each new
//! connection). A request without a response fails after half a minute. A dead connection is noticed within about a
//! minute. The pause that a refusal asks for is visible.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use axum::{
    body::Body as AnswerBody,
    http::{
        Method, Request, Response, Uri,
        header::{CONTENT_LENGTH, RETRY_AFTER},
    },
};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceBuilder};

use crate::{
    cluster::{kubeconfig, request},
    files::{self, Stamp},
    text::kubectl::Access,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time from a request to the headers of its answer. The API server sends those of a watch at once.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time without an acknowledgement of sent data; the kernel alone would wait for a quarter of an hour.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The silence before a connection is probed, the interval of the probes, and the number of probes without an answer.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Is told of each request: its verb, the HTTP status code (zero without an answer), and the time until the headers of the
/// answer.
pub type OnRequest = Arc<dyn Fn(&'static str, u16, Duration) + Send + Sync>;

/// A client for a cluster, whose API server a file may name. Sends no request.
pub async fn connect(
    access: &Access,
    env_file: Option<&Path>,
    on_request: Option<OnRequest>,
) -> anyhow::Result<Client> {
    let mut config = kubeconfig::load(access).await?;
    let address = env_file.map(|path| EnvFile::read(path.to_owned())).transpose()?;
    if let Some(user) = &access.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(access.as_groups.clone());
        (config.auth_info.impersonate_uid, config.auth_info.impersonate_user_extra) = (None, None);
    }
    client(&config, address, on_request)
        .map_err(|error| anyhow!(request::describe(&error)))
        .context("failed to set up the connection to the API server")
}

/// A file with the address of the API server, which is read again when it changes: the address of a node may be another one
/// after an installation.
#[derive(Clone, Debug)]
struct EnvFile {
    path: PathBuf,
    /// The file's stamp, and the address that it had then.
    read: Arc<Mutex<(Option<Stamp>, Uri)>>,
}

impl EnvFile {
    /// Reads the file for the first time.
    fn read(path: PathBuf) -> anyhow::Result<Self> {
        let (stamp, shown) = (files::stamp(&path).ok(), path.display());
        let text = files::read_text(&path)
            .with_context(|| format!("failed to read the address of the API server from {shown}"))?;
        let uri = uri_of_env_file(&text)
            .with_context(|| format!("{shown} sets no usable KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"))?;
        Ok(Self { read: Arc::new(Mutex::new((stamp, uri))), path })
    }

    /// The address now; the last good one while the file has none.
    fn address(&self) -> Uri {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = files::stamp(&self.path).ok();
        if stamp.is_some() && stamp != read.0 {
            let found = files::read_text(&self.path).ok().and_then(|text| uri_of_env_file(&text));
            *read = (stamp, found.unwrap_or_else(|| read.1.clone()));
        }
        read.1.clone()
    }

    /// A request to that address.
    fn direct<B>(&self, request: Request<B>) -> Request<B> {
        let (mut parts, body) = request.into_parts();
        let mut uri = self.address().into_parts();
        uri.path_and_query = parts.uri.path_and_query().cloned();
        // Both parts come from an address, so this cannot fail.
        parts.uri = Uri::from_parts(uri).unwrap_or(parts.uri);
        Request::from_parts(parts, body)
    }
}

/// The URL of the API server in a file of `KUBERNETES_SERVICE_HOST='…'` and `KUBERNETES_SERVICE_PORT='…'`, as OpenShift puts
/// it on every node; `None` when the file does not have it.
fn uri_of_env_file(text: &str) -> Option<Uri> {
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?.trim();
        // A file that is being written may end anywhere.
        let bare = match value.strip_prefix(['\'', '"']) {
            Some(quoted) => quoted.strip_suffix(['\'', '"'])?,
            None => value,
        };
        (!bare.is_empty()).then_some(bare)
    };
    let host = value("KUBERNETES_SERVICE_HOST")?;
    let port: u16 = value("KUBERNETES_SERVICE_PORT")?.parse().ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("https://{host}:{port}").parse().ok()
}

/// Kubernetes' verb of a request, as far as its method and query tell.
fn verb<B>(request: &Request<B>) -> &'static str {
    let is_watch = || request.uri().query().is_some_and(|query| query.contains("watch=true"));
    match *request.method() {
        Method::GET if is_watch() => "watch",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

const LONGEST_REFUSAL: usize = 1 << 20;

/// Copies `Retry-After` of a refusal to where kube shows it: the details of the status. An overloaded server sends it only
/// as a header.
async fn with_retry_after(answer: Response<AnswerBody>) -> Result<Response<AnswerBody>, BoxError> {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let (mut parts, body) = answer.into_parts();
    let Some(seconds) = seconds.filter(|_| !parts.status.is_success()) else {
        return Ok(Response::from_parts(parts, body));
    };
    let body = axum::body::to_bytes(body, LONGEST_REFUSAL).await?;
    let status = serde_json::from_slice(&body).ok().filter(Value::is_object);
    let mut status = status.unwrap_or_else(|| {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        json!({"status": "Failure", "code": parts.status.as_u16(), "message": message})
    });
    status["details"]["retryAfterSeconds"] = seconds.into();
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, status.to_string().into()))
}

/// Without a layer that retries: all retries follow the policy of the callers.
fn client(config: &Config, address: Option<EnvFile>, on_request: Option<OnRequest>) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE.0));
    http.set_keepalive_interval(Some(KEEPALIVE.1));
    http.set_keepalive_retries(Some(KEEPALIVE.2));
    let https = config.rustls_https_connector_with_connector(http)?;
    let http_client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(https);
    let limit = HEADERS_TIMEOUT.max(request::timeout());
    let send = move |request: Request<Body>| {
        let (verb, started, on_request) = (verb(&request), Instant::now(), on_request.clone());
        let answer = http_client.request(request);
        // The body of a refusal counts: a server may send its headers, and then nothing.
        let answer = async move { with_retry_after(answer.await?.map(AnswerBody::new)).await };
        async move {
            let answer = tokio::time::timeout(limit, answer).await;
            if let Some(on_request) = on_request {
                let code = answer.as_ref().map_or(0, |answer| answer.as_ref().map_or(0, |one| one.status().as_u16()));
                on_request(verb, code, started.elapsed());
            }
            answer.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs()).into()))
        }
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |request: Request<Body>| match &address {
            Some(file) => file.direct(request),
            None => request,
        })
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service_fn(send);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn retry_after_is_copied_to_the_details() {
        let refusal = |body: &str| {
            Response::builder().status(429).header(RETRY_AFTER, "7").body(AnswerBody::from(body.to_owned())).unwrap()
        };
        let refused = async |body: &str| -> Value {
            let answer = with_retry_after(refusal(body)).await.unwrap();
            serde_json::from_slice(&axum::body::to_bytes(answer.into_body(), 1000).await.unwrap()).unwrap()
        };
        let overloaded = refused("Too many requests\n").await;
        let expected = json!({"status": "Failure", "code": 429, "message": "Too many requests"});
        assert_eq!(overloaded["details"], json!({"retryAfterSeconds": 7}));
        assert!(expected.as_object().unwrap().iter().all(|(name, value)| overloaded[name] == *value), "{overloaded}");
        let status = refused(r#"{"reason": "TooManyRequests", "details": {"kind": "pods"}}"#).await;
        let details = json!({"kind": "pods", "retryAfterSeconds": 7});
        assert_eq!(status, json!({"reason": "TooManyRequests", "details": details}));
    }

    #[test]
    fn the_env_file_of_a_node_has_the_address_of_the_api_server() {
        let file = |host: &str, port: &str| format!("KUBERNETES_SERVICE_HOST={host}\nKUBERNETES_SERVICE_PORT={port}\n");
        for (text, expected) in [
            (file("'api-int.example.com'", "'6443'"), Some("https://api-int.example.com:6443")),
            (file("api-int.example.com", ""), None),
            ("KUBERNETES_SERVICE_HOST='api-in".into(), None),
            (file("'api-int.example.com'", "'64"), None),
            (file("\"fd00::1\"", "6443"), Some("https://[fd00::1]:6443")),
            (file("'api-int.example.com'", "'port'"), None),
            (file("''", "'6443'"), None),
            (String::new(), None),
        ] {
            assert_eq!(uri_of_env_file(&text), expected.map(|uri| uri.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_changed_env_file_changes_the_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let write = |host: &str| {
            fs::write(&path, format!("KUBERNETES_SERVICE_HOST={host}\nKUBERNETES_SERVICE_PORT=443\n")).unwrap();
        };
        assert!(EnvFile::read(path.clone()).is_err());
        write("one.example.com");
        let file = EnvFile::read(path.clone()).unwrap();
        let directed = || {
            let request = Request::get("https://first/api/v1/x?y=z").body(()).unwrap();
            file.direct(request).uri().to_string()
        };
        assert_eq!(directed(), "https://one.example.com:443/api/v1/x?y=z");
        write("another.example.com");
        assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z");
        for broken in ["", "''"] {
            write(broken);
            assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z", "the last good one");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z");
    }
}
