//! The server (IO): health for everybody, metrics for clients that may get them.

use std::{io, net::IpAddr, path::PathBuf, sync::Arc};

use anyhow::Context;
use axum::{Router, extract::State, http::StatusCode, routing::get};
use ccm_kit::process::{http, leadership::Leadership, review, review::Reviewer, serving::Serving};
use kube::Client;
use tokio::sync::watch;
use tracing::info;

use crate::{
    flags::{ServingFlags, given},
    metrics::Metrics,
};

/// The name of the files in the folder of `--cert-dir`, as in the library.
const PAIR_NAME: &str = "cloud-controller-manager";

const METRICS: &str = "/metrics";

/// The cipher suites below TLS 1.3 that are served by default.
const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

impl ServingFlags {
    /// The problem of these flags, if they have one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let files = [&self.tls_cert_file, &self.tls_private_key_file].map(|file| given(file.as_ref()).is_some());
        if files[0] != files[1] {
            return Err("--tls-cert-file and --tls-private-key-file belong together: give both, or none");
        }
        Ok(())
    }

    /// The address in the form of the kit.
    fn address(&self) -> String {
        match self.bind_address {
            // As in the library, of both families.
            any if any.is_unspecified() => format!(":{}", self.secure_port),
            IpAddr::V4(ip) => format!("{ip}:{}", self.secure_port),
            IpAddr::V6(ip) => format!("[{ip}]:{}", self.secure_port),
        }
    }

    fn suites(&self) -> Vec<String> {
        let wanted: &[String] = &self.tls_cipher_suites;
        let known = SUITES.into_iter().map(ToOwned::to_owned);
        match self.tls_min_version.as_str() {
            "VersionTLS13" => Vec::new(),
            _ if wanted.iter().any(|suite| !suite.is_empty()) => wanted.to_vec(),
            _ => known.collect(),
        }
    }

    fn certificate(&self, metrics: &Metrics) -> anyhow::Result<Serving> {
        let (suites, expires) = (self.suites(), metrics.serving());
        let suites = move || suites.clone();
        let pair = given(self.tls_cert_file.as_ref()).cloned().zip(given(self.tls_private_key_file.as_ref()).cloned());
        let in_folder = |folder: &PathBuf| ["crt", "key"].map(|end| folder.join(format!("{PAIR_NAME}.{end}")));
        let pair = pair.map(<[PathBuf; 2]>::from).or_else(|| given(self.cert_dir.as_ref()).map(in_folder));
        Serving::with_files(pair, suites, expires)
    }
}

/// The state of the process that `/readyz` shows.
#[derive(Clone)]
pub(crate) struct Readiness {
    /// Whether the process leads.
    pub(crate) leadership: watch::Receiver<Leadership>,
    /// Why the cloud cannot be asked; `None` once it was reached, or if it was not needed yet.
    pub(crate) cloud: watch::Receiver<Option<String>>,
}

impl Readiness {
    /// What the process waits for; `None` while it does its work, or waits for another process to end.
    pub(crate) fn waits_for(&self) -> Option<String> {
        match &*self.leadership.borrow() {
            Leadership::Waiting(problem) => problem.clone(),
            Leadership::Leading(_) => self.cloud.borrow().clone(),
        }
    }
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.waits_for() {
        None => (StatusCode::OK, "ok".to_owned()),
        // Whoever reaches the port may read it, so it has no reason.
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready: see the log of the process\n".to_owned()),
    }
}

/// The paths that anybody may get.
fn open_routes(readiness: Readiness) -> Router {
    // While the process answers, it is alive: it ends by itself if it loses its lease.
    let alive = || async { "ok" };
    Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .with_state(readiness)
}

fn routes(flags: &ServingFlags, readiness: Readiness, metrics: &Metrics, reviews: Client) -> Router {
    let metrics = metrics.clone();
    let text = move || metrics.text();
    let is_open = flags
        .authorization_always_allow_paths
        .iter()
        .any(|path| path == METRICS || path.strip_suffix('*').is_some_and(|start| METRICS.starts_with(start)));
    let metrics = if is_open { review::open_routes(text) } else { review::routes(text, Reviewer::new(reviews)) };
    open_routes(readiness).merge(metrics)
}

/// Listens, and returns the server; `None` if nothing is to be served.
pub(crate) async fn start(
    flags: &ServingFlags,
    readiness: Readiness,
    metrics: &Metrics,
    reviews: Client,
) -> anyhow::Result<Option<impl Future<Output = io::Result<()>> + use<>>> {
    if flags.secure_port == 0 {
        return Ok(None);
    }
    let address = flags.address();
    let listener = http::bind(&address).await;
    let listener = listener.with_context(|| format!("failed to listen on --secure-port, address {address}"))?;
    let serving = Arc::new(flags.certificate(metrics)?);
    let listening = listener.local_addr()?;
    info!(address = %listening, "serving HTTPS");
    Ok(Some(http::serve(listener, routes(flags, readiness, metrics, reviews), Some(serving))))
}

#[cfg(test)]
mod tests;
