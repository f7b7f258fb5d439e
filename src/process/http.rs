//! The health endpoint, which shows the metrics, too (IO).
//!
//! `/healthz` succeeds while the process's loop turns: an unreachable API server is no reason to restart it. `/readyz`
//! succeeds while the process does its work, whether or not that succeeds: the status reports that. Both say what is wrong.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use axum::{
    Router, extract,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::process::metrics::{self, Metrics};

/// The state of the process. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<State>);

#[derive(Debug)]
struct State {
    /// What the process waits for; empty while it does its work.
    pending: Vec<String>,
    /// What does not go well although the process does its work.
    remarks: Vec<String>,
    /// When its loop last turned.
    turned: Instant,
}

/// How long the loop may not turn. It turns each ten minutes, and a pass may take minutes while requests are not answered.
const LONGEST_TURN: Duration = Duration::from_secs(1800);

impl Health {
    /// The health of a process before its first pass.
    pub fn starting() -> Self {
        let (pending, turned) = (vec!["starting".to_owned()], Instant::now());
        Self(watch::Sender::new(State { pending, remarks: Vec::new(), turned }))
    }

    /// Notes a turn of the loop, with what the process waits for, and what else does not go well.
    pub fn set(&self, pending: Vec<String>, remarks: Vec<String>) {
        self.0.send_replace(State { pending, remarks, turned: Instant::now() });
    }

    /// Whether the loop turns, and how it does.
    fn alive(&self, now: Instant) -> (StatusCode, String) {
        let since = now.saturating_duration_since(self.0.borrow().turned);
        if since > LONGEST_TURN {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the controllers have stood still for {} s\n", since.as_secs()),
            );
        }
        (StatusCode::OK, self.ready(now).1)
    }

    /// Whether the process does its work, which is not whether it succeeds.
    fn ready(&self, now: Instant) -> (StatusCode, String) {
        let state = self.0.borrow();
        let is_ready = state.pending.is_empty() && now.saturating_duration_since(state.turned) <= LONGEST_TURN;
        let line = |title: &'static str| move |text: &String| format!("{title}: {text}\n");
        let lines = state.pending.iter().map(line("waiting")).chain(state.remarks.iter().map(line("retrying")));
        let lines: Vec<_> = lines.collect();
        let text = if lines.is_empty() { "ok\n".to_owned() } else { lines.concat() };
        (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
    }
}

/// Listens on `--health-addr`; an address without a host means all addresses.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else { return TcpListener::bind(address).await };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // No IPv6 on this host.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        bound => bound,
    }
}

/// The most connections at a time. A further one ends the oldest: on the network of a host everybody can open them, and each
/// takes a file descriptor of those that the client needs.
const CONNECTIONS: usize = 64;

/// The longest time until the headers of a request have arrived.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The longest time until an answer is sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until dropped.
pub async fn serve(listener: TcpListener, health: Health, metrics: Metrics) -> io::Result<()> {
    let exposition = move || async move { ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics.text()) };
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route(
            "/healthz",
            get(|extract::State(health): extract::State<Health>| async move { health.alive(Instant::now()) }),
        )
        .route(
            "/readyz",
            get(|extract::State(health): extract::State<Health>| async move { health.ready(Instant::now()) }),
        )
        .with_state(health);
    let service = TowerToHyperService::new(routes);
    let mut connections: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, or the client is gone.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).keep_alive(false);
        let served = http.serve_connection(TokioIo::new(stream), service.clone());
        connections.push_back(tokio::spawn(async move {
            // Errors of a connection are the client's.
            let _ = timeout(ANSWER_TIMEOUT, served).await;
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_keep_nobody_out() {
        use tokio::{
            io::{AsyncReadExt, AsyncWriteExt},
            net::TcpStream,
        };
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Health::starting(), Metrics::default()));
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

    #[test]
    fn readiness_is_about_the_process_and_health_about_its_loop() {
        let (health, now) = (Health::starting(), Instant::now());
        assert_eq!(health.ready(now), (StatusCode::SERVICE_UNAVAILABLE, "waiting: starting\n".into()));
        assert_eq!(health.alive(now).0, StatusCode::OK);
        health.set(Vec::new(), vec!["failed to apply x".into()]);
        assert_eq!(health.ready(Instant::now()), (StatusCode::OK, "retrying: failed to apply x\n".into()));
        let later = Instant::now() + LONGEST_TURN + Duration::from_secs(1);
        assert_eq!([health.ready(later).0, health.alive(later).0], [StatusCode::SERVICE_UNAVAILABLE; 2]);
    }
}
