//! The connection to the API server (IO).
//!
//! kube's own stack, put together here for the two things that its default leaves out: small requests are sent at once
//! instead of waiting for the answer to the last packet (40 ms each time a connection is new), and a connection whose other
//! end has gone is noticed within a minute instead of at the end of a watch.

use std::{
    collections::HashSet,
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{Request, Uri};
use futures::{FutureExt, future::BoxFuture};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, ServiceBuilder, filter::AsyncFilterLayer};

use crate::facts::api_server_of_env_file;

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
        .map_err(BoxError::from)
        .service(http_client);
    Ok(Client::new(service, config.default_namespace.clone()))
}
