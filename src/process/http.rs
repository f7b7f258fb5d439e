//! The health endpoint, which shows the metrics, too (IO).
//!
//! `/healthz` succeeds while the process lives: an unreachable API server is no reason to restart it. `/readyz` succeeds
//! while the process does its work. Both list what the process waits for.

use std::io;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use crate::process::metrics::{self, Metrics};

/// What the process waits for; empty while it does its work. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<Vec<String>>);

impl Health {
    /// The health of a process before its first pass.
    pub fn starting() -> Self {
        Self(watch::Sender::new(vec!["starting".to_owned()]))
    }

    /// Replaces what the process waits for.
    pub fn set(&self, pending: Vec<String>) {
        self.0.send_replace(pending);
    }

    fn report(&self) -> (StatusCode, String) {
        let pending = self.0.borrow();
        if pending.is_empty() {
            return (StatusCode::OK, "ok\n".to_owned());
        }
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting: {}\n", pending.join("\nwaiting: ")))
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

/// Serves until dropped.
pub async fn serve(listener: TcpListener, health: Health, metrics: Metrics) -> io::Result<()> {
    let exposition = move || async move { ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics.text()) };
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/healthz", get(|State(health): State<Health>| async move { health.report().1 }))
        .route("/readyz", get(|State(health): State<Health>| async move { health.report() }))
        .with_state(health);
    axum::serve(listener, routes).await
}
