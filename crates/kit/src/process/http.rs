//! An HTTP server that no client can block (IO): it limits the number of connections, and the time of each phase of a connection.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::process::{
    peer::{Caller, Peer},
    serving::Serving,
};

/// Listens on an address. An address without a host means all addresses.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else { return TcpListener::bind(address).await };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // This host has no IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        bound => bound,
    }
}

/// The maximum number of open connections. A further one ends an older one. Every client on the network of the host can open
/// connections, and each takes a file descriptor that the client of the API server may need.
const CONNECTIONS: usize = 64;

/// A connection that may still be open.
struct Connection {
    caller: Caller,
    task: JoinHandle<()>,
}

const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a TLS handshake, whose cryptography blocks the only thread of the process. Every client on the network of the host
/// can start one.
const HANDSHAKE_PAUSE: Duration = Duration::from_millis(5);

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until dropped, with TLS if it is configured.
pub async fn serve(listener: TcpListener, routes: Router, tls: Option<Arc<Serving>>) -> io::Result<()> {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            // Out of file descriptors, or the client is gone.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.task.is_finished());
        if connections.len() >= CONNECTIONS
            && let Some(ended) = first_to_end(&connections).and_then(|index| connections.remove(index))
        {
            ended.task.abort();
        }
        let caller = Caller::new(address.ip());
        let service = TowerToHyperService::new(routes.clone().layer(Extension(caller.clone())));
        let secured = tls.clone();
        // Errors of a connection concern only its client.
        let task = tokio::spawn(async move {
            match secured {
                None => answer(stream, service).await,
                Some(tls) => {
                    if let Some(stream) = handshake(stream, &tls).await {
                        answer(stream, service).await;
                    }
                }
            }
        });
        connections.push_back(Connection { caller, task });
        if tls.is_some() {
            sleep(HANDSHAKE_PAUSE).await;
        }
    }
}

/// Returns the connection to end for a further one: among the unproven clients, the oldest one of the peer with the most connections.
/// So a client that opens many connections ends its own.
fn first_to_end(connections: &VecDeque<Connection>) -> Option<usize> {
    let mut counts = HashMap::<Peer, usize>::new();
    let is_unproven = |connection: &&Connection| !connection.caller.has_proven();
    for connection in connections.iter().filter(is_unproven) {
        *counts.entry(connection.caller.peer).or_default() += 1;
    }
    let Some(most) = counts.values().max() else { return (!connections.is_empty()).then_some(0) };
    connections.iter().position(|one| is_unproven(&one) && counts.get(&one.caller.peer) == Some(most))
}

async fn handshake(stream: TcpStream, tls: &Serving) -> Option<impl AsyncRead + AsyncWrite + Unpin + use<>> {
    let acceptor = TlsAcceptor::from(tls.config().ok()?);
    timeout(HEADERS_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, service: TowerToHyperService<Router>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).keep_alive(false);
    let _ = timeout(ANSWER_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await;
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Notify,
    };

    use super::*;
    use crate::process::health::{self, Health};

    #[tokio::test]
    async fn who_opens_many_connections_ends_their_own() {
        let connection = |peer: &str, has_proven: bool| {
            let caller = Caller::new(peer.parse().unwrap());
            if has_proven {
                caller.prove();
            }
            Connection { caller, task: tokio::spawn(async {}) }
        };
        let ended = |all: &[(&str, bool)]| {
            first_to_end(&all.iter().map(|(peer, has_proven)| connection(peer, *has_proven)).collect())
        };
        assert_eq!(ended(&[]), None);
        // Prometheus after it has sent its token, and then before.
        assert_eq!(ended(&[("10.0.0.1", true), ("10.0.0.2", false), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.1", false), ("10.0.0.2", false), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.2", true), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.1", true), ("10.0.0.2", true)]), Some(0));
        // An IPv6 network belongs to one host.
        let with_ipv6 =
            [("10.0.0.1", false), ("10.0.0.1", false), ("fd00::1", false), ("fd00::2", false), ("fd00::3", false)];
        assert_eq!(ended(&with_ipv6), Some(2));
    }

    async fn ask(stream: &mut TcpStream, path: &str) {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_has_proven_something_outlives_idle_ones() {
        // The answer comes after all connections.
        let (asked, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let notify = (Arc::clone(&asked), Arc::clone(&answers));
        let prove = |Extension(caller): Extension<Caller>| async move {
            caller.prove();
            notify.0.notify_one();
            notify.1.notified().await;
            "proven"
        };
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new().route("/prove", get(prove)), None));
        let mut first = TcpStream::connect(address).await.unwrap();
        ask(&mut first, "/prove").await;
        timeout(HEADERS_TIMEOUT, asked.notified()).await.expect("a request with its caller");
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS + 8 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        // The server has accepted them once the last one gets an answer.
        let (mut last, mut ignored) = (TcpStream::connect(address).await.unwrap(), String::new());
        ask(&mut last, "/other").await;
        timeout(HEADERS_TIMEOUT, last.read_to_string(&mut ignored)).await.expect("an answer").unwrap();
        answers.notify_one();
        let mut answer = String::new();
        let _ = timeout(HEADERS_TIMEOUT, first.read_to_string(&mut answer)).await.expect("an answer");
        assert!(answer.ends_with("proven"), "{answer}");
    }

    #[tokio::test]
    async fn idle_connections_keep_nobody_out() {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, health::routes(Health::starting()), None));
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS + 8 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        ask(&mut probe, "/healthz").await;
        let mut answer = String::new();
        // Before the idle connections time out.
        let read = probe.read_to_string(&mut answer);
        timeout(HEADERS_TIMEOUT / 2, read).await.expect("an answer at once").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
