//! A stand-in for the kubelet of a node: it serves the logs of containers over HTTPS on loopback, as the API server asks for them.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

/// The data of the kubelet, and the requests that it got.
#[derive(Debug, Default)]
struct State {
    /// The log of every container.
    log: Vec<String>,
    /// Path and query of each request.
    asked: Vec<String>,
}

/// A running kubelet; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Kubelet {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
    _server: JoinSet<()>,
}

impl Kubelet {
    pub(crate) async fn start() -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let (acceptor, listener) =
            (TlsAcceptor::from(Arc::new(tls)), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let (port, state) = (listener.local_addr()?.port(), Arc::new(Mutex::new(State::default())));
        let (mut server, shared) = (JoinSet::new(), Arc::clone(&state));
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(async |request| Ok::<_, Infallible>(answer(&shared, &request)));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Ok(Self { port, state, _server: server })
    }

    /// Adds lines to the log.
    pub(crate) fn log(&self, lines: &[&str]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.log.extend(lines.iter().map(|line| format!("{line}\n")));
    }

    /// Path and query of each request.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }
}

fn answer(state: &Mutex<State>, request: &Request<Incoming>) -> Response<String> {
    let uri = request.uri();
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked.push(uri.to_string());
    let tail = tail(uri.query().unwrap_or_default()).unwrap_or(usize::MAX);
    let (status, text) = if uri.path().starts_with("/containerLogs/") {
        (StatusCode::OK, state.log[state.log.len().saturating_sub(tail)..].concat())
    } else {
        (StatusCode::NOT_FOUND, String::new())
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}

fn tail(query: &str) -> Result<usize> {
    let lines = query.split('&').find_map(|pair| pair.strip_prefix("tailLines=")).context("no tailLines")?;
    Ok(lines.parse()?)
}
