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
const MAX_GREETING: usize = 1 << 20;

/// A connection that leads to the right Engine.
pub(super) struct Connection {
    line: Line,
    /// The version of the API that is spoken.
    pub(super) version: Version,
    /// Who the Engine is, as it said at the beginning, until somebody wants to know it.
    pub(super) greeting: Option<Info>,
}

/// A connection that may lead anywhere.
struct Line {
    sender: SendRequest<Content>,
    /// Reads and writes. It ends with the connection.
    task: JoinHandle<hyper::Result<()>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request without an answer.
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether nothing of it was sent.
    pub(super) is_unsent: bool,
}

/// Connects, chooses the version of the API, and checks which Engine it is.
pub(super) async fn connect(
    host: &Host,
    tls: Option<&Tls>,
    pinned: Option<Version>,
    identities: &Identities,
) -> Result<Connection> {
    let mut line = dial(host, tls).await?;
    let spoken: Spoken = line.get(host, "/version").await?;
    let version = spoken.choose(pinned)?;
    let info: Info = line.get(host, &format!("/v{version}/info")).await?;
    identities.admit(&host.region, &info)?;
    Ok(Connection { line, version, greeting: Some(info) })
}

/// The header `Host` of requests.
pub(super) fn host_header(host: &Host) -> String {
    match &host.endpoint {
        Endpoint::Tcp(..) => host.to_string().trim_start_matches("tcp://").to_owned(),
        Endpoint::Unix(_) => "localhost".to_owned(),
    }
}

async fn dial(host: &Host, tls: Option<&Tls>) -> Result<Line> {
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

async fn shake_hands(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Line> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failure::of(&error))?;
    Ok(Line { sender, task: tokio::spawn(connection) })
}

impl Line {
    async fn get<T: DeserializeOwned>(&mut self, host: &Host, path: &str) -> Result<T> {
        let request = Request::get(path).header(header::HOST, host_header(host)).body(Content::default());
        let request = request.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        let (head, body) = self.send(request).await.map_err(|failed| failed.error)?.into_parts();
        let body = Limited::new(body, MAX_GREETING).collect().await.map_err(|error| failure::of(&*error))?;
        let what = format!("GET {path} of {host}");
        Answer::of(&head).whole(what, body.to_bytes()).ok()?.json()
    }

    async fn send(&mut self, request: Request<Content>) -> std::result::Result<Response<Incoming>, Failed> {
        let (error, is_unsent) = match self.sender.ready().await {
            Err(error) => (error, true),
            Ok(()) => match self.sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer),
                Err(mut failed) => {
                    let is_unsent = failed.take_message().is_some();
                    (failed.into_error(), is_unsent)
                }
            },
        };
        Err(Failed { error: self.reason(&error).await, is_unsent })
    }

    /// Why a request failed. An alert of TLS 1.3 about the client's certificate arrives after the handshake, and may end the
    /// connection before the request.
    async fn reason(&mut self, error: &hyper::Error) -> Error {
        let is_late = self.sender.is_closed() && (error.is_canceled() || error.is_closed());
        if is_late && let Ok(Err(cause)) = (&mut self.task).await {
            return failure::of(&cause);
        }
        failure::of(error)
    }
}

impl Connection {
    /// Sends a request, and returns the answer, whose body is not read yet.
    pub(super) async fn send(&mut self, request: Request<Content>) -> std::result::Result<Response<Incoming>, Failed> {
        self.line.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll, time::Duration};

    use super::*;
    use crate::stand_in::{StandIn, certificates::Authority, values};

    #[tokio::test]
    async fn a_connection_ends_when_it_is_dropped() {
        // It reads nothing, so that nothing is ever sent to its end.
        let (ours, _theirs) = tokio::io::duplex(1);
        let mut line = shake_hands(ours).await.unwrap();
        let task = line.task.abort_handle();
        let request = Request::post("/").body(Content::new(vec![0; 1 << 20].into())).unwrap();
        let mut sent = Box::pin(line.send(request));
        for _ in 0..10 {
            poll_fn(|context| Poll::Ready(sent.as_mut().poll(context).is_pending())).await;
            tokio::task::yield_now().await;
        }
        drop(sent);
        drop(line);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(task.is_finished());
    }

    #[tokio::test]
    async fn a_certificate_that_is_refused_before_the_first_request_is_the_reason() {
        let (ours, others) = (Authority::new("ours"), Authority::new("others"));
        let folder = tempfile::tempdir().unwrap();
        others.write_client(folder.path(), &ours);
        let engine = StandIn::start_tls(ours.server("127.0.0.1")).await;
        let tls = Tls::load(&values(&[("certPath", folder.path().to_str().unwrap())])).unwrap();
        let host = crate::hosts::parse(&[&engine.host], true).unwrap().remove(0);
        let mut line = dial(&host, tls.as_ref()).await.unwrap();
        while !line.sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = line.get::<Spoken>(&host, "/version").await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
    }
}
