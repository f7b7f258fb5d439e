//! Connections to an Engine. A new one asks for the versions of the API and for the Engine's id before anything else.

use std::io;

use ccm_drivers::contract::{Endpoint, Error, ErrorKind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use super::{
    answer::Answer,
    failure,
    identity::{Identities, Info},
    version::{Spoken, Version},
};
use crate::{brief, hosts::Host, tls::Tls};

/// The bytes of a request.
pub(super) type Content = Full<Bytes>;

/// The maximum size of the first answers.
const MOST_OF_A_GREETING: usize = 1 << 20;

/// A connection that leads to the right Engine.
pub(super) struct Connection {
    sender: SendRequest<Content>,
    /// Reads and writes. It ends with the connection.
    task: JoinHandle<hyper::Result<()>>,
    /// The version of the API that is spoken.
    pub(super) version: Version,
    is_new: bool,
}

/// A request without an answer.
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether the Engine cannot have seen it.
    pub(super) was_not_sent: bool,
}

/// A connection that may lead anywhere.
struct Unknown {
    sender: SendRequest<Content>,
    task: JoinHandle<hyper::Result<()>>,
}

/// Connects, chooses the version of the API, and checks which Engine it is.
pub(super) async fn connect(
    host: &Host,
    tls: Option<&Tls>,
    pinned: Option<Version>,
    identities: &Identities,
) -> Result<Connection> {
    let mut unknown = dial(host, tls).await?;
    let spoken: Spoken = unknown.get(host, "/version").await?;
    let version = spoken.choose(pinned)?;
    let info: Info = unknown.get(host, &format!("/v{version}/info")).await?;
    identities.admit(&host.region, &info)?;
    let Unknown { sender, task } = unknown;
    Ok(Connection { sender, task, version, is_new: true })
}

/// The header `Host` of requests.
pub(super) fn host_header(host: &Host) -> String {
    match &host.endpoint {
        Endpoint::Tcp(..) => host.to_string().trim_start_matches("tcp://").to_owned(),
        Endpoint::Unix(_) => "localhost".to_owned(),
    }
}

async fn dial(host: &Host, tls: Option<&Tls>) -> Result<Unknown> {
    let failed = |error: io::Error| failure::of_connect(&error, &host.to_string());
    match &host.endpoint {
        Endpoint::Unix(path) => shake_hands(UnixStream::connect(path).await.map_err(failed)?).await,
        Endpoint::Tcp(name, port) => {
            let stream = TcpStream::connect((name.as_str(), *port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let Some(Tls { config, server_name }) = tls else { return shake_hands(stream).await };
            let server_name = match server_name {
                Some(name) => name.clone(),
                None => ServerName::try_from(name.clone()).map_err(|_| {
                    Error::invalid("host", format!("{:?} is no name of a certificate; give tlsServerName", brief(name)))
                })?,
            };
            let stream = TlsConnector::from(config.clone()).connect(server_name, stream).await.map_err(failed)?;
            shake_hands(stream).await
        }
    }
}

async fn shake_hands(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Unknown> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failure::of(&error))?;
    Ok(Unknown { sender, task: tokio::spawn(connection) })
}

impl Unknown {
    async fn get<T: DeserializeOwned>(&mut self, host: &Host, path: &str) -> Result<T> {
        let request = Request::get(path).header(header::HOST, host_header(host)).body(Content::default());
        let request = request.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        let answer = match self.sender.ready().await {
            Ok(()) => self.sender.send_request(request).await,
            Err(error) => Err(error),
        };
        let (head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(error) => return Err(reason(&error, &self.sender, &mut self.task).await),
        };
        let body = Limited::new(body, MOST_OF_A_GREETING).collect().await.map_err(|error| failure::of(&*error))?;
        let what = format!("GET {path} of {host}");
        Answer::of(&head).whole(what, body.to_bytes()).ok()?.json()
    }
}

impl Connection {
    /// Whether it has not waited for a request yet.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits until it can take a request; `false` if it has ended.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.is_new = false;
        self.sender.ready().await.is_ok()
    }

    /// Sends a request, and returns the head of the answer.
    pub(super) async fn send(&mut self, request: Request<Content>) -> std::result::Result<Response<Incoming>, Failed> {
        if let Err(error) = self.sender.ready().await {
            return Err(Failed { error: reason(&error, &self.sender, &mut self.task).await, was_not_sent: true });
        }
        match self.sender.try_send_request(request).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let was_not_sent = error.message().is_some();
                let error = reason(error.error(), &self.sender, &mut self.task).await;
                Err(Failed { error, was_not_sent })
            }
        }
    }
}

/// Why a request failed. An alert of TLS 1.3 about the client's certificate arrives after the handshake, and may end the
/// connection before the request.
async fn reason(
    error: &hyper::Error,
    sender: &SendRequest<Content>,
    task: &mut JoinHandle<hyper::Result<()>>,
) -> Error {
    let is_late = sender.is_closed() && (error.is_canceled() || error.is_closed());
    if is_late && let Ok(Err(cause)) = task.await {
        return failure::of(&cause);
    }
    failure::of(error)
}
