//! The connection to the API server (IO).
//!
//! It is kube's own stack with additions. Small requests do not wait for an acknowledgement (40 ms on each new connection). Each
//! request has a time limit, which includes the body of the response. Requests share a connection where the server offers HTTP/2. A dead
//! connection is noticed within a minute. The caller sees the pause that a refusal asks for.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use axum::{
    body::Body as ResponseBody,
    http::{
        Method, Request, Response,
        header::{CONTENT_LENGTH, RETRY_AFTER},
    },
};
use hyper_util::client::legacy::connect::Connect;
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::{
    cluster::{
        connections::{self, Connections},
        env_file::EnvFile,
        kubeconfig, request,
    },
    text::kubectl::Access,
};

/// The minimum time limit for the headers of a watch. An overloaded API server may queue its request for longer than others.
const WATCH_HEADERS_TIMEOUT: Duration = Duration::from_secs(30);

/// The callback for each request, with its verb, the HTTP status code of the response (zero without one), and the time until the headers
/// of the response.
pub type OnRequest = Arc<dyn Fn(&'static str, u16, Duration) + Send + Sync>;

/// Creates a client for a cluster. A request fails after `limit`. A file may contain the address of the API server. Sends no request.
pub async fn connect(
    access: &Access,
    limit: Duration,
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
    client(&config, limit, address, on_request)
        .map_err(|error| anyhow!(request::describe(&error)))
        .context("failed to set up the connection to the API server")
}

const WATCH: &str = "watch";

/// Returns the Kubernetes verb of a request, from its method and query.
fn verb<B>(request: &Request<B>) -> &'static str {
    let is_watch = || request.uri().query().is_some_and(|query| query.contains("watch=true"));
    match *request.method() {
        Method::GET if is_watch() => WATCH,
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// Marks a read that the client repeats after the pause that a refusal asks for, as client-go does. The storage of a new kind takes a
/// moment to start. All tries together take no longer than one request may.
#[derive(Clone)]
pub(super) struct Repeatable;

/// Waits for a response and its body, but no longer than `limit`: a server may send headers, and then nothing. The body of a watch that
/// succeeds does not end, and has no limit.
async fn limited(
    limit: Duration,
    is_watch: bool,
    response: impl Future<Output = Result<Response<ResponseBody>, BoxError>>,
) -> Result<Response<ResponseBody>, BoxError> {
    let whole = async {
        let (parts, body) = response.await?.into_parts();
        if is_watch && parts.status.is_success() {
            return Ok(Response::from_parts(parts, body));
        }
        let body = axum::body::to_bytes(body, usize::MAX).await?;
        Ok(Response::from_parts(parts, body.into()))
    };
    tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| Err(request::TimedOut.into()))
}

/// Returns the pause that a refusal asks for.
fn retry_after(response: &Response<ResponseBody>) -> Option<u32> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    (!response.status().is_success()).then_some(seconds)
}

const LONGEST_REFUSAL: usize = 1 << 20;

/// Copies the `Retry-After` header of a refusal to the details of its status, where kube reads it. An overloaded server sends only the
/// header.
async fn with_retry_after(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    let seconds = retry_after(&response);
    let (mut parts, body) = response.into_parts();
    let Some(seconds) = seconds else { return Ok(Response::from_parts(parts, body)) };
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

/// Repeats a request after each pause that a refusal asks for, as long as `limit` allows.
async fn repeated<F>(limit: Duration, send: impl Fn() -> F) -> F::Output
where
    F: Future<Output = Result<Response<ResponseBody>, BoxError>>,
{
    let started = tokio::time::Instant::now();
    loop {
        let response = send().await?;
        let pause = Duration::from_secs(retry_after(&response).unwrap_or_default().into());
        if pause.is_zero() || started.elapsed().saturating_add(pause) > limit {
            return Ok(response);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Reports a request when it ends: without a response if it is dropped, for example at its time limit.
struct Reporting<'a> {
    on_request: Option<&'a OnRequest>,
    verb: &'static str,
    started: Instant,
    code: u16,
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        if let Some(on_request) = self.on_request {
            on_request(self.verb, self.code, self.started.elapsed());
        }
    }
}

/// Sends requests, and reports each.
#[derive(Clone)]
struct Transport<C> {
    connections: Connections<C>,
    limit: Duration,
    on_request: Option<OnRequest>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Transport<C> {
    async fn send(self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let (parts, body) = request.into_parts();
        if parts.extensions.get::<Repeatable>().is_none() {
            return self.send_once(Request::from_parts(parts, body)).await;
        }
        // A read has no body.
        repeated(self.limit, || self.send_once(Request::from_parts(parts.clone(), Body::empty()))).await
    }

    async fn send_once(&self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let verb = verb(&request);
        let on_request = self.on_request.as_ref();
        let mut reporting = Reporting { on_request, verb, started: Instant::now(), code: 0 };
        let exchange = async { with_retry_after(self.connections.send(request, verb == WATCH).await?).await };
        let response = exchange.await;
        reporting.code = response.as_ref().map_or(0, |response| response.status().as_u16());
        response
    }
}

/// Creates a client whose requests take no longer than `limit`. Only reads are repeated: the callers decide on all other retries.
fn client(
    config: &Config,
    limit: Duration,
    address: Option<EnvFile>,
    on_request: Option<OnRequest>,
) -> Result<Client, kube::Error> {
    let connections = Connections::new(connections::connector(config).map_err(kube::Error::Service)?);
    let transport = Transport { connections, limit, on_request };
    let exchange = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |request: Request<Body>| match &address {
            Some(file) => file.direct(request),
            None => request,
        })
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service_fn(move |request: Request<Body>| transport.clone().send(request));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = verb(&request) == WATCH;
        let limit = if is_watch { limit.max(WATCH_HEADERS_TIMEOUT) } else { limit };
        limited(limit, is_watch, exchange.clone().oneshot(request))
    });
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::cluster::request::Cause;

    #[tokio::test]
    async fn retry_after_is_copied_to_the_details() {
        let overload = |body: &str| {
            Response::builder().status(429).header(RETRY_AFTER, "7").body(ResponseBody::from(body.to_owned())).unwrap()
        };
        let refused = async |body: &str| -> Value {
            let answer = with_retry_after(overload(body)).await.unwrap();
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

    /// A refusal that asks for this pause.
    fn refusal(seconds: u32) -> Response<ResponseBody> {
        Response::builder().status(429).header(RETRY_AFTER, seconds).body(ResponseBody::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_read_is_repeated_for_the_time_of_a_request() {
        let tries = Cell::new(0);
        let read = async |limit: Duration, works_at: u32, pause: u32| {
            tries.set(0);
            let response = repeated(limit, || {
                tries.set(tries.get() + 1);
                let has_failed = tries.get() < works_at;
                std::future::ready(Ok(if has_failed { refusal(pause) } else { Response::new(ResponseBody::empty()) }))
            });
            response.await.unwrap().status().is_success()
        };
        let limit = Duration::from_secs(15);
        assert!(read(limit, 4, 1).await && tries.get() == 4);
        assert!(!read(limit, 2, 0).await && tries.get() == 1, "a refusal that asks for no pause");
        assert!(!read(limit, 100, 2).await && tries.get() == 8, "{} tries", tries.get());
        assert!(!read(limit, 2, 60).await && tries.get() == 1, "a pause that is too long");
        assert!(read(Duration::MAX, 2, 60).await, "a request without a limit");
    }

    /// A client of a server that sends these headers with the start of a body, and then nothing.
    async fn client_of_silent_server(headers: &'static str) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(connection.read(&mut request).await.unwrap() > 0);
            connection.write_all(headers.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        client(&Config::new(uri), Duration::from_millis(300), None, None).unwrap()
    }

    #[tokio::test]
    async fn the_limit_of_a_request_includes_the_body_of_its_response() {
        for headers in [
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 100\r\n\r\n{",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\n{",
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        ] {
            let client = client_of_silent_server(headers).await;
            let sent = request::send(request::NO_DEADLINE, client.apiserver_version());
            let error = tokio::time::timeout(Duration::from_secs(10), sent).await.expect(headers).unwrap_err();
            assert!(matches!(error, Cause::Timeout), "{headers}: {error}");
        }
    }
}
