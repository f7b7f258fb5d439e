//! The connection to the API server (IO).
//!
//! kube's own stack, put together here for what its default leaves out: small requests are sent at once instead of
//! waiting for the answer to the last packet (40 ms each time a connection is new), a connection whose other end has gone or
//! has fallen silent is noticed within a minute or two instead of at the end of a watch, watches do not begin again in a hot
//! loop, and the pause that a refusal asks for is shown.

use std::{
    collections::HashSet,
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::{Body as AnswerBody, Bytes, HttpBody},
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
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceBuilder, filter::AsyncFilterLayer};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// After how much silence a connection is probed, how often, and how many probes may go unanswered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read.
    #[error("failed to read the kubeconfig {path}")]
    Read {
        /// Its path.
        path: String,
        /// The cause.
        source: KubeconfigError,
    },
    /// The kubeconfig does not say how to connect.
    #[error("failed to use the kubeconfig {path}")]
    Use {
        /// Its path.
        path: String,
        /// The cause.
        source: KubeconfigError,
    },
    /// No kubeconfig was given, and there are no credentials of a Pod.
    #[error("failed to find a kubeconfig or the credentials of a Pod")]
    Infer(#[from] InferConfigError),
    /// The file that says where the API server is cannot be read.
    #[error("failed to read {path}, which says where the API server is")]
    EnvFile {
        /// Its path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// It does not say where the API server is.
    #[error("{0} sets no usable KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT")]
    NoAddress(String),
    /// A proxy is asked for.
    #[error("the kubeconfig {0} asks for a proxy (proxy-url), which is not supported")]
    Proxy(String),
    /// Certificates or credentials cannot be used.
    #[error("failed to set up the connection to the API server")]
    SetUp(#[source] kube::Error),
}

/// A client for the cluster that a kubeconfig names, or for that of the Pod; `env_file` says where its API server is. Asks
/// the API server for nothing.
pub async fn connect(kubeconfig: Option<&Path>, env_file: Option<&Path>) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        Some(path) => from_kubeconfig(path).await?,
        None => Config::infer().await?,
    };
    if let Some(path) = env_file {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| Error::EnvFile { path: name(), source })?;
        let url = api_server_of_env_file(&text).and_then(|url| url.parse().ok());
        config.cluster_url = url.ok_or_else(|| Error::NoAddress(name()))?;
    }
    client(&config).map_err(Error::SetUp)
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

async fn from_kubeconfig(path: &Path) -> Result<Config, Error> {
    let name = || path.display().to_string();
    let kubeconfig = Kubeconfig::read_from(path).map_err(|source| Error::Read { path: name(), source })?;
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    // A proxy of the environment is for what is outside of the cluster, and is not asked.
    if clusters.any(|cluster| cluster.proxy_url.is_some()) {
        return Err(Error::Proxy(name()));
    }
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|source| Error::Use { path: name(), source })
}

/// How long after one watch another may begin again.
///
/// A watch that ends is taken up again at once, which is right once in five minutes, and a hot loop where something between
/// here and the API server ends each of them at once. What begins for the first time does not wait.
const WATCH_PAUSE: Duration = Duration::from_millis(125);

/// A request, once it may be sent.
type Waited = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// A layer that lets watches wait which begin again.
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

/// What a request watches, `None` when it is no watch.
fn watched(uri: &Uri) -> Option<String> {
    let pairs = || uri.query().unwrap_or_default().split('&');
    pairs().any(|pair| pair == "watch=true").then(|| {
        let selectors = pairs().filter(|pair| pair.starts_with("fieldSelector=") || pair.starts_with("labelSelector="));
        std::iter::once(uri.path()).chain(selectors).collect::<Vec<_>>().join(" ")
    })
}

/// How long an answer may pause. On every watch the API server sends a bookmark each minute, also when nothing happens: a
/// watch that says nothing for longer is blind, and to find that out costs no request.
const LONGEST_SILENCE: Duration = Duration::from_secs(100);

/// An answer that breaks off when it pauses for too long.
fn never_silent<B>(body: B, limit: Duration) -> AnswerBody
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let pieces = AnswerBody::new(body).into_data_stream();
    AnswerBody::from_stream(stream::unfold(pieces, move |mut pieces| async move {
        let piece = match tokio::time::timeout(limit, pieces.next()).await {
            Ok(piece) => piece?.map_err(BoxError::from),
            Err(_) => Err(format!("the API server has said nothing for {} s", limit.as_secs()).into()),
        };
        Some((piece, pieces))
    }))
}

/// How long an answer may be that refuses something.
const LONGEST_REFUSAL: usize = 1 << 20;

/// Puts the pause that the API server asks for in a header of its refusal where kube shows it: into the details of the
/// status. A server that is too busy to answer says it in no other way.
async fn with_retry_after<B>(answer: Response<B>) -> Result<Response<AnswerBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let (mut parts, body) = answer.into_parts();
    let body = never_silent(body, LONGEST_SILENCE);
    let Some(seconds) = seconds.filter(|_| !parts.status.is_success()) else {
        return Ok(Response::from_parts(parts, body));
    };
    let body = axum::body::to_bytes(body, LONGEST_REFUSAL).await?;
    let said = serde_json::from_slice(&body).ok().filter(Value::is_object);
    let mut said = said.unwrap_or_else(|| {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        json!({"status": "Failure", "code": parts.status.as_u16(), "message": message})
    });
    said["details"]["retryAfterSeconds"] = seconds.into();
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, said.to_string().into()))
}

/// No layer that tries again: errors are ours to wait for, with one policy, and to tell.
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
        .map_err(BoxError::from)
        .service(http_client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_falls_silent_breaks_off() {
        let said = stream::iter([Ok::<_, BoxError>(Bytes::from("a"))]);
        let ended = never_silent(AnswerBody::from_stream(said), Duration::from_secs(60));
        assert_eq!(axum::body::to_bytes(ended, 10).await.unwrap(), "a");
        let said = stream::iter([Ok::<_, BoxError>(Bytes::from("a"))]).chain(stream::pending());
        let silent = never_silent(AnswerBody::from_stream(said), Duration::from_millis(20));
        let pieces: Vec<_> = silent.into_data_stream().take(2).collect().await;
        assert_eq!(pieces[0].as_ref().unwrap(), "a");
        let error = pieces[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("the API server has said nothing"), "{error}");
    }

    #[tokio::test]
    async fn the_pause_that_is_asked_for_stands_in_the_details() {
        let refusal = |body: &str| {
            Response::builder().status(429).header(RETRY_AFTER, "7").body(AnswerBody::from(body.to_owned())).unwrap()
        };
        let said = async |body: &str| -> Value {
            let answer = with_retry_after(refusal(body)).await.unwrap();
            serde_json::from_slice(&axum::body::to_bytes(answer.into_body(), 1000).await.unwrap()).unwrap()
        };
        let hurried = said("Too many requests\n").await;
        let expected = json!({"status": "Failure", "code": 429, "message": "Too many requests"});
        assert_eq!(hurried["details"], json!({"retryAfterSeconds": 7}));
        assert!(expected.as_object().unwrap().iter().all(|(name, value)| hurried[name] == *value), "{hurried}");
        let status = said(r#"{"reason": "TooManyRequests", "details": {"kind": "pods"}}"#).await;
        let details = json!({"kind": "pods", "retryAfterSeconds": 7});
        assert_eq!(status, json!({"reason": "TooManyRequests", "details": details}));
    }

    #[test]
    fn the_file_of_a_node_says_where_the_api_server_is() {
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
