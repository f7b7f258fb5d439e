//! The connections to an API server (IO): HTTP/2 if the server offers it, otherwise HTTP/1.1.
//!
//! With HTTP/2 one connection carries all requests. An API server accepts 100 streams on a connection, and further requests would wait
//! until one ends. Watches do not end, so another connection is opened for many of them.

use std::{
    error::Error as _,
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
use tokio::task::JoinSet;
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

/// The longest time for which a request waits until another one has opened a connection. It opens one of its own afterwards, because the
/// first may have met a server that does not answer.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// The connections to an API server. Clones share them.
#[derive(Clone)]
pub(super) struct Connections<C> {
    connector: C,
    pools: Arc<Mutex<Vec<Pool<C>>>>,
}

/// The connections of one client: a single one with HTTP/2.
#[derive(Clone)]
struct Pool<C> {
    connection: Connection<C>,
    /// A clone for each watch, and for each request until the headers of its response.
    places: Arc<()>,
}

#[derive(Clone)]
struct Connection<C> {
    http: HttpClient<C, Body>,
    /// The protocol of the connection, once there was one. Locked while a request may have to open one, because otherwise each of several
    /// requests would.
    protocol: Arc<tokio::sync::Mutex<Option<Protocol>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Each simultaneous request needs a connection.
    Http1,
    Http2,
}

/// Forgets a pool whose request was given up before the headers of its response. Its connection may be silent, and further requests would
/// wait for it, too. Watches on it go on.
struct Unanswered<'a, C> {
    connections: &'a Connections<C>,
    pool: &'a Pool<C>,
    is_answered: bool,
}

impl<C> Drop for Unanswered<'_, C> {
    fn drop(&mut self) {
        if !self.is_answered {
            let is_other = |one: &Pool<C>| !Arc::ptr_eq(&one.places, &self.pool.places);
            self.connections.pools.lock().unwrap_or_else(PoisonError::into_inner).retain(is_other);
        }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Connections<C> {
    /// Opens no connection.
    pub(super) fn new(connector: C) -> Self {
        Self { connector, pools: Arc::default() }
    }

    /// Sends a request. A watch has its place on a connection until the body of its response is dropped.
    pub(super) async fn send(&self, request: Request<Body>, is_watch: bool) -> Result<Response<ResponseBody>, Error> {
        let again = cloned(&request);
        match (self.send_once(request, is_watch).await, again) {
            (Err(error), Some(again)) if is_unprocessed(&error) => self.send_once(again, is_watch).await,
            (response, _) => response,
        }
    }

    async fn send_once(&self, request: Request<Body>, is_watch: bool) -> Result<Response<ResponseBody>, Error> {
        let pool = self.pool();
        let mut unanswered = Unanswered { connections: self, pool: &pool, is_answered: false };
        let connection = pool.connection.clone();
        let response = on_its_own(async move { connection.request(request).await }).await;
        unanswered.is_answered = true;
        let response = response?;
        if !is_watch {
            return Ok(response.map(ResponseBody::new));
        }
        let place = Arc::clone(&pool.places);
        Ok(response.map(|body| {
            ResponseBody::new(body.map_frame(move |frame| {
                // It is dropped with this function, which belongs to the body.
                let _: &Arc<()> = &place;
                frame
            }))
        }))
    }

    fn pool(&self) -> Pool<C> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |pool: &&Pool<C>| Arc::strong_count(&pool.places) <= MAX_WATCHES;
        if let Some(pool) = pools.iter().find(has_room) {
            return pool.clone();
        }
        let connection = Connection { http: self.client(), protocol: Arc::default() };
        let pool = Pool { connection, places: Arc::default() };
        pools.push(pool.clone());
        pool
    }

    fn client(&self) -> HttpClient<C, Body> {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            // Open streams do not count as use, so the pool would forget a connection that carries nothing but watches.
            .pool_idle_timeout(None)
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(self.connector.clone())
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Connection<C> {
    async fn request(&self, mut request: Request<Body>) -> Result<Response<hyper::body::Incoming>, Error> {
        let protocol = tokio::time::timeout(LONGEST_WAIT, self.protocol.lock()).await;
        let Some(mut protocol) = protocol.ok().filter(|protocol| **protocol != Some(Protocol::Http1)) else {
            return self.http.request(request).await;
        };
        let mut connection = capture_connection(&mut request);
        let mut response = pin!(self.http.request(request));
        tokio::select! {
            response = &mut response => return response,
            connected = connection.wait_for_connection_metadata() => {
                let of = |is_http2: bool| if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
                *protocol = connected.as_ref().map(|connected| of(connected.is_negotiated_h2()));
            }
        }
        drop(protocol);
        response.await
    }
}

/// Runs a future in a task of its own, which ends with this one. The requests of watches are not polled while the operator applies. One of
/// them may have to open the connection, or may be the next to do so, and all others would wait for it.
async fn on_its_own<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(future);
    match task.join_next().await {
        Some(Ok(output)) => output,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only a runtime that shuts down aborts it, and polls nothing afterwards.
        _ => std::future::pending().await,
    }
}

/// Returns a copy of a request whose body is in memory.
fn cloned(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

/// Whether the server has ended the connection in an orderly way without processing the request: it sends the last request that it
/// processes, and ignores all later ones.
fn is_unprocessed(error: &Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            return h2.is_go_away() && h2.is_remote() && h2.reason() == Some(h2::Reason::NO_ERROR);
        }
        source = cause.source();
    }
    false
}
