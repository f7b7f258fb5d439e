//! The connections to an API server (IO): HTTP/2 if the server offers it, otherwise HTTP/1.1.
//!
//! With HTTP/2 one connection carries all requests. An API server accepts 100 streams on a connection, and further requests would wait
//! until one ends. Watches do not end, so another connection is opened for many of them.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body as ResponseBody,
    http::{Request, Response},
};
use http_body_util::BodyExt;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client as HttpClient, Error,
        connect::{Connect, HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use tower::BoxError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time without an acknowledgement of sent data; the kernel alone would wait for a quarter of an hour.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The silence before a connection is probed, the interval of the probes, and the number of probes without an answer.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// The silence before a connection with HTTP/2 is probed, and the longest time until the answer, as in client-go. The kernel's probes
/// end at a load balancer, and one that has forgotten a connection may ignore it.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));

/// The number of watches on one connection. The rest of the server's 100 streams are for other requests.
const MAX_WATCHES: usize = 80;

/// The bytes that the server may send on a stream before they are read. The window of the connection is as large as those of all
/// streams, so that watches that nobody reads delay no other request.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;

/// Returns a connector to the API server of a configuration.
pub(super) fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>, BoxError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE.0));
    http.set_keepalive_interval(Some(KEEPALIVE.1));
    http.set_keepalive_retries(Some(KEEPALIVE.2));
    // kube's own connector offers HTTP/1.1 only.
    let mut https = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    Ok(https.enable_all_versions().wrap_connector(http))
}

/// The connections to an API server. Clones share them.
#[derive(Clone)]
pub(super) struct Connections<C> {
    connector: C,
    pools: Arc<Mutex<Vec<Pool<C>>>>,
}

/// The connections of one client: a single one with HTTP/2.
#[derive(Clone)]
struct Pool<C> {
    http: HttpClient<C, Body>,
    /// A clone for each watch.
    watches: Arc<()>,
    /// Whether a connection has been opened. Requests wait while the first one is being opened, because each would open one.
    is_open: Arc<tokio::sync::Mutex<bool>>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Connections<C> {
    /// Opens no connection.
    pub(super) fn new(connector: C) -> Self {
        Self { connector, pools: Arc::default() }
    }

    /// Sends a request. A watch has its place on a connection until the body of its response is dropped.
    pub(super) async fn send(&self, request: Request<Body>, is_watch: bool) -> Result<Response<ResponseBody>, Error> {
        let pool = self.pool();
        let response = pool.request(request).await?;
        if !is_watch {
            return Ok(response.map(ResponseBody::new));
        }
        Ok(response.map(|body| {
            ResponseBody::new(body.map_frame(move |frame| {
                let _place = &pool.watches;
                frame
            }))
        }))
    }

    fn pool(&self) -> Pool<C> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |pool: &&Pool<C>| Arc::strong_count(&pool.watches) <= MAX_WATCHES;
        if let Some(pool) = pools.iter().find(has_room) {
            return pool.clone();
        }
        let pool = Pool { http: self.client(), watches: Arc::default(), is_open: Arc::default() };
        pools.push(pool.clone());
        pool
    }

    fn client(&self) -> HttpClient<C, Body> {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(self.connector.clone())
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Pool<C> {
    async fn request(&self, mut request: Request<Body>) -> Result<Response<hyper::body::Incoming>, Error> {
        let mut is_open = self.is_open.lock().await;
        if *is_open {
            drop(is_open);
            return self.http.request(request).await;
        }
        let mut connection = capture_connection(&mut request);
        let mut response = pin!(self.http.request(request));
        tokio::select! {
            response = &mut response => return response,
            connected = connection.wait_for_connection_metadata() => *is_open = connected.is_some(),
        }
        drop(is_open);
        response.await
    }
}
