//! The connection to the API server (IO).
//!
//! kube's own stack with what its default lacks: small requests do not wait for an acknowledgement (40 ms on each new
//! connection), a dead or silent connection is noticed within two minutes and not at the end of a watch, watches are not
//! re-established in a hot loop, and the pause that a refusal asks for is shown.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use axum::{
    body::Body as AnswerBody,
    http::{
        Request, Response, Uri,
        header::{CONTENT_LENGTH, RETRY_AFTER},
    },
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceBuilder, filter::AsyncFilterLayer};

/// The longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The silence before a connection is probed, the interval of the probes, and the number of probes without an answer.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// A client for the cluster that a kubeconfig names, or for that of the Pod; `env_file` names its API server. Sends no
/// request.
pub async fn connect(kubeconfig: Option<&Path>, env_file: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => from_kubeconfig(path).await?,
        None => Config::infer().await.context("failed to find a kubeconfig or the credentials of a Pod")?,
    };
    if let Some(path) = env_file {
        let path = path.display();
        let text = fs::read_to_string(path.to_string())
            .with_context(|| format!("failed to read the address of the API server from {path}"))?;
        let url = api_server_of_env_file(&text).and_then(|url| url.parse().ok());
        config.cluster_url =
            url.with_context(|| format!("{path} sets no usable KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"))?;
    }
    client(&config).context("failed to set up the connection to the API server")
}

/// The URL of the API server in a file of `KUBERNETES_SERVICE_HOST='…'` and `KUBERNETES_SERVICE_PORT='…'`, as OpenShift puts
/// it on every node; `None` when the file does not have it.
fn api_server_of_env_file(text: &str) -> Option<String> {
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim().trim_matches(['\'', '"'])).filter(|value| !value.is_empty())
    };
    let host = value("KUBERNETES_SERVICE_HOST")?;
    let port: u16 = value("KUBERNETES_SERVICE_PORT").map_or(Ok(443), str::parse).ok()?;
    Some(if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
}

async fn from_kubeconfig(path: &Path) -> anyhow::Result<Config> {
    let name = path.display();
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("failed to read the kubeconfig {name}"))?;
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    // A proxy of the environment is for hosts outside the cluster and is not used.
    if clusters.any(|cluster| cluster.proxy_url.is_some()) {
        bail!("the kubeconfig {name} asks for a proxy (proxy-url), which is not supported");
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("failed to use the kubeconfig {name}"))
}

/// The pause between two watches that are re-established: something between here and the API server may end each at once,
/// which would make a hot loop. A first watch does not wait.
const WATCH_PAUSE: Duration = Duration::from_millis(125);

/// A request, once it may be sent.
type Waited = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// Delays watches that are being re-established.
fn paced() -> AsyncFilterLayer<impl Fn(Request<Body>) -> Waited + Clone> {
    let begun: Arc<Mutex<(HashSet<String>, Option<Instant>)>> = Arc::default();
    AsyncFilterLayer::new(move |request: Request<Body>| {
        let due = watched(request.uri()).and_then(|watch| {
            let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
            let (known, next) = &mut *begun;
            if known.insert(watch) {
                return None;
            }
            let now = Instant::now();
            let due = next.map_or(now, |next| next.max(now));
            *next = Some(due + WATCH_PAUSE);
            Some(due)
        });
        async move {
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            Ok(request)
        }
        .boxed()
    })
}

/// The objects that a request watches; `None` if it is no watch.
fn watched(uri: &Uri) -> Option<String> {
    let pairs = || uri.query().unwrap_or_default().split('&');
    pairs().any(|pair| pair == "watch=true").then(|| {
        let selectors = pairs().filter(|pair| pair.starts_with("fieldSelector=") || pair.starts_with("labelSelector="));
        std::iter::once(uri.path()).chain(selectors).collect::<Vec<_>>().join(" ")
    })
}

/// The longest pause in an answer. On every watch the API server sends a bookmark each minute: a longer silence means a dead
/// connection, and noticing that costs no request.
const LONGEST_SILENCE: Duration = Duration::from_secs(100);

/// An answer that ends with an error when it pauses for too long.
fn never_silent(body: AnswerBody, limit: Duration) -> AnswerBody {
    AnswerBody::from_stream(stream::unfold(body.into_data_stream(), move |mut pieces| async move {
        let piece = match tokio::time::timeout(limit, pieces.next()).await {
            Ok(piece) => piece?.map_err(BoxError::from),
            Err(_) => Err(format!("no data from the API server for {} s", limit.as_secs()).into()),
        };
        Some((piece, pieces))
    }))
}

/// The longest body of a refusal, in bytes.
const LONGEST_REFUSAL: usize = 1 << 20;

/// Copies `Retry-After` of a refusal to where kube shows it: the details of the status. An overloaded server sends it only
/// as a header.
async fn with_retry_after(answer: Response<AnswerBody>) -> Result<Response<AnswerBody>, BoxError> {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let (mut parts, body) = answer.into_parts();
    let body = never_silent(body, LONGEST_SILENCE);
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

/// Without a layer that retries: all retries follow one policy ([`crate::controllers`]).
fn client(config: &Config) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE.0));
    http.set_keepalive_interval(Some(KEEPALIVE.1));
    http.set_keepalive_retries(Some(KEEPALIVE.2));
    let https = config.rustls_https_connector_with_connector(http)?;
    let http_client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(paced())
        .and_then(with_retry_after)
        .map_response(|answer: Response<_>| answer.map(AnswerBody::new))
        .map_err(BoxError::from)
        .service(http_client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;

    #[tokio::test]
    async fn a_silent_answer_ends_with_an_error() {
        let data = stream::iter([Ok::<_, BoxError>(Bytes::from("a"))]);
        let ended = never_silent(AnswerBody::from_stream(data), Duration::from_secs(60));
        assert_eq!(axum::body::to_bytes(ended, 10).await.unwrap(), "a");
        let data = stream::iter([Ok::<_, BoxError>(Bytes::from("a"))]).chain(stream::pending());
        let silent = never_silent(AnswerBody::from_stream(data), Duration::from_millis(20));
        let pieces: Vec<_> = silent.into_data_stream().take(2).collect().await;
        assert_eq!(pieces[0].as_ref().unwrap(), "a");
        let error = pieces[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("no data from the API server"), "{error}");
    }

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
            (file("api-int.example.com", ""), Some("https://api-int.example.com:443")),
            (file("\"fd00::1\"", "6443"), Some("https://[fd00::1]:6443")),
            (file("'api-int.example.com'", "'port'"), None),
            (file("''", "'6443'"), None),
            (String::new(), None),
        ] {
            assert_eq!(api_server_of_env_file(&text).as_deref(), expected, "{text}");
        }
    }
}
