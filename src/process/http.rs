//! An HTTP server that nobody can keep from its work (IO): it limits connections, and the time of each of their parts.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::IpAddr,
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

use crate::process::{review::Proven, serving::Serving};

/// Listens on an address; one without a host means all addresses.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else { return TcpListener::bind(address).await };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // No IPv6 on this host.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        bound => bound,
    }
}

/// The most connections at a time. A further one ends an older one: on the network of a host everybody can open them, and each
/// takes a file descriptor of those that the client needs.
const CONNECTIONS: usize = 64;

/// A connection that may still be open.
struct Connection {
    peer: IpAddr,
    proven: Proven,
    task: JoinHandle<()>,
}

/// The longest time until the headers of a request have arrived.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a connection that begins with a handshake, whose cryptography takes the time of the process's only thread:
/// everybody on the network of a host can ask for one.
const HANDSHAKE_PAUSE: Duration = Duration::from_millis(5);

/// The longest time until an answer is sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until dropped, over TLS where there are settings for it.
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
        let proven = Proven::default();
        let service = TowerToHyperService::new(routes.clone().layer(Extension(proven.clone())));
        let secured = tls.clone();
        // Errors of a connection are the client's.
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
        connections.push_back(Connection { peer: address.ip(), proven, task });
        if tls.is_some() {
            sleep(HANDSHAKE_PAUSE).await;
        }
    }
}

/// Which connection ends for a further one: of those whose client has proven nothing, the oldest from the address that has the most. So
/// who opens many ends their own.
fn first_to_end(connections: &VecDeque<Connection>) -> Option<usize> {
    let mut counts = HashMap::<IpAddr, usize>::new();
    let is_unproven = |connection: &&Connection| !connection.proven.is_set();
    for connection in connections.iter().filter(is_unproven) {
        *counts.entry(connection.peer).or_default() += 1;
    }
    let Some(most) = counts.values().max() else { return (!connections.is_empty()).then_some(0) };
    connections.iter().position(|one| is_unproven(&one) && counts.get(&one.peer) == Some(most))
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
    use super::*;
    use crate::process::health::{self, Health};

    #[tokio::test]
    async fn who_opens_many_connections_ends_their_own() {
        let connection = |peer: &str, is_proven: bool| {
            let proven = Proven::default();
            if is_proven {
                proven.set();
            }
            Connection { peer: peer.parse().unwrap(), proven, task: tokio::spawn(async {}) }
        };
        let ended = |all: &[(&str, bool)]| {
            first_to_end(&all.iter().map(|(peer, is_proven)| connection(peer, *is_proven)).collect())
        };
        assert_eq!(ended(&[]), None);
        // Prometheus, which has shown its token, and then before it has.
        assert_eq!(ended(&[("10.0.0.1", true), ("10.0.0.2", false), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.1", false), ("10.0.0.2", false), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.2", true), ("10.0.0.2", false)]), Some(1));
        assert_eq!(ended(&[("10.0.0.1", true), ("10.0.0.2", true)]), Some(0));
    }

    #[tokio::test]
    async fn idle_connections_keep_nobody_out() {
        use tokio::{
            io::{AsyncReadExt, AsyncWriteExt},
            net::TcpStream,
        };
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, health::routes(Health::starting()), None));
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS + 8 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        // Before the idle connections time out.
        let read = probe.read_to_string(&mut answer);
        timeout(HEADERS_TIMEOUT / 2, read).await.expect("an answer at once").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
