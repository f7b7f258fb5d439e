//! A faulty API server: an HTTPS proxy on loopback that records requests and injects faults by rules.
//!
//! Has a certificate of its own, so that it sees requests, and uses the given credentials for the real API server. Offers HTTP/2, as an
//! API server does, or HTTP/1.1 alone. Runs on its own thread and runtime, so that a busy test does not delay it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use axum::body::{Body, Bytes};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore, oneshot},
};
use tokio_rustls::TlsAcceptor;

use super::pki;

const H2: &[u8] = b"h2";

/// A fault that is injected into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is answered with this status, and with Retry-After if there are seconds.
    Answer(u16, Option<u32>),
    /// The request is ended without an answer: with HTTP/1.1 its connection, with HTTP/2 its stream. It does not reach the server.
    Cut,
    /// The connection is closed, with all its requests. The request does not reach the server.
    CutConnection,
    /// The request is served, and ended without an answer.
    CutAnswer,
    /// Half of the first piece of the answer is delivered, and nothing more. The connection stays open.
    HalfAnswer,
    /// The request is answered with this status after a while, as by a load balancer.
    LateAnswer(Duration, u16),
    /// The request is forwarded after a while.
    Slow(Duration),
    /// The request is forwarded once [`Faults::release`] allows one more.
    Held,
    /// A watch ends after a while.
    EndWatch(Duration),
    /// A watch ends after a while with the event that its resource version is too old.
    ExpireWatch(Duration),
    /// A watch gets no more events after a while. The connection stays open.
    SilentWatch(Duration),
}

/// A fault and its requests.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// Whether the rule applies to a request.
    pub applies: fn(&Seen) -> bool,
    /// To how many of them it applies.
    pub times: usize,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The query, empty if there is none.
    pub query: String,
    /// When it arrived.
    pub at: Instant,
    /// Whether a rule was applied to it.
    pub is_faulty: bool,
}

impl Seen {
    /// Whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| pair == "watch=true")
    }

    /// Whether the request changes an object.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether the request belongs to leader election.
    pub fn is_lease(&self) -> bool {
        self.path.starts_with("/apis/coordination.k8s.io/")
    }
}

#[derive(Debug)]
struct State {
    seen: Vec<Seen>,
    rules: Vec<Rule>,
    /// Lets requests that are held go, one for each permit.
    released: Arc<Semaphore>,
    /// A text that the next piece of a watch may have, and whether one had it.
    awaited: Option<(String, bool)>,
    /// The number of the last request that passes, and a channel that reports it.
    end: Option<(usize, Option<oneshot::Sender<()>>)>,
}

/// The protocols that the proxy offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// HTTP/2, and HTTP/1.1 to a client that does not speak it.
    Http2,
    /// HTTP/1.1 alone, as an API server whose TLS profile excludes the cipher suites of HTTP/2.
    Http1,
}

impl Default for State {
    fn default() -> Self {
        Self { seen: Vec::new(), rules: Vec::new(), released: Arc::new(Semaphore::new(0)), awaited: None, end: None }
    }
}

/// A running proxy; dropping it closes its connections.
#[derive(Debug)]
pub struct Faults {
    kubeconfig: PathBuf,
    state: Arc<Mutex<State>>,
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Faults {
    /// Starts a proxy for the API server of `kubeconfig`, with its credentials. Writes its own kubeconfig to `folder`.
    pub async fn start(kubeconfig: &Path, folder: &Path) -> Result<Self> {
        Self::offering(Offer::Http2, kubeconfig, folder).await
    }

    /// Starts a proxy that offers these protocols.
    pub async fn offering(offer: Offer, kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let upstream = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(upstream, &KubeConfigOptions::default()).await?;
        // The machine's proxy does not lead to the loopback.
        config.proxy_url = None;
        // Watches without events are silent.
        config.read_timeout = None;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to listen on loopback")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let kubeconfig = folder.join(format!("faults-{port}.kubeconfig"));
        let (certificate, key) = pki::self_signed(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let server = json!({
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": BASE64_STANDARD.encode(certificate.pem()),
        });
        let acceptor = acceptor(offer, certificate.der().clone(), key.serialize_der())?;
        let own = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "faults",
            "clusters": [{"name": "faults", "cluster": server}],
            "users": [{"name": "faults", "user": {}}],
            "contexts": [{"name": "faults", "context": {"cluster": "faults", "user": "faults"}}],
        });
        std::fs::write(&kubeconfig, own.to_string())?;
        let state = Arc::new(Mutex::new(State::default()));
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                // If this fails, connections are refused, and the test fails.
                let _ = tokio::select! {
                    _ = stopped => Ok(()),
                    result = serve(listener, acceptor, config, shared) => result,
                };
            });
        });
        Ok(Self { kubeconfig, state, stop: Some(stop), thread: Some(thread) })
    }

    /// The kubeconfig of the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Replaces the rules. Of those that apply to a request the first is used.
    pub fn inject(&self, rules: Vec<Rule>) {
        self.state().rules = rules;
    }

    /// Every request since the start, or since [`Self::forget`].
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// Removes the recorded requests and the rules.
    pub fn forget(&self) {
        *self.state() = State::default();
    }

    /// Forwards the `number`-th request from now on, counted from 1, without returning its answer, and no request after it.
    /// The channel reports when it has been served.
    pub fn end_after(&self, number: usize) -> oneshot::Receiver<()> {
        let (told, served) = oneshot::channel();
        *self.state() = State { end: Some((number, Some(told))), ..State::default() };
        served
    }

    /// Lets one request that is held go, now or as soon as there is one.
    pub fn release(&self) {
        self.state().released.add_permits(1);
    }

    /// Looks for a text in what watches tell from now on.
    pub fn look_for(&self, text: &str) {
        self.state().awaited = Some((text.to_owned(), false));
    }

    /// Whether a watch has delivered the text.
    pub fn has_told(&self) -> bool {
        self.state().awaited.as_ref().is_some_and(|(_, is_told)| *is_told)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn acceptor(offer: Offer, certificate: CertificateDer<'static>, key: Vec<u8>) -> Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(key).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = match offer {
        Offer::Http2 => vec![H2.to_vec(), b"http/1.1".to_vec()],
        Offer::Http1 => vec![b"http/1.1".to_vec()],
    };
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    config: Config,
    state: Arc<Mutex<State>>,
) -> Result<()> {
    let client = Client::try_from(config)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let (client, state, acceptor) = (client.clone(), Arc::clone(&state), acceptor.clone());
        // Both ends see a broken connection.
        tokio::spawn(async move {
            let connection = acceptor.accept(connection).await?;
            let is_http2 = connection.get_ref().1.alpn_protocol() == Some(H2);
            let cut_off = Arc::new(Notify::new());
            let service = service_fn(|request| pass(request, client.clone(), Arc::clone(&state), Arc::clone(&cut_off)));
            let connection = TokioIo::new(connection);
            let served = async {
                if is_http2 {
                    http2::Builder::new(TokioExecutor::new()).serve_connection(connection, service).await
                } else {
                    http1::Builder::new().serve_connection(connection, service).await
                }
            };
            tokio::select! {
                served = served => served.map_err(io::Error::other),
                () = cut_off.notified() => Err(cut()),
            }
        });
    }
}

/// The handling of a request.
enum Way {
    Through,
    Faulty(Fault),
    /// The last one: forwarded, never answered.
    Last(Option<oneshot::Sender<()>>),
    /// After the last one: not forwarded.
    Nowhere,
}

/// Handles one request; an error ends it.
async fn pass(
    request: Request<Incoming>,
    client: Client,
    state: Arc<Mutex<State>>,
    cut_off: Arc<Notify>,
) -> io::Result<Response<Body>> {
    let way = way(&request, &mut lock(&state));
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let fault = match way {
        Way::Through => None,
        Way::Faulty(fault) => Some(fault),
        Way::Last(told) => {
            let _ = forward(request, &client).await;
            if let Some(told) = told {
                let _ = told.send(());
            }
            return std::future::pending().await;
        }
        Way::Nowhere => return std::future::pending().await,
    };
    match fault {
        Some(Fault::Answer(code, retry_after)) => Ok(refusal(code, retry_after)),
        Some(Fault::LateAnswer(delay, code)) => {
            tokio::time::sleep(delay).await;
            Ok(refusal(code, None))
        }
        Some(Fault::Cut) => Err(cut()),
        Some(Fault::CutConnection) => {
            cut_off.notify_one();
            std::future::pending().await
        }
        Some(Fault::CutAnswer) => {
            forward(request, &client).await?;
            Err(cut())
        }
        Some(Fault::HalfAnswer) => {
            let (parts, body) = forward(request, &client).await?.into_parts();
            let half = body.into_data_stream().take(1).map_ok(|piece| piece.slice(..piece.len() / 2));
            let silence = stream::once(std::future::pending::<Result<Bytes, axum::Error>>());
            Ok(Response::from_parts(parts, Body::from_stream(half.chain(silence))))
        }
        Some(Fault::Slow(delay)) => {
            tokio::time::sleep(delay).await;
            forward(request, &client).await
        }
        Some(Fault::Held) => {
            let released = Arc::clone(&lock(&state).released);
            released.acquire().await.map_err(io::Error::other)?.forget();
            forward(request, &client).await
        }
        Some(Fault::EndWatch(after)) => Ok(until(forward(request, &client).await?, after, None, false)),
        Some(Fault::ExpireWatch(after)) => {
            let event = format!("{}\n", json!({"type": "ERROR", "object": status(410, "Expired")}));
            Ok(until(forward(request, &client).await?, after, Some(event), false))
        }
        Some(Fault::SilentWatch(after)) => Ok(until(forward(request, &client).await?, after, None, true)),
        None if is_watch => Ok(heard(forward(request, &client).await?, state)),
        None => forward(request, &client).await,
    }
}

/// The answer, whose body is searched for the text.
fn heard(answer: Response<Body>, state: Arc<Mutex<State>>) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let pieces = body.into_data_stream().inspect_ok(move |piece| {
        if let Some((text, is_told)) = &mut lock(&state).awaited {
            *is_told |= String::from_utf8_lossy(piece).contains(text.as_str());
        }
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

fn way(request: &Request<Incoming>, state: &mut State) -> Way {
    let mut seen = Seen {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        at: Instant::now(),
        is_faulty: false,
    };
    let rule = state.rules.iter_mut().find(|rule| rule.times > 0 && (rule.applies)(&seen));
    let fault = rule.map(|rule| {
        rule.times -= 1;
        rule.fault
    });
    seen.is_faulty = fault.is_some();
    state.seen.push(seen);
    let number = state.seen.len();
    match (&mut state.end, fault) {
        (Some((last, told)), _) if number == *last => Way::Last(told.take()),
        (Some((last, _)), _) if number > *last => Way::Nowhere,
        (_, Some(fault)) => Way::Faulty(fault),
        (_, None) => Way::Through,
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "cut")
}

async fn forward(request: Request<Incoming>, client: &Client) -> io::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    // The client sets both for the real server, and speaks HTTP/1.1 with it.
    parts.headers.remove(http::header::HOST);
    parts.uri = parts.uri.path_and_query().map(|path| http::Uri::from(path.clone())).unwrap_or_default();
    parts.version = http::Version::HTTP_11;
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(io::Error::other)?;
    let answer = client.send(Request::from_parts(parts, body.to_vec().into())).await.map_err(io::Error::other)?;
    let (mut parts, body) = answer.into_parts();
    // The answer is chunked again; and HTTP/2 has neither field.
    parts.headers.remove(http::header::TRANSFER_ENCODING);
    parts.headers.remove(http::header::CONNECTION);
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// The answer for some time, then optionally one more piece, then the end or silence.
fn until(answer: Response<Body>, after: Duration, last: Option<String>, is_silent: bool) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let served = body.into_data_stream().take_until(tokio::time::sleep(after));
    let served = served.map(|piece| piece.map_err(io::Error::other));
    let last = stream::iter(last.map(|last| Ok::<_, io::Error>(Bytes::from(last))));
    let silence = stream::once(async move {
        if is_silent {
            std::future::pending::<()>().await;
        }
        Ok::<_, io::Error>(Bytes::new())
    });
    Response::from_parts(parts, Body::from_stream(served.chain(last).chain(silence)))
}

/// The answer of an API server.
fn refusal(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    // Priority and fairness answers in plain text.
    let (body, kind) = match code {
        429 => ("Too many requests, please try again later.\n".to_owned(), "text/plain; charset=utf-8"),
        _ => (status(code, reason).to_string(), "application/json"),
    };
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    if let Some(seconds) = retry_after {
        headers.insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn status(code: u16, reason: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": format!("injected: {reason}")})
}
