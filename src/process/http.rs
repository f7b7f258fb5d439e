//! The health endpoint, which shows the metrics, too (IO).
//!
//! `/healthz` answers while the process lives: an unreachable API server is no reason to restart it. `/readyz` reports
//! whether it does its work, and if not, what it waits for. Both answer with the same text for people.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::net::TcpListener;

use crate::process::metrics::{self, Metrics};

/// What the process waits for, or why it does not do its work; empty when it does.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Vec<String>>>);

impl Health {
    /// A process that has not begun.
    pub fn starting() -> Self {
        Self(Arc::new(Mutex::new(vec!["starting".to_owned()])))
    }

    /// Says what is being waited for now.
    pub fn set(&self, pending: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pending;
    }

    fn pending(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Listens on `--health-addr`; an address without a host means all addresses.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        Some(port) => {
            let port =
                port.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the port is not a number"))?;
            match TcpListener::bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)).await {
                // No IPv6 on this host.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await
                }
                bound => bound,
            }
        }
        None => TcpListener::bind(address).await,
    }
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, health: Health, metrics: Metrics) -> io::Result<()> {
    let exposition = move || async move { ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics.text()) };
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/healthz", get(|State(health): State<Health>| async move { (StatusCode::OK, text(&health)) }))
        .route("/readyz", get(|State(health): State<Health>| async move { (readiness(&health), text(&health)) }))
        .with_state(health);
    axum::serve(listener, routes).await
}

fn readiness(health: &Health) -> StatusCode {
    if health.pending().is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn text(health: &Health) -> String {
    let pending = health.pending();
    if pending.is_empty() {
        return "ok\n".to_owned();
    }
    format!("waiting: {}\n", pending.join("\nwaiting: "))
}
